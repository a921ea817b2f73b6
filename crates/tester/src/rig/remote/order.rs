//! Requests of a controller to the agent on a host, and its replies: plain data with a schema. Values are written as on
//! the command line, if they have such a form.

mod gathered;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::str::FromStr;

use dns64_transport::Backend;
use dns64_transport::clock::Nanos;
use dns64_transport::socket::Segmentation;
use dns64_wire::name::NameBuf;
use dns64_wire::pref64::Pref64;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::agent::facts::HostFacts;
use crate::authority::counts::AuthorityCounts;
use crate::authority::zone::ZoneConfig;
use crate::lab::profile::{Profile, Settings};
use crate::lab::routes::Route;
use crate::lab::server::Start;
use crate::lab::zone::{Form, ZoneFile};
use crate::lab::{Blame, LabError};
use crate::load::catch_up::Limits;
use crate::load::names::Names;
use crate::load::pace::{Pacing, Schedule};
use crate::load::repeat::Repeats;
use crate::load::ring::Ring;
use crate::load::sources::Sources;
use crate::machine::Role;
use crate::machine::counters::Reading;
use crate::machine::cpuset::CpuSet;
use crate::machine::process::Resources;
use crate::namespace::{Cidr, Pattern, Share, Zone};
use crate::trial::part::Part;
use crate::trial::{TrialError, TrialSpec};

pub use gathered::{AuthorityGathered, CountersOrder, GatheredOrder, ShardOrder};

/// Request to a host. The reply is the [`Reply`] of its line, or [`Reply::Refused`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Starts a server from its profile, without waiting for its first response: [`Reply::Done`].
    Launch(Role, Box<ServerOrder>),
    /// Stops it and launches it again with empty caches: [`Reply::Done`].
    Relaunch(Role),
    /// Stops it: [`Reply::Done`].
    Stop(Role),
    /// Returns the state of a server: [`Reply::State`].
    State(Role),
    /// Records its first correct response: [`Reply::Started`].
    Ready(Role),
    /// Returns its program: [`Reply::Program`].
    Program(Role),
    /// Opens the threads and sockets of Measurer and authority, instead of the existing ones: [`Reply::Done`].
    Open(Box<TesterOrder>),
    /// Closes them: [`Reply::Done`].
    Close,
    /// Returns the counters of the built-in authority since its start: [`Reply::Counts`].
    Counts,
    /// Prepares this host's part of a trial: [`Reply::Done`].
    Arm(Box<TrialOrder>),
    /// Runs it from this time of the host's monotonic clock to its end: [`Reply::Ran`].
    Run(Nanos),
    /// Returns its data: [`Reply::Gathered`], followed by the ledgers of its shards and that of its authority.
    Gather,
    /// Returns the current counters of the host, with or without those of its queues: [`Reply::Reading`].
    Read(bool),
    /// Returns the facts of the host, which takes a second: [`Reply::Facts`].
    Facts,
    /// Returns the version of a profile's program, or of this program, if it exists: [`Reply::Version`].
    Find(Box<ProfileOrder>),
    /// Sends one query and returns its response, whatever it contains: [`Reply::Answer`].
    Ask(Question),
    /// Starts to query an authority of this host repeatedly: [`Reply::Done`].
    Pulse(PulseOrder),
    /// Stops these queries: [`Reply::Waits`].
    EndPulse,
    /// Has these routes to source addresses, in place of those that it was given before, until the agent ends:
    /// [`Reply::Done`].
    Routes(Vec<Route>),
}

/// Reply of a host.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// The request was completed.
    Done,
    /// The request was refused.
    Refused(Refusal),
    /// State of a server.
    State(State),
    /// Start of a server.
    Started(Option<Start>),
    /// Program of a server.
    Program(Box<Program>),
    /// Counters of the authority.
    Counts(AuthorityCounts),
    /// The trial has run, with this delay of its start.
    Ran(Nanos),
    /// A part of a trial.
    Gathered(Box<GatheredOrder>),
    /// Counters.
    Reading(Option<Reading>),
    /// Facts of the host.
    Facts(Box<HostFacts>),
    /// Version of a program; `None` if its output does not match the profile.
    Version(Option<String>),
    /// The octets of a response, or the reason for its absence.
    Answer(Result<Vec<u8>, NoAnswer>),
    /// Response time of each query.
    Waits(Vec<Nanos>),
}

