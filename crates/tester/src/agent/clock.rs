//! Offset between the controller's clock and another host's clock, and the bound of its error.
//!
//! ```text
//!   controller   t0 ------------------------------- t3
//!                   \                             /
//!   host              t1 ---------------------- t2
//! ```
//!
//! The four timestamps are those of the local monotonic clocks. The formulas are those of RFC 5905 section 8: the
//! offset of the host's clock is ((t1 - t0) + (t2 - t3)) / 2, the round-trip delay is (t3 - t0) - (t2 - t1). The error
//! of the offset is at most half the delay, for any asymmetry of the path. So the exchange with the least delay is the
//! best (the clock filter of section 10). Nothing here reads a clock.

use dns64_transport::clock::Nanos;
use serde::{Deserialize, Serialize};

/// A time request and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchange {
    /// The controller sends the request, on its clock.
    pub t0_ns: Nanos,
    /// The host receives it, on its own clock.
    pub t1_ns: Nanos,
    /// The host sends the answer, on its own clock.
    pub t2_ns: Nanos,
    /// The controller receives it, on its clock.
    pub t3_ns: Nanos,
}

impl Exchange {
    /// Returns the offset; `None` if the timestamps contradict each other.
    fn offset(self) -> Option<Offset> {
        let whole_ns = self.t3_ns.checked_sub(self.t0_ns)?;
        let at_host_ns = self.t2_ns.checked_sub(self.t1_ns)?;
        let slack_ns = parts_per_million(whole_ns, RATE_MAX_PPM);
        if at_host_ns > whole_ns.checked_add(slack_ns)?.checked_add(RESOLUTION_NS)? {
            return None;
        }
        let delay_ns = whole_ns.saturating_sub(at_host_ns);
        let [t0, t1, t2, t3] = [self.t0_ns, self.t1_ns, self.t2_ns, self.t3_ns].map(i128::from);
        let twice = (t1 - t0) + (t2 - t3);
        Some(Offset {
            offset_ns: i64::try_from(twice.div_euclid(2)).ok()?,
            // The clocks also drift during the exchange.
            bound_ns: delay_ns.div_ceil(2) + slack_ns + RESOLUTION_NS,
            at_ns: self.t0_ns + whole_ns / 2,
            exchanges: 1,
        })
    }
}

/// How far a host's clock is ahead of the controller's at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offset {
    /// Clock of the host minus clock of the controller.
    pub offset_ns: i64,
    /// Largest error of the offset at `at_ns`.
    pub bound_ns: Nanos,
    /// The moment of the offset, on the controller's clock.
    pub at_ns: Nanos,
    /// Number of exchanges from which it was chosen.
    pub exchanges: usize,
}

impl Offset {
    /// Returns the best offset of these exchanges; `None` if no exchange is consistent. More exchanges never widen the
    /// bound.
    pub fn of(exchanges: &[Exchange]) -> Option<Self> {
        let possible = exchanges.iter().filter_map(|exchange| exchange.offset());
        let number = possible.clone().count();
        let best = possible.min_by_key(|offset| offset.bound_ns)?;
        Some(Self {
            exchanges: number,
            ..best
        })
    }

    /// Converts a time of the controller's clock to the host's clock.
    pub fn to_host(self, controller_ns: Nanos) -> Nanos {
        moved(controller_ns, i128::from(self.offset_ns))
    }

    /// Converts a time of the host's clock to the controller's clock.
    pub fn to_controller(self, host_ns: Nanos) -> Nanos {
        moved(host_ns, -i128::from(self.offset_ns))
    }

    /// Returns the same offset for another moment of the controller's clock: without further measurements the bound
    /// widens by [`RATE_MAX_PPM`].
    #[must_use]
    pub fn at(self, controller_ns: Nanos) -> Self {
        let away_ns = controller_ns.abs_diff(self.at_ns);
        let widened = parts_per_million(away_ns, RATE_MAX_PPM);
        Self {
            bound_ns: self.bound_ns.saturating_add(widened),
            at_ns: controller_ns,
            ..self
        }
    }
}

/// Two offsets, such as before and after a trial: they give the drift of the clocks and the offset at every moment in
/// between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drift {
    first: Offset,
    last: Offset,
}

