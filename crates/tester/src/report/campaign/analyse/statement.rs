//! RFC 8219, clause by clause: what this campaign meets, and why. What the program does to meet a
//! clause stands in `docs/rfc8219.md`.

use super::about::{is_authority, lab};
use super::is_worst_case;
use super::told::Told;
use crate::campaign::plan::{Plan, Subject};
use crate::procedure::selftest::{literal_self_test_rate, self_test_rate};
use crate::report::campaign::analysis::{Analysis, Clause, Met, PointResult, RunEnd};
use crate::report::campaign::words;
use crate::report::{Span, Thousands};
use dns64_transport::clock::SECOND;

/// A clause's verdict and its reason.
type Finding = (Met, String);

use Met::{Met as MET, NotApplicable as NOT_APPLICABLE, NotMet as NOT_MET};

/// Queries at the authority for one of the client in the worst case, and how far off it may be: a
/// DUT asks for a few names of its own.
const MESSAGES: f64 = 2.0;
const MESSAGES_OFF_MAX: f64 = 0.1;

/// What the clauses are judged by.
struct Facts<'a> {
    plan: &'a Plan,
    told: &'a Told<'a>,
    analysis: &'a Analysis,
    lab: String,
}

/// All clauses.
pub(super) fn clauses(plan: &Plan, told: &Told<'_>, analysis: &Analysis) -> Vec<Clause> {
    let facts = Facts {
        plan,
        told,
        analysis,
        lab: lab(plan, told),
    };
    CLAUSES
        .iter()
        .map(|&(id, level, asks, judge)| {
            let (met, why) = judge(&facts);
            Clause {
                id,
                asks,
                level,
                met,
                why,
            }
        })
        .collect()
}

/// Identity, level, what is asked for, and who judges it.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    fn(&Facts<'_>) -> Finding,
);

const CLAUSES: [Row; 28] = [
    (
        "B-1",
        "SHOULD",
        "traffic of six messages (section 9.1)",
        six_messages,
    ),
    (
        "B-2",
        "MAY",
        "Tester as one device or two (section 9.1)",
        devices,
    ),
    (
        "B-3",
        "MUST",
        "IPv6 between client and DNS64 server (section 9.1)",
        ipv6,
    ),
    (
        "B-4",
        "MAY",
        "IPv4 or IPv6 between DNS64 server and authority (section 9.1)",
        upstream,
    ),
    (
        "B-5",
        "REQUIRED",
        "answers count from the sending of their query, and hold an AAAA (section 9.2)",
        |f| {
            (
                MET,
                format!(
                    "each answer within {} of its own query, with the very AAAA that is expected",
                    Span(f.plan.timeout_ns)
                ),
            )
        },
    ),
    (
        "B-6",
        "SHOULD",
        "trials of at least 60 s (section 9.2)",
        duration,
    ),
    (
        "B-7",
        "SHOULD",
        "timeout of at most 1 s (section 9.2)",
        timeout,
    ),
    (
        "B-8",
        "REQUIRED",
        "the fastest rate with as many replies as queries (section 9.2)",
        fastest,
    ),
    (
        "B-9",
        "SHOULD",
        "at least 20 runs, median, 1st and 99th percentile (section 9.2)",
        runs,
    ),
    (
        "B-10",
        "MUST",
        "first with names that are all different (section 9.2)",
        |f| worst_case(f, "nothing cached, each name asked once"),
    ),
    ("B-11", "MAY", "shares of cached names (section 9.2)", |f| {
        shares(f, |p| p.cached_pct)
    }),
    (
        "B-12",
        "MUST",
        "first with no AAAA and exactly one A per name (section 9.2)",
        |f| worst_case(f, "no AAAA, one A for each name"),
    ),
    (
        "B-13",
        "MAY",
        "shares of names with an AAAA (section 9.2)",
        |f| shares(f, |p| p.aaaa_pct),
    ),
    (
        "B-14",
        "REQUIRED",
        "the combination of nothing cached and no AAAA (section 9.2)",
        |f| worst_case(f, "measured for every variant"),
    ),
    (
        "B-15",
        "SHOULD",
        "primary result: its median, with 1st and 99th percentile (section 9.2)",
        |f| worst_case(f, "the verdict says them"),
    ),
    (
        "B-16",
        "MAY",
        "results of other combinations as tables or figures (section 9.2)",
        combinations,
    ),
    (
        "B-17",
        "MUST",
        "self-test of the Tester before use, within a quarter of the timeout (section 9.2.1)",
        self_test,
    ),
    (
        "B-18",
        "SHOULD",
        "self-test at 2(r + delta), delta at least 0.1 (section 9.2.1)",
        self_test_reading,
    ),
    (
        "B-19",
        "SHOULD",
        "no routing or management frames during trials (section 4)",
        |f| private(f, "the links carry the trials alone"),
    ),
    (
        "B-20",
        "MUST",
        "details of the media in all reports (section 5.1)",
        |f| interfaces(f, ""),
    ),
    (
        "B-21",
        "SHOULD",
        "the MTU of all interfaces (section 5.1)",
        |f| interfaces(f, "MTU"),
    ),
    (
        "B-22",
        "SHOULD",
        "addresses of RFC 5180 and RFC 2544 (section 5.2)",
        addresses,
    ),
    (
        "B-23",
        "MAY",
        "other operating conditions (section 6)",
        modifiers,
    ),
    (
        "B-24",
        "MAY",
        "latency and its variation (section 7)",
        |_| {
            (
                NOT_APPLICABLE,
                "not required for DNS64; round-trip times are reported by percentile".to_owned(),
            )
        },
    ),
    (
        "B-25",
        "SHOULD",
        "degradation against the first of several conditions (section 10.2)",
        degradation,
    ),
    (
        "B-26",
        "MAY",
        "additional tests for NAT (section 11)",
        |_| {
            (
                NOT_APPLICABLE,
                "a DNS64 server translates no packets".to_owned(),
            )
        },
    ),
    (
        "B-27",
        "SHOULD",
        "median and percentiles by RFC 2330 section 11.3 (section 12)",
        |_| {
            (
                MET,
                "percentiles by the empirical distribution function over the runs".to_owned(),
            )
        },
    ),
    (
        "B-28",
        "MUST",
        "no connection to production networks (section 13)",
        |f| private(f, "the lab is a network of its own"),
    ),
];

