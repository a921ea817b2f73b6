//! Orders the entries of a table by a number each, such as a deadline or a count. The heap knows
//! the position of each entry, so that its number can be changed or removed.

/// The position of an entry without a number.
const NOWHERE: u32 = u32::MAX;

/// Children of a node. Four need half as many levels as two, and fit into one cache line.
const CHILDREN: usize = 4;

/// Entries by their number in ascending order; equal numbers in the order of the entries.
#[derive(Debug, Default)]
pub(super) struct Heap {
    nodes: Vec<(u64, u32)>,
    /// The index in `nodes` of each entry.
    places: Vec<u32>,
}

impl Heap {
    /// Sets or replaces the number of an entry.
    pub(super) fn set(&mut self, entry: u32, number: u64) {
        let index = entry as usize;
        if self.places.len() <= index {
            self.places.resize(index + 1, NOWHERE);
        }
        match self.places[index] {
            NOWHERE => {
                self.nodes.push((number, entry));
                self.rise(self.nodes.len() - 1);
            }
            place => {
                self.nodes[place as usize].0 = number;
                self.sink(place as usize);
                self.rise(self.places[index] as usize);
            }
        }
    }

    /// Removes the number of an entry, if it has one.
    pub(super) fn clear(&mut self, entry: u32) {
        let place = self.places.get(entry as usize).copied();
        let Some(place) = place.filter(|place| *place != NOWHERE) else {
            return;
        };
        self.places[entry as usize] = NOWHERE;
        self.nodes.swap_remove(place as usize);
        if let Some(&(_, moved)) = self.nodes.get(place as usize) {
            self.places[moved as usize] = place;
            self.sink(place as usize);
            self.rise(self.places[moved as usize] as usize);
        }
    }

    /// Whether an entry has a number.
    pub(super) fn has(&self, entry: u32) -> bool {
        let place = self.places.get(entry as usize);
        place.is_some_and(|place| *place != NOWHERE)
    }

    /// Number of entries with a number.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The smallest number and its entry.
    pub(super) fn first(&self) -> Option<(u64, u32)> {
        self.nodes.first().copied()
    }

    /// Removes and returns the first entry if its number is at most `limit`.
    pub(super) fn take(&mut self, limit: u64) -> Option<u32> {
        let (_, entry) = self.first().filter(|(number, _)| *number <= limit)?;
        self.clear(entry);
        Some(entry)
    }

    fn rise(&mut self, mut place: usize) {
        let node = self.nodes[place];
        while place > 0 {
            let parent = (place - 1) / CHILDREN;
            if self.nodes[parent] <= node {
                break;
            }
            self.put(place, self.nodes[parent]);
            place = parent;
        }
        self.put(place, node);
    }

    fn sink(&mut self, mut place: usize) {
        let node = self.nodes[place];
        loop {
            let first = place * CHILDREN + 1;
            let end = (first + CHILDREN).min(self.nodes.len());
            let least = (first..end).min_by_key(|child| self.nodes[*child]);
            match least {
                Some(child) if self.nodes[child] < node => {
                    self.put(place, self.nodes[child]);
                    place = child;
                }
                _ => break,
            }
        }
        self.put(place, node);
    }

    fn put(&mut self, place: usize, node: (u64, u32)) {
        self.nodes[place] = node;
        // Entries have 32 bits and are unique.
        self.places[node.1 as usize] = u32::try_from(place).unwrap_or(NOWHERE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn entries_are_returned_in_order_of_their_numbers(
            steps in prop::collection::vec((0..40_u32, prop::option::of(0..50_u64)), 0..200),
        ) {
            let mut heap = Heap::default();
            let mut model = BTreeMap::new();
            for (entry, number) in steps {
                match number {
                    Some(number) => {
                        heap.set(entry, number);
                        model.insert(entry, number);
                    }
                    None => {
                        heap.clear(entry);
                        model.remove(&entry);
                    }
                }
                prop_assert_eq!(heap.first().map(|(n, _)| n), model.values().min().copied());
                prop_assert_eq!(heap.has(entry), model.contains_key(&entry));
                prop_assert_eq!(heap.len(), model.len());
            }
            let mut last = 0;
            while let Some((number, entry)) = heap.first() {
                prop_assert!(number >= last);
                prop_assert_eq!(model.remove(&entry), Some(number));
                prop_assert_eq!(number.checked_sub(1).and_then(|n| heap.take(n)), None);
                prop_assert_eq!(heap.take(number), Some(entry));
                last = number;
            }
            prop_assert!(model.is_empty());
        }
    }
}
