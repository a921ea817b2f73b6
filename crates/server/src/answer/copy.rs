//! Copies records from one message to another and compresses their names again.
//!
//! A name is looked up where it was compressed in the source, and compared with the question and
//! the last two names. The work per name is independent of the length of the message and of the
//! number of names.

use dns64_wire::Truncated;
use dns64_wire::build::{Builder, Owner};
use dns64_wire::message::{HEADER_LEN, Message, Record};
use dns64_wire::name::{NAME_LEN_MAX, Name};

use super::rdata::{Layout, Parts};

/// Octets of a record between its owner and its data (RFC 1035 section 4.1.3).
pub(super) const FIXED_LEN: usize = 10;

/// Octets from the TTL of a record to its data: the TTL itself and the length of the data
/// (RFC 1035 section 4.1.3).
pub(super) const TTL_BEFORE_DATA: u16 = 6;

/// Largest offset that a compression pointer can hold: 14 bits (RFC 1035 section 4.1.4).
const POINTER_MAX: usize = 0x3fff;

/// Offset of the question's name in a response to the same question: directly after the header (RFC
/// 1035 section 4.1).
pub const QUESTION_AT: Option<u16> = Some(12);

/// Number of labels whose offsets are remembered: more than common responses have.
const PLACES: usize = 64;

