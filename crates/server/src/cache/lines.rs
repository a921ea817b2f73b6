//! Memory in lines of 64 octets, as processors cache it, taken from the system as it is needed.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

/// Words in a line.
pub(super) const WORDS: usize = 8;

/// Octets in a line.
pub(super) const LINE_BYTES: usize = 8 * WORDS;

/// Lines that are taken at once: 64 KiB.
const SEGMENT: usize = 1024;

/// Words that threads read and write without a lock.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Line(pub(super) [AtomicU64; WORDS]);

/// A fixed number of lines, zero at first.
#[derive(Debug)]
pub(super) struct Lines {
    segments: Box<[OnceLock<Box<[Line]>>]>,
    len: usize,
}

impl Lines {
    /// `len` lines, none of which takes memory yet.
    pub(super) fn new(len: usize) -> Self {
        let segments = (0..len.div_ceil(SEGMENT)).map(|_| OnceLock::new());
        Self {
            segments: segments.collect(),
            len,
        }
    }

    /// Lines in all.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// A line, if it has been taken.
    pub(super) fn get(&self, at: usize) -> Option<&Line> {
        self.segments.get(at / SEGMENT)?.get()?.get(at % SEGMENT)
    }

    /// A line below [`Lines::len`], taken from the system if need be.
    pub(super) fn take(&self, at: usize) -> &Line {
        let (segment, first) = (at / SEGMENT, at / SEGMENT * SEGMENT);
        let len = SEGMENT.min(self.len - first);
        let lines = self.segments[segment].get_or_init(|| {
            let zero = std::iter::repeat_with(Line::default);
            zero.take(len).collect()
        });
        &lines[at % SEGMENT]
    }

    /// Octets that have been taken.
    pub(super) fn bytes(&self) -> u64 {
        let taken = self.segments.iter().filter_map(OnceLock::get);
        let lines: usize = taken.map(|lines| lines.len()).sum();
        (lines * LINE_BYTES) as u64
    }
}
