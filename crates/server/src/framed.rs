//! Responses queued for client connections, within one memory limit for all connections.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of octets of responses between the workers and clients that have not read them. Clones
/// share the limit.
#[derive(Clone, Debug, Default)]
pub struct Held(Arc<AtomicUsize>);

/// Maximum number of octets held: a thousand responses of maximum length. Without it, each
/// connection could hold as many responses as its pipeline allows.
pub const HELD_MAX: usize = 64 << 20;

/// A response with its length prefix, counted while it is held; empty for no response.
#[derive(Debug)]
pub struct Framed {
    octets: Vec<u8>,
    held: Held,
}

impl Held {
    /// Adds a response. `None`: the limit is reached. An empty message is always accepted, and so
    /// is one that is too long for its length prefix, as empty; workers truncate responses to
    /// prevent this.
    pub fn frame(&self, message: &[u8]) -> Option<Framed> {
        let octets = framed(message).unwrap_or_default();
        let before = self.0.fetch_add(octets.len(), Ordering::Relaxed);
        let framed = Framed {
            octets,
            held: self.clone(),
        };
        (framed.is_empty() || before + framed.len() <= HELD_MAX).then_some(framed)
    }
}

impl Deref for Framed {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.octets
    }
}

impl Drop for Framed {
    fn drop(&mut self) {
        let octets = self.octets.len();
        self.held.0.fetch_sub(octets, Ordering::Relaxed);
    }
}

/// A message with its length prefix; an empty message stays empty. `None`: it is too long for the
/// prefix.
pub fn framed(message: &[u8]) -> Option<Vec<u8>> {
    if message.is_empty() {
        return Some(Vec::new());
    }
    let length = u16::try_from(message.len()).ok()?;
    Some([&length.to_be_bytes()[..], message].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_responses_are_limited_and_free_space_on_drop() {
        let held = Held::default();
        let large = vec![0; 65_535];
        let mut answers = Vec::new();
        while let Some(framed) = held.frame(&large) {
            answers.push(framed);
        }
        assert_eq!(answers.len(), HELD_MAX / 65_537);
        assert_eq!(answers[0][..2], [0xff, 0xff]);
        answers.pop();
        assert!(held.frame(&large).is_some());
        assert!(held.frame(&[]).is_some());
        drop(answers);
        assert_eq!(held.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn message_too_long_for_its_prefix_becomes_empty() {
        let held = Held::default();
        assert!(held.frame(&vec![0; 65_536]).is_some_and(|f| f.is_empty()));
        assert!(held.frame(&[]).is_some_and(|f| f.is_empty()));
    }
}