fn six_messages(f: &Facts<'_>) -> Finding {
    let worst = f.analysis.points.iter().filter(|p| is_worst_case(p));
    let seen: Vec<f64> = worst
        .filter_map(|p| Some(p.achieved?.amplification))
        .collect();
    let off = |seen: f64| (seen - MESSAGES).abs();
    match seen
        .iter()
        .copied()
        .max_by(|a, b| off(*a).total_cmp(&off(*b)))
    {
        None => (
            NOT_APPLICABLE,
            "the authority's counts are not known".to_owned(),
        ),
        Some(most) if off(most) <= MESSAGES_OFF_MAX => (
            MET,
            format!("the authority got {most:.3} queries for each of the client"),
        ),
        Some(most) => (
            NOT_MET,
            format!("the authority got {most:.3} queries for each of the client instead of 2"),
        ),
    }
}

fn devices(f: &Facts<'_>) -> Finding {
    match (f.plan.uses_lab(), is_loopback(f)) {
        (false, _) => (NOT_APPLICABLE, "the servers were there before".to_owned()),
        (true, true) => (NOT_MET, format!("all roles on one device: {}", f.lab)),
        (true, false) => (MET, f.lab.clone()),
    }
}

fn is_loopback(f: &Facts<'_>) -> bool {
    f.lab.contains("loopback")
}

fn ipv6(f: &Facts<'_>) -> Finding {
    let ipv4 = f.analysis.variants.iter().filter(|v| {
        v.server
            .as_ref()
            .is_some_and(|server| !server.starts_with('['))
    });
    let ipv4: Vec<_> = ipv4.map(|v| v.name.as_str()).collect();
    match ipv4.is_empty() {
        true => (MET, "all servers were asked over IPv6".to_owned()),
        false => (NOT_MET, format!("asked over IPv4: {}", ipv4.join(", "))),
    }
}

fn upstream(f: &Facts<'_>) -> Finding {
    match f.plan.uses_lab() {
        true => {
            let family = f
                .analysis
                .conditions
                .iter()
                .find(|c| c.0 == "between DUT and authority");
            (MET, family.map_or(String::new(), |c| c.1.clone()))
        }
        false => (
            NOT_APPLICABLE,
            "the servers choose it themselves".to_owned(),
        ),
    }
}

