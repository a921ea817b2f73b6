//! Answers on their way to clients of connections, within one bound for all of them together.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Octets of answers between the workers and clients that have not read them. Clones are the same
/// bound.
#[derive(Clone, Debug, Default)]
pub struct Held(Arc<AtomicUsize>);

/// Most octets that are held at once: a thousand answers of the greatest length. Without it, each
/// connection could hold as many as its pipeline is long.
pub const HELD_MAX: usize = 64 << 20;

/// An answer behind its length, counted for as long as it is held; empty if there is none.
#[derive(Debug)]
pub struct Framed {
    octets: Vec<u8>,
    held: Held,
}

impl Held {
    /// Takes an answer in. `None`: there is no room for it. An empty message always has room, and
    /// what is too long for a length counts as one; workers cut theirs.
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

/// A message behind its length; empty stays empty. `None`: it is longer than a length can say.
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
    fn answers_are_held_within_the_bound_and_make_room_when_they_leave() {
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
    fn what_no_length_can_say_is_no_answer() {
        let held = Held::default();
        assert!(held.frame(&vec![0; 65_536]).is_some_and(|f| f.is_empty()));
        assert!(held.frame(&[]).is_some_and(|f| f.is_empty()));
    }
}
