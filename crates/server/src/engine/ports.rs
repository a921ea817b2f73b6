//! From which local port a question to an upstream leaves.

use dns64_transport::clock::{Nanos, SECOND};
use rand::Rng as _;
use rand::rngs::StdRng;

use crate::settings::PORTS_PER_UPSTREAM;

/// The local ports of all upstreams, by upstream.
pub(super) struct Ports(Vec<Pool>);

/// The local ports of one upstream's pool.
struct Pool {
    /// Questions in flight by port.
    in_flight: [u16; PORTS_PER_UPSTREAM],
    /// Port of this turn.
    current: usize,
    /// Port that is given up once nothing is in flight there.
    leaving: Option<usize>,
    /// Port that leaves next, and when.
    renew_next: usize,
    renew_at: Nanos,
}

/// Every port of a pool is changed within so long.
const POOL_LIFE_NS: Nanos = 60 * SECOND;

impl Ports {
    /// Pools for so many upstreams.
    pub(super) fn new(upstreams: usize, now: Nanos) -> Self {
        Self((0..upstreams).map(|_| Pool::new(now)).collect())
    }

    /// The port that a question to `server` leaves from, counted as in flight there.
    pub(super) fn take(&mut self, server: usize) -> usize {
        let ports = &mut self.0[server];
        ports.in_flight[ports.current] += 1;
        ports.current
    }

    /// A question is no longer in flight at a port. Whether the port is to be opened anew now.
    pub(super) fn release(&mut self, server: usize, port: usize) -> bool {
        let ports = &mut self.0[server];
        ports.in_flight[port] = ports.in_flight[port].saturating_sub(1);
        ports.left(port)
    }

    /// A new turn: questions leave from another port, chosen by chance. One port for all of a
    /// turn lets them travel together; which one it is, is as hard to guess as ever.
    ///
    /// Tells `renew` which ports (upstream, port) are to be opened anew now.
    pub(super) fn turn(
        &mut self,
        now: Nanos,
        random: &mut StdRng,
        mut renew: impl FnMut(usize, usize),
    ) {
        for (server, ports) in self.0.iter_mut().enumerate() {
            if ports.renew_at <= now && ports.leaving.is_none() {
                ports.renew_at = now + POOL_LIFE_NS / PORTS_PER_UPSTREAM as u64;
                let leaving = ports.renew_next;
                ports.renew_next = (leaving + 1) % PORTS_PER_UPSTREAM;
                ports.leaving = Some(leaving);
                if ports.left(leaving) {
                    renew(server, leaving);
                }
            }
            let pick = random.next_u32() as usize % PORTS_PER_UPSTREAM;
            ports.current = match ports.leaving {
                Some(leaving) if leaving == pick => (pick + 1) % PORTS_PER_UPSTREAM,
                _ => pick,
            };
        }
    }
}

impl Pool {
    fn new(now: Nanos) -> Self {
        Self {
            in_flight: [0; PORTS_PER_UPSTREAM],
            current: 0,
            leaving: None,
            renew_next: 0,
            renew_at: now + POOL_LIFE_NS / PORTS_PER_UPSTREAM as u64,
        }
    }

    /// Whether `port` was leaving and nothing is in flight there any more.
    fn left(&mut self, port: usize) -> bool {
        let left = self.leaving == Some(port) && self.in_flight[port] == 0;
        if left {
            self.leaving = None;
        }
        left
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng as _;

    #[test]
    fn every_port_is_renewed_within_the_life_of_the_pool_but_not_while_in_use() {
        let mut one = Ports::new(1, 0);
        let mut random = StdRng::from_seed([5; 32]);
        let mut renewed = Vec::new();
        let held = one.take(0);
        let mut now = 0;
        while now <= POOL_LIFE_NS + SECOND {
            one.turn(now, &mut random, |_, port| renewed.push(port));
            now += SECOND / 4;
        }
        assert!(!renewed.contains(&held), "something is in flight there");
        assert!(one.release(0, held), "it goes once that has ended");
        assert!(!one.release(0, held), "once");
        while renewed.len() < 2 * PORTS_PER_UPSTREAM {
            one.turn(now, &mut random, |_, port| renewed.push(port));
            now += SECOND / 4;
            assert!(now < 4 * POOL_LIFE_NS, "{renewed:?}");
        }
        let mut ports = renewed.clone();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), PORTS_PER_UPSTREAM);
    }
}
