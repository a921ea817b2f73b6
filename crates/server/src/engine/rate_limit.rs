//! Limits the UDP responses to one client network, so that the server cannot be used to flood a
//! third party: the generic cell rate algorithm (ITU-T I.371 annex A, "virtual scheduling").
//!
//! One table serves all workers, in buckets with a lock each. Its size is fixed. A network whose next
//! response at the limit is due needs no cell, so the table has room for all networks that have
//! recently had a response. If a bucket is full of others, the network nearest to that
//! state is forgotten and starts again: it gains at most one burst. A random seed selects the buckets, so that nobody can
//! choose which networks share one.

use std::hash::{Hash as _, Hasher as _};
use std::sync::{Mutex, OnceLock, PoisonError};

use dns64_transport::clock::{Nanos, SECOND};
use siphasher::sip::SipHasher13;

use crate::settings::RateLimit;
use crate::settings::nets::ClientNetwork;

/// Number of buckets, a power of two, and of networks in each: 65,536 networks of 32 octets, 2 MiB.
const BUCKETS: usize = 1 << 13;
const WAYS: usize = 8;

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

/// The state of each network, for all engines of a server. It takes memory from the first check on.
#[derive(Debug)]
pub struct RateLimiter {
    buckets: OnceLock<Box<[Mutex<Bucket>]>>,
    seed: u64,
}

type Bucket = [Cell; WAYS];

/// The state of a network.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    network: Option<ClientNetwork>,
    /// Time of the next response at the limit: the algorithm's theoretical arrival time.
    due_ns: Nanos,
    /// Responses above the limit since the last truncated one.
    over: u32,
}

impl RateLimiter {
    /// A limiter in its initial state. The seed must be random.
    pub fn new(seed: u64) -> Self {
        Self {
            buckets: OnceLock::new(),
            seed,
        }
    }

    /// Decides about one response to a network.
    pub fn check(&self, limit: &RateLimit, network: ClientNetwork, now_ns: Nanos) -> RateVerdict {
        let mut hasher = SipHasher13::new_with_keys(self.seed, 0);
        network.hash(&mut hasher);
        let [.., high, low] = hasher.finish().to_be_bytes();
        let number = usize::from(u16::from_be_bytes([high, low])) % BUCKETS;
        let buckets = self.buckets.get_or_init(|| {
            let buckets = (0..BUCKETS).map(|_| Mutex::default());
            buckets.collect()
        });
        let mut bucket = buckets[number]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        cell_of(&mut bucket, network).check(limit, now_ns)
    }
}

/// The cell of a network: its own, or the one that says least.
fn cell_of(bucket: &mut Bucket, network: ClientNetwork) -> &mut Cell {
    let mut number = 0;
    for (i, cell) in bucket.iter().enumerate() {
        if cell.network == Some(network) {
            return &mut bucket[i];
        }
        if cell.due_ns < bucket[number].due_ns {
            number = i;
        }
    }
    bucket[number] = Cell {
        network: Some(network),
        ..Cell::default()
    };
    &mut bucket[number]
}

