//! Converts arguments to a measurement.

use std::net::{IpAddr, SocketAddr};

use super::args::{LoadArgs, MayLoadArgs, MeasureArgs, NameArgs, OutputArgs, SubjectArgs};
use crate::authority::behaviour::Behaviour;
use crate::lab::LabKind;
use crate::load::catch_up::Limits;
use crate::namespace::{DEFAULT_NAMESPACE, Share, Zone};
use crate::procedure::selftest::self_test_rate;
use crate::rig::recommended::Recommended;
use crate::rig::sources::{self, SourcesError};
use crate::rig::spec::{AuthorityChoice, DutChoice, LabSpec, Load, RigSpec, Subject};
use crate::rig::zones::{self, Demand};

/// A measurement and its output.
#[derive(Debug)]
pub struct Measurement {
    /// Subject and load.
    pub spec: RigSpec,
    /// Where the roles run, if it needs a lab.
    pub lab: LabKind,
    /// Whose servers may be measured.
    pub may_load: MayLoadArgs,
    /// Whether the user has given the range of names.
    pub has_namespace: bool,
    /// Measure without a certificate.
    pub uncertified: bool,
    /// Self-tests of a certificate.
    pub self_tests: usize,
    /// Destinations of the output.
    pub output: OutputArgs,
}

impl Measurement {
    /// Requirements of trials of the DUT up to this rate, with their self-tests, for the authority; without a DUT, of
    /// the self-tests for this rate. Unless the user has given the range of names, an authority that is a program gets
    /// only as many as needed.
    pub fn fit_zone(&mut self, highest_qps: Option<u64>) -> Demand {
        let lab = self.spec.subject.lab();
        let self_test = !self.uncertified || self.spec.subject.is_authority();
        let demand = Demand {
            self_test,
            highest_qps: match self_test {
                true => highest_qps.map(self_test_rate),
                false => highest_qps,
            },
        };
        let is_program = lab.is_some_and(|lab| lab.authority.is_program());
        if is_program && !self.has_namespace {
            self.spec.load.cidr = zones::smallest(&self.spec.load, demand);
        }
        demand
    }

    /// Recommendations of RFC 8219 for this number of searches.
    pub fn recommended(&self, searches: Option<u32>) -> Recommended<'_> {
        let server = match &self.spec.subject {
            Subject::Server { server, .. } if server.is_ipv4() => Some("the server"),
            _ => None,
        };
        Recommended {
            duration_ns: self.spec.load.duration_ns,
            timeout_ns: self.spec.load.timeout_ns,
            runs: searches,
            ipv4_servers: server.into_iter().collect(),
            // Already in the conditions.
            behaviours: Vec::new(),
        }
    }
}

/// Whether a measurement needs a DUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// It measures a DUT: `trial` and `search`.
    Dut,
    /// It measures without a DUT: `selftest`.
    AuthorityOnly,
}

/// Why a combination of flags is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsageError {
    /// Neither `--server` nor `--dut`.
    #[error(
        "no server to measure; give --server ADDR [--port PORT] for a running server, or --dut PROFILE to start one in a lab"
    )]
    NoServer,
    /// Both of them.
    #[error(
        "--server and --dut cannot be combined; give --server ADDR for a running server, or --dut PROFILE to start one in a lab"
    )]
    TwoServers,
    /// A thread would have no socket.
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
    /// No rate could be tried.
    #[error("--start-rate {start} is beyond --max-rate {max}; lower the one or raise the other")]
    StartRate {
        /// As given.
        start: u64,
        /// As given.
        max: u64,
    },
    /// No name is repeated.
    #[error(
        "--cached-pattern has no effect because --cached-share is 0; omit it, or add for example --cached-share 80%"
    )]
    Pattern,
    /// Source addresses from which this cannot be measured.
    #[error(transparent)]
    Sources(#[from] SourcesError),
    /// A host name has no usable address.
    #[error(
        "cannot find the address of --server {name}: {why}; check the name, or give the address"
    )]
    UnknownHost {
        /// As given.
        name: String,
        /// Error of the system.
        why: String,
    },
    /// Faults can be configured only for the built-in authority behind a DUT.
    #[error("--authority-behaviour is for the built-in authority behind a DNS64 server; {0}")]
    Behaviour(&'static str),
    /// The arguments of dns64perf++ or dns64perf are invalid; the text says which, and what is needed.
    #[error("{0}")]
    Dns64Perf(String),
}