impl Drift {
    /// Returns `None` if the second is not after the first, or if the clock drifted more than the kernel can steer it:
    /// the host was restarted or suspended.
    pub fn between(first: Offset, last: Offset) -> Option<Self> {
        let span_ns = last.at_ns.checked_sub(first.at_ns).filter(|&ns| ns > 0)?;
        let moved_ns = last.offset_ns.abs_diff(first.offset_ns);
        let unsure_ns = first.bound_ns.saturating_add(last.bound_ns);
        let possible_ns = parts_per_million(span_ns, RATE_MAX_PPM).saturating_add(unsure_ns);
        (moved_ns <= possible_ns).then_some(Self { first, last })
    }

    /// Drift of the host's clock in parts per million; positive if it runs faster.
    pub fn ppm(self) -> f64 {
        let moved_ns = i128::from(self.last.offset_ns) - i128::from(self.first.offset_ns);
        moved_ns as f64 / self.span_ns() as f64 * PPM as f64
    }

    /// Returns the offset at a moment of the controller's clock. Between the two measurements it is interpolated
    /// linearly; the bound allows the rate to differ by [`WANDER_PPM`] from its mean. Outside, it is extrapolated from
    /// the nearer measurement.
    pub fn at(self, controller_ns: Nanos) -> Offset {
        let Self { first, last } = self;
        if controller_ns <= first.at_ns {
            return first.at(controller_ns);
        }
        if controller_ns >= last.at_ns {
            return last.at(controller_ns);
        }
        let (before, after) = (controller_ns - first.at_ns, last.at_ns - controller_ns);
        let span = i128::from(self.span_ns());
        let weighted = |from: i128, to: i128| {
            // No overflow, even with times and offsets of years.
            (from * i128::from(after) + to * i128::from(before)).div_euclid(span)
        };
        let offset = weighted(first.offset_ns.into(), last.offset_ns.into());
        let bound = weighted(first.bound_ns.into(), last.bound_ns.into());
        let wander_ns = parts_per_million(before.min(after), WANDER_PPM);
        Offset {
            // The result lies between two `i64` values.
            offset_ns: i64::try_from(offset).unwrap_or(first.offset_ns),
            bound_ns: u64::try_from(bound)
                .unwrap_or(u64::MAX)
                .saturating_add(wander_ns + RESOLUTION_NS),
            at_ns: controller_ns,
            exchanges: first.exchanges + last.exchanges,
        }
    }

    fn span_ns(self) -> Nanos {
        self.last.at_ns - self.first.at_ns
    }
}

/// Returns this share of a duration, rounded up.
fn parts_per_million(span_ns: Nanos, ppm: u64) -> Nanos {
    let share = (u128::from(span_ns) * u128::from(ppm)).div_ceil(u128::from(PPM));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// Returns a time shifted by `by_ns`, clamped to the range of the clock.
fn moved(moment_ns: Nanos, by_ns: i128) -> Nanos {
    let moved = (i128::from(moment_ns) + by_ns).clamp(0, i128::from(u64::MAX));
    u64::try_from(moved).unwrap_or(u64::MAX)
}

/// Largest rate at which two clocks drift apart, in parts per million. Linux steers the frequency of a clock by up to
/// 500 ppm (`MAXFREQ` in linux/timex.h, adjtimex(2)), and there are two clocks. A free-running oscillator is within 100
/// ppm (IEEE 802.3 requires that of a network card). A program can exceed this with the length of a tick (`ADJ_TICK` of
/// adjtimex(2)), as chronyd does while it corrects a large offset; [`Drift::between`] then finds two offsets that
/// contradict each other.
pub const RATE_MAX_PPM: u64 = 1000;

/// Largest difference of a clock's rate from its mean over a trial: the frequency tolerance PHI of RFC 5905 (section
/// 7.2). A clock that is slewed from the middle of a trial on can exceed it; the drift of the trials before and after
/// shows that.
pub const WANDER_PPM: u64 = 15;

/// Each timestamp is truncated to a nanosecond, and so is each mean.
const RESOLUTION_NS: Nanos = 2;

const PPM: u64 = 1_000_000;

#[cfg(test)]
mod tests;
