//! `trial`, `selftest` and `search`.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::net::{Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use dns64_transport::clock::Nanos;
use dns64_transport::random;
use serde::Serialize;

use super::lab::in_user_namespace;
use super::{Failure, exit, interrupt, print, print_raw};
use crate::cli::args::{MayLoadArgs, MeasureArgs, OutputArgs, SelfTestArgs, TrialArgs};
use crate::cli::resolve::{Measurement, Needs};
use crate::load::pace::Schedule;
use crate::machine::Machine;
use crate::post::links::Links;
use crate::procedure::certificate::{Certificate, SelfTests};
use crate::procedure::goal;
use crate::procedure::search::{self, Search, SearchResult, SearchSpec};
use crate::procedure::selftest::{self_test_timeout, why_uncertified};
use crate::procedure::{Event, Trials};
use crate::report::progress::Progress;
use crate::report::raw::RawFile;
use crate::report::{Conditions, Thousands, json, terminal, text, timeline};
use crate::rig::certify::{Aim, Highest};
use crate::rig::spec::{AuthorityChoice, RigSpec, Subject};
use crate::rig::target;
use crate::rig::zones::{self, Demand};
use crate::rig::{Profiles, Rig, RigError};

/// `dns64bench trial`
pub(super) fn trial(args: TrialArgs) -> Result<u8, Failure> {
    let (rate_qps, raw, which) = (args.rate, args.raw, args.timeline);
    let mut measurement = args.measure.resolve(Needs::Dut)?;
    let demand = measurement.fit_zone(Some(rate_qps));
    with_output(measurement, |session| {
        session.refuse_impossible(rate_qps)?;
        session.refuse_zone(demand)?;
        let raw = raw.as_deref().map(RawFile::create).transpose()?;
        let mut rig = session.rig()?;
        let certificate = session.certify(&rig, Aim::At(rate_qps))?;
        rig.certify_to(certificate.map(|certificate| certificate.rate_qps));
        let result = session.shown("trial", session.length(), |observer| {
            rig.start()?;
            observer(&Event::TrialStarted {
                rate_qps,
                number: 1,
            });
            rig.trial(rate_qps)
        })?;
        let conditions = session.conditions(&rig, certificate, None);
        let figure = which.zip(rig.rows());
        let figure = figure.map(|(which, rows)| "\n".to_owned() + &timeline::figure(&rows, which));
        session.write(
            &json::trial(&result, &conditions),
            &(text::trial(&result, &conditions) + &figure.unwrap_or_default()),
        )?;
        if let (Some(raw), Some(rows)) = (raw, rig.rows()) {
            raw.write(rows)?;
        }
        Ok(exit::of_trial(&result.outcome))
    })
}

/// `dns64bench selftest`
pub(super) fn self_test(args: SelfTestArgs) -> Result<u8, Failure> {
    let mut measurement = args.measure.resolve(Needs::AuthorityOnly)?;
    let demand = measurement.fit_zone(args.rate);
    let timeout_ns = measurement.spec.load.timeout_ns;
    let aim = match args.rate {
        Some(rate_qps) => Aim::At(rate_qps),
        None => Aim::Highest(Highest {
            resolution: args.resolution,
            max_qps: None,
        }),
    };
    with_output(measurement, |session| {
        session.refuse_zone(demand)?;
        let rig = session.rig()?;
        let Some(result) = session.self_test(&rig, aim)? else {
            return Ok(exit::TESTER);
        };
        let mut conditions = session.conditions(&rig, result.certificate(), None);
        // A self-test always sends and receives single datagrams.
        conditions.segmentation = false;
        let server = rig.self_test_server().map(|server| server.to_string());
        conditions.server = server.unwrap_or_default();
        session.write(
            &json::self_test(&result, timeout_ns, &conditions),
            &text::self_test(&result, timeout_ns, &conditions),
        )?;
        Ok(exit::of_self_test(result.end()))
    })
}

/// `dns64bench search`
pub(super) fn search(args: MeasureArgs) -> Result<u8, Failure> {
    let mut measurement = args.resolve(Needs::Dut)?;
    let wanted = &measurement.plan.search;
    let load = &mut measurement.spec.load;
    // What becomes of queries beyond the capacity is known only at the end of a trial.
    let lab = measurement.spec.subject.lab();
    load.stop_early = wanted.goals.is_empty() && lab.is_none_or(|lab| lab.behaviour.is_none());
    if let Some(longest_ns) = wanted.goals.iter().map(|goal| goal.trial_ns).max() {
        load.duration_ns = longest_ns;
    }
    let start_qps = wanted.method.first_qps();
    let mut spec = SearchSpec::from_start(start_qps);
    spec.resolution = wanted.resolution;
    spec.max_qps = wanted.method.max_qps();
    spec.goals.clone_from(&wanted.goals);
    spec.lowest_qps = Schedule::lowest_rate_qps(goal::shortest_ns(&spec.goals, load.duration_ns));
    let demand = measurement.fit_zone(spec.max_qps);
    with_output(measurement, |session| {
        session.refuse_impossible(start_qps)?;
        session.refuse_zone(demand)?;
        let mut rig = session.rig()?;
        let wanted = Highest::coarse(spec.max_qps);
        let certificate = session.certify(&rig, Aim::Highest(wanted))?;
        spec.ceiling_qps = certificate.map(|certificate| certificate.rate_qps);
        let result = session.search(&mut rig, spec.from_low_load(), "search")?;
        let conditions = session.conditions(&rig, certificate, Some(1));
        session.write(
            &json::search(&result, &conditions),
            &text::search(&result, &conditions),
        )?;
        Ok(exit::of_search(&result.end))
    })
}

