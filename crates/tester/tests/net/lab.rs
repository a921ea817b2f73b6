//! The lab itself: namespaces, links, servers.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use dns64bench::authority::zone::ZoneConfig;
use dns64bench::lab::profile::{Profile, ProfileRole, Settings, built_in_names};
use dns64bench::lab::server::{Probe, ServerSpec};
use dns64bench::lab::topology::{Lab, PREF64, Setup, down, leftovers};
use dns64bench::lab::zone::ZoneFile;
use dns64bench::machine::cpuset::CpuSet;
use dns64bench::machine::network::Network;
use dns64bench::machine::process;
use dns64bench::machine::{Machine, Role};
use dns64bench::namespace::{DEFAULT_SUFFIX, Share, Zone};
use dns64bench::post::host::Host;
use dns64bench::rig::servers::HostedServer;

use crate::busy::BUSY_MAX;
use crate::machine::{comm, left_behind, turn};

/// Longer than an answer takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time limit of a probe while a server starts.
const PROBE: Duration = Duration::from_millis(500);

/// Creates a lab.
pub(crate) fn up(setup: Setup) -> Lab {
    Lab::up(setup, None).unwrap()
}

/// Environment variable of a process of this test binary that holds a lab until it is killed.
const HOLD: &str = "DNS64BENCH_TEST_HOLDS_A_LAB";

#[test]
#[ignore = "needs root: run by .ci/run net"]
fn lab_carries_datagrams_and_leaves_nothing() {
    let _turn = turn();
    for setup in [Setup::TwoDevice, Setup::ThreeDevice] {
        let lab = up(setup);
        let (dut, port) = setup.dut();
        exchange(&lab, Role::Measurer, Role::Dut, &format!("[{dut}]:{port}"));
        let (authority, port) = setup.upstream_v4();
        exchange(
            &lab,
            Role::Dut,
            Role::Authority,
            &format!("{authority}:{port}"),
        );
        let (authority, port) = setup.upstream_v6();
        exchange(
            &lab,
            Role::Dut,
            Role::Authority,
            &format!("[{authority}]:{port}"),
        );
        let (authority, port) = setup.self_test();
        exchange(
            &lab,
            Role::Measurer,
            Role::Authority,
            &format!("[{authority}]:{port}"),
        );
        drop(lab);
        assert_eq!(left_behind(), Vec::<String>::new());
    }
}

/// Number of packets received so far at an interface of a role's host.
fn received(role: Role, interface: &str) -> u64 {
    let read = || std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
    let text = Setup::ThreeDevice.network(role).enter(read).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(interface));
    let figures = line.unwrap().trim_start_matches(':');
    figures.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
#[ignore = "needs root: run by .ci/run net"]
fn self_test_uses_a_link_of_its_own() {
    let _turn = turn();
    let setup = Setup::ThreeDevice;
    let lab = up(setup);
    // The ends at which queries and answers arrive.
    let ends = [
        (Role::Authority, "self-test"),
        (Role::Measurer, "self-test"),
    ];
    let before = ends.map(|(role, name)| received(role, name));
    let (authority, port) = setup.self_test();
    for _ in 0..10 {
        let at = format!("[{authority}]:{port}");
        exchange(&lab, Role::Measurer, Role::Authority, &at);
    }
    for ((role, name), before) in ends.into_iter().zip(before) {
        let packets = received(role, name) - before;
        assert!(packets >= 10, "{role:?} {name}: {packets}");
    }
    drop(lab);
    assert_eq!(left_behind(), Vec::<String>::new());
}

/// Sends a datagram from one role to the other's address and back.
fn exchange(lab: &Lab, from: Role, to: Role, address: &str) {
    let bind = |host: Network, address: &str| {
        let socket = host.enter(|| UdpSocket::bind(address)).unwrap().unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    };
    let any = if address.starts_with('[') {
        "[::]:0"
    } else {
        "0.0.0.0:0"
    };
    let server = bind(lab.setup().network(to), address);
    let client = bind(lab.setup().network(from), any);
    client.connect(address).unwrap();
    client.send(b"there").unwrap();
    let mut buffer = [0; 16];
    let (length, peer) = server.recv_from(&mut buffer).unwrap();
    server.send_to(&buffer[..length], peer).unwrap();
    assert_eq!(client.recv(&mut buffer).unwrap(), 5);
}

