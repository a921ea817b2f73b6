//! The host's side: what an agent does for a controller, by the same code as a lab on one machine.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dns64_transport::clock::{Clock, MonotonicClock, Nanos};
use dns64_transport::cpu;
use dns64_wire::codes::Rtype;
use serde_json::Value;

use crate::agent::facts::HostFacts;
use crate::agent::serve::{self, Work};
use crate::authority::behaviour::Rules;
use crate::hash;
use crate::lab::routes::{self, Route};
use crate::lab::server::{self, Launched as _, Server, ServerSpec};
use crate::lab::{Blame, LabError, zone};
use crate::machine::counters::Reading;
use crate::machine::host::Host;
use crate::machine::{Machine, Role};
use crate::namespace::Zone;
use crate::rig::probe::{ProbeError, Prober};
use crate::rig::pulse::{Patient, Pulse};
use crate::rig::remote::order::{
    AuthorityGathered, AuthorityOrder, GatheredOrder, MeasurerOrder, NoAnswer, Program, PulseOrder,
    Question, Refusal, Reply, Request, ServerOrder, ShardOrder, State, TesterOrder, TrialOrder,
    causes, cpus,
};
use crate::trial::backend::allow_ports;
use crate::trial::part::{Armed, Gathered, Spare};
use crate::trial::surroundings::ShardReport;
use crate::trial::{AuthDns, Measurer, Tester};

/// Everything that runs on this host for a controller. Dropping it stops all of it.
pub struct Post {
    tester: Option<Tester>,
    armed: Option<Armed>,
    /// Memory of the previous trial, for reuse.
    spare: Spare,
    pulse: Option<Pulse>,
    dut: Option<Server>,
    authority: Option<Server>,
    /// It has given this host routes.
    is_routing: bool,
    interrupted: Arc<AtomicBool>,
}

/// A reply, followed by binary data.
type Answered = Result<(Reply, Vec<Vec<u8>>), Refusal>;

impl Post {
    /// Creates an empty state. A trial ends early when `interrupted` becomes true.
    pub fn new(interrupted: Arc<AtomicBool>) -> Self {
        Self {
            tester: None,
            armed: None,
            spare: Spare::default(),
            pulse: None,
            dut: None,
            authority: None,
            is_routing: false,
            interrupted,
        }
    }

    /// Executes a request. Servers that it starts end with the calling thread.
    pub fn handle(&mut self, request: Request) -> (Reply, Vec<Vec<u8>>) {
        let answered = match request {
            Request::Launch(role, order) => self.launch(role, *order),
            Request::Relaunch(role) => self.with(role, |server| Ok(done(server.relaunch()?))),
            Request::Stop(role) => {
                *self.slot(role) = None;
                Ok(done(()))
            }
            Request::State(role) => self.with(role, |server| Ok(bare(Reply::State(state(server))))),
            Request::Ready(role) => self.with(role, |server| {
                server.answered(0)?;
                Ok(bare(Reply::Started(server.take_start())))
            }),
            Request::Program(role) => self.with(role, |server| {
                Ok(bare(Reply::Program(Box::new(program(server)))))
            }),
            Request::Open(order) => self.open(*order),
            Request::Close => {
                self.armed = None;
                self.tester = None;
                Ok(done(()))
            }
            Request::Counts => self.counts(),
            Request::Arm(order) => self.arm(&order),
            Request::Run(start) => self.run(start),
            Request::Gather => self.gather(),
            Request::Read(queues) => Ok(bare(Reply::Reading(Reading::of(&Host::Here, queues)))),
            Request::Facts => Ok(bare(Reply::Facts(Box::new(HostFacts::here())))),
            Request::Find(order) => {
                let program = order.program.as_deref().map(Path::new);
                let version = order.profile().and_then(|profile| {
                    let program = profile.program(program)?;
                    server::known_version(&profile, &program)
                });
                version
                    .map(|version| bare(Reply::Version(version)))
                    .map_err(|error| Refusal::from(&error))
            }
            Request::Ask(question) => Ok(bare(Reply::Answer(answer(&question)))),
            Request::Pulse(order) => self.begin_pulse(&order),
            Request::EndPulse => {
                let waits = self.pulse.take().map(Pulse::end);
                Ok(bare(Reply::Waits(waits.unwrap_or_default())))
            }
            Request::Routes(routes) => self.route(&routes),
        };
        answered.unwrap_or_else(|refusal| bare(Reply::Refused(refusal)))
    }

    fn slot(&mut self, role: Role) -> &mut Option<Server> {
        match role {
            Role::Authority => &mut self.authority,
            Role::Dut | Role::Measurer => &mut self.dut,
        }
    }

    fn with(
        &mut self,
        role: Role,
        what: impl FnOnce(&mut Server) -> Result<Done, LabError>,
    ) -> Answered {
        let server = self.slot(role).as_mut();
        let server = server.ok_or_else(|| refusal("no server was started for this role"))?;
        what(server).map_err(|error| Refusal::from(&error))
    }