impl MeasureArgs {
    /// Combines the flags.
    ///
    /// # Errors
    ///
    /// Contradictory flags, or a missing server.
    pub fn resolve(self, needs: Needs) -> Result<Measurement, UsageError> {
        let Self {
            subject,
            load,
            names,
            limits,
            output,
        } = self;
        let limits = Limits {
            max_stall_ns: limits.max_stall,
            max_burst_queries: limits.max_burst,
            max_rate_error_pct: limits.max_rate_error,
            max_stolen_pct: limits.max_stolen,
        };
        let (lab, uncertified) = (subject.lab.unwrap_or_default(), subject.uncertified);
        let (self_tests, may_load) = (subject.self_tests.into(), subject.may_load);
        let has_namespace = names.namespace.is_some();
        let first = load.local.map(|local| local.address(0));
        let subject = subject.resolve(first, needs)?;
        load.local
            .map_or(Ok(()), |local| sources::check(&subject, local))?;
        Ok(Measurement {
            spec: RigSpec {
                subject,
                load: Load {
                    limits,
                    ..load.resolve(names)?
                },
            },
            lab,
            may_load,
            has_namespace,
            uncertified,
            self_tests,
            output,
        })
    }
}

impl SubjectArgs {
    fn resolve(self, local: Option<IpAddr>, needs: Needs) -> Result<Subject, UsageError> {
        match (self.server.clone(), &self.dut, needs) {
            (Some(_), Some(_), _) => Err(UsageError::TwoServers),
            (None, None, Needs::Dut) => Err(UsageError::NoServer),
            (Some(name), None, needs) => {
                let server = name.address(local).map_err(|why| UsageError::UnknownHost {
                    name: name.to_string(),
                    why: why.to_string(),
                })?;
                let server = SocketAddr::new(server, self.port.unwrap_or(DNS_PORT));
                Ok(Subject::Server {
                    server,
                    self_test_server: match needs {
                        Needs::Dut => self.self_test_server,
                        Needs::AuthorityOnly => Some(server),
                    },
                })
            }
            (None, _, _) => Ok(Subject::Lab(Box::new(LabSpec {
                behaviour: self.behaviour(needs)?,
                at: None,
                setup: self.setup.unwrap_or_default(),
                dut: self.dut.map(|profile| DutChoice {
                    profile,
                    host: None,
                    program: self.dut_binary,
                    settings: self.dut_set.into_iter().collect(),
                    restart: self.restart,
                    cpus: self.dut_cpus.unwrap_or_default(),
                }),
                upstream: self.upstream_family,
                authority: self.authority.unwrap_or_default(),
                authority_cpus: self.authority_cpus.unwrap_or_default(),
            }))),
        }
    }
}

impl SubjectArgs {
    /// The configured faults of the authority, if it supports them.
    fn behaviour(&self, needs: Needs) -> Result<Behaviour, UsageError> {
        let behaviour = self.authority_behaviour.clone().unwrap_or_default();
        let other = match (&self.authority, needs) {
            _ if behaviour.is_none() => None,
            (_, Needs::AuthorityOnly) => Some("omit it in a self-test"),
            (Some(AuthorityChoice::Profile { .. } | AuthorityChoice::InDriver(_)), _) => {
                Some("omit --authority")
            }
            _ => None,
        };
        other.map_or(Ok(behaviour), |remedy| Err(UsageError::Behaviour(remedy)))
    }
}

impl LoadArgs {
    fn resolve(self, names: NameArgs) -> Result<Load, UsageError> {
        let threads = self.threads;
        if let Some(sockets) = self.sockets.filter(|&sockets| sockets < threads) {
            return Err(UsageError::FewSockets { sockets, threads });
        }
        if names.cached_pattern.is_some() && names.cached_share == Share::NONE {
            return Err(UsageError::Pattern);
        }
        Ok(Load {
            duration_ns: self.duration,
            timeout_ns: self.timeout,
            threads: threads.into(),
            ports: self.sockets.map(usize::from),
            local: self.local,
            segmentation: self.segmentation,
            backend: self.backend.resolve(),
            burst_max: self.burst,
            cpus: self.cpus.unwrap_or_default(),
            cidr: names.namespace.unwrap_or(DEFAULT_NAMESPACE),
            zone: Zone {
                suffix: names.suffix,
                aaaa_share: names.aaaa_share,
            },
            cached_share: names.cached_share,
            pattern: names.cached_pattern.unwrap_or_default(),
            pref64: names.pref64,
            ..Load::default()
        })
    }
}

/// RFC 1035 section 4.2.
const DNS_PORT: u16 = 53;
