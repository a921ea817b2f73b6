//! Deadlines for the entries of a table, at most one each. Every list of deadlines has one span,
//! so that setting one is putting it last and finding the next is looking at the first.

use dns64_transport::clock::Nanos;

const NIL: u32 = u32::MAX;

/// Deadlines by list and by number of the entry.
#[derive(Debug)]
pub(super) struct Timers {
    lists: Vec<List>,
    nodes: Vec<Node>,
}

#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    before: u32,
    after: u32,
    /// List that it is in; [`NIL`]: in none.
    list: u32,
    deadline: Nanos,
}

impl Timers {
    /// Timers with this many lists.
    pub(super) fn new(lists: usize) -> Self {
        let empty = List {
            first: NIL,
            last: NIL,
        };
        Self {
            lists: vec![empty; lists],
            nodes: Vec::new(),
        }
    }

    /// Sets the deadline of an entry, in place of the one that it may have. Within one list,
    /// deadlines must be set in their order; one that is not is met late, with its neighbours.
    pub(super) fn set(&mut self, entry: u32, list: usize, deadline: Nanos) {
        self.clear(entry);
        let index = entry as usize;
        if self.nodes.len() <= index {
            let unset = Node {
                before: NIL,
                after: NIL,
                list: NIL,
                deadline: 0,
            };
            self.nodes.resize(index + 1, unset);
        }
        let last = self.lists[list].last;
        self.nodes[index] = Node {
            before: last,
            after: NIL,
            list: u32::try_from(list).unwrap_or(NIL),
            deadline,
        };
        match last {
            NIL => self.lists[list].first = entry,
            last => self.nodes[last as usize].after = entry,
        }
        self.lists[list].last = entry;
    }

    /// Takes the deadline of an entry away, if it has one.
    pub(super) fn clear(&mut self, entry: u32) {
        let Some(node) = self.nodes.get_mut(entry as usize) else {
            return;
        };
        if node.list == NIL {
            return;
        }
        let Node {
            before,
            after,
            list,
            ..
        } = *node;
        node.list = NIL;
        match before {
            NIL => self.lists[list as usize].first = after,
            before => self.nodes[before as usize].after = after,
        }
        match after {
            NIL => self.lists[list as usize].last = before,
            after => self.nodes[after as usize].before = before,
        }
    }

    /// Takes out one entry whose deadline has come; says which list it was in.
    pub(super) fn expired(&mut self, now: Nanos) -> Option<(u32, usize)> {
        for list in 0..self.lists.len() {
            let first = self.lists[list].first;
            if first != NIL && self.nodes[first as usize].deadline <= now {
                self.clear(first);
                return Some((first, list));
            }
        }
        None
    }

    /// The earliest deadline.
    pub(super) fn next(&self) -> Option<Nanos> {
        let firsts = self.lists.iter().filter(|list| list.first != NIL);
        firsts
            .map(|list| self.nodes[list.first as usize].deadline)
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_met_in_order_and_only_once() {
        let mut timers = Timers::new(2);
        timers.set(3, 0, 100);
        timers.set(1, 1, 50);
        timers.set(2, 0, 110);
        assert_eq!(timers.next(), Some(50));
        assert_eq!(timers.expired(49), None);
        assert_eq!(timers.expired(100), Some((3, 0)));
        assert_eq!(timers.expired(100), Some((1, 1)));
        assert_eq!(timers.expired(100), None);
        assert_eq!(timers.next(), Some(110));
    }

    #[test]
    fn a_cleared_or_moved_deadline_leaves_its_neighbours_in_place() {
        let mut timers = Timers::new(1);
        for entry in 0..4 {
            timers.set(entry, 0, u64::from(entry) + 10);
        }
        timers.clear(1);
        timers.clear(1);
        timers.clear(9);
        timers.set(0, 0, 20);
        let order: Vec<_> = std::iter::from_fn(|| timers.expired(100)).collect();
        assert_eq!(order, [(2, 0), (3, 0), (0, 0)]);
        assert_eq!(timers.next(), None);
    }
}
