//! Checks received messages: each becomes an [`Asker`], is answered with an error, or is dropped.
//!
//! The checks, in their order:
//!
//! 1. Messages that get no response: those too short to have an ID, and responses, because two
//!    servers could answer each other endlessly.
//! 2. Clients outside the access list. Only the header and the list are read; for REFUSED also the
//!    first 512 octets.
//! 3. Opcodes other than QUERY.
//! 4. Sections that a query cannot have, by the counts in the header alone.
//! 5. The question, then OPT: format, EDNS version, cookie.
//! 6. Valid queries that are not served: types, classes, queries without RD.
//!
//! The work is proportional to the length of the message, and nothing is allocated.

use std::net::IpAddr;

use dns64_transport::clock::{Nanos, SECOND};
use dns64_wire::build::Owner;
use dns64_wire::codes::{BADCOOKIE, Class, Opcode, Rcode, Rtype};
use dns64_wire::message::{Header, Message, Opt, Question, Section};

use super::asker::{Asker, AskerEdns, Transport};
use super::cookie::{CookieLength, Cookies, OPTION_COOKIE};
use super::reply::{self, Head, OPTION_NSID, OPTION_PADDING, OPTION_TCP_KEEPALIVE};
use super::special::is_within;
use crate::settings::nets::NetSet;
use crate::settings::{AnyPolicy, DenyAction, Identity};

/// Largest UDP payload without EDNS, and the smallest that EDNS can announce (RFC 1035 section
/// 4.2.1, RFC 6891 section 6.2.3), in octets. A frame of this length holds every response of
/// [`admit`].
pub const PLAIN_UDP_LEN_MAX: u16 = 512;

/// Longest message over TCP: its length has 16 bits (RFC 1035 section 4.2.2).
const TCP_LEN_MAX: usize = 65_535;

/// Octets that are read of a message from a client outside the access list: enough for the longest
/// question (12 of header, 255 of name, 4) and an OPT record with some options.
const STRANGER_LEN: usize = 512;

/// Largest number of additional records in a query: OPT (RFC 6891 section 6.1.1) and one signature,
/// TSIG (RFC 8945 section 5.1) or SIG(0) (RFC 2931 section 3.1).
const ADDITIONALS_MAX: u16 = 2;

/// Extended error for clients outside the access list (RFC 8914 section 4.19).
const PROHIBITED: u16 = 18;

/// Extended error for queries without RD, as the server is not authoritative (RFC 8914 section
/// 4.21).
const NOT_AUTHORITATIVE: u16 = 20;

/// Types without a constant in the wire crate: signatures of messages (RFC 2931, RFC 8945), type 0
/// of SIG(0) and the first meta type (RFC 6895 section 3.1), and the mailbox types (RFC 1035 section
/// 3.2.3).
const SIG: Rtype = Rtype(24);
const TSIG: Rtype = Rtype(250);
const TYPE_ZERO: u16 = 0;
const FIRST_META: u16 = 128;
const MAILB: Rtype = Rtype(253);
const MAILA: Rtype = Rtype(254);

/// The settings and circumstances that a message is checked against.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// Clients that are served.
    pub allow: &'a NetSet,
    /// Response to other clients.
    pub deny: DenyAction,
    /// Largest UDP payload that the server announces and sends, in octets.
    pub udp_size: u16,
    /// Response to queries for ANY.
    pub any: AnyPolicy,
    /// What the server says of itself.
    pub identity: &'a Identity,
    /// Time for which an idle connection is kept.
    pub idle_ns: Nanos,
    /// DNS cookies of this server.
    pub cookies: &'a Cookies,
    /// Address of the client.
    pub client: IpAddr,
    /// Transport of the message.
    pub transport: Transport,
    /// Time for the cookies, in seconds.
    pub now_s: u32,
}

