//! Conformance of a DNS64 server: cases ([`case`], [`read`]) with an authority that answers by script (`script`, `authority`), a
//! client (`query`, `client`) that plays their steps (`play`), and a verdict for each (`judge`): without load, and beside
//! a [`load`].
//!
//! Each run of a case has names and addresses that no other run has, so that no cache and no order of the cases matters.
//! Cases in which the authority misbehaves so that a server may avoid it afterwards run at the end, one by one, and the
//! server recovers before the next one: in a lab by a restart. Any other case that fails is run again (`round`), because
//! a busy machine may make a server ask twice.

mod attacks;
mod authority;
pub mod case;
mod client;
mod judge;
pub mod lab;
pub mod load;
mod play;
mod query;
pub mod read;
pub mod report;
mod round;
mod script;
mod text;

use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use dns64_transport::clock::{Clock as _, MonotonicClock, Nanos, SECOND};
use dns64_transport::random;
use dns64_wire::message::Message;
use dns64_wire::pref64::Pref64;
use domain::base::Name;

use self::authority::{Authority, Runs};
use self::case::{Case, Need, Run};
use self::client::{Sockets, WAIT_NS};
use self::lab::Dut;
use self::load::Background;
use self::report::{Attacks, Judged, STOPPED, UnderLoad, Verdict};
use self::round::Round;
use crate::lab::LabError;
use crate::machine::network::Network;
use crate::machine::process;
use crate::rig::RigError;

/// The case that shows whether the server synthesises, and with which prefix. It is no part of a report.
const CONTROL: &str = r#"
rfc = 6147
[[case]]
id = "control"
clause = "5.1"
level = "must"
why = "The server synthesises"
zone = "@ 60 A 20.0.0.170\nother 60 A 20.0.0.171"
[[case.step]]
ask = "@ AAAA"
[[case.step]]
ask = "other AAAA"
"#;

/// The addresses of the two names of [`CONTROL`].
const CONTROL_ADDRESSES: [[u8; 4]; 2] = [[20, 0, 0, 170], [20, 0, 0, 171]];

/// The case that shows whether the server asks the authority about all names.
const ELSEWHERE: &str = r#"
rfc = 6147
[[case]]
id = "elsewhere"
clause = "5.1"
level = "must"
why = "The server asks the authority about all names"
zone = "reverse(addr(1)) PTR @"
[[case.step]]
ask = "reverse(addr(1)) PTR"
expect = [{ has = ["reverse(addr(1)) PTR @"] }]
"#;

/// Reason why a server gets no verdict.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoVerdict {
    /// No response.
    #[error(
        "{server} did not answer within {wait_s} s; is it running, and may this machine ask it?"
    )]
    Silent {
        /// The server.
        server: SocketAddr,
        /// Time waited, in seconds.
        wait_s: u64,
    },
    /// It does not ask the authority.
    #[error(
        "{server} answered, but did not ask the authority about {suffix}; let it forward that zone to the authority"
    )]
    OtherUpstream {
        /// The server.
        server: SocketAddr,
        /// Zone of the names.
        suffix: String,
    },
    /// It does not synthesise.
    #[error("{server} did not synthesise an AAAA record ({what}); is DNS64 on for this client?")]
    NoDns64 {
        /// The server.
        server: SocketAddr,
        /// What it answered.
        what: String,
    },
    /// A fault of the Tester.
    #[error("{0}")]
    Tester(String),
}

/// The server and the way to it.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The server.
    pub server: SocketAddr,
    /// Network of the client.
    pub network: Network,
    /// Zone of the names, without the final dot.
    pub suffix: String,
}

/// What is known of a server before the cases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// Its prefix.
    pub(crate) pref64: Pref64,
    /// Whether it asks the authority about all names.
    pub(crate) forwards_all: bool,
}

