//! Memory in cache lines of 64 octets, allocated when needed.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

/// Number of words in a line.
pub(super) const WORDS: usize = 8;

/// Number of octets in a line.
pub(super) const LINE_BYTES: usize = 8 * WORDS;

/// Number of lines per allocation: 64 KiB.
const SEGMENT: usize = 1024;

/// Words that threads read and write without a lock.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Line(pub(super) [AtomicU64; WORDS]);

/// A fixed number of lines, initially zero.
#[derive(Debug)]
pub(super) struct Lines {
    segments: Box<[OnceLock<Box<[Line]>>]>,
    len: usize,
}

impl Lines {
    /// `len` lines, without allocating memory yet.
    pub(super) fn new(len: usize) -> Self {
        let segments = (0..len.div_ceil(SEGMENT)).map(|_| OnceLock::new());
        Self {
            segments: segments.collect(),
            len,
        }
    }

    /// Number of lines.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// A line, if it is allocated.
    pub(super) fn get(&self, at: usize) -> Option<&Line> {
        self.segments.get(at / SEGMENT)?.get()?.get(at % SEGMENT)
    }

    /// A line below [`Lines::len`], which is allocated if necessary.
    pub(super) fn take(&self, at: usize) -> &Line {
        let (segment, first) = (at / SEGMENT, at / SEGMENT * SEGMENT);
        let len = SEGMENT.min(self.len - first);
        let lines = self.segments[segment].get_or_init(|| {
            let zero = std::iter::repeat_with(Line::default);
            zero.take(len).collect()
        });
        &lines[at % SEGMENT]
    }

    /// Allocates all lines.
    pub(super) fn take_all(&self) {
        for first in (0..self.len).step_by(SEGMENT) {
            self.take(first);
        }
    }

    /// Number of allocated octets.
    pub(super) fn bytes(&self) -> u64 {
        let taken = self.segments.iter().filter_map(OnceLock::get);
        let lines: usize = taken.map(|lines| lines.len()).sum();
        (lines * LINE_BYTES) as u64
    }
}
