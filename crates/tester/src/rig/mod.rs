//! The test setup: hosts, servers and the Tester, put together and ready for trials.
//!
//! A [`Rig`] is either a lab that it brings up, with a DUT and an authority started from
//! profiles, or a server that somebody else runs. It is what the procedures get as
//! [`Trials`](crate::procedure::Trials).

pub mod certify;
pub mod placement;
mod trials;
mod warm_up;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dns64_transport::clock::{Nanos, SECOND};
use dns64_wire::pref64::Pref64;

use crate::authority::answer::ZoneConfig;
use crate::lab::dut::{Dut, DutError, DutSpec, Probe};
use crate::lab::host::{Host, HostError};
use crate::lab::profile::{Family, Profile, Settings};
use crate::lab::topology::{self, Lab, LabError, Role, Setup};
use crate::lab::zone::ZoneFile;
use crate::load::generator::Names;
use crate::load::pace::Pacing;
use crate::namespace::{Cidr, Pattern, PatternError, Share, Zone, own_aaaa};
use crate::trial::names::{NameSource, NamespaceTooSmall};
use crate::trial::probe::{ProbeError, Prober};
use crate::trial::rows::Rows;
use crate::trial::{AuthDns, Measurer, Tester, TrialError, TrialSpec};
use placement::Placement;

/// What is measured, and how.
#[derive(Clone, Debug)]
pub struct RigSpec {
    /// The server and its surroundings.
    pub place: Place,
    /// The trials.
    pub measure: Measure,
    /// Cores of the roles.
    pub placement: Placement,
}

/// Where the server under test comes from.
#[derive(Clone, Debug)]
pub enum Place {
    /// Somebody else runs it.
    Running {
        /// Its address and port.
        server: SocketAddr,
        /// Source address of the Measurer; `None` leaves it to the routing table.
        local: Option<IpAddr>,
        /// An authority in self-test mode, to certify the Tester against.
        self_test_server: Option<SocketAddr>,
    },
    /// It is started from a profile, in a lab.
    Lab(Box<LabSpec>),
}

/// A lab and the servers in it.
#[derive(Clone, Debug)]
pub struct LabSpec {
    /// Hosts and links.
    pub setup: Setup,
    /// The DUT; `None` for a self-test alone.
    pub dut: Option<DutChoice>,
    /// IP version between DUT and authority.
    pub upstream: Family,
    /// Who answers the DUT.
    pub authority: AuthorityChoice,
    /// Restart the DUT before every trial (paper 000, section 6.3).
    pub restart: bool,
}

/// Which server is the DUT.
#[derive(Clone, Debug)]
pub struct DutChoice {
    /// How it is started.
    pub profile: Profile,
    /// Its program, where it is not to be looked up.
    pub program: Option<PathBuf>,
    /// Values for settings of the profile; the others have their defaults.
    pub settings: BTreeMap<String, String>,
}

/// Which server is the authority.
#[derive(Clone, Debug)]
pub enum AuthorityChoice {
    /// The Tester's own.
    BuiltIn {
        /// Threads.
        workers: usize,
    },
    /// A program started from a profile, with a zone file of the namespace.
    Profile(Box<Profile>),
}

/// What all trials of a rig have in common.
#[derive(Clone, Debug)]
pub struct Measure {
    /// Who decides when a query leaves; in self-tests it is always the schedule.
    pub pacing: Pacing,
    /// Length of a trial.
    pub duration_ns: Nanos,
    /// An answer counts until this long after its query was sent.
    pub timeout_ns: Nanos,
    /// Names to use.
    pub cidr: Cidr,
    /// The zone that they are in.
    pub zone: Zone,
    /// Share of the queries that ask for names that were asked before.
    pub cached_share: Share,
    /// Which names those are.
    pub pattern: Pattern,
    /// Prefix that the DUT synthesises with; `None` to learn it (from a running server) or to
    /// choose it (in a lab).
    pub pref64: Option<Pref64>,
    /// Threads of the Measurer.
    pub threads: usize,
    /// Source ports; `None` for as many as the rate needs.
    pub ports: Option<usize>,
    /// End a trial as soon as its failure is certain.
    pub stop_early: bool,
    /// TTL of the authority's records.
    pub ttl_s: u32,
    /// TTL of its negative answers.
    pub negative_ttl_s: u32,
}

impl Measure {
    /// The names of its trials, none of them used yet.
    ///
    /// # Errors
    ///
    /// The pattern needs more names than there are.
    pub fn names(&self) -> Result<NameSource, PatternError> {
        NameSource::new(
            self.cidr,
            self.zone.clone(),
            self.cached_share,
            self.pattern,
        )
    }

