//! Literal exchanges, and a property: the true offset is always within the bound.

use proptest::prelude::*;

use super::*;

const SECOND_NS: i128 = 1_000_000_000;

fn exchange(t0_ns: Nanos, t1_ns: Nanos, t2_ns: Nanos, t3_ns: Nanos) -> Exchange {
    Exchange {
        t0_ns,
        t1_ns,
        t2_ns,
        t3_ns,
    }
}

#[test]
fn symmetric_path_gives_the_exact_offset() {
    // 10 us each way, 5 us at the host, whose clock is ahead by 1 s.
    let offset = Offset::of(&[exchange(1_000_000, 1_001_010_000, 1_001_015_000, 1_025_000)]);
    let expected = Offset {
        offset_ns: 1_000_000_000,
        // Half of 20 us, 25 us at 1000 ppm, and the resolution.
        bound_ns: 10_000 + 25 + 2,
        at_ns: 1_012_500,
        exchanges: 1,
    };
    assert_eq!(offset, Some(expected));
    assert_eq!(expected.to_host(5), 1_000_000_005);
    assert_eq!(expected.to_controller(1_000_000_005), 5);
    assert_eq!(expected.to_controller(5), 0, "before its clock began");
}

#[test]
fn host_that_booted_later_is_behind() {
    let offset = Offset::of(&[exchange(9_000_000_000, 1000, 1000, 9_000_002_000)]).unwrap();
    assert_eq!(offset.offset_ns, -9_000_000_000);
    assert_eq!(offset.to_host(9_000_001_000), 1000);
}

#[test]
fn exchange_with_the_least_delay_is_used() {
    let slow = exchange(0, 500_000, 500_000, 600_000);
    let fast = exchange(1_000_000, 1_010_000, 1_010_000, 1_020_000);
    let offset = Offset::of(&[slow, fast, slow]).unwrap();
    assert_eq!((offset.offset_ns, offset.at_ns), (0, 1_010_000));
    assert_eq!(offset.exchanges, 3);
}

#[test]
fn contradictory_exchanges_give_no_offset() {
    assert_eq!(Offset::of(&[]), None);
    let answered_before_it_was_asked = exchange(1000, 5, 6, 900);
    let sent_before_it_came = exchange(1000, 7, 6, 2000);
    let longer_at_the_host_than_in_all = exchange(1000, 0, 10_000, 2000);
    let all = [
        answered_before_it_was_asked,
        sent_before_it_came,
        longer_at_the_host_than_in_all,
    ];
    assert_eq!(Offset::of(&all), None);
    assert_eq!(Offset::of(&[exchange(0, u64::MAX, u64::MAX, 1)]), None);
}

fn offset(offset_ns: i64, bound_ns: Nanos, at_ns: Nanos) -> Offset {
    Offset {
        offset_ns,
        bound_ns,
        at_ns,
        exchanges: 8,
    }
}

#[test]
fn two_offsets_give_the_drift() {
    // 600 us in 60 s.
    let first = offset(5_000_000, 20_000, 1_000_000_000);
    let last = offset(5_600_000, 40_000, 61_000_000_000);
    let drift = Drift::between(first, last).unwrap();
    assert!((drift.ppm() - 10.0).abs() < 1e-9);
    let middle = drift.at(31_000_000_000);
    assert_eq!(middle.offset_ns, 5_300_000);
    // 30 s at 15 ppm.
    assert_eq!(middle.bound_ns, 30_000 + 450_000 + 2);
    assert_eq!(drift.at(first.at_ns), first);
    // Outside, only the kernel's limit is known.
    assert_eq!(drift.at(62_000_000_000).bound_ns, 40_000 + 1_000_000);
}

#[test]
fn restarted_host_has_no_drift() {
    let first = offset(5_000_000, 20_000, 1_000_000_000);
    assert_eq!(
        Drift::between(first, offset(-5_000_000_000, 20_000, 61_000_000_000)),
        None
    );
    assert_eq!(Drift::between(first, first), None);
    assert_eq!(Drift::between(first, offset(5_000_000, 20_000, 0)), None);
}

/// A clock that is ahead by `ahead_ns` at the controller's 0 and runs at `ppm` up to `turn_ns`, then at
/// `later_ppm`.
#[derive(Clone, Copy, Debug)]
struct HostClock {
    ahead_ns: i128,
    ppm: i128,
    later_ppm: i128,
    turn_ns: i128,
}

impl HostClock {
    fn steady(ahead_ns: i128, ppm: i128) -> Self {
        Self {
            ahead_ns,
            ppm,
            later_ppm: ppm,
            turn_ns: 0,
        }
    }

    fn shows(self, controller_ns: Nanos) -> Nanos {
        let now = i128::from(controller_ns);
        let (early, late) = (now.min(self.turn_ns), (now - self.turn_ns).max(0));
        let gained = (early * self.ppm + late * self.later_ppm).div_euclid(1_000_000);
        u64::try_from(now + self.ahead_ns + gained).unwrap()
    }

