//! `dns64bench conform`

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::anyhow;
use dns64_transport::address::Shown;
use dns64_transport::clock::{Nanos, SECOND};
use dns64_transport::random;

use super::{Failure, exit, interrupt, lab, print, print_raw};
use crate::PROGRAM;
use crate::cli::args::ConformArgs;
use crate::conform::case::{Case, Level};
use crate::conform::read::{built_in, parse};
use crate::conform::report::{Form, Report};
use crate::conform::{End, Ran, Subject, Suite};
use crate::lab::LabKind;
use crate::lab::profile::{Family, Profile, Settings, with_version};
use crate::lab::server::{Probe, ServerSpec};
use crate::lab::topology::{Lab, PREF64, Setup};
use crate::machine::Role;
use crate::machine::cpuset::CpuSet;
use crate::machine::network::Network;
use crate::namespace::Share;
use crate::post::host::Host;
use crate::rig::servers::HostedServer;

/// Time limit of a probe while a server starts.
const PROBE_NS: Nanos = SECOND / 2;

/// Runs the cases and prints the report.
pub(super) fn run(args: &ConformArgs) -> Result<u8, Failure> {
    let interrupted = interrupt()?;
    let cases = chosen(args)?;
    let seed = match args.seed {
        Some(seed) => seed,
        // Short enough to be typed.
        None => random::from_system()? >> 40,
    };
    let (server, ran) = match (&args.dut, args.server, args.authority_listen) {
        (Some(dut), _, _) => {
            let kind = LabKind::Auto.settle()?;
            if let Some(code) = lab::in_user_namespace(kind, &interrupted)? {
                return Ok(code);
            }
            let profile = Profile::load(dut)?;
            let session = (suffix(args), &*cases, seed);
            in_lab(&profile, kind, session, &interrupted)?
        }
        (None, Some(server), Some(listen)) => {
            let subject = Subject {
                server,
                network: Network::Own,
                suffix: suffix(args),
            };
            let suite = Suite::open(subject, &Network::Own, listen)?;
            let ran = suite.run(&cases, seed, &interrupted, || suite.recovered().is_ok())?;
            (Shown(server).to_string(), ran)
        }
        _ => return Err(Failure::new(exit::USAGE, anyhow!("give --dut or --server"))),
    };
    let code = code(&ran);
    let report = Report {
        tester: PROGRAM.into(),
        server,
        pref64: ran.pref64.to_string(),
        seed,
        must: Report::counts(&ran.cases, Level::Must),
        should: Report::counts(&ran.cases, Level::Should),
        policy: Report::counts(&ran.cases, Level::Policy),
        repeat: repeat(args, seed),
        cases: ran.cases,
    };
    let text = report.written(args.format)?;
    match args.format {
        Form::Text => print(|out| out.write_all(text.as_bytes()))?,
        _ => print_raw(&text)?,
    }
    Ok(code)
}

/// The cases of the given file, or those whose name has the given text.
fn chosen(args: &ConformArgs) -> Result<Vec<Case>, Failure> {
    let invalid = |why: String| Failure::new(exit::USAGE, anyhow!(why));
    if let Some(file) = args.case.as_ref().filter(|it| it.ends_with(".toml")) {
        let text = std::fs::read_to_string(file);
        let text = text.map_err(|error| invalid(format!("cannot read cases {file:?}: {error}")))?;
        return parse(file, &text).map_err(invalid);
    }
    let mut cases = built_in().map_err(invalid)?;
    if let Some(text) = &args.case {
        cases.retain(|case| case.id.contains(text.as_str()));
    }
    match (cases.is_empty(), &args.case) {
        (true, Some(text)) => {
            let error = format!(
                "no case has {text:?} in its name; names begin with the RFC, such as rfc6147-5.1.4"
            );
            Err(Failure::new(exit::USAGE, anyhow!(error)))
        }
        _ => Ok(cases),
    }
}

fn suffix(args: &ConformArgs) -> String {
    args.suffix.trim_end_matches('.').to_owned()
}

/// The exit code of a run.
fn code(ran: &Ran) -> u8 {
    match (Report::counts(&ran.cases, Level::Must).failed, ran.end) {
        (_, End::Interrupted) => exit::INTERRUPTED,
        (0, End::Complete) => exit::PASSED,
        (0, End::Gone) => exit::ENVIRONMENT,
        _ => exit::FAILED,
    }
}

/// The command that repeats a case, without its name.
fn repeat(args: &ConformArgs, seed: u64) -> String {
    let subject = match (&args.dut, args.server, args.authority_listen) {
        (None, Some(server), Some(listen)) => {
            let (server, listen) = (Shown(server), Shown(listen));
            let suffix = suffix(args);
            format!("-s {server} --authority-listen {listen} --suffix {suffix}")
        }
        (dut, _, _) => format!("--dut {}", dut.as_deref().unwrap_or_default()),
    };
    format!("dns64bench conform {subject} --seed {seed}")
}

/// Starts the server in a lab and runs the cases there. Returns its name and version as well.
fn in_lab(
    profile: &Profile,
    kind: LabKind,
    (suffix, cases, seed): (String, &[Case], u64),
    interrupted: &Arc<AtomicBool>,
) -> Result<(String, Ran), Failure> {
    let setup = match kind {
        LabKind::Loopback => Setup::Loopback,
        _ => Setup::ThreeDevice,
    };
    let _lab = Lab::up(setup, None)?;
    let upstream: (IpAddr, u16) = match profile.requires.upstream_family {
        Some(Family::Ipv6) => setup.upstream_v6(),
        _ => setup.upstream_v4(),
    };
    let subject = Subject {
        server: setup.dut().into(),
        network: setup.network(Role::Measurer),
        suffix: suffix.clone(),
    };
    let authority = setup.network(Role::Authority);
    let suite = Suite::open(subject, &authority, upstream.into())?;
    let spec = spec(profile, setup, upstream.into(), suffix);
    let probe = || match suite.pref64(PROBE_NS) {
        _ if interrupted.load(Ordering::Relaxed) => Probe::Abandoned,
        Ok(_) => Probe::Answered,
        Err(why) => Probe::NotYet(why.to_string()),
    };
    let mut dut = HostedServer::start(Host::here(interrupted), spec, probe)?;
    let ran = suite.run(cases, seed, interrupted, || dut.restart(probe).is_ok())?;
    let server = match dut.program().version {
        Some(version) => with_version(&profile.name, &version),
        None => profile.name.clone(),
    };
    Ok((server, ran))
}

fn spec(profile: &Profile, setup: Setup, upstream: SocketAddr, suffix: String) -> ServerSpec {
    let (listen, port) = setup.dut();
    ServerSpec {
        profile: profile.clone(),
        program: None,
        network: setup.network(Role::Dut),
        settings: Settings {
            listen,
            listen_v4: Ipv4Addr::UNSPECIFIED,
            port,
            upstreams: vec![upstream],
            pref64: PREF64,
            suffix,
            aaaa_share: Share::NONE,
            cpus: CpuSet::unrestricted(),
            chosen: BTreeMap::new(),
        },
        zone: None,
    }
}
