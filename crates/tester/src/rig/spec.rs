//! What is measured and how, as plain data: the one description from which a rig is built. The
//! command line, plans and the demo make it; nothing in it has been looked up yet.

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
use dns64_wire::pref64::Pref64;

use crate::authority::answer::{NEGATIVE_TTL_DEFAULT_S, TTL_DEFAULT_S};
use crate::authority::behaviour::Behaviour;
use crate::authority::zone::ZoneConfig;
use crate::lab::cpuset::CpuSet;
use crate::lab::hosts::{Hosts, Site};
use crate::lab::profile::Family;
use crate::lab::topology::{Role, Setup, UPSTREAM_LINK};
use crate::lab::zone::{Form, ZoneFile};
use crate::lab::{Blame, LabError, LabKind};
use crate::load::catch_up::Limits;
use crate::load::names::{Begin, NameSource, Names};
use crate::load::pace::{BURST_MAX, Pacing, Schedule};
use crate::load::sources::Sources;
use crate::namespace::{Cidr, DEFAULT_NAMESPACE, Pattern, Share, Zone};
use crate::quantity::ValueError;
use crate::trial::TrialSpec;
use crate::trial::in_driver::Interception;

/// A measurement: of what, and by which trials.
#[derive(Clone, Debug)]
pub struct RigSpec {
    /// The server and its surroundings.
    pub subject: Subject,
    /// The trials.
    pub load: Load,
}

/// Where the server under test comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// It runs already.
    Server {
        /// Its address and port.
        server: SocketAddr,
        /// Source addresses of the Measurer; `None` leaves it to the routing table.
        local: Option<Sources>,
        /// An authority in self-test mode, to certify the Tester against.
        self_test_server: Option<SocketAddr>,
    },
    /// It is started in a lab.
    Lab(Box<LabSpec>),
}

impl Subject {
    /// The source addresses that were given.
    pub fn local(&self) -> Option<Sources> {
        match self {
            Self::Server { local, .. } => *local,
            Self::Lab(_) => None,
        }
    }

    /// The lab, if there is one.
    pub fn lab(&self) -> Option<&LabSpec> {
        match self {
            Self::Server { .. } => None,
            Self::Lab(lab) => Some(lab),
        }
    }

    /// The hosts that are reached, where it is not started on this one.
    pub fn hosts(&self) -> Option<&Hosts> {
        self.lab()?.at.as_deref()
    }

    /// The server, if it runs already.
    pub fn server(&self) -> Option<SocketAddr> {
        match self {
            Self::Server { server, .. } => Some(*server),
            Self::Lab(_) => None,
        }
    }

    /// The same in a lab of a kind that this machine allows.
    #[must_use]
    pub fn on(mut self, kind: LabKind) -> Self {
        if let (Self::Lab(lab), LabKind::Loopback) = (&mut self, kind) {
            lab.setup = Setup::Loopback;
        }
        self
    }

    /// Who asks whom, where its roles run on several hosts. DUT and authority are connected by `upstream`; where that is
    /// not known, by IPv4 or else by IPv6, of which nothing depends but their addresses and interfaces.
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

    /// The DUT that is started, if one is.
    pub fn dut(&self) -> Option<&DutChoice> {
        self.lab()?.dut.as_ref()
    }

    /// Whether an authoritative server is measured by itself, by the self-test (Lencse, Pivoda and
    /// Shima 2021).
    pub fn is_authority(&self) -> bool {
        self.lab().is_some_and(|lab| lab.dut.is_none())
    }
}

/// A lab and the servers in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabSpec {
    /// The hosts of a laboratory of several machines; `None` for one on this machine.
    pub at: Option<Arc<Hosts>>,
    /// Hosts and links of one on this machine.
    pub setup: Setup,
    /// The DUT; `None` for a self-test alone.
    pub dut: Option<DutChoice>,
    /// IP version between DUT and authority; `None` for what the DUT needs, else IPv4.
    pub upstream: Option<Family>,
    /// The authoritative server.
    pub authority: AuthorityChoice,
    /// Its cores; unrestricted to have them chosen.
    pub authority_cpus: CpuSet,
    /// What it does wrong on purpose behind a DUT; in self-tests nothing. Only for the Tester's own.
    pub behaviour: Behaviour,
}

