//! Places for connections, shared fairly among client networks.
//!
//! A new connection replaces another one if its network has reached its limit, or if the table is
//! full: in the first case one of its own network, in the second one of the network with the most
//! connections. Idle connections are closed first, then those that have waited longest for a
//! response. Each operation takes logarithmic time in the number of connections.

use std::collections::{BTreeSet, HashMap};

use dns64_transport::clock::Nanos;

use crate::settings::nets::ClientNetwork;

/// A connection that has been busy without progress for this long may be closed like an idle one.
/// RFC 8767 section 5 recommends that clients get a response within this time, so a connection that
/// waits longer waits for a name that does not resolve.
const STUCK_NS: Nanos = 1_800_000_000;

/// The state of a connection. The smallest is closed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Standing {
    /// Whether it has unanswered queries.
    pub busy: bool,
    /// Time of the last progress: a response was sent, or the first query after all responses
    /// arrived.
    pub since: Nanos,
}

impl Standing {
    fn makes_room(self, now: Nanos) -> bool {
        !self.busy || now.saturating_sub(self.since) >= STUCK_NS
    }
}

/// Maximum numbers of connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Limit for all networks together.
    pub total: usize,
    /// Limit for one network.
    pub network: usize,
}

/// Reason why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The network has reached its limit, and its connections are busy.
    Network,
    /// The table is full of connections that must not be closed.
    Full,
}

/// Connections by number, each with a value.
#[derive(Debug)]
pub(crate) struct Places<T> {
    next: u64,
    held: HashMap<u64, Place<T>>,
    networks: HashMap<ClientNetwork, BTreeSet<(Standing, u64)>>,
    /// Networks ordered by number of connections; among equals, those with an idle connection are
    /// last.
    sizes: BTreeSet<(usize, bool, ClientNetwork)>,
}

#[derive(Debug)]
struct Place<T> {
    network: ClientNetwork,
    standing: Standing,
    value: T,
}

impl<T> Default for Places<T> {
    fn default() -> Self {
        Self {
            next: 0,
            held: HashMap::new(),
            networks: HashMap::new(),
            sizes: BTreeSet::new(),
        }
    }
}

impl<T> Places<T> {
    /// Ensures a place for a new connection of a network. Returns the value of the evicted
    /// connection, if any.
    ///
    /// # Errors
    ///
    /// There is no place.
    pub(crate) fn make_room(
        &mut self,
        network: ClientNetwork,
        limits: Limits,
        now: Nanos,
    ) -> Result<Option<T>, Refused> {
        let own = self.networks.get(&network);
        let (count, first) = (own.map_or(0, BTreeSet::len), own.and_then(BTreeSet::first));
        if count < limits.network && self.held.len() < limits.total {
            return Ok(None);
        }
        let first = first.filter(|(standing, _)| standing.makes_room(now));
        let (victim, refused) = if count >= limits.network {
            (first, Refused::Network)
        } else {
            (self.of_largest(count, now).or(first), Refused::Full)
        };
        match victim {
            // With limits of 0 there is never a place.
            Some(&(_, number)) if limits.total > 0 => Ok(self.release(number)),
            _ => Err(refused),
        }
    }

    /// The connection of the largest network that is evicted for a network with `count`
    /// connections.
    fn of_largest(&self, count: usize, now: Nanos) -> Option<&(Standing, u64)> {
        let &(most, _, largest) = self.sizes.last()?;
        let first = self.networks.get(&largest)?.first()?;
        // A busy connection is evicted only if its network still has more than the other
        // afterwards.
        let fair = most > count + 1 || (most > count && first.0.makes_room(now));
        fair.then_some(first)
    }

    /// Adds a connection, which is idle at first. Returns its number.
    pub(crate) fn take(&mut self, network: ClientNetwork, now: Nanos, value: T) -> u64 {
        let number = self.next;
        self.next += 1;
        let standing = Standing {
            busy: false,
            since: now,
        };
        let place = Place {
            network,
            standing,
            value,
        };
        self.held.insert(number, place);
        self.change(network, |connections| {
            connections.insert((standing, number));
        });
        number
    }

    /// Records the state of a connection.
    pub(crate) fn stand(&mut self, number: u64, standing: Standing) {
        let Some(place) = self.held.get_mut(&number) else {
            return;
        };
        let before = std::mem::replace(&mut place.standing, standing);
        if before != standing {
            let network = place.network;
            self.change(network, |connections| {
                connections.remove(&(before, number));
                connections.insert((standing, number));
            });
        }
    }

    /// Frees the place of a connection, if it has one.
    pub(crate) fn release(&mut self, number: u64) -> Option<T> {
        let place = self.held.remove(&number)?;
        self.change(place.network, |connections| {
            connections.remove(&(place.standing, number));
        });
        Some(place.value)
    }

    /// The value of a connection that has a place.
    pub(crate) fn get(&self, number: u64) -> Option<&T> {
        self.held.get(&number).map(|place| &place.value)
    }

