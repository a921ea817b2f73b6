//! Replies that are sent in a later turn than the one in which their datagram arrived.

use super::UdpLink;
use crate::{LinkError, Origin};

/// The only socket of a link that listens.
const LISTENING: usize = 0;

impl UdpLink {
    /// Implements [`Link::reply`](crate::Link::reply).
    pub(super) fn send_replies(
        &mut self,
        mut next: impl FnMut(&mut [u8]) -> Option<(Origin, usize)>,
    ) -> Result<usize, LinkError> {
        let (mut replies, mut waiting) = (0, 0);
        let mut sent = 0;
        self.send.clear();
        self.departures.clear();
        while let Some((to, len)) = next(self.send.frame()) {
            self.send.push(len, Some(&to.peer.into()), to.local);
            replies += 1;
            waiting += 1;
            if self.send.is_full() {
                sent += self.depart(LISTENING, waiting)?;
                self.send.clear();
                waiting = 0;
            }
        }
        if waiting > 0 {
            sent += self.depart(LISTENING, waiting)?;
        }
        self.counted.send_drops += (replies - sent) as u64;
        Ok(replies)
    }
}