/// The outcome of the checks.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "an asker is the common case, and its box would be an allocation per query"
)]
pub enum Admission {
    /// A query to be answered.
    Asker(Asker),
    /// The message gets no response.
    Drop(Silence),
    /// The response is in the frame.
    Answer {
        /// Length of the response in octets.
        len: usize,
        /// Reason of the refusal; `None` if the query only requested a cookie, or was about the server itself.
        refused: Option<Refusal>,
    },
}

/// The reason why a message gets no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// Shorter than a header.
    Short,
    /// A response.
    Response,
    /// From a client outside the access list.
    Access,
}

/// The reason why a query is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Malformed: FORMERR.
    Format,
    /// Opcode other than QUERY: NOTIMP.
    Opcode,
    /// Unsupported version of EDNS: BADVERS.
    Version,
    /// Client outside the access list, or a query without RD: REFUSED.
    Access,
    /// Type or class that is not served: REFUSED, or FORMERR for one that a question cannot have.
    Type,
}

/// Checks a message, and writes the response into `frame` if it is refused.
pub fn admit(message: &[u8], context: &Context<'_>, frame: &mut [u8]) -> Admission {
    let Ok(header) = Header::parse(message) else {
        return Admission::Drop(Silence::Short);
    };
    if header.qr() {
        return Admission::Drop(Silence::Response);
    }
    if !context.allow.contains(context.client) {
        return deny(message, &header, context, frame);
    }
    if header.opcode() != Opcode::QUERY {
        return refuse(
            reply::bare(&header, Rcode::NOTIMP, None, frame),
            Refusal::Opcode,
        );
    }
    let Some(query) = Query::read(message, &header, context) else {
        return refuse(
            reply::bare(&header, Rcode::FORMERR, None, frame),
            Refusal::Format,
        );
    };
    let Some(question) = &query.question else {
        return without_question(&query, frame);
    };
    // Built in place: an asker has 300 octets, and a move would copy them.
    let admission = Admission::Asker(query.asker(question, context));
    if let Admission::Asker(asker) = &admission
        && asker.class == Class::CH
        && query.fault.is_none()
        && let Some(len) = of_server(asker, context.identity, frame)
    {
        return Admission::Answer { len, refused: None };
    }
    if let Admission::Asker(asker) = &admission
        && let Some((len, reason)) = refusal(asker, query.fault, context.any, frame)
    {
        return refuse(len, reason);
    }
    admission
}

fn refuse(len: usize, reason: Refusal) -> Admission {
    let refused = Some(reason);
    Admission::Answer { len, refused }
}

/// Handles a query from a client outside the access list: drops it, or answers REFUSED with the
/// question and an extended error if they are within the first `STRANGER_LEN` octets.
fn deny(message: &[u8], header: &Header, context: &Context<'_>, frame: &mut [u8]) -> Admission {
    if context.deny == DenyAction::Drop {
        return Admission::Drop(Silence::Access);
    }
    let seen = &message[..message.len().min(STRANGER_LEN)];
    let query = (header.opcode() == Opcode::QUERY)
        .then(|| Query::read(seen, header, context))
        .flatten();
    let asker = query.and_then(|query| Some(query.asker(&query.question?, context)));
    let len = match asker {
        Some(asker) => reply::error(&asker, Rcode::REFUSED, Some(PROHIBITED), frame),
        None => reply::bare(header, Rcode::REFUSED, None, frame),
    };
    refuse(len, Refusal::Access)
}

/// Answers a query without a question. It is valid if it requests a cookie or the check of its own
/// (RFC 7873 section 5.4).
fn without_question(query: &Query<'_>, frame: &mut [u8]) -> Admission {
    let header = &query.header;
    match &query.edns {
        Some(edns) if edns.cookie.is_some() => {
            let rcode = match query.fault {
                Some(Fault::Cookie) => BADCOOKIE,
                _ => 0,
            };
            // The lower 4 bits of the code are in the header.
            let [ext_rcode, low] = (rcode << 4).to_be_bytes();
            let edns = Some((edns, ext_rcode));
            let len = reply::bare(header, Rcode(low >> 4), edns, frame);
            Admission::Answer { len, refused: None }
        }
        _ => refuse(
            reply::bare(header, Rcode::FORMERR, None, frame),
            Refusal::Format,
        ),
    }
}

