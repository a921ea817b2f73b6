//! The records of a journal. Their serialised form is the format of the file: see [`FORMAT`] and `docs/journal.md`
//! before a change.

use std::collections::BTreeMap;

use dns64_transport::clock::Nanos;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use super::plan::tasks::{Point, Task};
use crate::conform::report::Conformance;
use crate::lab::LabKind;
pub use crate::lab::server::Start;
use crate::load::transport::Transport;
use crate::machine::Role;
pub use crate::machine::process::{Memory, Resources};
use crate::machine::watch::HostOf;
use crate::procedure::search::{GoalResult, SearchEnd, SearchSpec};
use crate::rig::spec::SelfTestPath;
use crate::trial::result::{Outcome, TrialResult};

/// Version of the format. A reader refuses other versions by name. An added
/// key with a default is not a new version; a changed meaning or a new kind of record is.
pub const FORMAT: u32 = 2;

/// One line of the journal, without its seal.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct Line {
    /// Counts from 0 without gaps.
    pub number: u64,
    /// Time of writing: milliseconds since 1970, by the real-time clock.
    pub at_unix_ms: u64,
    /// The event.
    pub record: Record,
}

/// The event of a line.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all records of a journal are of the largest kind"
)]
#[derive(Clone, Debug, IntoStaticStr, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Record {
    /// The first line: identity of the journal.
    Campaign {
        /// [`FORMAT`] of the writer.
        format: u32,
        /// Program and version.
        tester: String,
        /// The text of the plan.
        plan: String,
        /// Name of the plan's file, for messages.
        plan_origin: String,
        /// SHA-256 of the text, in hexadecimal.
        plan_sha256: String,
        /// Command line, so that the run can be repeated.
        command: Vec<String>,
        /// Where the roles run, if a server is started: selected when the campaign began, and kept by each resume.
        lab: Option<LabKind>,
    },
    /// A process starts work on the campaign: the first one, or a resume.
    Session {
        /// The machine.
        environment: Box<Environment>,
        /// Octets of an incomplete line at the end of the file, which were cut off.
        torn_bytes: u64,
        /// Program and version.
        tester: String,
        /// SHA-256 of the program, if it could be read.
        tester_sha256: Option<String>,
    },
    /// A self-test of the Tester in a loop (RFC 8219 section 9.2.1).
    SelfTest(SelfTest),
    /// Facts of a started variant.
    Variant {
        /// Index into the plan's variants.
        variant: usize,
        /// Start of an authority that is measured; `None` for other variants, and if it ran already.
        #[serde(skip_serializing_if = "Option::is_none")]
        start: Option<Start>,
        /// What a test of conformance before its first task found; `None` in all other records, and without such a test.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        conformance: Option<Box<Conformance>>,
        /// The facts.
        #[serde(flatten)]
        facts: VariantFacts,
    },
    /// A task begins. An interrupted task with trials continues without another such record, but a search above a
    /// lowered certificate restarts.
    Started {
        /// The task.
        task: Task,
        /// How a search selects its rates.
        search: Option<SearchSpec>,
        /// The rate that overload and soak are relative to.
        base_rate_qps: Option<u64>,
    },
    /// A trial of the current task.
    Trial {
        /// The task.
        task: Task,
        /// Counts from 1 in each task.
        number: u64,
        /// Time from its request to its end, including starts of servers and rests.
        took_ns: Nanos,
        /// Its result.
        result: TrialResult,
    },
    /// A task is finished.
    Finished(TaskEnd),
    /// A task was abandoned without a result.
    Abandoned {
        /// The task.
        task: Task,
        /// Reason.
        reason: String,
    },
    /// A process stopped in an orderly way before the end of the plan.
    Stopped {
        /// Reason.
        reason: String,
    },
    /// All tasks of the plan are done.
    Complete,
}

