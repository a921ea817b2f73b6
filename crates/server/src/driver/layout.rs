//! The values of the program's maps, octet by octet, as declared by the structs in `bpf/cache.bpf.c`.
//!
//! Numbers are in the byte order of the processor, addresses and parts of messages in network order as in frames.

use std::net::IpAddr;

/// Maximum length of a question that the driver answers, in octets: name, type and class.
pub(super) const QUESTION_MAX: usize = 136;

/// Minimum length of a question. The program loads eight octets at once; only names below four octets are shorter.
pub(super) const QUESTION_MIN: usize = 8;

/// Maximum number of TTLs in a response.
pub(super) const TTLS_MAX: usize = 16;

/// Maximum length of the records of a response in octets.
pub(super) const REST_MAX: usize = 432;

/// Number of places for responses, and of the buckets of their index.
pub(super) const ANSWERS: u32 = 16_384;
pub(super) const BUCKETS: u32 = 4096;

/// Places in a bucket.
pub(super) const WAYS: usize = 8;

/// Number of use marks in one value of the map `used`.
pub(super) const USED_PAGE: usize = 4096;

/// Maximum numbers of interfaces, addresses and ranges of each family in a configuration.
pub(super) const LINKS: usize = 8;
pub(super) const LOCALS: usize = 16;
pub(super) const RANGES: usize = 64;

const HEADER_LEN: usize = 12;
const ANSWER_BYTES: usize = 768;
const QUESTION_AT: usize = 64;
const TTLS_AT: usize = QUESTION_AT + QUESTION_MAX;
const REST_AT: usize = TTLS_AT + 8 * TTLS_MAX;
const STAMP_AGAIN_AT: usize = REST_AT + REST_MAX;

/// Octets of a bucket.
pub(super) type Bucket = [u8; 8 * WAYS];

/// A response that is to be put into the maps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    /// Hash in the cache.
    pub(super) hash: u64,
    pub(super) generation: u32,
    pub(super) policy: u32,
    pub(super) bits: u8,
    pub(super) note: u8,
    pub(super) extended_error: Option<u16>,
    pub(super) rendered_s: u32,
    pub(super) expires_s: u32,
    /// Length of the question in octets.
    pub(super) question_len: usize,
    pub(super) message: Box<[u8]>,
    pub(super) ttls: Box<[u16]>,
}

impl Item {
    /// Whether the program can hold it.
    pub(super) fn fits(&self) -> bool {
        let rest = self
            .message
            .len()
            .checked_sub(HEADER_LEN + self.question_len);
        (QUESTION_MIN..=QUESTION_MAX).contains(&self.question_len)
            && rest.is_some_and(|rest| rest <= REST_MAX)
            && self.ttls.len() <= TTLS_MAX
    }

    fn question(&self) -> &[u8] {
        &self.message[HEADER_LEN..HEADER_LEN + self.question_len]
    }

    /// The hash in the program's index.
    pub(super) fn place(&self, seed: u64) -> u64 {
        let mut hash = seed;
        for word in words(self.question()) {
            hash = mix(hash, word | CASE_BITS);
        }
        mix(hash, self.bits.into())
    }

    /// `struct answer`; only for responses that fit.
    pub(super) fn encode(&self, stamp: u64) -> [u8; ANSWER_BYTES] {
        let mut octets = [0; ANSWER_BYTES];
        let mut put = |at: usize, part: &[u8]| octets[at..at + part.len()].copy_from_slice(part);
        let (message, question) = (&self.message, self.question());
        let rest = &message[HEADER_LEN + question.len()..];
        put(0, &stamp.to_ne_bytes());
        put(8, &self.generation.to_ne_bytes());
        put(12, &self.policy.to_ne_bytes());
        put(16, &self.rendered_s.to_ne_bytes());
        put(20, &self.expires_s.to_ne_bytes());
        put(24, &question[question.len() - 4..]);
        put(28, &short(question.len()).to_ne_bytes());
        put(30, &short(rest.len()).to_ne_bytes());
        // Flags, and the numbers of answer, authority and additional records.
        put(32, &message[2..4]);
        put(34, &message[6..HEADER_LEN]);
        put(40, &self.extended_error.unwrap_or_default().to_be_bytes());
        let ttls = short(self.ttls.len()).to_le_bytes()[0];
        let [kind, rcode] = [kind(question), message[3] & 0xf];
        let has_error = u8::from(self.extended_error.is_some());
        put(42, &[has_error, self.bits, self.note, kind, ttls, rcode]);
        put(48, &self.rest_sum().to_ne_bytes());
        for (i, word) in words(question).enumerate() {
            put(QUESTION_AT + 8 * i, &word.to_ne_bytes());
        }
        for (i, at) in self.ttls.iter().enumerate() {
            let to = TTLS_AT + 8 * i;
            put(to, &self.ttl(*at).to_ne_bytes());
            put(to + 4, &at.to_ne_bytes());
            put(to + 6, &(at & 1).to_ne_bytes());
        }
        put(REST_AT, rest);
        put(STAMP_AGAIN_AT, &stamp.to_ne_bytes());
        octets
    }