    fn launch(&mut self, role: Role, order: ServerOrder) -> Answered {
        // Stops the old server before a new one uses its address.
        *self.slot(role) = None;
        let spec = order.profile.profile().map(|profile| ServerSpec {
            profile,
            program: order.profile.program.map(Into::into),
            host: Host::Here,
            settings: order.settings.into(),
            zone: order.zone.as_ref().map(|zone| zone.file()),
        });
        let server = spec.and_then(|spec| {
            if let Some(zone) = &spec.zone {
                let faults = zone::faults(&spec.profile, zone, zone.names(), &Machine::here());
                faults.into_iter().next().map_or(Ok(()), Err)?;
            }
            Server::launch(spec)
        });
        *self.slot(role) = Some(server.map_err(|error| Refusal::from(&error))?);
        Ok(done(()))
    }

    fn open(&mut self, order: TesterOrder) -> Answered {
        self.armed = None;
        self.tester = None;
        let ports = order.measurer.as_ref().map_or(0, |order| order.ports);
        allow_ports(ports).map_err(|error| Refusal::from(&error))?;
        let measurer = measurer(order.measurer.as_ref());
        let authority = order
            .authority
            .map(|order| auth_dns(order, &measurer.cores));
        let authority = authority.transpose()?;
        let opened = Tester::open(measurer, authority.as_ref(), &self.interrupted);
        self.tester = Some(opened.map_err(|error| Refusal::from(&error))?);
        Ok(done(()))
    }

    fn tester(&mut self) -> Result<&mut Tester, Refusal> {
        self.tester
            .as_mut()
            .ok_or_else(|| refusal("no Tester is open here"))
    }

    fn counts(&mut self) -> Answered {
        let counts = self.tester()?.authority_counts();
        counts
            .map(|counts| bare(Reply::Counts(counts)))
            .map_err(|error| Refusal::from(&error))
    }

    fn arm(&mut self, order: &TrialOrder) -> Answered {
        let servers = [(Role::Dut, &self.dut), (Role::Authority, &self.authority)];
        let servers = servers
            .into_iter()
            .filter_map(|(role, server)| Some((role, server.as_ref()?.pid())));
        let (servers, spare) = (servers.collect(), std::mem::take(&mut self.spare));
        let (spec, part) = order.spec();
        spec.check().map_err(|error| Refusal::from(&error))?;
        let tester = self.tester()?;
        tester.watch(servers);
        let armed = tester
            .arm(&spec, part, spare)
            .map_err(|error| Refusal::from(&error))?;
        self.armed = Some(armed);
        Ok(done(()))
    }

    /// Runs the armed part. Returns how late it started.
    fn run(&mut self, start: Nanos) -> Answered {
        let armed = self
            .armed
            .take()
            .ok_or_else(|| refusal("no trial is ready here"))?;
        let late_ns = MonotonicClock.now().saturating_sub(start);
        let ran = self
            .tester()?
            .run(armed, start)
            .map_err(|error| Refusal::from(&error))?;
        self.armed = Some(ran);
        Ok(bare(Reply::Ran(late_ns)))
    }

    fn gather(&mut self) -> Answered {
        let armed = self
            .armed
            .take()
            .ok_or_else(|| refusal("no trial has run here"))?;
        let gathered = self
            .tester()?
            .gather(armed)
            .map_err(|error| Refusal::from(&error))?;
        let answered = told(&gathered);
        self.spare = gathered.into();
        Ok(answered)
    }

    fn route(&mut self, routes: &[Route]) -> Answered {
        self.is_routing = !routes.is_empty();
        let set = routes::set(routes);
        set.map(done).map_err(|error| Refusal::from(&error))
    }

    fn begin_pulse(&mut self, order: &PulseOrder) -> Answered {
        let question = &order.question;
        let pulse = Pulse::begin(Patient {
            host: Host::Here,
            server: question.server,
            core: order.core,
            zone: zone_of(question),
            name: question.address,
            patience_ns: question.wait_ns,
        });
        self.pulse = Some(pulse.map_err(|error| Refusal {
            blame: Some(error.blame()),
            what: causes(&error),
        })?);
        Ok(done(()))
    }
}

impl Drop for Post {
    fn drop(&mut self) {
        if self.is_routing {
            routes::sweep();
        }
    }
}

impl Work for Post {
    fn handle(&mut self, request: Value) -> Result<serve::Done, String> {
        let request = serde_json::from_value(request);
        let request: Request = request.map_err(|error| format!("not understood: {error}"))?;
        let (reply, blobs) = Self::handle(self, request);
        let reply = serde_json::to_value(reply).map_err(|error| error.to_string())?;
        Ok(serve::Done { reply, blobs })
    }
}

type Done = (Reply, Vec<Vec<u8>>);

