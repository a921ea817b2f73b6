//! Messages as lines of text for the unit tests of [`answer`](super): `SECTION OWNER TTL TYPE
//! DATA`.

use std::net::{Ipv4Addr, Ipv6Addr};

use dns64_wire::build::{Builder, Owner};
use dns64_wire::codes::{Class, Rcode, Rtype};
use dns64_wire::message::{Flags, Message, Record, Section};
use dns64_wire::name::{Name, NameBuf};

use super::asker::{Asker, AskerEdns};
use super::stored::{Asked, Stored, TtlBounds};
use crate::settings::dns64::{
    Dns64, DomainAction, DomainRule, DomainRules, FailurePolicy, Ptr, SignedPolicy,
};
use crate::settings::nets::NetSet;

pub(crate) fn name(text: &str) -> NameBuf {
    text.parse().expect("a name")
}

/// A query over UDP with EDNS and no flags except RD.
pub(crate) fn asker(asked: &str, rtype: Rtype) -> Asker {
    Asker {
        id: 0x1234,
        name: name(asked),
        rtype,
        class: Class::IN,
        flags: Flags(0x0100),
        edns: Some(AskerEdns {
            udp_size: 1232,
            ..AskerEdns::default()
        }),
        limit: 1232,
    }
}

/// The same query with DO set.
pub(crate) fn with_do(asker: Asker) -> Asker {
    let edns = asker.edns.map(|edns| AskerEdns {
        do_bit: true,
        ..edns
    });
    Asker { edns, ..asker }
}

/// DNS64 settings: the Well-Known Prefix for all addresses, IPv4-mapped addresses excluded.
pub(crate) fn dns64() -> Dns64 {
    Dns64 {
        prefixes: vec!["64:ff9b::/96".parse().expect("a prefix")],
        ranges: Vec::new(),
        exclude_aaaa: NetSet::new(vec!["::ffff:0:0/96".parse().expect("a network")]),
        well_known_private: true,
        domains: DomainRules::default(),
        signed: SignedPolicy::Validated,
        ptr: Ptr::Cname,
        ipv4only: true,
        mark_synthesised: false,
        failure: FailurePolicy::Synthesise,
        filter_a: false,
        withdrawn: Vec::new(),
    }
}

/// The settings of [`dns64`] with a rule for one domain.
pub(crate) fn with_rule(domain: &str, action: DomainAction, prefix: Option<&str>) -> Dns64 {
    let prefix = prefix.map(|text| text.parse().expect("a prefix"));
    let rule = DomainRule { action, prefix };
    Dns64 {
        domains: DomainRules::new([(name(domain), rule)]),
        ..dns64()
    }
}

fn rtype(text: &str) -> Rtype {
    match text {
        "A" => Rtype::A,
        "NS" => Rtype::NS,
        "CNAME" => Rtype::CNAME,
        "DNAME" => Rtype::DNAME,
        "SOA" => Rtype::SOA,
        "PTR" => Rtype::PTR,
        "MX" => Rtype::MX,
        "TXT" => Rtype::TXT,
        "AAAA" => Rtype::AAAA,
        "RRSIG" => Rtype::RRSIG,
        "NSEC" => Rtype::NSEC,
        "SVCB" => Rtype::SVCB,
        "HTTPS" => Rtype::HTTPS,
        other => panic!("no type {other} here"),
    }
}

/// Data from text: an address; a name; of SOA the minimum; of RRSIG the type covered, with the
/// signer `example.com`; of SVCB priority and target.
fn data(rtype: Rtype, text: &str) -> Vec<u8> {
    match rtype {
        Rtype::A => text.parse::<Ipv4Addr>().expect("IPv4").octets().to_vec(),
        Rtype::AAAA => text.parse::<Ipv6Addr>().expect("IPv6").octets().to_vec(),
        Rtype::SOA => {
            let minimum: u32 = text.parse().expect("a minimum");
            [b"\x02ns\0\0", &[0; 16][..], &minimum.to_be_bytes()].concat()
        }
        Rtype::RRSIG => {
            let covered = self::rtype(text).0.to_be_bytes();
            let signer = name("example.com");
            [&covered, &[0; 16][..], signer.as_wire(), b"signature"].concat()
        }
        Rtype::SVCB | Rtype::HTTPS => {
            let (priority, target) = text.split_once(' ').expect("priority and target");
            let priority: u16 = priority.parse().expect("a priority");
            [&priority.to_be_bytes(), name(target).as_wire()].concat()
        }
        Rtype::TXT => [&[u8::try_from(text.len()).expect("short")], text.as_bytes()].concat(),
        Rtype::NSEC => [name(text).as_wire(), b"\0\x01\x40"].concat(),
        Rtype::MX => [b"\0\x0a", name(text).as_wire()].concat(),
        _ => name(text).as_wire().to_vec(),
    }
}

