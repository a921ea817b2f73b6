//! Converts records between text and octets.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use dns64_wire::codes::{Class, Rcode, Rtype};
use dns64_wire::message::{Record, Section};
use dns64_wire::name::{Name, NameBuf};

/// Writes messages octet by octet, with or without compressed names, and also malformed ones.
pub(crate) struct Writer {
    pub(crate) bytes: Vec<u8>,
    /// Whether names are compressed.
    pub(crate) compress: bool,
    names: HashMap<Vec<u8>, u16>,
}

impl Writer {
    pub(crate) fn new() -> Self {
        Self {
            bytes: Vec::new(),
            compress: true,
            names: HashMap::new(),
        }
    }

    pub(crate) fn u16(&mut self, number: u16) {
        self.bytes.extend_from_slice(&number.to_be_bytes());
    }

    pub(crate) fn u32(&mut self, number: u32) {
        self.bytes.extend_from_slice(&number.to_be_bytes());
    }

    pub(crate) fn name(&mut self, name: &NameBuf) {
        let wire = name.as_wire();
        let mut at = 0;
        while wire[at] != 0 {
            let known = self.names.get(&wire[at..]).filter(|_| self.compress);
            if let Some(&known) = known {
                return self.u16(0xc000 | known);
            }
            if let Ok(here @ 0..0x4000) = u16::try_from(self.bytes.len()) {
                self.names.insert(wire[at..].to_vec(), here);
            }
            let end = at + 1 + usize::from(wire[at]);
            self.bytes.extend_from_slice(&wire[at..end]);
            at = end;
        }
        self.bytes.push(0);
    }