    fn ttl(&self, at: u16) -> u32 {
        let field = self.message.get(usize::from(at)..);
        let field = field.and_then(|octets| octets.first_chunk().copied());
        u32::from_be_bytes(field.unwrap_or_default())
    }

    /// The one's complement sum of the records in the message, with TTLs of 0 (RFC 1071).
    fn rest_sum(&self) -> u32 {
        let mut message = self.message.to_vec();
        message[..HEADER_LEN + self.question_len].fill(0);
        for at in &self.ttls {
            let at = usize::from(*at);
            message[at..at + 4].fill(0);
        }
        if message.len() % 2 == 1 {
            message.push(0);
        }
        let (halves, _) = message.as_chunks::<2>();
        halves
            .iter()
            .map(|half| u32::from(u16::from_ne_bytes(*half)))
            .sum()
    }
}

/// The type counter that a question increments: A, AAAA, PTR, HTTPS, others.
fn kind(question: &[u8]) -> u8 {
    match question[question.len() - 4..] {
        [0, 1, ..] => 0,
        [0, 28, ..] => 1,
        [0, 12, ..] => 2,
        [0, 65, ..] => 3,
        _ => 4,
    }
}

/// The bits of a question that the program ignores in its hash: upper and lower case letters hash equally.
const CASE_BITS: u64 = 0x2020_2020_2020_2020;

/// The question in words of eight octets, padded with zeros, in lower case.
fn words(question: &[u8]) -> impl Iterator<Item = u64> {
    question.chunks(8).map(|octets| {
        let mut word = [0; 8];
        word[..octets.len()].copy_from_slice(octets);
        word.make_ascii_lowercase();
        u64::from_ne_bytes(word)
    })
}

fn mix(hash: u64, word: u64) -> u64 {
    let hash = (hash ^ word).wrapping_mul(crate::cache::GOLDEN);
    hash ^ hash >> 32
}

/// Converts a length of a message that fits, which is below 2^16.
fn short(len: usize) -> u16 {
    u16::try_from(len).unwrap_or(u16::MAX)
}

/// The entry of a bucket that refers to a response.
pub(super) fn way(place: u64, number: u32) -> u64 {
    place >> 32 << 32 | u64::from(number + 1)
}

/// The bucket of a response.
pub(super) fn bucket(place: u64) -> u32 {
    // Below the number of buckets.
    u32::try_from(place & u64::from(BUCKETS - 1)).unwrap_or_default()
}

/// `struct bucket`.
pub(super) fn encode_bucket(ways: &[u64; WAYS]) -> Bucket {
    let mut octets = [0; 8 * WAYS];
    for (to, way) in octets.chunks_mut(8).zip(ways) {
        to.copy_from_slice(&way.to_ne_bytes());
    }
    octets
}

/// `struct state`.
pub(super) fn encode_state(active: u32, generation: u32) -> [u8; 8] {
    let mut octets = [0; 8];
    octets[..4].copy_from_slice(&active.to_ne_bytes());
    octets[4..].copy_from_slice(&generation.to_ne_bytes());
    octets
}

/// An interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) index: u32,
    pub(super) mac: [u8; 6],
    /// Whether frames with the pseudo-header sum in place of the UDP checksum are accepted.
    pub(super) partial: bool,
}

/// An address that dns64d listens at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Local {
    pub(super) address: IpAddr,
    pub(super) port: u16,
    /// Index of the only interface on which it is a local address; 0: any.
    pub(super) index: u32,
}

/// The configuration of the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Config {
    pub(super) enabled: bool,
    pub(super) policy: u32,
    pub(super) seed: u64,
    pub(super) udp_size: u16,
    pub(super) links: Vec<Link>,
    pub(super) locals: Vec<Local>,
    pub(super) ranges4: Vec<(u32, u32)>,
    pub(super) ranges6: Vec<(u128, u128)>,
}

const LINKS_AT: usize = 24;
const LOCALS_AT: usize = LINKS_AT + 12 * LINKS;
const RANGES4_AT: usize = LOCALS_AT + 24 * LOCALS;
const RANGES6_AT: usize = RANGES4_AT + 8 * RANGES;
const CONFIG_BYTES: usize = RANGES6_AT + 32 * RANGES;

