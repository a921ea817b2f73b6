//! How a server is, as [`super::Answer::Status`] tells it.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use dns64_transport::clock::{Nanos, SECOND};
use serde::{Deserialize, Serialize};

use crate::driver;
use crate::health::UpstreamState;

/// How a server is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Its version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// How long it has been running, in seconds.
    pub uptime_s: u64,
    /// The file that it was configured by.
    pub config: PathBuf,
    /// Where it listens.
    pub listen: Vec<SocketAddr>,
    /// Worker threads.
    pub workers: usize,
    /// Whom it asks.
    pub upstreams: Vec<UpstreamStatus>,
    /// Answers in the cache.
    pub cache_entries: u64,
    /// Their memory, in octets.
    pub cache_bytes: u64,
    /// Bound on that.
    pub cache_bytes_max: u64,
    /// The cache in the driver, if it is configured.
    #[serde(default)]
    pub driver_cache: Option<DriverStatus>,
    /// The interfaces whose datagrams pass the kernel by.
    #[serde(default)]
    pub af_xdp: Vec<InterfaceStatus>,
    /// By what it is confined: `landlock abi N`, `seccomp`, both with a comma, or `off`.
    pub sandbox: String,
}

/// How the cache in the driver is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverStatus {
    /// Interfaces that its program is attached to; none after a failure.
    pub interfaces: Vec<InterfaceStatus>,
    /// Responses that it can send.
    pub entries: u64,
    /// The key for whose sake it leaves all queries to the sockets.
    pub idle: Option<String>,
}

/// An interface with an XDP program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceStatus {
    /// Its name.
    pub name: String,
    /// `native` or `generic`.
    pub mode: String,
    /// How many of its receive queues are read, if it has AF_XDP sockets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<usize>,
}

impl fmt::Display for InterfaceStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.mode)?;
        match self.queues {
            Some(queues) => write!(f, " queues={queues}"),
            None => Ok(()),
        }
    }
}

impl From<driver::State> for DriverStatus {
    fn from(state: driver::State) -> Self {
        let attached = state.attached.into_iter();
        Self {
            interfaces: attached
                .map(|(name, mode)| InterfaceStatus {
                    name,
                    mode,
                    queues: None,
                })
                .collect(),
            entries: state.entries,
            idle: state.idle.map(str::to_owned),
        }
    }
}

/// `eth0 native entries=12`, or `eth0 native idle=rate-limit`, or `detached`.
impl fmt::Display for DriverStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.interfaces.is_empty() {
            return f.write_str("detached");
        }
        for interface in &self.interfaces {
            write!(f, "{interface} ")?;
        }
        match &self.idle {
            Some(key) => write!(f, "idle={key}"),
            None => write!(f, "entries={}", self.entries),
        }
    }
}

/// How an upstream is, as all workers together know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamStatus {
    /// Its address and port.
    pub address: SocketAddr,
    /// For how many seconds it has been down; `None`: it is up, or has not been asked.
    pub down_s: Option<u64>,
    /// Smoothed round-trip time in microseconds; `None` until the first answer.
    pub rtt_us: Option<u64>,
    /// Share of the questions that were not answered in time, smoothed, in millionths.
    pub loss_ppm: u32,
}

impl UpstreamStatus {
    /// From what is known of an upstream.
    pub fn new(address: SocketAddr, state: &UpstreamState, now: Nanos) -> Self {
        let down_for = state.down_since.map(|since| now.saturating_sub(since));
        Self {
            address,
            down_s: down_for.map(|time| time / SECOND),
            rtt_us: state.rtt_ns.map(|time| time / 1000),
            loss_ppm: state.loss_ppm,
        }
    }
}

