//! Queries in, questions to upstreams and answers out, without sockets or clocks.

pub mod rate_limit;
