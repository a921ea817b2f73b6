//! XDP: programs that look at frames before the kernel does.

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

pub use interface::{Attachment, allow};
pub use link::{Options, XdpLink};
pub use queue::Part;

/// `steer` sends the datagrams that a link wants to its AF_XDP socket; `pass` lets everything through, for the peer end
/// of a veth device whose program sends frames back.
pub static STEER_OBJECT: &[u8] = include_bytes!("../bpf/steer.bpf.o");
