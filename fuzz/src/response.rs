//! Checks that hold for any octets as the response of an upstream. The fuzz target `response` and
//! the test that replays its corpus use them.
//!
//! An input is: an octet of choices, an octet of age, the length of the first response in two
//! octets, the first response, and the records of the second, which is the response for A of the
//! same name.

use std::sync::OnceLock;

use dns64_wire::ParseError;
use dns64_wire::build::Builder;
use dns64_wire::codes::{Class, Rtype};
use dns64_wire::message::{Flags, HEADER_LEN, Message, STEPS_SPARE};
use dns64_wire::name::{NAME_LEN_MAX, POINTERS_MAX};
use dns64d::answer::asker::{Asker, AskerEdns};
use dns64d::answer::reverse::{self, Reverse};
use dns64d::answer::stored::{Age, Aged, STALE_TTL_S, Stored, TtlBounds};
use dns64d::answer::synthesis::{self, Verdict};
use dns64d::answer::{local, reply, special};
use dns64d::settings::dns64::Dns64;
use dns64d::settings::domains::Domains;
use dns64d::settings::local::Local;

/// Octets before the first response.
const CHOICES_LEN: usize = 4;

/// Number of labels and pointers of the longest name, with its root label: the last name that is
/// read may exceed the limit for all names by that much.
const NAME_STEPS_MAX: usize = NAME_LEN_MAX / 2 + POINTERS_MAX + 1;

/// Longest DNS message.
const MESSAGE_MAX: usize = 65_535;

const BOUNDS: TtlBounds = TtlBounds {
    min_s: 0,
    max_s: 86_400,
    max_negative_s: 3600,
};

/// Accepts the octets as responses, writes every response from them, and panics if a property is
/// violated.
pub(crate) fn check(bytes: &[u8]) {
    let Some((&[choices, age, high, low], rest)) = bytes.split_first_chunk::<CHOICES_LEN>() else {
        return;
    };
    let len = usize::from(u16::from_be_bytes([high, low])).min(rest.len());
    let (first, second) = rest.split_at(len);
    let Some(first) = accept(first) else {
        return;
    };
    let Some(asker) = asker(&first, choices) else {
        return;
    };
    let second = accept(&same_name_for_a(&asker, second));
    let age = match age {
        u8::MAX => Age::Stale,
        age => Age::Seconds(u32::from(age)),
    };
    let ways = Ways {
        asker,
        dns64: dns64(choices),
        first: Aged {
            stored: &first,
            age,
        },
        second: second.as_ref().map(|stored| Aged { stored, age }),
    };
    ways.check();
}

/// Accepts a response. Then all stored records must be valid and from the response.
fn accept(bytes: &[u8]) -> Option<Stored> {
    let message = Message::parse(bytes).ok()?;
    check_cost(&message);
    let stored = Stored::accept(&message, &BOUNDS).ok()?;
    let kept = stored.message();
    check_cost(&kept);
    assert!(kept.id() == 0);
    let _end = stored.chain_end();
    let offsets: Vec<_> = stored.ttl_offsets().collect();
    let mut ttls_at = Vec::new();
    let sent: Vec<_> = message.records().map_while(Result::ok).collect();
    for record in kept.records() {
        let record = record.expect("a kept record is sound");
        assert!(record.ttl <= BOUNDS.max_s);
        ttls_at.push(record.rdata_offset - 6);
        let same = sent.iter().any(|sent| {
            (sent.section, sent.rtype) == (record.section, record.rtype)
                && sent.name.eq_ignore_case(&record.name)
        });
        assert!(same, "{} {} was not sent", record.name, record.rtype);
    }
    assert_eq!(offsets, ttls_at);
    Some(stored)
}

/// Checks that the cost of reading all records, with the names in their data, is proportional to
/// the length of the message.
fn check_cost(message: &Message<'_>) {
    let mut records = message.records();
    while let Some(Ok(record)) = records.next() {
        if records.name(record.rdata_offset).is_err() {
            break;
        }
    }
    let steps_max = message.bytes().len() + STEPS_SPARE + NAME_STEPS_MAX;
    assert!(records.steps() <= steps_max, "{} steps", records.steps());
}

fn asker(stored: &Stored, choices: u8) -> Option<Asker> {
    let message = stored.message();
    let question = message.question()?;
    let edns = (choices & 1 != 0).then_some(AskerEdns {
        udp_size: 1232,
        do_bit: choices & 2 != 0,
        ..AskerEdns::default()
    });
    let limits = [512, 1232, 4096, MESSAGE_MAX];
    Some(Asker {
        id: 0x1234,
        name: question.name.to_buf(),
        rtype: question.rtype,
        class: question.class,
        flags: Flags::default()
            .with_rd(true)
            .with_cd(choices & 4 != 0)
            .with_ad(choices & 8 != 0),
        edns,
        limit: limits[usize::from(choices >> 4 & 3)],
    })
}

/// Settings with different synthesis, parsed once.
fn dns64(choices: u8) -> &'static Dns64 {
    static READ: OnceLock<[Dns64; 4]> = OnceLock::new();
    let all = READ.get_or_init(|| {
        [
            "",
            "exclude-aaaa = [\"2000::/4\"]\nforce-domains = [\"example\"]\nmark-synthesised = true",
            "prefix = \"2001:db8::/32\"\nexclude-aaaa = [\"::/0\"]\nsynthesise-signed = \"always\"",
            "exclude-domains = [\"example\"]\nptr = \"local\"\nptr-name = \"nat64.example\"",
        ]
        .map(|more| {
            let text = format!("[upstream]\nservers = [\"192.0.2.53\"]\n[dns64]\n{more}\n");
            let settings = dns64d::config::parse(&text, "fuzz").expect("a good configuration");
            let view = settings.views.into_iter().next().expect("a view");
            view.dns64.expect("it is enabled")
        })
    });
    &all[usize::from(choices >> 6)]
}