impl Record {
    /// The task that it is about.
    pub fn task(&self) -> Option<Task> {
        match self {
            Self::Started { task, .. }
            | Self::Trial { task, .. }
            | Self::Finished(TaskEnd { task, .. })
            | Self::Abandoned { task, .. } => Some(*task),
            _ => None,
        }
    }
}

/// A self-test of the Tester.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct SelfTest {
    /// What the certificate depends on.
    pub conditions: Box<CertificateConditions>,
    /// Its end.
    pub end: Outcome,
    /// Highest self-test rate that passed.
    pub passed_rate_qps: Option<u64>,
    /// Highest certified rate for a DUT.
    pub certified_rate_qps: Option<u64>,
    /// All its trials.
    pub trials: Vec<TrialResult>,
}

/// End of a task that was not abandoned.
#[derive(Clone, Debug, JsonSchema, Serialize, Deserialize)]
pub struct TaskEnd {
    /// The task.
    pub task: Task,
    /// End of a search; `None` for other tasks.
    pub end: Option<SearchEnd>,
    /// Highest rate that passed.
    pub rate_qps: Option<u64>,
    /// Lowest rate above it that failed.
    pub failed_qps: Option<u64>,
    /// Results of the goals of a search for them; nothing for other tasks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub goals: Vec<GoalResult>,
    /// Time since its start, without interruptions.
    pub took_ns: Nanos,
}

impl TaskEnd {
    /// The end of a task without rates, of no length yet.
    pub fn of(task: Task) -> Self {
        Self {
            task,
            end: None,
            rate_qps: None,
            failed_qps: None,
            goals: Vec::new(),
            took_ns: 0,
        }
    }

    /// Whether the search gave up because the Tester was disturbed.
    pub fn is_disturbed(&self) -> bool {
        matches!(self.end, Some(SearchEnd::TesterFault { .. }))
    }
}

/// Facts of a started variant.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct VariantFacts {
    /// Its program.
    #[serde(flatten)]
    pub program: ProgramFacts,
    /// Address at which it responded.
    pub server: String,
    /// Prefix of the expected answers.
    pub pref64: String,
    /// Cores of the roles, as a list.
    pub cpus: Vec<(HostOf, String)>,
    /// The authority, if it is a separate program beside the DUT.
    pub authority: Option<Box<ProgramFacts>>,
    /// Hosts of the measurement; empty if all roles ran on one machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostNote>,
    /// Why its results are not a measurement in the sense of RFC 8219.
    pub not_a_measurement: Vec<String>,
    /// Remarks for the reader.
    pub notes: Vec<String>,
}

/// A host of a plan with several hosts, at the time of connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct HostNote {
    /// Its name in the plan.
    pub host: String,
    /// Its roles in this measurement.
    pub roles: Vec<Role>,
    /// Its own hostname; empty if unreadable.
    pub hostname: String,
    /// Its kernel; empty if unreadable.
    pub kernel: String,
    /// CPUs that its agent may use.
    pub cpus: usize,
    /// Program and version of its agent.
    pub tester: String,
    /// SHA-256 of that program.
    pub sha256: Option<String>,
}

/// Facts of a started program.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct ProgramFacts {
    /// Version that it reports.
    pub version: Option<String>,
    /// Program and arguments; empty if it ran already. `{workdir}` stands for its directory.
    pub command: Vec<String>,
    /// Environment variables that were set, by name.
    pub environment: BTreeMap<String, String>,
    /// SHA-256 of the text of its profile.
    pub profile_sha256: Option<String>,
    /// SHA-256 of its rendered configuration files, by name.
    pub files_sha256: BTreeMap<String, String>,
    /// SHA-256 of the program.
    pub program_sha256: Option<String>,
}