impl fmt::Display for UpstreamStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(down_s) = self.down_s {
            return write!(f, "{} down since_s={down_s}", self.address);
        }
        write!(f, "{} up", self.address)?;
        if let Some(rtt_us) = self.rtt_us {
            write!(f, " rtt_ms={}.{:03}", rtt_us / 1000, rtt_us % 1000)?;
        }
        // In tenths of a per cent.
        let loss = self.loss_ppm / 1000;
        write!(f, " loss={}.{}%", loss / 10, loss % 10)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "version={}", self.version)?;
        writeln!(f, "pid={}", self.pid)?;
        writeln!(f, "uptime_s={}", self.uptime_s)?;
        writeln!(f, "config={}", self.config.display())?;
        writeln!(f, "listen={}", joined(&self.listen))?;
        writeln!(f, "workers={}", self.workers)?;
        for upstream in &self.upstreams {
            writeln!(f, "upstream={upstream}")?;
        }
        writeln!(f, "cache_entries={}", self.cache_entries)?;
        writeln!(f, "cache_bytes={}", self.cache_bytes)?;
        writeln!(f, "cache_bytes_max={}", self.cache_bytes_max)?;
        if let Some(driver) = &self.driver_cache {
            writeln!(f, "driver_cache={driver}")?;
        }
        for interface in &self.af_xdp {
            writeln!(f, "af_xdp={interface}")?;
        }
        writeln!(f, "sandbox={}", self.sandbox)
    }
}

fn joined(addresses: &[SocketAddr]) -> String {
    let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    addresses.join(" ")
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::control::Answer;

    /// One that is slow, one that is down, one of which nothing is known.
    fn upstreams() -> Vec<UpstreamStatus> {
        let slow = UpstreamState {
            rtt_ns: Some(1_204_567),
            loss_ppm: 62_500,
            ..UpstreamState::default()
        };
        let down = UpstreamState {
            down_since: Some(8 * SECOND),
            ..slow
        };
        let upstreams = [
            ("[2001:db8::1]:53", slow),
            ("192.0.2.53:53", down),
            ("192.0.2.54:5353", UpstreamState::default()),
        ];
        let statuses = upstreams.iter().map(|(address, state)| {
            let now = 20 * SECOND + SECOND / 2;
            UpstreamStatus::new(address.parse().unwrap(), state, now)
        });
        statuses.collect()
    }

    #[test]
    fn a_status_is_read_by_people_and_programs() {
        let status = Answer::Status(Status {
            version: "1.2.3".into(),
            pid: 7,
            uptime_s: 60,
            config: "/etc/dns64d/dns64d.toml".into(),
            listen: vec!["[::]:53".parse().unwrap(), "127.0.0.1:53".parse().unwrap()],
            workers: 2,
            upstreams: upstreams(),
            cache_entries: 5,
            cache_bytes: 4096,
            cache_bytes_max: 1 << 20,
            driver_cache: Some(DriverStatus {
                interfaces: vec![InterfaceStatus {
                    name: "eth0".into(),
                    mode: "native".into(),
                    queues: None,
                }],
                entries: 3,
                idle: None,
            }),
            af_xdp: vec![InterfaceStatus {
                name: "eth1".into(),
                mode: "native".into(),
                queues: Some(2),
            }],
            sandbox: "landlock abi 4, seccomp".into(),
        });
        expect![[r#"
            version=1.2.3
            pid=7
            uptime_s=60
            config=/etc/dns64d/dns64d.toml
            listen=[::]:53 127.0.0.1:53
            workers=2
            upstream=[2001:db8::1]:53 up rtt_ms=1.204 loss=6.2%
            upstream=192.0.2.53:53 down since_s=12
            upstream=192.0.2.54:5353 up loss=0.0%
            cache_entries=5
            cache_bytes=4096
            cache_bytes_max=1048576
            driver_cache=eth0 native entries=3
            af_xdp=eth1 native queues=2
            sandbox=landlock abi 4, seccomp
        "#]]
        .assert_eq(&status.to_string());
        let line = serde_json::to_string(&status).unwrap();
        assert_eq!(serde_json::from_str::<Answer>(&line).unwrap(), status);
    }

    #[test]
    fn an_upstream_is_an_object_of_json() {
        let upstreams = upstreams();
        let lines = upstreams
            .iter()
            .map(|u| serde_json::to_string(u).unwrap() + "\n");
        expect![[r#"
            {"address":"[2001:db8::1]:53","down_s":null,"rtt_us":1204,"loss_ppm":62500}
            {"address":"192.0.2.53:53","down_s":12,"rtt_us":1204,"loss_ppm":62500}
            {"address":"192.0.2.54:5353","down_s":null,"rtt_us":null,"loss_ppm":0}
        "#]]
        .assert_eq(&lines.collect::<String>());
    }
}
