//! `dns64bench demo`: a complete measurement in one to two minutes.

use std::io::{self, Write};

use dns64_transport::Backend;
use dns64_transport::xdp::program::Mode;

use super::doctor::list;
use super::measure::{Measuring, with_output};
use super::{Failure, exit, print};
use crate::campaign::plan::draft::Draft;
use crate::cli::args::{DemoArgs, MayLoadArgs, MeasureArgs, OutputArgs};
use crate::cli::flags::Flags;
use crate::cli::resolve::{Measurement, Needs};
use crate::doctor::{self, Grade};
use crate::lab::profile::Profile;
use crate::machine::watch::HostOf;
use crate::procedure::search::{Resolution, SearchEnd, SearchResult, SearchSpec};
use crate::report::{Conditions, Thousands, numbers, text};
use crate::rig::certify::{Aim, Highest};
use crate::rig::spec::AuthorityChoice;
use crate::rig::{Rig, RigError};
use crate::statistics::agreement::{RateBounds, agreement};
use crate::statistics::quantile::median;

/// Servers that the demo looks for, in this order, if none is given.
const CANDIDATES: [&str; 5] = [
    "dns64d",
    "unbound",
    "knot-resolver",
    "bind",
    "pdns-recursor",
];

/// Number of searches in the demo.
const SEARCHES: usize = 3;

/// First rate of the searches: most DNS64 servers exceed it on one core.
const START_QPS: u64 = 5_000;

/// Resolution of the searches, coarse enough to finish in one to two minutes.
const RESOLUTION: Resolution = Resolution::Relative { millionths: 40_000 };

/// Measures a DNS64 server on this machine.
pub(super) fn run(args: DemoArgs) -> Result<u8, Failure> {
    let dut = match args.dut {
        Some(dut) => dut,
        None => installed()?,
    };
    with_output(measurement(&dut)?, |session| {
        let findings = doctor::disturbances();
        // Standard error may be closed.
        let _unheard = list(&mut io::stderr(), &findings);
        let mut rig = rig(session)?;
        let certificate = session.certify(&rig, Aim::Highest(Highest::coarse(None)))?;
        let mut spec = SearchSpec::from_start(START_QPS);
        spec.resolution = RESOLUTION;
        spec.ceiling_qps = certificate.map(|certificate| certificate.rate_qps);
        let mut spec = spec.from_low_load();
        let mut code = exit::PASSED;
        let mut found = Vec::new();
        for number in 1..=SEARCHES {
            let step = format!("search {number} of {SEARCHES}");
            let result = session.search(&mut rig, spec.clone(), &step)?;
            if result.end.is_interrupted() {
                return Err(RigError::Interrupted.into());
            }
            // The next search starts at the result of this one with small steps, and confirms its result with a passing and a
            // failing trial of its own.
            spec.start_qps = result.rate_qps.unwrap_or(START_QPS);
            spec.low_load_qps = None;
            spec.first_step_qps = result.rate_qps.map(|qps| (qps / 10).max(1));
            // A lower bound is the normal result of a demo on a small machine, not a failure.
            if !matches!(result.end, SearchEnd::LimitedByTester { .. }) {
                code = code.max(exit::of_search(&result.end));
            }
            found.push(result);
        }
        let searches = u32::try_from(SEARCHES).ok();
        let mut conditions = session.conditions(&rig, certificate, searches);
        let disturbed = findings.iter().filter(|it| it.grade == Grade::Poor);
        let disturbed = disturbed.map(|it| format!("disturbed, {}: {}", it.what, it.value));
        conditions.not_a_measurement.extend(disturbed);
        print(|out| show(out, &conditions, &found))?;
        Ok(code)
    })
}

/// A rig whose authority answers in the driver, where the lab allows AF_XDP. It takes little of the core that it shares with
/// the Measurer on two CPUs: there, self-tests certified 56,812 queries/s with the built-in authority, about the rate of
/// dns64d, and 92,250 to 94,375 with this one (virtual machine, November 2026).
fn rig(session: &mut Measuring) -> Result<Rig, Failure> {
    session.answer_by(AuthorityChoice::InDriver(Mode::Native));
    if let Ok(rig) = session.rig()
        && rig.backend() != Backend::Socket
    {
        return Ok(rig);
    }
    session.answer_by(AuthorityChoice::BuiltIn);
    session.rig()
}

