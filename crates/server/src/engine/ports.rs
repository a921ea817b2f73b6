//! Selects the local port of a query to an upstream.
//!
//! Each query uses a random port of its upstream's pool, so that the ports before do not tell the next one. A port is
//! opened, at a random number, for the first query that uses it, and closed when it is old and has no query in flight: up
//! to some hundred queries per second, nearly every query has a new port, and an idle server has none open.
//!
//! If the iterations of the worker are so full that queries wait for the next one, the queries of
//! an iteration share four ports and are sent together. An attacker must guess the port of a query
//! among those of the pool, whether or not another query uses the same one.

use std::collections::VecDeque;

use dns64_transport::clock::{Nanos, SECOND};
use rand::RngExt as _;
use rand::rngs::StdRng;

use super::actions::Actions;

/// The local ports of all upstreams, by upstream.
pub(super) struct Ports(Vec<Pool>);

/// The local ports of one upstream.
struct Pool {
    ports: Box<[Port]>,
    /// Open ports, by the time at which they are old. One that was replaced meanwhile has another entry.
    ageing: VecDeque<(Nanos, usize)>,
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

/// Age up to which a port is used again. It stays open for as long again if it has queries in flight by then.
const LIFE_NS: Nanos = 10 * SECOND;

/// Number of ports with queries in flight that a search skips.
const PASSED_MAX: usize = 15;

/// Number of old ports of each upstream that an iteration looks at: closing one takes some microseconds.
const CLOSED_PER_TURN: usize = 16;

impl Ports {
    /// Creates pools of this many ports for each upstream.
    pub(super) fn new(upstreams: usize, ports: usize) -> Self {
        Self((0..upstreams).map(|_| Pool::new(ports)).collect())
    }

