//! Frames of the connection between controller and agent.
//!
//! ```text
//! 0                8
//! +----------------+-------------
//! |     length     |   message
//! +----------------+-------------
//! ```
//!
//! The length is big-endian and counts the message: a call or an answer of [`handshake`](super::handshake) in JSON.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Longest message in octets. Ledgers have at most 128 octets for each query, and there are 2^32 names.
pub const MESSAGE_MAX: u64 = 1 << 39;

/// Why no frame could be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The length is out of range: the stream does not contain frames.
    #[error("invalid frame length {length}: must be at most {MESSAGE_MAX}")]
    Length {
        /// Value of the length field.
        length: u64,
    },
    /// The stream ended inside a frame.
    #[error("the connection ended after {got} of the {expected} octets of a frame")]
    Truncated {
        /// Octets received, the length field included.
        got: u64,
        /// Octets expected, as far as known.
        expected: u64,
    },
    /// The stream could not be read or written.
    #[error("the connection failed: {0}")]
    Stream(#[from] io::Error),
}

impl FrameError {
    /// Returns the octets at the place of a frame's length if they cannot be one: mostly text.
    pub fn strange(&self) -> Vec<u8> {
        match self {
            Self::Length { length } => length.to_be_bytes().to_vec(),
            Self::Truncated { .. } | Self::Stream(_) => Vec::new(),
        }
    }
}

/// Reads the message of the next frame; `None` if the stream ended after the last one. Allocates only as octets arrive.
///
/// # Errors
///
/// The stream does not continue with a complete frame. Nothing more can be read from it.
pub fn read(input: &mut impl Read) -> Result<Option<Vec<u8>>, FrameError> {
    let head = up_to(input, HEAD as u64)?;
    let truncated = |got: usize, expected| {
        let got = got as u64;
        FrameError::Truncated { got, expected }
    };
    let length = match head.first_chunk() {
        Some(length) => u64::from_be_bytes(*length),
        None if head.is_empty() => return Ok(None),
        None => return Err(truncated(head.len(), HEAD as u64)),
    };
    if length > MESSAGE_MAX {
        return Err(FrameError::Length { length });
    }
    let message = up_to(input, length)?;
    match message.len() as u64 == length {
        true => Ok(Some(message)),
        false => Err(truncated(head.len() + message.len(), HEAD as u64 + length)),
    }
}

fn up_to(input: &mut impl Read, length: u64) -> io::Result<Vec<u8>> {
    let mut octets = Vec::new();
    input.by_ref().take(length).read_to_end(&mut octets)?;
    Ok(octets)
}

/// Encodes the frame of a message.
///
/// # Errors
///
/// The message has no form in JSON.
pub fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut octets = 0_u64.to_be_bytes().to_vec();
    serde_json::to_writer(&mut octets, message)?;
    let length = (octets.len() - HEAD) as u64;
    octets[..HEAD].copy_from_slice(&length.to_be_bytes());
    Ok(octets)
}

/// Decodes a message.
///
/// # Errors
///
/// It is of another type.
pub fn decode<T: DeserializeOwned>(message: &[u8]) -> serde_json::Result<T> {
    serde_json::from_slice(message)
}

/// Writes the frame of a message and flushes.
///
/// # Errors
///
/// Those of [`encode`], before anything is written, or of the stream.
pub fn write(output: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    output.write_all(&encode(message)?)?;
    output.flush()
}

/// Length of a frame's head: octets before the message.
const HEAD: usize = 8;

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
    fn frame_consists_of_length_and_message() {
        // A text of two octets, and no message.
        let octets = b"\0\0\0\0\0\0\0\x04\"hi\"\0\0\0\0\0\0\0\0";
        let mut input = &octets[..];
        let message = read(&mut input).unwrap().unwrap();
        assert_eq!(decode::<String>(&message).unwrap(), "hi");
        assert!(decode::<u64>(&message).is_err());
        assert_eq!(read(&mut input).unwrap(), Some(Vec::new()));
        assert_eq!(read(&mut input).unwrap(), None);
        let mut written = Vec::new();
        write(&mut written, &"hi").unwrap();
        assert_eq!(written, octets[..12]);
    }

    #[test]
    fn invalid_length_is_refused_before_the_message_is_read() {
        let text = error(&(MESSAGE_MAX + 1).to_be_bytes()).to_string();
        assert_eq!(
            text,
            "invalid frame length 549755813889: must be at most 549755813888"
        );
        // Text at the place of a frame.
        let welcome = error(b"Welcome to gen1\n");
        assert!(matches!(welcome, FrameError::Length { .. }));
        assert_eq!(welcome.strange(), b"Welcome ");
    }

    proptest! {
        #[test]
        fn frames_are_read_back_for_any_split_of_the_stream(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..600), 0..6),
            step in 1_usize..700,
        ) {
            let mut written = Vec::new();
            for message in &messages {
                write(&mut written, message).unwrap();
            }
            let mut input = Slow(&written, step);
            for message in &messages {
                let read = read(&mut input).unwrap().unwrap();
                prop_assert_eq!(&decode::<Vec<u8>>(&read).unwrap(), message);
            }
            prop_assert!(read(&mut input).unwrap().is_none());
        }

        #[test]
        fn stream_that_ends_inside_a_frame_is_an_error(message in prop::collection::vec(any::<u8>(), 0..300), cut in 0.0..1.0_f64) {
            let octets = encode(&message).unwrap();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below the length")]
            let cut = 1 + ((octets.len() - 1) as f64 * cut) as usize;
            prop_assume!(cut < octets.len());
            let is_truncated = matches!(error(&octets[..cut]), FrameError::Truncated { got, .. } if got == cut as u64);
            prop_assert!(is_truncated);
        }

        #[test]
        fn any_octets_give_frames_an_end_or_an_error(octets in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut input = &octets[..];
            while let Ok(Some(message)) = read(&mut input) {
                prop_assert!(message.len() <= octets.len());
                let _ = decode::<super::super::handshake::Answer<Vec<u8>>>(&message);
            }
        }
    }
}
