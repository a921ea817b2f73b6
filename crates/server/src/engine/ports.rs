//! Selects the local port of a query to an upstream.
//!
//! Each query uses the next port of its upstream's pool, so that thousands of queries use as many
//! ports before one is used again. By then its socket is replaced by one at another random port,
//! unless it is new.
//!
//! If the iterations of the worker are so full that queries wait for the next one, the queries of
//! an iteration share four ports and are sent together. An attacker must guess the port of a query
//! among those of the pool, whether or not another query uses the same one.

use dns64_transport::clock::{Nanos, SECOND};

use super::actions::Actions;

/// The local ports of all upstreams, by upstream.
pub(super) struct Ports(Vec<Pool>);

/// The local ports of one upstream.
struct Pool {
    ports: Box<[Port]>,
    /// The next port.
    next: usize,
    /// Shared ports of this iteration, and number of its queries.
    shared: [usize; PORTS_SHARED],
    asked: usize,
    /// Whether the ports are shared.
    is_full: bool,
}

#[derive(Clone, Copy, Default)]
struct Port {
    /// Number of queries in flight.
    in_flight: u16,
    /// Opening time; `None` if this pool has not opened it.
    opened_at: Option<Nanos>,
}

/// Number of queries to one upstream in an iteration from which on the next iterations share ports:
/// the number of queries that an iteration handles. Each port costs a `sendmmsg` and a `recvmmsg`.
const FULL_TURN: usize = 64;

/// Ports are shared until an iteration has fewer queries than this. The limit is lower, because
/// iterations are shorter with shared ports, and sharing would otherwise alternate.
const QUIET_TURN: usize = 16;

/// Number of ports that each 64 queries of an iteration share: so few responses arrive at one that
/// they fit into its receive buffer.
const PORTS_SHARED: usize = 4;

/// Age up to which a port is used again. Up to some hundred queries per second, every query has its
/// own port; above that, a socket serves several.
const LIFE_NS: Nanos = 10 * SECOND;

/// Largest number of old ports with queries in flight that a search skips, so that they can be
/// replaced later.
const PASSED_MAX: usize = 16;

impl Ports {
    /// Creates pools of this many ports for each upstream.
    pub(super) fn new(upstreams: usize, ports: usize) -> Self {
        Self((0..upstreams).map(|_| Pool::new(ports)).collect())
    }

    /// Selects the port of a query to `server`, and counts the query there.
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

    /// Removes a query in flight from a port.
    pub(super) fn release(&mut self, server: usize, port: usize) {
        let port = &mut self.0[server].ports[port];
        port.in_flight = port.in_flight.saturating_sub(1);
    }

    /// Starts a new iteration, with other ports.
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

    /// The next port that is not both old and in use, if there is one nearby.
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

    /// Whether the port must be replaced now: it is old and has no queries in flight.
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

    /// The ports of the queries of one iteration, and those that are replaced before.
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
    fn every_query_has_its_own_port_until_the_pool_is_used_up() {
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
    fn queries_share_four_ports_while_iterations_are_full() {
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
    fn port_with_query_in_flight_is_not_renewed() {
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
    fn old_ports_in_use_are_reused_if_no_others_are_left() {
        let mut ports = Ports::new(1, 64);
        for _ in 0..8 {
            turn(&mut ports, 8, 0);
        }
        let (taken, renewed) = turn(&mut ports, 3, LIFE_NS);
        assert_eq!((taken.len(), renewed), (3, vec![]));
    }
}
