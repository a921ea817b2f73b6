//! Servers that were started for a measurement: on this machine, or on other hosts.

use std::net::Ipv4Addr;

use dns64_transport::Backend;
use dns64_transport::clock::{Nanos, SECOND};
use dns64_wire::codes::Rtype;

use super::equipment::{PROBE_NS, StartedServer};
use super::pulses::Pulses;
use crate::lab::profile::ProfileRole;
use crate::lab::server::{Probe, STARTS_MAX, ServerSpec, Start, start_limit_ns};
use crate::lab::{Blame, LabError};
use crate::load::transport::Protocol;
use crate::machine::Role;
use crate::machine::process::wait_until;
use crate::namespace::Zone;
use crate::post::host::{Host, PROMPT_NS};
use crate::post::probe::{ProbeError, Prober};
use crate::post::{Program, Request, ServerState};
use crate::quantity::Span;

/// Servers of one profile, one on each of these hosts; at least one. They act as one server when they are started,
/// checked or observed.
#[derive(Debug)]
pub struct Servers(Vec<HostedServer>);

/// A server on a host. Dropping it stops it.
#[derive(Debug)]
pub struct HostedServer {
    host: Host,
    role: Role,
    spec: ServerSpec,
    /// Number of silent starts before the current one.
    silent_starts: u32,
    /// The last start, until it is taken.
    start: Option<Start>,
}

/// Timeout of a launch on another host: stopping a server takes some seconds, and writing the zone file of another
/// takes minutes.
const LAUNCH_NS: Nanos = 900 * SECOND;

impl HostedServer {
    /// Writes the configuration, starts the server and returns once `probe` is answered. A server that runs but does
    /// not answer is restarted, at most [`STARTS_MAX`] starts in total.
    ///
    /// On this machine it is killed when the calling thread ends (see
    /// [`Network::command`](crate::machine::network::Network::command)).
    ///
    /// # Errors
    ///
    /// The program is missing, the address is in use, or the server ended or did not answer: the error has its exit
    /// status and its last log lines.
    pub fn start(
        host: Host,
        spec: ServerSpec,
        probe: impl FnMut() -> Probe,
    ) -> Result<Self, LabError> {
        let role = match spec.profile.role {
            ProfileRole::Dut => Role::Dut,
            ProfileRole::Authority => Role::Authority,
        };
        let mut server = Self {
            host,
            role,
            spec,
            silent_starts: 0,
            start: None,
        };
        let launch = Request::Launch(role, Box::new(server.spec.clone()));
        server.host.ask(launch, LAUNCH_NS)?;
        server.wait_ready(probe)?;
        Ok(server)
    }

    /// Stops it and starts it again with empty caches.
    ///
    /// # Errors
    ///
    /// Those of [`Self::start`]; the server is stopped then.
    pub fn restart(&mut self, probe: impl FnMut() -> Probe) -> Result<(), LabError> {
        self.relaunch()?;
        self.wait_ready(probe)
    }

    fn relaunch(&self) -> Result<(), LabError> {
        let relaunch = Request::Relaunch(self.role);
        self.host.ask(relaunch, LAUNCH_NS).map(drop)
    }

    /// Waits until a launched server answers the probe.
    fn wait_ready(&mut self, mut probe: impl FnMut() -> Probe) -> Result<(), LabError> {
        let (name, limit_ns) = (&self.spec.profile.name, start_limit_ns(&self.spec));
        let mut starts = 0;
        loop {
            starts += 1;
            let mut last = Probe::NotYet("not asked".to_owned());
            wait_until(limit_ns, || {
                last = probe();
                let waits = matches!(last, Probe::NotYet(_) | Probe::NotAsked(_));
                !waits || !matches!(self.state(), Ok(ServerState { ended: None, .. }))
            });
            // Another program may have answered at its address: the server must run as well.
            let ServerState {
                ended, log_tail, ..
            } = self.state()?;
            if let Some(status) = ended {
                return Err(Blame::Server.error(format!(
                    "{name} ended before it answered ({status}); last log lines:\n{log_tail}"
                )));
            }
            let last = match last {
                Probe::Answered => return self.answered(starts - 1),
                Probe::NotYet(why) | Probe::FellSilent(why) => why,
                Probe::NotAsked(why) | Probe::Abandoned(why) => {
                    return Err(Blame::Machine.error(format!("cannot query {name}: {why}")));
                }
            };
            if starts == STARTS_MAX {
                let limit = Span(limit_ns);
                return Err(Blame::Server.error(format!(
                    "{name} did not answer within {limit} in {STARTS_MAX} starts (last: {last}); last log lines:\n{log_tail}"
                )));
            }
            self.relaunch()?;
        }
    }

    fn answered(&mut self, silent_starts: u32) -> Result<(), LabError> {
        self.silent_starts = silent_starts;
        let ready = Request::Ready(self.role);
        self.start = Some(self.host.get(ready, PROMPT_NS)?);
        Ok(())
    }

    /// Returns its state.
    ///
    /// # Errors
    ///
    /// Its host does not answer.
    pub fn state(&self) -> Result<ServerState, LabError> {
        let state = Request::State(self.role);
        self.host.get(state, PROMPT_NS)
    }

    /// Returns its program; unknown items are empty.
    pub fn program(&self) -> Program {
        let program = Request::Program(self.role);
        let program: Result<Box<Program>, _> = self.host.get(program, PROMPT_NS);
        *program.unwrap_or_default()
    }

