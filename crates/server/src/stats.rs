//! The figures of all threads together.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cache::Cache;
use crate::counts::{Counts, Figure};
use crate::gateway::counts::GatewayCounts;

/// The counters of all threads.
#[derive(Clone, Debug)]
pub struct Stats {
    /// Of each worker.
    pub workers: Vec<Arc<Counts>>,
    /// What the workers share.
    pub cache: Arc<Cache>,
    /// Of the gateway.
    pub gateway: Arc<GatewayCounts>,
}

impl Stats {
    /// All figures, those of the workers summed up. Figures of one name follow each other.
    pub fn figures(&self) -> Vec<Figure> {
        let mut sums = Counts::default().figures();
        for worker in &self.workers {
            for (sum, figure) in sums.iter_mut().zip(worker.figures()) {
                sum.value += figure.value;
            }
        }
        sums.extend(self.cache.figures());
        sums.extend(self.gateway.figures());
        sums
    }

    /// All figures by name; those with a label as `NAME.VALUE`.
    pub fn by_name(&self) -> BTreeMap<String, u64> {
        let name = |figure: &Figure| match figure.label {
            (_, "") => figure.name.to_owned(),
            (_, value) => format!("{}.{value}", figure.name),
        };
        let figures = self.figures().into_iter();
        figures
            .map(|figure| (name(&figure), figure.value))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    #[test]
    fn workers_are_summed_up_and_names_are_told_apart() {
        let settings = config::parse(config::template(), "template").unwrap();
        let stats = Stats {
            workers: vec![Arc::default(), Arc::default()],
            cache: Arc::new(Cache::new(&settings.cache, None)),
            gateway: Arc::default(),
        };
        stats.workers[0].queries_udp.add(2);
        stats.workers[1].queries_udp.add(3);
        stats.workers[1].coalesced.add(1);
        stats.gateway.open.set(4);
        let by_name = stats.by_name();
        assert_eq!(by_name["queries.udp"], 5);
        assert_eq!(by_name["queries.tcp"], 0);
        assert_eq!(by_name["coalesced"], 1);
        assert_eq!(by_name["tcp_open"], 4);
        assert_eq!(
            by_name.len(),
            stats.figures().len(),
            "two figures share a name"
        );
    }
}
