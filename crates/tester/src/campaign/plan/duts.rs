//! The variants of a plan: each DUT with each of its core counts and settings.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use super::fault::{Fault, Faults};
use super::file::{At, DUT, Dut, File, Word};
use super::hosts::host_of;
use super::values::{label, list_or, text};
use super::{Restart, Variant};
use crate::authority::behaviour::{Behaviour, Delay};
use crate::load::pace::Pacing;
use crate::machine::cpuset::CpuSet;
use crate::namespace::Cidr;
use crate::quantity::ValueError;
use crate::rig::spec::{AuthorityChoice, DutChoice, LabSpec, Subject};

/// All variants of all DUTs, in the order of the plan.
pub(super) fn variants(
    file: &File,
    hosts: &LabSpec,
    restart: Restart,
    origin: &str,
    faults: &mut Faults<'_>,
) -> Vec<Variant> {
    if file.dut.is_empty() && !faults.spoil(&[DUT]) {
        let message =
            "no [[dut]]: a plan measures at least one; add [[dut]] with profile = \"unbound\"";
        faults.add(Fault {
            span: 0..0,
            table: DUT,
            message: message.to_owned(),
        });
    }
    let mut variants: Vec<Variant> = Vec::new();
    for (number, dut) in file.dut.iter().enumerate() {
        if dut.get_ref().is_mistyped {
            continue;
        }
        let Some(subject) = faults.keep(subject(dut, hosts, restart, origin)) else {
            continue;
        };
        let host = match dut.get_ref().profile {
            Some(_) => faults.or(host_of(dut, file), None),
            None => None,
        };
        for variant in variants_of(dut, number, (subject, host), origin, faults) {
            if variants.iter().any(|other| other.name == variant.name) {
                faults.add(dut.fault(format!(
                    "two variants have the name {:?}; give one [[dut]] another name",
                    variant.name
                )));
            }
            variants.push(variant);
        }
    }
    variants
}

fn variants_of(
    at: &At<Dut>,
    number: usize,
    (mut subject, host): (Subject, Option<String>),
    origin: &str,
    faults: &mut Faults<'_>,
) -> Vec<Variant> {
    let dut = at.get_ref();
    if let Subject::Lab(lab) = &mut subject
        && let Some(choice) = &mut lab.dut
    {
        choice.host = host;
    }
    refuse_what_does_not_fit(dut, &subject, faults);
    let name = faults.or(text(dut.name.as_ref(), label), None);
    let name = name.unwrap_or_else(|| default_name(&subject));
    let unrestricted = [CpuSet::unrestricted()];
    let cores = list_or(&dut.cores, str::parse::<CpuSet>, unrestricted, faults);
    let behaviours = behaviours(dut, origin, faults);
    let pacing = [Pacing::default()];
    let pacings = list_or(&dut.pacing, str::parse::<Pacing>, pacing, faults);
    let range = |text: &str| text.parse::<Cidr>().map(Some);
    let namespaces = list_or(&dut.namespace, range, [None], faults);
    let mut variants = Vec::new();
    for settings in settings(at, faults) {
        for (cpus, &cidr) in cores
            .iter()
            .flat_map(|cpus| namespaces.iter().map(move |cidr| (cpus, cidr)))
        {
            let mut full = name.clone();
            if cores.len() > 1 {
                full.push_str(&format!(" cores={cpus}"));
            }
            if let Some(cidr) = cidr.filter(|_| namespaces.len() > 1) {
                full.push_str(&format!(" namespace={cidr}"));
            }
            for (key, value) in settings.iter().filter(|(k, _)| dut.sweep.contains_key(*k)) {
                full.push_str(&format!(" {key}={value}"));
            }
            for behaviour in &behaviours {
                let mut name_of = full.clone();
                if behaviours.len() > 1 {
                    name_of.push_str(&format!(" authority={behaviour}"));
                }
                variants.extend(pacings.iter().map(|&pacing| Variant {
                    name: match pacings.len() {
                        1 => name_of.clone(),
                        _ => format!("{name_of} pacing={pacing}"),
                    },
                    dut: name.clone(),
                    number,
                    subject: with(subject.clone(), cpus, &settings, behaviour),
                    pacing,
                    cidr,
                }));
            }
        }
    }
    variants
}

