//! Parses and writes DNS messages and the addresses of RFC 6052. No I/O, no clock, no allocation.
//!
//! The modules, from small to large units:
//!
//! - [`codes`]: record types, classes, response codes: named numbers, unknown ones kept;
//! - [`name`]: domain names, as a view of a message ([`name::Name`]) or owned ([`name::NameBuf`]);
//! - [`message`]: a view of a whole message. [`message::Message::parse`] checks the header
//!   and the question; iterating over the records after them can fail;
//! - [`build`]: writes a message into a caller's buffer and never beyond a limit;
//! - [`pref64`]: the prefix of a DNS64 or NAT64 and the IPv4 addresses embedded under it.
//!
//! Not here: DNSSEC validation, zone files, the meaning of record data other than addresses and
//! single names.
//!
//! ```
//! use dns64_wire::build::{Builder, Owner};
//! use dns64_wire::codes::{Class, Rtype};
//! use dns64_wire::message::{Flags, Message, Section};
//! use dns64_wire::name::NameBuf;
//!
//! let name: NameBuf = "www.example".parse()?;
//! let mut bytes = [0; 512];
//! let mut reply = Builder::new(&mut bytes, 512)?;
//! reply.header(7, Flags::default().with_qr(true));
//! reply.question(&name, Rtype::A, Class::IN)?;
//! reply.record(Section::Answer, Owner::Question, Rtype::A, Class::IN, 60, &[192, 0, 2, 1])?;
//! let len = reply.finish();
//!
//! let message = Message::parse(&bytes[..len])?;
//! assert_eq!(message.id(), 7);
//! let record = message.records().next().expect("one answer")?;
//! assert_eq!(record.a(), Some([192, 0, 2, 1].into()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod build;
pub mod codes;
mod header;
pub mod message;
pub mod name;
pub mod pref64;

/// Reason why octets are not a DNS message, or not one that this project supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Fewer than the 12 octets of a header.
    #[error("message of {len} octets is shorter than the 12 of a DNS header")]
    ShortHeader {
        /// Length of the message in octets.
        len: usize,
    },
    /// More than one question, which no server answers (RFC 9619).
    #[error("message has {count} questions where at most 1 is allowed")]
    Questions {
        /// QDCOUNT.
        count: u16,
    },
    /// The message is shorter than its counts and lengths say.
    #[error("message ends within a name or a record")]
    ShortMessage,
    /// A label whose two high bits are 01 or 10 (RFC 6891 section 5).
    #[error("name has a label of a reserved type")]
    LabelType,
    /// A compression pointer that does not point before the labels that it ends.
    #[error("compression pointer does not point backwards")]
    PointerForward,
    /// A compression pointer into the header, which contains no names.
    #[error("compression pointer points into the header")]
    PointerHeader,
    /// More pointers in one name than a name can have labels.
    #[error("name has more than {} compression pointers", name::POINTERS_MAX)]
    PointerChain,
    /// More labels and pointers in the names of a message than its length allows.
    #[error(
        "names of the message have more labels and compression pointers than octets and {} more",
        message::STEPS_SPARE
    )]
    NameSteps,
    /// A name of more than 255 octets.
    #[error("name is longer than {} octets", name::NAME_LEN_MAX)]
    NameTooLong,
    /// Octets after a name that should fill its field.
    #[error("name ends before the place that holds it")]
    NameTooShort,
    /// More than one OPT record (RFC 6891 section 6.1.1).
    #[error("message has more than one OPT record")]
    OptRepeated,
    /// An OPT record outside the additional section, or not owned by the root.
    #[error("OPT record is not in the additional section under the root name")]
    OptMisplaced,
    /// The options of the OPT record do not fill its data.
    #[error("options of the OPT record do not fill its data")]
    OptOptions,
}

/// No room left below the limit of a [`build::Builder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no room left in the message; truncate it or raise its limit")]
pub struct Truncated;

/// Reads the two octets at `at`, big-endian.
pub(crate) fn read_u16(bytes: &[u8], at: usize) -> Result<u16, ParseError> {
    match bytes.get(at..).and_then(<[u8]>::first_chunk) {
        Some(octets) => Ok(u16::from_be_bytes(*octets)),
        None => Err(ParseError::ShortMessage),
    }
}
