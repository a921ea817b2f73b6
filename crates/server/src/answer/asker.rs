//! What an answer has to know of its query.

use dns64_wire::codes::{Class, Rtype};
use dns64_wire::message::Flags;
use dns64_wire::name::NameBuf;

/// A query that passed the guard, without its bytes.
#[derive(Clone, Debug)]
pub struct Asker {
    /// Transaction ID.
    pub id: u16,
    /// Name asked for, in the case that it was asked in.
    pub name: NameBuf,
    /// Type asked for.
    pub rtype: Rtype,
    /// Class asked for.
    pub class: Class,
    /// Flags of the query.
    pub flags: Flags,
    /// What its OPT record said, if it had one.
    pub edns: Option<AskerEdns>,
    /// Octets of the longest message that can be sent back on this transport.
    pub limit: usize,
}

/// The OPT record of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskerEdns {
    /// Largest UDP payload that it is told to send us, in octets.
    pub udp_size: u16,
    /// DNSSEC OK.
    pub do_bit: bool,
    /// The cookie option to send back, if the query had one: client cookie and server cookie.
    pub cookie: Option<[u8; 24]>,
    /// Whether the query's server cookie was one of ours: the address is not forged.
    pub cookie_valid: bool,
}

impl Asker {
    /// Whether DNSSEC records are wanted.
    pub fn do_bit(&self) -> bool {
        self.edns.is_some_and(|edns| edns.do_bit)
    }

    /// Whether whoever asks validates: it understands DNSSEC and wants the data as they are (RFC
    /// 6147 section 5.5 (3)).
    pub fn validates(&self) -> bool {
        self.do_bit() && self.cd()
    }

    /// Whether checking is disabled.
    pub fn cd(&self) -> bool {
        self.flags.cd()
    }
}

/// How a query came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// In a datagram.
    Udp,
    /// Over a connection.
    Tcp,
}
