//! The table `[local]`: names that the server answers itself, and files in the form of `/etc/hosts`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;

use dns64_wire::codes::Rtype;
use dns64_wire::name::NameBuf;
use toml::Spanned;

use super::error::{ConfigError, Faults};
use super::forward::Forward;
use super::section::Section;
use super::{keys, read_text, values};
use crate::answer::reverse;
use crate::answer::stored::FOLLOWED_MAX;
use crate::settings::Settings;
use crate::settings::local::{Local, LocalRecord, Zone};

/// TTL in seconds of records that state none, and of negative responses: clients see a reload within five minutes.
const TTL_S: u32 = 300;

/// Largest TTL in seconds (RFC 2181 section 8).
const TTL_MAX_S: u32 = (1 << 31) - 1;

/// Largest length of the data of all records of a name, in octets: every response then fits a message.
const DATA_MAX: usize = 32_768;

/// Longest string of a TXT record, in octets (RFC 1035 section 3.3).
const STRING_MAX: usize = 255;

const TYPES: [(&str, Rtype); 5] = [
    ("A", Rtype::A),
    ("AAAA", Rtype::AAAA),
    ("PTR", Rtype::PTR),
    ("CNAME", Rtype::CNAME),
    ("TXT", Rtype::TXT),
];

/// An owner and its record.
type Line = (NameBuf, LocalRecord);

/// Adds the records and zones of the table to `local`, and returns its files.
pub(super) fn read(
    top: &Section<'_, '_>,
    forwards: &[Forward],
    mut local: Local,
    faults: &mut Faults,
) -> (Local, Vec<PathBuf>) {
    let Some(section) = top.section("local", &keys::LOCAL, faults) else {
        return (local, Vec::new());
    };
    let mut owners = records(&section, &mut local, faults);
    owners.extend(zones(&section, &mut local, faults));
    for owner in owners {
        let domains = forwards.iter().flat_map(|forward| &forward.domains);
        if let Some(text) = forwarded(owner.get_ref(), domains.map(Spanned::get_ref)) {
            faults.add(owner.span(), text);
        }
    }
    let files = section.list("files", "[\"/etc/dns64d/hosts\"]", faults, |v, faults| {
        faults.keep(v.path("/etc/dns64d/hosts"))
    });
    let files = files.unwrap_or_default().into_iter();
    (local, files.map(Spanned::into_inner).collect())
}

/// Adds the records, and returns their owners.
fn records(
    section: &Section<'_, '_>,
    local: &mut Local,
    faults: &mut Faults,
) -> Vec<Spanned<NameBuf>> {
    let example = "\"router.home 300 A 192.168.1.1\"";
    let list = "[\"router.home A 192.168.1.1\"]";
    let lines = section.list("records", list, faults, |v, faults| {
        faults.keep(v.text(example, record))
    });
    let lines = lines.unwrap_or_default();
    for line in &lines {
        let (name, record) = line.get_ref();
        match give(local, name, record.clone()) {
            Ok(true) => {}
            Ok(false) => faults.add(line.span(), "this record is given twice; remove one"),
            Err(text) => faults.add(line.span(), text),
        }
    }
    for line in &lines {
        if leads_nowhere(local, line.get_ref()) {
            let text = format!(
                "the alias leads back to itself, or to more than {FOLLOWED_MAX} others; change its target"
            );
            faults.add(line.span(), text);
        }
    }
    let owner = |line: Spanned<Line>| Spanned::new(line.span(), line.into_inner().0);
    lines.into_iter().map(owner).collect()
}

/// Adds the zones, and returns them.
fn zones(
    section: &Section<'_, '_>,
    local: &mut Local,
    faults: &mut Faults,
) -> Vec<Spanned<NameBuf>> {
    let zones = section.list("zones", "[\"home\"]", faults, |v, faults| {
        faults.keep(v.text("\"home\"", values::domain))
    });
    let zones = zones.unwrap_or_default();
    for zone in &zones {
        if zone.get_ref().as_name().is_root() {
            let text = "\".\" would leave nothing to upstreams; name a domain, like \"home\"";
            faults.add(zone.span(), text);
        } else {
            local.set_zone(zone.get_ref(), Zone::Closed(TTL_S));
        }
    }
    zones
}

