//! All access to time.
//!
//! All times are [`Nanos`]: nanoseconds on the monotonic clock of this machine, or on a
//! [`ManualClock`] that a simulation advances.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// A time or a duration in nanoseconds on a link's clock. 2^64 ns are 584 years.
pub type Nanos = u64;

/// Nanoseconds in a second.
pub const SECOND: Nanos = 1_000_000_000;

/// A source of time.
pub trait Clock {
    /// The current time, in nanoseconds since an arbitrary origin. Never decreases.
    fn now(&self) -> Nanos;

    /// Real time (`CLOCK_REALTIME`) minus this clock, in nanoseconds: constant, because both are
    /// slewed alike, unless the real-time clock is stepped.
    fn realtime_offset(&self) -> i64;
}

/// `CLOCK_MONOTONIC` of the kernel, read through the vDSO (about 25 ns per reading).
#[derive(Clone, Copy, Debug, Default)]
pub struct MonotonicClock;

impl Clock for MonotonicClock {
    fn now(&self) -> Nanos {
        nanos(rustix::time::clock_gettime(
            rustix::time::ClockId::Monotonic,
        ))
    }

    /// Converts kernel receive timestamps, which are real time, to the monotonic clock. Takes the
    /// reading with the narrowest bracket of several, so that an interrupt between two readings is
    /// not taken for a step.
    fn realtime_offset(&self) -> i64 {
        let mut best = (Nanos::MAX, 0);
        for _ in 0..READINGS {
            let before = self.now();
            let real = nanos(rustix::time::clock_gettime(rustix::time::ClockId::Realtime));
            let width = self.now() - before;
            if width < best.0 {
                let middle = before + width / 2;
                best = (width, real.cast_signed() - middle.cast_signed());
            }
        }
        best.1
    }
}

/// Work in the background, with pauses in which other threads and processes get the processor.
#[derive(Debug)]
pub struct Pauses(Nanos);

impl Pauses {
    /// Time from one pause to the next: little beside a slice of the scheduler, 3 ms.
    const WORK_NS: Nanos = SECOND / 5000;

    /// The work begins.
    pub fn begin() -> Self {
        Self(MonotonicClock.now() + Self::WORK_NS)
    }

    /// Pauses as long as it has worked, if that was long enough. Call it after each piece of work.
    pub fn rest(&mut self) {
        if MonotonicClock.now() >= self.0 {
            MonotonicClock.sleep(Self::WORK_NS);
            *self = Self::begin();
        }
    }
}

impl MonotonicClock {
    /// Sleeps for at least `span`. For set-up and supervision, never within a trial.
    pub fn sleep(self, span: Nanos) {
        #[expect(clippy::disallowed_methods, reason = "the wrapper for all other code")]
        std::thread::sleep(Duration::from_nanos(span));
    }
}

const READINGS: usize = 16;

fn nanos(t: rustix::time::Timespec) -> Nanos {
    t.tv_sec.cast_unsigned() * SECOND + t.tv_nsec.cast_unsigned()
}

/// A clock that moves only when it is advanced. Clones share the time. Real time is equal to it
/// until it is stepped.
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Rc<Hands>);

#[derive(Debug, Default)]
struct Hands {
    now: Cell<Nanos>,
    realtime_offset: Cell<i64>,
}

impl ManualClock {
    /// Advances the time by `span`.
    pub fn advance(&self, span: Nanos) {
        self.advance_to(self.now() + span);
    }

    /// Advances the time to `moment`; a moment in the past has no effect.
    pub fn advance_to(&self, moment: Nanos) {
        self.0.now.set(self.now().max(moment));
    }

    /// Steps real time by this many nanoseconds, as an administrator does.
    pub fn step_realtime(&self, by_ns: i64) {
        let offset = &self.0.realtime_offset;
        offset.set(offset.get() + by_ns);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Nanos {
        self.0.now.get()
    }

    fn realtime_offset(&self) -> i64 {
        self.0.realtime_offset.get()
    }
}
