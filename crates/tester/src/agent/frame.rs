//! Frames of the connection between controller and agent.
//!
//! ```text
//! 0              4      5
//! +--------------+------+-------------
//! |    length    | kind |   payload
//! +--------------+------+-------------
//! ```
//!
//! The length is big-endian and counts kind and payload.

use std::io::{self, Read, Write};

/// Largest payload in octets. A longer blob is sent in several frames.
pub const PAYLOAD_MAX: usize = 1 << 20;

/// Type of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// JSON text: a call or an answer of [`handshake`](super::handshake).
    Message = 1,
    /// Octets of a blob that an answer announced.
    Blob = 2,
}

/// One frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Type of the payload.
    pub kind: FrameKind,
    /// At most [`PAYLOAD_MAX`] octets.
    pub payload: Vec<u8>,
}

/// Why no frame could be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The length is out of range: the stream does not contain frames.
    #[error("invalid frame length {length}: must be 1-{max}", max = PAYLOAD_MAX + 1)]
    Length {
        /// Value of the length field.
        length: u32,
    },
    /// Unknown kind.
    #[error("unknown frame kind {kind} in a frame of {length} octets: must be 1 or 2")]
    Kind {
        /// Length of the frame.
        length: u32,
        /// Value of the kind field.
        kind: u8,
    },
    /// The stream ended inside a frame.
    #[error("the connection ended after {got} of the {expected} octets of a frame")]
    Truncated {
        /// Octets received, the length field included.
        got: usize,
        /// Octets expected, as far as known.
        expected: usize,
    },
    /// The stream could not be read or written.
    #[error("the connection failed: {0}")]
    Stream(#[from] io::Error),
}

impl FrameError {
    /// Returns the octets at the place of a frame's head if they cannot be one: mostly text.
    pub fn strange(&self) -> Vec<u8> {
        match *self {
            Self::Length { length } => length.to_be_bytes().to_vec(),
            Self::Kind { length, kind } => {
                let mut octets = length.to_be_bytes().to_vec();
                octets.push(kind);
                octets
            }
            Self::Truncated { .. } | Self::Stream(_) => Vec::new(),
        }
    }
}

/// Reads the next frame; `None` if the stream ended after the last one. Allocates only as octets arrive.
///
/// # Errors
///
/// The stream does not continue with a complete frame. Nothing more can be read from it.
pub fn read(input: &mut impl Read) -> Result<Option<Frame>, FrameError> {
    let mut head = Vec::with_capacity(HEAD);
    input.by_ref().take(4).read_to_end(&mut head)?;
    let length = match <[u8; 4]>::try_from(head.as_slice()) {
        Ok(length) => u32::from_be_bytes(length),
        Err(_) if head.is_empty() => return Ok(None),
        Err(_) => return Err(truncated(head.len(), HEAD)),
    };
    if length == 0 || u64::from(length) > PAYLOAD_MAX as u64 + 1 {
        return Err(FrameError::Length { length });
    }
    let expected = 4 + length as usize;
    input.by_ref().take(1).read_to_end(&mut head)?;
    let kind = match head.get(4) {
        Some(1) => FrameKind::Message,
        Some(2) => FrameKind::Blob,
        Some(&kind) => return Err(FrameError::Kind { length, kind }),
        None => return Err(truncated(4, expected)),
    };
    let mut payload = Vec::new();
    input
        .by_ref()
        .take(u64::from(length) - 1)
        .read_to_end(&mut payload)?;
    match HEAD + payload.len() {
        got if got == expected => Ok(Some(Frame { kind, payload })),
        got => Err(truncated(got, expected)),
    }
}

/// Encodes a frame.
///
/// # Errors
///
/// [`FrameError::Length`] if the payload is longer than [`PAYLOAD_MAX`].
pub fn encode(kind: FrameKind, payload: &[u8]) -> Result<Vec<u8>, FrameError> {
    let length = u32::try_from(payload.len() + 1).unwrap_or(u32::MAX);
    if payload.len() > PAYLOAD_MAX {
        return Err(FrameError::Length { length });
    }
    let mut octets = Vec::with_capacity(HEAD + payload.len());
    octets.extend(length.to_be_bytes());
    octets.push(kind as u8);
    octets.extend(payload);
    Ok(octets)
}

/// Writes a frame and flushes.
///
/// # Errors
///
/// Those of [`encode`], before anything is written, or of the stream.
pub fn write(output: &mut impl Write, kind: FrameKind, payload: &[u8]) -> Result<(), FrameError> {
    output.write_all(&encode(kind, payload)?)?;
    output.flush()?;
    Ok(())
}

/// Writes a blob in as many frames as necessary; none if it is empty.
///
/// # Errors
///
/// Those of the stream.
pub fn write_blob(output: &mut impl Write, blob: &[u8]) -> Result<(), FrameError> {
    let mut parts = blob.chunks(PAYLOAD_MAX);
    parts.try_for_each(|part| write(output, FrameKind::Blob, part))
}