/// Reads the files in the form of `/etc/hosts`, and adds their names.
///
/// # Errors
///
/// A file cannot be read or is invalid.
pub(super) fn read_files(settings: &mut Settings) -> Result<(), ConfigError> {
    for path in settings.hosts.clone() {
        let name = path.display().to_string();
        let text = read_text(&path, &name)?;
        let mut faults = Faults::default();
        let domains: Vec<_> = settings
            .sets
            .iter()
            .flat_map(|set| &set.domains)
            .cloned()
            .collect();
        hosts(
            &text,
            &domains,
            Arc::make_mut(&mut settings.local),
            &mut faults,
        );
        faults.check(&name, &text)?;
    }
    Ok(())
}

/// Adds the names of a file: `ADDRESS NAME...`, and comments behind `#`. The first name of the first line with an address
/// is that of the address. Loopback, link-local and multicast addresses mean nothing to clients, and are left out.
fn hosts(text: &str, domains: &[NameBuf], local: &mut Local, faults: &mut Faults) {
    for line in text.lines() {
        let said = line.split('#').next().unwrap_or_default();
        let mut words = said.split_ascii_whitespace();
        let Some(word) = words.next() else { continue };
        let place = |word: &str| {
            let at = word.as_ptr().addr() - text.as_ptr().addr();
            at..at + word.len()
        };
        let Ok(address) = word.split('%').next().unwrap_or_default().parse::<IpAddr>() else {
            let text =
                format!("{word:?} is not an address; write lines like `192.168.1.1 router.home`");
            faults.add(place(word), text);
            continue;
        };
        let mut names = words.peekable();
        if names.peek().is_none() {
            faults.add(
                place(word),
                format!("{word} has no name; add one, or remove the line"),
            );
        }
        let (mut is_first, is_useful) = (true, is_useful(address));
        for word in names {
            let given = owner(word).and_then(|name| {
                if let Some(text) = forwarded(&name, domains) {
                    return Err(text);
                }
                if is_useful {
                    give(local, &name, of_address(address))?;
                    let own = reverse::of_address(address).filter(|_| is_first);
                    if let Some(own) = own.filter(|own| !has_pointer(local, own)) {
                        give(local, &own, pointer(&name))?;
                    }
                }
                Ok(())
            });
            is_first = false;
            if let Err(text) = given {
                faults.add(place(word), text);
            }
        }
    }
}

fn is_useful(address: IpAddr) -> bool {
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !(address.is_loopback() || address.is_multicast() || is_link_local)
}

fn has_pointer(local: &Local, name: &NameBuf) -> bool {
    let node = local.exact(name).filter(|node| node.is_given);
    node.is_some_and(|node| node.records.iter().any(|record| record.rtype == Rtype::PTR))
}

/// Adds a record. Returns whether it is new; an alias excludes all others (RFC 1034 section 3.6.2).
fn give(local: &mut Local, name: &NameBuf, record: LocalRecord) -> Result<bool, String> {
    let node = local.exact(name).filter(|node| node.is_given);
    let first = node.and_then(|node| node.records.first());
    let aliases = first.map(|first| [first.rtype, record.rtype].map(|rtype| rtype == Rtype::CNAME));
    let is_same = first.is_some_and(|first| first.data == record.data);
    if aliases.is_some_and(|[first, new]| first != new || first && !is_same) {
        return Err(format!(
            "{name} has a CNAME record, and so can have no other; remove one of them"
        ));
    }
    let data_len: usize = node.map_or(0, |node| {
        node.records.iter().map(|r| r.data.len() + 16).sum()
    });
    if data_len + record.data.len() > DATA_MAX {
        return Err(format!(
            "{name} has more than {DATA_MAX} octets of records; remove some"
        ));
    }
    Ok(local.give(name, record))
}

/// Whether a record is the first alias of a loop or of a chain that is too long.
fn leads_nowhere(local: &Local, (_, record): &Line) -> bool {
    let mut alias = (record.rtype == Rtype::CNAME).then_some(record);
    for _ in 0..=FOLLOWED_MAX {
        let Some(name) = alias.and_then(|alias| NameBuf::from_wire(&alias.data).ok()) else {
            return false;
        };
        let node = local.find(&name).and_then(|found| found.node);
        alias = node
            .and_then(|node| node.records.first())
            .filter(|r| r.rtype == Rtype::CNAME);
    }
    true
}

/// The fault of a name that is also a domain with servers of its own.
fn forwarded<'a>(name: &NameBuf, domains: impl IntoIterator<Item = &'a NameBuf>) -> Option<String> {
    let mut domains = domains.into_iter();
    domains
        .any(|domain| domain.as_name().eq_ignore_case(&name.as_name()))
        .then(|| format!("{name} is a domain of [[forward]], too; remove it from one of them"))
}

