//! The controller's side: hosts that were reached, and the servers on them.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use dns64_transport::clock::{Nanos, SECOND};

use super::order::{
    NoAnswer, ProfileOrder, Program, Question, Reply, Request, ServerOrder, State, ZoneOrder,
};
use crate::agent::facts::HostFacts;
use crate::agent::link::Link;
use crate::agent::trouble::LinkError;
use crate::lab::counters::Reading;
use crate::lab::process::Resources;
use crate::lab::profile::Profile;
use crate::lab::profile::ProfileRole;
use crate::lab::server::{Launched, Probe, ServerSpec, Start, start_limit_ns, wait_ready};
use crate::lab::topology::Role;
use crate::lab::{Blame, LabError};

/// What a host does at once is answered within this time.
pub const PROMPT_NS: Nanos = 20 * SECOND;

/// Stopping a server takes some seconds, and writing the zone file of another minutes.
const LAUNCH_NS: Nanos = 900 * SECOND;

/// A host that was reached. Its agent ends, with all that it started, when the last of its clones is dropped.
#[derive(Clone)]
pub struct Remote {
    name: Arc<str>,
    link: Arc<Mutex<Link>>,
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "host {}", self.name)
    }
}

impl Remote {
    /// At the other end of a connection.
    pub fn new(name: &str, link: Link) -> Self {
        Self {
            name: name.into(),
            link: Arc::new(Mutex::new(link)),
        }
    }

    /// Its name in the plan.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Asks for something that the host does within `limit_ns`.
    ///
    /// # Errors
    ///
    /// The host does not answer, or does not do it: it is named.
    pub fn ask(&self, request: &Request, limit_ns: Nanos) -> Result<Reply, LabError> {
        self.ask_all(request, limit_ns).map(|(reply, _)| reply)
    }

    /// The same, with the octets that follow the reply.
    ///
    /// # Errors
    ///
    /// As [`Self::ask`].
    pub fn ask_all(
        &self,
        request: &Request,
        limit_ns: Nanos,
    ) -> Result<(Reply, Vec<Vec<u8>>), LabError> {
        let asked = self.link().ask(request, limit_ns);
        let (reply, blobs) = asked.map_err(unanswered)?;
        match reply {
            Reply::Refused(refusal) => Err(refusal
                .blame
                .unwrap_or(Blame::Server)
                .error(format!("host {}: {}", self.name, refusal.what))),
            reply => Ok((reply, blobs)),
        }
    }

    /// What it says of itself.
    ///
    /// # Errors
    ///
    /// It does not answer.
    pub fn facts(&self) -> Result<HostFacts, LabError> {
        match self.ask(&Request::Facts, PROMPT_NS)? {
            Reply::Facts(facts) => Ok(*facts),
            _ => Err(self.strange("facts")),
        }
    }

    /// The version of its program of a profile, if that tells one.
    ///
    /// # Errors
    ///
    /// It has no such program, or does not answer.
    pub fn find(
        &self,
        profile: &Profile,
        program: Option<&Path>,
    ) -> Result<Option<String>, LabError> {
        let order = ProfileOrder::new(profile, program);
        match self.ask(&Request::Find(Box::new(order)), PROMPT_NS)? {
            Reply::Version(version) => Ok(version),
            _ => Err(self.strange("find")),
        }
    }

    /// Has it ask a question.
    pub(in crate::rig) fn answer(
        &self,
        question: &Question,
    ) -> Result<Result<Vec<u8>, NoAnswer>, LabError> {
        let limit_ns = PROMPT_NS + question.wait_ns;
        match self.ask(&Request::Ask(question.clone()), limit_ns)? {
            Reply::Answer(answer) => Ok(answer),
            _ => Err(self.strange("ask")),
        }
    }

    /// Its counters, with those of its queues or without; `None` if it does not tell.
    pub(in crate::rig) fn reading(&self, queues: bool) -> Option<Reading> {
        match self.ask(&Request::Read(queues), PROMPT_NS) {
            Ok(Reply::Reading(reading)) => reading,
            _ => None,
        }
    }

    /// The connection, as long as nobody else uses it.
    pub(in crate::rig) fn link(&self) -> std::sync::MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An answer of another kind than was asked for.
    pub(in crate::rig) fn strange(&self, asked: &str) -> LabError {
        Blame::Server.error(format!(
            "host {} answers the request {asked} with something else; this is a bug",
            self.name
        ))
    }
}