/// Copies records of one message into another.
///
/// After an error, only [`Builder::drop_additional`] and [`Builder::truncate`] may be called on the
/// builder: the copier remembers names that were not written.
#[derive(Debug)]
pub struct Copier<'a> {
    source: &'a [u8],
    /// The question's name in the source, up to its root label.
    question: &'a [u8],
    /// Offset of the same name in the target.
    question_at: Option<u16>,
    /// Offsets of labels in the source and in the target, indexed by the offset in the source.
    places: [(u16, u16); PLACES],
    /// The last owner and the last name within data that were written uncompressed.
    recent: [Option<(Name<'a>, u16)>; 2],
    /// Whether names are converted to lower case when they are written uncompressed.
    lower_case: bool,
}

impl<'a> Copier<'a> {
    /// Creates a copier for the records of `source`. `question_at` is the offset of the question's
    /// name in the target, in any case and without compression; `None` if the target does not have
    /// that name.
    pub fn new(source: &Message<'a>, question_at: Option<u16>) -> Self {
        let bytes = source.bytes();
        let name_len = source.question().map_or(0, |q| q.name.wire_len());
        Self {
            source: bytes,
            question: &bytes[HEADER_LEN..HEADER_LEN + name_len],
            question_at: question_at.filter(|_| name_len > 1),
            places: [(0, 0); PLACES],
            recent: [None; 2],
            lower_case: false,
        }
    }

    /// Whether names of compressible types are converted to lower case from now on, unless the
    /// target already contains them.
    pub fn set_lower_case(&mut self, lower_case: bool) {
        self.lower_case = lower_case;
    }

    /// Takes over the offset of a name that another copier has written into the same target. The
    /// name may be compressed there: each of its labels has its own offset.
    pub fn adopt(&mut self, name: Name<'a>, other: &Copier<'_>, same: &Name<'_>) {
        for ((from, _), (there, _)) in name.labels_at().zip(same.labels_at()) {
            if let (Ok(from), Some(to)) = (u16::try_from(from), other.known(there)) {
                self.places[usize::from(from) % PLACES] = (from, to);
            }
        }
    }

    /// Copies a record into the same section, with this TTL.
    ///
    /// # Panics
    ///
    /// If the data of the record does not have the format of its type; see `rdata::is_sound`.
    pub fn record(
        &mut self,
        to: &mut Builder<'_>,
        record: &Record<'a>,
        ttl: u32,
    ) -> Result<(), Truncated> {
        let mut octets = [0; NAME_LEN_MAX];
        let owner = self.owner(record.name, to.position(), &mut octets);
        self.under(to, owner, record, ttl)
    }

    /// Copies a record like [`Copier::record`], but with another owner.
    ///
    /// # Panics
    ///
    /// As [`Copier::record`].
    pub fn under(
        &mut self,
        to: &mut Builder<'_>,
        owner: Owner<'_>,
        record: &Record<'a>,
        ttl: u32,
    ) -> Result<(), Truncated> {
        let (section, rtype, class) = (record.section, record.rtype, record.class);
        let Some(layout) = Layout::of(rtype) else {
            return to.record(section, owner, rtype, class, ttl, record.rdata);
        };
        let Some(parts) = layout.split(record, |at| Name::parse(self.source, at)) else {
            unreachable!("the data of a record was checked before it is copied");
        };
        let data_at = to.position() + owner_len(&owner) + FIXED_LEN;
        let mut names = [0; 2 * NAME_LEN_MAX];
        let len = self.names(&layout, &parts, data_at, &mut names);
        let data = [parts.before, &names[..len], parts.after];
        to.record_parts(section, owner, rtype, class, ttl, data)
    }

    /// The owner for a record that is written at `at`.
    pub fn owner<'o>(&mut self, name: Name<'a>, at: usize, octets: &'o mut [u8]) -> Owner<'o> {
        if let Some(place) = self.place(&name) {
            return Owner::At(place);
        }
        let (len, place) = self.write_out(name, at, octets);
        self.recent[0] = u16::try_from(place).ok().map(|place| (name, place));
        Owner::Wire(&octets[..len])
    }

    /// Writes the names of a record's data, which begins at `data_at`; returns their length in
    /// octets.
    fn names(
        &mut self,
        layout: &Layout,
        parts: &Parts<'a>,
        data_at: usize,
        octets: &mut [u8],
    ) -> usize {
        let mut len = 0;
        for name in parts.names.into_iter().flatten() {
            let (at, room) = (data_at + parts.before.len() + len, &mut octets[len..]);
            len += match self.place(&name).filter(|_| layout.compress) {
                Some(place) => {
                    room[..2].copy_from_slice(&(0xc000 | place).to_be_bytes());
                    2
                }
                None if layout.compress => {
                    let (written, place) = self.write_out(name, at, room);
                    self.recent[1] = u16::try_from(place).ok().map(|place| (name, place));
                    written
                }
                None => write_plain(name, room).len(),
            };
        }
        len
    }

    /// Offset of the complete name in the target, if a pointer can hold it.
    pub fn place(&self, name: &Name<'a>) -> Option<u16> {
        let (offset, _) = name.labels_at().next()?;
        let recent = || {
            let known = self.recent.iter().flatten();
            let mut same = known.filter(|(known, _)| known.eq_ignore_case(name));
            same.next().map(|(_, at)| *at)
        };
        self.known(offset)
            .or_else(recent)
            .filter(|at| usize::from(*at) <= POINTER_MAX)
    }

    /// Offset in the target of the name at this offset of the source.
    fn known(&self, offset: usize) -> Option<u16> {
        let in_question = offset.wrapping_sub(HEADER_LEN);
        if let Some(at) = self.question_at
            && in_question < self.question.len()
        {
            return Some(at + u16::try_from(in_question).ok()?);
        }
        let (from, to) = self.places[offset % PLACES];
        (usize::from(from) == offset).then_some(to)
    }

    /// Writes a name at `at`, up to a suffix that the target already contains, and remembers its
    /// labels. Returns the octets written and the offset of the name.
    fn write_out(&mut self, name: Name<'a>, at: usize, octets: &mut [u8]) -> (usize, usize) {
        let mut len = 0;
        let mut end = None;
        for (offset, label) in name.labels_at() {
            end = self.known(offset).filter(|_| len > 0).map(|to| (len, to));
            if end.is_some() {
                break;
            }
            len += write_label(label, &mut octets[len..]);
        }
        octets[len] = 0;
        if self.lower_case {
            // Length octets are below 64 and therefore not letters: they do not change.
            octets[..len].make_ascii_lowercase();
        }
        let end = end.or_else(|| self.shared_with_question(&octets[..=len]));
        self.remember(name, at, end.map_or(len, |(cut, _)| cut));
        match end {
            Some((cut, to)) => {
                octets[cut..cut + 2].copy_from_slice(&(0xc000 | to).to_be_bytes());
                (cut + 2, if cut == 0 { usize::from(to) } else { at })
            }
            None => (len + 1, at),
        }
    }

    /// Offset at which a name in wire format ends with a suffix of the question, and the offset of
    /// that suffix in the target.
    fn shared_with_question(&self, name: &[u8]) -> Option<(usize, u16)> {
        let question_at = self.question_at?;
        let same = name.iter().rev().zip(self.question.iter().rev());
        let shared = same.take_while(|(a, b)| a.eq_ignore_ascii_case(b)).count();
        let question = self.question;
        let mut theirs = label_starts(question)
            .map(|at| question.len() - at)
            .filter(|left| *left <= shared);
        let mut their_left = theirs.next()?;
        for at in label_starts(name) {
            let left = name.len() - at;
            while their_left > left {
                their_left = theirs.next()?;
            }
            if their_left == left {
                let in_question = u16::try_from(self.question.len() - left).ok()?;
                return Some((at, question_at + in_question));
            }
        }
        None
    }

    /// Remembers the first `len` octets of a name at `at` of the target.
    fn remember(&mut self, name: Name<'a>, at: usize, len: usize) {
        let mut written = 0;
        for (offset, label) in name.labels_at() {
            let to = at + written;
            if written >= len || to > POINTER_MAX {
                return;
            }
            if let (Ok(from), Ok(to)) = (u16::try_from(offset), u16::try_from(to)) {
                self.places[offset % PLACES] = (from, to);
            }
            written += 1 + label.len();
        }
    }
}

/// Offsets of the labels of a name in wire format, without the root.
fn label_starts(name: &[u8]) -> impl Iterator<Item = usize> {
    let next = |at: &usize| Some(at + 1 + usize::from(*name.get(*at)?));
    std::iter::successors(Some(0), next).take_while(|at| name.get(*at).is_some_and(|len| *len > 0))
}

fn write_label(label: &[u8], octets: &mut [u8]) -> usize {
    octets[0] = u8::try_from(label.len()).unwrap_or_default();
    octets[1..=label.len()].copy_from_slice(label);
    1 + label.len()
}

/// Writes a name without compression; returns it.
pub(super) fn write_plain<'o>(name: Name<'_>, octets: &'o mut [u8]) -> &'o [u8] {
    let mut len = 0;
    for label in name.labels() {
        len += write_label(label, &mut octets[len..]);
    }
    octets[len] = 0;
    &octets[..=len]
}

/// Offset of the end of the name at `at`, in a message with valid names.
pub(super) fn name_end(message: &[u8], mut at: usize) -> usize {
    loop {
        match message[at] {
            0 => return at + 1,
            0xc0.. => return at + 2,
            label => at += 1 + usize::from(label),
        }
    }
}

/// Offset of the TTL of the record at `at`, and the end of the record, in a message with valid
/// records.
pub(super) fn ttl_and_end(message: &[u8], at: usize) -> (usize, usize) {
    let ttl_at = name_end(message, at) + 4;
    let data_len = [message[ttl_at + 4], message[ttl_at + 5]];
    let end = ttl_at + usize::from(TTL_BEFORE_DATA) + usize::from(u16::from_be_bytes(data_len));
    (ttl_at, end)
}

/// Length of an owner in octets.
pub(super) fn owner_len(owner: &Owner<'_>) -> usize {
    match owner {
        Owner::Question | Owner::At(_) => 2,
        Owner::Name(name) => name.as_wire().len(),
        Owner::Wire(octets) => octets.len(),
    }
}

#[cfg(test)]
mod tests;
