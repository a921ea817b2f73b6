//! The subject and the trials of a measurement, as plain data: the description from which a rig is built. The command
//! line, plans and the demo create it; nothing in it has been looked up yet.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use dns64_transport::Backend;
use dns64_transport::clock::{Nanos, SECOND};
use dns64_transport::socket::Segmentation;
use dns64_transport::xdp::program::Mode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::authority::answer::TTL_DEFAULT_S;
use crate::authority::behaviour::Behaviour;
use crate::authority::zone::ZoneConfig;
use crate::lab::hosts::{Hosts, Site};
use crate::lab::profile::Family;
use crate::lab::topology::{SELF_TEST_LINK, Setup, UPSTREAM_LINK};
use crate::lab::zone::ZoneFile;
use crate::lab::{Blame, LabError, LabKind};
use crate::load::catch_up::Limits;
use crate::load::names::{Begin, NameSource, Names};
use crate::load::pace::{BURST_MAX, Pacing, Schedule};
use crate::load::query::QueryForm;
use crate::load::sources::Sources;
use crate::load::transport::{Protocol, Transport};
use crate::machine::Role;
use crate::machine::cpuset::CpuSet;
use crate::namespace::{Cidr, DEFAULT_NAMESPACE, Pattern, Prefixes, Share, Zone};
use crate::naming::{LAB, Message, SETUP};
use crate::trial::TrialSpec;
use crate::trial::in_driver::Interception;

/// A measurement: its subject and its trials.
#[derive(Clone, Debug)]
pub struct RigSpec {
    /// The server and its surroundings.
    pub subject: Subject,
    /// The trials.
    pub load: Load,
}

/// Origin of the server under test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// It already runs.
    Server {
        /// Its address and port.
        server: SocketAddr,
        /// An authority in self-test mode, for the certificate of the Tester.
        self_test_server: Option<SocketAddr>,
    },
    /// It is started in a lab.
    Lab(Box<LabSpec>),
}

impl Subject {
    /// Returns the lab, if there is one.
    pub fn lab(&self) -> Option<&LabSpec> {
        match self {
            Self::Server { .. } => None,
            Self::Lab(lab) => Some(lab),
        }
    }

    /// Returns the hosts to connect to, if it is not started on this machine.
    pub fn hosts(&self) -> Option<&Hosts> {
        self.lab()?.at.as_deref()
    }

    /// Returns the server, if it already runs.
    pub fn server(&self) -> Option<SocketAddr> {
        match self {
            Self::Server { server, .. } => Some(*server),
            Self::Lab(_) => None,
        }
    }

    /// Returns the same subject in a lab of a kind that this machine allows.
    #[must_use]
    pub fn on(mut self, kind: LabKind) -> Self {
        if let (Self::Lab(lab), LabKind::Loopback) = (&mut self, kind) {
            lab.setup = Setup::Loopback;
        }
        self
    }

    /// Returns the roles and addresses, if the roles run on several hosts. DUT and authority are connected by
    /// `upstream`. If that is unknown, by IPv4, or else by IPv6; only their addresses and interfaces depend on it.
    pub fn site(&self, upstream: Option<Family>) -> Option<Site> {
        let (hosts, lab) = (self.hosts()?, self.lab()?);
        let families = match lab.upstream.or(upstream) {
            Some(family) => vec![family],
            None => vec![Family::Ipv4, Family::Ipv6],
        };
        let dut = lab.dut_host();
        families
            .into_iter()
            .find_map(|family| hosts.site(dut, family).ok())
    }

    /// Returns the DUT to start, if there is one.
    pub fn dut(&self) -> Option<&DutChoice> {
        self.lab()?.dut.as_ref()
    }

    /// Returns whether an authoritative server is measured alone, by the self-test (Lencse, Pivoda and Shima 2021).
    pub fn is_authority(&self) -> bool {
        self.lab().is_some_and(|lab| lab.dut.is_none())
    }
}

