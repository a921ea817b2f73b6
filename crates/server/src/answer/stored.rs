//! A response in the form that it is kept in and answered from.

use dns64_wire::codes::Rcode;

/// A response to one question: of an upstream, checked, or that there is none.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Header, question and records without OPT. Every record has been walked, every name in it
    /// is sound, and every A and AAAA record has the length of its address.
    message: Box<[u8]>,
    kind: Kind,
    /// How long it may be used, in seconds.
    ttl_s: u32,
    /// Extended error to send with it (RFC 8914).
    extended_error: Option<u16>,
}

/// What a response says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// There are records of the type that was asked for, or an alias to them.
    Positive,
    /// The name exists, but no record of this type (RFC 2308 section 2.2). With an alias before
    /// it or without.
    NoData,
    /// The name does not exist.
    NxDomain,
    /// Any other response code, or no response at all (then SERVFAIL).
    Failure(Rcode),
}

/// A stored response and how old it is: its TTLs are smaller by that.
#[derive(Clone, Copy, Debug)]
pub struct Aged<'a> {
    /// The response.
    pub stored: &'a Stored,
    /// Seconds since it was stored.
    pub age_s: u32,
}