impl Config {
    /// `struct config`. Entries that do not fit are omitted: the sockets answer for them.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut octets = vec![0; CONFIG_BYTES];
        let mut put = |at: usize, part: &[u8]| octets[at..at + part.len()].copy_from_slice(part);
        put(0, &u32::from(self.enabled).to_ne_bytes());
        put(4, &self.policy.to_ne_bytes());
        put(8, &self.seed.to_ne_bytes());
        put(16, &self.udp_size.to_ne_bytes());
        put(18, &half(self.ranges4.len()).to_ne_bytes());
        put(20, &half(self.ranges6.len()).to_ne_bytes());
        for (i, link) in self.links.iter().take(LINKS).enumerate() {
            let at = LINKS_AT + 12 * i;
            put(at, &link.index.to_ne_bytes());
            put(at + 4, &link.mac);
            put(at + 10, &u16::from(link.partial).to_ne_bytes());
        }
        for (i, local) in self.locals.iter().take(LOCALS).enumerate() {
            let at = LOCALS_AT + 24 * i;
            let family: u16 = match local.address {
                IpAddr::V4(address) => {
                    put(at, &address.octets());
                    4
                }
                IpAddr::V6(address) => {
                    put(at, &address.octets());
                    6
                }
            };
            put(at + 16, &local.index.to_ne_bytes());
            put(at + 20, &local.port.to_be_bytes());
            put(at + 22, &family.to_ne_bytes());
        }
        for i in 0..RANGES {
            // After all addresses, and empty.
            let (first, last) = self.ranges4.get(i).copied().unwrap_or((u32::MAX, 0));
            put(RANGES4_AT + 8 * i, &first.to_ne_bytes());
            put(RANGES4_AT + 8 * i + 4, &last.to_ne_bytes());
            let (first, last) = self.ranges6.get(i).copied().unwrap_or((u128::MAX, 0));
            put(RANGES6_AT + 32 * i, &halves(first));
            put(RANGES6_AT + 32 * i + 16, &halves(last));
        }
        octets
    }
}

/// The first step of a binary search in this number of ranges: half of the next power of two.
fn half(ranges: usize) -> u16 {
    short(ranges.min(RANGES).next_power_of_two() / 2)
}

/// The upper half, then the lower one.
#[expect(clippy::cast_possible_truncation, reason = "they are halves of it")]
fn halves(address: u128) -> [u8; 16] {
    let mut octets = [0; 16];
    octets[..8].copy_from_slice(&((address >> 64) as u64).to_ne_bytes());
    octets[8..].copy_from_slice(&(address as u64).to_ne_bytes());
    octets
}

/// Numbers of counters for notes, types and codes. One more counter is for responses that were overwritten while they
/// were sent.
pub(super) const NOTES: usize = 256;
pub(super) const KINDS: usize = 5;
pub(super) const RCODES: usize = 16;
const KINDS_AT: usize = 8 * NOTES;
const RCODES_AT: usize = KINDS_AT + 8 * 8;
const TORN_AT: usize = RCODES_AT + 8 * RCODES;

/// `struct counts`, summed over the processors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) notes: [u64; NOTES],
    pub(super) kinds: [u64; KINDS],
    pub(super) rcodes: [u64; RCODES],
    pub(super) torn: u64,
}

impl Default for Sums {
    fn default() -> Self {
        Self {
            notes: [0; NOTES],
            kinds: [0; KINDS],
            rcodes: [0; RCODES],
            torn: 0,
        }
    }
}

impl Sums {
    /// Adds the counters of one processor.
    pub(super) fn add(&mut self, counts: &[u8]) {
        let count = |at: usize| {
            let octets = counts
                .get(at..)
                .and_then(|octets| octets.first_chunk().copied());
            u64::from_ne_bytes(octets.unwrap_or_default())
        };
        let add = |sums: &mut [u64], at: usize| {
            let places = (at..).step_by(8);
            sums.iter_mut()
                .zip(places)
                .for_each(|(sum, at)| *sum += count(at));
        };
        add(&mut self.notes, 0);
        add(&mut self.kinds, KINDS_AT);
        add(&mut self.rcodes, RCODES_AT);
        self.torn += count(TORN_AT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structs_have_the_same_lengths_as_in_c() {
        assert_eq!((ANSWER_BYTES, STAMP_AGAIN_AT + 8), (768, 768));
        assert_eq!(Config::default().encode().len(), 3064);
        assert_eq!(TORN_AT + 8, 8 * (256 + 8 + 16 + 1));
    }

    #[test]
    fn hash_of_a_question_depends_only_on_its_letters_and_bits() {
        let item = |question: &[u8], bits| Item {
            hash: 0,
            generation: 0,
            policy: 0,
            bits,
            note: 0,
            extended_error: None,
            rendered_s: 0,
            expires_s: 0,
            question_len: question.len(),
            message: [&[0; 12], question].concat().into(),
            ttls: Box::default(),
        };
        let place = |question: &[u8], bits, seed| item(question, bits).place(seed);
        let low = place(b"\x03www\x04test\0\0\x01\0\x01", 0, 7);
        assert_eq!(place(b"\x03wWW\x04tesT\0\0\x01\0\x01", 0, 7), low);
        for (question, bits, seed) in [
            (b"\x03www\x04test\0\0\x01\0\x01", 1, 7),
            (b"\x03www\x04test\0\0\x1c\0\x01", 0, 7),
            (b"\x03wwx\x04test\0\0\x01\0\x01", 0, 7),
            (b"\x03www\x04test\0\0\x01\0\x01", 0, 8),
        ] {
            assert_ne!(place(question, bits, seed), low);
        }
    }
}
