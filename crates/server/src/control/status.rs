//! The state of a server, the content of [`super::Answer::Status`].

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use dns64_transport::clock::{Nanos, SECOND};
use serde::{Deserialize, Serialize};

use crate::driver;
use crate::health::UpstreamState;

/// The state of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Version.
    pub version: String,
    /// Process ID.
    pub pid: u32,
    /// Uptime in seconds.
    pub uptime_s: u64,
    /// Configuration file.
    pub config: PathBuf,
    /// Addresses that the server listens at.
    pub listen: Vec<SocketAddr>,
    /// Number of worker threads.
    pub workers: usize,
    /// Upstreams.
    pub upstreams: Vec<UpstreamStatus>,
    /// Domains with upstreams of their own.
    #[serde(default)]
    pub forwards: Vec<ForwardStatus>,
    /// Interfaces and source addresses that this host lacks.
    #[serde(default)]
    pub missing: Vec<String>,
    /// The prefixes whose translators are probed.
    #[serde(default)]
    pub nat64: Vec<PrefixStatus>,
    /// Number of cached responses.
    pub cache_entries: u64,
    /// Memory of the cache in octets.
    pub cache_bytes: u64,
    /// Memory limit of the cache in octets.
    pub cache_bytes_max: u64,
    /// The cache in the driver, if it is configured.
    #[serde(default)]
    pub driver_cache: Option<DriverStatus>,
    /// Interfaces with AF_XDP sockets.
    #[serde(default)]
    pub af_xdp: Vec<InterfaceStatus>,
    /// Active sandbox: `landlock abi N`, `seccomp`, both with a comma, or `off`.
    pub sandbox: String,
}

/// A prefix whose translator is probed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrefixStatus {
    /// The prefix.
    pub prefix: String,
    /// Whether its translator answers.
    pub up: bool,
}

/// The state of the cache in the driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverStatus {
    /// Interfaces that its program is attached to; none after a failure.
    pub interfaces: Vec<InterfaceStatus>,
    /// Number of responses that it can send.
    pub entries: u64,
    /// The configuration key because of which it leaves all queries to the sockets.
    pub idle: Option<String>,
}

/// An interface with an XDP program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterfaceStatus {
    /// Name.
    pub name: String,
    /// `native` or `generic`.
    pub mode: String,
    /// Number of receive queues with AF_XDP sockets, if the interface has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queues: Option<usize>,
    /// How frames come to these sockets: `copy` or `zero-copy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copying: Option<String>,
}

impl fmt::Display for InterfaceStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.mode)?;
        if let Some(copying) = &self.copying {
            write!(f, " {copying}")?;
        }
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
                    copying: None,
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

/// Domains with upstreams of their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardStatus {
    /// Name.
    pub name: String,
    /// Number of its servers that are up.
    pub up: usize,
    /// Its servers; their states are those of [`Status::upstreams`].
    pub servers: Vec<SocketAddr>,
    /// Its domains.
    pub domains: Vec<String>,
}

/// `corp up=1/2 servers=192.0.2.1:53,192.0.2.2:53 domains=corp.example.,10.in-addr.arpa.`
impl fmt::Display for ForwardStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, up, of) = (&self.name, self.up, self.servers.len());
        let (servers, domains) = (joined(&self.servers, ","), self.domains.join(","));
        write!(f, "{name} up={up}/{of} servers={servers} domains={domains}")
    }
}

/// The combined state of an upstream over all workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UpstreamStatus {
    /// Address and port.
    pub address: SocketAddr,
    /// Duration of its outage in seconds; `None`: it is up, or was never queried.
    pub down_s: Option<u64>,
    /// The reason of the outage: `no-answer`, `refused`, `servfail` and so on, as in the metrics; `operator`: closed by
    /// `ctl upstream`.
    #[serde(default)]
    pub reason: Option<String>,
    /// Smoothed round-trip time in microseconds; `None` until the first response.
    pub rtt_us: Option<u64>,
    /// Smoothed share of queries without a timely response, in millionths.
    pub loss_ppm: u32,
    /// Smoothed share of names for which it had no answer of use, in millionths.
    #[serde(default)]
    pub failed_ppm: u32,
    /// What it is queried without for a while: the keys `edns`, `cookies`, `randomise-case`, `tls`.
    #[serde(default)]
    pub without: Vec<String>,
}

impl UpstreamStatus {
    /// Converts the state of an upstream.
    pub fn new(address: SocketAddr, state: &UpstreamState, now: Nanos) -> Self {
        let down_for = state.down_since.map(|since| now.saturating_sub(since));
        Self {
            address,
            down_s: down_for.map(|time| time / SECOND),
            // Without a fault, the operator has closed it.
            reason: down_for.map(|_| {
                state
                    .fault
                    .map_or("operator", |fault| fault.name())
                    .to_owned()
            }),
            rtt_us: state.rtt_ns.map(|time| time / 1000),
            loss_ppm: state.loss_ppm,
            failed_ppm: state.failed_ppm,
            without: state.lacks.each().map(|one| one.key().to_owned()).collect(),
        }
    }
}

