//! Fast path for the most frequent responses: addresses of the queried name, or the SOA record that
//! says there are none, and nothing else but an OPT record. They are stored as received, because
//! rewriting would give the same octets. That takes a tenth of the instructions.

mod negative;

use dns64_wire::codes::{Class, Rcode, Rtype};
use dns64_wire::message::{HEADER_LEN, Message, Question};
use smallvec::SmallVec;

use super::accept::offset;
use super::survey::Edns;
use super::{Head, Kind, QUESTION_AT, Run, Stored, TtlBounds};
use crate::answer::copy::FIXED_LEN;

/// A message while it is changed: on the stack unless it has many addresses.
type Octets = SmallVec<[u8; 512]>;

/// Octets of an owner that is a compression pointer.
const OWNER_LEN: usize = 2;

/// Octets of a record before its TTL: the owner, type and class.
const TTL_AT: usize = OWNER_LEN + 4;

impl Stored {
    /// Stores such a response; `None` for any other one, see [`Stored::accept`].
    pub(super) fn plain(reply: &Message<'_>, bounds: &TtlBounds) -> Option<Self> {
        let question = reply.question()?;
        if reply.ancount() == 0 {
            return negative::stored(reply, &question, bounds);
        }
        let begins = beginning(&question)?;
        let count = usize::from(reply.ancount());
        if reply.rcode() != Rcode::NOERROR || reply.nscount() > 0 {
            return None;
        }
        let [.., data_len] = begins.data_len;
        let record_len = OWNER_LEN + FIXED_LEN + usize::from(data_len);
        let at = question.range().end;
        let len = at + count * record_len;
        let message = reply.bytes().get(..len)?;
        let extended_error = only_opt(reply, len)?.extended_error;
        let mut octets = Octets::new();
        octets.extend_from_slice(message);
        // ID and number of additional records.
        octets[..2].fill(0);
        octets[HEADER_LEN - 2..HEADER_LEN].fill(0);
        let mut least_s = u32::MAX;
        for record_at in (at..len).step_by(record_len) {
            let ttl_s = begins.ttl_of(&octets[record_at..])?;
            least_s = least_s.min(ttl_s);
            let ttl_at = offset(record_at + TTL_AT).ok()?;
            octets.extend_from_slice(&ttl_at.to_be_bytes());
        }
        // RFC 2181 section 5.2: one TTL, the lowest.
        let ttl_s = least_s.max(bounds.min_s).min(bounds.max_s);
        for ttl_at in (at + TTL_AT..len).step_by(record_len) {
            octets[ttl_at..ttl_at + 4].copy_from_slice(&ttl_s.to_be_bytes());
        }
        let end = offset(len).ok()?;
        let found = Run {
            at: offset(at).ok()?,
            end,
            count: reply.ancount(),
            owner_len: offset(OWNER_LEN).ok()?,
        };
        let head = Head {
            message_len: end,
            answer_end: end,
            authority_end: end,
            aliases: 0,
            found,
            chain_end_at: QUESTION_AT,
            kind: Kind::Positive,
            ttl_s,
            soa_ttl_s: None,
            extended_error,
            signed: false,
            ad: reply.ad(),
        };
        Some(Self::new(head, &octets))
    }
}

/// The common parts of all records.
struct Beginning {
    owner_type_class: [u8; TTL_AT],
    data_len: [u8; 2],
}

/// The common parts of the records with the queried addresses.
fn beginning(question: &Question<'_>) -> Option<Beginning> {
    let data_len = match question.rtype {
        Rtype::A => 4,
        Rtype::AAAA => 16,
        _ => return None,
    };
    if question.class != Class::IN || question.name.is_root() {
        return None;
    }
    let ([t0, t1], [c0, c1]) = (
        question.rtype.0.to_be_bytes(),
        question.class.0.to_be_bytes(),
    );
    let [p0, p1] = (0xc000 | QUESTION_AT).to_be_bytes();
    Some(Beginning {
        owner_type_class: [p0, p1, t0, t1, c0, c1],
        data_len: [0, data_len],
    })
}

impl Beginning {
    /// The TTL of a record with these common parts; `None` for another record.
    fn ttl_of(&self, record: &[u8]) -> Option<u32> {
        let (owner_type_class, rest) = record.split_first_chunk::<TTL_AT>()?;
        let (ttl, rest) = rest.split_first_chunk()?;
        let is_one = *owner_type_class == self.owner_type_class && rest.starts_with(&self.data_len);
        is_one.then(|| u32::from_be_bytes(*ttl))
    }
}

/// Low octet of the type OPT; the high one is zero.
const OPT: u8 = Rtype::OPT.0.to_be_bytes()[1];

/// The contents of the OPT record, if there is no other record at `at` and after it.
fn only_opt(reply: &Message<'_>, at: usize) -> Option<Edns> {
    let mut seen = Edns::default();
    if reply.arcount() > 1 {
        return None;
    }
    // Most have no options.
    if let (1, Some([0, 0, OPT, _, _, 0, _, _, _, 0, 0])) =
        (reply.arcount(), reply.bytes().get(at..))
    {
        return Some(seen);
    }
    if let Some(record) = reply.records_from(at, [0, 0, reply.arcount()]).next() {
        let record = record.ok().filter(|record| record.rtype == Rtype::OPT)?;
        seen = Edns::read(&record).ok()?;
    }
    (!seen.extended_rcode).then_some(seen)
}