/// One measurement, from its arguments to its output.
pub(super) struct Measuring {
    measurement: Measurement,
    interrupted: Arc<AtomicBool>,
    json: Option<Sink>,
    /// Whether the JSON object is written: later errors are only printed as text.
    told: bool,
}

/// Destination of JSON.
enum Sink {
    /// Standard output, which then has no other output.
    Stdout,
    /// A file, which is overwritten.
    File(PathBuf, File),
}

/// Runs a measurement.
pub(super) fn with_output(
    mut measurement: Measurement,
    run: impl FnOnce(&mut Measuring) -> Result<u8, Failure>,
) -> Result<u8, Failure> {
    let interrupted = interrupt()?;
    if measurement.spec.subject.lab().is_some() {
        let kind = measurement.plan.lab.settle()?;
        if let Some(code) = in_user_namespace(kind, &interrupted)? {
            return Ok(code);
        }
        measurement.spec.subject = measurement.spec.subject.on(kind);
    }
    measurement.spec.load.begin.at = random::from_system()?;
    let mut session = Measuring {
        json: Sink::open(&measurement.output)?,
        measurement,
        interrupted,
        told: false,
    };
    let done = session.refuse_strangers().and_then(|()| run(&mut session));
    done.map_err(|failure| Failure {
        told: session.told,
        ..failure
    })
}

/// Refuses servers at public addresses, unless the user permits load on them.
pub(super) fn may_load(
    mut servers: impl Iterator<Item = SocketAddr>,
    args: MayLoadArgs,
) -> Result<(), Failure> {
    let machine = Machine::here();
    let check = |it| target::check(it, args.i_may_load_this_network, &machine);
    Ok(servers.try_for_each(check)?)
}

impl Sink {
    /// Opens the destination before the measurement, so that an error does not lose its result.
    fn open(output: &OutputArgs) -> Result<Option<Self>, Failure> {
        let Some(path) = &output.json else {
            return Ok(None);
        };
        if path.as_os_str() == "-" {
            return Ok(Some(Self::Stdout));
        }
        let file = File::create(path).with_context(|| cannot_write(path))?;
        Ok(Some(Self::File(path.clone(), file)))
    }
}

impl Measuring {
    /// Refuses servers that the user may not load, before anything is sent.
    fn refuse_strangers(&self) -> Result<(), Failure> {
        let Subject::Server {
            server,
            self_test_server,
            ..
        } = self.measurement.spec.subject
        else {
            return Ok(());
        };
        let servers = [Some(server), self_test_server].into_iter().flatten();
        may_load(servers, self.measurement.may_load)
    }

    /// Refuses an impossible trial, such as one with more queries than names, before anything is set up.
    fn refuse_impossible(&self, rate_qps: u64) -> Result<(), Failure> {
        let load = &self.measurement.spec.load;
        let schedule = load.schedule(rate_qps);
        let names = load.names()?.take(schedule.queries(), None)?;
        let anybody = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
        Ok(load.trial(anybody, schedule, names).check()?)
    }

    /// Refuses a zone that the authority cannot serve, before anything is set up.
    fn refuse_zone(&self, demand: Demand) -> Result<(), Failure> {
        let RigSpec { subject, load } = &self.measurement.spec;
        let profiles = Profiles::load(subject)?;
        Ok(zones::check(load, profiles.authority.as_ref(), demand)?)
    }

    /// Duration and timeout of the trials.
    fn length(&self) -> (Nanos, Nanos) {
        let load = &self.measurement.spec.load;
        (load.duration_ns, load.timeout_ns)
    }

    /// Runs one search on a rig, which is started if necessary.
    pub(super) fn search(
        &self,
        rig: &mut Rig,
        spec: SearchSpec,
        step: &str,
    ) -> Result<SearchResult, Failure> {
        if let Some(why) = spec.unfit() {
            return Err(Failure::new(exit::TESTER, anyhow::anyhow!(why)));
        }
        rig.certify_to(spec.ceiling_qps);
        self.shown(step, self.length(), |observer| {
            search::run(Search::new(spec), rig, observer)
        })
    }

