//! What the authority answers in one run of a case, and what it was asked: messages in, messages out.

use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use dns64_transport::clock::Nanos;
use dns64_wire::codes::Class as WireClass;
use dns64_wire::message::Message as Octets;
use domain::base::Name;
use domain::base::iana::{Class, Rcode, Rtype};
use domain::base::message_builder::{MessageBuilder, OptBuilder};
use domain::base::name::ToName;
use domain::rdata::ZoneRecordData;

use super::case::{Case, Lie, Reply, Run};
use super::text::{self, Owned, Rr};

/// The authority of a run.
#[derive(Debug)]
pub(super) struct Script {
    /// It answers for these names and those below.
    origins: Vec<Owned>,
    zone: Vec<Rr>,
    /// TTL and MINIMUM.
    soa: Option<[u32; 2]>,
    replies: Vec<Scripted>,
    asked: Mutex<Vec<Asked>>,
}

/// An answer that does not follow from the zone.
#[derive(Debug)]
struct Scripted {
    name: Owned,
    /// `None` for any.
    rtype: Option<Rtype>,
    how: Reply,
    content: Option<Content>,
    flags: Vec<(&'static str, u16, bool)>,
    used: AtomicUsize,
}

/// Response code and records of a response.
#[derive(Clone, Debug)]
struct Content {
    rcode: Rcode,
    sections: [Vec<Rr>; 3],
}

/// A question that the authority got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// In lower case, with the final dot.
    pub(super) name: String,
    /// Type.
    pub(super) rtype: Rtype,
    /// Over TCP.
    pub(super) tcp: bool,
    /// The message.
    pub(super) octets: Vec<u8>,
}

/// A message of the authority.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// The message.
    pub(super) octets: Vec<u8>,
    /// Time to wait before.
    pub(super) delay_ns: Nanos,
    /// From another port than that of the question.
    pub(super) other_port: bool,
}

impl Script {
    /// Reads what the case says of the authority.
    pub(super) fn new(case: &Case, run: &Run) -> Result<Self, String> {
        let zone = text::records(&case.zone, run)?;
        let replies: Result<Vec<_>, _> =
            case.reply.iter().map(|it| Scripted::new(it, run)).collect();
        let replies = replies?;
        let asked = case.step.iter().filter_map(|it| it.ask.split(' ').next());
        let asked: Result<Vec<Owned>, _> = asked.map(|name| text::name(name, run)).collect();
        let mut origins = vec![text::name("@", run)?];
        let others = zone.iter().map(|record| record.owner());
        let others = others.chain(replies.iter().map(|it| &it.name));
        for name in others.cloned().chain(asked?) {
            if !origins.iter().any(|origin| name.ends_with(origin)) {
                origins.push(name);
            }
        }
        Ok(Self {
            origins,
            zone,
            soa: case.soa.first_chunk().copied(),
            replies,
            asked: Mutex::default(),
        })
    }

    /// Whether it answers for this name.
    pub(super) fn knows(&self, name: &Owned) -> bool {
        self.origins.iter().any(|origin| name.ends_with(origin))
    }

    /// Whether one of its names is below this one.
    pub(super) fn is_below(&self, name: &Owned) -> bool {
        self.origins.iter().any(|origin| origin.ends_with(name))
    }

