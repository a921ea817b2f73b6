//! Collects outgoing frames and groups them by destination and length when they are sent.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::BorrowedFd;
use std::ptr;

use libc::{iovec, mmsghdr};

use super::{
    CONTROL_BYTES, Control, FRAME_BYTES, RawAddr, SEGMENTED_BYTES_MAX, SEGMENTS_MAX, address,
    send_messages,
};
use crate::LocalAddr;

/// Frames to any destinations. [`Gather::arrange`] groups them into messages: frames of equal
/// length to the same destination, in any position, and optionally a shorter one at the end, form
/// one segmented datagram.
pub(crate) struct Gather {
    buffer: Box<[u8]>,
    used: usize,
    frames: Vec<Frame>,
    /// A key for each frame, see [`key`].
    order: Vec<u64>,
    messages: Vec<Message>,
    headers: Box<[mmsghdr]>,
    iovecs: Box<[iovec]>,
    controls: Box<[Control]>,
}

// SAFETY: the raw pointers inside point into the batch's own memory, and only the kernel follows
// them, during a call through `&mut self`.
unsafe impl Send for Gather {}

#[derive(Clone, Copy)]
struct Frame {
    start: u32,
    len: u16,
    group: u32,
    to: RawAddr,
    local: Option<LocalAddr>,
}

/// Frames that are sent together: `frames` entries of `order` from `first` on.
#[derive(Clone, Copy)]
struct Message {
    first: usize,
    frames: usize,
    bytes: usize,
    segment: u16,
    group: u32,
}

/// Frames per batch: four turns of queries, so that the responses of a turn are nearly always sent
/// at once. The kernel accepts 1024 messages (`UIO_MAXIOV`).
const FRAMES_MAX: usize = 256;

/// Octets of all frames of one batch.
const BUFFER_BYTES: usize = 64 * FRAME_BYTES;

/// Sorts frames by group, then by decreasing length, then by age.
fn key(group: u32, len: u16, index: usize) -> u64 {
    u64::from(group) << 32 | u64::from(!len) << 16 | index as u64 & 0xffff
}

impl Gather {
    pub(crate) fn new() -> Self {
        // SAFETY: mmsghdr and iovec are plain C structures for which all zeroes is a valid value.
        let (header, vec) = unsafe { (zeroed::<mmsghdr>(), zeroed::<iovec>()) };
        Self {
            buffer: vec![0; BUFFER_BYTES].into(),
            used: 0,
            frames: Vec::with_capacity(FRAMES_MAX),
            order: Vec::with_capacity(FRAMES_MAX),
            messages: Vec::with_capacity(FRAMES_MAX),
            headers: vec![header; FRAMES_MAX].into(),
            iovecs: vec![vec; FRAMES_MAX].into(),
            controls: vec![Control([0; CONTROL_BYTES]); FRAMES_MAX].into(),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.used = 0;
        self.frames.clear();
        self.order.clear();
        self.messages.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Whether one more frame may not fit.
    pub(crate) fn is_full(&self) -> bool {
        self.frames.len() == FRAMES_MAX || self.buffer.len() - self.used < FRAME_BYTES
    }

    /// Buffer of the next frame. The batch must not be full.
    pub(crate) fn frame(&mut self) -> &mut [u8] {
        &mut self.buffer[self.used..self.used + FRAME_BYTES]
    }

    /// Adds the first `len` octets of the frame, 1 to [`FRAME_BYTES`]. `to` is `None` for a
    /// connected socket. Frames of equal destination must have the same `group`; messages are in
    /// the order of their groups.
    pub(crate) fn push(
        &mut self,
        len: usize,
        group: u32,
        to: Option<RawAddr>,
        local: Option<LocalAddr>,
    ) {
        #[expect(clippy::cast_possible_truncation, reason = "bounded by both constants")]
        let (start, len) = (self.used as u32, len.min(FRAME_BYTES) as u16);
        self.order.push(key(group, len, self.frames.len()));
        self.frames.push(Frame {
            start,
            len,
            group,
            to: to.unwrap_or(RawAddr::EMPTY),
            local,
        });
        self.used += usize::from(len);
    }

    /// Groups the frames into messages.
    pub(crate) fn arrange(&mut self) {
        self.order.sort_unstable();
        let mut last: Option<(Message, Frame)> = None;
        for (at, key) in self.order.iter().enumerate() {
            let frame = self.frames[(key & 0xffff) as usize];
            if let Some((message, before)) = &mut last
                && message.takes(before, &frame)
            {
                message.frames += 1;
                message.bytes += usize::from(frame.len);
                *before = frame;
                continue;
            }
            let message = Message {
                first: at,
                frames: 1,
                bytes: frame.len.into(),
                segment: frame.len,
                group: frame.group,
            };
            self.messages.extend(last.map(|(message, _)| message));
            last = Some((message, frame));
        }
        self.messages.extend(last.map(|(message, _)| message));
    }

    /// Number of messages; 0 before [`Gather::arrange`].
    pub(crate) fn messages(&self) -> usize {
        self.messages.len()
    }

    /// Number of frames in message `i`.
    pub(crate) fn segments(&self, i: usize) -> usize {
        self.messages[i].frames
    }

    /// The group of message `first`, and the index of the first message after it with another
    /// group.
    pub(crate) fn group(&self, first: usize) -> (u32, usize) {
        let group = self.messages[first].group;
        let same = self.messages[first..].iter();
        (group, first + same.take_while(|m| m.group == group).count())
    }

    /// Sends the messages from `first` to `end`; returns the number that the kernel accepted.
    pub(crate) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        first: usize,
        end: usize,
    ) -> io::Result<usize> {
        for i in first..end {
            self.prepare(i, self.messages[i]);
        }
        // SAFETY: `prepare` has pointed these headers to names, payloads and control buffers of
        // the lengths stated, all owned by self and unchanged since.
        unsafe { send_messages(socket, &mut self.headers[first..end]) }
    }

    /// Sends frame `segment` of message `i` as a separate datagram.
    pub(crate) fn send_one(
        &mut self,
        socket: BorrowedFd<'_>,
        i: usize,
        segment: usize,
    ) -> io::Result<()> {
        let message = Message {
            first: self.messages[i].first + segment,
            frames: 1,
            ..self.messages[i]
        };
        self.prepare(i, message);
        // SAFETY: as in `send`.
        unsafe { send_messages(socket, &mut self.headers[i..=i]) }.map(|_| ())
    }

    fn prepare(&mut self, i: usize, message: Message) {
        let range = message.first..message.first + message.frames;
        let frame = |key: &u64| (key & 0xffff) as usize;
        for (part, key) in self.iovecs[range.clone()]
            .iter_mut()
            .zip(&self.order[range])
        {
            let frame = self.frames[frame(key)];
            *part = iovec {
                iov_base: self.buffer[frame.start as usize..].as_mut_ptr().cast(),
                iov_len: frame.len.into(),
            };
        }
        let frame = &mut self.frames[frame(&self.order[message.first])];
        let header = &mut self.headers[i].msg_hdr;
        header.msg_iov = ptr::from_mut(&mut self.iovecs[message.first]);
        header.msg_iovlen = message.frames as _;
        let segment = (message.frames > 1).then_some(message.segment);
        address(
            header,
            &mut frame.to,
            &mut self.controls[i],
            segment,
            frame.local,
        );
    }
}

impl Message {
    /// Whether `frame` can be the next segment after the frame `last`. A shorter segment ends the
    /// datagram.
    fn takes(&self, last: &Frame, frame: &Frame) -> bool {
        last.len == self.segment
            && frame.len <= self.segment
            && self.frames < SEGMENTS_MAX
            && self.bytes + usize::from(frame.len) <= SEGMENTED_BYTES_MAX
            && frame.group == last.group
            && frame.to == last.to
            && frame.local == last.local
    }
}

const _: () = assert!(BUFFER_BYTES <= u32::MAX as usize && FRAMES_MAX <= u16::MAX as usize);
const _: () = assert!(
    size_of::<Frame>() <= 80,
    "a batch of frames stays in the cache"
);

#[cfg(test)]
mod tests {
    use super::*;

