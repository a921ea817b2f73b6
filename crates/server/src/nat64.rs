//! Whether the NAT64 translators answer: connections, or ICMP echo requests, to IPv4 hosts by each prefix.
//!
//! A round begins each second. In it, up to three connections to each host are tried, a quarter of a second apart, and the
//! first answer ends it, also a refusal: the packets came through the translator. An outage of a second is a round
//! without an answer; the default of three in a row withdraws a prefix within 5 s, and with a tenth of the packets lost
//! such a round comes once in 1,000.

use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use dns64_wire::pref64::Pref64;
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::gateway::Mode;
use crate::settings::{Nat64Health, ProbedHost};

/// Duration of a round without an answer, and the time between the starts of two rounds.
const ROUND: Duration = Duration::from_secs(1);

/// Connections to one host in a round, and the time between two of them.
const TRIES: u32 = 3;
const SPACING: Duration = Duration::from_millis(250);

/// What the rounds so far say of a translator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Translator {
    is_down: bool,
    /// Rounds in a row that contradict this.
    against: u32,
}

impl Translator {
    /// Notes the outcome of a round; returns whether the state has changed.
    fn note(&mut self, answered: bool, rule: &Nat64Health) -> bool {
        let needed = if self.is_down {
            rule.successes
        } else {
            rule.failures
        };
        self.against = if answered == self.is_down {
            self.against + 1
        } else {
            0
        };
        let turns = self.against >= needed;
        if turns {
            *self = Self {
                is_down: !self.is_down,
                against: 0,
            };
        }
        turns
    }
}

/// Probes the translators of all prefixes in use, as long as the settings say so, and reports the prefixes whose
/// translator does not answer after each change. Needs a [`tokio::task::LocalSet`].
pub async fn watch(mut mode: watch::Receiver<Mode>, report: impl Fn(Vec<Pref64>)) {
    let mut translators: Vec<(Pref64, Translator)> = Vec::new();
    let mut begins = interval(ROUND);
    begins.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_told = false;
    loop {
        begins.tick().await;
        let settings = Arc::clone(&mode.borrow_and_update().in_force.settings);
        let Some(rule) = &settings.nat64_health else {
            if translators
                .drain(..)
                .any(|(_, translator)| translator.is_down)
            {
                report(Vec::new());
            }
            if mode.changed().await.is_err() {
                return;
            }
            continue;
        };
        is_told = is_told || warns_of_pings(rule);
        let known = std::mem::take(&mut translators);
        let mut rounds = JoinSet::new();
        for prefix in settings.prefixes() {
            let of_prefix = known.iter().find(|(known, _)| *known == prefix);
            let translator =
                of_prefix.map_or_else(Translator::default, |(_, translator)| *translator);
            let hosts = rule.hosts.clone();
            rounds.spawn_local(async move { (prefix, translator, answers(prefix, &hosts).await) });
        }
        let mut has_changed = known.len() > rounds.len();
        while let Some(ended) = rounds.join_next().await {
            // A task that panics ends the process.
            let Ok((prefix, mut translator, answered)) = ended else {
                continue;
            };
            if translator.note(answered, rule) {
                has_changed = true;
                tell(prefix, translator.is_down);
            }
            translators.push((prefix, translator));
        }
        if has_changed {
            let down = translators
                .iter()
                .filter(|(_, translator)| translator.is_down);
            report(down.map(|(prefix, _)| *prefix).collect());
        }
    }
}

/// Whether hosts are to be pinged but this host may not, which is logged.
fn warns_of_pings(rule: &Nat64Health) -> bool {
    let is_pinged = |host: &ProbedHost| matches!(host, ProbedHost::Ping(_));
    if !rule.hosts.iter().any(is_pinged) {
        return false;
    }
    let Err(error) = ping_socket() else {
        return false;
    };
    tracing::warn!(
        "translators cannot be pinged: {error}; add the group of dns64d to net.ipv4.ping_group_range"
    );
    true
}

fn tell(prefix: Pref64, is_down: bool) {
    match is_down {
        true => tracing::warn!("translator of {prefix} does not answer: the prefix is withdrawn"),
        false => tracing::info!("translator of {prefix} answers again: the prefix is used"),
    }
}

/// Whether one of the hosts answers by this prefix in a round.
async fn answers(prefix: Pref64, hosts: &[ProbedHost]) -> bool {
    let mut tries = JoinSet::new();
    for &host in hosts {
        let address = prefix.embed(host.ip());
        for number in 0..TRIES {
            tries.spawn_local(async move {
                sleep(number * SPACING).await;
                answer(host, address).await
            });
        }
    }
    let first = async {
        while let Some(ended) = tries.join_next().await {
            if ended.unwrap_or(false) {
                return true;
            }
        }
        false
    };
    timeout(ROUND, first).await.unwrap_or(false)
}

