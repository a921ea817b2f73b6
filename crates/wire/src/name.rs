//! Domain names (RFC 1035 section 3.1), compressed or not. Their case is kept.
//!
//! [`Name`] is a view of a message that follows compression pointers; it is checked once, when it
//! is parsed, and cannot fail afterwards. [`NameBuf`] is an owned name. Both compare without regard
//! to ASCII case only in functions that say so (RFC 4343).

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use crate::ParseError;
use crate::header::HEADER_LEN;

/// Longest name, in octets on the wire with the root label (RFC 1035 section 2.3.4).
pub const NAME_LEN_MAX: usize = 255;

/// Longest label, in octets without its length octet (RFC 1035 section 2.3.4).
pub const LABEL_LEN_MAX: usize = 63;

/// Maximum number of compression pointers in one name: one for each label that a name of 255 octets
/// can have, (255 - 1) / 2. Only a chain of pointers to pointers has more (RFC 9267 section 2).
pub const POINTERS_MAX: usize = 127;

/// A checked name in a message, not copied.
#[derive(Clone, Copy)]
pub struct Name<'a> {
    message: &'a [u8],
    /// Offset of the first label, or of the root label; pointers before it are skipped.
    start: usize,
    wire_len: u8,
    /// Whether no pointer follows the first label: the name is contiguous from `start` on.
    contiguous: bool,
}

impl<'a> Name<'a> {
    /// Parses the name at octet `at` of `message`; returns it and the offset after it.
    ///
    /// A compression pointer must point before the first of the labels that it ends, but not into
    /// the header. Each jump therefore goes further back than the previous one, and no message can
    /// cause a loop (RFC 9267 section 2). At most [`POINTERS_MAX`] are followed.
    #[inline]
    pub fn parse(message: &'a [u8], at: usize) -> Result<(Self, usize), ParseError> {
        Self::parse_counted(message, at, &mut 0)
    }

    /// Like [`Name::parse`]; adds the number of labels and pointers read to `steps`.
    #[inline]
    pub(crate) fn parse_counted(
        message: &'a [u8],
        at: usize,
        steps: &mut usize,
    ) -> Result<(Self, usize), ParseError> {
        let mut wire_len = 1;
        let mut end = None;
        let mut pointers = 0;
        let mut start = at;
        let mut contiguous = true;
        let mut segment = at;
        let mut position = at;
        loop {
            *steps += 1;
            match step(message, position)? {
                Step::Root => break,
                // The next step, which reads after the label, checks that the label is complete.
                Step::Label(len) => {
                    wire_len += 1 + len;
                    if wire_len > NAME_LEN_MAX {
                        return Err(ParseError::NameTooLong);
                    }
                    position += 1 + len;
                }
                Step::Pointer(target) => {
                    pointers += 1;
                    if target >= segment {
                        return Err(ParseError::PointerForward);
                    }
                    if target < HEADER_LEN {
                        return Err(ParseError::PointerHeader);
                    }
                    if pointers > POINTERS_MAX {
                        return Err(ParseError::PointerChain);
                    }
                    end.get_or_insert(position + 2);
                    if position == start {
                        start = target;
                    } else {
                        contiguous = false;
                    }
                    segment = target;
                    position = target;
                }
            }
        }
        let name = Self {
            message,
            start,
            wire_len: u8::try_from(wire_len).map_err(|_| ParseError::NameTooLong)?,
            contiguous,
        };
        Ok((name, end.unwrap_or(position + 1)))
    }

