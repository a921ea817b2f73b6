//! The certificates that can have been valid for a task.

use super::{Audit, rate};
use crate::campaign::history::SessionHistory;
use crate::campaign::plan::tasks::{Point, Task};
use crate::campaign::record::{CertificateConditions, SelfTest};
use crate::campaign::state::CERTIFICATE_AGE_MAX_MS;
use crate::procedure::certificate::{Certificate, counted};
use crate::procedure::selftest::Meaning;
use crate::trial::result::TrialResult;

impl Audit<'_> {
    /// Returns the ceilings that certificates allow for a task that begins or continues at the next line. There is one
    /// ceiling, unless variants have separate self-tests under conditions that the plan does not distinguish, a
    /// self-test has expired meanwhile, or a low one was not repeated.
    pub(super) fn ceilings(&self, task: Task, point: &Point) -> Vec<Option<u64>> {
        if !self.plan.needs_certificate(point) {
            return vec![None];
        }
        let in_lab = self.subject(point).lab().is_some();
        let wanted = self
            .state
            .self_tests_wanted(self.plan.self_tests, task.point());
        let moments = self.moments_of_look_up();
        let mut ceilings: Vec<Option<u64>> = Vec::new();
        for conditions in self.conditions_of(point, in_lab) {
            for &at_unix_ms in &moments {
                let tests = self.state.young_self_tests(conditions, at_unix_ms);
                let tests: Vec<Meaning> = tests.collect();
                let rates = counted(tests.iter().copied());
                for rates in [rates, counted_at_once(&tests)] {
                    let ceiling = Certificate::of(&rates).filter(|_| rates.len() >= wanted);
                    let ceiling = ceiling.map(|certificate| certificate.rate_qps);
                    if !ceilings.contains(&ceiling) {
                        ceilings.push(ceiling);
                    }
                }
            }
        }
        // No trial runs with too few self-tests.
        if ceilings.iter().any(Option::is_some) {
            ceilings.retain(Option::is_some);
        }
        if ceilings.is_empty() {
            ceilings.push(None);
        }
        ceilings
    }

    /// Times that represent every time at which the driver can have looked up the certificate: after the last line
    /// before servers were started, before the current line, and each expiry between them.
    fn moments_of_look_up(&self) -> Vec<u64> {
        let (a, b) = (self.idle_unix_ms, self.now_unix_ms);
        // The clock may have been set back.
        let (first, last) = (a.min(b), a.max(b));
        let expiry = |at_unix_ms: u64| at_unix_ms.saturating_add(CERTIFICATE_AGE_MAX_MS);
        let tests = self.state.self_tests.iter();
        let expiries = tests.map(|it| expiry(it.at_unix_ms));
        let within = expiries.filter(|at| (first..last).contains(at));
        [first, last].into_iter().chain(within).collect()
    }

    /// Conditions of the self-tests that can apply to this point.
    fn conditions_of(
        &self,
        point: &Point,
        in_lab: bool,
    ) -> impl Iterator<Item = &CertificateConditions> {
        let tests = self.state.self_tests.iter().map(|it| &it.test);
        let held = tests.filter(move |test| {
            self.session().is_some_and(|session| is_of(test, session))
                && test.conditions.fit(point)
                && test.conditions.lab.is_empty() != in_lab
                && self.has_cores(point, &test.conditions)
        });
        held.map(|test| &*test.conditions)
    }

    /// Whether Measurer and authority have the cores that they had in the self-test.
    fn has_cores(&self, point: &Point, conditions: &CertificateConditions) -> bool {
        let facts = self.state.variants.get(point.variant);
        let facts = facts.and_then(|all| all.last());
        facts.is_some_and(|facts| conditions.have_cores(&facts.cpus))
    }

    /// A process continues a task of an earlier process: its first trial determines the possible certificates.
    pub(super) fn take_up(&mut self, task: Task) {
        if self.in_force.is_none() {
            self.in_force = Some(self.ceilings(task, self.point(task)));
        }
    }

    /// Returns the contradiction if a trial is wrongly marked as certified or not. The certificate is the one that the
    /// process had when it began the task: a soak may outlive it.
    pub(super) fn certified_otherwise(
        &self,
        point: &Point,
        result: &TrialResult,
    ) -> Option<String> {
        let in_force = self.in_force.as_deref().unwrap_or_default();
        let is = result.certified;
        if self.subject(point).is_authority() {
            let text = "it says whether it is certified, which trials of an authority do not";
            return is.map(|_| text.to_owned());
        }
        let within = |ceiling: &Option<u64>| ceiling.is_some_and(|to| result.rate_qps <= to);
        if in_force.iter().any(|to| Some(within(to)) == is) {
            return None;
        }
        let is = match is {
            None => "it does not say whether the Tester was certified at its rate",
            Some(true) => "it says that the Tester was certified at its rate",
            Some(false) => "it says that the Tester was not certified at its rate",
        };
        Some(format!("{is}, and its certificate is {}", rates(in_force)))
    }
}

/// Rates of the self-tests by the rule of earlier versions, whose certificate is never higher: a low one counts at once.
fn counted_at_once(self_tests: &[Meaning]) -> Vec<u64> {
    let mut rates_qps = Vec::new();
    for meaning in self_tests {
        match *meaning {
            Meaning::Rate(rate_qps) => rates_qps.push(rate_qps),
            Meaning::Nothing => rates_qps.clear(),
            Meaning::Disturbed => {}
        }
    }
    rates_qps
}

/// The candidate rates as text.
pub(super) fn rates(rates_qps: &[Option<u64>]) -> String {
    let rates = rates_qps.iter().map(|&rate_qps| rate(rate_qps));
    rates.collect::<Vec<_>>().join(" or ")
}

/// Whether a self-test was run on the machine of this process since its last boot, by the same program.
pub(super) fn is_of(test: &SelfTest, session: &SessionHistory) -> bool {
    let (conditions, machine) = (&test.conditions, &session.environment);
    (&conditions.boot_id, &conditions.kernel) == (&machine.boot_id, &machine.kernel)
        && (&conditions.tester, &conditions.tester_sha256)
            == (&session.tester, &session.tester_sha256)
}
