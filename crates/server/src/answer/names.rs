//! The names of messages as nodes of a tree: a name is its first label and the rest of the name.
//!
//! Names that are equal without regard to case are one node. Comparing two of them costs nothing,
//! however long they are and however a message compresses them, and each label of a message is read
//! once.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::OnceLock;

use dns64_wire::name::{LABEL_LEN_MAX, Name};
use hashbrown::HashTable;
use siphasher::sip::SipHasher13;

use super::work::step;

/// The key of [`hasher`] in this process.
static SECRET: OnceLock<[u64; 2]> = OnceLock::new();

/// A hash function with a random key, which nobody can predict.
pub(crate) fn hasher() -> SipHasher13 {
    let secret = SECRET.get_or_init(|| {
        let random = RandomState::new();
        [0, 1].map(|half: u8| random.hash_one(half))
    });
    SipHasher13::new_with_keys(secret[0], secret[1])
}

/// Lets a process whose runs must repeat exactly choose the key of the hash function, before its first use. Of several
/// keys the first counts.
pub fn choose_hash_key(key: [u64; 2]) {
    SECRET.get_or_init(|| key);
}

/// A name in a [`Tree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Id(u32);

impl Id {
    /// The root, the end of every name.
    pub(super) const ROOT: Self = Self(0);

    /// Its index in a list of all names of the tree.
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The names of one or more messages.
#[derive(Debug)]
pub(super) struct Tree<'a> {
    nodes: Vec<Node<'a>>,
    /// The nodes by the hash of the rest and the label in lower case.
    by_label: HashTable<Id>,
    /// Labels that are being added, with their offsets.
    new: Vec<(usize, &'a [u8])>,
}

#[derive(Debug)]
struct Node<'a> {
    label: &'a [u8],
    rest: Id,
    /// Number of labels without the root.
    labels: u8,
    hash: u64,
}

/// The names of one message by the offsets of their first labels, as far as compression pointers
/// reach.
#[derive(Debug)]
pub(super) struct Offsets(Vec<Id>);

/// Number of offsets that a compression pointer can hold (RFC 1035 section 4.1.4).
const POINTER_TARGETS: usize = 1 << 14;

impl Offsets {
    /// No names yet, of this message.
    pub(super) fn of(message: &[u8]) -> Self {
        Self(vec![Id::ROOT; message.len().min(POINTER_TARGETS)])
    }

    /// The known name whose first label is at this offset.
    pub(super) fn get(&self, at: usize) -> Option<Id> {
        self.0.get(at).copied().filter(|id| *id != Id::ROOT)
    }
}

impl<'a> Tree<'a> {
    /// A tree of only the root.
    pub(super) fn new() -> Self {
        let root = Node {
            label: &[],
            rest: Id::ROOT,
            labels: 0,
            hash: 0,
        };
        Self {
            nodes: vec![root],
            by_label: HashTable::new(),
            new: Vec::new(),
        }
    }

    /// The node of a name of the message that `offsets` is of.
    pub(super) fn id(&mut self, offsets: &mut Offsets, name: &Name<'a>) -> Id {
        let mut id = Id::ROOT;
        for (at, label) in name.labels_at() {
            step();
            if let Some(known) = offsets.get(at) {
                id = known;
                break;
            }
            self.new.push((at, label));
        }
        while let Some((at, label)) = self.new.pop() {
            id = self.below(id, label);
            if let Some(place) = offsets.0.get_mut(at) {
                *place = id;
            }
        }
        id
    }

