//! The header of a message (RFC 1035 section 4.1.1). [`crate::message`] re-exports its types.

use std::fmt;

use crate::ParseError;
use crate::codes::{Opcode, Rcode};

/// Octets of the header (RFC 1035 section 4.1.1). The question, if any, starts here.
pub const HEADER_LEN: usize = 12;

/// The second 16 bits of the header.
///
/// ```text
///   15  14  13  12  11  10   9   8   7   6   5   4   3   2   1   0
/// +---+---+---+---+---+---+---+---+---+---+---+---+---+---+---+---+
/// | QR|     OPCODE    | AA| TC| RD| RA|  0| AD| CD|     RCODE     |
/// +---+---+---+---+---+---+---+---+---+---+---+---+---+---+---+---+
/// ```
///
/// - QR, query or response: RFC 1035 section 4.1.1.
/// - OPCODE: RFC 1035 section 4.1.1.
/// - AA, authoritative answer: RFC 1035 section 4.1.1.
/// - TC, truncated: RFC 1035 section 4.1.1, RFC 2181 section 9.
/// - RD, recursion desired: RFC 1035 section 4.1.1; copied into the response.
/// - RA, recursion available: RFC 1035 section 4.1.1.
/// - Bit 6 (Z) must be zero: RFC 1035 section 4.1.1.
/// - AD, authentic data: RFC 4035 section 3.2.3, in queries RFC 6840 section 5.7.
/// - CD, checking disabled: RFC 4035 section 3.2.2; copied into the response.
/// - RCODE: RFC 1035 section 4.1.1.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Flags(pub u16);

impl Flags {
    const QR: u16 = 1 << 15;
    const AA: u16 = 1 << 10;
    const TC: u16 = 1 << 9;
    const RD: u16 = 1 << 8;
    const RA: u16 = 1 << 7;
    const AD: u16 = 1 << 5;
    const CD: u16 = 1 << 4;

    /// Whether this is a response.
    pub fn qr(self) -> bool {
        self.0 & Self::QR != 0
    }

    /// Kind of query.
    pub fn opcode(self) -> Opcode {
        Opcode(self.0.to_be_bytes()[0] >> 3 & 0xf)
    }

    /// Whether the answer is authoritative.
    pub fn aa(self) -> bool {
        self.0 & Self::AA != 0
    }

    /// Whether the message is truncated.
    pub fn tc(self) -> bool {
        self.0 & Self::TC != 0
    }

    /// Whether recursion is desired.
    pub fn rd(self) -> bool {
        self.0 & Self::RD != 0
    }

    /// Whether recursion is available.
    pub fn ra(self) -> bool {
        self.0 & Self::RA != 0
    }

    /// Whether the data is authentic.
    pub fn ad(self) -> bool {
        self.0 & Self::AD != 0
    }

    /// Whether checking is disabled.
    pub fn cd(self) -> bool {
        self.0 & Self::CD != 0
    }

    /// Response code, without the extension in the OPT record.
    pub fn rcode(self) -> Rcode {
        Rcode(self.0.to_be_bytes()[1] & 0xf)
    }

    /// Sets or clears QR.
    pub fn with_qr(self, yes: bool) -> Self {
        self.with(Self::QR, yes)
    }

    /// Sets or clears AA.
    pub fn with_aa(self, yes: bool) -> Self {
        self.with(Self::AA, yes)
    }

    /// Sets or clears TC.
    pub fn with_tc(self, yes: bool) -> Self {
        self.with(Self::TC, yes)
    }

    /// Sets or clears RD.
    pub fn with_rd(self, yes: bool) -> Self {
        self.with(Self::RD, yes)
    }

    /// Sets or clears RA.
    pub fn with_ra(self, yes: bool) -> Self {
        self.with(Self::RA, yes)
    }

    /// Sets or clears AD.
    pub fn with_ad(self, yes: bool) -> Self {
        self.with(Self::AD, yes)
    }

    /// Sets or clears CD.
    pub fn with_cd(self, yes: bool) -> Self {
        self.with(Self::CD, yes)
    }

    /// Sets the opcode; only its low 4 bits count.
    pub fn with_opcode(self, opcode: Opcode) -> Self {
        Self(self.0 & !(0xf << 11) | u16::from(opcode.0 & 0xf) << 11)
    }

