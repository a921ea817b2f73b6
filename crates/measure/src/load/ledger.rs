//! Outcome of each query: 16 bytes per query, allocated and touched before the first send.

use dns64_transport::clock::Nanos;
use serde::{Deserialize, Serialize};

use super::pace::Schedule;

/// Outcome of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Fate {
    /// Sent, without a response so far.
    Pending,
    /// The expected record, in time.
    Valid,
    /// The expected record, after the timeout.
    Late,
    /// Other records of the type than expected, or too few of them.
    Wrong,
    /// RCODE 0 without a record of the type.
    Empty,
    /// RCODE other than 0, or a response that cannot be parsed.
    Error,
    /// TC set.
    Truncated,
    /// Not sent. It is not zero, so that filling the ledger with it writes every page.
    Unsent,
}

impl Fate {
    const ALL: [Self; 8] = [
        Self::Pending,
        Self::Valid,
        Self::Late,
        Self::Wrong,
        Self::Empty,
        Self::Error,
        Self::Truncated,
        Self::Unsent,
    ];
}

/// One query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Fields", into = "Fields")]
pub struct Entry {
    /// From the time of sending that `lateness_ns` uses to the arrival of the first response; 0 while pending.
    pub rtt_ns: Nanos,
    /// Time from the due time to the start of the system call that sent the query. Saturates at 4.29 s, far beyond the
    /// lateness in any valid trial.
    pub lateness_ns: u32,
    /// The outcome.
    pub fate: Fate,
    /// Whether it left in or shortly after a catch-up burst of its shard that exceeds the limit. The sender may then
    /// have caused its loss, so it does not end the trial; the summary decides.
    pub in_burst: bool,
}

impl Entry {
    /// Returns the time from the due time to the arrival of the first response; `None` without one.
    pub fn latency_ns(&self) -> Option<Nanos> {
        let has_response = !matches!(self.fate, Fate::Pending | Fate::Unsent);
        has_response.then(|| self.rtt_ns + Nanos::from(self.lateness_ns))
    }
}

/// A query of a finished shard. Its times are those after the start of the trial.
#[derive(Clone, Copy, Debug)]
pub struct OfferedQuery {
    /// Its number in the trial.
    pub number: u64,
    /// Time at which it was due.
    pub due_ns: Nanos,
    /// Its outcome.
    pub entry: Entry,
}

impl OfferedQuery {
    /// Returns the time of sending.
    pub fn sent_ns(&self) -> Nanos {
        self.due_ns + Nanos::from(self.entry.lateness_ns)
    }

    /// Returns whether the link accepted it.
    pub fn was_sent(&self) -> bool {
        self.entry.fate != Fate::Unsent
    }
}

/// Returns the queries of a shard in the order of its schedule.
pub fn queries<'a>(
    schedule: &'a Schedule,
    entries: &'a [Entry],
) -> impl DoubleEndedIterator<Item = OfferedQuery> + 'a {
    entries.iter().enumerate().map(|(local, entry)| {
        let number = schedule.global(local as u64);
        OfferedQuery {
            number,
            due_ns: schedule.due_ns(number),
            entry: *entry,
        }
    })
}

const UNSENT: Entry = Entry {
    rtt_ns: 0,
    lateness_ns: 0,
    fate: Fate::Unsent,
    in_burst: false,
};

/// The ledger of 60 s at 1 M/s must fit 1 GiB.
const _: () = assert!(size_of::<Entry>() <= 16);

/// A compact serialised form: round-trip time, lateness, and twice the number of the outcome, plus one in a burst.
type Fields = (Nanos, u32, u8);

impl TryFrom<Fields> for Entry {
    type Error = String;

    fn try_from((rtt_ns, lateness_ns, code): Fields) -> Result<Self, String> {
        let fate = Fate::ALL.get(usize::from(code / 2));
        Ok(Self {
            rtt_ns,
            lateness_ns,
            fate: *fate.ok_or_else(|| format!("outcome {code} of a query is unknown"))?,
            in_burst: code % 2 == 1,
        })
    }
}

impl From<Entry> for Fields {
    fn from(it: Entry) -> Self {
        let code = 2 * it.fate as u8 + u8::from(it.in_burst);
        (it.rtt_ns, it.lateness_ns, code)
    }
}

/// The queries of one shard, in the order in which they are sent.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Ledger(Vec<Entry>);

impl Ledger {
    /// Allocates `queries` entries, all unsent, and touches every page. Reuses the memory of an earlier trial.
    pub fn reset(&mut self, queries: usize) {
        self.0.clear();
        self.0.resize(queries, UNSENT);
    }

    /// The entries.
    pub fn entries(&self) -> &[Entry] {
        &self.0
    }

    /// Records that query `i` left this long after it was due, and whether in or shortly after a catch-up burst.
    pub fn sent(&mut self, i: usize, lateness_ns: Nanos, in_burst: bool) {
        let lateness_ns = u32::try_from(lateness_ns).unwrap_or(u32::MAX);
        self.0[i] = Entry {
            rtt_ns: 0,
            lateness_ns,
            fate: Fate::Pending,
            in_burst,
        };
    }

    /// Records the first response to query `i`.
    pub fn answered(&mut self, i: usize, rtt_ns: Nanos, fate: Fate) {
        let entry = &mut self.0[i];
        entry.rtt_ns = rtt_ns;
        entry.fate = fate;
    }

    pub(crate) fn get(&self, i: usize) -> Option<Entry> {
        self.0.get(i).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_serialised_as_numbers_and_read_back() {
        let entries: Vec<_> = Fate::ALL
            .iter()
            .flat_map(|&fate| [false, true].map(|in_burst| (fate, in_burst)))
            .map(|(fate, in_burst)| Entry {
                rtt_ns: Nanos::MAX,
                lateness_ns: u32::MAX,
                fate,
                in_burst,
            })
            .collect();
        let text = serde_json::to_string(&entries).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Entry>>(&text).unwrap(), entries);
        let valid = Entry {
            rtt_ns: 81_234,
            lateness_ns: 950,
            ..entries[3]
        };
        assert_eq!(serde_json::to_string(&valid).unwrap(), "[81234,950,3]");
        let unknown = serde_json::from_str::<Entry>("[81234,950,16]").unwrap_err();
        assert!(unknown.is_data(), "{unknown}");
    }
}
