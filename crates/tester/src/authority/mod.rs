//! The AuthDNS subsystem of the Tester (RFC 8219 section 9.1): an authoritative server that makes
//! its answers up from the names it is asked for, so that 2^32 of them need no memory.
//!
//! ```text
//! Link ─Datagram→ serve::turn ─bytes→ answer::Authority ─bytes→ same Link
//!                                       ├─ fast: the query that a resolver sends, by copying
//!                                       └─ decide → zone::Contents → wire::build
//! TCP connection ─bytes→ tcp::TcpService ─→ the same engine
//! ```

pub mod answer;
pub mod counts;
mod fast;
pub mod serve;
pub mod tcp;
mod zone;