    fn change(
        &mut self,
        network: ClientNetwork,
        change: impl FnOnce(&mut BTreeSet<(Standing, u64)>),
    ) {
        let size = |connections: &BTreeSet<(Standing, u64)>| {
            let idle = connections.first().is_some_and(|(first, _)| !first.busy);
            (connections.len(), idle, network)
        };
        let connections = self.networks.entry(network).or_default();
        self.sizes.remove(&size(connections));
        change(connections);
        if connections.is_empty() {
            self.networks.remove(&network);
        } else {
            self.sizes.insert(size(connections));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits {
        total: 6,
        network: 4,
    };

    fn network(number: u8) -> ClientNetwork {
        ClientNetwork::Ipv4(number.into())
    }

    fn busy(since: Nanos) -> Standing {
        Standing { busy: true, since }
    }

    /// Adds connections of a network, all with a query since 10. Their value is the network.
    fn fill(places: &mut Places<u8>, of: u8, connections: usize) {
        for _ in 0..connections {
            let number = places.take(network(of), 5, of);
            places.stand(number, busy(10));
        }
    }

    #[test]
    fn network_at_its_limit_loses_its_longest_idle_connection() {
        let mut places = Places::default();
        let numbers: Vec<_> = (0..4).map(|at| places.take(network(1), at, at)).collect();
        places.take(network(2), 0, 9);
        places.stand(numbers[0], busy(8));
        assert_eq!(places.make_room(network(1), LIMITS, 9), Ok(Some(1)));
        assert_eq!(places.get(numbers[1]), None);
        assert_eq!(places.make_room(network(1), LIMITS, 9), Ok(None));
    }

    #[test]
    fn busy_network_at_its_limit_gets_no_more_places() {
        let mut places = Places::default();
        fill(&mut places, 1, 4);
        let refused = places.make_room(network(1), LIMITS, 11);
        assert_eq!(refused, Err(Refused::Network));
        let stuck = places.make_room(network(1), LIMITS, 10 + STUCK_NS);
        assert_eq!(stuck, Ok(Some(1)));
    }

    #[test]
    fn busy_connections_of_the_largest_network_are_evicted() {
        let mut places = Places::default();
        fill(&mut places, 1, 4);
        fill(&mut places, 2, 2);
        for _ in 0..2 {
            assert_eq!(places.make_room(network(3), LIMITS, 11), Ok(Some(1)));
            fill(&mut places, 3, 1);
        }
        // All networks have two.
        let refused = places.make_room(network(3), LIMITS, 11);
        assert_eq!(refused, Err(Refused::Full));
        let fourth = places.make_room(network(4), LIMITS, 11);
        assert!(matches!(fourth, Ok(Some(1..=3))), "{fourth:?}");
    }

    #[test]
    fn largest_network_takes_no_place_of_a_smaller_one() {
        let mut places = Places::default();
        fill(&mut places, 1, 3);
        let idle: Vec<_> = (2..5).map(|of| places.take(network(of), 0, of)).collect();
        let refused = places.make_room(network(1), LIMITS, 11);
        assert_eq!(refused, Err(Refused::Full));
        assert!(idle.iter().all(|&number| places.get(number).is_some()));
    }

    #[test]
    fn limits_of_zero_give_no_places() {
        let mut places = Places::default();
        fill(&mut places, 1, 1);
        let none = Limits {
            total: 0,
            network: 0,
        };
        for of in 1..3 {
            assert!(places.make_room(network(of), none, 60_000_000_000).is_err());
        }
    }

    proptest! {
        /// For any behaviour of the networks, the limits hold, the indices are consistent, and a
        /// network without a connection gets a place as long as another has more than one.
        #[test]
        fn limits_hold_and_new_networks_get_a_place(
            events in prop::collection::vec((0_u8..4, 0_u8..5, 0_u64..30), 1..300)
        ) {
            let mut places = Places::default();
            for (now, (kind, of, which)) in (0..).zip(events) {
                match kind {
                    0 | 1 => {
                        let counts = places.sizes.iter().map(|size| size.0);
                        let crowded = counts.max().is_some_and(|most| most > 1);
                        let newcomer = !places.networks.contains_key(&network(of));
                        let room = places.make_room(network(of), LIMITS, now);
                        if room.is_ok() {
                            places.take(network(of), now, of);
                        }
                        prop_assert!(room.is_ok() || !(newcomer && crowded));
                    }
                    2 => places.stand(which, Standing { busy: of < 3, since: now }),
                    _ => drop(places.release(which)),
                }
                prop_assert!(places.held.len() <= LIMITS.total);
                let mut sum = 0;
                for &(count, idle, of) in &places.sizes {
                    let connections = &places.networks[&of];
                    prop_assert!(count == connections.len() && count <= LIMITS.network);
                    prop_assert_eq!(idle, connections.iter().any(|(s, _)| !s.busy));
                    sum += count;
                }
                prop_assert_eq!((sum, places.sizes.len()), (places.held.len(), places.networks.len()));
            }
        }
    }
}
