//! `dns64bench conform`

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::anyhow;
use dns64_transport::address::Shown;
use dns64_transport::random;

use super::measure::may_load;
use super::{Failure, exit, interrupt, lab, print, print_raw};
use crate::PROGRAM;
use crate::cli::args::ConformArgs;
use crate::conform::case::Case;
use crate::conform::lab::{Dut, LabServer};
use crate::conform::load;
use crate::conform::read::{built_in, parse};
use crate::conform::report::{Form, Levels, Report};
use crate::conform::{End, NoVerdict, Ran, Subject, Suite};
use crate::lab::profile::Profile;
use crate::lab::topology::{PREF64, Setup};
use crate::lab::{LabError, LabKind};
use crate::machine::cpuset::CpuSet;
use crate::machine::network::Network;
use crate::rig::RigError;

/// What is run.
struct Course<'a> {
    cases: Vec<Case>,
    seed: u64,
    /// Rates of the loads.
    loads_qps: &'a [u64],
    attacks: bool,
    interrupted: Arc<AtomicBool>,
}

/// Runs the cases and prints the report.
pub(super) fn run(args: &ConformArgs) -> Result<u8, Failure> {
    let course = Course {
        interrupted: interrupt()?,
        cases: chosen(args)?,
        seed: match args.seed {
            Some(seed) => seed,
            // Short enough to be typed.
            None => random::from_system()? >> 40,
        },
        loads_qps: &args.load,
        attacks: args.attacks,
    };
    args.load.iter().try_for_each(|rate| load::check(*rate))?;
    let (server, (ran, loaded)) = match (&args.dut, args.server, args.authority_listen) {
        (Some(dut), _, _) => {
            let kind = LabKind::Auto.settle()?;
            if let Some(code) = lab::in_user_namespace(kind, &course.interrupted)? {
                return Ok(code);
            }
            let server = lab_server(dut, args, kind)?;
            let run = |suite: &Suite, dut: &mut Dut<'_>| course.run(suite, dut);
            let (name, verdicts) = server.with_suite(&course.interrupted, run)?;
            (name, verdicts?)
        }
        (None, Some(server), Some(listen)) => {
            if args.attacks || !args.load.is_empty() {
                may_load(std::iter::once(server), args.may_load)?;
            }
            let subject = Subject {
                server,
                network: Network::Own,
                suffix: suffix(args),
            };
            let suite = Suite::open(subject, &Network::Own, listen)?;
            let ran = course.run(&suite, &mut Dut::running(&suite))?;
            (Shown(server).to_string(), ran)
        }
        _ => return Err(Failure::new(exit::USAGE, anyhow!("give --dut or --server"))),
    };
    let code = code(&ran);
    let report = Report {
        tester: PROGRAM.into(),
        server,
        pref64: ran.known.pref64.to_string(),
        seed: course.seed,
        levels: Levels::of(&ran.cases),
        loads: ran.loads,
        attacks: ran.attacks,
        repeat: repeat(args, &course),
        cases: ran.cases,
    };
    let text = report.written(args.format)?;
    match args.format {
        Form::Text => print(|out| out.write_all(text.as_bytes()))?,
        _ => print_raw(&text)?,
    }
    loaded?;
    Ok(code)
}

/// The server of a profile with the chosen settings.
fn lab_server(dut: &str, args: &ConformArgs, kind: LabKind) -> Result<LabServer, LabError> {
    let profile = Profile::load(dut)?;
    let chosen = args.dut_set.iter().cloned().collect();
    profile.check_settings(&chosen)?;
    Ok(LabServer {
        profile,
        program: None,
        chosen,
        cpus: CpuSet::unrestricted(),
        setup: match kind {
            LabKind::Loopback => Setup::Loopback,
            _ => Setup::ThreeDevice,
        },
        pref64: PREF64,
        suffix: suffix(args),
    })
}

fn suffix(args: &ConformArgs) -> String {
    args.suffix.trim_end_matches('.').to_owned()
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

/// The exit code of a run.
fn code(ran: &Ran) -> u8 {
    let loaded = ran.loads.iter().map(|it| it.levels.must.failed);
    let failed = Levels::of(&ran.cases).must.failed + loaded.sum::<usize>();
    match (failed, ran.end) {
        (_, End::Interrupted) => exit::INTERRUPTED,
        (0, End::Complete) => exit::PASSED,
        (0, End::Gone) => exit::ENVIRONMENT,
        _ => exit::FAILED,
    }
}

/// The command that repeats a case, without its name.
fn repeat(args: &ConformArgs, course: &Course<'_>) -> String {
    let (suffix, seed) = (suffix(args), course.seed);
    let subject = match (&args.dut, args.server, args.authority_listen) {
        (None, Some(server), Some(listen)) => {
            let (server, listen) = (Shown(server), Shown(listen));
            format!("-s {server} --authority-listen {listen} --suffix {suffix}")
        }
        (dut, _, _) => {
            let set = args.dut_set.iter();
            let set: String = set
                .map(|(name, value)| format!(" --dut-set {name}={value}"))
                .collect();
            format!("--dut {}{set}", dut.as_deref().unwrap_or_default())
        }
    };
    format!("dns64bench conform {subject} --seed {seed}")
}

/// The verdicts, and the error that prevented those under load.
type Verdicts = (Ran, Result<(), RigError>);

impl Course<'_> {
    /// Runs the cases without load, then beside each.
    fn run(&self, suite: &Suite, dut: &mut Dut<'_>) -> Result<Verdicts, NoVerdict> {
        let (cases, seed, interrupted) = (&*self.cases, self.seed, &*self.interrupted);
        let mut ran = suite.run(cases, seed, interrupted, dut)?;
        let mut loads = self.loads_qps.iter();
        let loaded = loads.try_for_each(|rate| {
            suite.run_loaded(&mut ran, (cases, seed), *rate, interrupted, dut)
        });
        if self.attacks && loaded.is_ok() {
            suite.attack(&mut ran, interrupted, dut)?;
        }
        Ok((ran, loaded))
    }
}
