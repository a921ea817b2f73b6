//! Single queries before a trial: whether the server responds, from which address, and with which pref64.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use dns64_transport::Backend;
use dns64_transport::address::Shown;
use dns64_transport::clock::Nanos;
use dns64_wire::codes::{Rcode, Rtype};
use dns64_wire::message::{Message, Section};

use super::host::Host;
use super::{HostQuery, NoAnswer};
use crate::lab::server::Probe;
use crate::lab::{Blame, LabError};
use crate::load::transport::Protocol;
use crate::machine::network::Network;
use crate::namespace::{AskedName, Zone};

/// Source and destination of probes.
#[derive(Clone, Debug)]
pub struct Prober {
    /// Host of the sender.
    pub host: Host,
    /// Network of the sender there.
    pub network: Network,
    /// Kind of its links.
    pub backend: Backend,
    /// Transport of its queries.
    pub protocol: Protocol,
    /// Source address; `None` for that of the routing table.
    pub local: Option<IpAddr>,
    /// The server.
    pub server: SocketAddr,
    /// The zone of the names.
    pub zone: Zone,
}

/// Reason why a probe has no usable response.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The Measurer's host does not answer, or the server refuses the connection, ends it, or answers from another address.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A socket cannot be opened, or a call of it failed.
    #[error("{0}")]
    NotSent(String),
    /// No response: which query got none.
    #[error("{0}; is it running, does it reach its upstream, or does it limit our rate?")]
    Silent(String),
    /// An unusable response.
    #[error("{} answered the query for {name} with {what}; {remedy}", Shown(*.server))]
    Useless {
        /// The server.
        server: SocketAddr,
        /// The queried name.
        name: String,
        /// The response.
        what: String,
        /// The remedy.
        remedy: &'static str,
    },
}

impl ProbeError {
    /// Returns the part that has to be corrected.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Lab(error) => error.blame,
            Self::NotSent(_) => Blame::Machine,
            Self::Silent(_) | Self::Useless { .. } => Blame::Server,
        }
    }
}

/// Result of a probe that failed, for a server that is being waited for.
impl From<ProbeError> for Probe {
    fn from(error: ProbeError) -> Self {
        match error {
            // The host that sends the probe is no longer connected.
            ProbeError::Lab(
                error @ LabError {
                    blame: Blame::Machine,
                    ..
                },
            ) => Self::Abandoned(error.to_string()),
            error if error.blame() == Blame::Machine => Self::NotAsked(error.to_string()),
            error => Self::NotYet(error.to_string()),
        }
    }
}

impl From<Result<(), ProbeError>> for Probe {
    fn from(answer: Result<(), ProbeError>) -> Self {
        answer.map_or_else(Self::from, |()| Self::Answered)
    }
}

impl Prober {
    /// Queries a server from this machine, over ordinary sockets.
    pub fn here(server: SocketAddr, zone: Zone) -> Self {
        Self {
            host: Host::here(&Arc::default()),
            network: Network::Own,
            backend: Backend::Socket,
            protocol: Protocol::Udp,
            local: None,
            server,
            zone,
        }
    }

    /// Checks whether an authority responds for the name of `address`, with or without an AAAA.
    pub fn answers(&self, address: Ipv4Addr, wait_ns: Nanos) -> Result<(), ProbeError> {
        self.responds(AskedName::aaaa(address), wait_ns)
    }

    /// Checks whether the server responds to a question, with or without records.
    pub fn responds(&self, asked: AskedName, wait_ns: Nanos) -> Result<(), ProbeError> {
        self.records(asked, wait_ns).map(drop)
    }

    /// Queries the AAAA records of the name of `address` and waits up to `wait_ns` for them; a response without any is
    /// an error.
    pub fn aaaa(&self, address: Ipv4Addr, wait_ns: Nanos) -> Result<Vec<Ipv6Addr>, ProbeError> {
        let addresses = self.records(AskedName::aaaa(address), wait_ns)?;
        if addresses.is_empty() {
            let (what, remedy) = ("no AAAA".into(), "check that DNS64 is on for this client");
            return Err(self.useless(address, what, remedy));
        }
        Ok(addresses)
    }

