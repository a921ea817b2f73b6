//! Records as text and as octets, by the crate `domain`: an implementation other than that of dns64d.

use std::str::FromStr;

use dns64_wire::message;
use domain::base::iana::{Class, Rtype};
use domain::base::message::Section;
use domain::base::message_builder::MessageBuilder;
use domain::base::name::ToName;
use domain::base::{Message, Name, ParsedName, Record};
use domain::rdata::AllRecordData;
use domain::zonefile::inplace::{Entry, ScannedRecordData, Zonefile};

use super::case::Run;

/// A name. `==` ignores case.
pub(super) type Owned = Name<Vec<u8>>;

/// A record of the authority.
pub(super) type Rr = Record<Owned, ScannedRecordData>;

/// Reads lines of a zone file: owner, TTL (300 unless given), class (IN unless given), type, data.
pub(super) fn records(text: &str, run: &Run) -> Result<Vec<Rr>, String> {
    absolute(&run.fill(text)?, &run.origin)
}

/// The same without anything to replace.
pub(super) fn absolute(lines: &str, origin: &str) -> Result<Vec<Rr>, String> {
    let text = format!("$ORIGIN {origin}\n$TTL {TTL_S}\n{lines}\n");
    let mut file = Zonefile::from(text.as_str()).allow_invalid();
    file.set_default_class(Class::IN);
    let mut all = Vec::new();
    let unreadable = |error| format!("{lines:?}: {error}");
    while let Some(entry) = file.next_entry().map_err(unreadable)? {
        let Entry::Record(record) = entry else {
            return Err(format!("$INCLUDE in {lines:?}"));
        };
        let (class, ttl) = (record.class(), record.ttl());
        let owner = record.owner().to_vec();
        all.push(Record::new(owner, class, ttl, record.into_data()));
    }
    Ok(all)
}

/// TTL of records without one, in seconds: longer than a run.
const TTL_S: u32 = 300;

/// Reads a name relative to the origin of the run; `@` is the origin.
pub(super) fn name(text: &str, run: &Run) -> Result<Owned, String> {
    let text = run.fill(text)?;
    let absolute = match text.as_str() {
        "@" => run.origin.clone(),
        text if text.ends_with('.') => text.to_owned(),
        text => format!("{text}.{}", run.origin),
    };
    Name::from_str(&absolute).map_err(|error| format!("name {absolute}: {error}"))
}

/// A record of a message as it is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) section: message::Section,
    /// With the final dot, in lower case.
    pub(super) owner: String,
    pub(super) ttl: u32,
    pub(super) class: Class,
    pub(super) rtype: Rtype,
    /// In presentation form, in lower case.
    pub(super) data: String,
}

impl std::fmt::Display for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            owner,
            ttl,
            class,
            rtype,
            data,
            ..
        } = self;
        write!(f, "{owner} {ttl} {class} {rtype} {data}")
    }
}

/// The records of a message, without OPT.
pub(super) fn shown(message: &[u8]) -> Result<Vec<Shown>, String> {
    let parsed = Message::from_octets(message).map_err(|error| error.to_string())?;
    let mut all = Vec::new();
    for record in &parsed {
        let (record, section) = record.map_err(|error| error.to_string())?;
        if record.rtype() == Rtype::OPT {
            continue;
        }
        let record = record.into_any_record::<AllRecordData<_, ParsedName<_>>>();
        let record = record.map_err(|error| error.to_string())?;
        let data = record.data().to_string().to_lowercase();
        all.push(Shown {
            section: match section {
                Section::Answer => message::Section::Answer,
                Section::Authority => message::Section::Authority,
                Section::Additional => message::Section::Additional,
            },
            owner: dotted(record.owner()),
            ttl: record.ttl().as_secs(),
            class: record.class(),
            rtype: record.rtype(),
            data,
        });
    }
    Ok(all)
}

/// A name in lower case with the final dot.
pub(super) fn dotted(name: &impl std::fmt::Display) -> String {
    let text = name.to_string().to_lowercase();
    match text.ends_with('.') {
        true => text,
        false => format!("{text}."),
    }
}

/// A bound of a number: `<=60`, `>=1`, `=0`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    least: u32,
    most: u32,
}

impl Bound {
    pub(super) const ANY: Self = Self {
        least: 0,
        most: u32::MAX,
    };

    pub(super) const SOME: Self = Self {
        least: 1,
        most: u32::MAX,
    };

    /// Reads a bound; `None` for any other word.
    pub(super) fn parse(word: &str) -> Option<Self> {
        let number = |sign: &str| word.strip_prefix(sign)?.parse().ok();
        if let Some(most) = number("<=") {
            return Some(Self { least: 0, most });
        }
        if let Some(least) = number(">=") {
            let most = u32::MAX;
            return Some(Self { least, most });
        }
        number("=").map(|least| Self { least, most: least })
    }

    pub(super) fn holds(self, number: u32) -> bool {
        (self.least..=self.most).contains(&number)
    }
}

/// An owner, and a bound of the TTL of its record.
#[derive(Clone, Debug)]
pub(super) struct Bounded {
    pub(super) owner: String,
    pub(super) ttl: Bound,
}

impl Bounded {
    pub(super) fn parse(text: &str, run: &Run) -> Result<Self, String> {
        let (owner, bound) = text.split_once(' ').unwrap_or((text, ">=0"));
        Ok(Self {
            owner: dotted(&name(owner, run)?),
            ttl: Bound::parse(bound).ok_or_else(|| format!("{bound:?} is no bound of a TTL"))?,
        })
    }
}

