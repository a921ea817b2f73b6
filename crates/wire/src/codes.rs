//! Code points of the DNS: named numbers. Unknown numbers are kept, never refused.
//!
//! The numbers are those of the IANA registry "Domain Name System (DNS) Parameters".

use std::fmt;

/// Defines a newtype, its constants, and a `Display` that prints the mnemonic or, for a number without a name here, the
/// generic form of RFC 3597 section 5 (`TYPE1234`).
macro_rules! codes {
    (
        $(#[$doc:meta])*
        $name:ident($int:ty), $generic:literal {
            $($(#[$code_doc:meta])* $code:ident = $value:literal,)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $int);

        impl $name {
            $($(#[$code_doc])* pub const $code: Self = Self($value);)*

            /// The code of a mnemonic in any case, or of the generic form.
            pub fn named(text: &str) -> Option<Self> {
                let known = [$((stringify!($code), $value)),*];
                let known = known.iter().find(|(name, _)| text.eq_ignore_ascii_case(name));
                let number = || text.to_ascii_uppercase().strip_prefix($generic)?.parse().ok();
                known.map(|(_, value)| *value).or_else(number).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match *self {
                    $(Self::$code => f.pad(stringify!($code)),)*
                    Self(other) => write!(f, concat!($generic, "{}"), other),
                }
            }
        }
    };
}

codes! {
    /// Type of a resource record or of a question (RFC 1035 section 3.2.2).
    Rtype(u16), "TYPE" {
        /// IPv4 address (RFC 1035 section 3.4.1).
        A = 1,
        /// Authoritative server (RFC 1035 section 3.3.11).
        NS = 2,
        /// Canonical name of an alias (RFC 1035 section 3.3.1).
        CNAME = 5,
        /// Start of a zone of authority (RFC 1035 section 3.3.13).
        SOA = 6,
        /// Pointer, for reverse mapping (RFC 1035 section 3.3.12).
        PTR = 12,
        /// Host information; carries the minimal answer to ANY (RFC 8482 section 4.2).
        HINFO = 13,
        /// Mail exchange (RFC 1035 section 3.3.9).
        MX = 15,
        /// Text (RFC 1035 section 3.3.14).
        TXT = 16,
        /// IPv6 address (RFC 3596 section 2.1).
        AAAA = 28,
        /// Location of a service (RFC 2782).
        SRV = 33,
        /// Redirection of a subtree (RFC 6672).
        DNAME = 39,
        /// EDNS (RFC 6891); a pseudo-record.
        OPT = 41,
        /// Delegation signer (RFC 4034 section 5).
        DS = 43,
        /// Signature (RFC 4034 section 3).
        RRSIG = 46,
        /// Denial of existence (RFC 4034 section 4).
        NSEC = 47,
        /// Public key (RFC 4034 section 2).
        DNSKEY = 48,
        /// Hashed denial of existence (RFC 5155).
        NSEC3 = 50,
        /// Service binding (RFC 9460).
        SVCB = 64,
        /// Service binding for HTTPS (RFC 9460).
        HTTPS = 65,
        /// Transaction signature (RFC 8945); a pseudo-record.
        TSIG = 250,
        /// Incremental zone transfer (RFC 1995); in questions only.
        IXFR = 251,
        /// Zone transfer (RFC 5936); in questions only.
        AXFR = 252,
        /// Any type (RFC 1035 section 3.2.3, RFC 8482); in questions only.
        ANY = 255,
    }
}

codes! {
    /// Class of a resource record or of a question (RFC 1035 section 3.2.4).
    Class(u16), "CLASS" {
        /// The Internet.
        IN = 1,
        /// Chaos; used for `version.bind` and similar names.
        CH = 3,
        /// No class (RFC 2136 section 2.4).
        NONE = 254,
        /// Any class; in questions only.
        ANY = 255,
    }
}

codes! {
    /// Response code: the 4 bits of the header (RFC 1035 section 4.1.1). The other 8 bits of an
    /// extended code are in the OPT record, see [`crate::message::Opt::ext_rcode`].
    Rcode(u8), "RCODE" {
        /// No error.
        NOERROR = 0,
        /// The server could not interpret the query.
        FORMERR = 1,
        /// The server failed.
        SERVFAIL = 2,
        /// The name does not exist.
        NXDOMAIN = 3,
        /// The server does not support this kind of query.
        NOTIMP = 4,
        /// The server refuses for policy reasons (RFC 1035 section 4.1.1).
        REFUSED = 5,
        /// A redirection leads to a name that is too long (RFC 6672 section 2.2).
        YXDOMAIN = 6,
    }
}

codes! {
    /// Kind of a query: the 4 bits of the header (RFC 1035 section 4.1.1).
    Opcode(u8), "OPCODE" {
        /// A standard query.
        QUERY = 0,
        /// An inverse query (obsolete, RFC 3425).
        IQUERY = 1,
        /// A server status request.
        STATUS = 2,
        /// Notification of a zone change (RFC 1996).
        NOTIFY = 4,
        /// Dynamic update (RFC 2136).
        UPDATE = 5,
    }
}

/// BADVERS, the extended response code to an EDNS version that the server does not support (RFC 6891 section 9): 1 in
/// the OPT record, 0 in the header.
pub const BADVERS: u16 = 16;

/// BADCOOKIE, the extended response code to an invalid server cookie (RFC 7873 section 8): 1 in the OPT record, 7 in
/// the header.
pub const BADCOOKIE: u16 = 23;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_codes_print_their_mnemonic_and_unknown_codes_their_number() {
        assert_eq!(Rtype::AAAA.to_string(), "AAAA");
        assert_eq!(Rtype(1234).to_string(), "TYPE1234");
        assert_eq!(Class::IN.to_string(), "IN");
        assert_eq!(Class(42).to_string(), "CLASS42");
        assert_eq!(Rcode::NXDOMAIN.to_string(), "NXDOMAIN");
        assert_eq!(Rcode(11).to_string(), "RCODE11");
        assert_eq!(Opcode::NOTIFY.to_string(), "NOTIFY");
        assert_eq!(format!("{:>6}", Rtype::NS), "    NS");
    }
}
