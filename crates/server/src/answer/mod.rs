//! From the bytes of a query to the bytes of its answer: pure functions on messages and settings.
//!
//! - [`guard`]: one rung per rule, from a datagram to an [`asker::Asker`] or to why it is not answered;
//! - [`asker`]: what an answer has to know of its query;
//! - [`stored`]: a response in the form that it is kept in and answered from;
//! - [`reply`]: answers as they came, errors, EDNS and truncation;
//! - [`cookie`]: DNS cookies;
//! - `rdata`: the data of records by type;
//! - [`copy`]: records from one message to another, their names recompressed;
//! - [`synthesis`]: AAAA records from A records (RFC 6147 section 5.1);
//! - [`rendered`]: answers that are kept to be sent again;
//! - [`reverse`]: names of synthesised addresses (RFC 6147 section 5.3.1);
//! - [`special`]: `ipv4only.arpa` (RFC 8880);
//! - [`local_zones`]: special-use zones, which are answered here (RFC 6303, RFC 6761);
//! - [`service`]: SVCB and HTTPS (RFC 9460 section 4.2.1).

pub mod asker;
pub mod cookie;
pub mod copy;
pub mod guard;
pub mod local_zones;
mod rdata;
pub mod rendered;
pub mod reply;
pub mod reverse;
pub mod service;
pub mod special;
pub mod stored;
pub mod synthesis;

#[cfg(test)]
mod texts;
