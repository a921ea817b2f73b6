//! `dns64bench dns64perf`: the command lines of dns64perf++ and, with `--classic`, of dns64perf.

mod arguments;
mod classic;
mod experiment;
mod lines;

use std::io::Write;
use std::net::Ipv4Addr;
use std::sync::atomic::Ordering;

use dns64_transport::Backend;
use dns64_transport::clock::{Nanos, SECOND};
use dns64_transport::socket::Segmentation;

use super::measure::may_load;
use super::{Failure, exit, interrupt, print};
use crate::cli::args::{AcceptedArg, Dns64PerfArgs};
use crate::load::catch_up::Limits;
use crate::load::generator::{Generator, PORT_IDS};
use crate::load::ledger::Fate;
use crate::load::names::Names;
use crate::load::pace::{Pacing, Schedule};
use crate::load::query::QueryForm;
use crate::load::repeat::Repeats;
use crate::load::ring::Ring;
use crate::load::transport::{Protocol, Transport};
use crate::machine::network::Network;
use crate::namespace::{Prefixes, Zone, own_aaaa};
use crate::post::probe::Prober;
use crate::report::raw::{Header, RawFile};
use crate::rig::RigError;
use crate::rig::equipment::Client as _;
use crate::rig::tester::Instruments;
use crate::trial::result::Outcome;
use crate::trial::rows::Row;
use crate::trial::surroundings::Surroundings;
use crate::trial::{Measurer, TrialSpec};
use arguments::Test;
use lines::Totals;

/// The file that dns64perf++ writes, in the current directory.
const FILE: &str = "dns64perf.csv";

/// Runs the test that the arguments specify.
pub(super) fn run(args: &Dns64PerfArgs) -> Result<u8, Failure> {
    if args.classic {
        return classic::run(&args.arguments, args.may_load);
    }
    let test = Test::parse(&args.arguments)?;
    may_load(std::iter::once(test.server), args.may_load)?;
    let pacing = args.settings.0.pacing();
    let schedule = test.schedule(pacing);
    let spec = TrialSpec {
        server: test.server,
        transport: Transport::default(),
        schedule,
        pacing,
        timeout_ns: test.timeout_ns,
        names: test.names(),
        ports: Some(test.ports_enough(&schedule)),
        segmentation: Segmentation::On,
        stop_early: false,
        limits: Limits::default(),
    };
    spec.check()?;
    measure(&test, spec, args.pref64.clone())
}

fn measure(test: &Test, mut spec: TrialSpec, accepted: AcceptedArg) -> Result<u8, Failure> {
    let interrupted = interrupt()?;
    let file = RawFile::create(FILE.as_ref())?;
    let judge = Judge::new(accepted, test, &spec.names.zone);
    spec.names.pref64.clone_from(&judge.pref64);
    let measurer = Measurer {
        network: Network::Own,
        local: None,
        threads: test.threads,
        cores: Vec::new(),
        backend: Backend::Socket,
    };
    let zone = spec.names.zone.clone();
    let mut tester = Instruments::here(measurer, (spec.server, Protocol::Udp), zone, &interrupted)?;
    let result = tester.trial(&spec, Surroundings::default)?;
    if interrupted.load(Ordering::Relaxed) {
        return Err(RigError::Interrupted.into());
    }
    let Some(rows) = tester.rows() else {
        return Ok(exit::TESTER);
    };
    let valid = |row: &Row| judge.valid(row, spec.timeout_ns);
    let sums = Totals::of(rows.clone(), valid);
    let mut remarks = sums.timers(spec.schedule);
    remarks.extend(judge.remark.clone());
    let flaw = spec.pacing.flaw();
    remarks.extend(flaw.map(|flaw| format!("dns64bench: {flaw}: not a measurement")));
    if let Outcome::Invalid(fault) = &result.outcome {
        remarks.push(format!(
            "dns64bench: the Tester disturbed the test: {fault}"
        ));
    }
    remark(&remarks);
    print(|out| sums.write(out))?;
    file.write_as(rows, &test.header(), valid)?;
    Ok(match result.outcome {
        Outcome::Invalid(_) => exit::TESTER,
        Outcome::Passed | Outcome::Failed { .. } => exit::PASSED,
    })
}

