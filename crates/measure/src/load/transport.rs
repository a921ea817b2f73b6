//! How queries reach the server, and how many of them a connection carries.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::generator::PORT_IDS;

/// Transport protocol of DNS messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Datagrams (RFC 1035 section 4.2.1).
    #[default]
    Udp,
    /// TCP connections (RFC 7766).
    Tcp,
    /// TCP connections with TLS (RFC 7858).
    Tls,
}

impl Protocol {
    /// Returns the port of DNS servers (RFC 1035 section 4.2, RFC 7858 section 3.1).
    pub fn port(self) -> u16 {
        match self {
            Self::Udp | Self::Tcp => 53,
            Self::Tls => 853,
        }
    }
}

/// Transport of the queries of a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Transport {
    /// Protocol.
    pub protocol: Protocol,
    /// Queries after which a connection is replaced; `None` if it is kept.
    pub queries_per_connection: Option<u32>,
    /// Largest number of queries on a connection within a timeout; `None` for as many as there are IDs.
    pub pipeline: Option<u64>,
}

impl Transport {
    /// Returns whether queries travel on connections.
    pub fn is_stream(&self) -> bool {
        self.protocol != Protocol::Udp
    }

    /// Returns the burst of a schedule, within what a connection carries.
    pub fn burst(&self, burst: u64) -> u64 {
        burst.min(self.pipeline.unwrap_or(u64::MAX)).max(1)
    }

    /// Largest number of queries of a source port within a timeout, in bursts of `burst`: those on its connection, or of its
    /// IDs.
    pub fn queries_of_port(&self, burst: u64) -> u64 {
        let burst = burst.max(1);
        let bursts = |most: u64| (most / burst).max(1);
        self.pipeline.map_or(PORT_IDS, |most| bursts(most) * burst)
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
            Self::Tls => "TLS",
        })
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.protocol.fmt(f)?;
        if let Some(queries) = self.queries_per_connection {
            write!(f, ", {queries} queries for each connection")?;
        }
        if let Some(queries) = self.pipeline {
            write!(f, ", at most {queries} at a time")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::load::generator::Generator;
    use crate::load::pace::Schedule;

    proptest! {
        #[test]
        fn no_port_has_more_queries_within_a_timeout_than_its_connection_carries(
            rate_qps in 1_u64..200_000,
            timeout_ns in 1_000_000_u64..2_000_000_000,
            pipeline in 1_u64..300,
        ) {
            let transport = Transport { pipeline: Some(pipeline), ..Transport::default() };
            let schedule = Schedule::new(rate_qps, 1_000_000_000);
            let schedule = schedule.with_burst(transport.burst(schedule.burst()));
            let each = transport.queries_of_port(schedule.burst());
            let ports = Generator::ports_needed(rate_qps, timeout_ns, each);
            // The bursts of a port are this far apart.
            let interval_ns = schedule.due_ns(ports * schedule.burst());
            let within = timeout_ns / interval_ns.max(1) + 1;
            prop_assert!(within * schedule.burst() <= pipeline, "{within} bursts on {ports} ports");
        }
    }
}
