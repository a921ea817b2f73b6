//! The variants of a plan: each DUT with each of its core counts and settings.

use std::collections::BTreeMap;
use std::path::Path;

use super::draft::{Draft, Dut};
use super::hosts::host_of;
use super::places::{Faults, Place};
use super::{Plan, Restart, Variant, Varied};
use crate::authority::behaviour::Behaviour;
use crate::machine::cpuset::CpuSet;
use crate::rig::spec::{AuthorityChoice, DutChoice, LabSpec, Subject};

/// All variants of all DUTs, in the order of the plan.
pub(super) fn variants(draft: &Draft, plan: &Plan, faults: &mut Faults) -> Vec<Variant> {
    let duts = Place::of(&["dut"]);
    if draft.duts.is_empty() && !faults.spoil(&duts) {
        let message =
            "no [[dut]]: a plan measures at least one; add [[dut]] with profile = \"unbound\"";
        faults.add(&duts, message);
    }
    let mut variants: Vec<Variant> = Vec::new();
    for (number, dut) in draft.duts.iter().enumerate() {
        let kinds = ["profile", "server", "authority"].map(|key| dut.place.key(key));
        if kinds.iter().any(|kind| faults.spoil(kind)) {
            continue;
        }
        let Some(subject) = subject(dut, draft, plan, faults) else {
            continue;
        };
        refuse_what_does_not_fit(dut, &subject, draft, faults);
        for variant in variants_of(dut, number, &subject, faults) {
            if variants.iter().any(|other| other.name == variant.name) {
                let name = &variant.name;
                let message =
                    format!("two variants have the name {name:?}; give one [[dut]] another name");
                faults.add(&dut.place, message);
            }
            variants.push(variant);
        }
    }
    variants
}

fn variants_of(dut: &Dut, number: usize, subject: &Subject, faults: &mut Faults) -> Vec<Variant> {
    let name = dut.name.clone().unwrap_or_else(|| default_name(subject));
    let unrestricted = [CpuSet::unrestricted()];
    let cores = match dut.cores.is_empty() {
        true => &unrestricted[..],
        false => &dut.cores,
    };
    let ranges: Vec<_> = match dut.namespaces.as_slice() {
        [] => vec![None],
        ranges => ranges.iter().copied().map(Some).collect(),
    };
    let several = |values: usize, what, text: String| (values > 1).then_some((what, text));
    let mut variants = Vec::new();
    for settings in settings(dut, faults) {
        let swept = settings
            .iter()
            .filter(|(key, _)| dut.sweep.contains_key(*key));
        let swept: String = swept
            .map(|(key, value)| format!(" {key}={value}"))
            .collect();
        for cpus in cores {
            for &cidr in &ranges {
                for behaviour in &dut.behaviours {
                    for &pacing in &dut.pacings {
                        let range =
                            cidr.map_or_else(String::new, |cidr| format!(" namespace={cidr}"));
                        let (behaviours, pacings) = (dut.behaviours.len(), dut.pacings.len());
                        let faults = format!(" authority={behaviour}");
                        let varied = [
                            several(cores.len(), Varied::Cores, format!(" cores={cpus}")),
                            several(ranges.len(), Varied::Names, range),
                            Some((Varied::Settings, swept.clone())),
                            several(behaviours, Varied::Behaviour, faults),
                            several(pacings, Varied::Pacing, format!(" pacing={pacing}")),
                        ];
                        let varied: Vec<_> = varied.into_iter().flatten().collect();
                        variants.push(Variant {
                            name: name.clone()
                                + &varied.iter().map(|it| it.1.as_str()).collect::<String>(),
                            dut: name.clone(),
                            number,
                            varied,
                            subject: with(subject.clone(), cpus, &settings, behaviour),
                            pacing,
                            cidr,
                        });
                    }
                }
            }
        }
    }
    variants
}

