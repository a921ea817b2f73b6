//! What controller and agent say to each other, whatever the requests are about.
//!
//! The controller's first call is a [`Hello`], which is answered with a [`Welcome`] or a [`Refusal`]. After
//! that each call has an ID, which its answer repeats; one call is under way at a time.

use dns64_transport::clock::Nanos;
use dns64_transport::cpu;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::program;
use crate::PROGRAM;
use crate::lab::machine::Machine;

/// Version of this protocol. Another one is another language: nothing but [`Hello`] and its answer is
/// understood by both.
pub const VERSION: u32 = 1;

/// What the controller sends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Call {
    /// The first call of a connection.
    Hello(Hello),
    /// Asks for the moments of its arrival and of its answer on the agent's monotonic clock.
    Clock {
        /// Repeated by the answer.
        id: u64,
    },
    /// Something to be done by the agent's [`Work`](super::serve::Work).
    Request {
        /// Repeated by the answer.
        id: u64,
        /// What is to be done.
        request: Value,
    },
}

/// What the agent sends, once for each call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The host is at the controller's disposal until the connection ends.
    Welcome(Welcome),
    /// It is not; the agent ends.
    Refused(Refusal),
    /// The two moments.
    Clock {
        /// That of the call.
        id: u64,
        /// When the call had been read, on the agent's monotonic clock.
        received_ns: Nanos,
        /// When this answer was about to be written, on the same clock.
        sent_ns: Nanos,
    },
    /// The request was carried out. The blobs follow in frames of their own.
    Done {
        /// That of the call.
        id: u64,
        /// What came of it.
        reply: Value,
        /// Octets of each blob that follows.
        blobs: Vec<u64>,
    },
    /// The request was not carried out; the agent goes on.
    Failed {
        /// That of the call.
        id: u64,
        /// Why.
        error: String,
    },
}

/// Who calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`VERSION`] of the controller.
    pub version: u32,
    /// [`PROGRAM`] of the controller.
    pub tester: String,
    /// What others are told who find the host in use: "user@host, PID n, plan x".
    pub controller: String,
}

impl Hello {
    /// The hello of this program.
    pub fn new(controller: impl Into<String>) -> Self {
        Self {
            version: VERSION,
            tester: PROGRAM.to_owned(),
            controller: controller.into(),
        }
    }
}

/// Who answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// [`VERSION`] of the agent.
    pub version: u32,
    /// [`PROGRAM`] of the agent.
    pub tester: String,
    /// SHA-256 of the agent's program in hexadecimal: versions do not tell builds apart.
    pub sha256: Option<String>,
    /// Its host.
    pub host: About,
}

impl Welcome {
    /// The welcome of this program on this host.
    pub fn here() -> Self {
        Self {
            version: VERSION,
            tester: PROGRAM.to_owned(),
            sha256: program::sha256(),
            host: About::here(),
        }
    }
}

/// Why an agent serves nobody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// The controller speaks another version of the protocol.
    #[error(
        "the controller uses another protocol version; this is {tester}, protocol version {version}"
    )]
    Version {
        /// [`VERSION`] of the agent.
        version: u32,
        /// [`PROGRAM`] of the agent.
        tester: String,
    },
    /// Another agent runs on the host.
    #[error("the host is in use by {by}")]
    InUse {
        /// Whose, as its controller calls itself.
        by: String,
    },
    /// Something else.
    #[error("{reason}")]
    Other {
        /// What, and how to fix it.
        reason: String,
    },
}

/// A host in brief.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Its name; empty if it cannot be read.
    pub hostname: String,
    /// Its kernel: "6.1.0-18-amd64"; empty if it cannot be read.
    pub kernel: String,
    /// `/proc/sys/kernel/random/boot_id`: another one after each boot. Two hosts with the same one are the same
    /// machine.
    pub boot_id: String,
    /// CPUs that the agent may use.
    pub cpus: usize,
}

impl About {
    /// The host that this process runs on.
    pub fn here() -> Self {
        let machine = Machine::here();
        let text = |name: &str| machine.sysctl(name).unwrap_or_default();
        Self {
            hostname: text("kernel.hostname"),
            kernel: text("kernel.osrelease"),
            boot_id: text("kernel.random.boot_id"),
            cpus: cpu::available().len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn messages_have_these_forms() {
        let hello = Call::Hello(Hello {
            version: 1,
            tester: "dns64bench 0.1.0".into(),
            controller: "root@ctl, PID 7, plan x.toml".into(),
        });
        for (call, form) in [
            (
                hello,
                json!({"hello": {"version": 1, "tester": "dns64bench 0.1.0", "controller": "root@ctl, PID 7, plan x.toml"}}),
            ),
            (Call::Clock { id: 3 }, json!({"clock": {"id": 3}})),
            (
                Call::Request {
                    id: 4,
                    request: json!({"what": "facts"}),
                },
                json!({"request": {"id": 4, "request": {"what": "facts"}}}),
            ),
        ] {
            assert_eq!(serde_json::to_value(&call).unwrap(), form);
            assert_eq!(serde_json::from_value::<Call>(form).unwrap(), call);
        }
        let refused = Answer::Refused(Refusal::InUse { by: "bob".into() });
        assert_eq!(
            serde_json::to_value(&refused).unwrap(),
            json!({"refused": {"in-use": {"by": "bob"}}})
        );
    }

    /// Whatever else a later version says, its number has to be understood.
    #[test]
    fn a_hello_of_a_later_version_is_read() {
        let later = json!({"hello": {"version": 9, "tester": "t", "controller": "c", "more": [1]}});
        let Call::Hello(hello) = serde_json::from_value(later).unwrap() else {
            panic!("not a hello");
        };
        assert_eq!(hello.version, 9);
    }

    #[test]
    fn this_host_has_a_kernel_and_a_cpu() {
        let about = About::here();
        assert!(!about.kernel.is_empty() && !about.boot_id.is_empty());
        assert!(about.cpus > 0);
    }
}
