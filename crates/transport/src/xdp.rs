//! XDP: programs that process frames before the network stack of the kernel.

mod code;
mod elf;
mod error;
mod frame;
mod hops;
mod interface;
mod link;
pub mod netlink;
pub mod program;
mod queue;
pub mod relay;
mod steering;

pub use crate::sys::xsk::{Copying, RELEASE_NS};
pub use interface::{Attachment, allow, may_answer};
pub use link::{Options, XdpLink};
pub use queue::Part;

/// `steer` redirects the datagrams of a link to its AF_XDP socket; `pass` passes everything, for the peer end of a veth
/// device whose program sends frames back.
pub static STEER_OBJECT: &[u8] = include_bytes!("../bpf/steer.bpf.o");