/// Reason why a host refuses a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Refusal {
    /// Who must change something; `None` for the host itself.
    pub blame: Option<Blame>,
    /// The error with all its causes.
    pub what: String,
}

impl From<&LabError> for Refusal {
    fn from(error: &LabError) -> Self {
        Self {
            blame: Some(error.blame),
            what: causes(error),
        }
    }
}

impl From<&TrialError> for Refusal {
    fn from(error: &TrialError) -> Self {
        Self {
            blame: Some(error.blame()),
            what: causes(error),
        }
    }
}

/// Formats an error and its causes in one line.
pub(in crate::rig) fn causes(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(Some(error), |error| error.source());
    let texts: Vec<String> = sources.map(ToString::to_string).collect();
    texts.join(": ")
}

/// A profile, and the program to use.
#[derive(Debug, Serialize, Deserialize)]
pub struct ProfileOrder {
    /// Origin of the profile, for errors.
    pub origin: String,
    /// Text of the profile.
    pub text: String,
    /// Path of the program, if it is not looked up.
    pub program: Option<String>,
}

impl ProfileOrder {
    /// Creates the order for this profile.
    pub fn new(profile: &Profile, program: Option<&Path>) -> Self {
        Self {
            origin: profile.name.clone(),
            text: profile.text().to_owned(),
            program: program.map(|path| path.display().to_string()),
        }
    }

    /// Parses the profile.
    pub(crate) fn profile(&self) -> Result<Profile, LabError> {
        Profile::parse(&self.origin, &self.text)
    }
}

/// A server to start.
#[derive(Debug, Serialize, Deserialize)]
pub struct ServerOrder {
    /// Profile.
    pub profile: ProfileOrder,
    /// Addresses, prefix, CPUs.
    #[serde(flatten)]
    pub settings: SettingsOrder,
    /// The zone, for an authority.
    pub zone: Option<ZoneOrder>,
}

/// [`Settings`] in a request.
#[derive(Debug, Serialize, Deserialize)]
pub struct SettingsOrder {
    listen: Ipv6Addr,
    listen_v4: Ipv4Addr,
    port: u16,
    upstreams: Vec<SocketAddr>,
    pref64: (Ipv6Addr, u8),
    suffix: String,
    #[serde(with = "as_text")]
    aaaa_share: Share,
    cpus: String,
    chosen: BTreeMap<String, String>,
}

impl From<&Settings> for SettingsOrder {
    fn from(settings: &Settings) -> Self {
        let settings = settings.clone();
        Self {
            listen: settings.listen,
            listen_v4: settings.listen_v4,
            port: settings.port,
            upstreams: settings.upstreams,
            pref64: settings.pref64,
            suffix: settings.suffix,
            aaaa_share: settings.aaaa_share,
            cpus: settings.cpus.to_string(),
            chosen: settings.chosen,
        }
    }
}

impl From<SettingsOrder> for Settings {
    fn from(order: SettingsOrder) -> Self {
        Self {
            listen: order.listen,
            listen_v4: order.listen_v4,
            port: order.port,
            upstreams: order.upstreams,
            pref64: order.pref64,
            suffix: order.suffix,
            aaaa_share: order.aaaa_share,
            cpus: cpus(&order.cpus),
            chosen: order.chosen,
        }
    }
}

/// Parses a CPU list; unrestricted if it is empty.
pub(in crate::rig) fn cpus(text: &str) -> CpuSet {
    text.parse().unwrap_or_default()
}

/// Zone of an authority: [`ZoneConfig`] and these names, for a file.
#[derive(Debug, Serialize, Deserialize)]
pub struct ZoneOrder {
    cidr: Cidr,
    #[serde(with = "as_text")]
    suffix: NameBuf,
    #[serde(with = "as_text")]
    aaaa_share: Share,
    self_test: bool,
    ttl_s: u32,
    negative_ttl_s: u32,
}

impl ZoneOrder {
    /// Creates the order for an authority with these names.
    pub fn new(cidr: Cidr, config: &ZoneConfig) -> Self {
        Self {
            cidr,
            suffix: config.zone.suffix.clone(),
            aaaa_share: config.zone.aaaa_share,
            self_test: config.self_test,
            ttl_s: config.ttl_s,
            negative_ttl_s: config.negative_ttl_s,
        }
    }

