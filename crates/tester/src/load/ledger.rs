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
