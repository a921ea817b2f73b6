//! Single queries before a trial: whether the server responds, from which address, and with which pref64.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use dns64_transport::clock::{Clock, MonotonicClock, Nanos};
use dns64_transport::socket::OpenError;
use dns64_transport::{Backend, Link, LinkError};
use dns64_wire::codes::{Rcode, Rtype};
use dns64_wire::message::{Message, Section};

use super::remote::host::Remote;
use super::remote::order::{NoAnswer, Question};
use crate::lab::server::Probe;
use crate::lab::{Blame, LabError};
use crate::load::query::Template;
use crate::machine::host::Host;
use crate::namespace::Zone;
use crate::trial::backend;

/// Source and destination of probes.
#[derive(Clone, Debug)]
pub struct Prober {
    /// Location of the sender.
    pub way: Way,
    /// Source address; `None` for that of the routing table.
    pub local: Option<IpAddr>,
    /// The server.
    pub server: SocketAddr,
    /// The zone of the names.
    pub zone: Zone,
}

/// Location of the sender of probes.
#[derive(Clone, Debug)]
pub enum Way {
    /// A network of this machine, over links of this kind: an authority in the driver may only answer on one kind.
    Here(Host, Backend),
    /// Another host.
    Far(Remote),
}

impl From<Host> for Way {
    fn from(host: Host) -> Self {
        Self::Here(host, Backend::Socket)
    }
}

/// Reason why a probe has no usable response.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The Measurer's host cannot be entered.
    #[error(transparent)]
    Host(#[from] LabError),
    /// A socket cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A socket call failed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// ICMP port unreachable.
    #[error("nothing listens at {server}; start the server or correct --server and --port")]
    Refused {
        /// The server.
        server: SocketAddr,
    },
    /// No response.
    #[error(
        "{server} did not answer a query for {name} within {wait_ms} ms; is it running, and does it reach its upstream?"
    )]
    Silent {
        /// The server.
        server: SocketAddr,
        /// The queried name.
        name: String,
        /// Time waited.
        wait_ms: u64,
    },
    /// The response came from another address.
    #[error(
        "the query went to {server}, but {from} answered; give that address, or bind the server to the first one"
    )]
    OtherAddress {
        /// The server.
        server: SocketAddr,
        /// Source of the response.
        from: SocketAddr,
    },
    /// An unusable response.
    #[error("{server} answered the query for {name} with {what}; {remedy}")]
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
    /// No single prefix explains the addresses.
    #[error(
        "no single prefix explains the AAAA records of {server} ({addresses}); give it with --pref64"
    )]
    NoPref64 {
        /// The server.
        server: SocketAddr,
        /// Addresses in its answers.
        addresses: String,
    },
}

impl ProbeError {
    /// Returns the part that has to be corrected.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Host(error) => error.blame,
            Self::Open(_) | Self::Link(_) => Blame::Machine,
            Self::Refused { .. }
            | Self::Silent { .. }
            | Self::OtherAddress { .. }
            | Self::Useless { .. }
            | Self::NoPref64 { .. } => Blame::Server,
        }
    }
}

/// Result of a probe that failed, for a server that is being waited for.
impl From<ProbeError> for Probe {
    fn from(error: ProbeError) -> Self {
        match error {
            // The host that sends the probe is no longer connected.
            ProbeError::Host(LabError {
                blame: Blame::Machine,
                ..
            }) => Self::Abandoned,
            error => Self::NotYet(error.to_string()),
        }
    }
}

/// ID of all probes: "64".
const PROBE_ID: u16 = 0x3634;

impl Prober {
    /// Checks whether an authority responds for the name of `address`, with or without an AAAA.
    pub fn answers(&self, address: Ipv4Addr, wait_ns: Nanos) -> Result<(), ProbeError> {
        self.records(address, wait_ns).map(drop)
    }