/// Subject of a `[[dut]]`, without its host ([`host_of`]).
fn subject(
    at: &At<Dut>,
    hosts: &LabSpec,
    restart: Restart,
    origin: &str,
) -> Result<Subject, Fault> {
    let dut = at.get_ref();
    let server_at = text(dut.server.as_ref(), server)?;
    match (&dut.profile, server_at, &dut.authority) {
        (Some(profile), None, None) => Ok(Subject::Lab(Box::new(LabSpec {
            dut: Some(DutChoice {
                profile: resolved(profile.get_ref(), origin),
                program: dut.binary.as_ref().map(|b| beside(origin, b.get_ref())),
                restart: restart == Restart::Trial,
                ..DutChoice::default()
            }),
            ..hosts.clone()
        }))),
        (None, Some(_), None) if hosts.at.is_some() => {
            let at = dut.server.as_ref().map_or_else(|| at.whole(), At::whole);
            Err(at.fault(
                "a server that runs already is measured from this machine; put it into a plan without hosts",
            ))
        }
        (None, Some(server_at), None) => Ok(Subject::Server {
            server: server_at,
            self_test_server: text(dut.self_test_server.as_ref(), server)?,
        }),
        (None, None, Some(authority)) => {
            let Ok(authority) = resolved(authority.get_ref(), origin).parse();
            Ok(Subject::Lab(Box::new(LabSpec {
                authority,
                ..hosts.clone()
            })))
        }
        _ => Err(at.fault(
            "a [[dut]] is one of three: profile = \"unbound\" for a DNS64 server to be started, \
             server = \"2001:db8::53\" for one that runs, authority = \"nsd\" for an \
             authoritative server by itself",
        )),
    }
}

/// Configured faults of the authority behind a DUT, one for each of its variants.
pub(super) fn behaviours(dut: &Dut, origin: &str, faults: &mut Faults<'_>) -> Vec<Behaviour> {
    let read = |text: &str| {
        let mut behaviour = text.parse::<Behaviour>()?;
        if let Delay::File(path) = &mut behaviour.delay {
            *path = beside(origin, &path.to_string_lossy());
        }
        Ok::<_, ValueError>(behaviour)
    };
    list_or(
        &dut.authority_behaviour,
        read,
        [Behaviour::default()],
        faults,
    )
}

/// Sets the cores of the measured program of a variant.
fn with(
    mut subject: Subject,
    cpus: &CpuSet,
    settings: &BTreeMap<String, String>,
    behaviour: &Behaviour,
) -> Subject {
    if let Subject::Lab(lab) = &mut subject {
        lab.behaviour = behaviour.clone();
        match (&mut lab.dut, &mut lab.authority) {
            (Some(dut), _) => {
                dut.cpus = cpus.clone();
                dut.settings = settings.clone();
            }
            (None, authority) => {
                lab.authority_cpus = cpus.clone();
                if let AuthorityChoice::Profile { settings: own, .. } = authority {
                    *own = settings.clone();
                }
            }
        }
    }
    subject
}

/// Refuses keys that have a meaning only for another kind of subject.
fn refuse_what_does_not_fit(dut: &Dut, subject: &Subject, faults: &mut Faults<'_>) {
    let text = |at: &Option<At<String>>| at.as_ref().map(At::whole);
    let cores = ("cores", dut.cores.as_ref().map(At::whole));
    let set = dut.set.values().next().map(At::whole);
    let sweep = dut.sweep.values().next().map(At::whole);
    let behaviour = dut.authority_behaviour.as_ref().map(At::whole);
    let behaviour = ("authority-behaviour", behaviour);
    let self_test_server = ("self-test-server", text(&dut.self_test_server));
    let host = ("host", text(&dut.host));
    let namespace = dut.namespace.as_ref();
    if let Some(at) = namespace.filter(|_| !subject.is_authority()) {
        faults.add(
            at.fault("namespace in [[dut]] is for an authority by itself; give it in [tester]"),
        );
    }
    let binary = ("binary", text(&dut.binary));
    let settings = [("set", set), ("sweep", sweep)];
    let (what, strangers) = match subject {
        Subject::Server { .. } => (
            "a server that runs",
            [&[binary, host, cores, behaviour], &settings[..]].concat(),
        ),
        Subject::Lab(lab) => match (&lab.dut, &lab.authority) {
            (Some(_), AuthorityChoice::BuiltIn) => ("a profile", vec![self_test_server]),
            (Some(_), AuthorityChoice::InDriver(_)) => (
                "a profile whose authority answers in the driver",
                vec![self_test_server, behaviour],
            ),
            (Some(_), AuthorityChoice::Profile { .. }) => (
                "a profile whose authority is not the built-in one",
                vec![self_test_server, behaviour],
            ),
            (None, AuthorityChoice::Profile { .. }) => (
                "an authority",
                vec![self_test_server, binary, host, behaviour],
            ),
            (None, AuthorityChoice::BuiltIn | AuthorityChoice::InDriver(_)) => (
                "the Tester's own authority",
                [&[self_test_server, binary, host, behaviour], &settings[..]].concat(),
            ),
        },
    };
    for (key, at) in strangers {
        if let Some(at) = at {
            faults.add(at.fault(format!("`{key}` does not apply to {what}; omit it")));
        }
    }
}