impl LabSpec {
    /// Refuses an authority in the driver where not all of its queries come over one link.
    ///
    /// # Errors
    ///
    /// The lab is not one of three devices on this machine.
    pub fn check_driver(&self) -> Result<(), LabError> {
        let is_link = self.setup == Setup::ThreeDevice && self.at.is_none();
        match self.authority.driver_mode() {
            Some(_) if !is_link => Err(Blame::Request.error(
                "an authority in the driver needs a three-device lab on this machine: with two devices or on \
                 the loopback interface, self-tests do not cross its link, and other hosts are not supported; use \
                 --setup three-device and --lab netns, or the built-in authority",
            )),
            _ => Ok(()),
        }
    }

    /// Where its authority answers in the driver, if it does.
    pub fn interception(&self) -> Option<Interception> {
        let link = || UPSTREAM_LINK.to_owned();
        Some(Interception {
            mode: self.authority.driver_mode()?,
            interface: link(),
            force: false,
            far: Some((self.setup.host(Role::Dut), link())),
        })
    }

    /// The host of its DUT, where there is one; the first of a plan that does not say.
    pub fn dut_host(&self) -> Option<&str> {
        let dut = self.dut.as_ref()?;
        let first = || Some(self.at.as_ref()?.duts().first()?.name.as_str());
        dut.host.as_deref().or_else(first)
    }
}

/// Which server is the DUT.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DutChoice {
    /// Name of a built-in profile, or path of a file.
    pub profile: String,
    /// The host that it runs on, by its name; `None` in a lab on this machine.
    pub host: Option<String>,
    /// Its program, where it is not to be looked up.
    pub program: Option<PathBuf>,
    /// Values for settings of the profile; the others have their defaults.
    pub settings: BTreeMap<String, String>,
    /// Restart it before every trial (Lencse, Georgescu and Kadobayashi 2017, section 6.3).
    pub restart: bool,
    /// Its cores; unrestricted for those that the Tester leaves.
    pub cpus: CpuSet,
}

/// Which server is the authority.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AuthorityChoice {
    /// The Tester's own.
    #[default]
    BuiltIn,
    /// The Tester's own, which answers the common query in the driver of its link; behind the driver by
    /// [`Mode::Generic`].
    InDriver(Mode),
    /// One that is started with a zone file of the namespace.
    Profile {
        /// Name of a built-in profile, or path of a file.
        profile: String,
        /// Values for settings of the profile; the others have their defaults.
        settings: BTreeMap<String, String>,
    },
}

impl AuthorityChoice {
    /// Whether it is a program of its own, with a zone file.
    pub fn is_program(&self) -> bool {
        matches!(self, Self::Profile { .. })
    }

    /// How it answers in the driver, if it does.
    pub fn driver_mode(&self) -> Option<Mode> {
        match self {
            Self::InDriver(mode) => Some(*mode),
            Self::BuiltIn | Self::Profile { .. } => None,
        }
    }

