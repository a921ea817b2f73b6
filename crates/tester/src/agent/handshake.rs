//! Messages between controller and agent, independent of the type of request.
//!
//! The controller's first call is a [`Hello`], which is answered with a [`Welcome`] or a [`AgentRefusal`]. After that each
//! call has an ID, which its answer repeats. Only one call is in progress at a time.

use dns64_transport::clock::Nanos;
use dns64_transport::cpu;
use serde::{Deserialize, Serialize};

use super::program;
use crate::PROGRAM;
use crate::machine::Machine;

/// Version of this protocol. Peers with different versions understand only [`Hello`] and its answer.
pub const VERSION: u32 = 10;

/// Messages of the controller; `Q` are the requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Call<Q> {
    /// The first call of a connection.
    Hello(Hello),
    /// Requests the times of the call's arrival and of its answer on the agent's monotonic clock.
    Clock {
        /// ID, repeated in the answer.
        id: u64,
    },
    /// A request for the agent's [`Work`](super::serve::Work).
    Request {
        /// ID, repeated in the answer.
        id: u64,
        /// The request.
        request: Q,
    },
}

/// Messages of the agent, one for each call; `R` are the replies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer<R> {
    /// The agent serves the controller until the connection ends.
    Welcome(Welcome),
    /// The agent does not serve the controller, and ends.
    Refused(AgentRefusal),
    /// The two times.
    Clock {
        /// ID of the call.
        id: u64,
        /// When the call was read, on the agent's monotonic clock.
        received_ns: Nanos,
        /// When this answer was ready to be written, on the same clock.
        sent_ns: Nanos,
    },
    /// The request was executed.
    Done {
        /// ID of the call.
        id: u64,
        /// Result of the request.
        reply: R,
    },
}

/// Identity of the controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`VERSION`] of the controller.
    pub version: u32,
    /// [`PROGRAM`] of the controller.
    pub tester: String,
    /// Description of the controller for others that find the host in use: "user@host, PID n, plan x".
    pub controller: String,
}

impl Hello {
    /// Returns the hello of this program.
    pub fn new(controller: impl Into<String>) -> Self {
        Self {
            version: VERSION,
            tester: PROGRAM.to_owned(),
            controller: controller.into(),
        }
    }
}

/// Identity of the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// [`VERSION`] of the agent.
    pub version: u32,
    /// [`PROGRAM`] of the agent.
    pub tester: String,
    /// SHA-256 of the agent's program in hexadecimal: versions do not tell builds apart.
    pub sha256: Option<String>,
    /// The agent's host.
    pub host: About,
}

impl Welcome {
    /// Returns the welcome of this program on this host.
    pub fn here() -> Self {
        Self {
            version: VERSION,
            tester: PROGRAM.to_owned(),
            sha256: program::sha256(),
            host: About::here(),
        }
    }
}

/// Why an agent refuses a controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "kebab-case")]
pub enum AgentRefusal {
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
        /// Description of its controller.
        by: String,
    },
    /// Another reason.
    #[error("{reason}")]
    Other {
        /// The reason, and how to fix it.
        reason: String,
    },
}

/// Short description of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Host name; empty if it cannot be read.
    pub hostname: String,
    /// Kernel release: "6.1.0-18-amd64"; empty if it cannot be read.
    pub kernel: String,
    /// `/proc/sys/kernel/random/boot_id`, which changes with each boot. Hosts with the same boot ID are the same
    /// machine.
    pub boot_id: String,
    /// Number of CPUs that the agent may use.
    pub cpus: usize,
    /// These CPUs.
    pub available: Vec<usize>,
}

impl About {
    /// Describes the host of this process.
    pub fn here() -> Self {
        let machine = Machine::here();
        let available = cpu::available();
        let text = |name: &str| machine.sysctl(name).unwrap_or_default();
        Self {
            hostname: text("kernel.hostname"),
            kernel: text("kernel.osrelease"),
            boot_id: text("kernel.random.boot_id"),
            cpus: available.len(),
            available,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    type Call = super::Call<serde_json::Value>;
    type Answer = super::Answer<()>;

    #[test]
    fn messages_have_their_documented_encoding() {
        let hello = Call::Hello(Hello {
            version: VERSION,
            tester: "dns64bench 0.1.0".into(),
            controller: "root@ctl, PID 7, plan x.toml".into(),
        });
        for (call, form) in [
            (
                hello,
                json!({"hello": {"version": 10, "tester": "dns64bench 0.1.0", "controller": "root@ctl, PID 7, plan x.toml"}}),
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
        let refused = Answer::Refused(AgentRefusal::InUse { by: "bob".into() });
        assert_eq!(
            serde_json::to_value(&refused).unwrap(),
            json!({"refused": {"in-use": {"by": "bob"}}})
        );
    }

    /// Whatever a later version adds, its version number must be readable.
    #[test]
    fn hello_of_a_later_version_is_read() {
        let later =
            json!({"hello": {"version": 11, "tester": "t", "controller": "c", "more": [1]}});
        let Call::Hello(hello) = serde_json::from_value(later).unwrap() else {
            panic!("not a hello");
        };
        assert_eq!(hello.version, 11);
    }

    #[test]
    fn this_host_has_a_kernel_and_a_cpu() {
        let about = About::here();
        assert!(!about.kernel.is_empty() && !about.boot_id.is_empty());
        assert!(about.cpus > 0);
    }
}