impl Known {
    /// Whether the server has what a case needs.
    fn has(self, need: Need) -> bool {
        let is_well_known = self.pref64 == Pref64::WELL_KNOWN;
        match need {
            Need::ForwardsAll => self.forwards_all,
            Need::OwnPrefix => !is_well_known,
            Need::WellKnownPrefix => is_well_known,
        }
    }
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Every case was judged.
    Complete,
    /// The server stopped answering, or could not be restarted.
    Gone,
    /// By the user.
    Interrupted,
}

/// What a run gave.
#[derive(Clone, Debug)]
pub struct Ran {
    /// What is known of the server.
    pub(crate) known: Known,
    /// The verdicts, in the order of the cases.
    pub cases: Vec<Judged>,
    /// The loads under which it was judged again.
    pub loads: Vec<UnderLoad>,
    /// What attacks gave, if there were any.
    pub attacks: Option<Attacks>,
    /// How it ended.
    pub end: End,
}

/// A suite at work.
#[derive(Debug)]
pub struct Suite {
    subject: Subject,
    runs: Arc<Runs>,
    authority: Authority,
    /// Different in each process, so that names are new to a server that runs.
    nonce: u32,
    number: AtomicU16,
}

impl Suite {
    /// Opens the authority at `listen` in its network.
    ///
    /// # Errors
    ///
    /// The address is not usable, or the suffix is not a domain name.
    pub fn open(subject: Subject, network: &Network, listen: SocketAddr) -> Result<Self, LabError> {
        let suffix = Name::from_str(&subject.suffix);
        let suffix =
            suffix.map_err(crate::lab::Blame::Request.because("--suffix is not a domain name"))?;
        let runs = Arc::new(Runs::new(suffix));
        let authority = Authority::serve(&runs, network, listen)?;
        let draw = random::from_system().unwrap_or_default();
        let [nonce, number] = [draw >> 32, draw & 0xffff];
        Ok(Self {
            subject,
            runs,
            authority,
            nonce: u32::try_from(nonce).unwrap_or_default(),
            number: AtomicU16::new(u16::try_from(number).unwrap_or_default()),
        })
    }

    fn client(&self) -> Sockets {
        Sockets::new(self.subject.network.clone(), self.subject.server)
    }

    /// The particulars of the next run.
    fn next(&self, pref64: Pref64) -> Run {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let (nonce, suffix) = (self.nonce, &self.subject.suffix);
        Run {
            origin: format!("c{number:04x}-{nonce:08x}.{suffix}."),
            pref64,
            number,
        }
    }

    /// Asks the server for the AAAA records of two names and returns its prefix.
    ///
    /// # Errors
    ///
    /// It does not answer, does not ask the authority, or does not synthesise.
    pub fn pref64(&self, wait_ns: Nanos) -> Result<Pref64, NoVerdict> {
        let server = self.subject.server;
        let case = only(CONTROL)?;
        let run = self.next(Pref64::WELL_KNOWN);
        let done = play::steps(&case, &run, &self.runs, &self.client(), wait_ns);
        let done = done.map_err(|why| NoVerdict::Tester(format!("{why:?}")))?;
        let mut left: Option<Vec<Pref64>> = None;
        for (step, ipv4) in done.iter().zip(CONTROL_ADDRESSES) {
            let Some(response) = step.response() else {
                let wait_s = wait_ns.div_ceil(SECOND);
                return Err(NoVerdict::Silent { server, wait_s });
            };
            if step.asked.is_empty() {
                let suffix = self.subject.suffix.clone();
                return Err(NoVerdict::OtherUpstream { server, suffix });
            }
            let learnt = learnt(response, ipv4);
            left = Some(match left {
                None => learnt,
                Some(before) => before
                    .into_iter()
                    .filter(|it| learnt.contains(it))
                    .collect(),
            });
        }
        let last = done.last().and_then(|it| it.response());
        left.and_then(|all| all.first().copied())
            .ok_or_else(|| NoVerdict::NoDns64 {
                server,
                what: text::packet(last.unwrap_or_default()).join("; "),
            })
    }