    /// The questions so far.
    pub(super) fn asked(&self) -> Vec<Asked> {
        let asked = self.asked.lock();
        asked.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The answers to a query.
    pub(super) fn respond(&self, query: &[u8], tcp: bool) -> Vec<Outgoing> {
        let Some((name, rtype)) = question(query) else {
            return Vec::new();
        };
        let asked = Asked {
            name: text::dotted(&name),
            rtype,
            tcp,
            octets: query.to_vec(),
        };
        let mut all = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(asked);
        drop(all);
        let truth = match Octets::parse(query).ok().and_then(|it| it.question()) {
            Some(question) if question.class == WireClass::IN => self.lookup(&name, rtype),
            _ => Content::empty(Rcode::REFUSED),
        };
        let Some(scripted) = self.replies.iter().find(|it| it.is_for(&name, rtype, tcp)) else {
            return vec![Outgoing::of(message(query, &truth, tcp, &[], true))];
        };
        let how = &scripted.how;
        if how.drop {
            return Vec::new();
        }
        let content = scripted.content.as_ref().unwrap_or(&truth);
        let mut octets = message(query, content, tcp, &scripted.flags, !how.no_edns);
        octets.truncate(how.cut.unwrap_or(usize::MAX));
        let mut first = Outgoing::of(octets);
        first.delay_ns = how.delay_ms * 1_000_000;
        let Some(lie) = how.lie else {
            return vec![first];
        };
        first.tell(lie, name.as_slice().len());
        vec![first, Outgoing::of(message(query, &truth, tcp, &[], true))]
    }

    /// What the zone has for a question: chains are followed within it (RFC 1034 section 4.3.2).
    fn lookup(&self, name: &Owned, rtype: Rtype) -> Content {
        let mut answer = Vec::new();
        let mut current = name.clone();
        for _ in 0..CHAIN_MAX {
            let own = self.zone.iter().filter(|it| *it.owner() == current);
            let fits = |it: &&Rr| it.rtype() == rtype || rtype == Rtype::ANY;
            let found: Vec<Rr> = own.clone().filter(fits).cloned().collect();
            if !found.is_empty() {
                answer.extend(found);
                return Content::answer(answer);
            }
            let alias = own.clone().find_map(|it| Some((it.clone(), target(it)?)));
            if let Some((record, next)) = alias {
                answer.push(record);
                current = next;
            } else if let Some((dname, next)) = self.redirected(&current) {
                let ttl = dname.ttl().as_secs();
                let [from, to] = [&current, &next].map(text::dotted);
                let cname = text::absolute(&format!("{from} {ttl} CNAME {to}"), ".");
                answer.push(dname);
                answer.extend(cname.unwrap_or_default());
                current = next;
            } else {
                return self.negative(&current, answer);
            }
            if !self.knows(&current) {
                break;
            }
        }
        Content::answer(answer)
    }

    /// The DNAME record above a name and where it leads (RFC 6672 section 2.2).
    fn redirected(&self, name: &Owned) -> Option<(Rr, Owned)> {
        self.zone.iter().find_map(|record| {
            let ZoneRecordData::Dname(dname) = record.data() else {
                return None;
            };
            let owner = record.owner();
            if name == owner || !name.ends_with(owner) {
                return None;
            }
            let labels = name.iter().count() - owner.iter().count();
            let head: Vec<String> = name.iter().take(labels).map(|it| it.to_string()).collect();
            let next = format!("{}.{}", head.join("."), text::dotted(dname.dname()));
            Some((record.clone(), Name::from_str(&next).ok()?))
        })
    }

    /// A negative answer, after aliases if any (RFC 2308 section 2).
    fn negative(&self, name: &Owned, answer: Vec<Rr>) -> Content {
        let exists = self.zone.iter().any(|it| it.owner().ends_with(name))
            || self.origins.first().is_some_and(|origin| origin == name);
        let origin = self.origins.iter().find(|origin| name.ends_with(origin));
        let soa = self
            .soa
            .zip(origin)
            .map(|(soa, origin)| soa_of(origin, soa));
        Content {
            rcode: if exists {
                Rcode::NOERROR
            } else {
                Rcode::NXDOMAIN
            },
            sections: [answer, soa.unwrap_or_default(), Vec::new()],
        }
    }
}

/// Aliases that the authority follows (RFC 1034 section 5.2.2 leaves the number open).
const CHAIN_MAX: usize = 32;

impl Scripted {
    fn new(how: &Reply, run: &Run) -> Result<Self, String> {
        let (name, rtype) = how.to.split_once(' ').ok_or("to: a name and a type")?;
        let sections = [&how.answer, &how.authority, &how.additional];
        let [answer, authority, additional] = sections.map(|it| text::records(it, run));
        let sections = [answer?, authority?, additional?];
        let given = how.rcode.is_some() || sections.iter().any(|it| !it.is_empty());
        let rcode = how.rcode.as_deref().unwrap_or("NOERROR");
        let rcode = Rcode::from_str(rcode).map_err(|_| format!("there is no RCODE {rcode}"))?;
        Ok(Self {
            name: text::name(name, run)?,
            rtype: match rtype {
                "*" => None,
                rtype => Some(text::rtype(rtype)?),
            },
            content: given.then_some(Content { rcode, sections }),
            flags: text::flags(&how.flags)?,
            how: how.clone(),
            used: AtomicUsize::new(0),
        })
    }

    /// Whether it is the answer to this question; counts it.
    fn is_for(&self, name: &Owned, rtype: Rtype, tcp: bool) -> bool {
        let fits = self.name == *name
            && self.rtype.is_none_or(|it| it == rtype)
            && self.how.tcp.is_none_or(|it| it == tcp);
        let times = self.how.times.unwrap_or(usize::MAX);
        fits && self.used.fetch_add(1, Ordering::Relaxed) < times
    }
}

impl Content {
    fn answer(records: Vec<Rr>) -> Self {
        Self {
            rcode: Rcode::NOERROR,
            sections: [records, Vec::new(), Vec::new()],
        }
    }

    /// No records.
    fn empty(rcode: Rcode) -> Self {
        let sections = [Vec::new(), Vec::new(), Vec::new()];
        Self { rcode, sections }
    }
}

impl Outgoing {
    /// A message that is sent at once.
    pub(super) fn of(octets: Vec<u8>) -> Self {
        Self {
            octets,
            delay_ns: 0,
            other_port: false,
        }
    }

