//! Memory that is shared with the kernel, and the rings in it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use libc::c_int;

use super::Offset;

/// A memory mapping, unmapped on drop.
pub(super) struct Mapping {
    pub(super) start: NonNull<u8>,
    pub(super) bytes: usize,
}

// SAFETY: plain memory; its users state who may access which part.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// # Errors
    ///
    /// As for mmap(2).
    pub(super) fn new(bytes: usize, flags: c_int, fd: c_int, offset: u64) -> io::Result<Self> {
        // SAFETY: a new mapping at an address that the kernel selects does not overlap existing memory.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                flags | libc::MAP_POPULATE,
                fd,
                offset.cast_signed(),
            )
        };
        match NonNull::new(start.cast::<u8>()) {
            Some(start) if start.as_ptr().cast() != libc::MAP_FAILED => Ok(Self { start, bytes }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, and no references into it remain. The kernel keeps frames as long
        // as it needs them.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// One ring. This value is its only user in the program, as producer or consumer; the kernel is the other side.
pub(super) struct Ring {
    mapping: Mapping,
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
    entry_bytes: usize,
    size: u32,
    /// Position of this side, published or not.
    pub(super) own: u32,
    /// Last known position of the other side.
    other: u32,
}

impl Ring {
    pub(super) fn map(
        fd: &OwnedFd,
        page: u64,
        at: &Offset,
        size: u32,
        entry_bytes: usize,
    ) -> io::Result<Self> {
        let offset = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let bytes = offset(at.entries) + size as usize * entry_bytes;
        let mapping = Mapping::new(bytes, libc::MAP_SHARED, fd.as_raw_fd(), page)?;
        Ok(Self {
            mapping,
            producer: offset(at.producer),
            consumer: offset(at.consumer),
            flags: offset(at.flags),
            entries: offset(at.entries),
            entry_bytes,
            size,
            own: 0,
            other: 0,
        })
    }

    fn index(&self, at: usize) -> &AtomicU32 {
        // SAFETY: by the kernel's offsets, an aligned 32-bit index lies here, before the entries; both sides access it
        // atomically.
        unsafe { &*self.mapping.start.as_ptr().add(at).cast::<AtomicU32>() }
    }

    pub(super) fn entry(&self, i: u32) -> *mut u64 {
        let at = self.entries + (i & (self.size - 1)) as usize * self.entry_bytes;
        // SAFETY: within the mapping, since the position is below the size for which it was mapped.
        unsafe { self.mapping.start.as_ptr().add(at).cast() }
    }

    /// Whether the kernel sleeps on this ring and must be woken.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.index(self.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// For a producer: number of free entries. Reads the consumer's position only if fewer than `wanted` are known to
    /// be free.
    pub(super) fn free(&mut self, wanted: u32) -> u32 {
        if free(self.own, self.other, self.size) < wanted {
            self.other = self.index(self.consumer).load(Ordering::Acquire);
        }
        free(self.own, self.other, self.size)
    }

    /// For a producer: makes written entries visible to the kernel.
    pub(super) fn publish(&mut self) {
        self.index(self.producer).store(self.own, Ordering::Release);
    }

    /// For a producer: number of entries that the kernel has not consumed yet.
    pub(super) fn untaken(&self) -> u32 {
        self.own
            .wrapping_sub(self.index(self.consumer).load(Ordering::Acquire))
    }

    /// For a consumer: number of waiting entries.
    pub(super) fn waiting(&mut self) -> u32 {
        if self.other == self.own {
            self.other = self.index(self.producer).load(Ordering::Acquire);
        }
        self.other.wrapping_sub(self.own)
    }

    /// For a consumer: whether entries wait.
    pub(super) fn has_waiting(&self) -> bool {
        self.other != self.own || self.index(self.producer).load(Ordering::Acquire) != self.own
    }

    /// For a consumer: returns the entries that were read.
    pub(super) fn release(&mut self) {
        self.index(self.consumer).store(self.own, Ordering::Release);
    }
}

/// Free entries of a ring of `size` with the producer at `own` and the consumer at `other`; indices wrap at 2^32.
fn free(own: u32, other: u32, size: u32) -> u32 {
    size - own.wrapping_sub(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_entries_are_counted_across_index_wrap() {
        assert_eq!(free(0, 0, 8), 8);
        assert_eq!(free(8, 0, 8), 0);
        assert_eq!(free(3, u32::MAX - 1, 8), 3);
        assert_eq!(free(2, u32::MAX - 5, 8), 0);
    }

    /// A producer's and a consumer's view of the same entries, without a kernel.
    fn rings(size: u32, at: u32) -> [Ring; 2] {
        let bytes = 64 + size as usize * 8;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let mapping = Mapping::new(bytes, flags, -1, 0).unwrap();
        let start = mapping.start;
        let ring = |mapping| Ring {
            mapping,
            producer: 0,
            consumer: 4,
            flags: 8,
            entries: 64,
            entry_bytes: 8,
            size,
            own: at,
            other: at,
        };
        // The second does not own the memory.
        let second = ring(Mapping { start, bytes: 0 });
        let first = ring(mapping);
        for index in [0, 4] {
            first.index(index).store(at, Ordering::Relaxed);
        }
        [first, second]
    }

    #[test]
    fn published_entries_are_consumed_in_order() {
        for at in [0, u32::MAX - 2] {
            let [mut producer, mut consumer] = rings(4, at);
            for value in 10..14 {
                assert!(producer.free(1) > 0);
                // SAFETY: the ring has a free entry, and has no other user.
                unsafe { producer.entry(producer.own).write(value) };
                producer.own = producer.own.wrapping_add(1);
            }
            assert_eq!(producer.free(1), 0, "all entries are taken");
            assert_eq!(consumer.waiting(), 0, "nothing was published");
            producer.publish();
            assert_eq!((consumer.waiting(), producer.untaken()), (4, 4));
            for value in 10..13 {
                // SAFETY: the entry was published.
                assert_eq!(unsafe { consumer.entry(consumer.own).read() }, value);
                consumer.own = consumer.own.wrapping_add(1);
            }
            assert_eq!(producer.free(1), 0, "nothing was released");
            consumer.release();
            assert_eq!((producer.free(1), producer.untaken()), (3, 1));
        }
    }
}