    /// Waits until a server synthesises again that an authority has kept waiting or misled.
    ///
    /// # Errors
    ///
    /// It does not within `WAIT_NS`, or has ended.
    fn recovered(&self, dut: &Dut<'_>) -> Result<(), NoVerdict> {
        let begin = MonotonicClock.now();
        loop {
            match self.pref64(SECOND) {
                Ok(_) => return Ok(()),
                Err(why) if MonotonicClock.now() - begin > WAIT_NS => return Err(why),
                Err(why) if dut.ended().is_some() => return Err(why),
                // It may answer at once that its upstream failed.
                Err(_) => MonotonicClock.sleep(SECOND / 10),
            }
        }
    }

    /// Runs cases.
    ///
    /// # Errors
    ///
    /// The server gets no verdict at all.
    pub fn run(
        &self,
        cases: &[Case],
        seed: u64,
        interrupted: &AtomicBool,
        dut: &mut Dut<'_>,
    ) -> Result<Ran, NoVerdict> {
        let pref64 = self.pref64(WAIT_NS)?;
        let elsewhere = self.judge(&only(ELSEWHERE)?, pref64, WAIT_NS);
        let known = Known {
            pref64,
            forwards_all: elsewhere.verdict == Verdict::Passed,
        };
        let round = Round::new(self, cases, known, interrupted);
        let (others, last) = round.order(seed);
        round.judge_all(others, dut);
        for (number, at) in last.into_iter().enumerate() {
            if number > 0 && !round.is_over() && !dut.recover() {
                round.is_gone(STOPPED);
            }
            round.judge_alone(at, dut);
        }
        let (cases, end) = round.end();
        Ok(Ran {
            known,
            cases,
            loads: Vec::new(),
            attacks: None,
            end,
        })
    }

    /// Runs the cases of `ran` again while a load of this rate is sent, without those that harm: a server that avoids the
    /// authority has another load. The server recovers before.
    ///
    /// # Errors
    ///
    /// A fault of the Tester.
    pub fn run_loaded(
        &self,
        ran: &mut Ran,
        (cases, seed): (&[Case], u64),
        rate_qps: u64,
        interrupted: &AtomicBool,
        dut: &mut Dut<'_>,
    ) -> Result<(), RigError> {
        if ran.end != End::Complete {
            return Ok(());
        }
        if !dut.recover() {
            ran.end = End::Gone;
            return Ok(());
        }
        self.runs.take_loaded();
        let load = Background::start(&self.subject, ran.known.pref64, rate_qps)?;
        process::wait_until(WAIT_NS, || load.is_over() || self.runs.take_loaded());
        let round = Round::new(self, cases, ran.known, interrupted).loaded();
        round.judge_all(round.order(seed).0, dut);
        let (again, end) = round.end();
        let sent = load.end()?;
        ran.loads.push(UnderLoad::new(sent, &again));
        for (judged, again) in ran.cases.iter_mut().zip(again) {
            judged.under_load.push(again.into());
        }
        ran.end = end;
        Ok(())
    }

    fn judge(&self, case: &Case, pref64: Pref64, wait_ns: Nanos) -> Judged {
        let next = || self.next(pref64);
        play::judged(case, next, &self.runs, &self.client(), wait_ns)
    }
}

/// The prefixes that a response for a name with this address shows.
fn learnt(response: &[u8], ipv4: [u8; 4]) -> Vec<Pref64> {
    let Ok(message) = Message::parse(response) else {
        return Vec::new();
    };
    let addresses = message.records().filter_map(|record| record.ok()?.aaaa());
    addresses
        .flat_map(|address| Pref64::learn(address, ipv4.into()))
        .collect()
}

/// The only case of a text of this module.
fn only(text: &str) -> Result<Case, NoVerdict> {
    let cases = read::parse("built-in", text).map_err(NoVerdict::Tester)?;
    let case = cases.into_iter().next();
    case.ok_or_else(|| NoVerdict::Tester("no built-in case".into()))
}

#[cfg(test)]
mod tests;
