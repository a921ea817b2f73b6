//! Judges a campaign by the clauses of RFC 8219: whether it meets each of them, and why. `docs/rfc8219.md` describes
//! how the program meets a clause.

mod links;
mod names;

use std::borrow::Borrow;
use std::net::{IpAddr, SocketAddr};

use super::about::{family, lab};
use super::distinct;
use crate::campaign::history::Recorded;
use crate::campaign::plan::Laboratory;
use crate::lab::LabKind;
use crate::procedure::selftest::{literal_self_test_rate, self_test_rate};
use crate::report::Thousands;
use crate::report::campaign::analysis::{Analysis, Clause, Met, PointResult, RunEnd};
use crate::report::campaign::numbers;

/// Queries at the authority for one query of the client in the worst case, and the tolerance: a DUT also sends a few
/// queries of its own.
const MESSAGES: f64 = 2.0;
const MESSAGES_OFF_MAX: f64 = 0.1;

/// The basis for the verdicts.
struct Facts<'a> {
    history: &'a Recorded<'a>,
    analysis: &'a Analysis,
}

impl Facts<'_> {
    /// The DNS64 servers with their names, without authorities that are measured by themselves.
    fn dns64_servers(&self) -> Vec<(usize, &str)> {
        let variants = self.analysis.variants.iter().enumerate();
        let names = variants.map(|(variant, info)| (variant, info.name.as_str()));
        names
            .filter(|(variant, _)| !self.analysis.variants[*variant].is_authority())
            .collect()
    }

    /// Names of the servers that ran before the campaign, on hosts that are not the Tester's.
    fn servers_of_others(&self) -> Vec<&str> {
        let variants = self.analysis.variants.iter();
        let running = variants.filter(|info| info.planned.subject.server().is_some());
        running.map(|info| info.name.as_str()).collect()
    }

    /// The points of DNS64 servers.
    fn dns64_points(&self) -> impl Iterator<Item = &PointResult> {
        let points = self.analysis.points.iter();
        points.filter(|p| !self.analysis.variants[p.variant].is_authority())
    }
}

/// Verdict on a clause, and the reason.
type Finding = (Met, String);

fn met(why: impl Into<String>) -> Finding {
    (Met::Met, why.into())
}

fn not_met(why: impl Into<String>) -> Finding {
    (Met::NotMet, why.into())
}

fn not_applicable(why: impl Into<String>) -> Finding {
    (Met::NotApplicable, why.into())
}

fn not_known(why: impl Into<String>) -> Finding {
    (Met::NotKnown, why.into())
}

/// Met or not met, with the same reason.
fn met_if(is_met: bool, why: String) -> Finding {
    match is_met {
        true => met(why),
        false => not_met(why),
    }
}

/// Not met if `some` is not empty: `what` names the fault.
fn met_unless(some: &[&str], what: &str, why: &str) -> Finding {
    match some.is_empty() {
        true => met(why),
        false => not_met(format!("{what} {}", some.join(", "))),
    }
}

/// Met by requirements of the plan; not applicable if there are none.
fn asked_for(asked: &[impl Borrow<str>]) -> Finding {
    match asked.is_empty() {
        true => not_applicable("the plan asks for none"),
        false => met(asked.join(", ")),
    }
}