    fn exchange(self, (t0_ns, there_ns, held_ns, back_ns): Times) -> Exchange {
        Exchange {
            t0_ns,
            t1_ns: self.shows(t0_ns + there_ns),
            t2_ns: self.shows(t0_ns + there_ns + held_ns),
            t3_ns: t0_ns + there_ns + held_ns + back_ns,
        }
    }

    /// Returns whether the true offset is within the bound.
    fn is_within(self, told: Offset) -> bool {
        let truth = i128::from(self.shows(told.at_ns)) - i128::from(told.at_ns);
        (truth - i128::from(told.offset_ns)).unsigned_abs() <= u128::from(told.bound_ns)
    }
}

/// Time of sending, delay to the host, time at the host, delay back.
type Times = (Nanos, Nanos, Nanos, Nanos);

/// Exchanges within 100 ms from `begin_ns` on, with delays from 0 to 50 ms.
fn times(begin_ns: Nanos) -> impl Strategy<Value = Vec<Times>> {
    let delay = || prop_oneof![0..1000_u64, 0..1_000_000_u64, 0..50_000_000_u64];
    let when = begin_ns..begin_ns + 100_000_000;
    prop::collection::vec((when, delay(), delay(), delay()), 1..10)
}

/// Hosts that booted up to a year before or after the controller.
fn ahead() -> impl Strategy<Value = i128> {
    let year_ns = 365 * 86_400 * SECOND_NS;
    prop_oneof![-SECOND_NS..SECOND_NS, -year_ns..year_ns]
}

/// A time on the controller's clock at which no host's clock is negative.
const LATE_NS: Nanos = 400 * 86_400 * 1_000_000_000;

fn offset_of(clock: HostClock, times: &[Times]) -> Offset {
    let exchanges: Vec<_> = times.iter().map(|it| clock.exchange(*it)).collect();
    Offset::of(&exchanges).unwrap()
}

proptest! {
    #[test]
    fn true_offset_is_within_the_bound_for_any_asymmetry(
        times in times(LATE_NS), ahead in ahead(), ppm in -1000_i128..=1000,
    ) {
        let clock = HostClock::steady(ahead, ppm);
        prop_assert!(clock.is_within(offset_of(clock, &times)));
    }

    #[test]
    fn more_exchanges_never_widen_the_bound(
        times in times(LATE_NS), more in times(LATE_NS), ppm in -1000_i128..=1000,
    ) {
        let clock = HostClock::steady(0, ppm);
        let few = offset_of(clock, &times);
        let all = offset_of(clock, &[times, more].concat());
        prop_assert!(all.bound_ns <= few.bound_ns);
    }

    #[test]
    fn bound_of_one_offset_holds_for_a_slewed_clock(
        times in times(LATE_NS), ahead in ahead(), later in 0..3_600_000_000_000_u64,
        ppm in prop_oneof![Just(-500_i128), Just(500), -1000_i128..=1000],
    ) {
        let clock = HostClock::steady(ahead, ppm);
        let told = offset_of(clock, &times);
        prop_assert!(clock.is_within(told.at(told.at_ns + later)));
        prop_assert!(clock.is_within(told.at(told.at_ns - later)));
    }

    #[test]
    fn bound_of_two_offsets_holds_at_every_moment_between(
        before in times(LATE_NS), after in times(LATE_NS + 60_000_000_000), ahead in ahead(),
        ppm in prop_oneof![Just(-500_i128), Just(500), -985_i128..=985],
        wander in -15_i128..=15, turn in 0..=1000_u64, share in 0..=1000_u64,
    ) {
        // Relative to the mean rate of a clock that changes its rate, both rates are within the wander.
        let turn_ns = i128::from(LATE_NS + 60_000_000 * turn);
        let clock = HostClock { ahead_ns: ahead, ppm, later_ppm: ppm + wander, turn_ns };
        let drift = Drift::between(offset_of(clock, &before), offset_of(clock, &after)).unwrap();
        let within = drift.first.at_ns + drift.span_ns() / 1000 * share;
        let told = drift.at(within);
        prop_assert!(clock.is_within(told), "{told:?}");
        if wander == 0 {
            let unsure_ns = drift.first.bound_ns + drift.last.bound_ns;
            let unsure_ppm = unsure_ns as f64 / drift.span_ns() as f64 * PPM as f64;
            prop_assert!((drift.ppm() - ppm as f64).abs() <= unsure_ppm + 1e-3);
        }
    }

    #[test]
    fn conversion_to_the_host_and_back_is_the_identity(
        offset_ns in -1_000_000_000_000_i64..1_000_000_000_000, moment in LATE_NS..2 * LATE_NS,
    ) {
        let told = offset(offset_ns, 1, 0);
        prop_assert_eq!(told.to_controller(told.to_host(moment)), moment);
    }
}