/// Checks a query with a valid question. Returns the length of the response and the reason.
fn refusal(
    asker: &Asker,
    fault: Option<Fault>,
    any: AnyPolicy,
    frame: &mut [u8],
) -> Option<(usize, Refusal)> {
    match fault {
        Some(Fault::Format) => {
            return Some((
                reply::error(asker, Rcode::FORMERR, None, frame),
                Refusal::Format,
            ));
        }
        Some(Fault::Version) => return Some((reply::bad_version(asker, frame), Refusal::Version)),
        // Treated as a query without a cookie (RFC 7873 section 5.2.4).
        Some(Fault::Cookie) | None => {}
    }
    if let Some(rcode) = refused_type(asker.rtype, any).or(refused_class(asker)) {
        return Some((reply::error(asker, rcode, None, frame), Refusal::Type));
    }
    if !asker.flags.rd() {
        // A forwarder is not authoritative, and does not disclose its cache.
        let len = reply::error(asker, Rcode::REFUSED, Some(NOT_AUTHORITATIVE), frame);
        return Some((len, Refusal::Access));
    }
    None
}

/// Response code for types that a question cannot have or that are not served.
fn refused_type(rtype: Rtype, any: AnyPolicy) -> Option<Rcode> {
    match rtype {
        Rtype::ANY => (any == AnyPolicy::Refuse).then_some(Rcode::REFUSED),
        Rtype::AXFR | Rtype::IXFR | MAILA | MAILB => Some(Rcode::REFUSED),
        Rtype::OPT | Rtype(TYPE_ZERO | FIRST_META..=250) => Some(Rcode::FORMERR),
        _ => None,
    }
}

/// Response code for classes without data (RFC 6895 section 3.2: 0 is reserved), and for queries
/// about the server itself, such as version.bind or id.server (RFC 4892): the upstream is another
/// server.
fn refused_class(asker: &Asker) -> Option<Rcode> {
    let is_refused = match asker.class {
        Class(0) | Class::NONE | Class::ANY => true,
        Class::CH => {
            let name = asker.name.as_wire();
            OF_SERVERS.iter().any(|zone| is_within(name, zone))
        }
        _ => false,
    };
    is_refused.then_some(Rcode::REFUSED)
}

/// Answers a query for what the server says of itself (RFC 4892); `None` if it says nothing.
fn of_server(asker: &Asker, identity: &Identity, frame: &mut [u8]) -> Option<usize> {
    let names: [(&[u8], _); 4] = [
        (b"\x02id\x06server\0", &identity.id),
        (b"\x08hostname\x04bind\0", &identity.id),
        (b"\x07version\x06server\0", &identity.version),
        (b"\x07version\x04bind\0", &identity.version),
    ];
    let is_asked = |(name, _): &(&[u8], _)| asker.name.as_wire().eq_ignore_ascii_case(name);
    let (_, text) = names.into_iter().find(is_asked)?;
    let text = text.as_bytes();
    let len = u8::try_from(text.len())
        .ok()
        .filter(|len| *len > 0 && asker.rtype == Rtype::TXT)?;
    let head = Head {
        aa: true,
        ..Head::default()
    };
    Some(reply::write(asker, &head, frame, |to| {
        let (section, owner) = (Section::Answer, Owner::Question);
        to.record_parts(section, owner, Rtype::TXT, Class::CH, 0, [&[len], text])
    }))
}

/// The domains of names that describe a server (RFC 4892 section 2).
const OF_SERVERS: [&[u8]; 2] = [b"\x04bind\0", b"\x06server\0"];

/// The readable parts of a query.
struct Query<'a> {
    header: Header,
    question: Option<Question<'a>>,
    edns: Option<AskerEdns>,
    /// Largest UDP payload that client and server accept, in octets.
    udp_limit: u16,
    fault: Option<Fault>,
}