/// An expected record.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    owner: String,
    ttl: Bound,
    class: Class,
    rtype: Rtype,
    /// `None` for any.
    data: Option<String>,
}

impl Wanted {
    /// Reads a record: owner, a bound of the TTL if any, class if not IN, type, data or `*` for any.
    pub(super) fn parse(text: &str, run: &Run) -> Result<Self, String> {
        let mut words = text.splitn(3, ' ');
        let (owner, second) = (words.next().unwrap_or_default(), words.next());
        let ttl = second.and_then(Bound::parse);
        let rest = match ttl {
            Some(_) => format!("{owner} {}", words.next().unwrap_or_default()),
            None => text.to_owned(),
        };
        let ttl = ttl.unwrap_or(Bound::ANY);
        if let [owner, of, "*"] = rest.split(' ').collect::<Vec<_>>()[..] {
            return Ok(Self {
                owner: dotted(&name(owner, run)?),
                ttl,
                class: Class::IN,
                rtype: rtype(of)?,
                data: None,
            });
        }
        let mut all = records(&rest, run)?;
        let record = all.pop().filter(|_| all.is_empty());
        let record = record.ok_or_else(|| format!("{text:?} is not one record"))?;
        let shown = shown(&compose(&record)?)?.pop();
        let shown = shown.ok_or_else(|| format!("{text:?} cannot be sent"))?;
        Ok(Self {
            owner: shown.owner,
            ttl,
            class: shown.class,
            rtype: shown.rtype,
            data: Some(shown.data),
        })
    }

    pub(super) fn is(&self, record: &Shown) -> bool {
        (&self.owner, self.class, self.rtype) == (&record.owner, record.class, record.rtype)
            && self.data.as_ref().is_none_or(|data| *data == record.data)
            && self.ttl.holds(record.ttl)
    }
}

/// A message with this record.
fn compose(record: &Rr) -> Result<Vec<u8>, String> {
    let mut answer = MessageBuilder::new_vec().answer();
    let pushed = answer.push(record);
    pushed.map_err(|error| error.to_string())?;
    Ok(answer.finish())
}

/// A type or a record that must not be there.
#[derive(Clone, Debug)]
pub(super) enum Lacked {
    Type(Rtype),
    Record(Wanted),
}

impl Lacked {
    pub(super) fn parse(text: &str, run: &Run) -> Result<Self, String> {
        match text.contains(' ') {
            true => Wanted::parse(text, run).map(Self::Record),
            false => rtype(text).map(Self::Type),
        }
    }

    pub(super) fn is(&self, record: &Shown) -> bool {
        match self {
            Self::Type(rtype) => *rtype == record.rtype,
            Self::Record(wanted) => wanted.is(record),
        }
    }
}

pub(super) fn rtype(text: &str) -> Result<Rtype, String> {
    Rtype::from_str(text).map_err(|_| format!("there is no type {text:?}"))
}

/// Bits of the header by name (RFC 1035 section 4.1.1, RFC 4035 section 3).
const FLAGS: [(&str, u16); 8] = [
    ("qr", 0x8000),
    ("aa", 0x0400),
    ("tc", 0x0200),
    ("rd", 0x0100),
    ("ra", 0x0080),
    ("z", 0x0040),
    ("ad", 0x0020),
    ("cd", 0x0010),
];

/// Reads flags: "ra !ad" as bits and whether they are set.
pub(super) fn flags(text: &str) -> Result<Vec<(&'static str, u16, bool)>, String> {
    let words = text.split_whitespace();
    let flag = |word: &str| {
        let name = word.trim_start_matches('!');
        let found = FLAGS.iter().find(|(flag, _)| *flag == name);
        let (name, bit) = found.ok_or_else(|| format!("there is no flag {name:?}"))?;
        Ok((*name, *bit, name.len() == word.len()))
    };
    words.map(flag).collect()
}

/// A response or query for people: header, question, records, OPT.
pub(super) fn packet(octets: &[u8]) -> Vec<String> {
    let Ok(message) = message::Message::parse(octets) else {
        return vec![format!(
            "{} octets that are no message: {octets:02x?}",
            octets.len()
        )];
    };
    let bits = message.flags().0;
    let set = FLAGS.iter().filter(|(_, bit)| bits & bit != 0);
    let set: Vec<&str> = set.map(|(name, _)| *name).collect();
    let mut lines = vec![format!(
        "ID {} {} {} {}, {} octets",
        message.id(),
        message.opcode(),
        message.rcode(),
        set.join(" "),
        octets.len()
    )];
    if let Some(question) = message.question() {
        let (name, class, rtype) = (question.name, question.class, question.rtype);
        lines.push(format!("question: {name} {class} {rtype}"));
    }
    match shown(octets) {
        Ok(records) => lines.extend(records.iter().map(|record| {
            let section = match record.section {
                message::Section::Answer => "answer",
                message::Section::Authority => "authority",
                message::Section::Additional => "additional",
            };
            format!("{section}: {record}")
        })),
        Err(why) => lines.push(format!("unreadable records: {why}")),
    }
    if let Ok(Some(opt)) = message.opt() {
        let options: Vec<String> = opt
            .options()
            .map(|option| format!("{}={:02x?}", option.code, option.value))
            .collect();
        let (size, version, extended) = (opt.udp_size, opt.version, opt.ext_rcode);
        let do_bit = if opt.do_bit { " do" } else { "" };
        lines.push(format!(
            "OPT: version {version}, {size} octets, extended RCODE {extended}{do_bit} {}",
            options.join(" ")
        ));
    }
    lines
}