/// What a certificate of the Tester depends on: it is valid while all of this is unchanged, for up to
/// [`CERTIFICATE_AGE_MAX_MS`](super::state::CERTIFICATE_AGE_MAX_MS).
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct CertificateConditions {
    /// Boot ID of the machine.
    pub boot_id: String,
    /// Its kernel.
    pub kernel: String,
    /// Where the roles run, and the number of hosts.
    pub lab: String,
    /// Target of the self-test.
    pub authority: String,
    /// Threads of the Measurer.
    pub threads: usize,
    /// Transport of the queries; nothing for UDP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transport: Option<Transport>,
    /// Source ports; `None` for as many as the rate needs.
    pub sockets: Option<usize>,
    /// Address or prefix that the Measurers send from; nothing where the kernel chooses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local: Option<String>,
    /// How many source addresses of it they use; nothing where the kernel chooses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_addresses: Option<usize>,
    /// Cores of Measurer and authority.
    pub cpus: Vec<(HostOf, String)>,
    /// The names.
    pub names: String,
    /// Shares and pattern.
    pub cell: String,
    /// Length of the trials.
    pub duration_ns: Nanos,
    /// Timeout of the DUT's trials; that of the self-test is a quarter of it.
    pub timeout_ns: Nanos,
    /// Program and version of the Tester.
    pub tester: String,
    /// SHA-256 of the program: two builds of one version are different Testers.
    pub tester_sha256: Option<String>,
    /// Path of the self-test.
    pub covers: SelfTestPath,
    /// Address family between DUT and authority; the self-test uses IPv6.
    pub upstream_family: String,
    /// SHA-256 of the authority's program, if it is not the built-in one.
    pub authority_sha256: Option<String>,
    /// Whether the datagrams of the self-test were sent with segmentation offload: always false now.
    pub segmentation: Option<bool>,
    /// Their backend; `None` for kernel sockets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Span of the schedule whose queries may be sent in one system call.
    pub quantum_ns: Option<Nanos>,
    /// Maximum number of queries in one system call.
    pub burst_max: Option<u64>,
    /// Settings that change the speed of the machine, by name: clock source, frequency governor, turbo, SMT, CPU limit.
    pub host: BTreeMap<String, String>,
    /// Interfaces on the path of the datagrams: driver, MTU, offloads, by name.
    pub links: BTreeMap<String, String>,
}

impl CertificateConditions {
    /// Whether a self-test under these conditions applies to trials of this point.
    pub fn fit(&self, point: &Point) -> bool {
        let spans = (self.duration_ns, self.timeout_ns);
        spans == (point.duration_ns, point.timeout_ns) && self.cell == point.cell.to_string()
    }

    /// Whether Measurer and authority had the same cores in the self-test as beside a DUT, given the cores of all
    /// roles.
    pub fn have_cores(&self, cpus: &[(HostOf, String)]) -> bool {
        let tester = cpus.iter().filter(|(of, _)| *of != Role::Dut.into());
        tester.eq(&self.cpus)
    }
}

/// The machine of a session. Unreadable items are empty or missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Environment {
    /// Name of the machine.
    pub host: String,
    /// Boot ID, which changes at each start of the machine.
    pub boot_id: String,
    /// Kernel and its version.
    pub kernel: String,
    /// Distribution.
    pub os: String,
    /// Processor.
    pub cpu: String,
    /// Logical processors that this process may use.
    pub cpus: usize,
    /// Main memory.
    pub memory_bytes: u64,
    /// Other details, by name: SMT, frequency governor, virtualisation, interfaces with driver, MTU and offloads,
    /// sysctls, mitigations, clock source.
    pub details: BTreeMap<String, String>,
    /// Interfaces of its own network, of the hosts of a lab, and the test links of the hosts of a plan.
    pub interfaces: Vec<InterfaceFacts>,
}

/// The facts of an interface that are compared with others.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct InterfaceFacts {
    /// Its host in a lab or in a plan with several hosts; `None` for the machine's own network.
    pub host: Option<String>,
    /// Its name.
    pub name: String,
    /// Kind or driver.
    pub driver: Option<String>,
    /// Largest IP packet in octets.
    pub mtu: u32,
    /// Speed in Mbit/s.
    pub speed_mbps: Option<u32>,
}
