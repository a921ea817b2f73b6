//! What a controller asks of the agent on a host, and what comes back: plain data with a schema, in the words of the
//! command line where values have such.

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
use crate::lab::counters::Reading;
use crate::lab::cpuset::CpuSet;
use crate::lab::process::Resources;
use crate::lab::profile::{Profile, Settings};
use crate::lab::server::Start;
use crate::lab::topology::Role;
use crate::lab::zone::{Form, ZoneFile};
use crate::lab::{Blame, LabError};
use crate::load::catch_up::Limits;
use crate::load::names::Names;
use crate::load::pace::{Pacing, Schedule};
use crate::load::repeat::Repeats;
use crate::load::ring::Ring;
use crate::namespace::{Cidr, Pattern, Share, Zone};
use crate::trial::TrialSpec;
use crate::trial::part::Part;

pub use gathered::{AuthorityGathered, CountersOrder, GatheredOrder, ShardOrder};

/// What is asked of a host. Each request is answered by the [`Reply`] of its line, or by [`Reply::Refused`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Request {
    /// Starts a server by its profile, without waiting for its answers: [`Reply::Done`].
    Launch(Role, Box<ServerOrder>),
    /// Stops it and launches it again with empty caches: [`Reply::Done`].
    Relaunch(Role),
    /// Stops it: [`Reply::Done`].
    Stop(Role),
    /// How a server is: [`Reply::State`].
    State(Role),
    /// It has given its first right answer: [`Reply::Started`].
    Ready(Role),
    /// What it is run by: [`Reply::Program`].
    Program(Role),
    /// Opens the threads and sockets of Measurer and authority, in place of those that there are: [`Reply::Done`].
    Open(Box<TesterOrder>),
    /// Closes them: [`Reply::Done`].
    Close,
    /// What the built-in authority has counted since it began: [`Reply::Counts`].
    Counts,
    /// Makes this host's part of a trial ready: [`Reply::Done`].
    Arm(Box<TrialOrder>),
    /// Runs it from this moment of the host's monotonic clock to its end: [`Reply::Ran`].
    Run(Nanos),
    /// What came of it: [`Reply::Gathered`], followed by the ledgers of its shards and that of its authority.
    Gather,
    /// The counters of the host now, with those of its queues or without: [`Reply::Reading`].
    Read(bool),
    /// What the host says of itself, which takes a second: [`Reply::Facts`].
    Facts,
    /// Whether the program of a profile, or this one, is there, and which it is: [`Reply::Version`].
    Find(Box<ProfileOrder>),
    /// One question, and its answer whatever it says: [`Reply::Answer`].
    Ask(Question),
    /// Asks an authority of this host again and again: [`Reply::Done`].
    Pulse(PulseOrder),
    /// Ends that: [`Reply::Waits`].
    EndPulse,
}

/// What a host answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reply {
    /// It is done.
    Done,
    /// It is not.
    Refused(Refusal),
    /// How a server is.
    State(State),
    /// Its start.
    Started(Option<Start>),
    /// What it is run by.
    Program(Box<Program>),
    /// What the authority has counted.
    Counts(AuthorityCounts),
    /// It has run, and began this long after it was to.
    Ran(Nanos),
    /// A part of a trial.
    Gathered(Box<GatheredOrder>),
    /// Counters.
    Reading(Option<Reading>),
    /// What the host says of itself.
    Facts(Box<HostFacts>),
    /// The version that a program tells; `None` if it tells none in the form of its profile.
    Version(Option<String>),
    /// The octets of an answer, or why there is none.
    Answer(Result<Vec<u8>, NoAnswer>),
    /// How long each question took.
    Waits(Vec<Nanos>),
}

/// Why a host does not do what it is asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Refusal {
    /// Who has to change something; `None` for the host itself.
    pub blame: Option<Blame>,
    /// What, with all its causes.
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

/// An error and what it comes from, in one line.
pub(in crate::rig) fn causes(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(Some(error), |error| error.source());
    let texts: Vec<String> = sources.map(ToString::to_string).collect();
    texts.join(": ")
}

/// A profile, and the program that is to be used.
#[derive(Debug, Serialize, Deserialize)]
pub struct ProfileOrder {
    /// Where it comes from, for errors,
    pub origin: String,
    /// and the text of it.
    pub text: String,
    /// The program, where it is not to be looked up.
    pub program: Option<String>,
}

impl ProfileOrder {
    /// Of this profile.
    pub fn new(profile: &Profile, program: Option<&Path>) -> Self {
        Self {
            origin: profile.name.clone(),
            text: profile.text().to_owned(),
            program: program.map(|path| path.display().to_string()),
        }
    }