impl fmt::Display for UpstreamStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(down_s) = self.down_s {
            write!(f, "{} down since_s={down_s}", self.address)?;
            let reason = self.reason.as_ref();
            return reason.map_or(Ok(()), |reason| write!(f, " reason={reason}"));
        }
        write!(f, "{} up", self.address)?;
        if let Some(rtt_us) = self.rtt_us {
            write!(f, " rtt_ms={}.{:03}", rtt_us / 1000, rtt_us % 1000)?;
        }
        // In tenths of a per cent.
        let [loss, failed] = [self.loss_ppm, self.failed_ppm].map(|share| share / 1000);
        write!(f, " loss={}.{}%", loss / 10, loss % 10)?;
        write!(f, " failed={}.{}%", failed / 10, failed % 10)?;
        if !self.without.is_empty() {
            write!(f, " without={}", self.without.join(","))?;
        }
        Ok(())
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "version={}", self.version)?;
        writeln!(f, "pid={}", self.pid)?;
        writeln!(f, "uptime_s={}", self.uptime_s)?;
        writeln!(f, "config={}", self.config.display())?;
        writeln!(f, "listen={}", joined(&self.listen, " "))?;
        writeln!(f, "workers={}", self.workers)?;
        for upstream in &self.upstreams {
            writeln!(f, "upstream={upstream}")?;
        }
        for forward in &self.forwards {
            writeln!(f, "forward={forward}")?;
        }
        for missing in &self.missing {
            writeln!(f, "missing={missing}")?;
        }
        for PrefixStatus { prefix, up } in &self.nat64 {
            writeln!(f, "nat64={prefix} {}", if *up { "up" } else { "down" })?;
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

fn joined(addresses: &[SocketAddr], between: &str) -> String {
    let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    addresses.join(between)
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::control::Answer;
    use crate::counts::Fault;
    use crate::health::{Capability, Lacks};

    /// A slow upstream, one that is down, and one in unknown state.
    fn upstreams() -> Vec<UpstreamStatus> {
        let slow = UpstreamState {
            rtt_ns: Some(1_204_567),
            loss_ppm: 62_500,
            failed_ppm: 15_625,
            fault: Some(Fault::Servfail),
            lacks: Lacks::of([Capability::Tls, Capability::Edns]),
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

    fn interface(name: &str, queues: Option<usize>, copying: Option<&str>) -> InterfaceStatus {
        InterfaceStatus {
            name: name.into(),
            mode: "native".into(),
            queues,
            copying: copying.map(str::to_owned),
        }
    }

    #[test]
    fn status_is_readable_by_people_and_programs() {
        let status = Answer::Status(Box::new(Status {
            version: "1.2.3".into(),
            pid: 7,
            uptime_s: 60,
            config: "/etc/dns64d/dns64d.toml".into(),
            listen: vec!["[::]:53".parse().unwrap(), "127.0.0.1:53".parse().unwrap()],
            workers: 2,
            upstreams: upstreams(),
            forwards: vec![ForwardStatus {
                name: "corp".into(),
                up: 1,
                servers: vec![
                    "192.0.2.53:53".parse().unwrap(),
                    "192.0.2.54:5353".parse().unwrap(),
                ],
                domains: vec!["corp.example.".into(), "10.in-addr.arpa.".into()],
            }],
            missing: vec!["192.0.2.1".into()],
            nat64: vec![PrefixStatus {
                prefix: "64:ff9b::/96".into(),
                up: false,
            }],
            cache_entries: 5,
            cache_bytes: 4096,
            cache_bytes_max: 1 << 20,
            driver_cache: Some(DriverStatus {
                interfaces: vec![interface("eth0", None, None)],
                entries: 3,
                idle: None,
            }),
            af_xdp: vec![interface("eth1", Some(2), Some("zero-copy"))],
            sandbox: "landlock abi 4, seccomp".into(),
        }));
        expect![[r#"
            version=1.2.3
            pid=7
            uptime_s=60
            config=/etc/dns64d/dns64d.toml
            listen=[::]:53 127.0.0.1:53
            workers=2
            upstream=[2001:db8::1]:53 up rtt_ms=1.204 loss=6.2% failed=1.5% without=edns,tls
            upstream=192.0.2.53:53 down since_s=12 reason=servfail
            upstream=192.0.2.54:5353 up loss=0.0% failed=0.0%
            forward=corp up=1/2 servers=192.0.2.53:53,192.0.2.54:5353 domains=corp.example.,10.in-addr.arpa.
            missing=192.0.2.1
            nat64=64:ff9b::/96 down
            cache_entries=5
            cache_bytes=4096
            cache_bytes_max=1048576
            driver_cache=eth0 native entries=3
            af_xdp=eth1 native zero-copy queues=2
            sandbox=landlock abi 4, seccomp
        "#]]
        .assert_eq(&status.to_string());
        let line = serde_json::to_string(&status).unwrap();
        assert_eq!(serde_json::from_str::<Answer>(&line).unwrap(), status);
    }

    #[test]
    fn upstream_is_a_json_object() {
        let upstreams = upstreams();
        let lines = upstreams
            .iter()
            .map(|u| serde_json::to_string(u).unwrap() + "\n");
        expect![[r#"
            {"address":"[2001:db8::1]:53","down_s":null,"reason":null,"rtt_us":1204,"loss_ppm":62500,"failed_ppm":15625,"without":["edns","tls"]}
            {"address":"192.0.2.53:53","down_s":12,"reason":"servfail","rtt_us":1204,"loss_ppm":62500,"failed_ppm":15625,"without":["edns","tls"]}
            {"address":"192.0.2.54:5353","down_s":null,"reason":null,"rtt_us":null,"loss_ppm":0,"failed_ppm":0,"without":[]}
        "#]]
        .assert_eq(&lines.collect::<String>());
    }
}