/// A lab and the servers in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabSpec {
    /// Hosts of a laboratory with several machines; `None` for a lab on this machine.
    pub at: Option<Arc<Hosts>>,
    /// Hosts and links of a lab on this machine.
    pub setup: Setup,
    /// The DUT; `None` for a self-test alone.
    pub dut: Option<DutChoice>,
    /// IP version between DUT and authority; `None` for that which the DUT needs, or IPv4.
    pub upstream: Option<Family>,
    /// The authoritative server.
    pub authority: AuthorityChoice,
    /// Cores of the authority; unrestricted to have them chosen.
    pub authority_cpus: CpuSet,
    /// Injected faults behind a DUT; none in self-tests. Only for the built-in authority.
    pub behaviour: Behaviour,
}

impl LabSpec {
    /// Explains why trials in this lab are not those of RFC 8219, if they are not.
    pub fn flaws(&self) -> impl Iterator<Item = String> {
        let faults = Some(&self.behaviour).filter(|behaviour| !behaviour.is_none());
        let faults = faults.map(|faults| {
            format!("the authority injects faults ({faults}), which RFC 8219 does not provide for")
        });
        let is_shared = self.setup == Setup::Loopback && self.at.is_none();
        let shared = "all roles share the loopback interface of this machine";
        faults
            .into_iter()
            .chain(is_shared.then(|| shared.to_owned()))
    }

    /// Refuses an authority in the driver if its queries come over more than one link.
    ///
    /// # Errors
    ///
    /// The lab does not have three devices on this machine.
    pub fn check_driver(&self) -> Result<(), LabError> {
        let is_link = self.setup == Setup::ThreeDevice && self.at.is_none();
        match self.authority.driver_mode() {
            Some(_) if !is_link => Err(Blame::Request.error(Message::new(|naming| {
                let (setup, lab) = (naming.value(SETUP, "three-device"), naming.value(LAB, "netns"));
                format!(
                    "an authority in the driver needs a three-device lab on this machine: with two devices or on \
                     the loopback interface, self-tests do not cross its link, and other hosts are not supported; \
                     use {setup} and {lab}, or the built-in authority"
                )
            }))),
            _ => Ok(()),
        }
    }

    /// Returns where the authority answers in the driver, if it does: at the link to the DUT, or to a Measurer with this
    /// backend in a self-test.
    pub fn interception(&self, self_test: bool, measurer: Backend) -> Option<Interception> {
        let (far, link) = match self_test {
            true => (Role::Measurer, SELF_TEST_LINK),
            false => (Role::Dut, UPSTREAM_LINK),
        };
        // AF_XDP has a program of its own there.
        let has_program = self_test && measurer != Backend::Socket;
        Some(Interception {
            mode: self.authority.driver_mode()?,
            interface: link.to_owned(),
            force: false,
            far: (!has_program).then(|| (self.setup.network(far), link.to_owned())),
        })
    }

    /// Returns the host of the DUT, if there is one; by default the first DUT host of the plan.
    pub fn dut_host(&self) -> Option<&str> {
        let dut = self.dut.as_ref()?;
        let first = || Some(self.at.as_ref()?.duts().first()?.name.as_str());
        dut.host.as_deref().or_else(first)
    }
}

/// The server under test.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DutChoice {
    /// Name of a built-in profile, or path of a file.
    pub profile: String,
    /// Name of its host; `None` in a lab on this machine.
    pub host: Option<String>,
    /// Path of its program, if it is not looked up.
    pub program: Option<PathBuf>,
    /// Values of settings of the profile; the others have their defaults.
    pub settings: BTreeMap<String, String>,
    /// Restart it before every trial (Lencse, Georgescu and Kadobayashi 2017, section 6.3).
    pub restart: bool,
    /// Its cores; unrestricted for those that the Tester does not use.
    pub cpus: CpuSet,
}

/// The authority.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AuthorityChoice {
    /// The built-in one.
    #[default]
    BuiltIn,
    /// The built-in one, which answers common queries in the driver of its link; behind the driver with
    /// [`Mode::Generic`].
    InDriver(Mode),
    /// A server that is started with a zone file of the namespace.
    Profile {
        /// Name of a built-in profile, or path of a file.
        profile: String,
        /// Values of settings of the profile; the others have their defaults.
        settings: BTreeMap<String, String>,
    },
}

impl AuthorityChoice {
    /// Returns whether it is a separate program, with a zone file.
    pub fn is_program(&self) -> bool {
        self.profile().is_some()
    }

