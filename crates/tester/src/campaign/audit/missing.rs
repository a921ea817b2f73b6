//! The figures that a trial must have: the rules cannot check a missing figure.

use dns64_transport::clock::SECOND;

use super::Audit;
use crate::campaign::plan::tasks::{Point, Task};
use crate::load::names::{Names, RESERVED};
use crate::trial::achieved::Achieved;
use crate::trial::result::TrialResult;

impl Audit<'_> {
    /// Returns the missing figure of a trial or self-test for a point.
    pub(super) fn missing(&self, point: &Point, trial: &TrialResult) -> Option<String> {
        let subject = self.subject(point);
        let lab = subject.lab();
        let is_program = lab.is_some_and(|lab| lab.authority.is_program());
        // For responses in the driver no times are known.
        let is_in_driver = lab.is_some_and(|lab| lab.authority.driver_mode().is_some());
        // Without a DUT only the Measurer queries the authority.
        let has_dut = trial.certified.is_some();
        let shares = trial.authority.as_ref().filter(|_| has_dut);
        let all_answered = trial.answers.missing == 0 && trial.undecided == 0;
        let shares = shares.and_then(|counts| {
            Achieved::by_counts((trial.queries_sent, trial.aaaa().0), counts, all_answered)
        });
        let sometimes = [
            ("names", true, trial.names.is_some()),
            (
                "rate_error",
                !trial.ended_early && trial.duration_ns >= SECOND,
                trial.timing.rate_error.is_some(),
            ),
            (
                "authority",
                lab.is_some() && !is_program,
                trial.authority.is_some(),
            ),
            (
                "path",
                trial.authority.is_some() && !is_in_driver,
                trial.path.is_some(),
            ),
            ("achieved", shares.is_some(), trial.achieved.is_some()),
            (
                "authority_sampled",
                has_dut && is_program,
                trial.authority_sampled.is_some(),
            ),
            (
                "resources",
                has_dut && subject.dut().is_some(),
                trial.resources.is_some(),
            ),
        ];
        let (key, ..) = sometimes.iter().find(|(_, is_due, is)| *is_due && !is)?;
        Some(format!(
            "it has no {key}, which each trial of this program has"
        ))
    }

    /// Returns how the names of a trial differ from those of the plan. A soak needs unused names for all of its
    /// segments, so it may have a wider range.
    pub(super) fn named_otherwise(
        &self,
        task: Option<Task>,
        point: &Point,
        trial: &TrialResult,
    ) -> Option<String> {
        let used = trial.names.as_ref()?;
        let planned = &point.cidr;
        let may_be_wider = matches!(task, None | Some(Task::Soak { .. }));
        let in_range =
            used.namespace == *planned || may_be_wider && used.namespace.contains(planned);
        let usable = used.namespace.names().saturating_sub(RESERVED);
        let due = Names::fresh(point.cell.cached_share, trial.queries_due);
        let is_within = used.fresh == 0 || used.first.max(used.begin) < usable;
        let fits = in_range && is_within && used.fresh <= usable;
        (!fits || used.fresh != due).then(|| {
            let (is, range) = (used.fresh, used.namespace);
            format!(
                "it has {is} names from {} on of {range}, and by the plan {due} of {planned}",
                used.first
            )
        })
    }
}
