//! Converts octets into choices, and choices into messages that pass many checks.

use dns64_wire::message::{HEADER_LEN, Message};

/// The remaining octets; zeros when there are none left.
pub(crate) struct Input<'a>(&'a [u8]);

/// Names that are in the settings, or lead to each other.
const NAMES: [&[u8]; 12] = [
    b"\x01a\x07example\0",
    b"\x01b\x07example\0",
    b"\x01A\x07eXample\0",
    b"\x01c\x05force\x07example\0",
    b"\x01d\x07exclude\x07example\0",
    b"\x08ipv4only\x04arpa\0",
    b"\0",
    // 64:ff9b::c000:201 and 2001:db8:c000:201::
    b"\x011\x010\x012\x010\x010\x010\x010\x01c\x010\x010\x010\x010\x010\x010\x010\x010\x010\x010\x010\x010\x010\x010\x010\x010\x01b\x019\x01f\x01f\x014\x016\x010\x010\x03ip6\x04arpa\0",
    b"\x010\x010\x010\x010\x010\x010\x010\x010\x010\x010\x010\x010\x010\x010\x010\x010\x011\x010\x012\x010\x010\x010\x010\x01c\x018\x01b\x01d\x010\x011\x010\x010\x012\x03ip6\x04arpa\0",
    b"\x011\x012\x010\x03192\x07in-addr\x04arpa\0",
    b"\x04_svc\x07example\0",
    b"\x0djust-too-long\x07example\0",
];

const TYPES: [u16; 12] = [28, 1, 12, 5, 6, 64, 65, 46, 39, 255, 41, 16];

/// Addresses of both kinds: ordinary, excluded, mapped, under the prefixes, private.
const IPV6: [[u8; 16]; 4] = [
    [0x20, 1, 0xd, 0xb8, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1],
    [0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, 203, 0, 113, 1],
    [0x2a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
];
const IPV4: [[u8; 4]; 4] = [
    [8, 8, 8, 8],
    [203, 0, 113, 1],
    [10, 0, 0, 1],
    [192, 0, 0, 170],
];

const TTLS: [u32; 4] = [0, 5, 3600, u32::MAX];

/// Largest number of planned records in a response.
const RECORDS_MAX: u8 = 8;

impl<'a> Input<'a> {
    pub(crate) fn new(octets: &'a [u8]) -> Self {
        Self(octets)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn octet(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn number(&mut self) -> u16 {
        u16::from_be_bytes([self.octet(), self.octet()])
    }

    pub(crate) fn choose<'t, T>(&mut self, from: &'t [T]) -> &'t T {
        &from[usize::from(self.octet()) % from.len()]
    }

    fn name(&mut self) -> &'static [u8] {
        NAMES[usize::from(self.octet()) % NAMES.len()]
    }

    /// An item of a list, counted from its end.
    pub(crate) fn choose_from_end<'t, T>(&mut self, from: &'t [T]) -> Option<&'t T> {
        let back = usize::from(self.octet());
        from.get(from.len().checked_sub(1)? - back % from.len())
    }

    /// Raw octets: a length in one octet, then the octets.
    pub(crate) fn raw(&mut self) -> Vec<u8> {
        let len = usize::from(self.octet()).min(self.0.len());
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        taken.to_vec()
    }

    /// A query that is valid up to the end of its question.
    pub(crate) fn query(&mut self) -> Vec<u8> {
        let choices = self.octet();
        let mut message = self.number().to_be_bytes().to_vec();
        // RD, and any of AD and CD.
        message.extend([1, choices & 0x30]);
        message.extend([0, 1, 0, 0, 0, 0, 0, choices >> 7]);
        message.extend_from_slice(self.name());
        message.extend_from_slice(&self.choose(&TYPES).to_be_bytes());
        message.extend([0, if choices & 0xf == 0xf { 3 } else { 1 }]);
        if choices & 0x80 != 0 {
            // OPT with or without DO, and with raw options.
            let options = self.raw();
            message.extend([0, 0, 41, choices & 7, 0xd0, 0, 0, choices << 1 & 0x80, 0, 0]);
            let len = u8::try_from(options.len()).unwrap_or_default();
            message.push(len);
            message.extend(options);
        }
        message
    }

    /// A response with ID and question of a query, random flags, and planned or raw records.
    pub(crate) fn response_to(&mut self, question: &[u8]) -> Vec<u8> {
        let choices = self.octet();
        if choices == u8::MAX {
            return self.raw();
        }
        let parsed = Message::parse(question).ok().and_then(|m| m.question());
        let asked = parsed.expect("the engine asks one question").range();
        let mut message = question[..asked.end].to_vec();
        message[2..4].copy_from_slice(&[0x81, choices & 0x3f]);
        message[10..HEADER_LEN].fill(0);
        if choices & 0x80 != 0 {
            // The fuzzer sets all flags, counts and records, and perhaps an octet of the header.
            let (at, flip) = (self.octet(), self.octet());
            message[2..4].copy_from_slice(&self.number().to_be_bytes());
            for count in [6, 8, 10] {
                message[count + 1] = self.octet();
            }
            if let Some(octet) = message.get_mut(usize::from(at)) {
                *octet ^= flip;
            }
            message.extend(self.raw());
            return message;
        }
        if choices & 0x40 != 0 {
            message[2] |= 2;
        }
        let mut section = 0;
        for _ in 0..self.octet() % RECORDS_MAX {
            let plan = self.octet();
            section = (section + usize::from(plan & 1)).min(2);
            self.record(plan, &mut message);
            message[7 + 2 * section] += 1;
        }
        message
    }

    fn record(&mut self, plan: u8, message: &mut Vec<u8>) {
        match plan >> 1 & 3 {
            0 | 1 => message.extend([0xc0, 12]),
            2 => message.extend_from_slice(self.name()),
            _ => message.extend([0xc0, self.octet()]),
        }
        let rtype = *self.choose(&TYPES);
        let ttl = *self.choose(&TTLS);
        message.extend_from_slice(&rtype.to_be_bytes());
        message.extend([0, 1]);
        message.extend_from_slice(&ttl.to_be_bytes());
        let data = match rtype {
            28 => self.choose(&IPV6).to_vec(),
            1 => self.choose(&IPV4).to_vec(),
            5 | 12 | 39 => self.name().to_vec(),
            6 => [&[0, 0][..], &[0; 16], &self.choose(&TTLS).to_be_bytes()].concat(),
            64 | 65 => [&[0, 1][..], self.name()].concat(),
            46 => [
                &self.choose(&TYPES).to_be_bytes()[..],
                &[0; 16],
                b"\0signature",
            ]
            .concat(),
            _ => self.raw(),
        };
        let len = u16::try_from(data.len()).unwrap_or_default();
        message.extend_from_slice(&len.to_be_bytes());
        message.extend(data);
    }
}