/// All combinations of the settings: the fixed ones, with each value of the swept ones.
fn settings(at: &At<Dut>, faults: &mut Faults<'_>) -> Vec<BTreeMap<String, String>> {
    let dut = at.get_ref();
    let value = |at: &At<Word>| at.get_ref().0.clone();
    let fixed = dut.set.iter();
    let fixed = fixed.flat_map(|(key, at)| Some((key.clone(), value(at.get_ref().first()?))));
    let mut all = vec![fixed.collect::<BTreeMap<_, _>>()];
    for (key, at) in &dut.sweep {
        let values = at.get_ref();
        if values.is_empty() {
            faults.add(at.fault(format!("sweep has no value for {key}; give at least one")));
            continue;
        }
        if dut.set.contains_key(key) {
            faults.add(at.fault(format!("{key} is both in set and in sweep; omit it in one")));
            continue;
        }
        if all.len() * values.len() > SWEEP_MAX {
            faults.add(at.fault(format!(
                "sweeps make more than {SWEEP_MAX} variants of one DUT; omit some values"
            )));
            continue;
        }
        let with = |settings: &BTreeMap<String, String>, at| {
            let mut settings = settings.clone();
            settings.insert(key.clone(), value(at));
            settings
        };
        let of = |settings| values.iter().map(move |at| with(settings, at));
        all = all.iter().flat_map(of).collect();
    }
    all
}

fn default_name(subject: &Subject) -> String {
    let name = match subject {
        Subject::Server { server, .. } => return server.to_string(),
        Subject::Lab(lab) => match &lab.dut {
            Some(dut) => dut.profile.clone(),
            None => lab.authority.to_string(),
        },
    };
    let stem = Path::new(&name).file_stem();
    stem.map_or_else(|| name.clone(), |stem| stem.to_string_lossy().into_owned())
}

/// Name of a built-in profile, or path of a file relative to the working directory of the program.
pub(super) fn resolved(profile: &str, origin: &str) -> String {
    if is_path(profile) {
        beside(origin, profile).to_string_lossy().into_owned()
    } else {
        profile.to_owned()
    }
}

/// Whether this is a path, by the rule of [`Profile::load`](crate::lab::profile::Profile::load).
fn is_path(profile: &str) -> bool {
    profile.contains('/') || profile.ends_with(".toml")
}

/// Resolves a path relative to the plan's directory.
pub(super) fn beside(origin: &str, path: &str) -> PathBuf {
    let directory = Path::new(origin).parent();
    directory.map_or_else(|| PathBuf::from(path), |directory| directory.join(path))
}

/// An address with or without a port.
fn server(text: &str) -> Result<SocketAddr, String> {
    let address = text.parse::<IpAddr>();
    address
        .map(|address| SocketAddr::new(address, DNS_PORT))
        .or_else(|_| text.parse())
        .map_err(|_| {
            format!(
                "{text:?} is not an address; write \"2001:db8::53\" or, with a port, \
                 \"[2001:db8::53]:5300\""
            )
        })
}

/// RFC 1035 section 4.2.
const DNS_PORT: u16 = 53;

/// Two settings with some thirty values each.
const SWEEP_MAX: usize = 1000;