#[test]
#[ignore = "needs root: run by .ci/run net"]
fn lab_that_is_kept_up_is_removed_with_its_processes() {
    let _turn = turn();
    up(Setup::ThreeDevice).leave_up().unwrap();
    assert_eq!(leftovers(&Machine::here()).len(), 3);
    let mut stubborn = Setup::ThreeDevice
        .network(Role::Dut)
        .command(Path::new("/bin/sh"), &"0".parse().unwrap())
        .args(["-c", "trap '' TERM; while :; do sleep 1; done"])
        .spawn()
        .unwrap();
    let started = process::wait_until(BUSY_MAX, || {
        let children = process::tree(stubborn.id());
        children.into_iter().any(|pid| comm(pid) == "sleep")
    });
    assert!(started, "the machine is too busy for this test");
    down().unwrap();
    assert_eq!(left_behind(), Vec::<String>::new());
    assert!(stubborn.wait().unwrap().code().is_none());
    down().unwrap();
}

/// Not a test by itself: the next test runs and kills it.
#[test]
#[ignore = "needs root: run by .ci/run net"]
fn holds_a_lab_until_killed() {
    if std::env::var_os(HOLD).is_none() {
        return;
    }
    let _lab = up(Setup::ThreeDevice);
    let mut child = Setup::ThreeDevice
        .network(Role::Dut)
        .command(Path::new("/bin/sleep"), &CpuSet::unrestricted())
        .arg("1000")
        .spawn()
        .unwrap();
    child.wait().unwrap();
}

#[test]
#[ignore = "needs root: run by .ci/run net"]
fn lab_is_free_and_cleaned_after_a_crash() {
    let _turn = turn();
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "lab::holds_a_lab_until_killed"])
        .env(HOLD, "1")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut sleeper = None;
    let started = process::wait_until(BUSY_MAX, || {
        sleeper = process::tree(holder.id())
            .into_iter()
            .find(|pid| comm(*pid) == "sleep");
        sleeper.is_some()
    });
    let in_use = Lab::up(Setup::TwoDevice, None);
    process::kill(&mut holder);
    assert!(
        started,
        "the machine is too busy for this test: no lab for minutes"
    );
    let error = in_use.unwrap_err().to_string();
    let named = format!("the lab is in use by process {} ", holder.id());
    assert!(error.starts_with(&named), "{error}");
    let sleeper = sleeper.unwrap();
    assert!(process::wait_until(BUSY_MAX, || comm(sleeper).is_empty()));
    assert_eq!(leftovers(&Machine::here()).len(), 3);
    let next = up(Setup::TwoDevice);
    assert_eq!(leftovers(&Machine::here()).len(), 2);
    drop(next);
    assert_eq!(left_behind(), Vec::<String>::new());
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn every_installed_server_synthesises() {
    let _turn = turn();
    let setup = Setup::ThreeDevice;
    let mut measured = 0;
    for name in built_in_names() {
        let profile = Profile::built_in(name).unwrap();
        if profile.role != ProfileRole::Dut || profile.program(None).is_err() {
            continue;
        }
        for upstream in [setup.upstream_v4(), setup.upstream_v6()] {
            let lab = up(setup);
            let _authority = start_authority(setup);
            let (listen, port) = setup.dut();
            let mut settings = settings(setup);
            (settings.listen, settings.port) = (listen, port);
            settings.upstreams = vec![upstream.into()];
            let spec = ServerSpec {
                profile: profile.clone(),
                program: None,
                network: setup.network(Role::Dut),
                settings,
                zone: None,
            };
            let host = Host::here(&Arc::default());
            let mut dut = HostedServer::start(host, spec, || ask(setup, 1, PROBE)).unwrap();
            assert_eq!(ask(setup, 2, PATIENCE), Probe::Answered, "{name}");
            assert!(dut.program().version.is_some(), "{name}");
            let state = dut.state().unwrap();
            assert!(state.resources.memory_bytes > 1 << 20, "{name}");
            assert_eq!(state.udp_drops, 0, "{name}");
            dut.restart(|| ask(setup, 3, PROBE)).unwrap();
            drop(dut);
            drop(lab);
            assert_eq!(left_behind(), Vec::<String>::new(), "{name}");
        }
        measured += 1;
    }
    assert!(
        measured > 0,
        "no DNS64 server is installed; doctor names the packages"
    );
}

