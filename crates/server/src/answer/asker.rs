//! The parts of a query that its response depends on.

use dns64_wire::codes::{Class, Rtype};
use dns64_wire::message::Flags;
use dns64_wire::name::NameBuf;

use crate::settings::ShortText;

/// A query that passed the [`guard`](super::guard), without its bytes.
#[derive(Clone, Debug)]
pub struct Asker {
    /// Transaction ID.
    pub id: u16,
    /// Queried name, in the case of the query.
    pub name: NameBuf,
    /// Queried type.
    pub rtype: Rtype,
    /// Queried class.
    pub class: Class,
    /// Flags of the query.
    pub flags: Flags,
    /// Contents of its OPT record, if it has one.
    pub edns: Option<AskerEdns>,
    /// Octets of the longest response that this transport and the client accept.
    pub limit: usize,
}

/// The contents of the OPT record of a query, and of the one in its response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AskerEdns {
    /// Largest UDP payload that the response announces, in octets.
    pub udp_size: u16,
    /// DNSSEC OK.
    pub do_bit: bool,
    /// The cookie option of the response: client cookie and server cookie. `None` if the query had
    /// no cookie.
    pub cookie: Option<[u8; 24]>,
    /// Whether the server cookie of the query is valid, which shows that its source address is not
    /// forged.
    pub cookie_valid: bool,
    /// The name of the server in the response (RFC 5001); empty: none.
    pub nsid: ShortText,
    /// The time for which an idle connection is kept, in the response, in tenths of a second (RFC 7828); 0: none.
    pub keepalive: u16,
    /// Whether the response is padded (RFC 7830).
    pub padding: bool,
}

impl Asker {
    /// Whether the client requests DNSSEC records.
    pub fn do_bit(&self) -> bool {
        self.edns.is_some_and(|edns| edns.do_bit)
    }

    /// Whether the client validates: with DO and CD it requests unmodified data (RFC 6147 section
    /// 5.5 (3)).
    pub fn validates(&self) -> bool {
        self.do_bit() && self.cd()
    }

    /// Whether checking is disabled.
    pub fn cd(&self) -> bool {
        self.flags.cd()
    }
}

/// The transport of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
    /// TLS over TCP.
    Tls,
}
