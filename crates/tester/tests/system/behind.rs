//! A Measurer whose system calls take almost as long as the bursts are apart: several leave in each turn.

use dns64_transport::clock::{Clock as _, ManualClock, SECOND};
use dns64_transport::memory::Network;
use dns64bench::trial::result::{Answers, Outcome};
use dns64bench::trial::summary::result;
use dns64bench::trial::surroundings::Surroundings;

use crate::dut::Dut;
use crate::rough::Rough;
use crate::script::Conduct;
use crate::trial::{MILLISECOND, NONE, PLAIN, Shards, Trial};

/// Five queries every 12.5 us. In 400 ms half of the replies are more than the receive queue of a port holds, 65,536.
const FAST: Trial = Trial {
    rate_qps: 400_000,
    duration_ns: 2 * SECOND / 5,
    timeout_ns: 100 * MILLISECOND,
    ..PLAIN
};

/// A turn of one burst takes 20 us, and one of four bursts 50 us.
const CALL_NS: u64 = 10_000;

#[test]
fn replies_do_not_pile_up_behind_a_sender_of_several_bursts_a_turn() {
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
    // Bursts were due while it took in replies, or this shows nothing.
    assert!(result.timing.lateness_ns_max > CALL_NS / 2);
}