    /// Returns the configuration of the built-in authority.
    pub fn config(&self) -> ZoneConfig {
        ZoneConfig {
            zone: Zone {
                suffix: self.suffix.clone(),
                aaaa_share: self.aaaa_share,
            },
            self_test: self.self_test,
            ttl_s: self.ttl_s,
            negative_ttl_s: self.negative_ttl_s,
        }
    }

    /// Returns the zone file.
    pub fn file(&self) -> ZoneFile {
        ZoneFile {
            cidr: self.cidr,
            config: self.config(),
            form: Form::Master,
        }
    }
}

/// Roles of the Tester on a host; none on the host of a DUT, which is only observed.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct TesterOrder {
    /// The Measurer's threads on this host.
    pub measurer: Option<MeasurerOrder>,
    /// The built-in authority.
    pub authority: Option<AuthorityOrder>,
}

/// [`Measurer`](crate::trial::Measurer) in a request.
#[derive(Debug, Serialize, Deserialize)]
pub struct MeasurerOrder {
    /// Source addresses; `None` leaves it to the routing table.
    pub local: Option<Sources>,
    /// Source ports that it needs at least.
    pub ports: usize,
    /// Number of threads.
    pub threads: usize,
    /// Cores of the threads.
    pub cpus: String,
    /// Backend of its links.
    #[serde(with = "as_text")]
    pub backend: Backend,
}

/// [`AuthDns`](crate::trial::AuthDns) in a request.
#[derive(Debug, Serialize, Deserialize)]
pub struct AuthorityOrder {
    /// Address and port.
    pub listen: SocketAddr,
    /// Cores of its threads, one each.
    pub cpus: String,
    /// Whether datagrams may be segmented.
    #[serde(with = "as_text")]
    pub segmentation: Segmentation,
    /// Backend of its links.
    #[serde(with = "as_text")]
    pub backend: Backend,
    /// Zone.
    pub zone: ZoneOrder,
    /// Injected faults, in the form of `--authority-behaviour`.
    pub behaviour: Option<String>,
}

/// A trial and the part of this host: [`TrialSpec`].
#[derive(Debug, Serialize, Deserialize)]
pub struct TrialOrder {
    server: SocketAddr,
    rate_qps: u64,
    duration_ns: Nanos,
    burst: u64,
    pacing: Pacing,
    timeout_ns: Nanos,
    names: NamesOrder,
    ports: Option<usize>,
    #[serde(with = "as_text")]
    segmentation: Segmentation,
    stop_early: bool,
    limits: Limits,
    first: u64,
    shards: u64,
}

impl TrialOrder {
    /// Creates the order for a part of a trial with the server `server`.
    pub fn new(spec: &TrialSpec, part: Part, server: SocketAddr) -> Self {
        Self {
            server,
            rate_qps: spec.rate_qps,
            duration_ns: spec.duration_ns,
            burst: spec.schedule.burst(),
            pacing: spec.pacing,
            timeout_ns: spec.timeout_ns,
            names: NamesOrder::from(&spec.names),
            ports: spec.ports,
            segmentation: spec.segmentation,
            stop_early: spec.stop_early,
            limits: spec.limits,
            first: part.first,
            shards: part.shards,
        }
    }

    /// Returns the trial and the part.
    pub fn spec(&self) -> (TrialSpec, Part) {
        let schedule = Schedule::new(self.rate_qps, self.duration_ns).with_burst(self.burst.max(1));
        let spec = TrialSpec {
            server: self.server,
            rate_qps: self.rate_qps,
            duration_ns: self.duration_ns,
            schedule,
            pacing: self.pacing,
            timeout_ns: self.timeout_ns,
            names: self.names.names(),
            ports: self.ports,
            segmentation: self.segmentation,
            stop_early: self.stop_early,
            limits: self.limits,
        };
        let part = Part {
            first: self.first,
            shards: self.shards,
        };
        (spec, part)
    }
}

/// [`Names`] in a request.
#[derive(Debug, Serialize, Deserialize)]
pub struct NamesOrder {
    cidr: Cidr,
    names: u64,
    begin: u64,
    first: u64,
    fresh: u64,
    cached: Ipv4Addr,
    #[serde(with = "as_text")]
    share: Share,
    pattern: Pattern,
    #[serde(with = "as_text")]
    suffix: NameBuf,
    #[serde(with = "as_text")]
    aaaa_share: Share,
    pref64: Option<String>,
}