    /// Makes it a lie. Its question has a name of `name_len` octets.
    fn tell(&mut self, lie: Lie, name_len: usize) {
        let octets = &mut self.octets;
        let type_at = HEADER + name_len;
        match lie {
            Lie::Id => octets[0] ^= 0x55,
            Lie::Port => self.other_port = true,
            Lie::Name => octets[HEADER + 1] ^= 1,
            Lie::Type => octets[type_at + 1] ^= 0x10,
            Lie::Class => octets[type_at + 3] = 3,
            Lie::Query => octets[2] &= 0x7f,
            Lie::NoQuestion => {
                octets.drain(HEADER..type_at + 4);
                octets[5] = 0;
            }
            Lie::Garbage => octets[2..].fill(0xff),
        }
    }
}

/// Octets before the question (RFC 1035 section 4.1.1).
const HEADER: usize = 12;

/// The question of a query.
pub(super) fn question(query: &[u8]) -> Option<(Owned, Rtype)> {
    let message = Octets::parse(query).ok()?;
    let question = message.question()?;
    let name = Name::from_octets(question.name.to_buf().as_wire().to_vec()).ok()?;
    Some((name, Rtype::from_int(question.rtype.0)))
}

/// A response without records, to a question that no case asks.
pub(super) fn empty(query: &[u8], rcode: Rcode) -> Outgoing {
    Outgoing::of(message(query, &Content::empty(rcode), false, &[], true))
}

/// Builds a response.
fn message(
    query: &[u8],
    content: &Content,
    tcp: bool,
    flags: &[(&'static str, u16, bool)],
    edns: bool,
) -> Vec<u8> {
    let Ok(parsed) = Octets::parse(query) else {
        return Vec::new();
    };
    let opt = parsed.opt().ok().flatten();
    let limit = match (tcp, &opt) {
        (true, _) => u16::MAX,
        (false, Some(opt)) => opt.udp_size.max(512),
        (false, None) => 512,
    };
    let whole = composed(
        query,
        content,
        opt.is_some_and(|it| it.do_bit),
        opt.is_some() && edns,
    );
    let mut octets = whole.unwrap_or_default();
    let mut bits = QR_AA_RA | parsed.flags().0 & RD_CD;
    if octets.len() > usize::from(limit) {
        let empty = Content::empty(content.rcode);
        octets = composed(query, &empty, false, opt.is_some() && edns).unwrap_or_default();
        bits |= TC;
    }
    for &(_, bit, set) in flags {
        bits = if set { bits | bit } else { bits & !bit };
    }
    if let Some(header) = octets.get_mut(2..4) {
        let rcode = u16::from(content.rcode.to_int());
        header.copy_from_slice(&(bits | rcode).to_be_bytes());
    }
    octets
}

/// Bits of a header (RFC 1035 section 4.1.1).
const QR_AA_RA: u16 = 0x8480;
const RD_CD: u16 = 0x0110;
const TC: u16 = 0x0200;

/// A response without its flags.
fn composed(query: &[u8], content: &Content, do_bit: bool, edns: bool) -> Option<Vec<u8>> {
    let mut builder = MessageBuilder::new_vec();
    let [high, low] = *query.first_chunk()?;
    builder.header_mut().set_id(u16::from_be_bytes([high, low]));
    let parsed = Octets::parse(query).ok()?;
    let class = Class::from_int(parsed.question()?.class.0);
    let (name, rtype) = question(query)?;
    let mut questions = builder.question();
    questions.push((&name, rtype, class)).ok()?;
    let [answer, authority, additional] = &content.sections;
    let mut section = questions.answer();
    answer.iter().try_for_each(|it| section.push(it)).ok()?;
    let mut section = section.authority();
    authority.iter().try_for_each(|it| section.push(it)).ok()?;
    let mut section = section.additional();
    additional.iter().try_for_each(|it| section.push(it)).ok()?;
    if edns {
        let size = |opt: &mut OptBuilder<'_, Vec<u8>>| {
            opt.set_udp_payload_size(EDNS_SIZE);
            opt.set_dnssec_ok(do_bit);
            Ok(())
        };
        section.opt(size).ok()?;
    }
    Some(section.finish())
}

/// UDP size that the authority offers (RFC 9715 appendix A).
const EDNS_SIZE: u16 = 1232;

/// The name that an alias leads to.
fn target(record: &Rr) -> Option<Owned> {
    match record.data() {
        ZoneRecordData::Cname(cname) => Some(cname.cname().to_vec()),
        _ => None,
    }
}

/// The SOA record of a zone with TTL and MINIMUM.
fn soa_of(origin: &Owned, [ttl, minimum]: [u32; 2]) -> Vec<Rr> {
    let zone = text::dotted(origin);
    let soa = format!("{zone} {ttl} SOA ns.{zone} host.{zone} 1 7200 900 1209600 {minimum}");
    text::absolute(&soa, ".").unwrap_or_default()
}
