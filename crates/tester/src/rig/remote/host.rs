//! The controller's side: connected hosts, and the servers on them.

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
use crate::lab::profile::Profile;
use crate::lab::profile::ProfileRole;
use crate::lab::server::{Launched, Probe, ServerSpec, Start, start_limit_ns, wait_ready};
use crate::lab::{Blame, LabError};
use crate::machine::Role;
use crate::machine::counters::Reading;
use crate::machine::process::Resources;

/// Timeout of requests that a host completes at once.
pub const PROMPT_NS: Nanos = 20 * SECOND;

/// Timeout of a launch: stopping a server takes some seconds, and writing the zone file of another takes minutes.
const LAUNCH_NS: Nanos = 900 * SECOND;

/// A connected host. When its last clone is dropped, its agent exits, with everything that it started.
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
    /// Creates a host at the other end of a connection.
    pub fn new(name: &str, link: Link) -> Self {
        Self {
            name: name.into(),
            link: Arc::new(Mutex::new(link)),
        }
    }

    /// Returns its name in the plan.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sends a request that the host completes within `limit_ns`.
    ///
    /// # Errors
    ///
    /// The host does not answer, or refuses; the error names it.
    pub fn ask(&self, request: &Request, limit_ns: Nanos) -> Result<Reply, LabError> {
        self.ask_all(request, limit_ns).map(|(reply, _)| reply)
    }

    /// Sends a request and returns the reply with the binary data that follows it.
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

    /// Returns the facts of the host.
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

    /// Returns the version of its program of a profile, if the program prints one.
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

    /// Makes it send a query.
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

    /// Returns its counters, with or without those of its queues; `None` if it does not answer.
    pub(in crate::rig) fn reading(&self, queues: bool) -> Option<Reading> {
        match self.ask(&Request::Read(queues), PROMPT_NS) {
            Ok(Reply::Reading(reading)) => reading,
            _ => None,
        }
    }

    /// Returns the connection, locked.
    pub(in crate::rig) fn link(&self) -> std::sync::MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the error for a reply of the wrong type.
    pub(in crate::rig) fn strange(&self, asked: &str) -> LabError {
        Blame::Server.error(format!(
            "host {} answers the request {asked} with something else; this is a bug",
            self.name
        ))
    }
}

/// Converts the error of a request. A lost connection prevents all measurements; a single failed request concerns only
/// its target.
pub(super) fn unanswered(error: LinkError) -> LabError {
    let blame = match error.trouble.is_passing() {
        true => Blame::Server,
        false => Blame::Machine,
    };
    blame.error(error.to_string())
}

/// A server on a connected host. Dropping it stops it.
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
    /// Starts a server like [`Server::start`](crate::lab::server::Server::start).
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

    /// Restarts it like [`Server::restart`](crate::lab::server::Server::restart).
    pub(in crate::rig) fn restart(
        &mut self,
        probe: &mut dyn FnMut() -> Probe,
    ) -> Result<(), LabError> {
        self.relaunch()?;
        wait_ready(self, &mut || probe())
    }

    /// Returns its program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Returns its order.
    pub fn spec(&self) -> &ServerSpec {
        &self.spec
    }

    /// Returns its host.
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

    /// Returns how it ended, or the error of its host.
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
        // A destructor cannot report errors; the end of the connection stops it too.
        let _ = self.host.ask(&Request::Stop(self.role), PROMPT_NS);
    }
}

/// Returns the role of a profile's servers.
fn role_of(profile: &Profile) -> Role {
    match profile.role {
        ProfileRole::Dut => Role::Dut,
        ProfileRole::Authority => Role::Authority,
    }
}
