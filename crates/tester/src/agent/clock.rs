//! What another host's clock shows when ours shows something, and how sure that is.
//!
//! ```text
//!   controller   t0 ------------------------------- t3
//!                   \                             /
//!   host              t1 ---------------------- t2
//! ```
//!
//! Each of the four stamps is of the monotonic clock of where it is taken. The formulas are those of RFC
//! 5905 section 8: the offset of the host's clock is ((t1 - t0) + (t2 - t3)) / 2, the round-trip delay
//! (t3 - t0) - (t2 - t1), and the offset is wrong by half the delay at most, however the delay is shared
//! by the two ways. So the exchange with the least delay is the best (the clock filter of its section
//! 10). Pure: nothing here reads a clock.

use dns64_transport::clock::Nanos;
use serde::{Deserialize, Serialize};

/// One question for the time, and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchange {
    /// The controller sends the question, on its clock.
    pub t0_ns: Nanos,
    /// The host receives it, on its own clock.
    pub t1_ns: Nanos,
    /// The host sends the answer, on its own clock.
    pub t2_ns: Nanos,
    /// The controller receives it, on its clock.
    pub t3_ns: Nanos,
}

impl Exchange {
    /// What it says of the offset; `None` if the stamps cannot be.
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
            // While the exchange lasts the offset changes as well.
            bound_ns: delay_ns.div_ceil(2) + slack_ns + RESOLUTION_NS,
            at_ns: self.t0_ns + whole_ns / 2,
            exchanges: 1,
        })
    }
}

/// How far a host's clock is ahead of the controller's at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offset {
    /// Clock of the host minus clock of the controller.
    pub offset_ns: i64,
    /// The true offset at `at_ns` is no further away than this.
    pub bound_ns: Nanos,
    /// The moment, on the controller's clock.
    pub at_ns: Nanos,
    /// Exchanges that it was chosen from.
    pub exchanges: usize,
}

impl Offset {
    /// The best of these exchanges; `None` if none of them can be. More exchanges never widen the
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

    /// A moment of the controller's clock on the clock of the host.
    pub fn to_host(self, controller_ns: Nanos) -> Nanos {
        moved(controller_ns, i128::from(self.offset_ns))
    }

    /// A moment of the host's clock on the clock of the controller.
    pub fn to_controller(self, host_ns: Nanos) -> Nanos {
        moved(host_ns, -i128::from(self.offset_ns))
    }

    /// The same at another moment of the controller's clock, when nothing else is known: the bound
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

/// Two offsets, such as before and after a trial: how fast the clocks drift apart, and the offset at every
/// moment between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drift {
    first: Offset,
    last: Offset,
}

impl Drift {
    /// `None` if the second is not after the first, or if the clock went further than the kernel steers
    /// one: the host was restarted, or suspended.
    pub fn between(first: Offset, last: Offset) -> Option<Self> {
        let span_ns = last.at_ns.checked_sub(first.at_ns).filter(|&ns| ns > 0)?;
        let moved_ns = last.offset_ns.abs_diff(first.offset_ns);
        let unsure_ns = first.bound_ns.saturating_add(last.bound_ns);
        let possible_ns = parts_per_million(span_ns, RATE_MAX_PPM).saturating_add(unsure_ns);
        (moved_ns <= possible_ns).then_some(Self { first, last })
    }

    /// How much faster the host's clock runs, in parts per million.
    pub fn ppm(self) -> f64 {
        let moved_ns = i128::from(self.last.offset_ns) - i128::from(self.first.offset_ns);
        moved_ns as f64 / self.span_ns() as f64 * PPM as f64
    }

    /// The offset at a moment of the controller's clock. Between the two it lies on the straight line, with
    /// room for a rate that wanders by [`WANDER_PPM`] around its mean; outside it is known as from one of
    /// them.
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
            // Times of years and offsets of years fit by far.
            (from * i128::from(after) + to * i128::from(before)).div_euclid(span)
        };
        let offset = weighted(first.offset_ns.into(), last.offset_ns.into());
        let bound = weighted(first.bound_ns.into(), last.bound_ns.into());
        let wander_ns = parts_per_million(before.min(after), WANDER_PPM);
        Offset {
            // Between two numbers that fit.
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

/// This share of a span, rounded up.
fn parts_per_million(span_ns: Nanos, ppm: u64) -> Nanos {
    let share = (u128::from(span_ns) * u128::from(ppm)).div_ceil(u128::from(PPM));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// A moment so much later, within what a clock can show.
fn moved(moment_ns: Nanos, by_ns: i128) -> Nanos {
    let moved = (i128::from(moment_ns) + by_ns).clamp(0, i128::from(u64::MAX));
    u64::try_from(moved).unwrap_or(u64::MAX)
}

/// Rate at which two clocks move apart at most, in parts per million. Linux steers the frequency of a clock by up to
/// 500 ppm (`MAXFREQ` in linux/timex.h, adjtimex(2)), and here are two of them. An oscillator by itself is within
/// 100 ppm (IEEE 802.3 asks for that of a network card). A program can go beyond by the length of a tick (`ADJ_TICK` of
/// adjtimex(2)), as chronyd does while it corrects a large offset; [`Drift::between`] then finds two offsets that contradict
/// each other.
pub const RATE_MAX_PPM: u64 = 1000;

/// How far the rate of a clock is from its mean over a trial: the frequency tolerance PHI of RFC 5905 (section
/// 7.2). A clock that somebody starts to slew in the midst of a trial can go further; the drift of the trials before and
/// after tells that.
pub const WANDER_PPM: u64 = 15;

/// Each stamp is cut to a nanosecond, and so is each mean.
const RESOLUTION_NS: Nanos = 2;

const PPM: u64 = 1_000_000;

#[cfg(test)]
mod tests;
