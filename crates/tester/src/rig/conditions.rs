//! Conditions of the trials of a rig, as texts for a report.

use dns64_transport::Backend;
use dns64_transport::address::Shown;
use dns64_transport::socket::Segmentation;
use schemars::JsonSchema;
use serde::Serialize;

use super::hosts::RigHosts;
use super::servers::Servers;
use super::spec::{AuthorityChoice, LabSpec, Subject};
use super::{Rig, sources};
use crate::lab::profile::with_version;
use crate::lab::topology::Setup;
use crate::lab::userns;
use crate::load::query::{Edns, Types};
use crate::load::transport::Transport;
use crate::machine::watch::HostOf;
use crate::machine::{Role, interface};
use crate::namespace::Share;
use crate::procedure::certificate::Certificate;
use crate::quantity::Thousands;
use crate::rig::spec::SelfTestPath;

/// Conditions of the trials of a report.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
pub struct Conditions {
    /// Program and version of the Tester.
    pub tester: String,
    /// Address and port of the server under test.
    pub server: String,
    /// Profile and version of the DUT in a lab.
    pub dut: Option<String>,
    /// "built-in", NSD and its version, or `None` if the server was already running.
    pub authority: Option<String>,
    /// Location of the roles: "netns", "userns", "loopback"; `None` for a server that was already running.
    pub lab: Option<String>,
    /// "three-device" or "two-device".
    pub setup: Option<String>,
    /// Address family between DUT and authority: "IPv4" or "IPv6".
    pub upstream_family: Option<String>,
    /// Prefixes of the expected answers.
    pub pref64: Option<String>,
    /// IPv4 addresses whose names are queried.
    pub namespace: String,
    /// Share of the names that have their own AAAA.
    pub aaaa_share: String,
    /// Addresses and aliases of the names, if they have others than one A and one AAAA record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_records: Option<String>,
    /// Share of the queries for repeated names.
    pub cached_share: String,
    /// Pattern of the repeated names, if there are any.
    pub cached_pattern: Option<String>,
    /// EDNS of the queries, if they carry any: "plain", "do" or "cookie".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edns: Option<String>,
    /// Types of the queries and their shares, if not all are for AAAA.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub types: Option<String>,
    /// Threads of the Measurer.
    pub threads: usize,
    /// Transport of the queries; `None` for UDP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<Transport>,
    /// Source ports of the Measurer, or its connections; `None` for a number that depends on the rate.
    pub sockets: Option<usize>,
    /// Source address or prefix of the Measurer; `None` if the kernel chose it.
    pub local: Option<String>,
    /// Number of its source addresses; `None` if the kernel chose them.
    pub source_addresses: Option<usize>,
    /// CPUs of each role, as a list.
    pub cpus: Vec<(HostOf, String)>,
    /// Whether the Measurer sent segmented runs of datagrams; over AF_XDP all are single.
    pub segmentation: bool,
    /// Backend of the Measurer: "socket", "xdp" or "xdp,force".
    pub backend: String,
    /// That of the built-in authority, or "driver (native)" or "driver (generic)" for its XDP program; `None` for another
    /// authority.
    pub authority_backend: Option<String>,
    /// Maximum number of queries per system call.
    pub burst_max: u64,
    /// Highest rate for which the Tester passed its self-tests.
    pub certified_rate_qps: Option<u64>,
    /// Certificate of those self-tests.
    pub certificate: Option<Certificate>,
    /// Path that self-tests cover; `None` if there is no server to query.
    pub self_test_covers: Option<String>,
    /// Reasons why the result is not a measurement in the sense of RFC 8219; empty if it is one. An uncertified rate
    /// need not be listed.
    pub not_a_measurement: Vec<String>,
    /// How times and number of the trials differ from those of RFC 8219, if they do.
    pub deviation: Option<String>,
    /// Other deviations from the recommendations of RFC 8219, and remarks.
    pub notes: Vec<String>,
}

impl Conditions {
    /// Returns the source addresses as text, if they were configured.
    pub fn sources(&self) -> Option<String> {
        Some(sources::words(self.local.as_ref()?, self.source_addresses?))
    }

    /// Returns which datagrams the server saw, and how both ends of the Tester sent and received them.
    pub fn datagrams(&self) -> String {
        let shape = match self.segmentation {
            true => "segmented runs",
            false => "single",
        };
        let authority = self.authority_backend.iter();
        let authority: String = authority
            .map(|by| format!(", authority over {by}"))
            .collect();
        format!("{shape}; Measurer over {}{authority}", self.backend)
    }

    /// Returns whether the Tester passed its self-test for a DUT at `rate_qps`.
    pub fn certifies(&self, rate_qps: u64) -> bool {
        self.certified_rate_qps
            .is_some_and(|certified| rate_qps <= certified)
    }

    /// Returns all reasons why trials at rates up to `rate_qps` are not a measurement.
    pub fn watermarks(&self, rate_qps: u64) -> Vec<String> {
        let mut reasons = self.not_a_measurement.clone();
        if !self.certifies(rate_qps) {
            reasons.push(match self.certified_rate_qps {
                Some(certified) => format!(
                    "the Tester is certified up to {} queries/s only (RFC 8219 section 9.2.1)",
                    Thousands(certified)
                ),
                None => "the Tester is not certified (RFC 8219 section 9.2.1)".to_owned(),
            });
        }
        reasons
    }
}