/// A record as in a zone file: `NAME [TTL] [IN] TYPE DATA`.
fn record(text: &str) -> Result<Line, String> {
    let wrong =
        |what: &str| format!("{text:?} {what}; write it like \"router.home 300 A 192.168.1.1\"");
    let mut words = words(text)
        .map_err(|what| wrong(&what))?
        .into_iter()
        .peekable();
    let name = owner(&words.next().ok_or_else(|| wrong("is empty"))?)?;
    let ttl_s = words.next_if(|word| word.bytes().all(|b| b.is_ascii_digit()));
    let ttl_s = ttl_s.map(|ttl| ttl.parse().ok().filter(|ttl| *ttl <= TTL_MAX_S));
    let ttl_s = ttl_s
        .unwrap_or(Some(TTL_S))
        .ok_or_else(|| wrong("has a TTL above 2147483647 s"))?;
    let _class = words.next_if(|word| word.eq_ignore_ascii_case("IN"));
    let rtype = words.next().ok_or_else(|| wrong("has no type"))?;
    let rtype = values::choice(&rtype.to_ascii_uppercase(), &TYPES)?;
    let data: Vec<String> = words.collect();
    let data = match (rtype, data.as_slice()) {
        (Rtype::TXT, [_, ..]) => txt(&data)?,
        (_, [word]) => single(rtype, word).map_err(|what| wrong(&what))?,
        _ => return Err(wrong("does not have the data of one record")),
    };
    Ok((name, LocalRecord { rtype, ttl_s, data }))
}

fn single(rtype: Rtype, word: &str) -> Result<Box<[u8]>, String> {
    match rtype {
        Rtype::A => {
            let address: Option<Ipv4Addr> = word.parse().ok();
            address
                .map(|a| a.octets().into())
                .ok_or_else(|| format!("has {word}, which is not an IPv4 address"))
        }
        Rtype::AAAA => {
            let address: Option<Ipv6Addr> = word.parse().ok();
            address
                .map(|a| a.octets().into())
                .ok_or_else(|| format!("has {word}, which is not an IPv6 address"))
        }
        _ => name(word).map(|name| name.as_wire().into()),
    }
}

fn txt(strings: &[String]) -> Result<Box<[u8]>, String> {
    let mut data = Vec::new();
    for string in strings {
        let len = u8::try_from(string.len()).map_err(|_| {
            format!(
                "a string of a TXT record has {} octets: must be {STRING_MAX} at most; split it",
                string.len()
            )
        })?;
        data.push(len);
        data.extend_from_slice(string.as_bytes());
    }
    Ok(data.into())
}

/// The owner of records.
fn owner(text: &str) -> Result<NameBuf, String> {
    let name = name(text)?;
    match name.as_name().is_root() {
        true => Err("\".\" cannot have local records; name a host".to_owned()),
        false => Ok(name),
    }
}

fn name(text: &str) -> Result<NameBuf, String> {
    match text.strip_prefix("*.") {
        Some(_) => text.parse().map_err(|error| format!("{text:?}: {error}")),
        None => values::domain(text),
    }
}

/// The words of a text; one in quotes may have blanks, and in it a backslash precedes a quote or a backslash.
fn words(text: &str) -> Result<Vec<String>, String> {
    let (mut words, mut rest) = (Vec::new(), text.trim_start());
    while let Some(first) = rest.chars().next() {
        let mut word = String::new();
        if first == '"' {
            let mut chars = rest[1..].char_indices();
            rest = loop {
                match chars.next() {
                    Some((at, '"')) => break &rest[at + 2..],
                    Some((_, '\\')) => word.extend(chars.next().map(|(_, c)| c)),
                    Some((_, c)) => word.push(c),
                    None => return Err("has no closing quote".to_owned()),
                }
            };
        } else {
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            word.push_str(&rest[..end]);
            rest = &rest[end..];
        }
        words.push(word);
        rest = rest.trim_start();
    }
    Ok(words)
}

fn of_address(address: IpAddr) -> LocalRecord {
    let (rtype, data) = match address {
        IpAddr::V4(address) => (Rtype::A, address.octets().as_slice().into()),
        IpAddr::V6(address) => (Rtype::AAAA, address.octets().as_slice().into()),
    };
    LocalRecord {
        rtype,
        ttl_s: TTL_S,
        data,
    }
}

fn pointer(name: &NameBuf) -> LocalRecord {
    LocalRecord {
        rtype: Rtype::PTR,
        ttl_s: TTL_S,
        data: name.as_wire().into(),
    }
}
