//! Warms the DUT's cache before a trial that repeats names.

use dns64_transport::clock::{Nanos, SECOND};

use super::RigError;
use super::equipment::{Client, PROBE_NS, StartedServer};
use super::running::{Asker, BURST_QPS, Running, answered};
use crate::load::names::Names;
use crate::load::query::Types;
use crate::namespace::AskedName;

/// Time in which a working set is queried, if the rate of the trial allows.
const WARM_UP_S: u64 = 5;

/// Maximum number of rounds for a working set; later losses count in the trial.
const ROUNDS: u32 = 2;

/// Returns the rate at which a working set is queried: low enough for every DUT, or higher for a large set, so that
/// trials do not wait long. It is at most the trial's rate, because a DUT that does not achieve it must not be
/// overloaded before the trial.
fn warm_up_rate_qps(names: u64, trial_rate_qps: u64) -> u64 {
    BURST_QPS.max(names / WARM_UP_S).min(trial_rate_qps)
}

impl<C: Client, S: StartedServer> Running<C, S> {
    /// Queries the names that the trial repeats, so that they are in the DUT's cache: the single name by a probe
    /// (Lencse et al. 2017, section 7.1), a working set by a trial that counts nowhere. Only the trial may come after
    /// it.
    pub(super) fn warm_up(
        &mut self,
        names: &Names,
        rate_qps: u64,
        notes: &mut Vec<String>,
    ) -> Result<(), RigError> {
        let Asker {
            client,
            names: source,
            ..
        } = &self.asker;
        if source.has_cached() {
            let address = source.cached();
            client.aaaa(address, PROBE_NS)?;
            let types = self.load.form.types;
            for rtype in Types::ALL.into_iter().filter(|rtype| types.has(*rtype)) {
                client.responds(AskedName { address, rtype }, PROBE_NS)?;
            }
        }
        let over_ns = client.now() + self.load.duration_ns + self.load.timeout_ns + SECOND;
        let Some(set) = source.to_ask_before(names, over_ns) else {
            return Ok(());
        };
        let queries = set.end - set.start;
        let rate_qps = warm_up_rate_qps(queries, rate_qps);
        let mut missed = 0;
        for round in 0..ROUNDS {
            if round > 0 {
                self.settle()?;
            }
            let kept_until_ns = self.kept_until_ns();
            let each = self.asker.names.once(&set, self.asker.pref64.clone());
            let result = self.asker.once(each, queries, rate_qps)?;
            if self.asker.is_interrupted() {
                return Err(RigError::Interrupted);
            }
            missed = result.queries_due - answered(&result);
            if missed == 0 {
                self.asker.names.were_asked(set, kept_until_ns);
                return Ok(());
            }
        }
        self.settle()?;
        notes.push(format!(
            "{missed} of the {queries} repeated names got no answer when the cache was warmed, at {rate_qps} queries/s"
        ));
        Ok(())
    }

    /// Returns until when a server that has just been queried caches the answers, negative ones as well.
    pub(super) fn kept_until_ns(&self) -> Nanos {
        self.asker.client.now() + u64::from(self.load.ttl_s) * SECOND
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn working_set_is_queried_fast_but_not_faster_than_trial() {
        assert_eq!(warm_up_rate_qps(100, 50_000), 2_000);
        assert_eq!(warm_up_rate_qps(100_000, 50_000), 20_000);
        assert_eq!(warm_up_rate_qps(1_000_000, 50_000), 50_000);
        assert_eq!(warm_up_rate_qps(100_000, 300), 300);
    }
}
