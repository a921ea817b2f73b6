//! The bound on UDP responses to one client network, against the use of this server to flood a
//! third party: the generic cell rate algorithm (ITU-T I.371 annex A, "virtual scheduling").
//!
//! A table of fixed size, no memory per client: networks whose hashes collide share a cell and
//! its bound. Which ones do depends on a random seed, and nobody can choose it.

use std::hash::Hasher;
use std::net::IpAddr;

use dns64_transport::clock::{Nanos, SECOND};
use siphasher::sip::SipHasher13;

use crate::settings::RateLimit;
use crate::settings::nets::ClientNetwork;

/// Cells, 16 octets each: 1 MiB.
const CELLS: usize = 1 << 16;

/// What becomes of one response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateVerdict {
    /// It is sent.
    Send,
    /// It is sent without records and with TC set.
    Truncate,
    /// It is not sent.
    Drop,
}

/// The bound and how far each network is from it. One for each worker, which bounds what that
/// worker sends.
#[derive(Clone, Debug)]
pub struct RateLimiter {
    cells: Box<[Cell]>,
    /// Time that one response takes in the long run.
    interval_ns: Nanos,
    /// How far ahead of time a response may be.
    tolerance_ns: Nanos,
    slip: u32,
    seed: u64,
}

/// The networks of one hash.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    /// When the next response is due if they come at the bound: the algorithm's theoretical
    /// arrival time.
    due_ns: Nanos,
    /// Responses over the bound since the last that was truncated.
    over: u32,
}

impl RateLimiter {
    /// A limiter under which no network has had a response. The seed must be random.
    pub fn new(limit: RateLimit, seed: u64) -> Self {
        // Rounded up, so that no second has more than its number.
        let interval_ns = SECOND.div_ceil(u64::from(limit.responses_per_second.max(1)));
        Self {
            cells: vec![Cell::default(); CELLS].into(),
            interval_ns,
            tolerance_ns: interval_ns * u64::from(limit.burst.saturating_sub(1)),
            slip: limit.slip,
            seed,
        }
    }

    /// Judges one response to a client, at a time that does not go back.
    pub fn check(&mut self, client: IpAddr, now_ns: Nanos) -> RateVerdict {
        let index = self.cell_of(client);
        let cell = &mut self.cells[index];
        if cell.due_ns <= now_ns.saturating_add(self.tolerance_ns) {
            cell.due_ns = cell.due_ns.max(now_ns).saturating_add(self.interval_ns);
            return RateVerdict::Send;
        }
        if self.slip == 0 {
            return RateVerdict::Drop;
        }
        cell.over += 1;
        if cell.over < self.slip {
            return RateVerdict::Drop;
        }
        cell.over = 0;
        RateVerdict::Truncate
    }

    /// The cell of a client's network.
    fn cell_of(&self, client: IpAddr) -> usize {
        let mut hasher = SipHasher13::new_with_keys(self.seed, 0);
        hasher.write_u64(ClientNetwork::of(client).number());
        let [.., high, low] = hasher.finish().to_be_bytes();
        usize::from(u16::from_be_bytes([high, low]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use RateVerdict::{Drop, Send, Truncate};
    use proptest::prelude::*;

    fn limiter(responses_per_second: u32, burst: u32, slip: u32) -> RateLimiter {
        let limit = RateLimit {
            responses_per_second,
            burst,
            slip,
        };
        RateLimiter::new(limit, 42)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let mut limiter = limiter(10, 3, 0);
        let client = ip("192.0.2.1");
        let start = 5 * SECOND;
        let verdicts: Vec<_> = (0..5).map(|_| limiter.check(client, start)).collect();
        assert_eq!(verdicts, [Send, Send, Send, Drop, Drop]);
        let interval = SECOND / 10;
        assert_eq!(limiter.check(client, start + interval - 1), Drop);
        assert_eq!(limiter.check(client, start + interval), Send);
        assert_eq!(limiter.check(client, start + interval), Drop);
        let later = start + 10 * SECOND;
        let verdicts: Vec<_> = (0..4).map(|_| limiter.check(client, later)).collect();
        assert_eq!(verdicts, [Send, Send, Send, Drop]);
    }

    #[test]
    fn every_nth_response_over_the_bound_is_truncated() {
        let over = |slip| -> Vec<RateVerdict> {
            let mut limiter = limiter(1, 1, slip);
            let client = ip("2001:db8::1");
            assert_eq!(limiter.check(client, SECOND), Send);
            (0..6).map(|_| limiter.check(client, SECOND)).collect()
        };
        assert_eq!(over(0), [Drop; 6]);
        assert_eq!(over(1), [Truncate; 6]);
        assert_eq!(over(3), [Drop, Drop, Truncate, Drop, Drop, Truncate]);
    }

    #[test]
    fn a_network_is_a_24_or_a_56_and_others_are_not_touched() {
        let mut limiter = limiter(1, 1, 0);
        let mut check = |client| limiter.check(ip(client), SECOND);
        assert_eq!(check("192.0.2.1"), Send);
        assert_eq!(check("192.0.2.254"), Drop);
        assert_eq!(check("::ffff:192.0.2.9"), Drop);
        assert_eq!(check("192.0.3.1"), Send);
        assert_eq!(check("2001:db8:0:ff::1"), Send);
        assert_eq!(check("2001:db8::2"), Drop);
        assert_eq!(check("2001:db8:0:100::1"), Send);
    }

    proptest! {
        #[test]
        fn no_network_has_more_than_burst_and_rate_allow(
            rate in 1_u32..2000,
            burst in 0_u32..50,
            slip in 0_u32..4,
            gaps in prop::collection::vec(0_u64..20_000_000, 1..400),
        ) {
            let mut limiter = limiter(rate, burst, slip);
            let client = ip("192.0.2.1");
            let mut now = SECOND;
            let mut sent = Vec::new();
            for gap in gaps {
                now += gap;
                if limiter.check(client, now) == Send {
                    sent.push(now);
                }
            }
            // In every window that begins with a response.
            for (i, &from) in sent.iter().enumerate() {
                for (j, &to) in sent.iter().enumerate().skip(i) {
                    let allowed = u64::from(burst.max(1)) + (to - from) * u64::from(rate) / SECOND;
                    prop_assert!(u64::try_from(j - i + 1).unwrap() <= allowed);
                }
            }
        }
    }
}
