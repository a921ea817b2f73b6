//! From what was typed to what it means: one subject, one load, and remarks for the report.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use dns64_transport::clock::Nanos;
use dns64_wire::name::NameBuf;
use dns64_wire::pref64::Pref64;

use super::args::{
    LabKind, LoadArgs, MeasureArgs, NameArgs, OutputArgs, PacingKind, Pref64Arg, SetupKind,
    SubjectArgs, UpstreamFamily,
};
use crate::lab::host::CpuSet;
use crate::lab::profile::Family;
use crate::lab::topology::Setup;
use crate::load::pace::Pacing;
use crate::namespace::{Cidr, Pattern, Share};
use crate::rig::recommended::Recommended;

/// A measurement as it is to be done.
#[derive(Debug)]
pub struct Measure {
    /// Which server to measure.
    pub subject: Subject,
    /// What to send and to expect.
    pub load: Load,
    /// Measure without a certificate.
    pub uncertified: bool,
    /// Where to write.
    pub output: OutputArgs,
    /// Deviations from the recommendations of RFC 8219.
    pub notes: Vec<String>,
}

/// Which server to measure.
#[derive(Debug)]
pub enum Subject {
    /// One that runs already.
    Server {
        /// Where it answers.
        server: SocketAddr,
        /// An authority in self-test mode to certify the Tester against.
        self_test_server: Option<SocketAddr>,
    },
    /// One that is started in a lab.
    Lab(LabPlan),
}

/// A lab and what runs in it.
#[derive(Debug)]
pub struct LabPlan {
    /// The DUT; none only in a self-test.
    pub dut: Option<DutPlan>,
    /// Where the roles run.
    pub kind: LabKind,
    /// How many hosts, if the lab has hosts.
    pub setup: Setup,
    /// Addresses between DUT and authority, if the user cares.
    pub upstream_family: Option<Family>,
    /// Profile of the authoritative server; `None` for the Tester's own.
    pub authority: Option<String>,
    /// Its CPUs.
    pub authority_cpus: CpuSet,
}

/// A DUT to be started.
#[derive(Debug)]
pub struct DutPlan {
    /// Name of a built-in profile or path of a file.
    pub profile: String,
    /// Its program, if it is not to be looked up.
    pub binary: Option<PathBuf>,
    /// Values for settings of its profile; the last one given counts.
    pub settings: BTreeMap<String, String>,
    /// Start it anew before each trial.
    pub restart: bool,
    /// Its CPUs.
    pub cpus: CpuSet,
}

/// What to send and to expect.
#[derive(Debug)]
pub struct Load {
    /// Who decides when a query leaves.
    pub pacing: Pacing,
    /// Length of a trial.
    pub duration_ns: Nanos,
    /// How long after its query an answer counts.
    pub timeout_ns: Nanos,
    /// Threads that send and receive; at least 1.
    pub threads: usize,
    /// Source ports of all threads, at least one for each; `None` for as many as the rate needs.
    pub sockets: Option<usize>,
    /// CPUs of the threads.
    pub cpus: CpuSet,
    /// Source address.
    pub local: Option<IpAddr>,
    /// Addresses whose names are asked.
    pub namespace: Cidr,
    /// What stands after the first label of a name.
    pub suffix: NameBuf,
    /// Share of the names that have an AAAA of their own.
    pub aaaa_share: Share,
    /// Share of the queries for names that were asked before.
    pub cached_share: Share,
    /// Which names those are.
    pub pattern: Pattern,
    /// Prefix of the expected answers; `None` to learn it.
    pub pref64: Option<Pref64>,
}

/// Whether a measurement can do without a DUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// It is about a DUT: `trial` and `search`.
    Dut,
    /// It leaves the DUT out: `selftest`.
    AuthorityOnly,
}

/// Why flags do not go together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsageError {
    /// Neither `--server` nor `--dut`.
    #[error(
        "no server to measure; name one that runs with --server ADDR [--port PORT], or have one \
         started in a lab with --dut PROFILE"
    )]
    NoServer,
    /// Both of them.
    #[error(
        "--server and --dut name two servers; use --server ADDR for one that runs already, or \
         --dut PROFILE for one to be started in a lab"
    )]
    TwoServers,
    /// A thread would have nothing to send from.
    #[error(
        "--sockets {sockets} is fewer than --threads {threads}; each thread needs one, so use \
         --sockets {threads} or more"
    )]
    FewSockets {
        /// As given.
        sockets: u16,
        /// As given.
        threads: u16,
    },
    /// Source and destination are of different families.
    #[error(
        "--local {local} and --server {server} are not of the same family; leave --local away or \
         give an address of the server's family"
    )]
    Families {
        /// As given.
        local: IpAddr,
        /// As given.
        server: IpAddr,
    },
}

