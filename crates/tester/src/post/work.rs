//! Executes the requests to a host, called in this process or by an agent.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dns64_transport::clock::{Clock, MonotonicClock, Nanos};

use super::exchange::exchange;
use super::pulse::Pulse;
use super::{HostQuery, Program, Reply, Request, ServerState, TesterSpec, Wanted};
use crate::agent::facts::HostFacts;
use crate::agent::serve::Work;
use crate::hash;
use crate::lab::routes::{self, Route};
use crate::lab::server::{self, Server, ServerSpec};
use crate::lab::zone;
use crate::lab::{Blame, LabError};
use crate::machine::counters::CounterReading;
use crate::machine::usage::cpu_ns;
use crate::machine::{Machine, Role};
use crate::naming::Naming;
use crate::trial::backend::allow_ports;
use crate::trial::part::{Armed, Part, ReusedLedgers};
use crate::trial::{Measurer, Tester, TrialSpec};

/// Everything that runs on this host for a controller. Dropping it stops all of it.
pub struct Post {
    tester: Option<Tester>,
    armed: Option<Armed>,
    pulse: Option<Pulse>,
    dut: Option<Server>,
    authority: Option<Server>,
    /// It has given this host routes.
    is_routing: bool,
    interrupted: Arc<AtomicBool>,
}

impl Post {
    /// Creates an empty state. A trial ends early when `interrupted` becomes true.
    pub fn new(interrupted: Arc<AtomicBool>) -> Self {
        Self {
            tester: None,
            armed: None,
            pulse: None,
            dut: None,
            authority: None,
            is_routing: false,
            interrupted,
        }
    }

    /// Executes a request. Servers that it starts end with the calling thread.
    ///
    /// # Errors
    ///
    /// What failed, and who has to change something.
    pub fn execute(&mut self, request: Request) -> Result<Reply, LabError> {
        Ok(match request {
            Request::Launch(role, spec) => self.launch(role, *spec)?,
            Request::Relaunch(role) => {
                self.server(role)?.relaunch()?;
                Reply::Done
            }
            Request::Stop(role) => {
                *self.slot(role) = None;
                Reply::Done
            }
            Request::State(role) => Reply::State(state(self.server(role)?)),
            Request::Ready(role) => Reply::Started(self.server(role)?.answered()),
            Request::Program(role) => Reply::Program(Box::new(program(self.server(role)?))),
            Request::Open(spec) => self.open(*spec)?,
            Request::Close => {
                (self.armed, self.tester, self.pulse) = (None, None, None);
                Reply::Done
            }
            Request::Counts => {
                let counts = self.tester()?.authority_counts();
                Reply::Counts(counts?)
            }
            Request::Arm { spec, part, spare } => self.arm(&spec, part, spare)?,
            Request::Run(start) => self.run(start)?,
            Request::Gather => self.gather()?,
            Request::Read(network, queues) => Reply::Reading(CounterReading::of(&network, queues)),
            Request::Facts => Reply::Facts(Box::new(HostFacts::here())),
            Request::Find(wanted) => Reply::Version(version(&wanted)?),
            Request::Ask(question) => Reply::Answer(exchange(&question)),
            Request::Pulse(question, core) => self.begin_pulse(question, core)?,
            Request::EndPulse => {
                let waits = self.pulse.take().map(|mut pulse| pulse.end());
                Reply::Waits(waits.unwrap_or_default())
            }
            Request::Routes(routes) => self.route(&routes)?,
        })
    }

    fn slot(&mut self, role: Role) -> &mut Option<Server> {
        match role {
            Role::Authority => &mut self.authority,
            Role::Dut | Role::Measurer => &mut self.dut,
        }
    }

    fn server(&mut self, role: Role) -> Result<&mut Server, LabError> {
        let server = self.slot(role).as_mut();
        server.ok_or_else(|| Blame::Server.error("no server was started for this role"))
    }

