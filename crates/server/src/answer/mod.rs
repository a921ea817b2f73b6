//! Builds the response to a query: pure functions on messages and settings.
//!
//! - [`guard`]: the checks that a received message passes to become an [`asker::Asker`];
//! - [`asker`]: the parts of a query that its response depends on;
//! - [`stored`]: responses in the form in which they are cached;
//! - [`reply`]: forwarded responses, errors, EDNS and truncation;
//! - [`cookie`]: DNS cookies;
//! - `names`: the names of a message as a tree;
//! - `rdata`: the data of records by type;
//! - [`copy`]: copies records from one message to another and compresses their names again;
//! - [`synthesis`]: AAAA records from A records (RFC 6147 section 5.1);
//! - [`rendered`]: responses that are cached as they are sent;
//! - [`reverse`]: names of synthesised addresses (RFC 6147 section 5.3.1);
//! - [`special`]: `ipv4only.arpa` (RFC 8880);
//! - [`local`]: names that the server knows itself: those of the operator and of special-use zones (RFC 6303, RFC 6761).

pub mod asker;
pub mod cookie;
pub mod copy;
pub mod guard;
pub mod local;
pub(crate) mod names;
mod rdata;
pub mod rendered;
pub mod reply;
pub mod reverse;
pub mod special;
pub mod stored;
pub mod synthesis;
mod work;

#[cfg(test)]
mod costs;
#[cfg(test)]
mod texts;