    /// Selects the port of a query to `server`, and counts the query there.
    pub(super) fn take(
        &mut self,
        server: usize,
        random: &mut StdRng,
        now: Nanos,
        actions: &mut Actions,
    ) -> usize {
        let pool = &mut self.0[server];
        let place = pool.asked % PORTS_SHARED;
        if pool.asked % FULL_TURN < PORTS_SHARED || !pool.is_full {
            let number = pool.any(random);
            pool.shared[place] = number;
            let port = &mut pool.ports[number];
            if port.in_flight == 0 && port.is_old(now) {
                if port.opened_at.replace(now).is_some() {
                    actions.close_port(server, number);
                }
                pool.ageing.push_back((now + LIFE_NS, number));
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

    /// Time at which the next port is old.
    pub(super) fn next_deadline(&self) -> Option<Nanos> {
        let next = self.0.iter().filter_map(|pool| pool.ageing.front());
        next.map(|(old_at, _)| *old_at).min()
    }

    /// Starts a new iteration, with other ports, and closes old ones.
    pub(super) fn turn(&mut self, now: Nanos, actions: &mut Actions) {
        for (server, pool) in self.0.iter_mut().enumerate() {
            let least = if pool.is_full { QUIET_TURN } else { FULL_TURN };
            pool.is_full = pool.asked >= least;
            pool.asked = 0;
            for _ in 0..CLOSED_PER_TURN {
                let Some(&(_, number)) = pool.ageing.front().filter(|(old_at, _)| *old_at <= now)
                else {
                    break;
                };
                pool.ageing.pop_front();
                let port = &mut pool.ports[number];
                if port.in_flight > 0 {
                    pool.ageing.push_back((now + LIFE_NS, number));
                } else if port.is_old(now) && port.opened_at.take().is_some() {
                    actions.close_port(server, number);
                }
            }
        }
    }
}

impl Pool {
    fn new(ports: usize) -> Self {
        Self {
            ports: vec![Port::default(); ports].into(),
            ageing: VecDeque::with_capacity(2 * ports),
            shared: [0; PORTS_SHARED],
            asked: 0,
            is_full: false,
        }
    }

    /// A random port without queries in flight, unless most have some.
    fn any(&self, random: &mut StdRng) -> usize {
        let mut number = 0;
        for _ in 0..=PASSED_MAX {
            number = random.random_range(0..self.ports.len());
            if self.ports[number].in_flight == 0 {
                break;
            }
        }
        number
    }
}

impl Port {
    /// Whether it is closed or to be closed: it has not been opened within its lifetime.
    fn is_old(&self, now: Nanos) -> bool {
        self.opened_at.is_none_or(|at| now - at >= LIFE_NS)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::SeedableRng as _;

    use super::super::actions::Action;
    use super::*;

    struct World {
        ports: Ports,
        random: StdRng,
    }

    impl World {
        fn new(ports: usize) -> Self {
            Self {
                ports: Ports::new(1, ports),
                random: StdRng::from_seed([3; 32]),
            }
        }

        /// The ports of the queries of one iteration, and those that are closed before.
        fn turn(&mut self, questions: usize, now: Nanos) -> (Vec<usize>, Vec<usize>) {
            let mut actions = Actions::default();
            self.ports.turn(now, &mut actions);
            let mut take = || self.ports.take(0, &mut self.random, now, &mut actions);
            let taken = (0..questions).map(|_| take()).collect();
            let closed = actions.list().iter().map(|action| match action {
                Action::ClosePort { server: 0, port } => *port,
                other => panic!("{other:?}"),
            });
            (taken, closed.collect())
        }
    }

    #[test]
    fn query_uses_a_random_port_that_is_new_or_young() {
        let mut world = World::new(100);
        let mut seen = BTreeSet::new();
        let mut order = Vec::new();
        for now in 1..1000 {
            let (taken, closed) = world.turn(1, now);
            seen.insert(taken[0]);
            assert_eq!(closed, [0; 0], "it is young");
            world.ports.release(0, taken[0]);
            order.push(taken[0]);
        }
        assert_eq!(seen.len(), 100);
        // What follows a port says nothing: nearly each occurrence has another successor.
        let successors: BTreeSet<_> = order.windows(2).map(|pair| (pair[0], pair[1])).collect();
        assert!(successors.len() > 900, "{}", successors.len());
    }

    #[test]
    fn old_port_is_replaced_when_it_is_used_before_it_is_closed() {
        let mut world = World::new(1);
        world.turn(1, 1);
        world.ports.release(0, 0);
        let mut actions = Actions::default();
        world
            .ports
            .take(0, &mut world.random, 2 * LIFE_NS, &mut actions);
        assert_eq!(actions.list().len(), 1, "closed, and opened by the query");
        world.ports.release(0, 0);
        assert_eq!(world.turn(0, 2 * LIFE_NS).1, [0; 0], "it is young");
        assert_eq!(world.turn(0, 3 * LIFE_NS).1, [0]);
    }

    #[test]
    fn idle_port_is_closed_and_one_with_a_query_in_flight_is_not() {
        let mut world = World::new(100);
        let (taken, _) = world.turn(2, 1);
        let [held, idle] = taken[..] else {
            panic!("{taken:?}");
        };
        world.ports.release(0, idle);
        assert_eq!(world.turn(0, LIFE_NS).1, [0; 0]);
        assert_eq!(world.turn(0, LIFE_NS + 1).1, [idle]);
        assert_eq!(world.ports.next_deadline(), Some(2 * LIFE_NS + 1));
        assert_eq!(world.turn(0, 3 * LIFE_NS).1, [0; 0]);
        world.ports.release(0, held);
        assert_eq!(world.turn(0, 4 * LIFE_NS).1, [held]);
        assert_eq!(world.ports.next_deadline(), None);
        assert_eq!(world.turn(0, 9 * LIFE_NS).1, [0; 0]);
    }

    #[test]
    fn queries_share_four_ports_while_iterations_are_full() {
        let mut world = World::new(60_000);
        let distinct = |taken: &[usize]| taken.iter().collect::<BTreeSet<_>>().len();
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
            let (taken, closed) = world.turn(questions, 1);
            // A port can be drawn twice.
            assert!((expected - 1..=expected).contains(&distinct(&taken)));
            assert_eq!(closed, [0; 0], "all of them are new");
        }
    }

    #[test]
    fn old_ports_in_use_are_reused_if_no_others_are_left() {
        let mut world = World::new(4);
        world.turn(60, 1);
        let (taken, closed) = world.turn(3, 2 * LIFE_NS);
        assert_eq!((taken.len(), closed), (3, vec![]));
    }
}
