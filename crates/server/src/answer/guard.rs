//! From a datagram or a message of a connection to an [`Asker`], or to why it is not answered:
//! one rung per rule.
//!
//! The rungs stand in this order:
//!
//! 1. Messages that get no answer at all: those too short to have an ID, and responses, since an
//!    answer to an answer may go round for ever.
//! 2. Clients outside the access list. All that they cost is the header and the list, and where
//!    they get REFUSED, the first 512 octets.
//! 3. Opcodes other than QUERY.
//! 4. Sections that no query has, by the counts of the header alone.
//! 5. The question, then OPT: format, EDNS version, cookie.
//! 6. Queries that are understood and not served: types, classes, questions without RD.
//!
//! Whatever the message, the work is in proportion to its length, and nothing is allocated.

use std::net::IpAddr;

use dns64_wire::codes::{BADCOOKIE, Class, Opcode, Rcode, Rtype};
use dns64_wire::message::{Header, Message, Opt, Question};

use super::asker::{Asker, AskerEdns, Transport};
use super::cookie::{CookieLength, Cookies, OPTION_COOKIE};
use super::reply;
use super::special::is_within;
use crate::settings::nets::NetSet;
use crate::settings::{AnyPolicy, DenyAction};

/// Largest UDP payload without EDNS, and the least that EDNS can ask for (RFC 1035 section 4.2.1,
/// RFC 6891 section 6.2.3), in octets. A frame of this length holds every answer of [`admit`].
pub const PLAIN_UDP_LEN_MAX: u16 = 512;

/// Longest message over TCP: its length has 16 bits (RFC 1035 section 4.2.2).
const TCP_LEN_MAX: usize = 65_535;

/// Octets of a message that are looked at for the sake of a client outside the access list: enough
/// for the longest question (12 of header, 255 of name, 4) and an OPT record with some options.
const STRANGER_LEN: usize = 512;

/// Additional records of a query: OPT (RFC 6891 section 6.1.1) and one signature, TSIG (RFC 8945
/// section 5.1) or SIG(0) (RFC 2931 section 3.1).
const ADDITIONALS_MAX: u16 = 2;

/// Extended error for clients that are not in the access list (RFC 8914 section 4.19).
const PROHIBITED: u16 = 18;

/// Extended error for questions without RD to who is no authority (RFC 8914 section 4.21).
const NOT_AUTHORITATIVE: u16 = 20;

/// Types without a constant in the wire crate: signatures of messages (RFC 2931, RFC 8945), the
/// mark of SIG(0) and the first of the types that are no data (RFC 6895 section 3.1), and the
/// mailbox types (RFC 1035 section 3.2.3).
const SIG: Rtype = Rtype(24);
const TSIG: Rtype = Rtype(250);
const TYPE_ZERO: u16 = 0;
const FIRST_META: u16 = 128;
const MAILB: Rtype = Rtype(253);
const MAILA: Rtype = Rtype(254);

/// What a message is judged by.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// Who may ask.
    pub allow: &'a NetSet,
    /// What others get.
    pub deny: DenyAction,
    /// Largest UDP payload that clients are told and sent, in octets.
    pub udp_size: u16,
    /// How questions for ANY are answered.
    pub any: AnyPolicy,
    /// Cookies of this server.
    pub cookies: &'a Cookies,
    /// Who asks.
    pub client: IpAddr,
    /// How it came.
    pub transport: Transport,
    /// Seconds on the clock that the cookies are made by.
    pub now_s: u32,
}

/// What becomes of a message.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "an asker is the common case, and its box would be an allocation per query"
)]
pub enum Admission {
    /// It is a query to be answered.
    Asker(Asker),
    /// It gets no answer.
    Drop(Silence),
    /// It is answered already.
    Answer {
        /// Octets of the answer in the frame.
        len: usize,
        /// Why it is refused; `None` if it asked for a cookie and for nothing else.
        refused: Option<Refusal>,
    },
}

/// Why a message gets no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// It is shorter than a header.
    Short,
    /// It is a response.
    Response,
    /// The client may not ask.
    Access,
}

