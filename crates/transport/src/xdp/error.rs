//! Errors of XDP, with remedies.

use std::borrow::Cow;
use std::io;
use std::net::IpAddr;

/// Reason why a program cannot be loaded, attached or run, or a map not be used.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// The octets are not an object of BPF programs, or use an unsupported feature.
    #[error("cannot read the BPF object: {reason}")]
    Object {
        /// The fault.
        reason: Cow<'static, str>,
    },
    /// The object has no program or map of this name.
    #[error("the BPF object has no {kind} named {name}")]
    Missing {
        /// "program" or "map".
        kind: &'static str,
        /// The requested name.
        name: String,
    },
    /// The kernel refuses to create or use a map.
    #[error("cannot {action} BPF map {name}: {reason}{}", remedy(.reason))]
    Map {
        /// The attempted action.
        action: &'static str,
        /// Name of the map.
        name: String,
        /// Error of the kernel.
        reason: io::Error,
    },
    /// The kernel refuses a program.
    #[error("cannot load XDP program {name}: {reason}{}{}{log}", remedy(.reason), if .log.is_empty() { "" } else { "\n" })]
    Load {
        /// Name of the program.
        name: String,
        /// Error of the kernel.
        reason: io::Error,
        /// The end of the verifier's log.
        log: String,
    },
    /// The kernel refuses to attach a program.
    #[error("cannot attach an XDP program to {interface}: {reason}{}", attach_remedy(.reason))]
    Attach {
        /// Name of the interface.
        interface: String,
        /// Error of the kernel.
        reason: io::Error,
    },
    /// The interface carries the default route; XDP there could cut off remote users of this host.
    #[error(
        "{interface} carries the default route of this host; use --force to attach XDP programs to it"
    )]
    DefaultRoute {
        /// Name of the interface.
        interface: String,
    },
    /// The interface keeps VLAN tags beside its frames, where a program takes them for untagged ones.
    #[error(
        "{interface} keeps VLAN tags where XDP programs do not see them; use `ethtool -K {interface} rx-vlan-hw-parse off \
         rx-vlan-stag-hw-parse off`, and on a veth link also `ethtool -K PEER tx-vlan-hw-insert off \
         tx-vlan-stag-hw-insert off` at its other end"
    )]
    HiddenTags {
        /// Name of the interface.
        interface: String,
    },
    /// The interface belongs to another one, which processes its frames.
    #[error("{interface} belongs to a bridge, bond or VRF; name that interface instead")]
    Subordinate {
        /// Name of the interface.
        interface: String,
    },
    /// An interface cannot carry AF_XDP sockets.
    #[error("cannot use AF_XDP at {interface}: {reason}")]
    Unusable {
        /// Name of the interface.
        interface: String,
        /// The reason.
        reason: &'static str,
    },
    /// No interface that supports AF_XDP has the address.
    #[error("cannot use AF_XDP at {ip}: no Ethernet interface that is up has this address")]
    NoInterface {
        /// The address.
        ip: IpAddr,
    },
    /// An AF_XDP socket cannot be opened.
    #[error("cannot open an AF_XDP socket at queue {queue} of {interface}: {reason}{}", socket_remedy(.reason))]
    Socket {
        /// Name of the interface.
        interface: String,
        /// Number of the queue.
        queue: u32,
        /// Error of the kernel.
        reason: io::Error,
    },
    /// The MAC address of an address cannot be resolved, so no frame can be sent there.
    #[error(
        "cannot learn the MAC address of {ip}: {reason}; check that the host is up and reachable"
    )]
    Neighbour {
        /// The server's address, or that of the router to it.
        ip: IpAddr,
        /// Error of the kernel.
        reason: io::Error,
    },
    /// Information about interfaces cannot be read from the kernel.
    #[error("cannot read {what}: {reason}")]
    Facts {
        /// A file, or the requested information.
        what: Cow<'static, str>,
        /// Error of the kernel.
        reason: io::Error,
    },
    /// A test run failed.
    #[error("cannot run XDP program {name}: {reason}{}", remedy(.reason))]
    Run {
        /// Name of the program.
        name: String,
        /// Error of the kernel.
        reason: io::Error,
    },
}

fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "; this needs root, or CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN"
        }
        Some(libc::ENOSYS) => "; the kernel has no bpf(2): Linux 5.11 or later is needed",
        _ => "",
    }
}

fn socket_remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EBUSY) => "; another program or link has this queue",
        Some(libc::ENOBUFS | libc::ENOMEM) => "; raise the limit on locked memory (ulimit -l)",
        Some(libc::EAFNOSUPPORT) => "; the kernel was built without AF_XDP (CONFIG_XDP_SOCKETS)",
        _ => remedy(error),
    }
}

fn attach_remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EBUSY | libc::EEXIST) => {
            "; another program is attached: detach it with 'ip link set dev DEVICE xdp off', or stop the process that holds it"
        }
        Some(libc::EOPNOTSUPP) => "; the driver has no native XDP: use mode generic",
        Some(libc::ERANGE) => "; the MTU is too large for XDP: at most 3498 suits most drivers",
        Some(libc::EINVAL) => "; Linux 5.11 or later is needed",
        _ => remedy(error),
    }
}