/// A fault after a valid question.
#[derive(Clone, Copy)]
enum Fault {
    Format,
    Version,
    /// A server cookie that is not valid.
    Cookie,
}

impl<'a> Query<'a> {
    /// Reads a query. `None` if it has sections that a query cannot have, or not exactly one valid
    /// question.
    fn read(message: &'a [u8], header: &Header, context: &Context<'_>) -> Option<Self> {
        // IXFR has a record in the authority section (RFC 1995 section 3), but is not served.
        let records = (header.ancount(), header.nscount());
        if records != (0, 0) || header.arcount() > ADDITIONALS_MAX {
            return None;
        }
        let message = Message::parse(message).ok()?;
        let mut query = Self {
            header: *header,
            question: message.question(),
            edns: None,
            udp_limit: PLAIN_UDP_LEN_MAX,
            fault: None,
        };
        match read_opt(&message) {
            Err(fault) => query.fault = Some(fault),
            Ok(None) => {}
            Ok(Some(opt)) => {
                query.udp_limit = opt.udp_size.min(context.udp_size).max(PLAIN_UDP_LEN_MAX);
                let (edns, fault) = read_edns(&opt, context);
                (query.edns, query.fault) = (Some(edns), fault);
            }
        }
        Some(query)
    }

    /// The query as an [`Asker`].
    #[inline(always)]
    fn asker(&self, question: &Question<'_>, context: &Context<'_>) -> Asker {
        Asker {
            id: self.header.id(),
            name: question.name.to_buf(),
            rtype: question.rtype,
            class: question.class,
            flags: self.header.flags(),
            edns: self.edns,
            limit: match context.transport {
                Transport::Udp => usize::from(self.udp_limit),
                Transport::Tcp | Transport::Tls => TCP_LEN_MAX,
            },
        }
    }
}

/// Returns the OPT record of a query. Other additional records must be signatures.
fn read_opt<'a>(message: &Message<'a>) -> Result<Option<Opt<'a>>, Fault> {
    let mut opt = None;
    for record in message.records() {
        let record = record.map_err(|_| Fault::Format)?;
        match record.rtype {
            Rtype::OPT if opt.is_none() => {
                opt = Some(Opt::from_record(&record).map_err(|_| Fault::Format)?);
            }
            SIG | TSIG => {}
            _ => return Err(Fault::Format),
        }
    }
    Ok(opt)
}

/// Reads the OPT record of a query. Its options are read in version 0 only.
fn read_edns(opt: &Opt<'_>, context: &Context<'_>) -> (AskerEdns, Option<Fault>) {
    let mut edns = AskerEdns {
        udp_size: context.udp_size,
        do_bit: opt.do_bit,
        ..AskerEdns::default()
    };
    if opt.version > 0 {
        return (edns, Some(Fault::Version));
    }
    let mut cookie = None;
    for option in opt.options() {
        match option.code {
            // Only the first one counts (RFC 7873 section 5.2).
            OPTION_COOKIE => cookie = cookie.or(Some(option.value)),
            OPTION_NSID => edns.nsid = context.identity.id,
            // Not over UDP (RFC 7828 section 3.2.2).
            OPTION_TCP_KEEPALIVE if context.transport != Transport::Udp => {
                let tenths = context.idle_ns / (SECOND / 10);
                edns.keepalive = u16::try_from(tenths).unwrap_or(u16::MAX);
            }
            // Padding hides nothing without encryption.
            OPTION_PADDING => edns.padding = context.transport == Transport::Tls,
            _ => {}
        }
    }
    let checked = cookie.map(|cookie| {
        let cookies = context.cookies;
        cookies.answer(cookie, context.client, context.now_s)
    });
    let fault = match checked {
        None => None,
        Some(Ok(checked)) => {
            edns.cookie = Some(checked.cookie);
            edns.cookie_valid = checked.valid;
            (checked.has_server && !checked.valid).then_some(Fault::Cookie)
        }
        Some(Err(CookieLength { .. })) => Some(Fault::Format),
    };
    (edns, fault)
}

#[cfg(test)]
mod tests;
