//! Counts steps of work in tests, so that the cost of a message is a number that no load on the
//! machine changes. A step is a label, a record or a name that is looked at.

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Counts a step. Nothing outside of tests.
#[inline(always)]
pub(super) fn step() {
    #[cfg(test)]
    STEPS.set(STEPS.get() + 1);
}

/// The steps of a call.
#[cfg(test)]
pub(super) fn steps<T>(call: impl FnOnce() -> T) -> (u64, T) {
    let before = STEPS.get();
    let result = call();
    (STEPS.get() - before, result)
}
