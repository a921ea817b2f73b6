//! dns64d: a DNS64 server (RFC 6147).
//!
//! It forwards queries to recursive resolvers, makes AAAA records from A records where there are
//! none, and remembers what it learnt. It does not validate DNSSEC and never claims to.
//!
//! Each module uses only those before it in this list:
//!
//! - [`settings`]: what the server does, as plain data;
//! - [`answer`]: from the bytes of a query to the bytes of its answer, pure functions;
//! - [`config`]: settings from files;
//! - [`counts`]: what is counted;
//! - [`cache`]: what all workers remember, within a bound of memory;
//! - [`health`]: the state of the upstreams, as all workers know it;
//! - [`framed`]: answers on their way to connections, within a bound;
//! - [`mailbox`]: what workers and the rest of the server say to each other;
//! - [`engine`]: queries in, questions to upstreams and answers out, without sockets or clocks;
//! - [`driver`]: cached answers that an XDP program sends;
//! - [`worker`]: one thread that turns one engine over its sockets;
//! - [`gateway`]: the connections of clients and upstreams, on tokio;
//! - [`stats`], [`metrics`]: the figures of all of them, as text and as a page for Prometheus;
//! - [`log`]: where messages go;
//! - [`control`]: the control socket and its protocol;
//! - [`daemon`]: starts, supervises, reloads and stops all of that;
//! - [`cli`]: the command line.

#![forbid(unsafe_code)]

pub mod answer;
pub mod cache;
pub mod cli;
pub mod config;
pub mod control;
pub mod counts;
pub mod daemon;
pub mod driver;
pub mod engine;
pub mod framed;
pub mod gateway;
pub mod health;
pub mod log;
pub mod mailbox;
pub mod metrics;
pub mod settings;
pub mod stats;
pub mod worker;