/// Trials of 2 s with a DUT in the best available kind of lab.
fn measurement(profile: &str) -> Result<Measurement, Failure> {
    let draft = Draft::of_flags(|setting| match setting.id() {
        "dut.profile" => Some(vec![profile.to_owned()]),
        "trial.duration" => Some(vec!["2s".to_owned()]),
        _ => None,
    })?;
    let args = MeasureArgs {
        settings: Flags(Box::new(draft)),
        may_load: MayLoadArgs::default(),
        output: OutputArgs::default(),
    };
    let mut measurement = args.resolve(Needs::Dut)?;
    measurement.spec.load.stop_early = true;
    Ok(measurement)
}

/// The first candidate whose program is installed.
fn installed() -> Result<String, Failure> {
    let mut packages = Vec::new();
    for name in CANDIDATES {
        let profile = Profile::built_in(name)?;
        if profile.program(None).is_ok() {
            return Ok(name.to_owned());
        }
        packages.extend(profile.package);
    }
    let error = format!(
        "no DNS64 server is installed; build dns64d (`cargo build --release --package \
         dns64d`) or install one of these Debian packages: {}",
        packages.join(", ")
    );
    Err(Failure::new(exit::ENVIRONMENT, anyhow::anyhow!(error)))
}

fn show(out: &mut impl Write, conditions: &Conditions, found: &[SearchResult]) -> io::Result<()> {
    writeln!(out, "{}", headline(found))?;
    let fastest = found.iter().filter_map(|search| search.rate_qps).max();
    let watermarks = conditions.watermarks(fastest.unwrap_or(0));
    for line in text::caveats(&watermarks, conditions) {
        writeln!(out, "{line}")?;
    }
    let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
    let lab = format!("{} {}", known(&conditions.lab), known(&conditions.setup));
    let certified = match conditions.certificate {
        Some(certificate) => format!("certified up to {certificate}"),
        None => "none".to_owned(),
    };
    let of_role = |(of, cores): &(HostOf, String)| (format!("cpus of {of}"), cores.clone());
    let mut rows = vec![
        ("device under test".to_owned(), known(&conditions.dut)),
        ("lab".to_owned(), lab),
    ];
    rows.extend(conditions.cpus.iter().map(of_role));
    rows.push(("datagrams".to_owned(), conditions.datagrams()));
    rows.push(("self-test".to_owned(), certified));
    for (number, search) in (1..).zip(found) {
        let trials = numbers::count(search.trials.len(), "trial");
        let told = format!("{} ({trials})", bound(search));
        rows.push((format!("search {number}"), told));
    }
    let notes = conditions.notes.iter();
    rows.extend(notes.map(|note| ("note".to_owned(), note.clone())));
    writeln!(out)?;
    rows.iter()
        .try_for_each(|(label, text)| writeln!(out, "  {label:<17}  {text}"))
}

/// The common result of the searches, and whether the Tester or the server is the limit.
fn headline(found: &[SearchResult]) -> String {
    let all_disturbed = found.iter().all(is_disturbed);
    // What passed in disturbed searches counts only if there is nothing better.
    let counted = found
        .iter()
        .filter(|search| is_disturbed(search) == all_disturbed);
    let brackets = counted.map(|search| {
        let passed = search.rate_qps.unwrap_or(0) as f64;
        let failed = search.failed_qps.map_or(passed, |qps| qps as f64);
        RateBounds {
            passed,
            failed: (!search.is_lower_bound()).then_some(failed),
        }
    });
    let brackets: Vec<_> = brackets.collect();
    let searches = numbers::count(brackets.len(), "search");
    let passed: Vec<f64> = brackets.iter().map(|bracket| bracket.passed).collect();
    let Some((all, median)) = agreement(&brackets).zip(median(&passed)) else {
        return format!("DNS64 rate: none ({searches})");
    };
    let range = numbers::range(&all);
    if all.unstable {
        return format!(
            "DNS64 rate: unstable: {range} queries/s in {searches}; no single rate represents them. Run \
             `dns64bench doctor`, and repeat the demo on a quiet machine"
        );
    }
    let limited = all.failed_qps.is_none();
    let least = if limited { "at least " } else { "" };
    let rate = Thousands(numbers::whole(median));
    let text = format!("DNS64 rate: {least}{rate} queries/s (median of {searches}; range {range})");
    text + match limited {
        true if all_disturbed => {
            "\nTHE TESTER WAS DISTURBED in each search: run `dns64bench doctor`"
        }
        true => {
            "\nTHE TESTER IS THE LIMIT, not the server: the Tester is not certified for more; give it more cores"
        }
        false => "",
    }
}

