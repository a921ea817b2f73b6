//! The context of the results: conditions, variants, certificates, sessions, commands and time.

use super::distinct;
use crate::campaign::history::{Recorded, SessionHistory};
use crate::campaign::plan::{Laboratory, Plan, Variant};
use crate::campaign::record::{SelfTest, VariantFacts};
use crate::conform::report::Conformance;
use crate::lab::LabKind;
use crate::lab::hosts::{HostSpec, Hosts, Reach};
use crate::lab::profile::without_name;
use crate::lab::topology::Setup;
use crate::report::Thousands;
use crate::report::campaign::analysis::{Analysis, Certificate, Session, VariantInfo};
use crate::report::campaign::{numbers, words};
use crate::trial::result::Outcome;

/// Reasons that apply to every variant.
pub(super) fn not_a_measurement(history: &Recorded<'_>, analysis: &Analysis) -> Vec<String> {
    let mut all = analysis.variants.iter().map(|info| &info.not_a_measurement);
    let mut reasons = all.next().cloned().unwrap_or_default();
    reasons.retain(|reason| all.clone().all(|own| own.contains(reason)));
    if history.laboratory() == Laboratory::Here(LabKind::Loopback) && reasons.is_empty() {
        reasons.push("all roles share the loopback interface".to_owned());
    }
    let measured = analysis.points.iter().filter(|p| p.summary.is_some());
    let mut certified = measured.map(|p| p.certified).peekable();
    if certified.peek().is_some() && certified.all(|certified| certified == Some(false)) {
        reasons.push(NOT_CERTIFIED.to_owned());
    }
    reasons
}

/// Why a rate without a certificate of the Tester is not a measurement.
pub(super) const NOT_CERTIFIED: &str = "the Tester is not certified (RFC 8219 section 9.2.1)";

/// The same reason for some of the variants, if the Tester was certified for others.
pub(super) fn partly_uncertified(analysis: &Analysis) -> Vec<String> {
    let counts = |variant: usize| {
        let own = analysis.points_of(variant).filter(|p| p.summary.is_some());
        let without = own.clone().filter(|p| p.certified == Some(false)).count();
        (without, own.count())
    };
    let variants = 0..analysis.variants.len();
    if variants
        .clone()
        .map(counts)
        .all(|(without, all)| without == all)
    {
        return Vec::new();
    }
    let reason = |variant: usize| {
        let which = match counts(variant) {
            (0, _) => return None,
            (without, all) if without == all => String::new(),
            (without, all) => format!(", {without} of {}", numbers::count(all, "point")),
        };
        Some(format!(
            "{}{which}: {NOT_CERTIFIED}",
            analysis.name_of(variant)
        ))
    };
    variants.filter_map(reason).collect()
}

/// Where the roles actually ran: the plan may leave the choice to the machine.
pub(super) fn lab(history: &Recorded<'_>) -> String {
    let kind = match history.laboratory() {
        Laboratory::Elsewhere => return "none: the servers were there before".to_owned(),
        Laboratory::Hosts(hosts) => return on_hosts(&history.plan, hosts),
        Laboratory::Here(kind) => kind,
    };
    // Self-tests beside a running server have no lab.
    let mut labs = history.self_tests.iter().map(|it| &it.test.conditions.lab);
    if let Some(lab) = labs.find(|lab| !lab.is_empty()) {
        return lab.clone();
    }
    let kind = match kind {
        LabKind::Auto => "the best that the machine allows",
        LabKind::Netns => "network namespaces",
        LabKind::Userns => "network namespaces in a user namespace",
        LabKind::Loopback => "loopback",
    };
    let setup = match history.plan.hosts.setup {
        Setup::Loopback => "one device",
        Setup::TwoDevice => "two devices",
        Setup::ThreeDevice => "three devices",
    };
    format!("{kind}, {setup}")
}

/// "4 hosts over OpenSSH, three-device".
fn on_hosts(plan: &Plan, hosts: &Hosts) -> String {
    let way = |host: &HostSpec| match host.reach {
        Reach::Ssh(_) => "over OpenSSH",
        Reach::Netns(_) => "in network namespaces of the controller",
        Reach::Local => "on the controller itself",
    };
    let ways = distinct(hosts.iter().map(way));
    let sites = plan.variants.iter();
    let mut sites = sites.filter_map(|variant| variant.subject.site(None));
    let setup = match sites.any(|site| site.is_two_device()) {
        true => "two devices",
        false => "three devices",
    };
    let number = numbers::count(hosts.iter().len(), "host");
    format!("{number} {}, {setup}", ways.join(" and "))
}

/// Address family between the DUT and the authority.
pub(super) fn family(plan: &Plan) -> String {
    plan.hosts.upstream.map_or_else(
        || "IPv4, or what the DUT needs".to_owned(),
        |family| family.to_string(),
    )
}

/// Names and values of conditions that all variants share: where they held, and the settings of the plan.
pub(super) fn conditions(history: &Recorded<'_>) -> Vec<(String, String)> {
    let plan = &history.plan;
    let ranges = distinct(plan.points.iter().map(|point| point.cidr.to_string()));
    let names = format!("{} under {}", ranges.join(", "), plan.load.zone.suffix);
    let mut conditions = vec![
        ("laboratory", lab(history)),
        ("between DUT and authority", family(plan)),
        ("names", names),
    ];
    conditions.extend(plan.sources().map(|sources| ("source addresses", sources)));
    let owned = |(name, value): (&str, String)| (name.to_owned(), value);
    let settings = ["tester", "trial", "search"].map(|table| plan.settings_of(table));
    let settings = settings.into_iter().flatten();
    conditions.into_iter().map(owned).chain(settings).collect()
}