impl Cell {
    fn check(&mut self, limit: &RateLimit, now_ns: Nanos) -> RateVerdict {
        // Rounded up, so that no second exceeds the limit.
        let interval_ns = SECOND.div_ceil(u64::from(limit.responses_per_second.max(1)));
        let tolerance_ns = interval_ns * u64::from(limit.burst.saturating_sub(1));
        if self.due_ns <= now_ns.saturating_add(tolerance_ns) {
            self.due_ns = self.due_ns.max(now_ns).saturating_add(interval_ns);
            return RateVerdict::Send;
        }
        if limit.slip == 0 {
            return RateVerdict::Drop;
        }
        self.over += 1;
        if self.over < limit.slip {
            return RateVerdict::Drop;
        }
        self.over = 0;
        RateVerdict::Truncate
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use RateVerdict::{Drop, Send, Truncate};
    use proptest::prelude::*;

    fn limit(responses_per_second: u32, burst: u32, slip: u32) -> RateLimit {
        RateLimit {
            responses_per_second,
            burst,
            slip,
            exempt: crate::settings::nets::NetSet::default(),
        }
    }

    const CLIENT: ClientNetwork = ClientNetwork::Ipv6(7);

    #[test]
    fn burst_is_followed_by_the_rate() {
        let (limiter, limit) = (RateLimiter::new(42), limit(10, 3, 0));
        let check = |now| limiter.check(&limit, CLIENT, now);
        let start = 5 * SECOND;
        let verdicts: Vec<_> = (0..5).map(|_| check(start)).collect();
        assert_eq!(verdicts, [Send, Send, Send, Drop, Drop]);
        let interval = SECOND / 10;
        assert_eq!(check(start + interval - 1), Drop);
        assert_eq!(check(start + interval), Send);
        assert_eq!(check(start + interval), Drop);
        let later = start + 10 * SECOND;
        let verdicts: Vec<_> = (0..4).map(|_| check(later)).collect();
        assert_eq!(verdicts, [Send, Send, Send, Drop]);
    }

    #[test]
    fn every_nth_response_above_the_limit_is_truncated() {
        let over = |slip| -> Vec<RateVerdict> {
            let (limiter, limit) = (RateLimiter::new(42), limit(1, 1, slip));
            let check = || limiter.check(&limit, CLIENT, SECOND);
            assert_eq!(check(), Send);
            (0..6).map(|_| check()).collect()
        };
        assert_eq!(over(0), [Drop; 6]);
        assert_eq!(over(1), [Truncate; 6]);
        assert_eq!(over(3), [Drop, Drop, Truncate, Drop, Drop, Truncate]);
    }

    #[test]
    fn limit_holds_for_all_workers_together() {
        let (limiter, limit) = (Arc::new(RateLimiter::new(42)), limit(20, 20, 0));
        let workers = [0; 4].map(|_| {
            let (limiter, limit) = (Arc::clone(&limiter), limit.clone());
            std::thread::spawn(move || {
                let verdicts = (0..500).map(|_| limiter.check(&limit, CLIENT, SECOND));
                verdicts.filter(|verdict| *verdict == Send).count()
            })
        });
        let sent = workers.map(|worker| worker.join().unwrap());
        assert_eq!(sent.iter().sum::<usize>(), 20);
    }

    #[test]
    fn networks_do_not_share_a_limit() {
        // A thousand other networks have two responses each within the next 10 ms: one of them that shared the cell of
        // the network would be beyond the burst.
        let (limiter, limit) = (RateLimiter::new(42), limit(100, 2, 0));
        let networks: u64 = 100_000;
        for i in 0..networks {
            let now = SECOND + i * SECOND / networks;
            for _ in 0..2 {
                let verdict = limiter.check(&limit, ClientNetwork::Ipv6(i), now);
                assert_eq!(verdict, Send, "network {i}");
            }
        }
    }

    #[test]
    fn network_above_its_limit_stays_there_whatever_others_do() {
        let (limiter, limit) = (RateLimiter::new(42), limit(20, 20, 0));
        let sent = (0..10 * SECOND / 1_000_000).filter(|&ms| {
            let now = SECOND + ms * 1_000_000;
            for other in 0..20 {
                let network = u32::try_from(20 * ms + other).unwrap();
                limiter.check(&limit, ClientNetwork::Ipv4(network), now);
            }
            limiter.check(&limit, CLIENT, now) == Send
        });
        // 20 at once and 20 in each of ten seconds, while 20,000 other networks a second have a response.
        assert_eq!(sent.count(), 20 + 200 - 1);
    }

    proptest! {
        #[test]
        fn network_never_exceeds_burst_and_rate(
            rate in 1_u32..2000,
            burst in 0_u32..50,
            slip in 0_u32..4,
            gaps in prop::collection::vec(0_u64..20_000_000, 1..400),
        ) {
            let (limiter, limit) = (RateLimiter::new(42), limit(rate, burst, slip));
            let mut now = SECOND;
            let mut sent = Vec::new();
            for gap in gaps {
                now += gap;
                if limiter.check(&limit, CLIENT, now) == Send {
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