    /// The labels from left to right, without the root.
    pub fn labels(&self) -> Labels<'a> {
        Labels {
            message: self.message,
            position: self.start,
        }
    }

    /// Like [`Name::labels`], each with the offset of its length octet in the message.
    pub fn labels_at(&self) -> impl Iterator<Item = (usize, &'a [u8])> + use<'a> {
        let mut labels = self.labels();
        std::iter::from_fn(move || {
            let label = labels.next()?;
            Some((labels.position - label.len() - 1, label))
        })
    }

    /// Length of the uncompressed name in octets, with the root label; 1 to 255.
    pub fn wire_len(&self) -> usize {
        usize::from(self.wire_len)
    }

    /// Whether this is the root.
    pub fn is_root(&self) -> bool {
        self.wire_len == 1
    }

    /// Whether both names are equal, without regard to ASCII case (RFC 4343).
    pub fn eq_ignore_case(&self, other: &Name<'_>) -> bool {
        if self.wire_len != other.wire_len {
            return false;
        }
        if self.is_at_same_place(other) {
            return true;
        }
        match (self.octets(), other.octets()) {
            // Lengths of labels are below 64 and are not letters.
            (Some(ours), Some(theirs)) => ours.eq_ignore_ascii_case(theirs),
            _ => eq_labels(self.labels(), other.labels()),
        }
    }

    /// The uncompressed octets, if the name is contiguous in the message.
    fn octets(&self) -> Option<&'a [u8]> {
        let end = self.start + self.wire_len();
        self.message
            .get(self.start..end)
            .filter(|_| self.contiguous)
    }

    /// Whether both continue at the same octet: most names of a message are pointers to one name.
    fn is_at_same_place(&self, other: &Name<'_>) -> bool {
        let place = |name: &Name<'_>| match step(name.message, name.start) {
            Ok(Step::Pointer(target)) => target,
            _ => name.start,
        };
        std::ptr::eq(self.message, other.message) && place(self) == place(other)
    }

    /// Whether this name is `ancestor` or below it, without regard to ASCII case.
    pub fn is_within(&self, ancestor: &Name<'_>) -> bool {
        let mut end = *self;
        while end.wire_len > ancestor.wire_len {
            let mut labels = end.labels();
            let Some(label) = labels.next() else {
                return false;
            };
            end.start = labels.position;
            // The length was counted when the name was parsed.
            end.wire_len -= u8::try_from(1 + label.len()).unwrap_or_default();
        }
        end.eq_ignore_case(ancestor)
    }

    /// Copies the name out of its message, with its case.
    #[inline]
    pub fn to_buf(&self) -> NameBuf {
        let mut buf = NameBuf::root();
        buf.len = self.wire_len;
        if let Some(octets) = self.octets() {
            buf.octets[..octets.len()].copy_from_slice(octets);
            return buf;
        }
        let mut len = 0;
        for label in self.labels() {
            // Neither slice can fail: the length was checked when the name was parsed.
            let end = len + 1 + label.len();
            buf.octets[len] = u8::try_from(label.len()).unwrap_or_default();
            buf.octets[len + 1..end].copy_from_slice(label);
            len = end;
        }
        buf
    }
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() {
            return f.write_str(".");
        }
        self.labels().try_for_each(|label| write_label(f, label))
    }
}

impl fmt::Debug for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name({self})")
    }
}

/// Iterator over the labels of a [`Name`].
#[derive(Clone, Debug)]
pub struct Labels<'a> {
    message: &'a [u8],
    position: usize,
}

impl<'a> Iterator for Labels<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            match step(self.message, self.position) {
                Ok(Step::Label(len)) => {
                    let start = self.position + 1;
                    self.position = start + len;
                    return self.message.get(start..start + len);
                }
                Ok(Step::Pointer(target)) => self.position = target,
                Ok(Step::Root) | Err(_) => return None,
            }
        }
    }
}

/// An owned name of up to 255 octets, without heap allocation.
///
/// `==` and hashing compare octets and are case-sensitive; see [`Name::eq_ignore_case`] for names.
#[derive(Clone)]
pub struct NameBuf {
    octets: [u8; NAME_LEN_MAX],
    len: u8,
}

impl NameBuf {
    /// The root.
    #[inline]
    pub fn root() -> Self {
        Self {
            octets: [0; NAME_LEN_MAX],
            len: 1,
        }
    }