/// Judges each clause: ID, level, requirement and judging function.
macro_rules! clauses {
    ($facts:expr; $($id:literal $level:ident $asks:literal $judge:expr;)+) => {
        vec![$({
            let judge: fn(&Facts<'_>) -> Finding = $judge;
            let (met, why) = judge($facts);
            Clause { id: $id, asks: $asks, level: stringify!($level), met, why }
        }),+]
    };
}

/// All clauses.
pub(super) fn clauses(history: &Recorded<'_>, analysis: &Analysis) -> Vec<Clause> {
    let facts = Facts { history, analysis };
    clauses! { &facts;
        "B-1" SHOULD "traffic of six messages (section 9.1)" six_messages;
        "B-2" MAY "Tester as one device or two (section 9.1)" devices;
        "B-3" MUST "IPv6 between client and DNS64 server (section 9.1)" ipv6;
        "B-4" MAY "IPv4 or IPv6 between DNS64 server and authority (section 9.1)" upstream;
        "B-5" REQUIRED "the timeout starts when a query is sent, and an answer has an AAAA record (section 9.2)" answers;
        "B-6" SHOULD "trials of at least 60 s (section 9.2)" duration;
        "B-7" SHOULD "timeout of at most 1 s (section 9.2)" timeout;
        "B-8" REQUIRED "the fastest rate with as many replies as queries (section 9.2)" fastest;
        "B-9" SHOULD "at least 20 runs, median, 1st and 99th percentile (section 9.2)" runs;
        "B-10" MUST "first with names that are all different (section 9.2)"
            |f| names::of_each(f, names::were_different);
        "B-11" MAY "shares of cached names (section 9.2)" |f| shares(f, |p| p.cached_pct);
        "B-12" MUST "first with no AAAA and exactly one A per name (section 9.2)"
            |f| names::of_each(f, names::had_one_a);
        "B-13" MAY "shares of names with an AAAA (section 9.2)" |f| shares(f, |p| p.aaaa_pct);
        "B-14" REQUIRED "the combination of nothing cached and no AAAA (section 9.2)"
            |f| worst_case(f, "measured for every variant");
        "B-15" SHOULD "primary result: its median, with 1st and 99th percentile (section 9.2)"
            |f| worst_case(f, "the results say them");
        "B-16" MAY "results of other combinations as tables or figures (section 9.2)" combinations;
        "B-17" MUST "self-test of the Tester before use, within a quarter of the timeout (section 9.2.1)" self_test;
        "B-18" SHOULD "self-test at 2(r + delta), delta at least 0.1 (section 9.2.1)" self_test_reading;
        "B-19" SHOULD "no routing or management frames during trials (section 4)"
            |f| private(f, "the links carry the trials alone");
        "B-20" MUST "details of the media in all reports (section 5.1)" links::media;
        "B-21" SHOULD "one MTU at all interfaces (section 5.1)" links::mtus;
        "B-22" SHOULD "addresses of RFC 5180 and RFC 2544 (section 5.2)" addresses;
        "B-23" MAY "other operating conditions (section 6)"
            |_| not_applicable("no broadcast frames, management frames, routing updates or filters \
                                (RFC 2544 section 11)");
        "B-24" MAY "latency and its variation (section 7)"
            |_| not_applicable("not required for DNS64; round-trip times are reported by percentile");
        "B-25" SHOULD "degradation with n network flows (section 10.2)"
            |_| not_applicable("not required for DNS64");
        "B-26" MAY "additional tests for NAT (section 11)"
            |_| not_applicable("a DNS64 server translates no packets");
        "B-27" SHOULD "median and percentiles by RFC 2330 section 11.3 (section 12)"
            |_| met("percentiles by the empirical distribution function over the runs");
        "B-28" MUST "no connection to production networks (section 13)"
            |f| private(f, "the lab is a network of its own");
    }
}

fn six_messages(f: &Facts<'_>) -> Finding {
    if f.dns64_servers().is_empty() {
        return not_applicable("no DNS64 server was measured");
    }
    let worst = f.dns64_points().filter(|p| p.is_worst_case());
    let seen = worst.filter_map(|p| Some(p.achieved?.amplification));
    let off = |seen: &f64| (seen - MESSAGES).abs();
    match seen.max_by(|a, b| off(a).total_cmp(&off(b))) {
        None => not_known("the authority's counts are not known"),
        Some(most) => {
            let is_met = off(&most) <= MESSAGES_OFF_MAX;
            let instead = if is_met { "" } else { " instead of 2" };
            let got = format!("the authority got {most:.3} queries for each of the client");
            met_if(is_met, got + instead)
        }
    }
}

fn devices(f: &Facts<'_>) -> Finding {
    let lab = lab(f.history);
    match f.history.laboratory() {
        Laboratory::Elsewhere => not_applicable("the servers were there before"),
        Laboratory::Here(LabKind::Loopback) => not_met(format!("all roles on one device: {lab}")),
        Laboratory::Here(_) | Laboratory::Hosts(_) => met(lab),
    }
}

fn ipv6(f: &Facts<'_>) -> Finding {
    let is_ipv4 = |server: &String| server.parse().is_ok_and(|at: SocketAddr| at.is_ipv4());
    let variants = f.analysis.variants.iter();
    let ipv4 = variants.filter(|v| v.server.as_ref().is_some_and(is_ipv4));
    let ipv4: Vec<_> = ipv4.map(|v| v.name.as_str()).collect();
    let how = "all servers were asked over IPv6";
    met_unless(&ipv4, "asked over IPv4:", how)
}

fn upstream(f: &Facts<'_>) -> Finding {
    match f.history.laboratory() {
        Laboratory::Elsewhere => not_applicable("the servers choose it themselves"),
        Laboratory::Here(_) | Laboratory::Hosts(_) => met(family(&f.history.plan)),
    }
}

fn answers(f: &Facts<'_>) -> Finding {
    let timeouts_s = f.analysis.points.iter().map(|p| p.timeout_s);
    met(format!(
        "each answer within {} of its own query, with the expected AAAA record",
        spans(timeouts_s)
    ))
}

fn duration(f: &Facts<'_>) -> Finding {
    let durations = f.analysis.points.iter().map(|p| p.duration_s);
    let least = durations.fold(f64::INFINITY, f64::min);
    let or_more = if least >= 60.0 { " or more" } else { "" };
    met_if(least >= 60.0, format!("trials of {least} s{or_more}"))
}

fn timeout(f: &Facts<'_>) -> Finding {
    let timeouts_s = f.analysis.points.iter().map(|p| p.timeout_s);
    let is_met = timeouts_s
        .clone()
        .all(|timeout_s| timeout_s <= TIMEOUT_S_MAX);
    met_if(is_met, format!("timeout of {}", spans(timeouts_s)))
}

/// Spans of the trials of all points, from the shortest to the longest.
fn spans(spans_s: impl Iterator<Item = f64>) -> String {
    let ends = |(least, most): (f64, f64), span_s: f64| (least.min(span_s), most.max(span_s));
    let (least, most) = spans_s.fold((f64::INFINITY, 0.0), ends);
    let [least, most] = [least, most].map(numbers::short);
    match least == most {
        true => format!("{least} s"),
        false => format!("{least} s to {most} s"),
    }
}

/// Highest timeout of RFC 8219 section 9.2, in seconds.
const TIMEOUT_S_MAX: f64 = 1.0;

fn fastest(f: &Facts<'_>) -> Finding {
    let runs = f.analysis.points.iter().flat_map(|p| &p.runs);
    let ends = runs.map(|run| run.ended);
    let ends: Vec<_> = ends.filter(|end| *end != RunEnd::Unfinished).collect();
    let all = ends.len();
    match ends.iter().filter(|end| **end != RunEnd::Found).count() {
        _ if all == 0 => not_met("no search has ended"),
        0 => met(format!(
            "each of {all} searches ended between a pass and a fail next to it"
        )),
        others => not_met(format!(
            "{others} of {all} searches did not end between a pass and a fail"
        )),
    }
}

fn runs(f: &Facts<'_>) -> Finding {
    let of = |p: &PointResult| p.summary.as_ref().map_or(0, |s| s.runs);
    let least = f.analysis.points.iter().map(of).min().unwrap_or(0);
    let runs = numbers::count(least, "run");
    let why = format!("{runs} or more of each point have a rate");
    met_if(least >= 20, why)
}

/// The combination that has to be measured first, for every variant.
fn worst_case(f: &Facts<'_>, how: &str) -> Finding {
    let measured = |variant| {
        let mut own = f.analysis.points_of(variant);
        own.any(|p| p.is_worst_case() && p.summary.is_some())
    };
    let servers = f.dns64_servers();
    if servers.is_empty() {
        return not_applicable("no DNS64 server was measured");
    }
    let missing = servers
        .into_iter()
        .filter(|(variant, _)| !measured(*variant));
    let missing: Vec<_> = missing.map(|(_, name)| name).collect();
    met_unless(&missing, "no rate without AAAA and cache for", how)
}

fn shares(f: &Facts<'_>, of: fn(&PointResult) -> f64) -> Finding {
    let mut shares: Vec<f64> = f.analysis.points.iter().map(of).collect();
    shares.retain(|share| *share > 0.0);
    shares.sort_by(f64::total_cmp);
    asked_for(&distinct(shares.into_iter().map(numbers::pct)))
}

fn combinations(f: &Facts<'_>) -> Finding {
    match f.history.plan.cells.len() {
        0 | 1 => not_applicable("one combination was measured"),
        cells => met(format!(
            "{cells} combinations; each table and figure gives both shares"
        )),
    }
}

fn self_test(f: &Facts<'_>) -> Finding {
    let measured = f.dns64_points().filter(|p| p.summary.is_some());
    let certified: Vec<_> = measured.map(|p| p.certified_rate_qps).collect();
    let without = certified.iter().filter(|rate| rate.is_none()).count();
    let all = certified.len();
    let others = f.servers_of_others();
    match certified.into_iter().min() {
        None => not_applicable("no DNS64 server was measured"),
        Some(None) => not_met(format!("{without} of {all} points without a certificate")),
        // The authority of a self-test has an AAAA for every name, so it is not the one behind these servers.
        Some(Some(_)) if !others.is_empty() => not_met(format!(
            "certified by an authority that {} does not ask",
            others.join(", ")
        )),
        Some(Some(least)) => met(format!(
            "certified up to {} queries/s or more",
            Thousands(least)
        )),
    }
}

fn self_test_reading(f: &Facts<'_>) -> Finding {
    let tests = f.history.self_tests.iter();
    match tests.filter_map(|it| it.test.certified_rate_qps).min() {
        None => not_applicable("there is no certificate"),
        Some(rate) => met(format!(
            "read as 2(1 + 0.1)r: {} queries/s for {}; literally it would be {}",
            Thousands(self_test_rate(rate)),
            Thousands(rate),
            Thousands(literal_self_test_rate(rate))
        )),
    }
}

/// Clauses that a lab of namespaces always meets.
fn private(f: &Facts<'_>, how: &str) -> Finding {
    match f.history.laboratory() {
        Laboratory::Elsewhere => {
            not_known("the network of the servers is not the Tester's: its operator has to say")
        }
        Laboratory::Hosts(_) => not_known(
            "the Tester sends nothing to its hosts during trials; what else uses the test links, their \
             operator has to say",
        ),
        Laboratory::Here(LabKind::Loopback) => {
            not_met("the loopback interface is the machine's own")
        }
        Laboratory::Here(_) => met(how),
    }
}

fn addresses(f: &Facts<'_>) -> Finding {
    let outside = f.analysis.variants.iter().filter(|info| {
        let server = info.planned.subject.server();
        server.is_some_and(|server| !is_reserved(server.ip()))
    });
    let mut outside: Vec<_> = outside.map(|info| info.name.as_str()).collect();
    let reserved = "2001:2::/48 and 198.18.0.0/15";
    match f.history.laboratory() {
        Laboratory::Here(LabKind::Loopback) if outside.is_empty() => {
            return not_met("addresses of the loopback interface");
        }
        Laboratory::Hosts(hosts) => {
            let others = hosts.iter().filter(|host| {
                let ends = host.links.values().flatten();
                let mut addresses = ends.flat_map(|end| &end.addresses);
                addresses.any(|address| !is_reserved(address.address()))
            });
            outside.extend(others.map(|host| host.name.as_str()));
        }
        _ => {}
    }
    met_unless(&outside, "other addresses:", reserved)
}

/// Whether an address is reserved for benchmarking (RFC 5180 section 8, RFC 2544 appendix C.2.2).
fn is_reserved(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => matches!(address.octets(), [198, 18 | 19, ..]),
        IpAddr::V6(address) => matches!(address.segments(), [0x2001, 2, 0, ..]),
    }
}