/// The variants: names from the plan, facts from the last start.
pub(super) fn variants(history: &Recorded<'_>) -> Vec<VariantInfo> {
    let infos = history.plan.variants.iter().zip(&history.variants);
    let infos = infos.zip(&history.conformance);
    let info = |((variant, records), conformance): (
        (&Variant, &Vec<VariantFacts>),
        &Option<Conformance>,
    )| {
        let server = records.last().map(|r| r.server.clone());
        let pref64 = records.last().map(|r| r.pref64.clone());
        let last = records.last().cloned().unwrap_or_default();
        let authority = last
            .authority
            .and_then(|authority| authority.program_sha256);
        let hashes = [
            ("program", last.program.program_sha256),
            ("profile", last.program.profile_sha256),
            ("authority", authority),
        ];
        let hashes = hashes.into_iter();
        let hashes = hashes.filter_map(|(what, hash)| Some((what.to_owned(), hash?)));
        let reasons = records.iter().flat_map(|r| &r.not_a_measurement).cloned();
        let notes = records.iter().flat_map(|r| &r.notes).cloned();
        let mut info = VariantInfo {
            planned: variant.clone(),
            name: variant.name.clone(),
            marked: variant.name.clone(),
            dut: variant.dut.clone(),
            version: last
                .program
                .version
                .map(|said| version(&variant.name, &variant.dut, &said)),
            settings: variant.settings().clone().into_iter().collect(),
            cpus: last.cpus,
            server,
            pref64,
            hashes: hashes.chain(last.program.files_sha256).collect(),
            not_a_measurement: distinct(reasons),
            notes: distinct(notes),
            conformance: conformance.clone(),
        };
        if info.fails_a_must() {
            info.marked += words::FAILS_A_MUST;
        }
        info
    };
    infos.map(info).collect()
}

/// What a server told of its version, such as "unbound (Version 1.17.1)", without its name where that of the variant
/// begins with it.
fn version(variant: &str, dut: &str, said: &str) -> String {
    let inner = said
        .strip_prefix(dut)
        .and_then(|rest| rest.strip_prefix(" (")?.strip_suffix(')'));
    let version = inner.unwrap_or(said);
    let bare = without_name(dut, version);
    match variant.starts_with(dut) {
        true => bare.unwrap_or(version).to_owned(),
        false if bare.is_some() => version.to_owned(),
        false => said.to_owned(),
    }
}

/// The self-tests.
pub(super) fn certificates(history: &Recorded<'_>) -> Vec<Certificate> {
    let certificate = |test: &SelfTest| Certificate {
        conditions: (*test.conditions).clone(),
        end: match &test.end {
            Outcome::Passed => "certified".to_owned(),
            Outcome::Failed { shortfall } => {
                let queries = if *shortfall == 1 { "query" } else { "queries" };
                format!(
                    "failed: {} {queries} without an answer within a quarter of the timeout",
                    Thousands(*shortfall)
                )
            }
            Outcome::Invalid(fault) => format!("disturbed: {fault}"),
        },
        passed_rate_qps: test.passed_rate_qps,
        certified_rate_qps: test.certified_rate_qps,
        trials: test.trials.len(),
    };
    let tests = history.self_tests.iter().map(|it| &it.test);
    tests.map(certificate).collect()
}

/// The processes that worked on the campaign.
pub(super) fn sessions(history: &Recorded<'_>) -> Vec<Session> {
    let last = history.sessions.len().saturating_sub(1);
    let session = |(index, session): (usize, &SessionHistory)| Session {
        began: numbers::moment(session.began_unix_ms),
        ended: match &session.ended {
            Some(how) => how.clone(),
            None if index == last => "under way, or without a stop record".to_owned(),
            None => "without a stop record".to_owned(),
        },
        torn_bytes: session.torn_bytes,
        environment: session.environment.clone(),
    };
    history.sessions.iter().enumerate().map(session).collect()
}

/// Commands to repeat the campaign.
pub(super) fn commands(history: &Recorded<'_>) -> Vec<String> {
    let words: Vec<_> = history.command.iter().map(|word| quoted(word)).collect();
    let command = (!words.is_empty()).then(|| words.join(" "));
    command.into_iter().collect()
}

/// A word quoted for a shell (POSIX, section 2.2.2).
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%[]".contains(c);
    match !word.is_empty() && word.chars().all(plain) && !word.contains('[') {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_do_not_repeat_the_name_of_the_server() {
        let told = [
            (
                "dns64d",
                "dns64d",
                "dns64d (dns64d 0.1.0 (commit ab))",
                "0.1.0 (commit ab)",
            ),
            ("dns64d cores=2", "dns64d", "dns64d 0.1.0", "0.1.0"),
            (
                "unbound",
                "unbound",
                "unbound (Version 1.17.1)",
                "Version 1.17.1",
            ),
            ("fast", "dns64d", "dns64d (dns64d 0.1.0)", "dns64d 0.1.0"),
            (
                "fast",
                "unbound",
                "unbound (Version 1.17.1)",
                "unbound (Version 1.17.1)",
            ),
            ("nsd", "nsd", "NSD version 4.6.1", "version 4.6.1"),
        ];
        for (variant, dut, said, expected) in told {
            assert_eq!(version(variant, dut, said), expected, "{variant}: {said}");
        }
    }
}
