//! The authority in the driver, in labs: its answers, the queries that reach the sockets behind it, the counters, and
//! no leftovers.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use dns64_transport::xdp::STEER_OBJECT;
use dns64_transport::xdp::program::{Attached, Mode, Object};
use dns64bench::authority::answer::Authority;
use dns64bench::authority::zone::ZoneConfig;
use dns64bench::lab::topology::{Lab, Setup, UPSTREAM_LINK};
use dns64bench::load::transport::Protocol;
use dns64bench::machine::Role;
use dns64bench::machine::cpuset::CpuSet;
use dns64bench::machine::network::Network;
use dns64bench::machine::process;
use dns64bench::namespace::{Zone, label};
use rustix::process::Signal;

use crate::accounts::{answers, assert_accounted};
use crate::busy::{BUSY_MAX, until};
use crate::lab::up;
use crate::machine::{PROGRAM, Run, command, left_behind, output, turn};
use crate::servers::{QUERIES, assert_asked, trial};

/// Longer than an answer takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

const MODES: [&str; 2] = ["native", "generic"];

fn host(role: Role) -> Network {
    Setup::ThreeDevice.network(role)
}

/// Returns whether an XDP program is attached to this role's end of the link between DUT and authority.
fn has_program(role: Role) -> bool {
    let mut ip = host(role).command(Path::new("ip"), &CpuSet::unrestricted());
    let said = ip
        .args(["-j", "link", "show", "dev", UPSTREAM_LINK])
        .output();
    String::from_utf8(said.unwrap().stdout)
        .unwrap()
        .contains("\"xdp\"")
}

/// An authority in the lab that answers in the driver.
struct Served {
    _lab: Lab,
    /// The program at the far end that the authority recommends; with AF_XDP the Tester attaches its own.
    far: Option<Attached>,
    child: Child,
    at: SocketAddr,
    said: BufReader<std::process::ChildStdout>,
}

impl Served {
    fn start(ip: IpAddr, mode: &str) -> Self {
        Self::of_names("--aaaa-share 50%", ip, mode)
    }

    fn of_names(names: &str, ip: IpAddr, mode: &str) -> Self {
        let lab = up(Setup::ThreeDevice);
        let far = (mode == "native").then(|| {
            let mut object = Object::load(STEER_OBJECT).unwrap();
            let attach = || object.attach("pass", UPSTREAM_LINK, Mode::Native);
            host(Role::Dut).enter(attach).unwrap().unwrap()
        });
        let mut command =
            host(Role::Authority).command(Path::new(PROGRAM), &CpuSet::unrestricted());
        let words = format!(
            "authority --listen {ip} {names} --in-driver {UPSTREAM_LINK} --xdp-mode {mode}"
        );
        command.args(words.split(' ')).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let lines = if mode == "native" { 3 } else { 2 };
        let mut text = String::new();
        for _ in 0..lines {
            said.read_line(&mut text).unwrap();
        }
        assert!(text.contains(&format!("by XDP, {mode}")), "{text}");
        assert_eq!(
            text.contains("the other end has an XDP program"),
            mode == "native",
            "{text}"
        );
        Self {
            _lab: lab,
            far,
            child,
            at: (ip, 53).into(),
            said,
        }
    }

    /// Returns the answer to a datagram from the DUT's host.
    fn ask(&self, query: &[u8]) -> Vec<u8> {
        let any = if self.at.is_ipv4() {
            "0.0.0.0:0"
        } else {
            "[::]:0"
        };
        let socket = host(Role::Dut)
            .enter(|| UdpSocket::bind(any))
            .unwrap()
            .unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.connect(self.at).unwrap();
        socket.send(query).unwrap();
        let mut reply = vec![0; 512];
        let len = socket.recv(&mut reply).unwrap();
        reply.truncate(len);
        reply
    }

    fn ask_over_tcp(&self, query: &[u8]) -> Vec<u8> {
        let connect = || TcpStream::connect(self.at);
        let mut stream = host(Role::Dut).enter(connect).unwrap().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let len = u16::try_from(query.len()).unwrap().to_be_bytes();
        stream.write_all(&[&len, query].concat()).unwrap();
        let mut len = [0; 2];
        stream.read_exact(&mut len).unwrap();
        let mut reply = vec![0; u16::from_be_bytes(len).into()];
        stream.read_exact(&mut reply).unwrap();
        reply
    }

