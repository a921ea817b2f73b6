//! Checks that hold for any octets as a DNS message. The fuzz target `message` and the test that
//! replays its corpus use them.

use dns64_wire::ParseError;
use dns64_wire::build::{Builder, Owner};
use dns64_wire::message::{HEADER_LEN, Message, Record, STEPS_SPARE, Section};
use dns64_wire::name::{LABEL_LEN_MAX, NAME_LEN_MAX, Name, NameBuf, POINTERS_MAX};

/// Number of labels and pointers of the longest name, with its root label: the last name that is
/// read may exceed the limit for all names by that much.
const NAME_STEPS_MAX: usize = NAME_LEN_MAX / 2 + POINTERS_MAX + 1;

/// Reads the whole message and panics if a property of the crate is violated.
pub(crate) fn check(bytes: &[u8]) {
    let message = match Message::parse(bytes) {
        Ok(message) => message,
        Err(ParseError::ShortHeader { len }) => {
            assert!(len == bytes.len() && len < HEADER_LEN);
            return;
        }
        Err(_) => return,
    };
    if let Some(question) = message.question() {
        check_name(&question.name);
        assert_eq!(question.range().start, HEADER_LEN);
        assert!(question.range().end <= bytes.len());
    }
    let promised = [message.ancount(), message.nscount(), message.arcount()];
    let promised: usize = promised.into_iter().map(usize::from).sum();
    let mut records = message.records();
    let sound = records
        .by_ref()
        .map_while(Result::ok)
        .inspect(|r| check_record(bytes, r))
        .count();
    assert!(sound <= promised);
    let steps_max = bytes.len() + STEPS_SPARE + NAME_STEPS_MAX;
    assert!(records.steps() <= steps_max, "{} steps", records.steps());
    assert!(
        records.next().is_none(),
        "records follow the end of the iteration"
    );
    check_opt(&message, sound == promised);
    if sound == promised {
        check_copy(&message);
    }
}

fn check_record(bytes: &[u8], record: &Record<'_>) {
    check_name(&record.name);
    let end = record.rdata_offset + record.rdata.len();
    assert_eq!(bytes.get(record.rdata_offset..end), Some(record.rdata));
    assert!(record.a().is_none() || record.rdata.len() == 4);
    assert!(record.aaaa().is_none() || record.rdata.len() == 16);
    if let Ok(name) = record.rdata_name() {
        check_name(&name);
    }
}

fn check_name(name: &Name<'_>) {
    let buf = name.to_buf();
    assert_eq!(buf.as_wire().len(), name.wire_len());
    assert!((1..=NAME_LEN_MAX).contains(&name.wire_len()));
    assert!(
        name.labels()
            .all(|label| (1..=LABEL_LEN_MAX).contains(&label.len()))
    );
    assert!(name.eq_ignore_case(&buf.as_name()) && name.is_within(&buf.as_name()));
    assert_eq!(NameBuf::from_wire(buf.as_wire()).as_ref(), Ok(&buf));
    assert_eq!(name.to_string().parse::<NameBuf>().as_ref(), Ok(&buf));
}

fn check_opt(message: &Message<'_>, all_sound: bool) {
    let opt = message.opt();
    assert!(all_sound || opt.is_err());
    if let Ok(Some(opt)) = opt {
        let len: usize = opt.options().map(|option| 4 + option.value.len()).sum();
        assert_eq!(len, opt.options.len());
    }
}

/// Copies the message with a builder, record by record, and reads the copy.
fn check_copy(message: &Message<'_>) {
    let mut buf = [0; 4096];
    let mut copy = Builder::new(&mut buf, 4096).expect("room for a header");
    copy.header(message.id(), message.flags());
    if let Some(question) = message.question() {
        let asked = copy.question_raw(&question);
        assert_eq!(asked, Ok(()), "there is room");
    }
    let mut copied = 0;
    for record in message.records().map_while(Result::ok) {
        let owner = record.name.to_buf();
        let owner = Owner::Name(&owner);
        let (rtype, class) = (record.rtype, record.class);
        if copy
            .record(
                record.section,
                owner,
                rtype,
                class,
                record.ttl,
                record.rdata,
            )
            .is_err()
        {
            break;
        }
        copied += 1;
    }
    let len = copy.finish();
    let copy = Message::parse(&buf[..len]).expect("the builder makes sound messages");
    assert_eq!((copy.id(), copy.flags()), (message.id(), message.flags()));
    assert_eq!(copy.records().filter(Result::is_ok).count(), copied);
    for (ours, theirs) in copy.records().zip(message.records()) {
        let (Ok(ours), Ok(theirs)) = (ours, theirs) else {
            panic!("a record was lost in the copy");
        };
        assert!(ours.name.eq_ignore_case(&theirs.name));
        assert_eq!(sections(&ours), sections(&theirs));
        assert_eq!((ours.ttl, ours.rdata), (theirs.ttl, theirs.rdata));
    }
}

fn sections(record: &Record<'_>) -> (Section, u16, u16) {
    (record.section, record.rtype.0, record.class.0)
}
