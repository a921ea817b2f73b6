//! Messages of a stream, each after its length in two octets (RFC 1035 section 4.2.2).

/// Octets of the length before a message.
pub(super) const PREFIX_BYTES: usize = 2;

/// Room for an incomplete message: answers are shorter; a longer one, up to 64 KiB, grows it.
const INCOMPLETE_BYTES: usize = 4096;

/// Reassembles messages from the pieces in which they arrive.
#[derive(Debug)]
pub(super) struct Messages {
    /// The beginning of a message, with its length.
    incomplete: Vec<u8>,
}

impl Messages {
    pub(super) fn new() -> Self {
        Self {
            incomplete: Vec::with_capacity(INCOMPLETE_BYTES),
        }
    }

    /// Forgets the beginning of a message.
    pub(super) fn clear(&mut self) {
        self.incomplete.clear();
    }

    /// Passes the messages that are complete with `piece` to `each`.
    pub(super) fn pass(&mut self, mut piece: &[u8], mut each: impl FnMut(&[u8])) {
        while !self.incomplete.is_empty() && !piece.is_empty() {
            let wanted = match self.incomplete.first_chunk() {
                Some(len) => PREFIX_BYTES + usize::from(u16::from_be_bytes(*len)),
                None => PREFIX_BYTES,
            };
            let lacking = (wanted - self.incomplete.len()).min(piece.len());
            let (more, rest) = piece.split_at(lacking);
            self.incomplete.extend_from_slice(more);
            piece = rest;
            if let Some((message, [])) = first(&self.incomplete) {
                each(message);
                self.incomplete.clear();
            }
        }
        while let Some((message, rest)) = first(piece) {
            each(message);
            piece = rest;
        }
        self.incomplete.extend_from_slice(piece);
    }
}

/// Splits off the first message, if it is complete.
fn first(octets: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = octets.split_first_chunk()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn messages_are_whole_for_any_segmentation(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20),
            cuts in prop::collection::vec(0_usize..60, 0..40),
        ) {
            let mut stream = Vec::new();
            for message in &messages {
                stream.extend(u16::try_from(message.len()).unwrap().to_be_bytes());
                stream.extend(message);
            }
            let mut got = Vec::new();
            let mut reader = Messages::new();
            let mut rest = &stream[..];
            for cut in cuts {
                let (piece, after) = rest.split_at(cut.min(rest.len()));
                reader.pass(piece, |message| got.push(message.to_vec()));
                rest = after;
            }
            reader.pass(rest, |message| got.push(message.to_vec()));
            prop_assert_eq!(got, messages);
            prop_assert_eq!(reader.incomplete.len(), 0);
        }
    }
}