/// Whether a host answers at its address behind a translator.
async fn answer(host: ProbedHost, address: Ipv6Addr) -> bool {
    match host {
        ProbedHost::Ping(_) => match ping_socket() {
            Ok(socket) => echo(&socket, address).await.is_ok(),
            // A host that cannot be pinged from here says nothing of the translator.
            Err(_) => true,
        },
        ProbedHost::Connect(host) => match TcpStream::connect((address, host.port())).await {
            Ok(_) => true,
            Err(error) => error.kind() == io::ErrorKind::ConnectionRefused,
        },
    }
}

/// A socket for echo requests, to which the kernel passes only replies to them (`icmp(7)`, ping sockets).
fn ping_socket() -> io::Result<UdpSocket> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let protocol = Some(ipproto::ICMPV6);
    let socket = socket_with(AddressFamily::INET6, SocketType::DGRAM, flags, protocol)?;
    UdpSocket::from_std(socket.into())
}

/// Waits for a reply to an echo request (RFC 4443 section 4), whose checksum and identifier are the kernel's.
async fn echo(socket: &UdpSocket, address: Ipv6Addr) -> io::Result<()> {
    const REQUEST: [u8; 8] = [128, 0, 0, 0, 0, 0, 0, 1];
    socket.connect(SocketAddr::from((address, 0))).await?;
    socket.send(&REQUEST).await?;
    socket.recv(&mut [0; REQUEST.len()]).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt as _, SeedableRng as _};

    use super::*;

    const RULE: Nat64Health = Nat64Health {
        hosts: Vec::new(),
        failures: 3,
        successes: 3,
    };

    /// Probes from this time on, in milliseconds on a manual clock, until the state changes; returns when. The path is open
    /// at a time by `is_open`.
    fn change(translator: &mut Translator, mut now_ms: u32, is_open: impl Fn(u32) -> bool) -> u32 {
        loop {
            let begun_ms = now_ms;
            let tries = (0..TRIES).map(|number| begun_ms + number * 250);
            let answered = tries.into_iter().find(|at_ms| is_open(*at_ms));
            let ended_ms = answered.unwrap_or(begun_ms + 1000);
            if translator.note(answered.is_some(), &RULE) {
                return ended_ms;
            }
            now_ms = begun_ms + 1000;
        }
    }

    #[test]
    fn outage_and_return_are_noticed_within_five_seconds_at_any_phase() {
        for phase_ms in (0..1000).step_by(10) {
            let (begin_ms, end_ms) = (60_000 + phase_ms, 120_000 - phase_ms / 3);
            let is_open = |at_ms| !(begin_ms..end_ms).contains(&at_ms);
            let mut translator = Translator::default();
            let down_ms = change(&mut translator, 0, is_open);
            assert!(translator.is_down);
            assert!(
                (begin_ms..begin_ms + 5000).contains(&down_ms),
                "{phase_ms}: {down_ms}"
            );
            let up_ms = change(&mut translator, down_ms / 1000 * 1000 + 1000, is_open);
            assert!(!translator.is_down);
            assert!(
                (end_ms..end_ms + 5000).contains(&up_ms),
                "{phase_ms}: {up_ms}"
            );
        }
    }

    #[test]
    fn loss_of_ten_percent_changes_nothing_in_thirty_days() {
        let mut random = StdRng::from_seed([5; 32]);
        let mut translator = Translator::default();
        let mut is_lost = || random.random_range(0..10) == 0;
        for second in 0..30 * 86_400 {
            let answered = (0..TRIES).any(|_| !is_lost());
            assert!(!translator.note(answered, &RULE), "{second}");
        }
    }

    #[test]
    fn prefix_with_an_alternating_translator_stays_withdrawn() {
        let mut translator = Translator::default();
        let changes = (0..3).filter(|_| translator.note(false, &RULE)).count();
        assert_eq!(changes, 1);
        for round in 0..100 {
            assert!(!translator.note(round % 3 != 0, &RULE), "{round}");
        }
        assert!(translator.is_down);
    }

    #[test]
    fn host_that_accepts_or_refuses_answers() {
        let prefix: Pref64 = "::ffff:0:0/96".parse().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let SocketAddr::V4(open) = listener.local_addr().unwrap() else {
            panic!("an IPv4 address");
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let rounds = async {
            assert!(answers(prefix, &[ProbedHost::Connect(open)]).await);
            drop(listener);
            let refused = answers(prefix, &[ProbedHost::Connect(open)]).await;
            assert!(refused);
        };
        tokio::task::LocalSet::new().block_on(&runtime, rounds);
    }

    #[test]
    fn host_that_replies_to_an_echo_request_answers() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let answers_in_time = async |address: &str| {
            let host = ProbedHost::Ping([192, 0, 2, 1].into());
            let answer = answer(host, address.parse().unwrap());
            timeout(10 * ROUND, answer).await.unwrap_or(false)
        };
        runtime.block_on(async {
            // Without permission, too.
            assert!(answers_in_time("::1").await);
            // RFC 6666: packets to this prefix are discarded.
            let is_permitted = ping_socket().is_ok();
            assert_eq!(answers_in_time("100::1").await, !is_permitted);
        });
    }
}