fn duration(f: &Facts<'_>) -> Finding {
    let least = f
        .analysis
        .points
        .iter()
        .map(|p| p.duration_s)
        .fold(f64::INFINITY, f64::min);
    match least >= 60.0 {
        true => (MET, format!("trials of {least} s or more")),
        false => (NOT_MET, format!("trials of {least} s")),
    }
}

fn timeout(f: &Facts<'_>) -> Finding {
    match f.plan.timeout_ns > SECOND {
        true => (NOT_MET, format!("timeout of {}", Span(f.plan.timeout_ns))),
        false => (MET, format!("timeout of {}", Span(f.plan.timeout_ns))),
    }
}

fn fastest(f: &Facts<'_>) -> Finding {
    let runs = f.analysis.points.iter().flat_map(|p| &p.runs);
    let runs: Vec<_> = runs.filter(|run| run.ended != RunEnd::Unfinished).collect();
    let found = runs.iter().filter(|run| run.ended == RunEnd::Found).count();
    match (found, runs.len()) {
        (_, 0) => (NOT_MET, "no search has ended".to_owned()),
        (found, all) if found == all => (
            MET,
            format!("each of {all} searches ended between a pass and a fail next to it"),
        ),
        (found, all) => (
            NOT_MET,
            format!(
                "{} of {all} searches did not end between a pass and a fail",
                all - found
            ),
        ),
    }
}

fn runs(f: &Facts<'_>) -> Finding {
    let of = |p: &PointResult| p.summary.as_ref().map_or(0, |s| s.runs);
    let least = f.analysis.points.iter().map(of).min().unwrap_or(0);
    let why = format!(
        "{} or more of each point have a rate",
        words::count(least, "run")
    );
    (if least >= 20 { MET } else { NOT_MET }, why)
}

/// The combination that has to be measured first, for every variant.
fn worst_case(f: &Facts<'_>, how: &str) -> Finding {
    let missing: Vec<_> = (0..f.analysis.variants.len())
        .filter(|variant| {
            let mut own = f.analysis.points.iter().filter(|p| p.variant == *variant);
            !own.any(|p| is_worst_case(p) && p.summary.is_some())
        })
        .map(|variant| f.analysis.variants[variant].name.as_str())
        .collect();
    match missing.is_empty() {
        true => (MET, how.to_owned()),
        false => (
            NOT_MET,
            format!("no rate without AAAA and cache for {}", missing.join(", ")),
        ),
    }
}

fn shares(f: &Facts<'_>, of: fn(&PointResult) -> f64) -> Finding {
    let mut shares: Vec<f64> = f
        .analysis
        .points
        .iter()
        .map(of)
        .filter(|s| *s > 0.0)
        .collect();
    shares.sort_by(f64::total_cmp);
    shares.dedup();
    let shown: Vec<_> = shares.into_iter().map(words::pct).collect();
    match shown.is_empty() {
        true => (NOT_APPLICABLE, "the plan asks for none".to_owned()),
        false => (MET, shown.join(", ")),
    }
}

fn combinations(f: &Facts<'_>) -> Finding {
    match f.plan.cells.len() {
        0 | 1 => (NOT_APPLICABLE, "one combination was measured".to_owned()),
        cells => (
            MET,
            format!("{cells} combinations; each table and figure gives both shares"),
        ),
    }
}

fn self_test(f: &Facts<'_>) -> Finding {
    let of_duts = f
        .analysis
        .points
        .iter()
        .filter(|p| !is_authority(f.plan, p.variant));
    let measured: Vec<_> = of_duts.filter(|p| p.summary.is_some()).collect();
    let without = measured
        .iter()
        .filter(|p| p.certified_rate_qps.is_none())
        .count();
    let certified = measured.iter().filter_map(|p| p.certified_rate_qps).min();
    match (measured.len(), without, certified) {
        (0, ..) => (NOT_APPLICABLE, "no DNS64 server was measured".to_owned()),
        (all, 1.., _) => (
            NOT_MET,
            format!("{without} of {all} points without a certificate"),
        ),
        (_, _, rate) => (
            MET,
            format!(
                "certified up to {} queries/s or more",
                Thousands(rate.unwrap_or(0))
            ),
        ),
    }
}