    /// Queries the AAAA records of the name of `address` and waits up to `wait_ns` for them; a response without any is
    /// an error.
    pub fn aaaa(&self, address: Ipv4Addr, wait_ns: Nanos) -> Result<Vec<Ipv6Addr>, ProbeError> {
        let addresses = self.records(address, wait_ns)?;
        if addresses.is_empty() {
            let (what, remedy) = ("no AAAA".into(), "check that DNS64 is on for this client");
            return Err(self.useless(address, what, remedy));
        }
        Ok(addresses)
    }

    /// Returns the response to a query of this type for the name of `address`, whatever it contains.
    pub(super) fn reply(
        &self,
        address: Ipv4Addr,
        rtype: Rtype,
        wait_ns: Nanos,
    ) -> Result<Vec<u8>, ProbeError> {
        match &self.way {
            Way::Here(host, backend) => {
                host.enter(|| self.exchange(*backend, address, rtype, wait_ns))?
            }
            Way::Far(host) => {
                let answer = host.answer(&self.question(address, rtype, wait_ns))?;
                answer.map_err(|why| self.no_answer(address, wait_ns, why))
            }
        }
    }

    /// Returns the same query as an order for another host.
    pub(super) fn question(&self, address: Ipv4Addr, rtype: Rtype, wait_ns: Nanos) -> Question {
        Question {
            local: self.local,
            server: self.server,
            suffix: self.zone.suffix.clone(),
            address,
            rtype: rtype.0,
            wait_ns,
        }
    }

    fn no_answer(&self, address: Ipv4Addr, wait_ns: Nanos, why: NoAnswer) -> ProbeError {
        let server = self.server;
        match why {
            NoAnswer::Unreachable => ProbeError::Refused { server },
            NoAnswer::Silence => self.silent(address, wait_ns),
            NoAnswer::Foreign(from) => ProbeError::OtherAddress { server, from },
            NoAnswer::Garbage => self.garbage(address),
            NoAnswer::Failed(what) => ProbeError::Host(Blame::Server.error(what)),
        }
    }

    fn silent(&self, address: Ipv4Addr, wait_ns: Nanos) -> ProbeError {
        ProbeError::Silent {
            server: self.server,
            name: self.name(address),
            wait_ms: wait_ns / 1_000_000,
        }
    }

    /// Returns the AAAA records of a NOERROR response.
    fn records(&self, address: Ipv4Addr, wait_ns: Nanos) -> Result<Vec<Ipv6Addr>, ProbeError> {
        let reply = self.reply(address, Rtype::AAAA, wait_ns)?;
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

    pub(super) fn name(&self, address: Ipv4Addr) -> String {
        let label = crate::namespace::label(address);
        format!("{}.{}", String::from_utf8_lossy(&label), self.zone.suffix)
    }

    /// Sends one query and waits for its response. Distinguishes responses from another address, unrelated datagrams
    /// and no response.
    fn exchange(
        &self,
        backend: Backend,
        asked: Ipv4Addr,
        rtype: Rtype,
        wait_ns: Nanos,
    ) -> Result<Vec<u8>, ProbeError> {
        let template = Template::of_type(&self.zone.suffix, rtype);
        let mut link = backend::client(backend, self.server, self.local)?;
        link.send(0, 1, |_, frame| template.write(PROBE_ID, asked, frame))?;
        let until = MonotonicClock.now() + wait_ns;
        let mut reply = None;
        let mut strays = 0;
        while reply.is_none() && MonotonicClock.now() < until {
            link.wait(WAIT_STEP_NS)?;
            link.receive(1, |datagram| {
                if datagram.payload.starts_with(&PROBE_ID.to_be_bytes()) {
                    reply = Some(datagram.payload.to_vec());
                } else {
                    strays += 1;
                }
            })?;
            let counters = link.counters()?;
            if let Some(from) = counters.foreign_from {
                return Err(ProbeError::OtherAddress {
                    server: self.server,
                    from,
                });
            }
            if counters.unreachable > 0 {
                return Err(ProbeError::Refused {
                    server: self.server,
                });
            }
        }
        reply.ok_or_else(|| match strays {
            0 => self.silent(asked, wait_ns),
            _ => self.garbage(asked),
        })
    }
}

/// Maximum wait between two checks for the response.
const WAIT_STEP_NS: Nanos = 5_000_000;