    /// Returns the name of its profile, if it is a separate program.
    pub fn profile(&self) -> Option<&str> {
        match self {
            Self::BuiltIn | Self::InDriver(_) => None,
            Self::Profile { profile, .. } => Some(profile),
        }
    }

    /// Returns how it answers in the driver, if it does.
    pub fn driver_mode(&self) -> Option<Mode> {
        match self {
            Self::InDriver(mode) => Some(*mode),
            Self::BuiltIn | Self::Profile { .. } => None,
        }
    }

    /// Returns the remark for readers of a result.
    pub fn remark(&self) -> Option<String> {
        let mode = self.driver_mode()?;
        Some(format!(
            "the authority answers A and AAAA queries with an XDP program ({mode}) at its link: datagrams on \
             that link are single, the CPU of the host that sends a query runs the program, and the authority records no times"
        ))
    }
}

impl FromStr for AuthorityChoice {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            BUILT_IN => Self::BuiltIn,
            IN_DRIVER => Self::InDriver(Mode::Native),
            BEHIND_DRIVER => Self::InDriver(Mode::Generic),
            profile => Self::Profile {
                profile: profile.to_owned(),
                settings: BTreeMap::new(),
            },
        })
    }
}

impl fmt::Display for AuthorityChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BuiltIn => BUILT_IN,
            Self::InDriver(Mode::Generic) => BEHIND_DRIVER,
            Self::InDriver(_) => IN_DRIVER,
            Self::Profile { profile, .. } => profile,
        })
    }
}

const BUILT_IN: &str = "built-in";
const IN_DRIVER: &str = "in-driver";
const BEHIND_DRIVER: &str = "in-driver:generic";

/// Parameters that all trials of a measurement share.
#[derive(Clone, Debug)]
pub struct Load {
    /// Transport of the queries, also in self-tests.
    pub transport: Transport,
    /// Pacing of the queries; self-tests that certify the Tester are always absolute.
    pub pacing: Pacing,
    /// Length of a trial.
    pub duration_ns: Nanos,
    /// Maximum time from a query to a response that counts.
    pub timeout_ns: Nanos,
    /// Range of names.
    pub cidr: Cidr,
    /// First name in this range, and the part of it to use.
    pub begin: Begin,
    /// Zone of the names.
    pub zone: Zone,
    /// TTL of the records of a built-in authority, and of its negative answers, in seconds.
    pub ttl_s: u32,
    /// Share of the queries for repeated names.
    pub cached_share: Share,
    /// Pattern of the repeated names.
    pub pattern: Pattern,
    /// Form of the queries.
    pub form: QueryForm,
    /// Prefixes of the expected answers; `None` to detect them (of a running server) or to choose one (in a lab).
    pub pref64: Option<Prefixes>,
    /// Threads of the Measurer; at least 1.
    pub threads: usize,
    /// Cores of these threads; unrestricted to have them chosen.
    pub cpus: CpuSet,
    /// Source ports of all threads together, at least one per thread; `None` for a number that depends on the rate and
    /// the source addresses.
    pub ports: Option<usize>,
    /// Source addresses of the Measurer, which several Measurers divide among them; `None` leaves it to the routing table. A
    /// lab makes them its own.
    pub local: Option<Sources>,
    /// Segmentation of the datagrams of the Measurer and of the built-in authority; off in self-tests, because a DUT
    /// sends its queries one by one.
    pub segmentation: Segmentation,
    /// Backend of the Measurer and of the built-in authority; `None` for AF_XDP in a lab on this machine that allows it,
    /// and sockets elsewhere.
    pub backend: Option<Backend>,
    /// Maximum number of queries per system call, if more are due within the quantum.
    pub burst_max: u64,
    /// Whether a trial ends as soon as its failure is certain.
    pub stop_early: bool,
    /// Limits of disturbances of the Tester.
    pub limits: Limits,
}

impl Default for Load {
    /// Returns the parameters of RFC 8219 section 9.2: trials of 60 s, a timeout of 1 s, different names without an
    /// AAAA.
    fn default() -> Self {
        Self {
            transport: Transport::default(),
            pacing: Pacing::default(),
            duration_ns: 60 * SECOND,
            timeout_ns: SECOND,
            cidr: DEFAULT_NAMESPACE,
            begin: Begin::default(),
            zone: Zone::default(),
            ttl_s: TTL_DEFAULT_S,
            cached_share: Share::NONE,
            pattern: Pattern::default(),
            form: QueryForm::default(),
            pref64: None,
            threads: 1,
            cpus: CpuSet::unrestricted(),
            ports: None,
            local: None,
            segmentation: Segmentation::On,
            backend: None,
            burst_max: BURST_MAX,
            stop_early: false,
            limits: Limits::default(),
        }
    }
}