    /// Returns the response to a query of this type for the name of `address`, whatever it contains.
    pub(crate) fn reply(
        &self,
        address: Ipv4Addr,
        rtype: Rtype,
        wait_ns: Nanos,
    ) -> Result<Vec<u8>, ProbeError> {
        let answer = self.host.answer(self.question(address, rtype, wait_ns))?;
        answer.map_err(|why| self.no_answer(address, wait_ns, why))
    }

    /// Returns the same query as a request.
    pub(crate) fn question(&self, address: Ipv4Addr, rtype: Rtype, wait_ns: Nanos) -> HostQuery {
        HostQuery {
            network: self.network.clone(),
            backend: self.backend,
            protocol: self.protocol,
            local: self.local,
            server: self.server,
            suffix: self.zone.suffix.clone(),
            address,
            rtype: rtype.0,
            wait_ns,
        }
    }

    fn no_answer(&self, address: Ipv4Addr, wait_ns: Nanos, why: NoAnswer) -> ProbeError {
        let server = Shown(self.server);
        let seen = match self.host.link() {
            Some(_) => format!(", as seen from {},", self.host.name()),
            None => String::new(),
        };
        let what = match why {
            NoAnswer::Unreachable => {
                format!(
                    "nothing listens at {server}{seen}; start the server or correct --server and --port"
                )
            }
            NoAnswer::Silence => {
                let (name, wait_ms) = (self.name(address), wait_ns / 1_000_000);
                return ProbeError::Silent(format!(
                    "{server}{seen} did not answer a query for {name} within {wait_ms} ms"
                ));
            }
            NoAnswer::WithoutTls => format!(
                "{server}{seen} accepted a connection, but no TLS session on it; give the port of DNS over TLS, usually 853, \
                 or --transport tcp"
            ),
            NoAnswer::Ended => format!(
                "{server}{seen} ended the connection without a response; is it a DNS server, does it allow this client, and is \
                 --transport right?"
            ),
            NoAnswer::Foreign(from) => format!(
                "the query went to {server}, but {} answered; give that address, or bind the server to the first one",
                Shown(from)
            ),
            NoAnswer::Garbage => return self.garbage(address),
            NoAnswer::Failed(what) => return ProbeError::NotSent(what),
        };
        Blame::Server.error(what).into()
    }

    /// Returns the AAAA records of a NOERROR response.
    fn records(&self, asked: AskedName, wait_ns: Nanos) -> Result<Vec<Ipv6Addr>, ProbeError> {
        let AskedName { address, rtype } = asked;
        let reply = self.reply(address, rtype, wait_ns)?;
        let garbage = || self.garbage(address);
        let message = Message::parse(&reply).map_err(|_| garbage())?;
        if message.tc() {
            let remedy = "it must answer over UDP; check what limits the size of its answers";
            return Err(self.useless(address, "a truncated answer".into(), remedy));
        }
        if message.rcode() != Rcode::NOERROR {
            let remedy =
                "check that it forwards the zone to the authority, and that the authority runs";
            return Err(self.useless(address, message.rcode().to_string(), remedy));
        }
        let mut addresses = Vec::new();
        for record in message.records() {
            let record = record.map_err(|_| garbage())?;
            if record.section == Section::Answer && record.rtype == Rtype::AAAA {
                addresses.extend(record.aaaa());
            }
        }
        Ok(addresses)
    }

    fn garbage(&self, address: Ipv4Addr) -> ProbeError {
        self.useless(address, "garbage".into(), "a DNS server must listen there")
    }

    fn useless(&self, address: Ipv4Addr, what: String, remedy: &'static str) -> ProbeError {
        ProbeError::Useless {
            server: self.server,
            name: self.name(address),
            what,
            remedy,
        }
    }

    pub(crate) fn name(&self, address: Ipv4Addr) -> String {
        self.zone.name(address)
    }
}
