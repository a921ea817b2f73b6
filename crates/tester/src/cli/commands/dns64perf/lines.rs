//! The five lines of dns64perf++, and the lines of its sending threads.

use std::io::{self, Write};

use dns64_transport::clock::Nanos;

use crate::load::pace::Schedule;
use crate::trial::rows::Row;

/// Totals over the queries of a test.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    sent: u64,
    received: u64,
    valid: u64,
    /// Sum of the round-trip times, and of their squares.
    rtt_ns: u128,
    rtt_squared: u128,
    /// Times of the first and the last query of each sender.
    senders: Vec<Option<(Nanos, Nanos)>>,
}

impl Totals {
    pub(super) fn of(rows: impl Iterator<Item = Row>, valid: impl Fn(&Row) -> bool) -> Self {
        let mut sums = Self::default();
        for row in rows {
            sums.sent += 1;
            if row.received() {
                sums.received += 1;
                sums.rtt_ns += u128::from(row.rtt_ns);
                sums.rtt_squared += u128::from(row.rtt_ns) * u128::from(row.rtt_ns);
            }
            sums.valid += u64::from(valid(&row));
            let senders = sums.senders.len().max(row.shard + 1);
            sums.senders.resize(senders, None);
            let first = sums.senders[row.shard].map_or(row.sent_ns, |(first, _)| first);
            sums.senders[row.shard] = Some((first, row.sent_ns));
        }
        sums
    }

    /// A line for each sender: the time from its first query to one interval after its last, and the specified time of
    /// its part of the schedule.
    pub(super) fn timers(&self, schedule: Schedule) -> Vec<String> {
        let shards = self.senders.len() as u64;
        let line = |(k, &(first, last)): (u64, &(Nanos, Nanos))| {
            let part = schedule.shard(k, shards);
            let interval_ns = part.burst_interval_ns();
            let took_ns = last - first + interval_ns;
            let bursts = part.shard_queries().div_ceil(part.burst());
            let percent = 100.0 * took_ns as f64 / (bursts * interval_ns) as f64;
            format!("Full timer execution took {took_ns} ns, {percent:.2}% of specified.")
        };
        (0..).zip(self.senders.iter().flatten()).map(line).collect()
    }

    /// The five lines.
    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let (sent, received, valid) = (self.sent, self.received, self.valid);
        let percent = |n: u64| 100.0 * n as f64 / sent.max(1) as f64;
        let (average_ms, deviation_ms) = self.rtt_ms();
        writeln!(
            out,
            "Sent queries: {sent}\n\
             Received answers: {received} ({:.2}%)\n\
             Valid answers: {valid} ({:.2}%)\n\
             Average round-trip time: {average_ms:.2} ms\n\
             Standard deviation of the round-trip time: {deviation_ms:.2} ms",
            percent(received),
            percent(valid)
        )
    }

    /// Average of the round-trip times of all responses, and their standard deviation as a population; 0 without
    /// responses.
    fn rtt_ms(&self) -> (f64, f64) {
        let n = u128::from(self.received.max(1));
        let average_ns = self.rtt_ns as f64 / n as f64;
        // n^2 times the variance, exact: 2^32 squares of a minute are below 2^104.
        let spread = (n * self.rtt_squared).saturating_sub(self.rtt_ns * self.rtt_ns);
        (average_ns / 1e6, (spread as f64).sqrt() / n as f64 / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::load::ledger::Fate;

    fn row(index: u64, rtt_ms: u64, fate: Fate) -> Row {
        Row {
            index,
            address: Ipv4Addr::UNSPECIFIED,
            shard: usize::try_from(index % 2).unwrap(),
            sent_ns: index * 1_000_000,
            lateness_ns: 0,
            rtt_ns: rtt_ms * 1_000_000,
            fate,
            expired: true,
        }
    }

    #[test]
    fn lines_equal_those_of_dns64perf() {
        let rows = [
            row(0, 1, Fate::Valid),
            row(1, 2, Fate::Wrong),
            row(2, 6, Fate::Valid),
            row(3, 0, Fate::Pending),
        ];
        let sums = Totals::of(rows.into_iter(), |row| row.fate == Fate::Valid);
        let mut text = Vec::new();
        sums.write(&mut text).unwrap();
        // Average of 1, 2 and 6 ms: 3 ms; deviations -2, -1, 3: sqrt(14 / 3).
        let expected = "\
Sent queries: 4
Received answers: 3 (75.00%)
Valid answers: 2 (50.00%)
Average round-trip time: 3.00 ms
Standard deviation of the round-trip time: 2.16 ms
";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
        let schedule = Schedule::in_bursts(4, 1, (2_000_000, 2));
        let line = "Full timer execution took 4000000 ns, 100.00% of specified.";
        assert_eq!(sums.timers(schedule), [line, line]);
    }

    #[test]
    fn without_answers_the_times_are_zero() {
        let rows = [row(0, 0, Fate::Pending)].into_iter();
        let mut text = Vec::new();
        Totals::of(rows, |_| false).write(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("Received answers: 0 (0.00%)\n"), "{text}");
        assert!(text.ends_with("time: 0.00 ms\n"), "{text}");
    }
}
