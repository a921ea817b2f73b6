//! `dns64bench demo`: the whole job in about a minute.

use std::io::{self, Write};

use dns64_transport::clock::SECOND;

use super::measure::with_output;
use super::{Failure, exit, print};
use crate::cli::args::{DemoArgs, OutputArgs};
use crate::cli::resolve::Measurement;
use crate::lab::LabKind;
use crate::lab::profile::Profile;
use crate::procedure::certificate::SELF_TESTS_DEFAULT;
use crate::procedure::search::{Resolution, SearchEnd, SearchSpec};
use crate::report::{Conditions, Thousands};
use crate::rig::certify::{COARSE, Question};
use crate::rig::spec::{DutChoice, LabSpec, Load, RigSpec, Subject};

/// Servers that the demo looks for, in this order, when none is named.
const CANDIDATES: [&str; 5] = [
    "dns64d",
    "unbound",
    "knot-resolver",
    "bind",
    "pdns-recursor",
];

/// The searches of the demo.
const SEARCHES: usize = 3;

/// Where they start: most DNS64 servers do more on one core.
const START_QPS: u64 = 5_000;

/// How exact they are, so that all is done in about a minute.
const RESOLUTION: Resolution = Resolution::Relative { millionths: 20_000 };

/// What the demo is not.
const STAMP: &str =
    "a demonstration; RFC 8219 section 9.2 asks for 20 searches with trials of 60 s";

/// What one search of the demo found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Found {
    /// The fastest rate that passed.
    rate_qps: Option<u64>,
    /// Whether the search ended there because the Tester is certified no further. Such a rate is
    /// the highest that a search can find, so the order of the fields is that of the servers.
    limited: bool,
    /// Trials that it took.
    trials: usize,
}

/// Measures a DNS64 server that is here.
pub(super) fn run(args: DemoArgs) -> Result<u8, Failure> {
    let dut = match args.dut {
        Some(dut) => dut,
        None => installed()?,
    };
    with_output(measurement(dut), |session| {
        let mut rig = session.rig()?;
        let question = Question::Highest {
            resolution: COARSE,
            max_qps: None,
        };
        let certificate = session.certify(&rig, question)?;
        let mut spec = SearchSpec::from_start(START_QPS);
        spec.resolution = RESOLUTION;
        spec.ceiling_qps = certificate.map(|certificate| certificate.rate_qps);
        let mut code = exit::PASSED;
        let mut found = Vec::new();
        for _ in 0..SEARCHES {
            let result = session.search(&mut rig, spec.clone())?;
            // The next search starts where this one ended; a pass and a fail of its own confirm
            // its answer all the same.
            spec.start_qps = result.rate_qps.unwrap_or(START_QPS);
            let limited = matches!(result.end, SearchEnd::LimitedByTester { .. });
            // A lower bound is all that a demo on a small machine can show, and no failure.
            if !limited {
                code = code.max(exit::of_search(&result.end));
            }
            found.push(Found {
                rate_qps: result.rate_qps,
                limited,
                trials: result.trials.len(),
            });
        }
        let mut conditions = session.conditions(&rig, certificate);
        conditions.not_a_measurement.push(STAMP.into());
        print(|out| show(out, &conditions, &found))?;
        Ok(code)
    })
}

/// Trials of 2 s with a DUT in the best lab that there is.
fn measurement(profile: String) -> Measurement {
    let lab = LabSpec {
        dut: Some(DutChoice {
            profile,
            ..DutChoice::default()
        }),
        ..LabSpec::default()
    };
    Measurement {
        spec: RigSpec {
            subject: Subject::Lab(Box::new(lab)),
            load: Load {
                duration_ns: 2 * SECOND,
                stop_early: true,
                ..Load::default()
            },
        },
        lab: LabKind::Auto,
        has_namespace: false,
        uncertified: false,
        self_tests: SELF_TESTS_DEFAULT.into(),
        output: OutputArgs::default(),
    }
}

/// The first candidate whose program is here.
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
        "no DNS64 server is here; build the one of this project (`cargo build --release --package \
         dns64d`) or install one of these Debian packages: {}",
        packages.join(", ")
    );
    Err(Failure::new(exit::ENVIRONMENT, anyhow::anyhow!(error)))
}

fn show(out: &mut impl Write, conditions: &Conditions, found: &[Found]) -> io::Result<()> {
    writeln!(out, "{}", headline(found))?;
    let fastest = found.iter().filter_map(|search| search.rate_qps).max();
    for reason in conditions.watermarks(fastest.unwrap_or(0)) {
        writeln!(out, "NOT A MEASUREMENT: {reason}")?;
    }
    let known = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
    let lab = format!("{} {}", known(&conditions.lab), known(&conditions.setup));
    let certified = match conditions.certificate {
        Some(certificate) => format!("certified up to {certificate}"),
        None => "none".to_owned(),
    };
    let of_role = |(role, cores): &(String, String)| (format!("cpus of {role}"), cores.clone());
    let mut rows = vec![
        ("device under test".to_owned(), known(&conditions.dut)),
        ("lab".to_owned(), lab),
    ];
    rows.extend(conditions.cpus.iter().map(of_role));
    rows.push(("self-test".to_owned(), certified));
    for (number, search) in (1..).zip(found) {
        let told = format!("{} ({} trials)", bound(*search), search.trials);
        rows.push((format!("search {number}"), told));
    }
    let notes = conditions.notes.iter();
    rows.extend(notes.map(|note| ("note".to_owned(), note.clone())));
    writeln!(out)?;
    rows.iter()
        .try_for_each(|(label, text)| writeln!(out, "  {label:<17}  {text}"))
}

/// The median of an odd number of searches, and whose limit it is.
fn headline(found: &[Found]) -> String {
    let mut sorted = found.to_vec();
    sorted.sort_unstable();
    let median = sorted[sorted.len() / 2];
    let mut text = format!(
        "DNS64 rate: {} (median of {} searches)",
        bound(median),
        found.len()
    );
    if median.limited {
        text.push_str(
            "\nTHE TESTER IS THE LIMIT, not the server: the Tester is certified no further; give it \
             more cores",
        );
    }
    text
}

fn rate(qps: Option<u64>) -> String {
    qps.map_or("none".into(), |q| format!("{} queries/s", Thousands(q)))
}

/// The rate that a search found, as what it is: the answer or a lower bound of it.
fn bound(found: Found) -> String {
    let least = if found.limited { "at least " } else { "" };
    format!("{least}{}", rate(found.rate_qps))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(rate_qps: Option<u64>, limited: bool) -> Found {
        let trials = 3;
        Found {
            rate_qps,
            limited,
            trials,
        }
    }

    #[test]
    fn a_rate_at_the_limit_of_the_tester_is_told_as_a_lower_bound() {
        let limit = found(Some(30_000), true);
        assert_eq!(
            headline(&[limit, found(Some(9_000), false), limit]),
            "DNS64 rate: at least 30,000 queries/s (median of 3 searches)\n\
             THE TESTER IS THE LIMIT, not the server: the Tester is certified no further; give it \
             more cores"
        );
        // The rate that failed now and then at the certified one is the answer all the same.
        let lower = found(Some(28_000), false);
        assert_eq!(
            headline(&[lower, limit, found(None, false)]),
            "DNS64 rate: 28,000 queries/s (median of 3 searches)"
        );
        assert_eq!(bound(found(None, false)), "none");
    }
}