    /// Writes a record: `OWNER TTL [CLASS] TYPE DATA`. The owner `<loop>` is a pointer to itself.
    pub(crate) fn record(&mut self, text: &str) {
        let mut words = text.split_whitespace().peekable();
        let mut next = || {
            words
                .next()
                .unwrap_or_else(|| panic!("half a record: {text}"))
        };
        match next() {
            "<loop>" => {
                let here = u16::try_from(self.bytes.len()).unwrap();
                self.u16(0xc000 | here);
            }
            owner => self.name(&name(owner)),
        }
        let owner = name(text.split(' ').next().unwrap().trim_matches(['<', '>']));
        let ttl: u32 = next().parse().unwrap_or_else(|_| panic!("no TTL: {text}"));
        let mut word = next();
        let class = class(word).inspect(|_| word = next());
        let rtype = rtype(word).unwrap_or_else(|| panic!("no type: {text}"));
        self.u16(rtype.0);
        self.u16(class.unwrap_or(Class::IN).0);
        self.u32(ttl);
        let length_at = self.bytes.len();
        self.u16(0);
        let data: Vec<&str> = words.collect();
        self.data(&owner, rtype, &data);
        let length = u16::try_from(self.bytes.len() - length_at - 2).unwrap();
        self.bytes[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
    }

    fn data(&mut self, owner: &NameBuf, rtype: Rtype, data: &[&str]) {
        if let ["\\#", length, octets @ ..] = data {
            let octets = hex(&octets.concat());
            assert_eq!(length.parse(), Ok(octets.len()), "{data:?}");
            return self.bytes.extend(octets);
        }
        match (rtype, data) {
            (Rtype::A, [address]) => {
                let address: Ipv4Addr = address.parse().unwrap();
                self.bytes.extend(address.octets());
            }
            (Rtype::AAAA, [address]) => {
                let address: Ipv6Addr = address.parse().unwrap();
                self.bytes.extend(address.octets());
            }
            (Rtype::CNAME | Rtype::NS | Rtype::PTR, [target]) => self.name(&name(target)),
            // Not compressed (RFC 6672 section 2.5).
            (Rtype::DNAME, [target]) => self.bytes.extend(name(target).as_wire()),
            (Rtype::SOA, [minimum]) => self.soa(owner, minimum.parse().unwrap()),
            (Rtype::MX, [preference, host]) => {
                self.u16(preference.parse().unwrap());
                self.name(&name(host));
            }
            (Rtype::TXT | Rtype::HINFO, strings) => {
                for string in strings {
                    let string = string.trim_matches('"');
                    self.bytes.push(u8::try_from(string.len()).unwrap());
                    self.bytes.extend(string.bytes());
                }
            }
            (Rtype::RRSIG, [covered]) => self.bytes.extend(rrsig(super::text::rtype(covered))),
            (Rtype::NSEC, [next]) => {
                self.bytes.extend(name(next).as_wire());
                self.bytes.extend(NSEC_TYPES);
            }
            (Rtype::SVCB | Rtype::HTTPS, [priority, target, parameters @ ..]) => {
                self.u16(priority.parse().unwrap());
                self.bytes.extend(name(target).as_wire());
                parameters.iter().for_each(|p| self.parameter(p));
            }
            _ => panic!("{rtype} {data:?} is not understood"),
        }
    }

    /// An SOA record from its MINIMUM only.
    fn soa(&mut self, zone: &NameBuf, minimum: u32) {
        self.name(&zone.child(b"ns").unwrap());
        self.name(&zone.child(b"host").unwrap());
        SOA_NUMBERS.iter().for_each(|n| self.u32(*n));
        self.u32(minimum);
    }

    fn parameter(&mut self, text: &str) {
        let (key, value) = text.split_once('=').unwrap();
        let addresses = value.split(',');
        let (key, value) = match key {
            "port" => (3, value.parse::<u16>().unwrap().to_be_bytes().to_vec()),
            "ipv4hint" => {
                let octets = addresses.flat_map(|a| a.parse::<Ipv4Addr>().unwrap().octets());
                (4, octets.collect())
            }
            "ipv6hint" => {
                let octets = addresses.flat_map(|a| a.parse::<Ipv6Addr>().unwrap().octets());
                (6, octets.collect())
            }
            _ => panic!("parameter {key} is not understood"),
        };
        self.u16(key);
        self.u16(u16::try_from(value.len()).unwrap());
        self.bytes.extend(value);
    }
}

/// Serial, refresh, retry and expire of every SOA record here.
const SOA_NUMBERS: [u32; 4] = [1, 7200, 900, 1_209_600];

/// The types A, RRSIG and NSEC as a bit map (RFC 4034 section 4.1.2).
const NSEC_TYPES: [u8; 8] = [0, 6, 0x40, 0, 0, 0, 0, 3];

/// The data of a signature over records of a type; only the type is read.
fn rrsig(covered: Option<Rtype>) -> Vec<u8> {
    let mut data = covered.unwrap().0.to_be_bytes().to_vec();
    data.extend([13, 2, 0, 0, 1, 44]); // algorithm, labels, TTL of 300
    data.extend([0x70, 0, 0, 0, 0x60, 0, 0, 0, 0x12, 0x34]); // until, from, key tag
    data.extend(b"\x07example\0signature");
    data
}

/// A record of `message` as text.
pub(crate) fn of_record(record: &Record<'_>, message: &[u8]) -> String {
    let section = match record.section {
        Section::Answer => "answer",
        Section::Authority => "authority",
        Section::Additional => "additional",
    };
    let class = match record.class {
        Class::IN => String::new(),
        class => format!(" {class}"),
    };
    let data = data_of(record, message).unwrap_or_else(|| {
        let octets = record.rdata.iter().fold(String::new(), |mut text, o| {
            write!(text, "{o:02x}").unwrap();
            text
        });
        format!("\\# {} {octets}", record.rdata.len())
    });
    format!(
        "{section} {} {}{class} {} {data}",
        record.name, record.ttl, record.rtype
    )
}

fn data_of(record: &Record<'_>, message: &[u8]) -> Option<String> {
    let data = record.rdata;
    Some(match record.rtype {
        Rtype::A => record.a()?.to_string(),
        Rtype::AAAA => record.aaaa()?.to_string(),
        Rtype::CNAME | Rtype::NS | Rtype::PTR | Rtype::DNAME => {
            record.rdata_name().ok()?.to_string()
        }
        Rtype::MX => {
            let (host, _) = Name::parse(message, record.rdata_offset + 2).ok()?;
            format!("{} {host}", u16::from_be_bytes(*data.first_chunk()?))
        }
        Rtype::SOA => {
            let (primary, end) = Name::parse(message, record.rdata_offset).ok()?;
            let (mailbox, end) = Name::parse(message, end).ok()?;
            let [numbers @ .., minimum] = numbers(&message[end..end + 20]);
            let zone = record.name.to_buf();
            let usual = [zone.child(b"ns").ok()?, zone.child(b"host").ok()?];
            if numbers == SOA_NUMBERS && [primary.to_buf(), mailbox.to_buf()] == usual {
                minimum.to_string()
            } else {
                format!("{primary} {mailbox} {numbers:?} {minimum}")
            }
        }
        Rtype::TXT | Rtype::HINFO => {
            let mut strings = Vec::new();
            let mut rest = data;
            while let Some((&length, after)) = rest.split_first() {
                let (string, after) = after.split_at_checked(usize::from(length))?;
                strings.push(format!("\"{}\"", str::from_utf8(string).ok()?));
                rest = after;
            }
            strings.join(" ")
        }
        Rtype::RRSIG => {
            let covered = Rtype(u16::from_be_bytes(*data.first_chunk()?));
            (data == rrsig(Some(covered))).then(|| covered.to_string())?
        }
        Rtype::NSEC => {
            let next = NameBuf::from_wire(data.strip_suffix(&NSEC_TYPES)?).ok()?;
            next.to_string()
        }
        Rtype::SVCB | Rtype::HTTPS => {
            let (target, end) = Name::parse(message, record.rdata_offset + 2).ok()?;
            let priority = u16::from_be_bytes(*data.first_chunk()?);
            let mut text = format!("{priority} {target}");
            let mut rest = &data[end - record.rdata_offset..];
            while let Some((head, after)) = rest.split_at_checked(4) {
                let [key, length] =
                    [[head[0], head[1]], [head[2], head[3]]].map(u16::from_be_bytes);
                let (value, after) = after.split_at_checked(usize::from(length))?;
                write!(text, " {}", parameter_text(key, value)).unwrap();
                rest = after;
            }
            text
        }
        _ => return None,
    })
}

fn numbers(octets: &[u8]) -> [u32; 5] {
    std::array::from_fn(|i| u32::from_be_bytes(*octets[4 * i..].first_chunk().unwrap()))
}

fn parameter_text(key: u16, value: &[u8]) -> String {
    let joined = |list: Vec<String>| list.join(",");
    match key {
        3 => format!("port={}", u16::from_be_bytes(value.try_into().unwrap())),
        4 => {
            let octets = value.chunks(4).map(|a| <[u8; 4]>::try_from(a).unwrap());
            let list = octets.map(|octets| Ipv4Addr::from(octets).to_string());
            format!("ipv4hint={}", joined(list.collect()))
        }
        6 => {
            let octets = value.chunks(16).map(|a| <[u8; 16]>::try_from(a).unwrap());
            let list = octets.map(|octets| Ipv6Addr::from(octets).to_string());
            format!("ipv6hint={}", joined(list.collect()))
        }
        key => format!("key{key}={value:02x?}"),
    }
}

pub(crate) fn name(text: &str) -> NameBuf {
    text.parse().unwrap_or_else(|e| panic!("name {text}: {e}"))
}

/// The types that have a name.
pub(crate) fn rtype(text: &str) -> Option<Rtype> {
    let number = text.strip_prefix("TYPE").and_then(|n| n.parse().ok());
    number
        .map(Rtype)
        .or_else(|| (1..=255).map(Rtype).find(|t| t.to_string() == text))
}

pub(crate) fn class(text: &str) -> Option<Class> {
    let number = text.strip_prefix("CLASS").and_then(|n| n.parse().ok());
    let named = [Class::IN, Class::CH, Class::NONE];
    number
        .map(Class)
        .or_else(|| named.into_iter().find(|c| c.to_string() == text))
}

pub(crate) fn rcode(text: &str) -> Option<Rcode> {
    let number = text.strip_prefix("RCODE").and_then(|n| n.parse().ok());
    number
        .map(Rcode)
        .or_else(|| (0..=5).map(Rcode).find(|c| c.to_string() == text))
}

pub(crate) fn hex(text: &str) -> Vec<u8> {
    let octet = |at: usize| u8::from_str_radix(&text[at..at + 2], 16);
    let octets: Result<Vec<u8>, _> = (0..text.len()).step_by(2).map(octet).collect();
    octets.unwrap_or_else(|_| panic!("no hexadecimal: {text}"))
}
