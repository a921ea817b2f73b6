//! The records of a journal. Their serialised form is the format of the file: see
//! [`FORMAT`] and `docs/journal.md` before a change.

use std::collections::BTreeMap;

use dns64_transport::clock::Nanos;
use serde::{Deserialize, Serialize};

use super::tasks::{Point, Task};
use crate::lab::LabKind;
pub use crate::lab::process::{Memory, Resources};
pub use crate::lab::server::Start;
use crate::lab::topology::Role;
use crate::procedure::search::{SearchEnd, SearchSpec};
use crate::trial::result::{Outcome, TrialResult};

/// Version of the format. A reader reads its own version and those before it, and refuses later
/// ones by name. An added key that has a default is no new version; a changed meaning and another
/// kind of record are.
pub const FORMAT: u32 = 2;

/// One line of the journal, without its seal.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    /// Counts from 0 without gaps.
    pub number: u64,
    /// When it was written: milliseconds since 1970, by the real-time clock.
    pub at_unix_ms: u64,
    /// What happened.
    pub record: Record,
}

/// What happened.
#[expect(
    clippy::large_enum_variant,
    reason = "nearly all records of a journal are of the largest kind"
)]
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// The first line: what this journal is.
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
        /// What was typed, so that it can be repeated.
        command: Vec<String>,
        /// Where the roles run, if a server has to be started: chosen when the campaign began, and
        /// kept by whoever resumes it.
        #[serde(default)]
        lab: Option<LabKind>,
    },
    /// A process begins to work on the campaign: the first, or one that resumes.
    Session {
        /// The machine as it is.
        environment: Box<Environment>,
        /// Octets of half a line at the end of the file, which were cut off.
        torn_bytes: u64,
        /// Program and version; empty in journals from before this key.
        #[serde(default)]
        tester: String,
        /// SHA-256 of the program, if it could be read.
        #[serde(default)]
        tester_sha256: Option<String>,
    },
    /// The Tester was looped back on itself (RFC 8219 section 9.2.1).
    SelfTest(SelfTest),
    /// What a variant turned out to be when it was started.
    Variant {
        /// Index into the plan's variants.
        variant: usize,
        /// How the start went of an authority that is measured; `None` of others, and if it ran already.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        start: Option<Start>,
        /// What it turned out to be.
        #[serde(flatten)]
        facts: VariantFacts,
    },
    /// A task begins; one that was interrupted and has trials goes on without another, but a
    /// search whose certificate is lower now restarts.
    Started {
        /// Which.
        task: Task,
        /// How a search chooses its rates.
        search: Option<SearchSpec>,
        /// The rate that overload and soak are relative to.
        base_rate_qps: Option<u64>,
    },
    /// A trial of the task under way.
    Trial {
        /// Which task.
        task: Task,
        /// Counts from 1 in each task.
        number: u64,
        /// From when it was called for until it was over, servers' starts and rests included.
        took_ns: Nanos,
        /// What it found.
        result: TrialResult,
    },
    /// A task is over.
    Finished(TaskEnd),
    /// A task was given up and has no result.
    Abandoned {
        /// Which.
        task: Task,
        /// Why.
        reason: String,
    },
    /// A process stopped before the end of the plan, in good order.
    Stopped {
        /// Why.
        reason: String,
    },
    /// All tasks of the plan are done.
    Complete,
}

impl Record {
    /// What kind of record it is, as the file says it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Campaign { .. } => "campaign",
            Self::Session { .. } => "session",
            Self::SelfTest(_) => "self_test",
            Self::Variant { .. } => "variant",
            Self::Started { .. } => "started",
            Self::Trial { .. } => "trial",
            Self::Finished(_) => "finished",
            Self::Abandoned { .. } => "abandoned",
            Self::Stopped { .. } => "stopped",
            Self::Complete => "complete",
        }
    }
}

/// A self-test of the Tester.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SelfTest {
    /// What the certificate is tied to.
    pub conditions: Box<CertificateConditions>,
    /// How it ended.
    pub end: Outcome,
    /// The highest self-test rate that passed.
    pub passed_rate_qps: Option<u64>,
    /// The highest rate of a DUT for which the Tester is good now.
    pub certified_rate_qps: Option<u64>,
    /// All its trials.
    pub trials: Vec<TrialResult>,
}

/// The end of a task that was not given up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TaskEnd {
    /// Which.
    pub task: Task,
    /// How a search ended; `None` for other tasks.
    pub end: Option<SearchEnd>,
    /// The fastest rate that passed.
    pub rate_qps: Option<u64>,
    /// The slowest rate that failed above it.
    pub failed_qps: Option<u64>,
    /// From its start, interruptions not counted.
    pub took_ns: Nanos,
}

impl TaskEnd {
    /// Whether the Tester was disturbed until the search gave up.
    pub fn is_disturbed(&self) -> bool {
        matches!(self.end, Some(SearchEnd::TesterFault(_)))
    }
}