    /// Sets the response code; only its low 4 bits count.
    pub fn with_rcode(self, rcode: Rcode) -> Self {
        Self(self.0 & !0xf | u16::from(rcode.0 & 0xf))
    }

    fn with(self, bit: u16, yes: bool) -> Self {
        Self(if yes { self.0 | bit } else { self.0 & !bit })
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Flags({}", self.opcode())?;
        let bits = [
            (self.qr(), " qr"),
            (self.aa(), " aa"),
            (self.tc(), " tc"),
            (self.rd(), " rd"),
            (self.ra(), " ra"),
            (self.ad(), " ad"),
            (self.cd(), " cd"),
        ];
        for (_, bit) in bits.iter().filter(|(set, _)| *set) {
            f.write_str(bit)?;
        }
        write!(f, " {})", self.rcode())
    }
}

/// The header of a message (RFC 1035 section 4.1.1), in host order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    id: u16,
    flags: Flags,
    counts: [u16; 4],
}

impl Header {
    /// Reads the first 12 octets; all values are valid.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let Some(header) = bytes.first_chunk::<HEADER_LEN>() else {
            return Err(ParseError::ShortHeader { len: bytes.len() });
        };
        let word = |i: usize| u16::from_be_bytes([header[2 * i], header[2 * i + 1]]);
        Ok(Self {
            id: word(0),
            flags: Flags(word(1)),
            counts: [word(2), word(3), word(4), word(5)],
        })
    }

    /// Transaction ID.
    pub fn id(&self) -> u16 {
        self.id
    }

    /// All flag bits.
    pub fn flags(&self) -> Flags {
        self.flags
    }

    /// See [`Flags::qr`].
    pub fn qr(&self) -> bool {
        self.flags.qr()
    }

    /// See [`Flags::opcode`].
    pub fn opcode(&self) -> Opcode {
        self.flags.opcode()
    }

    /// See [`Flags::aa`].
    pub fn aa(&self) -> bool {
        self.flags.aa()
    }

    /// See [`Flags::tc`].
    pub fn tc(&self) -> bool {
        self.flags.tc()
    }

    /// See [`Flags::rd`].
    pub fn rd(&self) -> bool {
        self.flags.rd()
    }

    /// See [`Flags::ra`].
    pub fn ra(&self) -> bool {
        self.flags.ra()
    }

    /// See [`Flags::ad`].
    pub fn ad(&self) -> bool {
        self.flags.ad()
    }

    /// See [`Flags::cd`].
    pub fn cd(&self) -> bool {
        self.flags.cd()
    }

    /// See [`Flags::rcode`].
    pub fn rcode(&self) -> Rcode {
        self.flags.rcode()
    }

    /// Number of questions according to the header.
    pub fn qdcount(&self) -> u16 {
        self.counts[0]
    }

    /// Number of records in the answer section according to the header.
    pub fn ancount(&self) -> u16 {
        self.counts[1]
    }

    /// Number of records in the authority section according to the header.
    pub fn nscount(&self) -> u16 {
        self.counts[2]
    }

    /// Number of records in the additional section according to the header.
    pub fn arcount(&self) -> u16 {
        self.counts[3]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flag_is_set_and_cleared_independently() {
        let set = [
            (Flags::default().with_qr(true), 0x8000),
            (Flags::default().with_opcode(Opcode(0xf)), 0x7800),
            (Flags::default().with_aa(true), 0x0400),
            (Flags::default().with_tc(true), 0x0200),
            (Flags::default().with_rd(true), 0x0100),
            (Flags::default().with_ra(true), 0x0080),
            (Flags::default().with_ad(true), 0x0020),
            (Flags::default().with_cd(true), 0x0010),
            (Flags::default().with_rcode(Rcode(0xf)), 0x000f),
            (Flags(0xffff).with_tc(false), 0xfdff),
            (Flags(0xffff).with_opcode(Opcode::QUERY), 0x87ff),
            (Flags(0xffff).with_rcode(Rcode::REFUSED), 0xfff5),
        ];
        for (flags, bits) in set {
            assert_eq!(flags.0, bits, "{flags:?}");
        }
    }
}