    /// A trial of `server` that counts.
    fn trial(&self, server: SocketAddr, rate_qps: u64, names: Names) -> TrialSpec {
        TrialSpec {
            server,
            rate_qps,
            pacing: self.pacing,
            duration_ns: self.duration_ns,
            timeout_ns: self.timeout_ns,
            names,
            ports: self.ports,
            stop_early: self.stop_early,
        }
    }
}

/// Why a rig cannot be put together or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum RigError {
    /// The lab.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// A server of the lab.
    #[error(transparent)]
    Server(#[from] DutError),
    /// A host.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A probe.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// The authority that was named for the self-test is none.
    #[error(
        "{server} is no authority in self-test mode: {reason}; start one there with `dns64bench \
         authority --self-test` and the same --suffix"
    )]
    NoSelfTest {
        /// Who was asked.
        server: SocketAddr,
        /// What came instead of the AAAA of a name.
        reason: String,
    },
    /// The Tester.
    #[error(transparent)]
    Trial(#[from] TrialError),
    /// The names.
    #[error(transparent)]
    Names(#[from] NamespaceTooSmall),
    /// The pattern of repeated names.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// The user ended it.
    #[error("interrupted")]
    Interrupted,
}

/// A test setup. Dropping it stops its servers and takes its lab down.
pub struct Rig {
    spec: RigSpec,
    names: NameSource,
    interrupted: Arc<AtomicBool>,
    /// The highest rate of a DUT for which the Tester has passed its self-test.
    certified_rate_qps: Option<u64>,
    /// Dropped from here on in this order: the Tester, the servers, then their hosts.
    running: Option<Running>,
    lab: Option<Lab>,
}

/// What runs between the first and the last trial.
struct Running {
    tester: Tester,
    dut: Option<Dut>,
    authority: Option<Dut>,
    server: SocketAddr,
    pref64: Pref64,
    /// The last trial did not pass, so the server may still be busy with it.
    unsettled: bool,
}

/// How long one probe is waited for.
const PROBE_NS: Nanos = SECOND;

/// Rate of the burst before the first trial, and the least of a warm-up: slow enough for every DUT, and more at once than a
/// probe.
const BURST_QPS: u64 = 2_000;

impl Rig {
    /// Brings the lab up, if there is one. Nothing is started in it yet.
    pub fn open(spec: RigSpec, interrupted: Arc<AtomicBool>) -> Result<Self, RigError> {
        let names = spec.measure.names()?;
        let lab = match &spec.place {
            Place::Lab(lab) => Some(Lab::up(lab.setup)?),
            Place::Running { .. } => None,
        };
        Ok(Self {
            spec,
            names,
            interrupted,
            certified_rate_qps: None,
            running: None,
            lab,
        })
    }

    /// Tells up to which rate of a DUT the Tester is certified: the results of its trials say whether
    /// they are within that.
    pub fn certify_to(&mut self, certified_rate_qps: Option<u64>) {
        self.certified_rate_qps = certified_rate_qps;
    }

    /// Starts authority, Tester and DUT, and finds out the pref64, unless they run.
    pub fn start(&mut self) -> Result<(), RigError> {
        if self.running.is_none() {
            self.running = Some(self.begin()?);
        }
        Ok(())
    }

    fn begin(&mut self) -> Result<Running, RigError> {
        let begun = match self.spec.place.clone() {
            Place::Running { server, local, .. } => self.join(server, local),
            Place::Lab(lab) => self.start_lab(&lab),
        };
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(RigError::Interrupted);
        }
        begun
    }

    /// What the DUT says that it is.
    pub fn dut_version(&self) -> Option<String> {
        self.dut()?.version().ok()
    }

    /// The DUT, where it is ours: its program, its files, how it is kept to its cores.
    pub fn dut(&self) -> Option<&Dut> {
        self.running.as_ref()?.dut.as_ref()
    }

    /// Cores of the roles that run here and are kept to some: role and list.
    pub fn cpus(&self) -> Vec<(String, String)> {
        let Placement {
            measurer,
            authority,
            dut,
        } = &self.spec.placement;
        let (in_lab, has_dut) = match &self.spec.place {
            Place::Running { .. } => (false, false),
            Place::Lab(lab) => (true, lab.dut.is_some()),
        };
        let roles = [
            ("Measurer", measurer, true),
            ("authority", authority, in_lab),
            ("DUT", dut, has_dut),
        ];
        roles
            .into_iter()
            .filter(|(_, set, is_here)| *is_here && !set.is_unrestricted())
            .map(|(role, set, _)| (role.to_owned(), set.to_string()))
            .collect()
    }

    /// The server under test and the prefix that it synthesises with, once started.
    pub fn server(&self) -> Option<(SocketAddr, Pref64)> {
        self.running.as_ref().map(|r| (r.server, r.pref64))
    }

    /// Whom a self-test asks.
    pub fn self_test_server(&self) -> Option<SocketAddr> {
        match &self.spec.place {
            Place::Running {
                self_test_server, ..
            } => *self_test_server,
            Place::Lab(lab) => Some(lab.setup.self_test().into()),
        }
    }

    /// The queries of the last trial, one by one; none before the first.
    pub fn rows(&self) -> Option<Rows<'_>> {
        self.running.as_ref()?.tester.rows()
    }

    /// What the rig is made of.
    pub fn spec(&self) -> &RigSpec {
        &self.spec
    }

    fn measurer(&self, host: Host, local: Option<IpAddr>) -> Measurer {
        Measurer {
            host,
            local,
            threads: self.spec.measure.threads,
            cores: self.spec.placement.measurer.cpus().to_vec(),
        }
    }

    /// A Tester toward a server that runs already.
    fn join(&mut self, server: SocketAddr, local: Option<IpAddr>) -> Result<Running, RigError> {
        let tester = Tester::open(self.measurer(Host::Here, local), None, &self.interrupted)?;
        let prober = self.running_prober(local, server);
        let pref64 = match self.spec.measure.pref64 {
            Some(pref64) => pref64,
            // Where every name has an AAAA of its own, none is synthesised.
            None if self.spec.measure.zone.aaaa_share == Share::ALL => Pref64::WELL_KNOWN,
            None => prober.learn_pref64([self.names.probe(), self.names.probe()], PROBE_NS)?,
        };
        Ok(Running {
            tester,
            dut: None,
            authority: None,
            server,
            pref64,
            unsettled: false,
        })
    }

    fn start_lab(&mut self, lab: &LabSpec) -> Result<Running, RigError> {
        let setup = lab.setup;
        let upstream = SocketAddr::from(match lab.upstream {
            Family::Ipv4 => setup.upstream_v4(),
            Family::Ipv6 => setup.upstream_v6(),
        });
        let (mut tester, authority) = self.start_authority(lab, upstream, false)?;
        let server = SocketAddr::from(setup.dut());
        let (lab_prefix, lab_len) = topology::PREF64;
        let chosen = Pref64::new(lab_prefix, lab_len).unwrap_or(Pref64::WELL_KNOWN);
        let pref64 = self.spec.measure.pref64.unwrap_or(chosen);
        let dut = match &lab.dut {
            Some(choice) => {
                let spec = self.dut_spec(setup, choice, upstream, pref64);
                let prober = self.dut_prober(server);
                let ready = || self.probe_and_burst(&prober, pref64, &mut tester);
                Some(Dut::start(spec, ready)?)
            }
            None => None,
        };
        Ok(Running {
            tester,
            dut,
            authority,
            server,
            pref64,
            unsettled: false,
        })
    }

    /// The authority at `listen`: a worker of the Tester, or a program beside it.
    fn start_authority(
        &self,
        lab: &LabSpec,
        listen: SocketAddr,
        self_test: bool,
    ) -> Result<(Tester, Option<Dut>), RigError> {
        let setup = lab.setup;
        let measure = &self.spec.measure;
        let host = setup.host(Role::Authority);
        let measurer = self.measurer(setup.host(Role::Measurer), None);
        match &lab.authority {
            AuthorityChoice::BuiltIn { workers } => {
                let zone = self.zone_config(self_test);
                let cores = self.spec.placement.authority.cpus().to_vec();
                let authority = AuthDns {
                    host,
                    listen,
                    workers: *workers,
                    cores,
                    zone,
                };
                Ok((
                    Tester::open(measurer, Some(&authority), &self.interrupted)?,
                    None,
                ))
            }
            AuthorityChoice::Profile(profile) => {
                let spec = DutSpec {
                    profile: (**profile).clone(),
                    program: None,
                    host,
                    settings: self.authority_settings(setup, listen),
                    zone: Some(ZoneFile {
                        cidr: measure.cidr,
                        config: self.zone_config(self_test),
                    }),
                };
                let name = measure.cidr.first();
                let prober = self.prober(setup.host(Role::Authority), None, listen);
                // The first name exists, with or without an AAAA.
                let probe = || match prober.answers(name, PROBE_NS) {
                    Ok(()) => Probe::Answered,
                    Err(error) => Probe::NotYet(error.to_string()),
                };
                let authority = Dut::start(spec, probe)?;
                Ok((
                    Tester::open(measurer, None, &self.interrupted)?,
                    Some(authority),
                ))
            }
        }
    }

    fn authority_settings(&self, setup: Setup, listen: SocketAddr) -> Settings {
        let (v6, v4, _) = setup.authority_listen();
        Settings {
            listen: match listen.ip() {
                IpAddr::V6(address) => address,
                IpAddr::V4(_) => v6,
            },
            listen_v4: v4,
            port: listen.port(),
            upstream: listen,
            pref64: topology::PREF64,
            suffix: self.suffix(),
            cpus: self.spec.placement.authority.clone(),
            chosen: BTreeMap::new(),
        }
    }

    /// What the authority serves, whoever it is.
    fn zone_config(&self, self_test: bool) -> ZoneConfig {
        let measure = &self.spec.measure;
        ZoneConfig {
            zone: measure.zone.clone(),
            self_test,
            ttl_s: measure.ttl_s,
            negative_ttl_s: measure.negative_ttl_s,
        }
    }

    fn dut_spec(
        &self,
        setup: Setup,
        choice: &DutChoice,
        upstream: SocketAddr,
        pref64: Pref64,
    ) -> DutSpec {
        DutSpec {
            profile: choice.profile.clone(),
            program: choice.program.clone(),
            host: setup.host(Role::Dut),
            settings: Settings {
                listen: setup.dut().0,
                listen_v4: std::net::Ipv4Addr::UNSPECIFIED,
                port: setup.dut().1,
                upstream,
                pref64: (pref64.addr(), pref64.prefix_len()),
                suffix: self.suffix(),
                cpus: self.spec.placement.dut.clone(),
                chosen: choice.settings.clone(),
            },
            zone: None,
        }
    }

    fn suffix(&self) -> String {
        self.spec
            .measure
            .zone
            .suffix
            .to_string()
            .trim_end_matches('.')
            .to_owned()
    }

    /// Asks a server that somebody else runs.
    fn running_prober(&self, local: Option<IpAddr>, server: SocketAddr) -> Prober {
        self.prober(Host::Here, local, server)
    }

    /// Asks the lab's DUT.
    fn dut_prober(&self, server: SocketAddr) -> Prober {
        let setup = self.lab.as_ref().map_or(Setup::Loopback, Lab::setup);
        self.prober(setup.host(Role::Measurer), None, server)
    }

    fn prober(&self, host: Host, local: Option<IpAddr>, server: SocketAddr) -> Prober {
        Prober {
            host,
            local,
            server,
            zone: self.spec.measure.zone.clone(),
        }
    }

    /// One question, whose answer must be the right one.
    fn probe(&mut self, prober: &Prober, pref64: Pref64, wait_ns: Nanos) -> Probe {
        if self.interrupted.load(Ordering::Relaxed) {
            return Probe::Abandoned;
        }
        let name = self.names.probe();
        let expected: Ipv6Addr = if self.names.zone().has_aaaa(name) {
            own_aaaa(name)
        } else {
            pref64.embed(name)
        };
        match prober.aaaa(name, wait_ns) {
            Ok(addresses) if addresses.contains(&expected) => Probe::Answered,
            Ok(addresses) => Probe::NotYet(format!("{addresses:?} instead of {expected}")),
            Err(error) => Probe::NotYet(error.to_string()),
        }
    }

    /// One question, a burst of them, and one more: some servers answer the first and fall silent
    /// in the midst of the burst, and before a trial is the time to find out.
    fn probe_and_burst(&mut self, prober: &Prober, pref64: Pref64, tester: &mut Tester) -> Probe {
        match self.probe(prober, pref64, PROBE_NS) {
            Probe::Answered => {}
            other => return other,
        }
        let (queries, names) = (self.names.burst_len(), self.names.burst(pref64));
        let burst = TrialSpec::preliminary(prober.server, BURST_QPS, queries, names, PROBE_NS);
        match tester.trial(&burst) {
            Ok(result) if result.queries_sent == 0 => Probe::NotYet("nothing was sent".into()),
            Ok(result) if result.answers.missing == result.queries_sent => {
                let sent = result.queries_sent;
                Probe::FellSilent(format!("none of {sent} queries at once was answered"))
            }
            Ok(_) => match self.probe(prober, pref64, PROBE_NS) {
                Probe::NotYet(why) => Probe::FellSilent(format!("after a burst: {why}")),
                answered => answered,
            },
            Err(error) => Probe::NotYet(error.to_string()),
        }
    }
}