    /// Pushes frames of (group, length) and returns the lengths of each message's segments.
    fn arranged(frames: &[(u32, usize)]) -> Vec<Vec<u16>> {
        let mut batch = Gather::new();
        for &(group, len) in frames {
            assert!(!batch.is_full());
            batch.push(len, group, None, None);
        }
        batch.arrange();
        let lengths = |message: &Message| {
            let keys = &batch.order[message.first..message.first + message.frames];
            let len = |key: &u64| batch.frames[(key & 0xffff) as usize].len;
            keys.iter().map(len).collect()
        };
        batch.messages.iter().map(lengths).collect()
    }

    #[test]
    fn frames_of_one_destination_and_length_join_and_a_shorter_one_ends_the_message() {
        let frames = [
            (1, 50),
            (2, 50),
            (1, 60),
            (2, 50),
            (1, 50),
            (1, 60),
            (1, 40),
        ];
        let expected = [vec![60, 60, 50], vec![50, 40], vec![50, 50]];
        assert_eq!(arranged(&frames), expected);
    }

    #[test]
    fn messages_stay_within_the_kernel_limits_of_segments_and_octets() {
        let small = arranged(&[(0, 100); 130]);
        assert_eq!(small.iter().map(Vec::len).collect::<Vec<_>>(), [64, 64, 2]);
        let large = arranged(&[(0, 4096); 40]);
        let lengths: Vec<_> = large.iter().map(Vec::len).collect();
        assert_eq!(lengths, [15, 15, 10]);
    }

    #[test]
    fn destinations_in_one_group_are_not_mixed() {
        let mut batch = Gather::new();
        for port in [1, 2, 1, 2] {
            let to = std::net::SocketAddr::from(([192, 0, 2, 1], port));
            batch.push(50, 7, Some(to.into()), None);
        }
        batch.arrange();
        for message in &batch.messages {
            let keys = &batch.order[message.first..message.first + message.frames];
            let to = |key: &u64| batch.frames[(key & 0xffff) as usize].to;
            assert!(keys.iter().all(|key| to(key) == to(&keys[0])));
        }
        assert_eq!(batch.messages.iter().map(|m| m.frames).sum::<usize>(), 4);
    }

    #[test]
    fn batch_is_full_by_frames_or_by_octets() {
        let mut batch = Gather::new();
        for (len, expected) in [(1, FRAMES_MAX), (FRAME_BYTES, 64)] {
            let mut frames = 0;
            while !batch.is_full() {
                batch.push(len, 0, None, None);
                frames += 1;
            }
            assert_eq!(frames, expected);
            batch.clear();
        }
    }
}
