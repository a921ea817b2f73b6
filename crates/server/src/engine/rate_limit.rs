//! Limits the UDP responses to one client network, so that the server cannot be used to flood a
//! third party: the generic cell rate algorithm (ITU-T I.371 annex A, "virtual scheduling").
//!
//! The table has a fixed size, without memory per client: networks whose hashes collide share a
//! cell and its limit. A random seed determines the collisions, so that nobody can choose them.

use std::hash::Hasher;
use std::net::IpAddr;

use dns64_transport::clock::{Nanos, SECOND};
use siphasher::sip::SipHasher13;

use crate::settings::RateLimit;
use crate::settings::nets::ClientNetwork;

/// Number of cells, 16 octets each: 1 MiB.
const CELLS: usize = 1 << 16;

/// The decision about one response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateVerdict {
    /// Send it.
    Send,
    /// Send it without records and with TC set.
    Truncate,
    /// Do not send it.
    Drop,
}

/// The limit, and the state of each network. Each worker has its own limiter for its responses.
#[derive(Clone, Debug)]
pub struct RateLimiter {
    cells: Box<[Cell]>,
    /// Interval of responses at the limit.
    interval_ns: Nanos,
    /// Largest time by which a response may be early.
    tolerance_ns: Nanos,
    slip: u32,
    seed: u64,
}

/// The state of the networks with one hash.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    /// Time of the next response at the limit: the algorithm's theoretical arrival time.
    due_ns: Nanos,
    /// Responses above the limit since the last truncated one.
    over: u32,
}

impl RateLimiter {
    /// A limiter in its initial state. The seed must be random.
    pub fn new(limit: RateLimit, seed: u64) -> Self {
        // Rounded up, so that no second exceeds the limit.
        let interval_ns = SECOND.div_ceil(u64::from(limit.responses_per_second.max(1)));
        Self {
            cells: vec![Cell::default(); CELLS].into(),
            interval_ns,
            tolerance_ns: interval_ns * u64::from(limit.burst.saturating_sub(1)),
            slip: limit.slip,
            seed,
        }
    }

    /// Decides about one response to a client, at a time that does not decrease.
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
    fn burst_is_followed_by_the_rate() {
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
    fn every_nth_response_above_the_limit_is_truncated() {
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
    fn networks_of_24_and_56_bits_are_limited_separately() {
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
        fn network_never_exceeds_burst_and_rate(
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
            // In every interval that begins with a response.
            for (i, &from) in sent.iter().enumerate() {
                for (j, &to) in sent.iter().enumerate().skip(i) {
                    let allowed = u64::from(burst.max(1)) + (to - from) * u64::from(rate) / SECOND;
                    prop_assert!(u64::try_from(j - i + 1).unwrap() <= allowed);
                }
            }
        }
    }
}