    /// Returns a prober on its own host, so that queries cross no link.
    fn prober(&self, zone: &Zone) -> Prober {
        let settings = &self.spec.settings;
        Prober {
            host: self.host.clone(),
            network: self.spec.network.clone(),
            backend: Backend::Socket,
            protocol: Protocol::Udp,
            local: None,
            server: (settings.listen, settings.port).into(),
            zone: zone.clone(),
        }
    }

    /// Returns a probe that checks from its own host whether an authority has loaded its zone.
    fn own_probe(&self) -> Option<impl Fn() -> Probe + use<>> {
        let zone = self.spec.zone.as_ref()?;
        let (last, prober) = (zone.cidr.last(), self.prober(&zone.config.zone));
        Some(move || prober.answers(last, PROBE_NS).into())
    }
}

impl Drop for HostedServer {
    fn drop(&mut self) {
        // A destructor cannot report errors; the end of the connection stops it too.
        let _ = self.host.ask(Request::Stop(self.role), PROMPT_NS);
    }
}

impl Servers {
    /// Creates them; `None` without a server.
    pub(super) fn new(servers: Vec<HostedServer>) -> Option<Self> {
        (!servers.is_empty()).then_some(Self(servers))
    }

    /// Returns their program. A value that differs between hosts is listed with its host. So are the files, which
    /// contain the addresses of their hosts.
    pub fn program(&self) -> Program {
        let each = self.0.iter().map(|it| (it.host.name(), it.program()));
        united(each.collect())
    }

    /// Returns the text of their profile.
    pub fn profile_text(&self) -> &str {
        self.0[0].spec.profile.text()
    }

    /// Returns a text of a server, with its host if there are several.
    fn named(&self, server: &HostedServer, text: String) -> String {
        match self.0.len() {
            1 => text,
            _ => format!("on host {}: {text}", server.host.name()),
        }
    }
}

impl StartedServer for Servers {
    fn restart(&mut self, ready: &mut dyn FnMut() -> Probe) -> Result<(), LabError> {
        let is_one = self.0.len() == 1;
        self.0.iter_mut().try_for_each(|server| {
            // `ready` queries only one of several servers, so each is also probed from its own host.
            let own = Some(&*server).filter(|_| !is_one);
            let own = own.and_then(HostedServer::own_probe);
            server.restart(|| match (ready(), &own) {
                (Probe::Answered, Some(probe)) => probe(),
                (answered, _) => answered,
            })
        })
    }

    fn ended(&self) -> Option<String> {
        self.state().ended
    }

    fn state(&self) -> ServerState {
        let each = self.0.iter().map(|it| {
            let state = it.state().unwrap_or_else(|error| ServerState {
                ended: Some(error.to_string()),
                log_tail: error.to_string(),
                ..ServerState::default()
            });
            ServerState {
                ended: state.ended.map(|status| self.named(it, status)),
                log_tail: self.named(it, state.log_tail),
                ..state
            }
        });
        each.reduce(ServerState::with).unwrap_or_default()
    }

    fn take_silent_starts(&mut self) -> u32 {
        let silent = |it: &mut HostedServer| std::mem::take(&mut it.silent_starts);
        self.0.iter_mut().map(silent).sum()
    }

    fn take_start(&mut self) -> Option<Start> {
        let each = self.0.iter_mut().filter_map(|it| it.start.take());
        each.reduce(Start::with)
    }

    fn pulse(
        &self,
        zone: &Zone,
        name: Ipv4Addr,
        timeout_ns: Nanos,
    ) -> Option<Result<Pulses, ProbeError>> {
        let mut pulses = Pulses::default();
        for server in &self.0 {
            let question = server.prober(zone).question(name, Rtype::AAAA, timeout_ns);
            let core = server.spec.settings.cpus.cpus().first().copied();
            if let Err(error) = server.host.ask(Request::Pulse(question, core), PROMPT_NS) {
                return Some(Err(error.into()));
            }
            pulses.add(server.host.clone());
        }
        Some(Ok(pulses))
    }
}

/// Combines the programs of servers of one profile on these hosts.
fn united(each: Vec<(&str, Program)>) -> Program {
    let same_or_named = |of: fn(&Program) -> Option<&String>| {
        let all: Vec<_> = each.iter().map(|(host, it)| (host, of(it))).collect();
        let (_, first) = all.first()?;
        if all.iter().all(|(_, it)| it == first) {
            return first.cloned();
        }
        let named = all.iter().map(|(host, it)| {
            let it = it.map_or("unknown", String::as_str);
            format!("{it} on {host}")
        });
        Some(named.collect::<Vec<_>>().join(", "))
    };
    let version = same_or_named(|it| it.version.as_ref());
    let sha256 = same_or_named(|it| it.sha256.as_ref());
    let cores = same_or_named(|it| it.cores.as_ref());
    let is_one = each.len() == 1;
    let mut files = std::collections::BTreeMap::new();
    for (host, program) in &each {
        let named = program.files.iter().map(|(name, text)| match is_one {
            true => (name.clone(), text.clone()),
            false => (format!("{name} on {host}"), text.clone()),
        });
        files.extend(named);
    }
    let first = each.into_iter().next().map(|(_, program)| program);
    Program {
        version,
        sha256,
        cores,
        files,
        ..first.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
