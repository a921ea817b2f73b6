//! Copies records from one message to another and compresses their names again.
//!
//! A name is a node of a tree, and the node has the offset at which the target has the name. The
//! work per name is independent of the length of the message and of the number of names.

use dns64_wire::Truncated;
use dns64_wire::build::{Builder, Owner};
use dns64_wire::message::{HEADER_LEN, Message, Record};
use dns64_wire::name::{NAME_LEN_MAX, Name};

use super::names::{Id, Offsets, Tree};
use super::rdata::{Layout, Parts};

/// Octets of a record between its owner and its data (RFC 1035 section 4.1.3).
pub(super) const FIXED_LEN: usize = 10;

/// Octets from the TTL of a record to its data: the TTL itself and the length of the data
/// (RFC 1035 section 4.1.3).
pub(super) const TTL_BEFORE_DATA: u16 = 6;

/// Largest offset that a compression pointer can hold: 14 bits (RFC 1035 section 4.1.4).
const POINTER_MAX: u16 = 0x3fff;

/// Offset of the question's name in a response to the same question: directly after the header (RFC
/// 1035 section 4.1).
pub const QUESTION_AT: Option<u16> = Some(12);

/// Copies records of one message, or of several, into another.
///
/// After an error, only [`Builder::drop_additional`] and [`Builder::truncate`] may be called on the
/// builder: the copier remembers names that were not written.
#[derive(Debug)]
pub struct Copier<'a> {
    source: &'a [u8],
    offsets: Offsets,
    pub(super) names: Tree<'a>,
    /// Offset of each name in the target; 0 if the target does not have it.
    places: Vec<u16>,
    /// Whether names are converted to lower case when they are written uncompressed.
    lower_case: bool,
}

/// A name in the data of a record: its node and its offset in the source.
type Found = (Id, usize);

impl<'a> Copier<'a> {
    /// Creates a copier for the records of `source`. `question_at` is the offset of the question's
    /// name in the target, in any case and without compression; `None` if the target does not have
    /// that name.
    pub fn new(source: &Message<'a>, question_at: Option<u16>) -> Self {
        let mut copier = Self {
            source: source.bytes(),
            offsets: Offsets::of(source.bytes()),
            names: Tree::new(),
            places: Vec::new(),
            lower_case: false,
        };
        if let Some(question) = source.question() {
            copier.restart(&question.name, question_at);
        }
        copier
    }

    /// Begins a new target, which has the name of the question at `question_at`.
    pub(super) fn restart(&mut self, question: &Name<'a>, question_at: Option<u16>) {
        self.places.clear();
        let mut id = self.id(question);
        for (at, _) in question.labels_at() {
            if let Some(question_at) = question_at {
                self.remember(id, usize::from(question_at) + at - HEADER_LEN);
            }
            id = self.names.rest(id);
        }
    }

    /// Copies records of another message from now on, into the same target.
    pub fn switch(&mut self, source: &Message<'a>) {
        self.source = source.bytes();
        self.offsets = Offsets::of(source.bytes());
    }

    /// Whether names of compressible types are converted to lower case from now on, unless the
    /// target already contains them.
    pub fn set_lower_case(&mut self, lower_case: bool) {
        self.lower_case = lower_case;
    }

    /// The node of a name of the source.
    pub(super) fn id(&mut self, name: &Name<'a>) -> Id {
        self.names.id(&mut self.offsets, name)
    }

    /// Copies a record into the same section, with this TTL.
    ///
    /// # Panics
    ///
    /// If the data of the record does not have the format of its type; see `rdata::check`.
    pub fn record(
        &mut self,
        to: &mut Builder<'_>,
        record: &Record<'a>,
        ttl: u32,
    ) -> Result<(), Truncated> {
        let mut octets = [0; NAME_LEN_MAX];
        let owner = self.owner(&record.name, to.position(), &mut octets);
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
        let Some(parts) = layout.split(record, |at| self.name_at(at)) else {
            unreachable!("the data of a record was checked before it is copied");
        };
        let data_at = to.position() + owner_len(&owner) + FIXED_LEN;
        let mut names = [0; 2 * NAME_LEN_MAX];
        let len = self.write_names(&layout, &parts, data_at, &mut names);
        let data = [parts.before, &names[..len], parts.after];
        to.record_parts(section, owner, rtype, class, ttl, data)
    }