    /// Conditions of this number of searches, or of a single trial.
    pub(super) fn conditions(
        &self,
        rig: &Rig,
        certificate: Option<Certificate>,
        searches: Option<u32>,
    ) -> Conditions {
        let recommended = self.measurement.recommended(searches);
        let remarks = recommended.remarks().into_iter();
        let remarks: Vec<_> = remarks.map(|remark| remark.to_string()).collect();
        Conditions {
            certified_rate_qps: certificate.map(|certificate| certificate.rate_qps),
            certificate,
            deviation: recommended.deviation(),
            ..rig.conditions(&remarks)
        }
    }

    /// Selects the authority of a lab.
    pub(super) fn answer_by(&mut self, authority: AuthorityChoice) {
        if let Subject::Lab(lab) = &mut self.measurement.spec.subject {
            lab.authority = authority;
        }
    }

    pub(super) fn rig(&self) -> Result<Rig, Failure> {
        let spec = self.measurement.spec.clone();
        let links = Links::new("a measurement", false, &self.interrupted);
        Ok(Rig::open(spec, &links, Arc::clone(&self.interrupted))?)
    }

    /// The certificate of the self-tests; `None` if the user disabled them, or if there is no self-test server. A
    /// Tester that fails its self-test is refused.
    pub(super) fn certify(&self, rig: &Rig, aim: Aim) -> Result<Option<Certificate>, Failure> {
        if self.measurement.plan.uncertified {
            return Ok(None);
        }
        let Some(result) = self.self_test(rig, aim)? else {
            return Ok(None);
        };
        if result.end().is_interrupted() {
            return Err(RigError::Interrupted.into());
        }
        if let Some(certificate) = result.certificate() {
            return Ok(Some(certificate));
        }
        let rate = match aim {
            Aim::At(rate_qps) => format!("{} queries/s", Thousands(rate_qps)),
            Aim::Highest(_) => "any rate".to_owned(),
        };
        let reason = why_uncertified(result.end());
        let error = format!(
            "the self-test of the Tester failed, so it cannot measure a DUT at {rate}: {reason}; \
             lower the rate, give the Tester more cores, or use --uncertified, which marks the result"
        );
        Err(Failure::new(exit::TESTER, anyhow::anyhow!(error)))
    }

    fn self_test(&self, rig: &Rig, aim: Aim) -> Result<Option<SelfTests>, Failure> {
        let (duration_ns, timeout_ns) = self.length();
        let length = (duration_ns, self_test_timeout(timeout_ns));
        let wanted = self.measurement.plan.self_tests;
        self.shown("self-test of the Tester", length, |observer| {
            rig.self_tests(wanted, aim, observer)
        })
    }

    /// Runs a procedure, a `step` of the command, and shows its progress.
    fn shown<T>(
        &self,
        step: &str,
        (duration_ns, timeout_ns): (Nanos, Nanos),
        run: impl FnOnce(&mut dyn FnMut(&Event<'_>)) -> Result<T, RigError>,
    ) -> Result<T, Failure> {
        let server = match &self.measurement.spec.subject {
            Subject::Server { server, .. } => server.to_string(),
            Subject::Lab(lab) => {
                let dut = lab.dut.as_ref();
                dut.map_or_else(|| "authority".to_owned(), |dut| dut.profile.clone())
            }
        };
        let step = format!("{server}: {step}");
        let mut progress =
            Progress::new(step, duration_ns, timeout_ns, self.measurement.output.quiet);
        let done = run(&mut |event| progress.event(event));
        progress.clear();
        Ok(done?)
    }

    /// Writes a result as JSON, if requested, and as a table, of which a quiet user gets the first line. It goes to
    /// standard output, unless that has the JSON; then to standard error if it is a terminal.
    fn write(&mut self, json: &impl Serialize, table: &str) -> Result<(), Failure> {
        self.write_json(json)?;
        let table = match self.measurement.output.quiet {
            true => table.split_inclusive('\n').next().unwrap_or_default(),
            false => table,
        };
        if !matches!(self.json, Some(Sink::Stdout)) {
            return print(|out| out.write_all(table.as_bytes()));
        }
        if io::stderr().is_terminal() {
            io::stderr().write_all(terminal::fitting(table, io::stderr()).as_bytes())?;
        }
        Ok(())
    }

    fn write_json(&mut self, object: &impl Serialize) -> Result<(), Failure> {
        self.told = true;
        let text = json::text(object)?;
        match &mut self.json {
            None => {}
            Some(Sink::Stdout) => print_raw(&text)?,
            Some(Sink::File(path, file)) => {
                let written = file.write_all(text.as_bytes());
                written.with_context(|| cannot_write(path))?;
            }
        }
        Ok(())
    }
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}
