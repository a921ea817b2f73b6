//! dns64d: a DNS64 server (RFC 6147).
//!
//! It forwards queries to recursive resolvers, synthesises AAAA records from A records if a name
//! has none, and caches responses. It does not validate DNSSEC and never claims to.
//!
//! Each module uses only those before it in this list:
//!
//! - [`tls`]: certificates, and the settings of TLS sessions;
//! - [`settings`]: the settings of the server, as plain data;
//! - [`answer`]: from the bytes of a query to the bytes of its response, pure functions;
//! - [`config`]: settings from files;
//! - [`counts`]: counters and histograms;
//! - [`dnstap`]: responses to clients, for other programs;
//! - [`cache`]: the cache of all workers, within a memory limit;
//! - [`health`]: the state of the upstreams, shared by all workers;
//! - [`framed`]: responses queued for connections, within a memory limit;
//! - [`proxy`]: clients of proxies, by the PROXY protocol;
//! - [`mailbox`]: messages between workers and the rest of the server;
//! - [`engine`]: processes queries and responses of upstreams, without sockets or clocks;
//! - [`driver`]: cached responses that an XDP program sends;
//! - [`worker`]: one thread that runs one engine over its sockets;
//! - [`inherited`]: listening sockets of another process;
//! - [`gateway`]: the connections of clients and upstreams, on tokio;
//! - [`nat64`]: whether the translators answer;
//! - [`stats`], [`metrics`]: the counters of all modules, as text and as a page for Prometheus;
//! - [`log`]: the log and its destinations;
//! - [`control`]: the control socket and its protocol;
//! - [`daemon`]: starts, supervises, reloads and stops the server;
//! - [`cli`]: the command line.

#![forbid(unsafe_code)]

pub mod answer;
pub mod cache;
pub mod cli;
pub mod config;
pub mod control;
pub mod counts;
pub mod daemon;
pub mod dnstap;
pub mod driver;
pub mod engine;
pub mod framed;
pub mod gateway;
pub mod health;
pub mod inherited;
pub mod log;
pub mod mailbox;
pub mod metrics;
pub mod nat64;
pub mod proxy;
pub mod settings;
pub mod stats;
pub mod tls;
pub mod worker;
