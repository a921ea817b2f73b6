//! The AuthDNS subsystem of the Tester (RFC 8219 section 9.1): an authoritative server that computes
//! its answers from the queried names, so that 2^32 names need no memory.
//!
//! ```text
//! Link ─Datagram→ serve::turn ─bytes→ answer::Authority ─bytes→ same Link
//!                                       ├─ fast: the query that a resolver sends, by copying
//!                                       └─ decide → zone::Contents → wire::build
//! TCP connection ─bytes→ tcp::TcpService ─→ the same engine
//! ```
//!
//! During a trial both record in its [`ledger`] when each query arrived and when it was answered.
//!
//! For deliberate faults, [`faulty`] wraps the engine: according to [`behaviour`] it drops or alters
//! a response, or delays it in `pending`.

pub mod answer;
pub mod behaviour;
pub mod counts;
pub mod driver;
mod fast;
pub mod faulty;
pub mod ledger;
mod pending;
pub mod serve;
pub mod tcp;
pub mod zone;

use crate::namespace::{ADDRESSES_MAX, CNAME_LENGTH_MAX};

/// Length of the longest reply for names with one address: header, question of the longest name, SOA record, OPT.
const PLAIN_LEN_MAX: usize = 12 + 259 + SOA_RECORD_LEN + 11;
const SOA_RECORD_LEN: usize = 50;

/// Length of the longest reply: with CNAME and AAAA records instead of the SOA record. It is below the 512 octets that
/// every client accepts (RFC 1035 section 2.3.4), so no reply is truncated because of its client.
pub const REPLY_LEN_MAX: usize =
    PLAIN_LEN_MAX - SOA_RECORD_LEN + 30 * CNAME_LENGTH_MAX as usize + 28 * ADDRESSES_MAX as usize;