    /// What the reader of a result has to know of it.
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

/// What all trials of a measurement have in common.
#[derive(Clone, Debug)]
pub struct Load {
    /// Pacing of the queries; that of self-tests that certify the Tester is always absolute.
    pub pacing: Pacing,
    /// Length of a trial.
    pub duration_ns: Nanos,
    /// An answer counts until this long after its query was sent.
    pub timeout_ns: Nanos,
    /// Names to use.
    pub cidr: Cidr,
    /// Where in this range they begin, and what of it is used.
    pub begin: Begin,
    /// The zone that they are in.
    pub zone: Zone,
    /// Share of the queries that ask for names that were asked before.
    pub cached_share: Share,
    /// Which names those are.
    pub pattern: Pattern,
    /// Prefix of the expected answers; `None` to learn it (from a running server) or to choose it (in a
    /// lab).
    pub pref64: Option<Pref64>,
    /// Threads of the Measurer; at least 1.
    pub threads: usize,
    /// Cores of these threads; unrestricted to have them chosen.
    pub cpus: CpuSet,
    /// Source ports of all threads together, at least one for each; `None` for as many as the rate and the source
    /// addresses need.
    pub ports: Option<usize>,
    /// Whether runs of datagrams travel as one, at the Measurer and at the built-in authority; in
    /// self-tests they never do, because a DUT sends its questions one by one.
    pub segmentation: Segmentation,
    /// What carries the datagrams of the Measurer and of the built-in authority.
    pub backend: Backend,
    /// Queries that leave in one system call at most, where more are due within the quantum.
    pub burst_max: u64,
    /// End a trial as soon as its failure is certain.
    pub stop_early: bool,
    /// Disturbances of the Tester that a trial bears.
    pub limits: Limits,
    /// TTL of the authority's records.
    pub ttl_s: u32,
    /// TTL of its negative answers.
    pub negative_ttl_s: u32,
}

impl Default for Load {
    /// What RFC 8219 section 9.2 asks for: trials of 60 s, a timeout of 1 s, different names without
    /// an AAAA.
    fn default() -> Self {
        Self {
            pacing: Pacing::default(),
            duration_ns: 60 * SECOND,
            timeout_ns: SECOND,
            cidr: DEFAULT_NAMESPACE,
            begin: Begin::default(),
            zone: Zone::default(),
            cached_share: Share::NONE,
            pattern: Pattern::default(),
            pref64: None,
            threads: 1,
            cpus: CpuSet::unrestricted(),
            ports: None,
            segmentation: Segmentation::On,
            backend: Backend::Socket,
            burst_max: BURST_MAX,
            stop_early: false,
            limits: Limits::default(),
            ttl_s: TTL_DEFAULT_S,
            negative_ttl_s: NEGATIVE_TTL_DEFAULT_S,
        }
    }
}

impl Load {
    /// The names of the trials, from where they begin.
    ///
    /// # Errors
    ///
    /// The pattern needs more names than there are.
    pub fn names(&self) -> Result<NameSource, ValueError> {
        let zone = self.zone.clone();
        let source = NameSource::new(self.cidr, zone, self.cached_share, self.pattern)?;
        Ok(source.begun_at(self.begin))
    }

    /// When the queries of a trial are due. The self-correcting timer sends them one by one.
    pub fn schedule(&self, rate_qps: u64) -> Schedule {
        let schedule = Schedule::new(rate_qps, self.duration_ns);
        match self.pacing {
            Pacing::Absolute => schedule.with_burst(schedule.burst().min(self.burst_max)),
            Pacing::SelfCorrecting => schedule.with_burst(1),
        }
    }

    /// The trial at `rate_qps`, by its [`schedule`](Self::schedule).
    pub fn trial(
        &self,
        server: SocketAddr,
        rate_qps: u64,
        schedule: Schedule,
        names: Names,
    ) -> TrialSpec {
        TrialSpec {
            server,
            rate_qps,
            duration_ns: self.duration_ns,
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

    /// What the authority serves, whoever it is. With `self_test` every name has an AAAA.
    pub fn zone_config(&self, self_test: bool) -> ZoneConfig {
        ZoneConfig {
            zone: self.zone.clone(),
            self_test,
            ttl_s: self.ttl_s,
            negative_ttl_s: self.negative_ttl_s,
        }
    }

    /// The zone of an authority that is a program.
    pub fn zone_file(&self, self_test: bool) -> ZoneFile {
        ZoneFile {
            cidr: self.cidr,
            config: self.zone_config(self_test),
            form: Form::Master,
        }
    }

    /// The suffix of the names as configurations of servers have it, without its last dot.
    pub fn suffix(&self) -> String {
        let suffix = self.zone.suffix.to_string();
        suffix.trim_end_matches('.').to_owned()
    }
}