fn truncated(got: usize, expected: usize) -> FrameError {
    FrameError::Truncated { got, expected }
}

/// Length of a frame's head: octets before the payload.
const HEAD: usize = 5;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns at most `step` octets per read, as a connection does.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            let n = self.1.min(to.len()).min(self.0.len());
            let (now, later) = self.0.split_at(n);
            to[..n].copy_from_slice(now);
            self.0 = later;
            Ok(n)
        }
    }

    fn error(mut octets: &[u8]) -> FrameError {
        read(&mut octets).unwrap_err()
    }

    #[test]
    fn frame_consists_of_length_kind_and_payload() {
        let octets = [0, 0, 0, 3, 1, b'{', b'}', 0, 0, 0, 1, 2];
        let mut input = &octets[..];
        let message = read(&mut input).unwrap().unwrap();
        assert_eq!(
            (message.kind, message.payload.as_slice()),
            (FrameKind::Message, b"{}".as_slice())
        );
        let blob = read(&mut input).unwrap().unwrap();
        assert_eq!(
            (blob.kind, blob.payload.as_slice()),
            (FrameKind::Blob, b"".as_slice())
        );
        assert!(read(&mut input).unwrap().is_none());
        let mut written = Vec::new();
        write(&mut written, FrameKind::Message, b"{}").unwrap();
        write(&mut written, FrameKind::Blob, b"").unwrap();
        assert_eq!(written, octets);
    }

    #[test]
    fn invalid_length_is_refused_before_the_payload_is_read() {
        let text = error(&[0, 0, 0, 0, 1]).to_string();
        assert_eq!(text, "invalid frame length 0: must be 1-1048577");
        let text = error(&[0, 0x10, 0, 2, 1]).to_string();
        assert_eq!(text, "invalid frame length 1048578: must be 1-1048577");
        // Text at the place of a frame.
        let welcome = error(b"Welcome to gen1\n");
        assert!(matches!(
            welcome,
            FrameError::Length {
                length: 0x5765_6c63
            }
        ));
        assert_eq!(welcome.strange(), b"Welc");
    }

    #[test]
    fn unknown_kind_is_an_error_that_names_it() {
        let unknown = error(&[0, 0, 0, 2, 7, 0]);
        assert_eq!(unknown.strange(), [0, 0, 0, 2, 7]);
        assert_eq!(
            unknown.to_string(),
            "unknown frame kind 7 in a frame of 2 octets: must be 1 or 2"
        );
    }

    #[test]
    fn largest_payload_fits_and_longer_blob_is_split() {
        let blob = vec![7; PAYLOAD_MAX + 3];
        assert!(encode(FrameKind::Message, &blob).is_err());
        let mut written = Vec::new();
        write_blob(&mut written, &blob).unwrap();
        let mut input = &written[..];
        let first = read(&mut input).unwrap().unwrap();
        let second = read(&mut input).unwrap().unwrap();
        assert_eq!(
            (first.payload.len(), second.payload.len()),
            (PAYLOAD_MAX, 3)
        );
        assert!(input.is_empty());
    }

    proptest! {
        #[test]
        fn frames_are_read_back_for_any_split_of_the_stream(
            payloads in prop::collection::vec((any::<bool>(), prop::collection::vec(any::<u8>(), 0..600)), 0..6),
            step in 1_usize..700,
        ) {
            let mut written = Vec::new();
            for (is_blob, payload) in &payloads {
                let kind = if *is_blob { FrameKind::Blob } else { FrameKind::Message };
                write(&mut written, kind, payload).unwrap();
            }
            let mut input = Slow(&written, step);
            for (is_blob, payload) in &payloads {
                let frame = read(&mut input).unwrap().unwrap();
                prop_assert_eq!(frame.kind == FrameKind::Blob, *is_blob);
                prop_assert_eq!(&frame.payload, payload);
            }
            prop_assert!(read(&mut input).unwrap().is_none());
        }

        #[test]
        fn stream_that_ends_inside_a_frame_is_an_error(payload in prop::collection::vec(any::<u8>(), 0..300), cut in 0.0..1.0_f64) {
            let octets = encode(FrameKind::Message, &payload).unwrap();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below the length")]
            let cut = 1 + ((octets.len() - 1) as f64 * cut) as usize;
            prop_assume!(cut < octets.len());
            let is_truncated = matches!(error(&octets[..cut]), FrameError::Truncated { got, .. } if got == cut);
            prop_assert!(is_truncated);
        }

        #[test]
        fn any_octets_give_frames_an_end_or_an_error(octets in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut input = &octets[..];
            while let Ok(Some(frame)) = read(&mut input) {
                prop_assert!(frame.payload.len() <= octets.len());
            }
        }
    }
}
