//! Comparison of authoritative servers that are measured by themselves, with a recommendation.

use crate::campaign::history::Recorded;
use crate::campaign::plan::Varied;
use crate::campaign::record::{Memory, Start};
use crate::procedure::selftest::certified_rate;
use crate::report::campaign::analysis::{
    Analysis, Authorities, AuthorityRow, Recommendation, RunEnd,
};
use crate::report::numbers::{self, whole};
use crate::statistics::quantile::median;
use crate::trial::result::Outcome;
use crate::warning::{Severity, Warning};

/// All authorities of a campaign. The recommendation is added later: it needs the verdict on the whole.
pub(super) fn authorities(history: &Recorded<'_>, analysis: &Analysis) -> Authorities {
    let variants = analysis.variants.iter().zip(0..);
    let variants = variants.filter(|(info, _)| info.is_authority());
    let rows = variants.filter_map(|(_, variant)| row(history, analysis, variant));
    Authorities {
        rows: rows.collect(),
        recommendation: None,
    }
}

fn row(history: &Recorded<'_>, analysis: &Analysis, variant: usize) -> Option<AuthorityRow> {
    let planned = &analysis.variants[variant].planned;
    let point = analysis.headline(variant)?;
    let starts = &history.starts[variant];
    let later = starts.iter().skip(1).map(|start| start.took_ns as f64);
    let most = |of: fn(&Memory) -> u64| {
        let memories = starts.iter().filter_map(|start| start.memory.as_ref());
        memories.map(of).max()
    };
    let summary = point.summary.as_ref();
    let cores = planned.cpus().cpus().len();
    let ended = |how| point.runs.iter().filter(move |run| run.ended == how);
    let passed = point
        .steps()
        .filter(|trial| trial.outcome == Outcome::Passed);
    Some(AuthorityRow {
        variant,
        server: planned.without(&[Varied::Cores, Varied::Names]).1,
        cores: (cores > 0).then_some(cores),
        names: point.planned.cidr.names(),
        point: point.point,
        p1: summary.map(|s| s.p1),
        median: summary.map(|s| s.median),
        p99: summary.map(|s| s.p99),
        dispersion_pct: summary.map(|s| s.dispersion_pct),
        lower_bound: point.lower_bound,
        tester_limited_runs: ended(RunEnd::TesterFault).count(),
        passed_qps: passed.map(|trial| trial.rate_qps).max(),
        certifies_qps: summary.map(|s| certified_rate(whole(s.p1))),
        cpu_ns_per_query: point.authority_cpu_ns,
        rss_bytes: most(|memory| memory.rss_bytes),
        pss_bytes: most(|memory| memory.pss_bytes),
        starts: starts.len(),
        first_start_ns: starts.first().map(|start| start.took_ns),
        zone_written: starts.first().and_then(|start: &Start| start.zone_written),
        later_starts_ns: median(&later.collect::<Vec<_>>()),
    })
}

/// The authority with the highest 1st percentile, by RFC 8219 section 9.2.1: behind a Tester for DNS64 servers at r
/// queries per second it has to pass self-tests at 2(1 + 0.1)r.
pub(in crate::report::campaign) fn recommendation(analysis: &Analysis) -> Option<Recommendation> {
    let rows = &analysis.authorities.rows;
    let known = rows.iter().filter_map(|row| Some((row, row.p1?)));
    let (best, p1) = known.max_by(|a, b| {
        // The first of equal ones: it needs the fewest cores if the plan begins with them.
        a.1.total_cmp(&b.1).then(b.0.variant.cmp(&a.0.variant))
    })?;
    let others = || rows.iter().filter(|row| row.variant != best.variant);
    let tied = others().filter(|row| row.p99 >= Some(p1));
    let not_compared = others().filter(|row| {
        let is_tied = row.p99 >= Some(p1);
        !is_tied && (row.tester_limited_runs > 0 || row.lower_bound)
    });
    let mut found = Recommendation {
        variant: best.variant,
        p1,
        certifies_qps: best.certifies_qps?,
        lower_bound: best.lower_bound,
        tied: tied.map(|row| row.variant).collect(),
        not_compared: not_compared.map(|row| row.variant).collect(),
        text: String::new(),
    };
    found.text = text(analysis, best, &found);
    Some(found)
}

fn text(analysis: &Analysis, best: &AuthorityRow, found: &Recommendation) -> String {
    let on_cores = |row: &AuthorityRow| match row.cores {
        Some(cores) => format!("{} on {}", row.server, numbers::count(cores, "core")),
        None => row.server.clone(),
    };
    let several = |row: &&AuthorityRow| row.names != best.names;
    let sizes = analysis.authorities.rows.iter().any(|row| several(&row));
    let name = |row: &AuthorityRow| match sizes {
        true => format!(
            "{} with {} names",
            on_cores(row),
            numbers::Thousands(row.names)
        ),
        false => on_cores(row),
    };
    let names = |variants: &[usize]| {
        let rows = analysis.authorities.rows.iter();
        let rows = rows.filter(|row| variants.contains(&row.variant));
        rows.map(name).collect::<Vec<_>>().join(", ")
    };
    let (title, at_least) = match (found.lower_bound, found.tied.is_empty()) {
        (true, false) => (
            "No authority is the best: all that reached the limit may do more; ",
            "at least ",
        ),
        (true, true) => ("Recommendation: ", "at least "),
        (false, _) => ("Recommendation: ", ""),
    };
    let mut text = format!(
        "{title}{} certifies DNS64 tests up to {at_least}{} queries/s, the 1st percentile of its \
         self-tests ({}) / 2.2 (RFC 8219 section 9.2.1)",
        name(best),
        numbers::Thousands(found.certifies_qps),
        numbers::rate(found.p1),
    );
    if found.tied.is_empty() && analysis.authorities.rows.len() > 1 {
        text += "; it is the highest";
    }
    if !found.tied.is_empty() {
        text += &format!(
            "; a tie with {}, whose rates from the 1st to the 99th percentile reach it",
            names(&found.tied)
        );
    }
    if best.tester_limited_runs > 0 {
        text += "; the Tester was the limit in some of its runs";
    }
    if !found.not_compared.is_empty() {
        let limited = names(&found.not_compared);
        text += &format!("; not compared, because the Tester or max-rate was the limit: {limited}");
    }
    let own = &analysis.variants[best.variant].not_a_measurement;
    if let Some(reason) = analysis.not_a_measurement.iter().chain(own).next() {
        text += &format!("; not a measurement: {reason}");
    }
    text
}

/// Authorities whose rate may be limited by the Tester.
pub(in crate::report::campaign) fn limited(analysis: &Analysis) -> impl Iterator<Item = Warning> {
    let rows = analysis.authorities.rows.iter();
    rows.filter(|row| row.tester_limited_runs > 0).map(|row| {
        let runs = numbers::count(row.tester_limited_runs, "run");
        let passed = match row.passed_qps {
            Some(rate) => format!("it passed at {} queries/s", numbers::Thousands(rate)),
            None => "it passed at no rate".to_owned(),
        };
        let text = format!(
            "the Tester, not the authority, was the limit in {runs}: {passed} and may do more"
        );
        let warning = Severity::Warning.warning(text);
        let warning = warning.remedy("give the Tester more threads and cores");
        warning.about(analysis.name_of(row.variant))
    })
}
