//! From which local port a question to an upstream leaves.
//!
//! Each question leaves from the next port of its upstream's pool, so that thousands of questions
//! leave from as many ports before one comes round again. By then its socket is renewed at another
//! random port, unless it is young.
//!
//! When turns are so full that queries wait for the next one, the questions of a turn share four ports,
//! and travel together. Whoever forges an answer has to guess the port of one question among those of
//! the pool, whether or not another question leaves from the same one.

use dns64_transport::clock::{Nanos, SECOND};

use super::actions::Actions;

/// The local ports of all upstreams, by upstream.
pub(super) struct Ports(Vec<Pool>);

/// The local ports of one upstream.
struct Pool {
    ports: Box<[Port]>,
    /// Port that is taken next.
    next: usize,
    /// Ports that this turn's questions share, if they do, and how many questions that were.
    shared: [usize; PORTS_SHARED],
    asked: usize,
    /// Whether they do.
    is_full: bool,
}

#[derive(Clone, Copy, Default)]
struct Port {
    /// Questions in flight there.
    in_flight: u16,
    /// When it was opened; `None`: not by this pool.
    opened_at: Option<Nanos>,
}

/// Questions of one turn, to one upstream, from which on those of the next turns share ports: as many
/// as a turn has queries. Each port costs a `sendmmsg` and a `recvmmsg`.
const FULL_TURN: usize = 64;

/// They share them up to a turn with fewer questions than these: turns are shorter when ports are
/// shared, and would be full by turns otherwise.
const QUIET_TURN: usize = 16;

/// Ports that each 64 questions of a turn share: few enough replies come to one for its receive buffer.
const PORTS_SHARED: usize = 4;

/// A port that comes round is used again if it was opened within so long: below some hundred
/// questions a second every question has a port of its own, above that a socket serves for some.
const LIFE_NS: Nanos = 10 * SECOND;

/// Ports with questions in flight that are passed over so that they can be renewed once those have
/// ended; a bound on the search.
const PASSED_MAX: usize = 16;

impl Ports {
    /// Pools of so many ports for so many upstreams.
    pub(super) fn new(upstreams: usize, ports: usize) -> Self {
        Self((0..upstreams).map(|_| Pool::new(ports)).collect())
    }

    /// The port that a question to `server` leaves from, counted as in flight there.
    pub(super) fn take(&mut self, server: usize, now: Nanos, actions: &mut Actions) -> usize {
        let pool = &mut self.0[server];
        let place = pool.asked % PORTS_SHARED;
        if pool.asked % FULL_TURN < PORTS_SHARED || !pool.is_full {
            let number = pool.next(now);
            pool.shared[place] = number;
            if pool.ports[number].renew(now) {
                actions.renew(server, number);
            }
        }
        pool.asked += 1;
        let number = pool.shared[place];
        let port = &mut pool.ports[number];
        port.in_flight = port.in_flight.saturating_add(1);
        number
    }

    /// A question is no longer in flight at a port.
    pub(super) fn release(&mut self, server: usize, port: usize) {
        let port = &mut self.0[server].ports[port];
        port.in_flight = port.in_flight.saturating_sub(1);
    }

    /// A new turn: its questions leave from other ports.
    pub(super) fn turn(&mut self) {
        for pool in &mut self.0 {
            let least = if pool.is_full { QUIET_TURN } else { FULL_TURN };
            pool.is_full = pool.asked >= least;
            pool.asked = 0;
        }
    }
}

impl Pool {
    fn new(ports: usize) -> Self {
        Self {
            ports: vec![Port::default(); ports].into(),
            next: 0,
            shared: [0; PORTS_SHARED],
            asked: 0,
            is_full: false,
        }
    }

    /// The next port in turn that is not old and in use, if there is one near.
    fn next(&mut self, now: Nanos) -> usize {
        let mut number = self.next;
        for _ in 0..PASSED_MAX {
            number = self.next;
            self.next = (number + 1) % self.ports.len();
            let port = &self.ports[number];
            if port.in_flight == 0 || !port.is_old(now) {
                break;
            }
        }
        number
    }
}

impl Port {
    fn is_old(&self, now: Nanos) -> bool {
        self.opened_at.is_none_or(|at| now - at >= LIFE_NS)
    }

    /// Whether the port is to be replaced now: it is old and nothing is in flight there.
    fn renew(&mut self, now: Nanos) -> bool {
        let renews = self.in_flight == 0 && self.is_old(now);
        if renews {
            self.opened_at = Some(now);
        }
        renews
    }
}

#[cfg(test)]
mod tests {
    use super::super::actions::Action;
    use super::*;

    /// Ports that questions of one turn leave from, and which of them are renewed first.
    fn turn(ports: &mut Ports, questions: usize, now: Nanos) -> (Vec<usize>, Vec<usize>) {
        let mut actions = Actions::default();
        ports.turn();
        let taken = (0..questions).map(|_| ports.take(0, now, &mut actions));
        let taken = taken.collect();
        let renewed = actions.list().iter().map(|action| match action {
            Action::Renew { server: 0, port } => *port,
            other => panic!("{other:?}"),
        });
        (taken, renewed.collect())
    }

    #[test]
    fn every_question_has_a_port_of_its_own_until_the_pool_comes_round() {
        let mut ports = Ports::new(1, 100);
        for number in 0..100 {
            let now = number as Nanos;
            assert_eq!(turn(&mut ports, 1, now), (vec![number], vec![number]));
            ports.release(0, number);
        }
        assert_eq!(turn(&mut ports, 1, 200), (vec![0], vec![]), "it is young");
        ports.release(0, 0);
        assert_eq!(turn(&mut ports, 2, LIFE_NS + 50), (vec![1, 2], vec![1, 2]));
    }

    #[test]
    fn questions_share_four_ports_from_a_full_turn_to_a_quiet_one() {
        let mut ports = Ports::new(1, 600);
        let distinct = |taken: &[usize]| {
            let distinct: std::collections::BTreeSet<_> = taken.iter().collect();
            distinct.len()
        };
        let turns = [
            (63, 63),
            (64, 64),
            (16, 4),
            (15, 4),
            (16, 16),
            (64, 64),
            (64, 4),
            (200, 16),
        ];
        for (questions, expected) in turns {
            let (taken, renewed) = turn(&mut ports, questions, 0);
            assert_eq!(distinct(&taken), expected);
            assert_eq!(distinct(&renewed), expected, "all of them are new");
        }
    }

    #[test]
    fn a_port_is_never_renewed_while_a_question_is_in_flight_there() {
        let mut ports = Ports::new(1, 64);
        let (held, _) = turn(&mut ports, 3, 0);
        for round in 1..4 {
            let now = round * LIFE_NS;
            for _ in 3..64 {
                let (taken, renewed) = turn(&mut ports, 1, now);
                assert_eq!(taken, renewed);
                assert!(!held.contains(&taken[0]), "it is to end first");
                ports.release(0, taken[0]);
            }
        }
        ports.release(0, held[1]);
        let (taken, renewed) = turn(&mut ports, 2, 4 * LIFE_NS);
        assert_eq!((taken, renewed), (vec![1, 3], vec![1, 3]));
    }

    #[test]
    fn when_all_ports_are_old_and_in_use_they_are_used_on() {
        let mut ports = Ports::new(1, 64);
        for _ in 0..8 {
            turn(&mut ports, 8, 0);
        }
        let (taken, renewed) = turn(&mut ports, 3, LIFE_NS);
        assert_eq!((taken.len(), renewed), (3, vec![]));
    }
}
