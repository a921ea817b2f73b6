//! `trial`, `selftest` and `search`.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dns64_transport::clock::Nanos;

use super::lab::in_user_namespace;
use super::{Failure, exit, interrupt, print};
use crate::cli::args::{OutputArgs, SearchArgs, SelfTestArgs, TrialArgs};
use crate::cli::resolve::{Measurement, Needs};
use crate::cli::values::JsonOut;
use crate::load::pace::Schedule;
use crate::procedure::search::{self, Search, SearchResult, SearchSpec};
use crate::procedure::selftest::{SelfTestResult, self_test_timeout};
use crate::procedure::{Event, Trials};
use crate::report::progress::Progress;
use crate::report::raw::{Header, RawFile};
use crate::report::{Conditions, Thousands, json, text};
use crate::rig::certify::{self, Question};
use crate::rig::{Rig, RigError};
use crate::trial::result::{Outcome, TrialResult};

/// `dns64bench trial`
pub(super) fn trial(args: TrialArgs) -> Result<u8, Failure> {
    let (rate_qps, raw) = (args.rate, args.raw);
    let mut measurement = args.measure.resolve(Needs::Dut)?;
    measurement.spec.load.pacing = args.pacing;
    with_output(measurement, |session| {
        session.refuse_impossible(rate_qps)?;
        let raw = raw.as_deref().map(RawFile::create).transpose()?;
        let mut rig = session.rig()?;
        let certificate = session.certify(&rig, Question::At(rate_qps), Some(rate_qps))?;
        rig.certify_to(certificate);
        let result = session.shown(session.length(), |observer| {
            rig.start()?;
            observer(&Event::TrialStarted {
                rate_qps,
                number: 1,
            });
            rig.trial(rate_qps)
        })?;
        let conditions = session.conditions(&rig, certificate);
        session.write_trial(&result, &conditions)?;
        if let (Some(raw), Some(rows)) = (raw, rig.rows()) {
            let header = Header::of(&rows);
            raw.write(rows, &header)?;
        }
        Ok(exit::of_trial(&result.outcome))
    })
}

/// `dns64bench selftest`
pub(super) fn self_test(args: SelfTestArgs) -> Result<u8, Failure> {
    let measurement = args.measure.resolve(Needs::AuthorityOnly)?;
    let question = match args.rate {
        Some(rate_qps) => Question::At(rate_qps),
        None => Question::Highest {
            resolution: args.resolution,
            max_qps: None,
        },
    };
    with_output(measurement, |session| {
        let rig = session.rig()?;
        let result = session.self_test(&rig, question)?;
        let Some(result) = result else {
            return Ok(exit::TESTER);
        };
        let mut conditions = session.conditions(&rig, result.certified_rate_qps);
        conditions.server = rig
            .self_test_server()
            .map_or(String::new(), |s| s.to_string());
        session.write_self_test(&result, &conditions)?;
        Ok(exit::of_self_test(&result.end))
    })
}

/// `dns64bench search`
pub(super) fn search(args: SearchArgs) -> Result<u8, Failure> {
    let mut measurement = args.measure.resolve(Needs::Dut)?;
    measurement.spec.load.stop_early = true;
    let mut spec = SearchSpec::from_start(args.start_rate);
    spec.resolution = args.resolution;
    spec.max_qps = args.max_rate;
    spec.lowest_qps = Schedule::lowest_rate_qps(measurement.spec.load.duration_ns);
    with_output(measurement, |session| {
        session.refuse_impossible(args.start_rate)?;
        let mut rig = session.rig()?;
        let question = Question::Highest {
            resolution: certify::COARSE,
            max_qps: spec.max_qps,
        };
        spec.ceiling_qps = session.certify(&rig, question, None)?;
        let result = session.search(&mut rig, spec)?;
        let conditions = session.conditions(&rig, result.certified_rate_qps);
        session.write_search(&result, &conditions)?;
        Ok(exit::of_search(&result.end))
    })
}