/// Prints remarks outside the result; standard error may be closed.
fn remark(remarks: &[String]) {
    for remark in remarks {
        let _ = writeln!(std::io::stderr(), "{remark}");
    }
}

/// Decides which answers are valid.
struct Judge {
    /// Prefixes of the expected answers; `None` if each name has its own AAAA. With any prefix, any other AAAA record is
    /// valid as well.
    pref64: Option<Prefixes>,
    /// Remark for the user.
    remark: Option<String>,
}

/// Number of names that are queried before the test. If 1/16 of the names have an AAAA record, one of this number of
/// consecutive names has one; Lencse et al. 2017, section 7.1, has no share below a fifth.
const PROBES: u64 = 16;

/// Timeout of a probe.
const PROBE_NS: Nanos = SECOND;

impl Judge {
    fn new(accepted: AcceptedArg, test: &Test, zone: &Zone) -> Self {
        let (pref64, remark) = match accepted {
            AcceptedArg::Given(pref64) => (Some(pref64), None),
            AcceptedArg::Auto => match learn(test, zone) {
                Ok(pref64) => (pref64, None),
                Err(why) => (
                    Some(Prefixes::Any),
                    Some(format!(
                        "dns64bench: any AAAA record counts as valid, since {why}; give the expected prefixes with --pref64"
                    )),
                ),
            },
        };
        Self { pref64, remark }
    }

    fn valid(&self, row: &Row, timeout_ns: Nanos) -> bool {
        match row.fate {
            Fate::Valid => true,
            Fate::Wrong => self.pref64 == Some(Prefixes::Any) && row.rtt_ns <= timeout_ns,
            _ => false,
        }
    }
}

/// Learns the expected answers from the last names of the subnet: the prefixes that explain all answers, or `None` if
/// each name has its own AAAA.
///
/// # Errors
///
/// Neither is the case; the text says why.
fn learn(test: &Test, zone: &Zone) -> Result<Option<Prefixes>, String> {
    let prober = Prober::here(test.server, zone.clone());
    let names = test.subnet.names();
    let mut answers = Vec::new();
    for back in 1..=PROBES.min(names) {
        let name = test.subnet.address(names - back);
        let answer = prober.aaaa(name, PROBE_NS).map_err(|e| e.to_string())?;
        answers.push((name, answer));
    }
    let is_own = |(name, found): &&(Ipv4Addr, Vec<_>)| found.contains(&own_aaaa(*name));
    let own = answers.iter().filter(is_own).count();
    if own == answers.len() {
        return Ok(None);
    }
    if own > 0 {
        return Err("some names have an AAAA of their own".to_owned());
    }
    let learnt = Prefixes::learn(&answers);
    let none = || format!("no prefixes explain the answers of {}", test.server);
    learnt.map(Some).ok_or_else(none)
}

impl Test {
    /// The schedule of the arguments.
    fn schedule(&self, pacing: Pacing) -> Schedule {
        let bursts = (self.delay_ns, self.threads as u64);
        let schedule = Schedule::in_bursts(self.requests, self.burst, bursts);
        match pacing {
            Pacing::Absolute => schedule,
            Pacing::SelfCorrecting => schedule.with_burst(self.burst),
        }
    }

    /// Total number of sockets: the number in the arguments, or more if the query IDs need it. A burst leaves from one
    /// socket, in turn.
    fn ports_enough(&self, schedule: &Schedule) -> usize {
        let by_rate = Generator::ports_needed(schedule.rate_qps(), self.timeout_ns, PORT_IDS);
        let within = schedule.due_within(self.timeout_ns) / schedule.burst() + 1;
        let by_bursts = within.div_ceil(PORT_IDS / schedule.burst());
        let needed = usize::try_from(by_rate.max(by_bursts)).unwrap_or(usize::MAX);
        needed.max(self.threads * self.ports_each)
    }

    fn names(&self) -> Names {
        Names {
            ring: Ring::whole(self.subnet),
            first: 0,
            fresh: self.requests,
            cached: self.subnet.first(),
            repeats: Repeats::none(),
            zone: Zone::default(),
            pref64: None,
            form: QueryForm::default(),
        }
    }

    fn header(&self) -> Header {
        Header {
            server: self.server.ip(),
            port: self.server.port(),
            requests: self.requests,
            burst: self.burst,
            threads: self.threads as u64,
            delay_ns: self.delay_ns,
        }
    }
}