    /// The owner for a record that is written at `at`.
    pub fn owner<'o>(&mut self, name: &Name<'a>, at: usize, octets: &'o mut [u8]) -> Owner<'o> {
        if let Some(place) = self.place(name) {
            return Owner::At(place);
        }
        let id = self.id(name);
        let len = self.write_out(name, id, at, octets);
        Owner::Wire(&octets[..len])
    }

    /// The name in the data of a record at this offset, and its end. A pointer to a known name is
    /// not followed.
    fn name_at(&mut self, at: usize) -> Option<(Found, usize)> {
        let octets = self.source.get(at..)?.first_chunk();
        let target = octets.and_then(|octets| u16::from_be_bytes(*octets).checked_sub(0xc000));
        if let Some(id) = target.and_then(|target| self.offsets.get(target.into())) {
            return Some(((id, at), at + 2));
        }
        let (name, end) = Name::parse(self.source, at).ok()?;
        Some(((self.id(&name), at), end))
    }

    /// Writes the names of a record's data, which begins at `data_at`; returns their length in
    /// octets.
    fn write_names(
        &mut self,
        layout: &Layout,
        parts: &Parts<'a, Found>,
        data_at: usize,
        octets: &mut [u8],
    ) -> usize {
        let mut len = 0;
        for (id, source_at) in parts.names.into_iter().flatten() {
            let (at, room) = (data_at + parts.before.len() + len, &mut octets[len..]);
            if layout.compress
                && let Some(place) = self.place_of(id)
            {
                len += write_pointer(place, room);
                continue;
            }
            let Ok((name, _)) = Name::parse(self.source, source_at) else {
                unreachable!("the name was read before");
            };
            len += match layout.compress {
                true => self.write_out(&name, id, at, room),
                false => write_plain(name, room).len(),
            };
        }
        len
    }

    /// Offset of the complete name in the target, if a pointer can hold it.
    pub fn place(&mut self, name: &Name<'a>) -> Option<u16> {
        let id = self.id(name);
        self.place_of(id)
    }

    /// Offset of a name in the target, if a pointer can hold it.
    pub(super) fn place_of(&self, id: Id) -> Option<u16> {
        self.places.get(id.index()).copied().filter(|at| *at > 0)
    }

    /// Writes a name that the target does not have at `at`, up to a suffix that it has, and
    /// remembers its labels. Returns the octets written.
    fn write_out(&mut self, name: &Name<'a>, mut id: Id, at: usize, octets: &mut [u8]) -> usize {
        let mut len = 0;
        let mut end = None;
        for label in name.labels() {
            end = self.place_of(id);
            if end.is_some() {
                break;
            }
            self.remember(id, at + len);
            len += write_label(label, &mut octets[len..]);
            id = self.names.rest(id);
        }
        if self.lower_case {
            // Length octets are below 64 and therefore not letters: they do not change.
            octets[..len].make_ascii_lowercase();
        }
        match end {
            Some(place) => len + write_pointer(place, &mut octets[len..]),
            None => {
                octets[len] = 0;
                len + 1
            }
        }
    }

    /// Remembers that the target has a name at this offset.
    fn remember(&mut self, id: Id, at: usize) {
        let Some(at) = u16::try_from(at).ok().filter(|at| *at <= POINTER_MAX) else {
            return;
        };
        if self.places.len() <= id.index() {
            self.places.resize(self.names.len(), 0);
        }
        self.places[id.index()] = at;
    }
}

fn write_pointer(place: u16, octets: &mut [u8]) -> usize {
    octets[..2].copy_from_slice(&(0xc000 | place).to_be_bytes());
    2
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