fn done((): ()) -> Done {
    bare(Reply::Done)
}

fn bare(reply: Reply) -> Done {
    (reply, Vec::new())
}

fn refusal(what: impl Into<String>) -> Refusal {
    Refusal {
        blame: None,
        what: what.into(),
    }
}

/// Returns the Measurer on the configured cores, or on the first of the host; without an order it has no threads.
fn measurer(order: Option<&MeasurerOrder>) -> Measurer {
    let threads = order.map_or(0, |order| order.threads);
    let first: Vec<usize> = cpu::available().into_iter().take(threads).collect();
    let cores = order.map(|order| cpus(&order.cpus).or(&first));
    Measurer {
        host: Host::Here,
        local: order.and_then(|order| order.local),
        threads,
        cores: cores.map_or_else(Vec::new, |cores| cores.cpus().to_vec()),
        backend: order.map(|order| order.backend).unwrap_or_default(),
    }
}

/// Returns the authority on the configured cores; by default on the first core that the Measurer does not use,
/// otherwise on a core of the Measurer.
fn auth_dns(order: AuthorityOrder, taken: &[usize]) -> Result<AuthDns, Refusal> {
    let free = cpu::available()
        .into_iter()
        .find(|core| !taken.contains(core));
    let chosen: Vec<usize> = free.or(taken.first().copied()).into_iter().collect();
    let cores = cpus(&order.cpus).or(&chosen).cpus().to_vec();
    let rules = order.behaviour.map(|text| rules(&text)).transpose()?;
    Ok(AuthDns {
        host: Host::Here,
        listen: order.listen,
        workers: cores.len().max(1),
        cores,
        segmentation: order.segmentation,
        backend: order.backend,
        zone: order.zone.config(),
        rules: rules.map(Arc::new),
        driver: None,
    })
}

fn rules(behaviour: &str) -> Result<Rules, Refusal> {
    let behaviour = behaviour
        .parse()
        .map_err(|error: crate::quantity::ValueError| refusal(error.to_string()))?;
    Rules::new(behaviour).map_err(|error| Refusal::from(&Blame::Machine.error(error.to_string())))
}

fn state(server: &mut Server) -> State {
    State {
        ended: server.exit_status().map(|status| status.to_string()),
        log_tail: server.log_tail(),
        resources: server.resources(),
        udp_drops: server.udp_drops(),
    }
}

/// Describes the program of a server; unknown items are empty.
pub(in crate::rig) fn program(server: &Server) -> Program {
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

fn told(gathered: &Gathered) -> Done {
    let shards = gathered.shards.iter().map(shard).collect();
    let mut blobs: Vec<Vec<u8>> = gathered
        .shards
        .iter()
        .map(|shard| shard.finished.ledger.to_octets())
        .collect();
    let authority = gathered.authority.as_ref().map(|report| {
        let ledger = report.ledger.as_ref();
        blobs.push(ledger.map_or_else(Vec::new, |ledger| ledger.to_octets()));
        AuthorityGathered {
            counts: report.counts,
            receive_drops: report.receive_drops,
            send_drops: report.send_drops,
            error: report.error.clone(),
            allowed_ns: report.allowed_ns,
            ledger_start: ledger.map_or(0, |ledger| ledger.start()),
            other: ledger.map_or((0, 0), |ledger| ledger.other()),
        }
    });
    let order = GatheredOrder {
        shards,
        authority,
        usage: gathered.usage.clone(),
        clock_source: gathered.clock_source.clone(),
    };
    (Reply::Gathered(Box::new(order)), blobs)
}

fn shard(report: &ShardReport) -> ShardOrder {
    let finished = &report.finished;
    ShardOrder {
        shard: finished.schedule.shard_index(),
        shards: finished.schedule.shards(),
        start: finished.start,
        offered: finished.offered,
        emptied_until_ns: finished.emptied_until_ns,
        tally: finished.tally,
        counters: report.counters.into(),
        clock_step_ns: report.clock_step_ns,
        carrier: report.carrier,
        error: report.error.clone(),
    }
}

fn zone_of(question: &Question) -> Zone {
    Zone {
        suffix: question.suffix.clone(),
        ..Zone::default()
    }
}

fn answer(question: &Question) -> Result<Vec<u8>, NoAnswer> {
    let prober = Prober {
        way: Host::Here.into(),
        local: question.local,
        server: question.server,
        zone: zone_of(question),
    };
    let rtype = Rtype(question.rtype);
    let reply = prober.reply(question.address, rtype, question.wait_ns);
    reply.map_err(|error| match error {
        ProbeError::Refused { .. } => NoAnswer::Unreachable,
        ProbeError::Silent { .. } => NoAnswer::Silence,
        ProbeError::OtherAddress { from, .. } => NoAnswer::Foreign(from),
        ProbeError::Useless { .. } => NoAnswer::Garbage,
        other => NoAnswer::Failed(causes(&other)),
    })
}
