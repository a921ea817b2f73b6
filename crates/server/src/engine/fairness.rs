//! Selects the query to evict when the table of waiting queries is full: fair shares by client
//! network.
//!
//! The network with the most queries loses its oldest one, whichever network needs the slot. So no
//! network can lock out others that need few slots.

use std::hash::{Hash as _, Hasher as _};

use hashbrown::HashTable;

use super::heap::Heap;
use crate::cache;
use crate::settings::nets::ClientNetwork;

const NIL: u32 = u32::MAX;

/// The slots of each network, with its queries from the oldest to the newest.
#[derive(Default)]
pub(super) struct Shares {
    networks: slab::Slab<Network>,
    by_network: HashTable<u32>,
    /// The networks by the complement of their number of slots: the largest first.
    largest: Heap,
    /// Place of each query, by the index of the query.
    places: Vec<Place>,
}

struct Network {
    network: ClientNetwork,
    hash: u64,
    places: u32,
    oldest: u32,
    newest: u32,
}

#[derive(Clone, Copy)]
struct Place {
    network: u32,
    older: u32,
    newer: u32,
}

/// The next query to evict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) query: u32,
    /// Whether its network has more slots than that of the new query will have. Then it is evicted
    /// at any age.
    pub(super) beyond_share: bool,
}

impl Shares {
    /// A query of this network takes a slot.
    pub(super) fn enter(&mut self, query: u32, network: ClientNetwork) {
        let hash = hash_of(network);
        let known = self.find(network, hash);
        let number = known.unwrap_or_else(|| self.add(network, hash));
        let of = &mut self.networks[number as usize];
        let older = std::mem::replace(&mut of.newest, query);
        if older == NIL {
            of.oldest = query;
        } else {
            self.places[older as usize].newer = query;
        }
        let index = query as usize;
        let place = Place {
            network: number,
            older,
            newer: NIL,
        };
        if self.places.len() <= index {
            self.places.resize(index + 1, place);
        }
        self.places[index] = place;
        self.count(number, 1);
    }

    /// A query frees its slot.
    pub(super) fn leave(&mut self, query: u32) {
        let Place {
            network,
            older,
            newer,
        } = self.places[query as usize];
        match older {
            NIL => self.networks[network as usize].oldest = newer,
            older => self.places[older as usize].newer = newer,
        }
        match newer {
            NIL => self.networks[network as usize].newest = older,
            newer => self.places[newer as usize].older = older,
        }
        self.count(network, -1);
    }

    /// The query to evict for a new one of this network; `None` if no slot is in use.
    pub(super) fn candidate(&self, newcomer: ClientNetwork) -> Option<Candidate> {
        let (_, largest) = self.largest.first()?;
        let largest = &self.networks[largest as usize];
        let own = self.find(newcomer, hash_of(newcomer));
        let own = own.map_or(0, |number| self.networks[number as usize].places);
        Some(Candidate {
            query: largest.oldest,
            beyond_share: largest.places > own + 1,
        })
    }

    fn count(&mut self, number: u32, change: i32) {
        let of = &mut self.networks[number as usize];
        of.places = of.places.saturating_add_signed(change);
        if of.places > 0 {
            return self.largest.set(number, !u64::from(of.places));
        }
        self.largest.clear(number);
        if let Ok(found) = self.by_network.find_entry(of.hash, |n| *n == number) {
            found.remove();
        }
        self.networks.remove(number as usize);
    }

    fn find(&self, network: ClientNetwork, hash: u64) -> Option<u32> {
        let same = |number: &u32| self.networks[*number as usize].network == network;
        self.by_network.find(hash, same).copied()
    }

    fn add(&mut self, network: ClientNetwork, hash: u64) -> u32 {
        let number = self.networks.insert(Network {
            network,
            hash,
            places: 0,
            oldest: NIL,
            newest: NIL,
        });
        // The number of queries limits the number of networks.
        let number = u32::try_from(number).unwrap_or(NIL);
        let networks = &self.networks;
        self.by_network
            .insert_unique(hash, number, |number| networks[*number as usize].hash);
        number
    }
}

/// With the secret of the process: nobody can choose networks that collide.
fn hash_of(network: ClientNetwork) -> u64 {
    let mut hasher = cache::hasher();
    network.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(third: u8) -> ClientNetwork {
        ClientNetwork::Ipv4(third.into())
    }

    #[test]
    fn oldest_query_of_largest_network_is_evicted() {
        let mut shares = Shares::default();
        assert_eq!(shares.candidate(network(0)), None);
        for query in 0..10 {
            shares.enter(query, network(if query < 4 { 1 } else { 2 }));
        }
        let first = |shares: &Shares, newcomer| {
            let candidate = shares.candidate(network(newcomer)).unwrap();
            (candidate.query, candidate.beyond_share)
        };
        assert_eq!(first(&shares, 3), (4, true));
        assert_eq!(first(&shares, 1), (4, true), "four places and six");
        assert_eq!(first(&shares, 2), (4, false), "its own");
        shares.leave(4);
        shares.leave(6);
        assert!(!first(&shares, 1).1, "four places each");
        shares.leave(5);
        shares.leave(9);
        assert_eq!(first(&shares, 3), (0, true), "four places and two");
        for query in [0, 1, 2, 3, 7, 8] {
            shares.leave(query);
        }
        assert_eq!(shares.candidate(network(1)), None);
        assert!(shares.by_network.is_empty() && shares.networks.is_empty());
    }
}