/// The octets of a response to a query, its names not compressed.
pub(crate) fn response(asked: &str, asked_type: Rtype, rcode: Rcode, lines: &[&str]) -> Vec<u8> {
    let mut bytes = vec![0; 65_535];
    let mut builder = Builder::new(&mut bytes, 65_535).expect("room");
    let flags = Flags(0x81a0).with_rcode(rcode);
    builder.header(0x4321, flags);
    builder
        .question(&name(asked), asked_type, Class::IN)
        .expect("room");
    for line in lines {
        let words: Vec<&str> = line.splitn(5, ' ').collect();
        let section = match words[0] {
            "an" => Section::Answer,
            "ns" => Section::Authority,
            _ => Section::Additional,
        };
        let (owner, rtype) = (name(words[1]), rtype(words[3]));
        let ttl = words[2].parse().expect("a TTL");
        let (owner, data) = (Owner::Name(&owner), data(rtype, words[4]));
        builder
            .record(section, owner, rtype, Class::IN, ttl, &data)
            .expect("room");
    }
    let len = builder.finish();
    bytes.truncate(len);
    bytes
}

/// Bounds that do not change a TTL.
pub(crate) const BOUNDS: TtlBounds = TtlBounds {
    min_s: 0,
    max_s: u32::MAX,
    max_negative_s: u32::MAX,
};

/// A response in the form in which it is cached.
pub(crate) fn stored(asked: &str, rtype: Rtype, rcode: Rcode, lines: &[&str]) -> Stored {
    let bytes = response(asked, rtype, rcode, lines);
    let message = Message::parse(&bytes).expect("sound");
    Stored::accept(&message, &BOUNDS).expect("acceptable")
}

/// A query that no upstream answered.
pub(crate) fn failed(asked: &str, rtype: Rtype) -> Stored {
    let asked = Asked {
        name: &name(asked),
        rtype,
        class: Class::IN,
    };
    Stored::failure(&asked, Rcode::SERVFAIL, None)
}

/// The contents of a response: response code and flags, question, records without OPT.
pub(crate) fn lines(bytes: &[u8]) -> Vec<String> {
    let message = Message::parse(bytes).expect("sound");
    let mut head = message.rcode().to_string();
    for (set, flag) in [
        (message.aa(), " aa"),
        (message.tc(), " tc"),
        (message.ad(), " ad"),
        (message.cd(), " cd"),
    ] {
        head.push_str(if set { flag } else { "" });
    }
    let question = message.question().expect("a question");
    let mut lines = vec![format!("{head}; {} {}", question.name, question.rtype)];
    for record in message.records() {
        let record = record.expect("sound");
        if record.rtype != Rtype::OPT {
            lines.push(line(bytes, &record));
        }
    }
    lines
}

/// The records of a response, without the first line.
pub(crate) fn records(bytes: &[u8]) -> Vec<String> {
    lines(bytes).split_off(1)
}

/// The extended error of a response.
pub(crate) fn extended_error(bytes: &[u8]) -> Option<u16> {
    let message = Message::parse(bytes).expect("sound");
    let opt = message.opt().expect("sound")?;
    let mut errors = opt.options().filter(|option| option.code == 15);
    errors
        .next()
        .map(|option| u16::from_be_bytes([option.value[0], option.value[1]]))
}

fn line(message: &[u8], record: &Record<'_>) -> String {
    let section = match record.section {
        Section::Answer => "an",
        Section::Authority => "ns",
        Section::Additional => "ar",
    };
    let owner = record.name.to_string();
    let owner = owner.strip_suffix('.').filter(|o| !o.is_empty());
    let owner = owner.unwrap_or(".").to_owned();
    let rdata = record.rdata;
    let plain = |name: Name<'_>| name.to_string().trim_end_matches('.').to_owned();
    let data = match record.rtype {
        Rtype::A => record.a().expect("IPv4").to_string(),
        Rtype::AAAA => record.aaaa().expect("IPv6").to_string(),
        Rtype::SOA => {
            let (_, at) = Name::parse(message, record.rdata_offset).expect("mname");
            let (_, at) = Name::parse(message, at).expect("rname");
            let minimum = message[at + 16..at + 20].try_into().expect("4 octets");
            u32::from_be_bytes(minimum).to_string()
        }
        Rtype::RRSIG => Rtype(u16::from_be_bytes([rdata[0], rdata[1]])).to_string(),
        Rtype::SVCB | Rtype::HTTPS => {
            let (target, _) = Name::parse(message, record.rdata_offset + 2).expect("target");
            format!("{} {target}", u16::from_be_bytes([rdata[0], rdata[1]]))
        }
        Rtype::TXT => String::from_utf8_lossy(&rdata[1..]).into_owned(),
        Rtype::NSEC => plain(Name::parse(rdata, 0).expect("a name").0),
        Rtype::MX => plain(
            Name::parse(message, record.rdata_offset + 2)
                .expect("a host")
                .0,
        ),
        _ => plain(record.rdata_name().expect("a name")),
    };
    format!("{section} {owner} {} {} {data}", record.ttl, record.rtype)
}