    /// Number of datagrams that reached the sockets of the authority's host.
    fn datagrams(&self) -> u64 {
        let pid = self.child.id();
        let v4 = std::fs::read_to_string(format!("/proc/{pid}/net/snmp")).unwrap();
        let udp = v4
            .lines()
            .filter_map(|line| line.strip_prefix("Udp: "))
            .nth(1)
            .unwrap();
        let v4: u64 = udp.split(' ').next().unwrap().parse().unwrap();
        v4 + crate::machine::received(pid)
    }

    /// Ends it; returns its counters as text.
    fn end(mut self) -> String {
        process::signal(self.child.id(), Signal::INT);
        let mut text = String::new();
        self.said.read_to_string(&mut text).unwrap();
        assert!(self.child.wait().unwrap().success(), "{text}");
        assert!(!has_program(Role::Authority), "a program is left");
        text
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        process::kill(&mut self.child);
    }
}

fn query(address: Ipv4Addr, (rtype, class): (u8, u8), tail: &[u8]) -> Vec<u8> {
    let head = [
        0x12,
        0x34,
        1,
        0,
        0,
        1,
        0,
        0,
        0,
        0,
        0,
        u8::from(!tail.is_empty()),
        15,
    ];
    let question: [&[u8]; 3] = [b"\x09dns64perf\x04test\0", &[0, rtype], &[0, class]];
    [&head, &label(address)[..], &question.concat(), tail].concat()
}

/// The same engine as that behind the sockets.
fn twin() -> Authority {
    Authority::new(ZoneConfig {
        zone: Zone {
            aaaa_share: "50%".parse().unwrap(),
            ..Zone::default()
        },
        self_test: false,
        ttl_s: dns64bench::authority::answer::TTL_DEFAULT_S,
        negative_ttl_s: dns64bench::authority::answer::NEGATIVE_TTL_DEFAULT_S,
    })
}

/// The answer of the engine.
fn expected(twin: &mut Authority, query: &[u8], transport: Protocol) -> Vec<u8> {
    let mut reply = vec![0; 512];
    let len = twin.answer(query, &mut reply, transport).len;
    reply.truncate(len);
    reply
}

const OPT: [u8; 11] = [0, 0, 41, 4, 0xd0, 0, 0, 0x80, 0, 0, 0];
const OPT_VERSION_1: [u8; 11] = [0, 0, 41, 4, 0xd0, 0, 1, 0, 0, 0, 0];

/// Sends queries that the driver answers, queries that it passes on, and one over TCP; sends the same to the engine.
fn ask_for_everything(served: &Served, twin: &mut Authority) {
    let mut compare = |query: &[u8]| {
        assert_eq!(
            served.ask(query),
            expected(twin, query, Protocol::Udp),
            "{query:02x?}"
        );
    };
    let before = served.datagrams();
    for address in (0..100).map(|n| Ipv4Addr::new(10, 0, 0, n)) {
        for rtype in [1, 28] {
            compare(&query(address, (rtype, 1), &[]));
            compare(&query(address, (rtype, 1), &OPT));
        }
    }
    assert_eq!(served.datagrams(), before, "the sockets were asked");
    let address = Ipv4Addr::new(10, 0, 0, 1);
    // MX, class CH, an unsupported EDNS version.
    compare(&query(address, (15, 1), &[]));
    compare(&query(address, (1, 3), &[]));
    compare(&query(address, (28, 1), &OPT_VERSION_1));
    assert_eq!(served.datagrams(), before + 3, "the sockets were not asked");
    let over_tcp = query(address, (28, 1), &OPT);
    let reply = served.ask_over_tcp(&over_tcp);
    assert_eq!(reply, expected(twin, &over_tcp, Protocol::Tcp));
}

#[test]
#[ignore = "needs root: run by .ci/run net"]
fn driver_and_sockets_answer_at_one_address_and_count_together() {
    let _turn = turn();
    let setup = Setup::ThreeDevice;
    for ip in [setup.upstream_v4().0, setup.upstream_v6().0] {
        for mode in MODES {
            let (served, mut twin) = (Served::start(ip, mode), twin());
            ask_for_everything(&served, &mut twin);
            let told = served.end();
            let counts = twin.counts();
            let queries = format!(
                "queries: {} AAAA, {} A, {} other, 1 over TCP",
                counts.aaaa, counts.a, counts.other
            );
            assert!(
                told.contains(&queries),
                "{mode} {ip}: {told} and not {queries}"
            );
            let answers = format!(
                "answers: {} with records, {} NODATA, 0 NXDOMAIN, {} refused",
                counts.answered, counts.nodata, counts.refused
            );
            assert!(
                told.contains(&answers),
                "{mode} {ip}: {told} and not {answers}"
            );
        }
    }
    assert_eq!(left_behind(), Vec::<String>::new());
}