impl From<&Names> for NamesOrder {
    fn from(names: &Names) -> Self {
        Self {
            cidr: names.ring.cidr(),
            names: names.ring.names(),
            begin: names.ring.begin(),
            first: names.first,
            fresh: names.fresh,
            cached: names.cached,
            share: names.repeats.share(),
            pattern: names.repeats.pattern(),
            suffix: names.zone.suffix.clone(),
            aaaa_share: names.zone.aaaa_share,
            pref64: names.pref64.map(|pref64| pref64.to_string()),
        }
    }
}

impl NamesOrder {
    fn names(&self) -> Names {
        let pref64 = self.pref64.as_deref();
        Names {
            ring: Ring::new(self.cidr, self.names, self.begin),
            first: self.first,
            fresh: self.fresh,
            cached: self.cached,
            repeats: Repeats::new(self.share, self.pattern),
            zone: Zone {
                suffix: self.suffix.clone(),
                aaaa_share: self.aaaa_share,
            },
            pref64: pref64.and_then(|text| text.parse::<Pref64>().ok()),
        }
    }
}

/// State of a server.
#[derive(Debug, Serialize, Deserialize)]
pub struct State {
    /// How it ended, if it has.
    pub ended: Option<String>,
    /// Its last log lines.
    pub log_tail: String,
    /// Its use of resources.
    pub resources: Resources,
    /// Datagrams lost by its sockets so far.
    pub udp_drops: u64,
}

/// Program of a server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Program {
    /// Its version, as it prints it.
    pub version: Option<String>,
    /// Program and arguments, with `{workdir}` in place of its directory.
    pub command: Vec<String>,
    /// Environment variables that were set.
    pub environment: BTreeMap<String, String>,
    /// Its rendered files, by name.
    pub files: BTreeMap<String, String>,
    /// SHA-256 of its program.
    pub sha256: Option<String>,
    /// Its core affinity.
    pub cores: Option<String>,
}

impl Program {
    /// Combines servers of one profile on these hosts. A value that differs between hosts is listed with its host. So
    /// are the files, which contain the addresses of their hosts.
    pub(in crate::rig) fn united(each: Vec<(&str, Self)>) -> Self {
        let told = |of: fn(&Self) -> Option<&String>| {
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
        let (version, sha256) = (
            told(|it| it.version.as_ref()),
            told(|it| it.sha256.as_ref()),
        );
        let cores = told(|it| it.cores.as_ref());
        let is_one = each.len() == 1;
        let mut files = BTreeMap::new();
        let mut first = None;
        for (host, program) in each {
            let named = |(name, text)| match is_one {
                true => (name, text),
                false => (format!("{name} on {host}"), text),
            };
            files.extend(program.files.clone().into_iter().map(named));
            first.get_or_insert(program);
        }
        Self {
            version,
            sha256,
            cores,
            files,
            ..first.unwrap_or_default()
        }
    }
}

/// One query for the name of an address.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Question {
    /// Source address; `None` for that of the routing table.
    pub local: Option<IpAddr>,
    /// The queried server.
    pub server: SocketAddr,
    /// The zone.
    #[serde(with = "as_text")]
    pub suffix: NameBuf,
    /// The address whose name is queried.
    pub address: Ipv4Addr,
    /// The type of the query.
    pub rtype: u16,
    /// Timeout of the query.
    pub wait_ns: Nanos,
}

/// Reason why a query has no usable response, as a prober distinguishes them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoAnswer {
    /// ICMP port unreachable.
    Unreachable,
    /// No response.
    Silence,
    /// Response from this other address.
    Foreign(SocketAddr),
    /// A datagram that answers no query.
    Garbage,
    /// The query could not be sent.
    Failed(String),
}

/// Order for queries to an authority during a trial.
#[derive(Debug, Serialize, Deserialize)]
pub struct PulseOrder {
    /// Server and name to query.
    pub question: Question,
    /// The core of the sender.
    pub core: Option<usize>,
}

/// Serialises a value in its text form.
mod as_text {
    use super::{Deserialize, Deserializer, Display, FromStr, Serializer};

    pub(in crate::rig) fn serialize<T: Display, S: Serializer>(
        value: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub(in crate::rig) fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
    where
        T: FromStr,
        T::Err: Display,
        D: Deserializer<'de>,
    {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(super::refused)
    }
}

fn refused<E: serde::de::Error>(error: impl Display) -> E {
    E::custom(error)
}