impl MeasureArgs {
    /// What the flags mean together.
    ///
    /// # Errors
    ///
    /// Flags that contradict each other, or no server where one is needed.
    pub fn resolve(self, needs: Needs) -> Result<Measure, UsageError> {
        let Self {
            subject,
            load,
            names,
            output,
        } = self;
        if let (Some(local), Some(server)) = (load.local, subject.server)
            && local.is_ipv4() != server.is_ipv4()
        {
            return Err(UsageError::Families { local, server });
        }
        let uncertified = subject.uncertified;
        let subject = subject.resolve(needs)?;
        let load = Load::new(load, names)?;
        let notes = remarks(&subject, &load);
        Ok(Measure {
            subject,
            load,
            uncertified,
            output,
            notes,
        })
    }
}

impl SubjectArgs {
    fn resolve(self, needs: Needs) -> Result<Subject, UsageError> {
        match (self.server, &self.dut, needs) {
            (Some(_), Some(_), _) => Err(UsageError::TwoServers),
            (None, None, Needs::Dut) => Err(UsageError::NoServer),
            (Some(server), None, _) => Ok(Subject::Server {
                server: SocketAddr::new(server, self.port.unwrap_or(DNS_PORT)),
                self_test_server: self.self_test_server,
            }),
            (None, Some(_), _) | (None, None, Needs::AuthorityOnly) => {
                Ok(Subject::Lab(self.lab_plan()))
            }
        }
    }

    fn lab_plan(self) -> LabPlan {
        let Self {
            dut_binary,
            dut_set,
            restart,
            dut_cpus,
            ..
        } = self;
        LabPlan {
            dut: self.dut.map(|profile| DutPlan {
                profile,
                binary: dut_binary,
                settings: dut_set.into_iter().collect(),
                restart,
                cpus: dut_cpus.unwrap_or_default(),
            }),
            kind: self.lab.unwrap_or_default(),
            setup: self.setup.unwrap_or_default().into(),
            upstream_family: self.upstream_family.map(Family::from),
            authority: self.authority.filter(|name| name != BUILT_IN),
            authority_cpus: self.authority_cpus.unwrap_or_default(),
        }
    }
}

impl Load {
    fn new(load: LoadArgs, names: NameArgs) -> Result<Self, UsageError> {
        let threads = load.threads;
        if let Some(sockets) = load.sockets.filter(|&sockets| sockets < threads) {
            return Err(UsageError::FewSockets { sockets, threads });
        }
        Ok(Self {
            pacing: Pacing::Absolute,
            duration_ns: load.duration,
            timeout_ns: load.timeout,
            threads: threads.into(),
            sockets: load.sockets.map(usize::from),
            cpus: load.cpus.unwrap_or_default(),
            local: load.local,
            namespace: names.namespace,
            suffix: names.suffix,
            aaaa_share: names.aaaa_share,
            cached_share: names.cached_share,
            pattern: names.cached_pattern,
            pref64: match names.pref64 {
                Pref64Arg::Auto => None,
                Pref64Arg::Given(prefix) => Some(prefix),
            },
        })
    }
}

impl From<SetupKind> for Setup {
    fn from(kind: SetupKind) -> Self {
        match kind {
            SetupKind::ThreeDevice => Self::ThreeDevice,
            SetupKind::TwoDevice => Self::TwoDevice,
        }
    }
}

impl From<PacingKind> for Pacing {
    fn from(kind: PacingKind) -> Self {
        match kind {
            PacingKind::Absolute => Self::Absolute,
            PacingKind::SelfCorrecting => Self::SelfCorrecting,
        }
    }
}

impl From<UpstreamFamily> for Family {
    fn from(family: UpstreamFamily) -> Self {
        match family {
            UpstreamFamily::Ipv4 => Self::Ipv4,
            UpstreamFamily::Ipv6 => Self::Ipv6,
        }
    }
}

/// Where the flags leave what RFC 8219 recommends.
fn remarks(subject: &Subject, load: &Load) -> Vec<String> {
    let over_ipv4 = matches!(subject, Subject::Server { server, .. } if server.is_ipv4());
    Recommended {
        duration_ns: load.duration_ns,
        timeout_ns: load.timeout_ns,
        runs: None,
        ipv4_servers: over_ipv4.then_some("the server").into_iter().collect(),
    }
    .remarks()
}

/// The name of the Tester's own authority.
pub const BUILT_IN: &str = "built-in";

/// RFC 1035 section 4.2.
const DNS_PORT: u16 = 53;