/// One measurement on its way from arguments to output.
pub(super) struct Session {
    measurement: Measurement,
    interrupted: Arc<AtomicBool>,
    json: Option<Sink>,
    /// The JSON has its object: what fails from here on is told in words alone.
    told: bool,
}

/// Where JSON goes.
enum Sink {
    Stdout,
    File(PathBuf, File),
}

/// Runs a measurement; what fails is told in the JSON as well, so that this is always an object.
pub(super) fn with_output(
    mut measurement: Measurement,
    run: impl FnOnce(&mut Session) -> Result<u8, Failure>,
) -> Result<u8, Failure> {
    let interrupted = interrupt()?;
    if measurement.spec.subject.lab().is_some() {
        let kind = measurement.lab.settle()?;
        if let Some(code) = in_user_namespace(kind, &interrupted)? {
            return Ok(code);
        }
        measurement.spec.subject = measurement.spec.subject.on(kind);
    }
    let mut session = Session {
        json: Sink::open(&measurement.output)?,
        measurement,
        interrupted,
        told: false,
    };
    let done = run(&mut session);
    if let Err(failure) = &done
        && !session.told
    {
        session.write_json(|out| {
            let error = format!("{:#}", failure.error);
            let object = serde_json::json!({ "error": error, "exit_code": failure.code });
            writeln!(out, "{object:#}")
        })?;
    }
    done
}

impl Sink {
    /// A file that cannot be written is told before the measurement, not after it.
    fn open(output: &OutputArgs) -> Result<Option<Self>, Failure> {
        Ok(match &output.json {
            None => None,
            Some(JsonOut::Stdout) => Some(Self::Stdout),
            Some(JsonOut::File(path)) => {
                let file = File::create(path).map_err(|e| {
                    let what = format!("cannot write {}: {e}", path.display());
                    Failure::new(exit::ENVIRONMENT, anyhow::anyhow!(what))
                })?;
                Some(Self::File(path.clone(), file))
            }
        })
    }
}

impl Session {
    /// Refuses a trial that cannot be run, such as one beyond the namespace, before anything is
    /// set up.
    fn refuse_impossible(&self, rate_qps: u64) -> Result<(), Failure> {
        let load = &self.measurement.spec.load;
        let schedule = load.schedule(rate_qps);
        let names = load.names()?.take(schedule.queries(), None)?;
        let anybody = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
        Ok(load.trial(anybody, rate_qps, schedule, names).check()?)
    }

    /// How long the trials take, and how long the last answer is waited for.
    fn length(&self) -> (Nanos, Nanos) {
        let load = &self.measurement.spec.load;
        (load.duration_ns, load.timeout_ns)
    }

    /// One search on a rig, which is started for it if it is not yet.
    pub(super) fn search(&self, rig: &mut Rig, spec: SearchSpec) -> Result<SearchResult, Failure> {
        rig.certify_to(spec.ceiling_qps);
        self.shown(self.length(), |observer| {
            search::run(Search::new(spec), rig, observer)
        })
    }

    pub(super) fn conditions(&self, rig: &Rig, certified_rate_qps: Option<u64>) -> Conditions {
        Conditions {
            certified_rate_qps,
            ..rig.conditions(&self.measurement.remarks())
        }
    }

    pub(super) fn rig(&self) -> Result<Rig, Failure> {
        let spec = self.measurement.spec.clone();
        Ok(Rig::open(spec, Arc::clone(&self.interrupted))?)
    }

