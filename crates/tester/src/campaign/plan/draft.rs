//! What flags or keys have set so far, before it becomes a measurement.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::Plan;
use super::places::Place;
use super::server::ServerName;
use crate::authority::behaviour::{Behaviour, Delay};
use crate::lab::hosts::{HostSpec, LinkEnd, Reach};
use crate::load::pace::Pacing;
use crate::machine::cpuset::CpuSet;
use crate::namespace::{Cidr, Pattern, Share, Zone};
use crate::naming::Naming;
use crate::quantity::ValueError;

/// The values of settings. Those of which a plan has one stand in [`Self::plan`], whose variants and cells follow from the
/// others.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    /// Where paths begin.
    pub(super) directory: Directory,
    /// How faults name settings.
    pub(super) naming: Naming,
    /// Settings that are given, not by default.
    pub(super) given: Vec<Place>,
    /// What needs no other value.
    pub plan: Plan,
    pub(super) inventory: Option<String>,
    /// The range of names, if it is given.
    pub namespace: Option<Cidr>,
    pub(super) start_qps: Option<u64>,
    pub(super) max_qps: Option<u64>,
    pub(super) is_fixed_range: bool,
    pub(super) reuse: Option<bool>,
    pub(super) stop_early: Option<bool>,
    pub(super) grid: Option<String>,
    pub(super) aaaa_shares: Vec<Share>,
    pub(super) cached_shares: Vec<Share>,
    pub(super) patterns: Vec<Pattern>,
    /// The DUT that is being read.
    pub(super) dut: Dut,
    pub(super) duts: Vec<Dut>,
    /// The host that is being read.
    pub(super) host: Host,
    /// In the order of the plan.
    pub(super) hosts: Vec<Host>,
    /// The end of a link that is being read.
    pub(super) link: LinkEnd,
    /// A running server, on the command line.
    pub server: Option<ServerName>,
    /// Its port.
    pub port: Option<u16>,
    /// AF_XDP on an interface with a default route.
    pub is_forced: bool,
}

/// A `[[dut]]`.
#[derive(Clone, Debug, Default)]
pub(super) struct Dut {
    pub place: Place,
    pub name: Option<String>,
    pub profile: Option<String>,
    pub server: Option<SocketAddr>,
    pub authority: Option<String>,
    pub host: Option<String>,
    pub binary: Option<PathBuf>,
    pub self_test_server: Option<SocketAddr>,
    pub behaviours: Vec<Behaviour>,
    pub cores: Vec<CpuSet>,
    pub namespaces: Vec<Cidr>,
    pub pacings: Vec<Pacing>,
    pub set: BTreeMap<String, String>,
    pub sweep: BTreeMap<String, Vec<String>>,
}

/// A table of `[hosts]`.
#[derive(Clone, Debug, Default)]
pub(super) struct Host {
    pub place: Place,
    /// Every way to it that is given.
    pub reach: Vec<Reach>,
    /// The rest of it.
    pub spec: HostSpec,
}

/// The directory of a plan, or the working directory: paths in settings are relative to it.
#[derive(Clone, Debug, Default)]
pub(super) struct Directory(PathBuf);

impl Draft {
    /// No plan or flags: all defaults.
    pub(super) fn new(directory: Directory) -> Self {
        Self {
            directory,
            ..Self::default()
        }
    }

    /// Whether a DUT is to be started.
    pub fn has_profile(&self) -> bool {
        self.dut.profile.is_some()
    }

    /// Completes what flags measure: a running server, or else the DUT of a profile, or else the authority alone. Without
    /// a DUT, a running server is an authority.
    pub fn choose(&mut self, server: Option<SocketAddr>, has_dut: bool) {
        self.dut.server = server;
        if !has_dut {
            self.dut.self_test_server = server;
        }
        if server.is_none() && !self.has_profile() {
            self.dut.authority = Some(self.plan.hosts.authority.to_string());
            self.dut.cores = vec![self.plan.hosts.authority_cpus.clone()];
        }
    }

    /// The zone of an authority.
    pub fn zone(&self) -> Zone {
        Zone {
            aaaa_share: self.aaaa_shares.first().copied().unwrap_or_default(),
            ..self.plan.load.zone.clone()
        }
    }

    /// The pacing of a trial.
    pub fn pacing(&self) -> Pacing {
        self.dut.pacings.first().copied().unwrap_or_default()
    }

    /// Whether a key of a table is given.
    pub(super) fn has(&self, place: &Place) -> bool {
        self.given.contains(place)
    }
}

impl Directory {
    /// That of the file with this path.
    pub(super) fn of(origin: &str) -> Self {
        Self(
            Path::new(origin)
                .parent()
                .map_or_else(PathBuf::new, Path::to_path_buf),
        )
    }

    pub(super) fn beside(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    /// Name of a built-in profile, or path of a file, by the rule of
    /// [`Profile::load`](crate::lab::profile::Profile::load).
    pub(super) fn profile(&self, name: &str) -> String {
        match name.contains('/') || name.ends_with(".toml") {
            true => self.beside(name).to_string_lossy().into_owned(),
            false => name.to_owned(),
        }
    }

    pub(super) fn behaviour(&self, text: &str) -> Result<Behaviour, ValueError> {
        let mut behaviour = text.parse::<Behaviour>()?;
        if let Delay::File(path) = &mut behaviour.delay {
            *path = self.0.join(&*path);
        }
        Ok(behaviour)
    }
}