/// Only the Tester's own programs are attached at its end of the link: its first queries use the path of the trial.
#[test]
#[ignore = "needs root: run by .ci/run net"]
fn self_test_over_af_xdp_is_answered_by_the_driver() {
    let _turn = turn();
    let mut served = Served::of_names("--self-test", Setup::ThreeDevice.upstream_v4().0, "native");
    served.far = None;
    let words = "selftest -s ADDRESS --backend xdp --self-tests 1 -Q 500 -l 300ms --json -";
    until("has an authority answered in time", || {
        let mut tester = host(Role::Dut).command(Path::new(PROGRAM), &CpuSet::unrestricted());
        tester.args(
            words
                .replace("ADDRESS", &served.at.ip().to_string())
                .split(' '),
        );
        let run = Run::new(&output(tester));
        let trial = &run.json["trials"][0];
        assert_accounted(trial);
        (answers(trial, "valid") > 0).then_some(())
    });
    served.end();
    assert_eq!(left_behind(), Vec::<String>::new());
}

#[test]
#[ignore = "needs root: run by .ci/run net"]
fn killed_authority_leaves_no_program_attached() {
    let _turn = turn();
    for mode in MODES {
        let mut served = Served::start(Setup::ThreeDevice.upstream_v4().0, mode);
        assert!(has_program(Role::Authority), "{mode}");
        process::kill(&mut served.child);
        let gone = process::wait_until(BUSY_MAX, || !has_program(Role::Authority));
        assert!(gone, "{mode}: a program is left");
    }
    assert_eq!(left_behind(), Vec::<String>::new());
}

#[test]
#[ignore = "needs root and the DUT programs: run by .ci/run net"]
fn trial_with_an_authority_in_the_driver_has_counts_and_no_times() {
    let _turn = turn();
    for authority in ["in-driver", "in-driver:generic"] {
        for family in ["ipv4", "ipv6"] {
            let what = format!("{authority} {family}");
            let run = trial(&format!(
                "--dut unbound --authority {authority} --upstream-family {family} --aaaa-share 50%"
            ));
            assert_asked(&run, "aaaa", QUERIES, &what);
            assert_asked(&run, "a", QUERIES / 2, &what);
            assert_eq!(run.text("/conditions/authority"), authority);
            let notes = run.json["conditions"]["notes"].to_string();
            assert!(notes.contains("with an XDP program"), "{notes}");
            // Times of the few queries that reached the sockets would be presented as those of all.
            assert!(run.json["path"].is_null(), "{what}: {:#}", run.json);
            assert!(
                run.json["authority_sampled"].is_null(),
                "{what}: {:#}",
                run.json
            );
        }
    }
    assert_eq!(left_behind(), Vec::<String>::new());
}

#[test]
#[ignore = "needs root: run by .ci/run net"]
fn self_test_with_an_authority_in_the_driver_accounts_for_each_query() {
    let _turn = turn();
    until("has the authority answered in time", || {
        let run =
            Run::of("selftest --lab netns --authority in-driver --self-tests 1 -Q 2k -l 300ms");
        let trials = run.trials();
        trials.iter().for_each(assert_accounted);
        let passed = trials.iter().find(|trial| trial["outcome"] == "passed")?;
        let asked = passed["authority"]["aaaa"].as_u64();
        assert_eq!(asked, Some(answers(passed, "valid")), "{passed:#}");
        Some(())
    });
    assert_eq!(left_behind(), Vec::<String>::new());
}

#[test]
#[ignore = "needs root: run by .ci/run net"]
fn unsupported_configurations_in_the_driver_are_refused() {
    let refused = |mut command: Command| {
        let said = command.output().unwrap();
        assert!(!said.status.success());
        String::from_utf8(said.stderr).unwrap()
    };
    let said = refused(command("authority --in-driver no-such-link --port 5300"));
    assert!(
        said.contains("no interface no-such-link with a MAC address"),
        "{said}"
    );
    let said = refused(command(
        "authority --in-driver lo --listen 192.0.2.1 --port 5300",
    ));
    assert!(said.contains("192.0.2.1"), "{said}");
    let said = refused(command("authority --in-driver lo --behaviour loss=1%"));
    assert!(said.contains("--behaviour"), "{said}");
    let two_device =
        "trial --lab netns --setup two-device --dut unbound -Q 1k --authority in-driver";
    let said = output(command(two_device));
    let said = String::from_utf8(said.stderr).unwrap();
    assert!(said.contains("needs a three-device lab"), "{said}");
}