fn is_disturbed(found: &SearchResult) -> bool {
    matches!(found.end, SearchEnd::TesterFault { .. })
}

fn rate(qps: Option<u64>) -> String {
    qps.map_or("none".into(), |q| format!("{} queries/s", Thousands(q)))
}

/// The rate that a search found: the result or a lower bound.
fn bound(found: &SearchResult) -> String {
    let least = if found.is_lower_bound() {
        "at least "
    } else {
        ""
    };
    format!("{least}{}", rate(found.rate_qps))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trial::fault::TesterFault;

    fn found(rate_qps: Option<u64>, limited: bool) -> SearchResult {
        SearchResult {
            end: match rate_qps {
                Some(rate_qps) if limited => SearchEnd::LimitedByTester { rate_qps },
                _ => SearchEnd::Found,
            },
            rate_qps,
            failed_qps: (!limited).then(|| rate_qps.map_or(1, |qps| qps + 100)),
            resolution_qps: 100,
            goals: Vec::new(),
            trials: Vec::new(),
            certified_rate_qps: None,
        }
    }

    #[test]
    fn rate_at_the_limit_of_the_tester_is_a_lower_bound() {
        let limit = found(Some(30_000), true);
        assert_eq!(
            headline(&[limit.clone(), found(Some(29_000), false), limit.clone()]),
            "DNS64 rate: at least 30,000 queries/s (median of 3 searches; range 29,000 to 30,000 or more)\n\
             THE TESTER IS THE LIMIT, not the server: the Tester is not certified for more; give it more cores"
        );
        // If a minority of searches reaches the limit, the median is still the result.
        let lower = found(Some(28_000), false);
        assert_eq!(
            headline(&[lower.clone(), limit, lower]),
            "DNS64 rate: 28,000 queries/s (median of 3 searches; range 28,000 to 30,000 or more)"
        );
        assert_eq!(bound(&found(None, false)), "none");
    }

    #[test]
    fn searches_that_disagree_have_no_rate() {
        let limit = found(Some(35_000), true);
        let told = headline(&[found(None, false), found(Some(4_296), false), limit]);
        assert!(
            told.starts_with("DNS64 rate: unstable: 0 to 35,000 or more queries/s in 3 searches;"),
            "{told}"
        );
        let none = found(None, false);
        assert_eq!(
            headline(&[none.clone(), none.clone(), none.clone()]),
            "DNS64 rate: none (3 searches)"
        );
        // A disturbed search has no information about the server.
        let mut disturbed = none;
        disturbed.end = SearchEnd::TesterFault {
            fault: TesterFault::NotSent { queries: 1 },
        };
        assert_eq!(
            headline(&[found(Some(9_000), false), disturbed.clone()]),
            "DNS64 rate: 9,000 queries/s (median of 1 search; range 9,000)"
        );
        let only = std::slice::from_ref(&disturbed);
        assert_eq!(headline(only), "DNS64 rate: none (1 search)");
        // A rate that passed before is a lower bound.
        disturbed.rate_qps = Some(5_000);
        assert_eq!(
            headline(&[found(Some(9_000), false), disturbed.clone()]),
            "DNS64 rate: 9,000 queries/s (median of 1 search; range 9,000)"
        );
        assert_eq!(
            headline(std::slice::from_ref(&disturbed)),
            "DNS64 rate: at least 5,000 queries/s (median of 1 search; range 5,000 or more)\n\
             THE TESTER WAS DISTURBED in each search: run `dns64bench doctor`"
        );
        assert_eq!(bound(&disturbed), "at least 5,000 queries/s");
    }
}
