//! What became of each query: 16 bytes per query, allocated and touched before the first send.

use dns64_transport::clock::Nanos;

/// What became of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fate {
    /// Sent, and nothing has come back.
    Pending,
    /// The expected AAAA, in time.
    Valid,
    /// The expected AAAA, after the timeout.
    Late,
    /// An AAAA that is not the expected one.
    Wrong,
    /// RCODE 0 without AAAA.
    Empty,
    /// RCODE other than 0, or an answer that cannot be parsed.
    Error,
    /// TC set.
    Truncated,
    /// Not sent. Not zero, so that filling the ledger with it writes every page.
    Unsent,
}

/// One query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// From sending, as `lateness_ns` has it, to the arrival of the first answer; 0 while pending.
    pub rtt_ns: Nanos,
    /// How long after its due time the query left: when the system call began that sent it. Saturates at 4.29 s, far beyond the lateness
    /// that any valid trial has.
    pub lateness_ns: u32,
    /// What became of it.
    pub fate: Fate,
    /// It left in or shortly after a catch-up burst of its shard, larger than the allowed one: its loss may
    /// be the sender's fault, so it does not end the trial. The verdict is that of the summary.
    pub in_burst: bool,
}

const UNSENT: Entry = Entry {
    rtt_ns: 0,
    lateness_ns: 0,
    fate: Fate::Unsent,
    in_burst: false,
};

/// 60 s at 1 M/s have to fit 1 GiB.
const _: () = assert!(size_of::<Entry>() <= 16);

/// Octets of an entry on its way to another host.
const ENTRY_OCTETS: usize = 16;

fn entry(octets: &[u8; ENTRY_OCTETS]) -> Option<Entry> {
    let [a, b, c, d, e, f, g, h, i, j, k, l, fate, in_burst, 0, 0] = *octets else {
        return None;
    };
    let fate = FATES.into_iter().find(|known| *known as u8 == fate)?;
    Some(Entry {
        rtt_ns: Nanos::from_le_bytes([a, b, c, d, e, f, g, h]),
        lateness_ns: u32::from_le_bytes([i, j, k, l]),
        fate,
        in_burst: in_burst != 0,
    })
}

const FATES: [Fate; 8] = [
    Fate::Pending,
    Fate::Valid,
    Fate::Late,
    Fate::Wrong,
    Fate::Empty,
    Fate::Error,
    Fate::Truncated,
    Fate::Unsent,
];

/// The queries of one shard, in the order of their sending.
#[derive(Debug, Default)]
pub struct Ledger(Vec<Entry>);

impl Ledger {
    /// Makes room for `queries`, all unsent, and touches every page of it. Memory of an earlier
    /// trial is used again.
    pub fn reset(&mut self, queries: usize) {
        self.0.clear();
        self.0.resize(queries, UNSENT);
    }

    /// All of it in octets: 16 for each query.
    pub fn to_octets(&self) -> Vec<u8> {
        let mut octets = Vec::with_capacity(self.0.len() * ENTRY_OCTETS);
        for entry in &self.0 {
            octets.extend(entry.rtt_ns.to_le_bytes());
            octets.extend(entry.lateness_ns.to_le_bytes());
            octets.extend([entry.fate as u8, u8::from(entry.in_burst), 0, 0]);
        }
        octets
    }

    /// From [`Self::to_octets`]; `None` from anything else.
    pub fn from_octets(octets: &[u8]) -> Option<Self> {
        let (entries, rest) = octets.as_chunks::<ENTRY_OCTETS>();
        let entries = rest.is_empty().then(|| entries.iter().map(entry))?;
        entries.collect::<Option<Vec<_>>>().map(Self)
    }

    /// The entries.
    pub fn entries(&self) -> &[Entry] {
        &self.0
    }

    /// Notes that query `i` left so long after it was due, and whether in or shortly after a catch-up burst.
    pub(crate) fn sent(&mut self, i: usize, lateness_ns: Nanos, in_burst: bool) {
        let lateness_ns = u32::try_from(lateness_ns).unwrap_or(u32::MAX);
        self.0[i] = Entry {
            rtt_ns: 0,
            lateness_ns,
            fate: Fate::Pending,
            in_burst,
        };
    }

    /// Notes the first answer to query `i`.
    pub(crate) fn answered(&mut self, i: usize, rtt_ns: Nanos, fate: Fate) {
        let entry = &mut self.0[i];
        entry.rtt_ns = rtt_ns;
        entry.fate = fate;
    }

    pub(crate) fn get(&self, i: usize) -> Option<Entry> {
        self.0.get(i).copied()
    }
}
