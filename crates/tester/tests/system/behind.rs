//! A Measurer whose system calls take almost as long as the interval of the bursts, so that it sends several bursts per
//! turn.

use dns64_transport::clock::{Clock as _, ManualClock, SECOND};
use dns64_transport::memory::Network;
use dns64bench::trial::result::{Answers, Outcome};
use dns64bench::trial::summary::result;
use dns64bench::trial::surroundings::Surroundings;

use crate::dut::Dut;
use crate::rough::Rough;
use crate::script::Conduct;
use crate::trial::{MILLISECOND, NONE, PLAIN, Shards, Trial};

/// Five queries every 12.5 us. Half of the replies in 400 ms exceed the receive queue of a port, 65,536.
const FAST: Trial = Trial {
    rate_qps: 400_000,
    duration_ns: 2 * SECOND / 5,
    timeout_ns: 100 * MILLISECOND,
    ..PLAIN
};

/// A turn of one burst takes 20 us, and one of four bursts 50 us.
const CALL_NS: u64 = 10_000;

#[test]
fn sender_of_several_bursts_per_turn_receives_all_replies() {
    let spec = FAST.spec();
    let clock = ManualClock::default();
    let network = Network::new(&clock, 1);
    let server = network.server(spec.server, FAST.impairment);
    let mut dut = Dut::new(server, &clock, Conduct::Good);
    let local = "2001:2::1".parse().unwrap();
    let link = network.client(local, 1, spec.server, FAST.impairment);
    let mut link = Rough::over(link, &clock);
    link.call_ns = CALL_NS;
    let mut shards = Shards::begin(&spec, vec![link], &clock, MILLISECOND);
    while let Some(idle_until) = shards.turn(None) {
        dut.turn();
        let next = network.next_arrival().unwrap_or(idle_until);
        clock.advance_to(next.min(idle_until).max(clock.now() + 1));
    }
    let reports = shards.reports;
    assert_eq!(reports[0].counters.receive_drops, 0);
    let result = result(&spec, &reports, None, Surroundings::default());
    assert_eq!(result.outcome, Outcome::Passed);
    let valid = 160_000;
    assert_eq!(result.answers, Answers { valid, ..NONE });
    // Precondition: bursts were due while it received replies.
    assert!(result.timing.lateness_ns_max > CALL_NS / 2);
}
