//! Checks trials on several hosts: they must have exactly the hosts and roles of the plan.

use std::collections::BTreeSet;

use super::Audit;
use crate::campaign::plan::tasks::Point;
use crate::campaign::record::SelfTest;
use crate::lab::hosts::Site;
use crate::trial::result::TrialResult;

impl Audit<'_> {
    /// Returns how the hosts of a trial of this point differ from those of the plan.
    pub(super) fn elsewhere(&self, point: &Point, trial: &TrialResult) -> Option<String> {
        other_hosts(self.subject(point).site(None).as_ref(), trial)
    }

    /// Like [`Self::elsewhere`] for a self-test, which may belong to any of these points.
    pub(super) fn self_test_elsewhere(&self, points: &[&Point], test: &SelfTest) -> Option<String> {
        let sites = points.iter().map(|point| self.subject(point).site(None));
        let fault = |site: Option<Site>| {
            let each = test.trials.iter().zip(1..);
            let mut told = each.filter_map(|(trial, number)| {
                let what = other_hosts(site.as_ref(), trial)?;
                Some(format!("trial {number} of the self-test: {what}"))
            });
            told.next()
        };
        let mut wrong = None;
        for found in sites.map(fault) {
            wrong = Some(found?);
        }
        wrong
    }
}

/// Returns the contradiction if the shares are not those of the authorities of the site, or are missing. A single
/// authority has no share. Programs on hosts that are all Measurers as well have no known shares.
fn other_authorities(site: Option<&Site>, trial: &TrialResult) -> Option<String> {
    let authorities = site.map_or(&[][..], |site| &site.authorities);
    let mut due: Vec<&str> = authorities.iter().map(|it| it.host.as_str()).collect();
    due.sort_unstable();
    let mut told: Vec<&str> = trial
        .authorities
        .iter()
        .map(|it| it.host.as_str())
        .collect();
    told.sort_unstable();
    let is_untold = told.is_empty() && (due.len() < 2 || trial.authority.is_none());
    (!is_untold && (due.len() < 2 || told != due)).then(|| match due.len() {
        0 | 1 => format!(
            "it has shares of {}, and one authority at most",
            told.join(", ")
        ),
        _ => format!(
            "it has shares of {}, and its authorities are {}",
            match told.is_empty() {
                true => "none".to_owned(),
                false => told.join(", "),
            },
            due.join(", ")
        ),
    })
}

/// Returns the contradiction if a trial reports hosts outside the site, or roles that the hosts do not have there.
/// Without a site it must not report any host.
fn other_hosts(site: Option<&Site>, trial: &TrialResult) -> Option<String> {
    let due: BTreeSet<&str> = site.map(Site::hosts).into_iter().flatten().collect();
    let told: BTreeSet<&str> = trial.clocks.iter().map(|it| it.host.as_str()).collect();
    if let Some(missing) = due.difference(&told).next() {
        return Some(format!("it has no clock of host {missing}"));
    }
    if let Some(other) = told.difference(&due).next() {
        return Some(format!(
            "it has a clock of host {other}, which has no part in it"
        ));
    }
    if let Some(fault) = other_authorities(site, trial) {
        return Some(fault);
    }
    let mut strange = trial
        .machine
        .roles
        .iter()
        .filter(|row| match (site, &row.host) {
            (Some(site), Some(host)) => !site.roles_of(host).contains(&row.role),
            (site, host) => site.is_some() != host.is_some(),
        });
    let row = strange.next()?;
    let at = row.host.as_deref().unwrap_or("no host");
    Some(format!(
        "its role {:?} is of {at}, and not by the plan",
        row.role
    ))
}