    /// Creates a name from its uncompressed octets, which must contain the name and nothing after
    /// it.
    pub fn from_wire(octets: &[u8]) -> Result<Self, ParseError> {
        let (name, end) = Name::parse(octets, 0)?;
        if end != octets.len() {
            return Err(ParseError::NameTooShort);
        }
        Ok(name.to_buf())
    }

    /// Changes the case of letters at random. Each call of `words` gives the choices for eight octets:
    /// bit 5 of each octet, which distinguishes the cases of a letter.
    pub fn flip_case(&mut self, mut words: impl FnMut() -> u64) {
        let (chunks, rest) = self.octets[..usize::from(self.len)].as_chunks_mut();
        for chunk in chunks {
            let octets = u64::from_le_bytes(*chunk);
            *chunk = (octets ^ words() & case_bits(octets)).to_le_bytes();
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let octets = u64::from_le_bytes(last);
        last = (octets ^ words() & case_bits(octets)).to_le_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
    }

    /// Converts the name to lower case.
    pub fn make_lower_case(&mut self) {
        self.octets[..usize::from(self.len)].make_ascii_lowercase();
    }

    /// The octets of the uncompressed name, with the root label.
    pub fn as_wire(&self) -> &[u8] {
        &self.octets[..usize::from(self.len)]
    }

    /// A view of the name.
    pub fn as_name(&self) -> Name<'_> {
        Name {
            message: self.as_wire(),
            start: 0,
            wire_len: self.len,
            contiguous: true,
        }
    }

    /// The name `label` directly below this one.
    pub fn child(&self, label: &[u8]) -> Result<Self, NameError> {
        let mut child = Self {
            octets: [0; NAME_LEN_MAX],
            len: 0,
        };
        child.push_label(label)?;
        for label in self.as_name().labels() {
            child.push_label(label)?;
        }
        child.end()
    }

    fn push_label(&mut self, label: &[u8]) -> Result<(), NameError> {
        let start = usize::from(self.len);
        let end = start + 1 + label.len();
        match u8::try_from(label.len()) {
            Ok(0) => return Err(NameError::EmptyLabel),
            Ok(len) if label.len() <= LABEL_LEN_MAX => {
                let name_len = u8::try_from(end).map_err(|_| NameError::TooLong)?;
                self.octets[start] = len;
                self.octets[start + 1..end].copy_from_slice(label);
                self.len = name_len;
            }
            _ => return Err(NameError::LabelTooLong { len: label.len() }),
        }
        Ok(())
    }

    /// Adds the root label.
    fn end(mut self) -> Result<Self, NameError> {
        // 255 octets without the root label leave no room for it.
        self.len = self.len.checked_add(1).ok_or(NameError::TooLong)?;
        Ok(self)
    }
}

/// Bit 5 of each of the eight octets that is an ASCII letter. Length octets are below 64 and are not
/// letters.
fn case_bits(octets: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    const TOP: u64 = 0x80 * EACH;
    let lower = (octets & !TOP) | (0x20 * EACH);
    // Sets the top bit of octets from `a` on, and of those after `z`.
    let from_a = lower + (0x80 - b'a' as u64) * EACH;
    let after_z = lower + (0x7f - b'z' as u64) * EACH;
    (from_a & !after_z & !octets & TOP) >> 2
}

impl FromStr for NameBuf {
    type Err = NameError;

    /// Parses the presentation form (RFC 1035 section 5.1): labels separated by dots, `\.` and
    /// similar for a literal character, `\DDD` for an octet in decimal. The last dot may be
    /// omitted: every name is absolute.
    fn from_str(text: &str) -> Result<Self, NameError> {
        if text == "." {
            return Ok(Self::root());
        }
        let mut name = Self {
            octets: [0; NAME_LEN_MAX],
            len: 0,
        };
        let mut label = [0; LABEL_LEN_MAX];
        let mut label_len = 0;
        let mut rest = text.as_bytes();
        while let Some((&first, after)) = rest.split_first() {
            if first == b'.' {
                name.push_label(&label[..label_len])?;
                label_len = 0;
                rest = after;
                continue;
            }
            let (octet, after) = unescape(first, after)?;
            *label
                .get_mut(label_len)
                .ok_or(NameError::LabelTooLong { len: label_len + 1 })? = octet;
            label_len += 1;
            rest = after;
        }
        if label_len > 0 || name.len == 0 {
            name.push_label(&label[..label_len])?;
        }
        name.end()
    }
}

