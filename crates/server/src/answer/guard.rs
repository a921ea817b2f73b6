//! From a datagram or a message of a connection to an [`Asker`], or to why it is not answered:
//! one rung per rule.
//!
//! The rungs stand in this order:
//!
//! 1. What gets no answer at all: what is too short to have an ID, and responses, since an answer
//!    to an answer may go round for ever.
//! 2. Strangers, before anything tells them more about this server than that it is one.
//! 3. What cannot be understood, from the outer form to the inner: opcode, format, EDNS version.
//! 4. What is understood and not done: types, classes, questions without RD.
//!
//! Whatever the message, the work is in proportion to its length, and nothing is allocated.

use std::net::IpAddr;

use dns64_wire::codes::{Class, Opcode, Rcode, Rtype};
use dns64_wire::message::{Header, Message, Opt};

use super::asker::{Asker, AskerEdns, Transport};
use super::cookie::{CookieLength, Cookies};
use super::reply::{self, OPTION_COOKIE};
use crate::settings::AnyPolicy;
use crate::settings::nets::NetSet;

/// Largest UDP payload without EDNS, and the least that EDNS can ask for (RFC 1035 section 4.2.1,
/// RFC 6891 section 6.2.3), in octets. A frame of this length holds every answer of [`admit`].
pub const PLAIN_UDP_LEN_MAX: u16 = 512;

/// Longest message over TCP: its length has 16 bits (RFC 1035 section 4.2.2).
const TCP_LEN_MAX: usize = 65_535;

/// Extended error for clients that are not in the access list (RFC 8914 section 4.19).
const PROHIBITED: u16 = 18;

/// Extended error for questions without RD to who is no authority (RFC 8914 section 4.21).
const NOT_AUTHORITATIVE: u16 = 20;

/// Types without a constant in the wire crate: the mark of SIG(0) and the first of the types that
/// are no data (RFC 6895 section 3.1), and the mailbox types (RFC 1035 section 3.2.3).
const TYPE_ZERO: u16 = 0;
const FIRST_META: u16 = 128;
const MAILB: Rtype = Rtype(253);
const MAILA: Rtype = Rtype(254);

/// What a message is judged by.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// Who may ask.
    pub allow: &'a NetSet,
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
        /// Why.
        reason: Refusal,
    },
}

/// Why a message gets no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// It is shorter than a header.
    Short,
    /// It is a response.
    Response,
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
    let is_query = header.opcode() == Opcode::QUERY;
    let query = is_query.then(|| Query::read(message, context)).flatten();
    let (len, reason) = if !context.allow.contains(context.client) {
        let len = match &query {
            Some(query) => reply::error(&query.asker, Rcode::REFUSED, Some(PROHIBITED), frame),
            None => reply::bare(&header, Rcode::REFUSED, frame),
        };
        (len, Refusal::Access)
    } else if !is_query {
        (reply::bare(&header, Rcode::NOTIMP, frame), Refusal::Opcode)
    } else {
        match query {
            None => (reply::bare(&header, Rcode::FORMERR, frame), Refusal::Format),
            Some(query) => match refusal(&query, context.any, frame) {
                Some(refused) => refused,
                None => return Admission::Asker(query.asker),
            },
        }
    };
    Admission::Answer { len, reason }
}

/// The rungs for a query whose question could be read: length of the answer and reason.
fn refusal(query: &Query, any: AnyPolicy, frame: &mut [u8]) -> Option<(usize, Refusal)> {
    let asker = &query.asker;
    match query.fault {
        Some(Fault::Format) => {
            return Some((
                reply::error(asker, Rcode::FORMERR, None, frame),
                Refusal::Format,
            ));
        }
        Some(Fault::Version) => return Some((reply::bad_version(asker, frame), Refusal::Version)),
        None => {}
    }
    if let Some(rcode) = refused_type(asker.rtype, any).or(refused_class(asker.class)) {
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

/// The answer to classes that hold no data (RFC 6895 section 3.2: 0 is reserved).
fn refused_class(class: Class) -> Option<Rcode> {
    matches!(class, Class(0) | Class::NONE | Class::ANY).then_some(Rcode::REFUSED)
}

/// A query, as far as it could be read.
struct Query {
    asker: Asker,
    fault: Option<Fault>,
}

/// What is wrong behind a sound question.
enum Fault {
    Format,
    Version,
}

impl Query {
    /// Reads a query; `None` if it has not one sound question.
    fn read(message: &[u8], context: &Context<'_>) -> Option<Self> {
        let message = Message::parse(message).ok()?;
        let question = message.question()?;
        let (edns, fault, limit) = match message.opt() {
            Err(_) => (None, Some(Fault::Format), PLAIN_UDP_LEN_MAX),
            Ok(None) => (None, None, PLAIN_UDP_LEN_MAX),
            Ok(Some(opt)) => {
                let limit = opt.udp_size.min(context.udp_size).max(PLAIN_UDP_LEN_MAX);
                let (edns, fault) = read_edns(&opt, context);
                (Some(edns), fault, limit)
            }
        };
        let asker = Asker {
            id: message.id(),
            name: question.name.to_buf(),
            rtype: question.rtype,
            class: question.class,
            flags: message.flags(),
            edns,
            limit: match context.transport {
                Transport::Udp => usize::from(limit),
                Transport::Tcp => TCP_LEN_MAX,
            },
        };
        Some(Self { asker, fault })
    }
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
            None
        }
        Some(Err(CookieLength { .. })) => Some(Fault::Format),
    };
    (edns, fault)
}

#[cfg(test)]
mod tests;