    fn launch(&mut self, role: Role, spec: ServerSpec) -> Result<Reply, LabError> {
        // Stops the old server before a new one uses its address.
        *self.slot(role) = None;
        if let Some(zone) = &spec.zone {
            let faults = zone::faults(&spec.profile, zone, zone.names(), &Machine::here());
            faults.into_iter().next().map_or(Ok(()), Err)?;
        }
        *self.slot(role) = Some(Server::launch(spec)?);
        Ok(Reply::Done)
    }

    fn open(&mut self, spec: TesterSpec) -> Result<Reply, LabError> {
        (self.armed, self.tester) = (None, None);
        allow_ports(spec.ports)?;
        let measurer = spec.measurer.unwrap_or_else(Measurer::none);
        let opened = Tester::open(measurer, spec.authority.as_ref(), &self.interrupted);
        self.tester = Some(opened?);
        Ok(Reply::Done)
    }

    fn tester(&mut self) -> Result<&mut Tester, LabError> {
        let tester = self.tester.as_mut();
        tester.ok_or_else(|| Blame::Machine.error("no Tester is open here"))
    }

    fn arm(
        &mut self,
        spec: &TrialSpec,
        part: Part,
        spare: ReusedLedgers,
    ) -> Result<Reply, LabError> {
        // A trial that another host could not arm: its memory and its ports are free for this one.
        self.armed = None;
        spec.check()?;
        let servers = [(Role::Dut, &self.dut), (Role::Authority, &self.authority)];
        let servers = servers
            .into_iter()
            .filter_map(|(role, server)| Some((role, server.as_ref()?.pid())));
        let servers = servers.collect();
        let tester = self.tester()?;
        tester.watch(servers);
        let armed = tester.arm(spec, part, spare)?;
        self.armed = Some(armed);
        Ok(Reply::Done)
    }

    fn armed(&mut self) -> Result<Armed, LabError> {
        let armed = self.armed.take();
        armed.ok_or_else(|| Blame::Machine.error("no trial is ready here"))
    }

    fn run(&mut self, start: Nanos) -> Result<Reply, LabError> {
        let armed = self.armed()?;
        let late_ns = MonotonicClock.now().saturating_sub(start);
        let ran = self.tester()?.run(armed, start)?;
        self.armed = Some(ran);
        Ok(Reply::Ran(late_ns))
    }

    fn gather(&mut self) -> Result<Reply, LabError> {
        let armed = self.armed()?;
        let gathered = self.tester()?.gather(armed)?;
        Ok(Reply::Gathered(Box::new(gathered)))
    }

    fn route(&mut self, routes: &[Route]) -> Result<Reply, LabError> {
        self.is_routing = !routes.is_empty();
        routes::set(routes)?;
        Ok(Reply::Done)
    }

    fn begin_pulse(&mut self, question: HostQuery, core: Option<usize>) -> Result<Reply, LabError> {
        self.pulse = Some(Pulse::begin(question, core)?);
        Ok(Reply::Done)
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        if self.is_routing {
            routes::sweep();
        }
    }
}

/// A post behind a connection.
impl Work for Post {
    type Request = Request;
    type Reply = Reply;

    fn handle(&mut self, request: Request) -> Reply {
        self.execute(request)
            .unwrap_or_else(|error| Reply::Refused(error.blame, Naming::Keys.with_causes(&error)))
    }
}

fn state(server: &mut Server) -> ServerState {
    ServerState {
        ended: server.exit_status().map(|status| status.to_string()),
        log_tail: server.log_tail(),
        resources: server.resources(),
        cpu_ns: cpu_ns(server.pid()),
        udp_drops: server.udp_drops(),
    }
}

fn program(server: &Server) -> Program {
    let rendered = server.rendered().ok();
    let (command, environment, files) = rendered.map_or_else(Default::default, |rendered| {
        (rendered.command, rendered.environment, rendered.files)
    });
    Program {
        version: server.version().ok(),
        command,
        environment: environment.into_iter().collect(),
        files: files.into_iter().collect(),
        sha256: hash::sha256_of(server.program()).ok(),
        cores: server.cores().note(),
    }
}

fn version(wanted: &Wanted) -> Result<Option<String>, LabError> {
    let Wanted { profile, program } = wanted;
    server::known_version(profile, &profile.program(program.as_deref())?)
}