impl fmt::Display for NameBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_name().fmt(f)
    }
}

impl fmt::Debug for NameBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NameBuf({self})")
    }
}

impl PartialEq for NameBuf {
    fn eq(&self, other: &Self) -> bool {
        self.as_wire() == other.as_wire()
    }
}

impl Eq for NameBuf {}

impl Hash for NameBuf {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_wire().hash(state);
    }
}

/// Reason why a text is not a domain name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Two consecutive dots, a dot at the start, or an empty text.
    #[error(
        "name has an empty label; write it as labels with one dot between them, the root as \".\""
    )]
    EmptyLabel,
    /// A label of more than 63 octets.
    #[error("label of {len} octets or more is over the limit of 63; shorten it")]
    LabelTooLong {
        /// Octets counted when the limit was exceeded.
        len: usize,
    },
    /// A name of more than 255 octets.
    #[error("name is over the limit of 255 octets; shorten it")]
    TooLong,
    /// A backslash followed by nothing, by fewer than three digits, or by a value above 255.
    #[error(
        "bad escape in a name; write \\DDD with three digits up to 255, or \\ and one character"
    )]
    BadEscape,
}

/// The element at one position of a name.
enum Step {
    Root,
    /// A label of this many octets, which may exceed the message.
    Label(usize),
    Pointer(usize),
}

#[inline]
fn step(message: &[u8], at: usize) -> Result<Step, ParseError> {
    let first = *message.get(at).ok_or(ParseError::ShortMessage)?;
    match first {
        0 => Ok(Step::Root),
        1..=0x3f => Ok(Step::Label(first.into())),
        0xc0.. => Ok(Step::Pointer(usize::from(
            crate::read_u16(message, at)? & 0x3fff,
        ))),
        _ => Err(ParseError::LabelType),
    }
}

fn eq_labels<'a, 'b>(
    ours: impl Iterator<Item = &'a [u8]>,
    mut theirs: impl Iterator<Item = &'b [u8]>,
) -> bool {
    for label in ours {
        match theirs.next() {
            Some(other) if label.eq_ignore_ascii_case(other) => {}
            _ => return false,
        }
    }
    theirs.next().is_none()
}

/// Writes a label and its dot; escapes characters with a special meaning in zone files.
fn write_label(f: &mut fmt::Formatter<'_>, label: &[u8]) -> fmt::Result {
    for &octet in label {
        match octet {
            b'.' | b'\\' | b'"' | b'(' | b')' | b';' | b'@' | b'$' => {
                write!(f, "\\{}", char::from(octet))?;
            }
            b'!'..=b'~' => write!(f, "{}", char::from(octet))?,
            _ => write!(f, "\\{octet:03}")?,
        }
    }
    f.write_str(".")
}

/// Reads the octet that begins with `first`; returns it and the rest.
fn unescape(first: u8, after: &[u8]) -> Result<(u8, &[u8]), NameError> {
    if first != b'\\' {
        return Ok((first, after));
    }
    match after {
        [a @ b'0'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', rest @ ..] => {
            let value = [a, b, c]
                .iter()
                .fold(0_u16, |value, digit| value * 10 + u16::from(**digit - b'0'));
            let octet = u8::try_from(value).map_err(|_| NameError::BadEscape)?;
            Ok((octet, rest))
        }
        [] | [b'0'..=b'9', ..] => Err(NameError::BadEscape),
        [octet, rest @ ..] => Ok((*octet, rest)),
    }
}

#[cfg(test)]
mod tests;
