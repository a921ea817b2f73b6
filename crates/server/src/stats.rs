//! The combined counters of all threads.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cache::Cache;
use crate::counts::{Counter, Counts, Fault, Figure, Histogram, Snapshot};
use crate::gateway::counts::GatewayCounts;
use crate::settings::Upstream;

/// The counters of all threads.
#[derive(Clone, Debug)]
pub struct Stats {
    /// Counters of each worker.
    pub workers: Vec<Arc<Counts>>,
    /// Counters of the program in the driver, at most a second old, if there is one.
    pub driver: Option<Arc<Counts>>,
    /// The cache, which the workers share.
    pub cache: Arc<Cache>,
    /// Counters of the gateway.
    pub gateway: Arc<GatewayCounts>,
}

impl Stats {
    /// The counters of the workers and of the driver.
    fn answering(&self) -> impl Iterator<Item = &Arc<Counts>> {
        self.workers.iter().chain(&self.driver)
    }

    /// The turns of the threads that answer queries: the workers and the gateway.
    pub fn turns(&self) -> Vec<u64> {
        let workers = self.workers.iter().map(|counts| &counts.worker_turns);
        let all = workers.chain([&self.gateway.turns]);
        all.map(Counter::get).collect()
    }

    /// All figures, with the sums over the workers and the driver. Figures of one name are consecutive.
    pub fn figures(&self) -> Vec<Figure> {
        let mut sums = Counts::default().figures();
        for worker in self.answering() {
            for (sum, figure) in sums.iter_mut().zip(worker.figures()) {
                sum.value += figure.value;
            }
        }
        sums.extend(self.cache.figures());
        sums.extend(self.gateway.figures());
        sums
    }

    /// All distributions of durations, with the sums over the workers, for a server with these upstreams. Distributions
    /// of one name are consecutive.
    pub fn distributions(&self, upstreams: &[Upstream]) -> Vec<Distribution> {
        let mut cached = Snapshot::default();
        let at_once = self.answering().map(|counts| counts.at_once.get());
        cached.buckets[0] = at_once.sum();
        let query = |outcome: &str, times| Distribution {
            name: "query_duration",
            label: ("outcome", outcome.to_owned()),
            help: "Time from a query to its answer; without questions to upstreams it counts as 0",
            times,
        };
        let queries = [
            query("cached", cached),
            query("asked", self.sum(|counts| &counts.waited)),
        ];
        let upstreams = upstreams.iter().enumerate();
        let upstreams = upstreams.map(|(server, upstream)| Distribution {
            name: "upstream_duration",
            label: ("upstream", upstream.address.to_string()),
            help: "Time from a question to the answer of an upstream",
            times: self.sum(|counts| counts.upstream_rtt(server)),
        });
        queries.into_iter().chain(upstreams).collect()
    }

    /// The number of queries that an upstream has failed, by its index in the settings and by reason.
    pub fn upstream_faults(&self, server: usize) -> [(Fault, u64); Fault::ALL.len()] {
        Fault::ALL.map(|fault| {
            let workers = self.workers.iter();
            let counts = workers.map(|counts| counts.upstream_fault(server, fault).get());
            (fault, counts.sum())
        })
    }

    /// The sum of a histogram over all workers.
    fn sum(&self, histogram: impl Fn(&Counts) -> &Histogram) -> Snapshot {
        let mut sum = Snapshot::default();
        for counts in &self.workers {
            sum.add(&histogram(counts).snapshot());
        }
        sum
    }

    /// All figures by name; those with a label as `NAME.VALUE`. Distributions have a count, a sum and estimates of
    /// three quantiles, all times in microseconds.
    pub fn by_name(&self, upstreams: &[Upstream]) -> BTreeMap<String, u64> {
        let name = |figure: &Figure| match figure.label {
            (_, "") => figure.name.to_owned(),
            (_, value) => format!("{}.{value}", figure.name),
        };
        let figures = self.figures().into_iter();
        let mut all: BTreeMap<_, _> = figures
            .map(|figure| (name(&figure), figure.value))
            .collect();
        for (server, upstream) in upstreams.iter().enumerate() {
            for (fault, count) in self.upstream_faults(server) {
                let name = format!("upstream_faults.{}.{}", upstream.address, fault.name());
                all.insert(name, count);
            }
        }
        for distribution in self.distributions(upstreams) {
            let Distribution {
                name, label, times, ..
            } = distribution;
            let mut add = |part, value| all.insert(format!("{name}.{}.{part}", label.1), value);
            add("count", times.count());
            add("sum_us", times.sum_ns / 1000);
            for (part, per_mille) in [("p50_us", 500), ("p90_us", 900), ("p99_us", 990)] {
                add(part, times.quantile_ns(per_mille) / 1000);
            }
        }
        all
    }
}

/// A distribution of durations.
#[derive(Clone, Debug)]
pub struct Distribution {
    /// Metric name, without prefix and without the unit.
    pub name: &'static str,
    /// Label and its value.
    pub label: (&'static str, String),
    /// Description.
    pub help: &'static str,
    /// The durations.
    pub times: Snapshot,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    #[test]
    fn workers_are_summed_and_names_are_distinct() {
        let settings = config::parse(config::template(), "template").unwrap();
        let stats = Stats {
            workers: vec![Arc::default(), Arc::default()],
            driver: Some(Arc::default()),
            cache: Arc::new(Cache::new(&settings.cache, None)),
            gateway: Arc::default(),
        };
        stats.workers[0].queries_udp.add(2);
        stats.workers[1].queries_udp.add(3);
        stats.workers[1].coalesced.add(1);
        let driver = stats.driver.as_ref().unwrap();
        driver.queries_udp.set(4);
        driver.at_once.set(3);
        stats.gateway.open.set(4);
        stats.workers[0].at_once.add(5);
        stats.workers[0].waited.observe(1_500_000);
        stats.workers[1].waited.observe(1_500_000);
        stats.workers[1].upstream_rtt(1).observe(300_000);
        stats.workers[0].upstream_fault(1, Fault::Refused).add(2);
        stats.workers[1].upstream_fault(1, Fault::Refused).add(3);
        let upstreams = ["192.0.2.1:53", "[2001:db8::1]:53"].map(|address| Upstream {
            address: address.parse().unwrap(),
            ..settings.upstreams[0].clone()
        });
        let by_name = stats.by_name(&upstreams);
        assert_eq!(by_name["queries.udp"], 9);
        assert_eq!(by_name["queries.tcp"], 0);
        assert_eq!(by_name["coalesced"], 1);
        assert_eq!(by_name["upstream_faults.192.0.2.1:53.refused"], 0);
        assert_eq!(by_name["upstream_faults.[2001:db8::1]:53.refused"], 5);
        assert_eq!(by_name["tcp_open"], 4);
        let asked = |part| by_name[&format!("query_duration.asked.{part}")];
        assert_eq!(
            ["count", "sum_us", "p50_us", "p99_us"].map(asked),
            [2, 3000, 1500, 2000]
        );
        assert_eq!(by_name["query_duration.cached.count"], 8);
        assert_eq!(by_name["upstream_duration.192.0.2.1:53.count"], 0);
        assert_eq!(by_name["upstream_duration.[2001:db8::1]:53.sum_us"], 300);
        assert_eq!(
            by_name.len(),
            stats.figures().len()
                + 5 * stats.distributions(&upstreams).len()
                + 2 * Fault::ALL.len(),
            "two figures share a name"
        );
    }
}