/// A response to an A query for the asker's name, with the header's flags and the records of the
/// input.
fn same_name_for_a(asker: &Asker, records: &[u8]) -> Vec<u8> {
    let mut message = vec![0; HEADER_LEN + 300];
    let room = message.len();
    let mut builder = Builder::new(&mut message, room).expect("room");
    builder.header(0, Flags::default());
    let asked = builder.question(&asker.name, Rtype::A, asker.class);
    asked.expect("room for every name");
    let len = builder.finish();
    message.truncate(len);
    if let Some((header, records)) = records.split_first_chunk::<8>() {
        message[2..4].copy_from_slice(&header[..2]);
        message[6..HEADER_LEN].copy_from_slice(&header[2..]);
        message.extend_from_slice(records);
    }
    message.truncate(MESSAGE_MAX);
    message
}

/// Writes all responses that are possible from one or two stored responses.
struct Ways<'a> {
    asker: Asker,
    dns64: &'static Dns64,
    first: Aged<'a>,
    second: Option<Aged<'a>>,
}

impl Ways<'_> {
    fn check(&self) {
        let Self {
            asker,
            dns64,
            first,
            second,
        } = self;
        let (asker, first) = (asker, *first);
        self.answer(None, |frame| reply::forward(asker, first, frame));
        let verdict = synthesis::judge(asker, dns64, first.stored);
        if verdict != Verdict::Native {
            assert!(asker.rtype == Rtype::AAAA && asker.class == Class::IN && !asker.validates());
            self.answer(Some(false), |frame| {
                synthesis::filtered(asker, dns64, first, frame)
            });
        }
        if let (Verdict::NeedsA, Some(second)) = (verdict, second) {
            let mut made = 0;
            let ad = |made: usize| (made > 0).then_some(false);
            let mut scratch = vec![0; MESSAGE_MAX];
            made += synthesis::synthesise(asker, dns64, first, *second, &mut scratch).made;
            self.answer(ad(made), |frame| {
                synthesis::synthesise(asker, dns64, first, *second, frame).len
            });
        }
        match reverse::target(asker, dns64) {
            Some(Reverse::Local(name)) => assert!(reverse::local(asker, name, &mut [0; 1024]) > 0),
            Some(Reverse::Alias(name)) => {
                self.answer(Some(false), |frame| {
                    reverse::alias(asker, &name, first, frame)
                });
            }
            None => {}
        }
        let _own = special::answer(asker, Some(dns64), &mut [0; MESSAGE_MAX]);
        static ZONES: OnceLock<Local> = OnceLock::new();
        let _own = local::answer(
            asker,
            ZONES.get_or_init(|| local::special_use(&[])),
            Some(dns64),
            &Domains::<u8>::default(),
            &mut [0; MESSAGE_MAX],
        );
    }

    /// Writes a response and checks it; `ad` is the expected AD, if known.
    fn answer(&self, ad: Option<bool>, write: impl FnOnce(&mut [u8]) -> usize) {
        let mut frame = vec![0xee; MESSAGE_MAX];
        let len = write(&mut frame);
        if len == 0 {
            return;
        }
        assert!(len <= self.asker.limit, "{len} > {}", self.asker.limit);
        // A response that is written a second time may have been longer at first.
        assert!(
            frame[self.asker.limit.min(MESSAGE_MAX)..]
                .iter()
                .all(|octet| *octet == 0xee)
        );
        let message = Message::parse(&frame[..len]).expect("an answer parses");
        assert!(message.qr() && message.id() == self.asker.id);
        assert!(ad.is_none_or(|ad| message.ad() == ad));
        let question = message.question().expect("the question is repeated");
        assert!(question.name.eq_ignore_case(&self.asker.name.as_name()));
        let parts = [Some(self.first), self.second];
        let ttl_max = parts.iter().flatten().map(|aged| ttl_max(*aged)).max();
        let mut records = 0;
        for record in message.records() {
            // The response may compress more names than the upstream did.
            if matches!(record, Err(ParseError::NameSteps)) {
                return;
            }
            let record = record.expect("an answer has sound records");
            records += 1;
            let is_opt = record.rtype == Rtype::OPT;
            assert!(is_opt || Some(record.ttl) <= ttl_max);
        }
        assert_eq!(
            Some(records),
            theirs(&frame[..len]),
            "another implementation disagrees"
        );
    }
}

fn ttl_max(aged: Aged<'_>) -> u32 {
    let message = aged.stored.message();
    let ttls = message.records().map_while(Result::ok).map(|r| r.ttl);
    let ttl_max = ttls.max().unwrap_or(0);
    match aged.age {
        Age::Seconds(age_s) => ttl_max.saturating_sub(age_s),
        Age::Stale => STALE_TTL_S,
    }
}

/// Number of records that the crate `domain` reads, if it accepts the message.
fn theirs(bytes: &[u8]) -> Option<usize> {
    let message = domain::base::Message::from_octets(bytes).ok()?;
    let mut records = 0;
    let mut section = Some(message.answer().ok()?);
    while let Some(mut walk) = section {
        for record in walk.by_ref() {
            record.ok()?;
            records += 1;
        }
        section = walk.next_section().ok()?;
    }
    Some(records)
}