    /// The name with this label before the rest.
    fn below(&mut self, rest: Id, label: &'a [u8]) -> Id {
        step();
        let mut octets = [0; size_of::<u32>() + LABEL_LEN_MAX];
        let (number, room) = octets.split_at_mut(size_of::<u32>());
        number.copy_from_slice(&rest.0.to_be_bytes());
        room[..label.len()].copy_from_slice(label);
        room[..label.len()].make_ascii_lowercase();
        let hash = hasher().hash(&octets[..size_of::<u32>() + label.len()]);
        let nodes = &mut self.nodes;
        let is_same = |id: &Id| {
            let node = &nodes[id.index()];
            node.rest == rest && node.label.eq_ignore_ascii_case(label)
        };
        if let Some(id) = self.by_label.find(hash, is_same) {
            return *id;
        }
        // Two messages have fewer than 2^17 labels.
        let id = Id(u32::try_from(nodes.len()).unwrap_or(u32::MAX));
        let labels = nodes[rest.index()].labels + 1;
        nodes.push(Node {
            label,
            rest,
            labels,
            hash,
        });
        self.by_label
            .insert_unique(hash, id, |id| nodes[id.index()].hash);
        id
    }

    /// Number of names.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The name without its first label; the root for the root.
    pub(super) fn rest(&self, id: Id) -> Id {
        step();
        self.nodes[id.index()].rest
    }

    /// The name and those that it is below, up to the root.
    pub(super) fn up(&self, id: Id) -> impl Iterator<Item = Id> {
        std::iter::successors(Some(id), |id| (*id != Id::ROOT).then(|| self.rest(*id)))
    }

    /// All names but the root, each after the name that it is below.
    pub(super) fn downward(&self) -> impl Iterator<Item = Id> + use<> {
        (1..u32::try_from(self.nodes.len()).unwrap_or(u32::MAX)).map(Id)
    }

    /// Writes a name without compression, in the case in which it was seen first; returns it.
    pub(super) fn write<'o>(&self, id: Id, octets: &'o mut [u8]) -> &'o [u8] {
        let mut len = 0;
        for id in self.up(id) {
            let label = self.nodes[id.index()].label;
            octets[len] = u8::try_from(label.len()).unwrap_or_default();
            octets[len + 1..=len + label.len()].copy_from_slice(label);
            len += 1 + label.len();
        }
        &octets[..len]
    }

    /// Whether a DNAME record of `owner` with this target leads from one name to another: both have
    /// the same labels before its owner and before its target (RFC 6672 section 2.2).
    pub(super) fn is_redirected(&self, from: Id, to: Id, owner: Id, target: Id) -> bool {
        let node = |id: Id| &self.nodes[id.index()];
        let before = |id: Id, end: Id| node(id).labels.checked_sub(node(end).labels);
        let (Some(len @ 1..), Some(to_len)) = (before(from, owner), before(to, target)) else {
            return false;
        };
        let (mut a, mut b) = (from, to);
        for _ in 0..len {
            step();
            if !node(a).label.eq_ignore_ascii_case(node(b).label) {
                return false;
            }
            (a, b) = (node(a).rest, node(b).rest);
        }
        len == to_len && (a, b) == (owner, target)
    }
}

#[cfg(test)]
mod tests {
    use dns64_wire::name::NameBuf;
    use proptest::prelude::*;

    use super::*;

    fn name() -> impl Strategy<Value = NameBuf> {
        let label = prop::sample::select(vec!["a", "A", "ab", "b", "www"]);
        prop::collection::vec(label, 1..6)
            .prop_map(|labels| labels.join(".").parse().expect("a name"))
    }

    proptest! {
        /// Names are one node if they are equal without regard to case.
        #[test]
        fn equal_names_are_one_node(names in prop::collection::vec(name(), 1..20)) {
            let mut tree = Tree::new();
            let ids: Vec<_> = names
                .iter()
                .map(|name| tree.id(&mut Offsets::of(name.as_wire()), &name.as_name()))
                .collect();
            for (a, id) in names.iter().zip(&ids) {
                for (b, other) in names.iter().zip(&ids) {
                    prop_assert_eq!(id == other, a.as_name().eq_ignore_case(&b.as_name()));
                    let is_within = tree.up(*id).any(|id| id == *other);
                    prop_assert_eq!(is_within, a.as_name().is_within(&b.as_name()));
                }
            }
        }
    }
}
