//! The round-trip time of an upstream and the timeout that follows from it (RFC 6298).

use dns64_transport::clock::{Nanos, SECOND};

const MILLISECOND: Nanos = SECOND / 1000;

/// Timeout of an upstream that has not responded yet, as in Unbound (`unknown-server-time-limit`).
const INITIAL_NS: Nanos = 376 * MILLISECOND;

/// Shortest timeout, as in Unbound (`infra-cache-min-rtt`).
const WAIT_MIN_NS: Nanos = 50 * MILLISECOND;

/// Weights of one round trip in the smoothed time and in its variation, 1/8 and 1/4, and the factor
/// of the variation in the timeout (RFC 6298 section 2).
const TIME_SHARE: Nanos = 8;
const VARIATION_SHARE: Nanos = 4;
const VARIATIONS: Nanos = 4;

/// The round-trip times of one upstream, smoothed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rtt {
    /// `None` before the first response.
    smoothed: Option<Smoothed>,
}

#[derive(Clone, Copy, Debug)]
struct Smoothed {
    time_ns: Nanos,
    variation_ns: Nanos,
}

impl Rtt {
    /// Adds one round trip. Each query has an ID of its own, so that a late response is measured
    /// correctly too (the ambiguity that Karn's algorithm avoids does not occur).
    pub(super) fn heard(&mut self, rtt_ns: Nanos) {
        self.smoothed = Some(match self.smoothed {
            None => Smoothed {
                time_ns: rtt_ns,
                variation_ns: rtt_ns / 2,
            },
            Some(old) => {
                let off = old.time_ns.abs_diff(rtt_ns);
                let variation_ns = old.variation_ns - old.variation_ns / VARIATION_SHARE;
                Smoothed {
                    time_ns: old.time_ns - old.time_ns / TIME_SHARE + rtt_ns / TIME_SHARE,
                    variation_ns: variation_ns + off / VARIATION_SHARE,
                }
            }
        });
    }

    /// The smoothed round-trip time; `None` before the first response.
    pub(super) fn smoothed_ns(&self) -> Option<Nanos> {
        self.smoothed.map(|smoothed| smoothed.time_ns)
    }

    /// Time after which the query is retried.
    pub(super) fn timeout_ns(&self) -> Nanos {
        let wait = self.smoothed.map_or(INITIAL_NS, |smoothed| {
            smoothed.time_ns + VARIATIONS * smoothed.variation_ns
        });
        wait.max(WAIT_MIN_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_follows_smoothed_time_and_variation() {
        let mut rtt = Rtt::default();
        assert_eq!((rtt.smoothed_ns(), rtt.timeout_ns()), (None, INITIAL_NS));
        rtt.heard(100 * MILLISECOND);
        // RFC 6298 section 2.2: R + 4 * R / 2.
        assert_eq!(rtt.timeout_ns(), 300 * MILLISECOND);
        // Section 2.3: 7/8 * 100 + 1/8 * 180 = 110 and 3/4 * 50 + 1/4 * 80 = 57.5.
        rtt.heard(180 * MILLISECOND);
        assert_eq!(rtt.smoothed_ns(), Some(110 * MILLISECOND));
        assert_eq!(rtt.timeout_ns(), 340 * MILLISECOND);
    }

    #[test]
    fn timeout_of_steady_upstream_is_little_above_its_time() {
        for steady in [900 * MILLISECOND, 3 * SECOND] {
            let mut rtt = Rtt::default();
            for _ in 0..50 {
                rtt.heard(steady);
            }
            let wait = rtt.timeout_ns();
            assert!((steady..steady + steady / 100).contains(&wait), "{wait}");
        }
        let mut fast = Rtt::default();
        fast.heard(0);
        assert_eq!(fast.timeout_ns(), WAIT_MIN_NS);
    }
}