fn settings(setup: Setup) -> Settings {
    let (_, port) = setup.self_test();
    Settings {
        listen: Ipv6Addr::UNSPECIFIED,
        listen_v4: Ipv4Addr::UNSPECIFIED,
        port,
        upstreams: vec![setup.upstream_v4().into()],
        pref64: PREF64,
        suffix: "dns64perf.test".into(),
        aaaa_share: Share::NONE,
        cpus: "0".parse().unwrap(),
        chosen: BTreeMap::new(),
    }
}

/// NSD with the names of 10.0.0.0/24.
fn start_authority(setup: Setup) -> HostedServer {
    let spec = ServerSpec {
        profile: Profile::built_in("nsd").unwrap(),
        program: None,
        network: setup.network(Role::Authority),
        settings: settings(setup),
        zone: Some(ZoneFile {
            cidr: "10.0.0.0/24".parse().unwrap(),
            config: ZoneConfig {
                zone: Zone {
                    suffix: DEFAULT_SUFFIX.parse().unwrap(),
                    aaaa_share: Share::NONE,
                    ..Zone::default()
                },
                self_test: false,
                ttl_s: 3600,
                negative_ttl_s: 3600,
            },
        }),
    };
    let (address, port) = setup.self_test();
    let target = format!("[{address}]:{port}");
    HostedServer::start(Host::here(&Arc::default()), spec, || {
        query(setup, &target, 1, A, PROBE).map_or_else(Probe::NotYet, |_| Probe::Answered)
    })
    .unwrap()
}

const A: u16 = 1;
const AAAA: u16 = 28;

/// Queries the DUT for the AAAA of 10.0.0.`host`.
fn ask(setup: Setup, host: u8, patience: Duration) -> Probe {
    let (address, port) = setup.dut();
    let expected: [u8; 4] = [10, 0, 0, host];
    match query(setup, &format!("[{address}]:{port}"), host, AAAA, patience) {
        Ok(reply)
            if reply
                .windows(16)
                .any(|w| w[..12] == PREF64.0.octets()[..12] && w[12..] == expected) =>
        {
            Probe::Answered
        }
        Ok(reply) => Probe::NotYet(format!("rcode {} without the address", reply[3] & 15)),
        Err(why) => Probe::NotYet(why),
    }
}

/// Sends one query of the Measurer; the reply must match it and have no error.
fn query(
    setup: Setup,
    target: &str,
    host: u8,
    qtype: u16,
    patience: Duration,
) -> Result<Vec<u8>, String> {
    let mut message = vec![0x12, host, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 15];
    message.extend(format!("010-000-000-{host:03}").bytes());
    message.extend(b"\x09dns64perf\x04test\0");
    message.extend(qtype.to_be_bytes());
    message.extend(1_u16.to_be_bytes());
    let socket = setup
        .network(Role::Measurer)
        .enter(|| UdpSocket::bind("[::]:0"))
        .unwrap()
        .unwrap();
    socket.set_read_timeout(Some(patience)).unwrap();
    socket.connect(target).unwrap();
    socket.send(&message).map_err(|error| error.to_string())?;
    let mut reply = vec![0; 1500];
    let length = socket.recv(&mut reply).map_err(|error| error.to_string())?;
    reply.truncate(length);
    let good = length > 12 && reply[..2] == message[..2] && reply[3] & 15 == 0;
    good.then_some(reply)
        .ok_or_else(|| "an error reply".to_owned())
}