/// What a variant turned out to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VariantFacts {
    /// What its program says of itself.
    pub version: Option<String>,
    /// Where it answered.
    pub server: String,
    /// The prefix of the expected answers.
    pub pref64: String,
    /// Cores of the roles: role and list.
    pub cpus: Vec<(String, String)>,
    /// SHA-256 of its rendered configuration files, by name.
    pub files_sha256: BTreeMap<String, String>,
    /// SHA-256 of its program.
    pub program_sha256: Option<String>,
    /// Program and arguments that it was started with; none if it ran already, or in journals from
    /// before this key. `{workdir}` stands for its directory.
    #[serde(default)]
    pub command: Vec<String>,
    /// What was set in its environment, by name.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// SHA-256 of the text of its profile.
    #[serde(default)]
    pub profile_sha256: Option<String>,
    /// The authority, where it is a program of its own beside the DUT.
    #[serde(default)]
    pub authority: Option<Box<ProgramFacts>>,
    /// The hosts of the measurement; none if all roles were on one machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostNote>,
    /// Why its results are no measurement in the sense of RFC 8219.
    pub not_a_measurement: Vec<String>,
    /// Remarks for the reader.
    pub notes: Vec<String>,
}

/// A host of a plan over several, as it was when it was reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostNote {
    /// Its name in the plan.
    pub host: String,
    /// What it is for in this measurement.
    pub roles: Vec<Role>,
    /// The name that it has for itself; empty if it cannot be read.
    pub hostname: String,
    /// Its kernel; empty if it cannot be read.
    pub kernel: String,
    /// CPUs that its agent may use.
    pub cpus: usize,
    /// Program and version of its agent.
    pub tester: String,
    /// SHA-256 of that program.
    pub sha256: Option<String>,
}

/// What a program was that was started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramFacts {
    /// What it says of itself.
    pub version: Option<String>,
    /// Program and arguments, with `{workdir}` in place of its directory.
    pub command: Vec<String>,
    /// What was set in its environment, by name.
    pub environment: BTreeMap<String, String>,
    /// SHA-256 of the text of its profile.
    pub profile_sha256: Option<String>,
    /// SHA-256 of its rendered configuration files, by name.
    pub files_sha256: BTreeMap<String, String>,
    /// SHA-256 of the program.
    pub program_sha256: Option<String>,
}

/// What a certificate of the Tester is tied to: it holds while all of this is the same, and for
/// [`CERTIFICATE_AGE_MAX_MS`](super::state::CERTIFICATE_AGE_MAX_MS). Journals of earlier versions lack
/// the keys with a default; their certificates hold for nothing measured now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateConditions {
    /// Identity of the machine since its last start.
    pub boot_id: String,
    /// Its kernel.
    pub kernel: String,
    /// Where the roles run, and how many hosts there are.
    pub lab: String,
    /// Whom the self-test asks.
    pub authority: String,
    /// Threads of the Measurer.
    pub threads: usize,
    /// Source ports; `None` for as many as the rate needs.
    pub sockets: Option<usize>,
    /// Cores of Measurer and authority.
    pub cpus: Vec<(String, String)>,
    /// The names.
    pub names: String,
    /// Shares and pattern.
    pub cell: String,
    /// Length of the trials.
    pub duration_ns: Nanos,
    /// Timeout of the DUT's trials; that of the self-test is a quarter.
    pub timeout_ns: Nanos,
    /// Program and version of the Tester.
    #[serde(default)]
    pub tester: String,
    /// SHA-256 of the program: two builds of one version are two Testers.
    #[serde(default)]
    pub tester_sha256: Option<String>,
    /// What the self-test goes through: roles and links, in words.
    #[serde(default)]
    pub covers: String,
    /// Between DUT and authority; the self-test asks over IPv6.
    #[serde(default)]
    pub upstream_family: String,
    /// SHA-256 of the authority's program, if that is not the Tester.
    #[serde(default)]
    pub authority_sha256: Option<String>,
    /// Whether the datagrams of the self-test travelled in segmented runs: they never do now.
    #[serde(default)]
    pub segmentation: Option<bool>,
    /// What carried them; nothing for kernel sockets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Span of the schedule whose queries may leave in one system call.
    #[serde(default)]
    pub quantum_ns: Option<Nanos>,
    /// Queries that leave in one system call at most.
    #[serde(default)]
    pub burst_max: Option<u64>,
    /// What makes the machine faster or slower, by its name: clock source, frequency governor, turbo,
    /// SMT, limit of the processors.
    #[serde(default)]
    pub host: BTreeMap<String, String>,
    /// The interfaces that datagrams pass: driver, MTU, offloads, by their name.
    #[serde(default)]
    pub links: BTreeMap<String, String>,
}

impl CertificateConditions {
    /// Whether a self-test under these is for trials of this point.
    pub fn fit(&self, point: &Point) -> bool {
        let spans = (self.duration_ns, self.timeout_ns);
        spans == (point.duration_ns, point.timeout_ns) && self.cell == point.cell.to_string()
    }

    /// Whether Measurer and authority had the same cores in it as beside a DUT, given all roles and theirs.
    pub fn have_cores(&self, cpus: &[(String, String)]) -> bool {
        let tester = cpus.iter().filter(|(role, _)| role != "DUT");
        tester.eq(&self.cpus)
    }
}

/// The machine that a session ran on. What cannot be read is an empty text or missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Name of the machine.
    pub host: String,
    /// Changes at each start of the machine.
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
    /// Everything else, by its name: SMT, frequency governor, virtualisation, interfaces with driver,
    /// MTU and offloads, sysctls, mitigations, clock source.
    pub details: BTreeMap<String, String>,
    /// The interfaces of its own network, of the hosts of a lab, and the test links of the hosts of a plan; empty in
    /// journals from before this key.
    #[serde(default)]
    pub interfaces: Vec<InterfaceFacts>,
}

/// What of an interface is compared with others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceFacts {
    /// The host of a lab, of a plan over several hosts by its name there; `None` for the machine's own network.
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
