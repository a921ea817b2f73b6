//! The only door to time.
//!
//! All times are [`Nanos`]: nanoseconds on the monotonic clock of this machine, or on a
//! [`ManualClock`] that a simulation turns by hand.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// A moment or a span in nanoseconds on a link's clock. 2^64 ns are 584 years.
pub type Nanos = u64;

/// Nanoseconds in a second.
pub const SECOND: Nanos = 1_000_000_000;

/// Something that tells the time.
pub trait Clock {
    /// Now, in nanoseconds since an arbitrary moment. Never runs backwards.
    fn now(&self) -> Nanos;

    /// Real time (`CLOCK_REALTIME`) minus this clock, in nanoseconds: constant, because both are
    /// slewed alike, unless somebody steps the real-time clock.
    fn realtime_offset(&self) -> i64;
}

/// `CLOCK_MONOTONIC` of the kernel, read through the vDSO (about 25 ns a reading).
#[derive(Clone, Copy, Debug, Default)]
pub struct MonotonicClock;

impl Clock for MonotonicClock {
    fn now(&self) -> Nanos {
        nanos(rustix::time::clock_gettime(
            rustix::time::ClockId::Monotonic,
        ))
    }

    /// Kernel receive stamps are real time; this moves them onto the monotonic clock. Of several
    /// readings the one with the narrowest bracket is taken, so that an interrupt in between does
    /// not pass for a step.
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

impl MonotonicClock {
    /// Sleeps for at least `span`. For set-up and supervision, never within a trial.
    pub fn sleep(self, span: Nanos) {
        #[expect(clippy::disallowed_methods, reason = "this is the door")]
        std::thread::sleep(Duration::from_nanos(span));
    }
}

const READINGS: usize = 16;

fn nanos(t: rustix::time::Timespec) -> Nanos {
    t.tv_sec.cast_unsigned() * SECOND + t.tv_nsec.cast_unsigned()
}

/// A clock that moves only when told to. Clones share the time. Real time is the same until it is
/// stepped.
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Rc<Hands>);

#[derive(Debug, Default)]
struct Hands {
    now: Cell<Nanos>,
    realtime_offset: Cell<i64>,
}

impl ManualClock {
    /// Moves the time forward by `span`.
    pub fn advance(&self, span: Nanos) {
        self.advance_to(self.now() + span);
    }

    /// Moves the time forward to `moment`; a moment in the past changes nothing.
    pub fn advance_to(&self, moment: Nanos) {
        self.0.now.set(self.now().max(moment));
    }

    /// Steps real time by so many nanoseconds, as an administrator does.
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