/// Subject of a `[[dut]]`.
fn subject(dut: &Dut, draft: &Draft, plan: &Plan, faults: &mut Faults) -> Option<Subject> {
    let hosts = &plan.hosts;
    match (&dut.profile, dut.server, &dut.authority) {
        (Some(profile), None, None) => Some(Subject::Lab(Box::new(LabSpec {
            dut: Some(DutChoice {
                profile: profile.clone(),
                program: dut.binary.clone(),
                restart: plan.search.restart == Restart::Trial,
                host: host_of(dut, draft, faults),
                ..DutChoice::default()
            }),
            ..hosts.clone()
        }))),
        (None, Some(_), None) if hosts.at.is_some() => {
            faults.add(
                &dut.place.key("server"),
                "a server that runs already is measured from this machine; put it into a plan without hosts",
            );
            None
        }
        (None, Some(server), None) => Some(Subject::Server {
            server,
            self_test_server: dut.self_test_server,
        }),
        (None, None, Some(authority)) => {
            let Ok(authority) = authority.parse();
            Some(Subject::Lab(Box::new(LabSpec {
                authority,
                ..hosts.clone()
            })))
        }
        _ => {
            faults.add(
                &dut.place,
                "a [[dut]] is one of three: profile = \"unbound\" for a DNS64 server to be started, \
                 server = \"2001:db8::53\" for one that runs, authority = \"nsd\" for an \
                 authoritative server by itself",
            );
            None
        }
    }
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
fn refuse_what_does_not_fit(dut: &Dut, subject: &Subject, draft: &Draft, faults: &mut Faults) {
    let range = dut.place.key("namespace");
    if draft.has(&range) && !subject.is_authority() {
        faults.add(
            &range,
            "namespace in [[dut]] is for an authority by itself; give it in [tester]",
        );
    }
    let authority = subject.lab().map(|lab| &lab.authority);
    let (has_lab, has_dut) = (authority.is_some(), subject.dut().is_some());
    let has_profile = has_dut || authority.is_some_and(AuthorityChoice::is_program);
    let may_fail = has_dut && authority == Some(&AuthorityChoice::BuiltIn);
    let is_faultless = dut.behaviours.iter().all(Behaviour::is_none);
    let keys = [
        ("self-test-server", !has_lab),
        ("binary", has_dut),
        ("host", has_dut),
        ("cores", has_lab),
        ("authority-behaviour", may_fail || is_faultless),
        ("set", has_profile),
        ("sweep", has_profile),
    ];
    let what = match (authority, has_dut) {
        (None, _) => "a server that runs",
        (Some(AuthorityChoice::BuiltIn), true) => "a profile",
        (Some(AuthorityChoice::InDriver(_)), true) => {
            "a profile whose authority answers in the driver"
        }
        (Some(AuthorityChoice::Profile { .. }), true) => {
            "a profile whose authority is not the built-in one"
        }
        (Some(AuthorityChoice::Profile { .. }), false) => "an authority",
        (Some(_), false) => "the Tester's own authority",
    };
    for (key, _) in keys.into_iter().filter(|(_, applies)| !applies) {
        let place = dut.place.key(key);
        if draft.has(&place) {
            let key = draft.name(&format!("dut.{key}"));
            faults.add(&place, format!("{key} does not apply to {what}; omit it"));
        }
    }
}

/// All combinations of the settings: the fixed ones, with each value of the swept ones.
fn settings(dut: &Dut, faults: &mut Faults) -> Vec<BTreeMap<String, String>> {
    let mut all = vec![dut.set.clone()];
    for (key, values) in &dut.sweep {
        let place = dut.place.key("sweep").key(key);
        if dut.set.contains_key(key) {
            faults.add(
                &place,
                format!("{key} is both in set and in sweep; omit it in one"),
            );
            continue;
        }
        if all.len() * values.len() > SWEEP_MAX {
            let message =
                format!("sweeps make more than {SWEEP_MAX} variants of one DUT; omit some values");
            faults.add(&place, message);
            continue;
        }
        let with = |settings: &BTreeMap<String, String>, value: &String| {
            let mut settings = settings.clone();
            settings.insert(key.clone(), value.clone());
            settings
        };
        let of = |settings| values.iter().map(move |value| with(settings, value));
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

/// Two settings with some thirty values each.
const SWEEP_MAX: usize = 1000;