/// Why a host did not answer. Without its connection nothing can be measured; a request that failed alone is the fault of
/// what was asked for.
pub(super) fn unanswered(error: LinkError) -> LabError {
    let blame = match error.trouble.is_passing() {
        true => Blame::Server,
        false => Blame::Machine,
    };
    blame.error(error.to_string())
}

/// A server on a host that was reached. Dropping it stops it.
#[derive(Debug)]
pub struct FarServer {
    host: Remote,
    role: Role,
    spec: ServerSpec,
    silent_starts: u32,
    start: Option<Start>,
    program: Program,
}

impl FarServer {
    /// As [`Server::start`](crate::lab::server::Server::start).
    pub(in crate::rig) fn start(
        host: Remote,
        spec: ServerSpec,
        mut probe: impl FnMut() -> Probe,
    ) -> Result<Self, LabError> {
        let role = role_of(&spec.profile);
        let zone = spec.zone.as_ref();
        let order = ServerOrder {
            profile: ProfileOrder::new(&spec.profile, spec.program.as_deref()),
            settings: (&spec.settings).into(),
            zone: zone.map(|zone| ZoneOrder::new(zone.cidr, &zone.config)),
        };
        host.ask(&Request::Launch(role, Box::new(order)), LAUNCH_NS)?;
        let mut server = Self {
            host,
            role,
            spec,
            silent_starts: 0,
            start: None,
            program: Program::default(),
        };
        wait_ready(&mut server, &mut probe)?;
        server.program = match server.host.ask(&Request::Program(role), PROMPT_NS)? {
            Reply::Program(program) => *program,
            _ => return Err(server.host.strange("program")),
        };
        Ok(server)
    }

    /// As [`Server::restart`](crate::lab::server::Server::restart).
    pub(in crate::rig) fn restart(
        &mut self,
        probe: &mut dyn FnMut() -> Probe,
    ) -> Result<(), LabError> {
        self.relaunch()?;
        wait_ready(self, &mut || probe())
    }

    /// What it is run by.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// What was to be started.
    pub fn spec(&self) -> &ServerSpec {
        &self.spec
    }

    /// Where it runs.
    pub fn host(&self) -> &Remote {
        &self.host
    }

    pub(in crate::rig) fn take_silent_starts(&mut self) -> u32 {
        std::mem::take(&mut self.silent_starts)
    }

    pub(in crate::rig) fn take_start(&mut self) -> Option<Start> {
        self.start.take()
    }

    fn state(&self) -> Result<State, LabError> {
        match self.host.ask(&Request::State(self.role), PROMPT_NS)? {
            Reply::State(state) => Ok(state),
            _ => Err(self.host.strange("state")),
        }
    }

    /// How it ended, or that its host does not tell.
    pub(in crate::rig) fn ended(&self) -> Option<String> {
        match self.state() {
            Ok(state) => state.ended,
            Err(error) => Some(error.to_string()),
        }
    }

    pub(in crate::rig) fn log_tail(&self) -> String {
        self.state()
            .map_or_else(|error| error.to_string(), |state| state.log_tail)
    }

    pub(in crate::rig) fn resources(&self) -> Resources {
        self.state()
            .map(|state| state.resources)
            .unwrap_or_default()
    }

    pub(in crate::rig) fn udp_drops(&self) -> u64 {
        self.state().map_or(0, |state| state.udp_drops)
    }
}

impl Launched for FarServer {
    fn name(&self) -> &str {
        &self.spec.profile.name
    }

    fn start_limit_ns(&self) -> Nanos {
        start_limit_ns(&self.spec)
    }

    fn relaunch(&mut self) -> Result<(), LabError> {
        self.host
            .ask(&Request::Relaunch(self.role), LAUNCH_NS)
            .map(drop)
    }

    fn end(&mut self) -> Result<(Option<String>, String), LabError> {
        let state = self.state()?;
        Ok((state.ended, state.log_tail))
    }

    fn answered(&mut self, silent_starts: u32) -> Result<(), LabError> {
        self.silent_starts = silent_starts;
        self.start = match self.host.ask(&Request::Ready(self.role), PROMPT_NS)? {
            Reply::Started(start) => start,
            _ => return Err(self.host.strange("ready")),
        };
        Ok(())
    }
}

impl Drop for FarServer {
    fn drop(&mut self) {
        // A destructor has nobody to tell; the end of the connection stops it too.
        let _ = self.host.ask(&Request::Stop(self.role), PROMPT_NS);
    }
}

/// The role of a profile's servers.
fn role_of(profile: &Profile) -> Role {
    match profile.role {
        ProfileRole::Dut => Role::Dut,
        ProfileRole::Authority => Role::Authority,
    }
}