impl Load {
    /// Returns the names of the trials, from their first one.
    ///
    /// # Errors
    ///
    /// The pattern needs more names than the range has.
    pub fn names(&self) -> Result<NameSource, LabError> {
        let zone = self.zone.clone();
        let source = NameSource::new(self.cidr, zone, self.cached_share, self.pattern);
        let source = source.map_err(|error| Blame::Request.error(error))?;
        Ok(source.in_form(self.form).begun_at(self.begin))
    }

    /// Explains why trials with this load are not those of RFC 8219, if they are not.
    pub fn flaws(&self) -> impl Iterator<Item = String> {
        let pacing = self.pacing.flaw().map(str::to_owned);
        let protocol = Some(self.transport.protocol).filter(|it| *it != Protocol::Udp);
        let protocol = protocol.map(|it| {
            format!("queries are sent over {it}, and RFC 8219 section 5.3 recommends UDP")
        });
        let of_load = pacing.into_iter().chain(protocol);
        of_load.chain(self.form.flaws().chain(self.zone.records.flaw()))
    }

    /// Returns the due times of the queries of a trial. The self-correcting timer sends them one by one.
    pub fn schedule(&self, rate_qps: u64) -> Schedule {
        let schedule = Schedule::new(rate_qps, self.duration_ns);
        match self.pacing {
            Pacing::Absolute => {
                let burst = schedule.burst().min(self.burst_max);
                schedule.with_burst(self.transport.burst(burst))
            }
            Pacing::SelfCorrecting => schedule.with_burst(1),
        }
    }

    /// Returns a trial with this [`schedule`](Self::schedule).
    pub fn trial(&self, server: SocketAddr, schedule: Schedule, names: Names) -> TrialSpec {
        TrialSpec {
            server,
            transport: self.transport,
            schedule,
            pacing: self.pacing,
            timeout_ns: self.timeout_ns,
            names,
            ports: self.ports,
            segmentation: self.segmentation,
            stop_early: self.stop_early,
            limits: self.limits,
        }
    }

    /// Returns the zone of any authority. With `self_test` every name has an AAAA.
    pub fn zone_config(&self, self_test: bool) -> ZoneConfig {
        ZoneConfig {
            zone: self.zone.clone(),
            self_test,
            ttl_s: self.ttl_s,
            negative_ttl_s: self.ttl_s,
        }
    }

    /// Returns the zone file of an authority that is a separate program.
    pub fn zone_file(&self, self_test: bool) -> ZoneFile {
        ZoneFile {
            cidr: self.cidr,
            config: self.zone_config(self_test),
        }
    }

    /// Returns the suffix of the names in the form of server configurations, without its final dot.
    pub fn suffix(&self) -> String {
        let suffix = self.zone.suffix.to_string();
        suffix.trim_end_matches('.').to_owned()
    }
}

/// Path of the queries of a self-test.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum SelfTestPath {
    /// To an authority that may not be that of the DUT.
    #[default]
    TesterAlone,
    /// Both links of the measurement, through the host of the DUT.
    BothLinks,
    /// A link of its own.
    DirectLink,
    /// The loopback interface of the host of Measurer and authority.
    TesterLoopback,
    /// The loopback interface of the machine of all roles.
    Loopback,
}

impl fmt::Display for SelfTestPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TesterAlone => {
                "the Tester alone: nothing shows that the DUT asks this authority, or over which links"
            }
            Self::BothLinks => {
                "the Measurer, the client link, the upstream link and the authority; the DUT's host forwards"
            }
            Self::DirectLink => {
                "the Measurer, a link between Measurer and authority, and the authority: neither the client link nor \
                 the upstream link"
            }
            Self::TesterLoopback => {
                "the Measurer and the authority, over the loopback interface of their host: neither the client link \
                 nor the upstream link"
            }
            Self::Loopback => "the Measurer and the authority, over the loopback interface",
        })
    }
}