    /// The certificate of a self-test; `None` where the user does without, or where there is no
    /// authority to ask. A Tester that fails its self-test, or is certified for less than
    /// `needed_qps`, is refused.
    pub(super) fn certify(
        &self,
        rig: &Rig,
        question: Question,
        needed_qps: Option<u64>,
    ) -> Result<Option<u64>, Failure> {
        if self.measurement.uncertified {
            return Ok(None);
        }
        let Some(result) = self.self_test(rig, question)? else {
            return Ok(None);
        };
        if let Some(certified) = result.certified_rate_qps {
            return Ok(Some(certified));
        }
        let rate = needed_qps.map_or("any rate".to_owned(), |r| {
            format!("{} queries/s", Thousands(r))
        });
        let reason = match &result.end {
            Outcome::Invalid(fault) => fault.to_string(),
            Outcome::Failed { shortfall } => {
                format!("{shortfall} queries without a valid answer in time")
            }
            Outcome::Passed => "no certificate was confirmed".to_owned(),
        };
        let error = format!(
            "the self-test of the Tester failed, so it cannot measure a DUT at {rate}: {reason}; \
             lower the rate, give the Tester more cores, or use --uncertified, which marks the result"
        );
        Err(Failure::new(exit::TESTER, anyhow::anyhow!(error)))
    }

    fn self_test(&self, rig: &Rig, question: Question) -> Result<Option<SelfTestResult>, Failure> {
        let (duration_ns, timeout_ns) = self.length();
        let length = (duration_ns, self_test_timeout(timeout_ns));
        self.shown(length, |observer| rig.self_test(question, observer))
    }

    /// Runs a procedure with its progress shown.
    fn shown<T>(
        &self,
        (duration_ns, timeout_ns): (Nanos, Nanos),
        run: impl FnOnce(&mut dyn FnMut(&Event<'_>)) -> Result<T, RigError>,
    ) -> Result<T, Failure> {
        let progress = Progress::new(duration_ns, timeout_ns, self.measurement.output.quiet);
        let done = run(&mut |event| progress.event(event));
        progress.clear();
        Ok(done?)
    }

    fn write_trial(
        &mut self,
        result: &TrialResult,
        conditions: &Conditions,
    ) -> Result<(), Failure> {
        self.write_json(|out| json::trial(out, result, conditions))?;
        self.write_text(|out| text::trial(out, result, conditions))
    }

    fn write_search(
        &mut self,
        result: &SearchResult,
        conditions: &Conditions,
    ) -> Result<(), Failure> {
        self.write_json(|out| json::search(out, result, conditions))?;
        self.write_text(|out| text::search(out, result, conditions))
    }

    fn write_self_test(
        &mut self,
        result: &SelfTestResult,
        conditions: &Conditions,
    ) -> Result<(), Failure> {
        let timeout_ns = self.measurement.spec.load.timeout_ns;
        self.write_json(|out| json::self_test(out, result, timeout_ns, conditions))?;
        self.write_text(|out| text::self_test(out, result, timeout_ns, conditions))
    }

    fn write_json(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>,
    ) -> Result<(), Failure> {
        self.told = true;
        match &mut self.json {
            None => Ok(()),
            Some(Sink::Stdout) => print(write),
            Some(Sink::File(path, file)) => {
                let mut bytes = Vec::new();
                write(&mut bytes)
                    .and_then(|()| file.write_all(&bytes))
                    .map_err(|e| {
                        let what = format!("cannot write {}: {e}", path.display());
                        Failure::new(exit::ENVIRONMENT, anyhow::anyhow!(what))
                    })
            }
        }
    }

    /// The table goes to standard output, unless the JSON has it; then to a terminal, if there is
    /// one.
    fn write_text(
        &self,
        write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>,
    ) -> Result<(), Failure> {
        if self.measurement.output.quiet {
            return Ok(());
        }
        if !matches!(self.json, Some(Sink::Stdout)) {
            return print(write);
        }
        if io::stderr().is_terminal() {
            let mut text = Vec::new();
            write(&mut text)
                .and_then(|()| io::stderr().write_all(&text))
                .map_err(|e| Failure::new(exit::ENVIRONMENT, e))?;
        }
        Ok(())
    }
}