impl Rig {
    /// Returns the conditions of an open or started rig. `notes` are remarks that come first.
    pub fn conditions(&self, notes: &[String]) -> Conditions {
        let load = &self.spec.load;
        let mut conditions = Conditions {
            tester: crate::PROGRAM.to_owned(),
            namespace: format!(
                "{}, {{000..255}}-{{000..255}}-{{000..255}}-{{000..255}}.{}",
                load.cidr, load.zone.suffix
            ),
            aaaa_share: load.zone.aaaa_share.to_string(),
            name_records: (!load.zone.records.are_plain()).then(|| load.zone.records.to_string()),
            cached_share: load.cached_share.to_string(),
            cached_pattern: (load.cached_share != Share::NONE).then(|| load.pattern.to_string()),
            edns: (load.form.edns != Edns::None).then(|| load.form.edns.to_string()),
            types: (load.form.types != Types::default()).then(|| load.form.types.to_string()),
            threads: load.threads,
            transport: Some(load.transport).filter(Transport::is_stream),
            sockets: load.ports,
            local: load.local.map(|it| it.to_string()),
            source_addresses: sources::used(load, self.reached().map(RigHosts::site)),
            segmentation: load.segmentation == Segmentation::On && self.backend == Backend::Socket,
            backend: self.backend.to_string(),
            burst_max: load.burst_max,
            self_test_covers: self.self_test_path().map(|path| path.to_string()),
            cpus: self.cpus(),
            notes: notes.to_vec(),
            ..Conditions::default()
        };
        if let Some((server, pref64)) = self.server() {
            conditions.server = Shown(server).to_string();
            conditions.pref64 = Some(pref64.to_string());
        }
        conditions.not_a_measurement.extend(load.flaws());
        match &self.spec.subject {
            Subject::Lab(lab) => self.describe_lab(&mut conditions, lab),
            Subject::Server { server, .. } => {
                if interface::is_own(*server) || interface::is_elsewhere(*server) {
                    let reason =
                        "the server runs on the machine of the Tester and shares its processors";
                    conditions.not_a_measurement.push(reason.to_owned());
                }
                let covers = conditions.self_test_covers.iter();
                let note = covers.map(|what| format!("a certificate covers {what}"));
                conditions.notes.extend(note);
            }
        }
        conditions
    }

    /// Returns the path that a self-test covers.
    pub fn self_test_path(&self) -> Option<SelfTestPath> {
        match &self.spec.subject {
            Subject::Server {
                self_test_server, ..
            } => self_test_server.map(|_| SelfTestPath::TesterAlone),
            Subject::Lab(_) => self.hosts.as_ref().map(RigHosts::self_test_path),
        }
    }

    /// Returns the cores of the roles with an affinity: role and list.
    fn cpus(&self) -> Vec<(HostOf, String)> {
        match &self.hosts {
            Some(hosts) => hosts.cpus(self.spec.subject.dut()),
            None => {
                let cpus = Some(&self.placement.measurer);
                let kept = cpus.filter(|cpus| !cpus.is_unrestricted()).into_iter();
                kept.map(|cpus| (Role::Measurer.into(), cpus.to_string()))
                    .collect()
            }
        }
    }

    fn describe_lab(&self, conditions: &mut Conditions, lab: &LabSpec) {
        let namespaces = if userns::inside() { "userns" } else { "netns" };
        let kind = match (lab.setup, &lab.at) {
            (_, Some(_)) => "hosts",
            (Setup::Loopback, _) => "loopback",
            (Setup::TwoDevice | Setup::ThreeDevice, _) => namespaces,
        };
        let setup = self.hosts.as_ref().and_then(RigHosts::setup);
        conditions.lab = Some(kind.to_owned());
        conditions.setup = setup.map(str::to_owned);
        if self.reached().is_none() {
            let shared = "all hosts of the lab share the cores, caches and memory of one machine";
            conditions.notes.push(shared.to_owned());
        }
        conditions.upstream_family = Some(self.upstream(lab).to_string());
        let authority = self.profiles.authority.as_ref();
        conditions.authority =
            Some(authority.map_or_else(|| lab.authority.to_string(), |p| p.name.clone()));
        conditions.notes.extend(lab.authority.remark());
        conditions.authority_backend = match &lab.authority {
            AuthorityChoice::BuiltIn => Some(self.backend.to_string()),
            AuthorityChoice::InDriver(mode) => Some(format!("driver ({mode})")),
            AuthorityChoice::Profile { .. } => None,
        };
        let why = self.no_af_xdp.iter();
        let why =
            why.map(|why| format!("the Tester uses kernel sockets, because AF_XDP failed: {why}"));
        conditions.notes.extend(why);
        if let Some(profile) = &self.profiles.dut {
            let dut = self.dut();
            let run_by = dut.map(Servers::program).unwrap_or_default();
            let version = run_by.version.as_deref().unwrap_or("version unknown");
            conditions.dut = Some(with_version(&profile.name, version));
            let kept = run_by.cores.map(|how| format!("cores of the DUT {how}"));
            conditions.notes.extend(kept);
            if !profile.caches && self.spec.load.cached_share != Share::NONE {
                let idle = "the DUT has no cache: names are repeated nevertheless";
                conditions.notes.push(idle.to_owned());
            }
            let buffer = profile.receive_buffer.as_ref();
            let buffer = buffer.map(|text| format!("DUT receive buffer: {text}"));
            conditions.notes.extend(buffer);
        }
        conditions.not_a_measurement.extend(lab.flaws());
        if lab.dut.is_some() && lab.at.is_none() && self.placement.shares_a_core() {
            let reason = "the Tester and the DUT share a core";
            conditions.not_a_measurement.push(reason.to_owned());
        }
    }
}
