//! From resolved arguments to a rig: the tier, the profiles, the cores.

use std::sync::atomic::AtomicBool;

use dns64_transport::cpu;

use super::{Failure, exit};
use crate::authority::answer::{NEGATIVE_TTL_DEFAULT_S, TTL_DEFAULT_S};
use crate::cli::args;
use crate::cli::resolve::{LabPlan, Load, Measure, Subject};
use crate::lab::LabKind;
use crate::lab::host::CpuSet;
use crate::lab::profile::{Family, Profile, ProfileRole};
use crate::lab::topology::Setup;
use crate::lab::userns;
use crate::load::pace::Pacing;
use crate::namespace::{Share, Zone};
use crate::report::Conditions;
use crate::rig::placement::{Placement, Wishes, place};
use crate::rig::{self, AuthorityChoice, DutChoice, LabSpec, Place, Rig, RigSpec};

/// Hands the command line over to a user namespace, if the lab is to be in one. Returns the exit
/// code of what ran there.
pub(super) fn in_user_namespace(
    subject: &Subject,
    interrupted: &AtomicBool,
) -> Result<Option<u8>, Failure> {
    let Subject::Lab(plan) = subject else {
        return Ok(None);
    };
    if tier(plan.kind)? != LabKind::Userns || userns::inside() {
        return Ok(None);
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let status = userns::reexec(&arguments, interrupted)?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(Some(code.unwrap_or(exit::INTERRUPTED)))
}

/// The kind that was asked for, or the best one here.
fn tier(kind: args::LabKind) -> Result<LabKind, Failure> {
    let kind = match kind {
        args::LabKind::Auto => LabKind::Auto,
        args::LabKind::Netns => LabKind::Netns,
        args::LabKind::Userns => LabKind::Userns,
        args::LabKind::Loopback => LabKind::Loopback,
    };
    Ok(kind.settle()?)
}

/// The rig that the arguments describe.
pub(super) fn spec(measure: &Measure, stop_early: bool) -> Result<RigSpec, Failure> {
    let load = &measure.load;
    let (place, placement) = match &measure.subject {
        Subject::Server {
            server,
            self_test_server,
        } => {
            let place = Place::Running {
                server: *server,
                local: load.local,
                self_test_server: *self_test_server,
            };
            // Nobody knows where that server runs, so the kernel decides where we do.
            let unrestricted = CpuSet::unrestricted();
            let placement = Placement {
                measurer: load.cpus.clone(),
                authority: unrestricted.clone(),
                dut: unrestricted,
            };
            (place, placement)
        }
        Subject::Lab(plan) => {
            let placement = placement(plan, load);
            (Place::Lab(Box::new(lab(plan, &placement)?)), placement)
        }
    };
    Ok(RigSpec {
        place,
        measure: trials(load, stop_early),
        placement,
    })
}

pub(super) fn trials(load: &Load, stop_early: bool) -> rig::Measure {
    rig::Measure {
        pacing: load.pacing,
        duration_ns: load.duration_ns,
        timeout_ns: load.timeout_ns,
        cidr: load.namespace,
        zone: Zone {
            suffix: load.suffix.clone(),
            aaaa_share: load.aaaa_share,
        },
        cached_share: load.cached_share,
        pattern: load.pattern,
        pref64: load.pref64,
        threads: load.threads,
        ports: load.sockets,
        stop_early,
        ttl_s: TTL_DEFAULT_S,
        negative_ttl_s: NEGATIVE_TTL_DEFAULT_S,
    }
}

fn placement(plan: &LabPlan, load: &Load) -> Placement {
    let wish = |set: &CpuSet| (!set.is_unrestricted()).then(|| set.clone());
    let wishes = Wishes {
        measurer: wish(&load.cpus),
        authority: wish(&plan.authority_cpus),
        dut: plan.dut.as_ref().and_then(|dut| wish(&dut.cpus)),
    };
    place(&cpu::available(), load.threads, &wishes)
}

fn lab(plan: &LabPlan, placement: &Placement) -> Result<LabSpec, Failure> {
    let setup = match tier(plan.kind)? {
        LabKind::Loopback => Setup::Loopback,
        _ => plan.setup,
    };
    let dut = match &plan.dut {
        Some(dut) => {
            let profile = load(&dut.profile, ProfileRole::Dut)?;
            // A missing program or setting is told before anything is set up.
            profile.program(dut.binary.as_deref())?;
            profile.check_settings(&dut.settings)?;
            Some(DutChoice {
                profile,
                program: dut.binary.clone(),
                settings: dut.settings.clone(),
            })
        }
        None => None,
    };
    let needed = dut
        .as_ref()
        .and_then(|dut| dut.profile.requires.upstream_family);
    let authority = match &plan.authority {
        None => AuthorityChoice::BuiltIn {
            workers: placement.authority.cpus().len().max(1),
        },
        Some(name) => {
            let profile = load(name, ProfileRole::Authority)?;
            profile.program(None)?;
            AuthorityChoice::Profile(Box::new(profile))
        }
    };
    Ok(LabSpec {
        setup,
        dut,
        upstream: plan.upstream_family.or(needed).unwrap_or(Family::Ipv4),
        authority,
        restart: plan.dut.as_ref().is_some_and(|dut| dut.restart),
    })
}

/// A profile of the role that it is wanted for.
fn load(name: &str, role: ProfileRole) -> Result<Profile, Failure> {
    let profile = Profile::load(name)?;
    if profile.role == role {
        return Ok(profile);
    }
    let wanted = match role {
        ProfileRole::Dut => "DNS64 server",
        ProfileRole::Authority => "authoritative server",
    };
    let error = format!("profile {} is no {wanted}", profile.name);
    Err(Failure::new(exit::USAGE, anyhow::anyhow!(error)))
}

/// What the report says about the circumstances.
pub(super) fn conditions(rig: &Rig, notes: &[String]) -> Conditions {
    let spec = rig.spec();
    let measure = &spec.measure;
    let mut conditions = Conditions {
        tester: format!("dns64bench {}", env!("CARGO_PKG_VERSION")),
        namespace: format!(
            "{}, {{000..255}}-{{000..255}}-{{000..255}}-{{000..255}}.{}",
            measure.cidr, measure.zone.suffix
        ),
        aaaa_share: measure.zone.aaaa_share.to_string(),
        cached_share: measure.cached_share.to_string(),
        cached_pattern: (measure.cached_share != Share::NONE).then(|| measure.pattern.to_string()),
        threads: measure.threads,
        sockets: measure.ports,
        cpus: rig.cpus(),
        notes: notes.to_vec(),
        ..Conditions::default()
    };
    if let Some((server, pref64)) = rig.server() {
        conditions.server = server.to_string();
        conditions.pref64 = Some(pref64.to_string());
    }
    if measure.pacing == Pacing::SelfCorrecting {
        let reason =
            "paced by the self-correcting timer of paper 001, equation (1), to show its fault";
        conditions.not_a_measurement.push(reason.to_owned());
    }
    if let Place::Lab(lab) = &spec.place {
        describe_lab(&mut conditions, lab, rig);
    }
    conditions
}

fn describe_lab(conditions: &mut Conditions, lab: &LabSpec, rig: &Rig) {
    let (kind, setup) = match lab.setup {
        Setup::Loopback => ("loopback", None),
        Setup::TwoDevice => (namespaces(), Some("two-device")),
        Setup::ThreeDevice => (namespaces(), Some("three-device")),
    };
    conditions.lab = Some(kind.to_owned());
    conditions.setup = setup.map(str::to_owned);
    let shared = "all hosts of the lab share the cores, caches and memory of one machine";
    conditions.notes.push(shared.to_owned());
    conditions.upstream_family = Some(
        match lab.upstream {
            Family::Ipv4 => "IPv4",
            Family::Ipv6 => "IPv6",
        }
        .to_owned(),
    );
    conditions.authority = Some(match &lab.authority {
        AuthorityChoice::BuiltIn { .. } => "built-in".to_owned(),
        AuthorityChoice::Profile(profile) => profile.name.clone(),
    });
    if let Some(dut) = &lab.dut {
        let version = rig
            .dut_version()
            .unwrap_or_else(|| "version unknown".to_owned());
        conditions.dut = Some(format!("{} ({version})", dut.profile.name));
        let kept = rig.dut().and_then(|dut| dut.cores().note());
        let kept = kept.map(|how| format!("cores of the DUT {how}"));
        conditions.notes.extend(kept);
        if !dut.profile.caches && rig.spec().measure.cached_share != Share::NONE {
            let idle = "the DUT has no cache: the cached share is asked for all the same";
            conditions.notes.push(idle.to_owned());
        }
        conditions.notes.extend(
            dut.profile
                .receive_buffer
                .as_ref()
                .map(|text| format!("DUT receive buffer: {text}")),
        );
    }
    if lab.setup == Setup::Loopback {
        let reason = "all roles share the loopback interface of this machine";
        conditions.not_a_measurement.push(reason.to_owned());
    }
    let placement = &rig.spec().placement;
    let tester = placement
        .measurer
        .cpus()
        .iter()
        .chain(placement.authority.cpus());
    if lab.dut.is_some()
        && tester
            .clone()
            .any(|core| placement.dut.cpus().contains(core))
    {
        let reason = "the Tester and the DUT share a core";
        conditions.not_a_measurement.push(reason.to_owned());
    }
}

fn namespaces() -> &'static str {
    if userns::inside() { "userns" } else { "netns" }
}