    /// The profile.
    pub(crate) fn profile(&self) -> Result<Profile, LabError> {
        Profile::parse(&self.origin, &self.text)
    }
}

/// A server to start.
#[derive(Debug, Serialize, Deserialize)]
pub struct ServerOrder {
    /// How.
    pub profile: ProfileOrder,
    /// Addresses, prefix, CPUs.
    #[serde(flatten)]
    pub settings: SettingsOrder,
    /// The zone, for an authority.
    pub zone: Option<ZoneOrder>,
}

/// [`Settings`].
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

/// Unrestricted where none are named.
pub(in crate::rig) fn cpus(text: &str) -> CpuSet {
    text.parse().unwrap_or_default()
}

/// What an authority serves: [`ZoneConfig`] and, in a file, these names.
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
    /// Of an authority with these names.
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

    /// As the built-in authority has it.
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

    /// As a file.
    pub fn file(&self) -> ZoneFile {
        ZoneFile {
            cidr: self.cidr,
            config: self.config(),
            form: Form::Master,
        }
    }
}

/// The roles of the Tester that a host has; neither on that of a DUT, which is only looked at.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct TesterOrder {
    /// The Measurer's threads here.
    pub measurer: Option<MeasurerOrder>,
    /// The built-in authority.
    pub authority: Option<AuthorityOrder>,
}

/// [`Measurer`](crate::trial::Measurer).
#[derive(Debug, Serialize, Deserialize)]
pub struct MeasurerOrder {
    /// Source address; `None` leaves it to the routing table.
    pub local: Option<IpAddr>,
    /// Its threads.
    pub threads: usize,
    /// Their cores.
    pub cpus: String,
    /// What carries its datagrams.
    #[serde(with = "as_text")]
    pub backend: Backend,
}

/// [`AuthDns`](crate::trial::AuthDns).
#[derive(Debug, Serialize, Deserialize)]
pub struct AuthorityOrder {
    /// Address and port.
    pub listen: SocketAddr,
    /// Cores of its threads, one each.
    pub cpus: String,
    /// Whether datagrams may travel in segmented runs.
    #[serde(with = "as_text")]
    pub segmentation: Segmentation,
    /// What carries its datagrams.
    #[serde(with = "as_text")]
    pub backend: Backend,
    /// What it serves.
    pub zone: ZoneOrder,
    /// What it does wrong on purpose, in the words of `--authority-behaviour`.
    pub behaviour: Option<String>,
}

/// A trial, and which part of it is meant: [`TrialSpec`].
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
    /// A part of a trial toward `server`.
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

    /// The trial and the part.
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

/// [`Names`].
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

/// How a server is.
#[derive(Debug, Serialize, Deserialize)]
pub struct State {
    /// How it ended, if it has.
    pub ended: Option<String>,
    /// The last lines that it wrote.
    pub log_tail: String,
    /// What it uses.
    pub resources: Resources,
    /// Datagrams that its sockets have lost so far.
    pub udp_drops: u64,
}

/// What a server is run by.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Program {
    /// What it says that it is.
    pub version: Option<String>,
    /// Program and arguments, with `{workdir}` in place of its directory.
    pub command: Vec<String>,
    /// What was set in its environment.
    pub environment: BTreeMap<String, String>,
    /// Its rendered files, by name.
    pub files: BTreeMap<String, String>,
    /// SHA-256 of its program.
    pub sha256: Option<String>,
    /// How it is kept to its cores.
    pub cores: Option<String>,
}

impl Program {
    /// Of servers of one profile on these hosts, as if they were one. What is not the same on all is told of each with its
    /// host, and so are their files, which have their addresses.
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

/// One question for the name of an address.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Question {
    /// Source address; `None` leaves it to the routing table.
    pub local: Option<IpAddr>,
    /// Who is asked.
    pub server: SocketAddr,
    /// The zone.
    #[serde(with = "as_text")]
    pub suffix: NameBuf,
    /// Whose name is asked for,
    pub address: Ipv4Addr,
    /// and for which type.
    pub rtype: u16,
    /// How long the answer is waited for.
    pub wait_ns: Nanos,
}

/// Why there is no answer to a question: what a prober tells apart.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoAnswer {
    /// ICMP port unreachable.
    Unreachable,
    /// Nothing came.
    Silence,
    /// It came from there.
    Foreign(SocketAddr),
    /// Something came that answers no query.
    Garbage,
    /// The question could not be asked.
    Failed(String),
}

/// Whom to ask beside a trial.
#[derive(Debug, Serialize, Deserialize)]
pub struct PulseOrder {
    /// Who is asked, and for which name.
    pub question: Question,
    /// The core to ask from.
    pub core: Option<usize>,
}

/// A value in the words in which users write it.
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