/// Why a query is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It cannot be read: FORMERR.
    Format,
    /// It is no standard query: NOTIMP.
    Opcode,
    /// It speaks another version of EDNS: BADVERS.
    Version,
    /// The client may not ask, or not without RD: REFUSED.
    Access,
    /// This type or class is not served: REFUSED, or FORMERR for what can stand in no question.
    Type,
}

/// Judges a message, and writes the answer into `frame` where it is refused.
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
    // In its place from the start: an asker is 300 octets, which are not moved once more.
    let admission = Admission::Asker(query.asker(question, context));
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

/// What a client outside the access list gets: nothing, or REFUSED with the question and the
/// reason as far as `STRANGER_LEN` octets tell them.
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

/// The answer to a query without a question: it is sound if it asks for a cookie, or whether that
/// which it has is good (RFC 7873 section 5.4).
fn without_question(query: &Query<'_>, frame: &mut [u8]) -> Admission {
    let header = &query.header;
    match &query.edns {
        Some(edns) if edns.cookie.is_some() => {
            let rcode = match query.fault {
                Some(Fault::Cookie) => BADCOOKIE,
                _ => 0,
            };
            // Its lower 4 bits stand in the header.
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

/// The rungs for a query whose question could be read: length of the answer and reason.
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
        // As good as none (RFC 7873 section 5.2.4).
        Some(Fault::Cookie) | None => {}
    }
    if let Some(rcode) = refused_type(asker.rtype, any).or(refused_class(asker)) {
        return Some((reply::error(asker, rcode, None, frame), Refusal::Type));
    }
    if !asker.flags.rd() {
        // A forwarder is authoritative for nothing, and lets nobody look into its cache.
        let len = reply::error(asker, Rcode::REFUSED, Some(NOT_AUTHORITATIVE), frame);
        return Some((len, Refusal::Access));
    }
    None
}

/// The answer to types that can stand in no question or that nobody gets.
fn refused_type(rtype: Rtype, any: AnyPolicy) -> Option<Rcode> {
    match rtype {
        Rtype::ANY => (any == AnyPolicy::Refuse).then_some(Rcode::REFUSED),
        Rtype::AXFR | Rtype::IXFR | MAILA | MAILB => Some(Rcode::REFUSED),
        Rtype::OPT | Rtype(TYPE_ZERO | FIRST_META..=250) => Some(Rcode::FORMERR),
        _ => None,
    }
}

/// The answer to classes that hold no data (RFC 6895 section 3.2: 0 is reserved), and to questions about
/// the server itself, such as version.bind or id.server (RFC 4892): the upstream is another server.
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

/// The domains of names that are about a server (RFC 4892 section 2).
const OF_SERVERS: [&[u8]; 2] = [b"\x04bind\0", b"\x06server\0"];

/// A query, as far as it could be read.
struct Query<'a> {
    header: Header,
    question: Option<Question<'a>>,
    edns: Option<AskerEdns>,
    /// Largest UDP payload that both sides take, in octets.
    udp_limit: u16,
    fault: Option<Fault>,
}

/// What is wrong behind a sound question.
#[derive(Clone, Copy)]
enum Fault {
    Format,
    Version,
    /// A server cookie that is not ours or too old.
    Cookie,
}

impl<'a> Query<'a> {
    /// Reads a query; `None` if it has sections that no query has, or not one sound question.
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

    /// Who asks a question.
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
                Transport::Tcp => TCP_LEN_MAX,
            },
        }
    }
}

/// The OPT record of a query, beside which nothing but a signature may stand.
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

/// Reads the OPT record of a query. What its options mean is known for version 0 only.
fn read_edns(opt: &Opt<'_>, context: &Context<'_>) -> (AskerEdns, Option<Fault>) {
    let mut edns = AskerEdns {
        udp_size: context.udp_size,
        do_bit: opt.do_bit,
        cookie: None,
        cookie_valid: false,
    };
    if opt.version > 0 {
        return (edns, Some(Fault::Version));
    }
    // Only the first cookie counts (RFC 7873 section 5.2).
    let cookie = opt.options().find(|option| option.code == OPTION_COOKIE);
    let checked = cookie.map(|option| {
        let cookies = context.cookies;
        cookies.answer(option.value, context.client, context.now_s)
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