fn self_test_reading(f: &Facts<'_>) -> Finding {
    let rates = f
        .told
        .self_tests
        .iter()
        .filter_map(|test| test.certified_rate_qps);
    match rates.min() {
        None => (NOT_APPLICABLE, "there is no certificate".to_owned()),
        Some(rate) => (
            MET,
            format!(
                "read as 2(1 + 0.1)r: {} queries/s for {}; literally it would be {}",
                Thousands(self_test_rate(rate)),
                Thousands(rate),
                Thousands(literal_self_test_rate(rate))
            ),
        ),
    }
}

/// Clauses that a lab of namespaces meets by itself.
fn private(f: &Facts<'_>, how: &str) -> Finding {
    match (f.plan.uses_lab(), is_loopback(f)) {
        (false, _) => (
            NOT_APPLICABLE,
            "the network of the servers is not the Tester's: its operator has to say".to_owned(),
        ),
        (true, true) => (
            NOT_MET,
            "the loopback interface is the machine's own".to_owned(),
        ),
        (true, false) => (MET, how.to_owned()),
    }
}

/// Interfaces in the environment of all sessions, with `word` in what is said of each.
fn interfaces(f: &Facts<'_>, word: &str) -> Finding {
    let named = |environment: &crate::campaign::record::Environment| {
        let details = environment.details.iter();
        details
            .filter(|(name, value)| name.starts_with("interface ") && value.contains(word))
            .count()
    };
    let sessions = f
        .told
        .sessions
        .iter()
        .map(|session| named(session.environment));
    match sessions.min().unwrap_or(0) {
        0 => (
            NOT_MET,
            "the environment names no interface that says it".to_owned(),
        ),
        least => (
            MET,
            format!("{} in the environment", words::count(least, "interface")),
        ),
    }
}

fn addresses(f: &Facts<'_>) -> Finding {
    let outside: Vec<_> = f
        .plan
        .variants
        .iter()
        .filter_map(|v| match v.subject {
            Subject::Server { server, .. } if !is_reserved(server.ip()) => Some(v.name.as_str()),
            _ => None,
        })
        .collect();
    match (outside.is_empty(), is_loopback(f)) {
        (true, false) => (MET, "2001:2::/48 and 198.18.0.0/15".to_owned()),
        (true, true) => (NOT_MET, "addresses of the loopback interface".to_owned()),
        (false, _) => (NOT_MET, format!("other addresses: {}", outside.join(", "))),
    }
}

/// Whether an address is reserved for benchmarking (RFC 5180 section 8, RFC 2544 appendix C.2.2).
fn is_reserved(address: std::net::IpAddr) -> bool {
    match address {
        std::net::IpAddr::V4(address) => matches!(address.octets(), [198, 18 | 19, ..]),
        std::net::IpAddr::V6(address) => matches!(address.segments(), [0x2001, 2, 0, ..]),
    }
}

fn modifiers(f: &Facts<'_>) -> Finding {
    let plan = f.plan;
    let asked = [
        (plan.queue_check.is_some(), "durations and timeouts"),
        (plan.overload.is_some(), "overload"),
        (plan.soak.is_some(), "soak"),
        (
            plan.variants.iter().any(|v| !v.settings.is_empty()),
            "settings",
        ),
        (!f.analysis.scaling.is_empty(), "cores"),
    ];
    let asked: Vec<_> = asked
        .iter()
        .filter(|(is, _)| *is)
        .map(|(_, what)| *what)
        .collect();
    match asked.is_empty() {
        true => (NOT_APPLICABLE, "the plan asks for none".to_owned()),
        false => (MET, asked.join(", ")),
    }
}

fn degradation(f: &Facts<'_>) -> Finding {
    let given = f
        .analysis
        .points
        .iter()
        .filter(|p| p.degradation_pct.is_some())
        .count();
    match given {
        0 => (NOT_APPLICABLE, "one condition was measured".to_owned()),
        points => (
            MET,
            format!(
                "{} against the first cell of the same variant",
                words::count(points, "point")
            ),
        ),
    }
}
