//! Attack classes of 2023 to 2026 that use upstreams, retries, headers and options, with one worker and with two.
//! `docs/security.md` lists all classes and their tests.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use dns64_transport::clock::{Clock as _, MonotonicClock, SECOND};
use dns64_wire::codes::{Rcode, Rtype};
use dns64_wire::message::{Message, Section};

use super::packets::{
    Record, address, addresses, asked, honest, name, number, query_edns, rcode, response,
    synthesised,
};
use super::support::{PATIENCE, Server, stdout, value};
use super::upstream::{Asked, Upstream};
use super::victim::{ask, ask_name, assert_resolves, figure, socket, unless_busy, wait_until};

/// Number of the address in answers that must not be used.
const LIE: u32 = 0x00ff_ffff;

/// What an upstream answers to a question.
type Answers = fn(&[u8]) -> Vec<u8>;

/// Runs a test with each number of workers, with a new server for these upstreams.
fn with_workers(upstreams: impl Fn() -> Vec<Upstream>, test: impl Fn(&[Upstream], &Server)) {
    for workers in [1, 2] {
        unless_busy(|| {
            let upstreams = upstreams();
            let servers: Vec<_> = upstreams.iter().map(|u| u.address.to_string()).collect();
            let settings = format!(
                "workers = {workers}\n[upstream]\nservers = {servers:?}\nselection = \"failover\"\n\
                 timeout = \"4500ms\"\n"
            );
            let server = Server::start(&settings, Stdio::null);
            test(&upstreams, &server);
            server.ends();
        });
    }
}

/// Adds an OPT record with these options to a response.
fn with_opt(mut response: Vec<u8>, ext_rcode: u8, options: &[u8]) -> Vec<u8> {
    response[11] += 1;
    let length = u16::try_from(options.len()).unwrap().to_be_bytes();
    response.extend([0, 0, 41, 4, 208, ext_rcode, 0, 0, 0]);
    response.extend(length);
    response.extend(options);
    response
}

/// A header with this code and without a question.
fn header(question: &[u8], rcode: u8) -> Vec<u8> {
    [&question[..2], &[0x81, 0x80 | rcode], &[0; 8]].concat()
}

/// PowerDNS CVE-2026-52690: a forged FORMERR turns EDNS off.
#[test]
fn forged_formerr_does_not_turn_edns_off() {
    let answers = |socket: &UdpSocket, question: &Asked| {
        for rcode in [1, 4, 5] {
            socket
                .send_to(&header(&question.message, rcode), question.from)
                .unwrap();
        }
        let answer = with_opt(honest(&question.message), 0, &[]);
        socket.send_to(&answer, question.from).unwrap();
    };
    with_workers(
        || vec![Upstream::start(answers, honest)],
        |upstreams, server| {
            for number in 0..20 {
                assert_resolves(server.dns, number);
            }
            upstreams[0].forget();
            for number in 20..40 {
                assert_resolves(server.dns, number);
            }
            let has_edns = |asked: &Asked| {
                let message = Message::parse(&asked.message).unwrap();
                matches!(message.opt(), Ok(Some(_)))
            };
            assert!(upstreams[0].asked().iter().all(has_edns));
        },
    );
}

/// The header of an answer: opcode, Z, QDCOUNT and flags.
fn odd(question: &[u8], opcode: u8, z: bool, questions: u8, [aa, tc, ra]: [bool; 3]) -> Vec<u8> {
    let (name, rtype) = asked(question);
    let lie = Record::a(Section::Answer, &name, address(LIE));
    let records = if rtype == Rtype::A {
        vec![lie]
    } else {
        vec![Record::soa()]
    };
    let mut message = response(question, Rcode::NOERROR, &records);
    message[2] = 0x81 | opcode << 3 | u8::from(aa) << 2 | u8::from(tc) << 1;
    message[3] = u8::from(ra) << 7 | u8::from(z) << 6;
    message[5] = questions;
    message
}

/// CVE-2026-42389: answers with odd headers. Accepted are those with the opcode QUERY and one question, whatever AA, RA
/// and Z are; TC leads to a connection.
#[test]
fn answers_with_odd_headers_are_not_accepted() {
    let bit = |of: u32, at: u32| of >> at & 1 == 1;
    // 16 opcodes, three QDCOUNTs and four flags.
    let parts = move |variant: u32| {
        let opcode = u8::try_from(variant & 15).unwrap();
        let questions = [1, 0, 2][usize::try_from(variant >> 8).unwrap()];
        let flags = [4, 5, 6].map(|at| bit(variant, at));
        (opcode, bit(variant, 7), questions, flags)
    };
    let answers = move |socket: &UdpSocket, question: &Asked| {
        let variant = number(&asked(&question.message).0).unwrap();
        let (opcode, z, questions, flags) = parts(variant);
        let lie = odd(&question.message, opcode, z, questions, flags);
        socket.send_to(&lie, question.from).unwrap();
        socket
            .send_to(&honest(&question.message), question.from)
            .unwrap();
    };
    with_workers(
        || vec![Upstream::start(answers, honest)],
        |_, server| {
            for variant in (0..3 << 8).filter(|variant| variant & 15 < 2 || variant >> 4 & 15 == 0)
            {
                let (opcode, _, questions, [_, tc, _]) = parts(variant);
                let accepted = opcode == 0 && questions == 1 && !tc;
                let expected = if accepted { LIE } else { variant };
                let answer = ask_name(server.dns, &name(variant), Rtype::AAAA);
                assert_eq!(
                    addresses(&answer),
                    [synthesised(expected)],
                    "{:?}",
                    parts(variant)
                );
            }
        },
    );
}

/// BIND CVE-2026-5950: an upstream that always has another error is asked without end.
#[test]
fn upstream_that_alternates_errors_is_asked_a_bounded_number_of_times() {
    let turns = Arc::new(Mutex::new(0_usize));
    let errors = move |question: &[u8]| {
        let mut turn = turns.lock().unwrap();
        *turn += 1;
        let empty = response(question, Rcode::NOERROR, &[]);
        let mut truncated = empty.clone();
        truncated[2] |= 2;
        match *turn % 5 {
            0 => with_opt(response(question, Rcode::FORMERR, &[]), 0, &[]),
            1 => response(question, Rcode::NOTIMP, &[]),
            2 => response(question, Rcode::SERVFAIL, &[]),
            3 => truncated,
            // BADCOOKIE, with the cookie of the question and one of a server.
            _ => {
                let seen = Message::parse(question).unwrap();
                let opt = seen.opt().unwrap();
                let cookie = opt.and_then(|opt| opt.options().next().map(|o| o.value.to_vec()));
                let client = cookie.unwrap_or(vec![0; 8]);
                let value = [&client[..8], &[7; 8]].concat();
                let mut badcookie = with_opt(empty, 1, &[&[0, 10, 0, 16], &value[..]].concat());
                badcookie[3] |= 7;
                badcookie
            }
        }
    };
    let errors = Arc::new(errors);
    let upstream = || {
        let (udp, tcp) = (Arc::clone(&errors), Arc::clone(&errors));
        Upstream::start(
            move |socket, question| {
                let _ = socket.send_to(&udp(&question.message), question.from);
            },
            move |question| tcp(question),
        )
    };
    with_workers(
        || vec![upstream(), upstream()],
        |upstreams, server| {
            for number in 0..40 {
                let answer = ask_name(server.dns, &name(number), Rtype::TXT);
                let codes = [Rcode::SERVFAIL, Rcode::FORMERR, Rcode::NOTIMP];
                assert!(codes.contains(&rcode(&answer)), "{answer:?}");
                for upstream in upstreams {
                    let asked = upstream.times_asked(&format!("n{number}.example"), Rtype::TXT);
                    // Three attempts, two in a simpler form and one with another cookie.
                    assert!(asked <= 6, "{asked} questions for name {number}");
                }
            }
            assert!(figure(server, "upstream_queries.tcp") <= 2 * 40 * 2);
        },
    );
}

/// RebirthDay, CVE-2025-5994: ECS options split the aggregation of equal questions, so that many are in flight.
#[test]
fn questions_with_different_ecs_share_one_upstream_query() {
    let held: Arc<Mutex<Vec<Asked>>> = Arc::default();
    let holds = Arc::clone(&held);
    let upstream = move || {
        let held = Arc::clone(&holds);
        Upstream::start(
            move |socket, question| {
                held.lock().unwrap().push(question.clone());
                // The query for this name shows that all have been sent.
                if number(&asked(&question.message).0) == Some(99) {
                    for question in held.lock().unwrap().drain(..) {
                        let _ = socket.send_to(&honest(&question.message), question.from);
                    }
                }
            },
            honest,
        )
    };
    with_workers(
        || vec![upstream()],
        |upstreams, server| {
            held.lock().unwrap().clear();
            let clients: Vec<_> = (0..64).map(|_| socket(server.dns, PATIENCE)).collect();
            for (number, client) in (0..).zip(&clients) {
                // Family IPv4, source prefix length 24 (RFC 7871 section 6).
                let ecs = [0, 8, 0, 7, 0, 1, 24, 0, 192, 0, number];
                let question = query_edns(number.into(), &name(5), 1232, &ecs);
                client.send(&question).unwrap();
            }
            wait_until("all queries wait", || {
                figure(server, "queries_waiting") == 64
            });
            ask_name(server.dns, &name(99), Rtype::A);
            for client in &clients {
                assert!(client.recv(&mut [0; 512]).unwrap() > 0);
            }
            // One, its retries, and one of the other worker for each second without an answer.
            let asked = upstreams[0].times_asked("n5.example", Rtype::AAAA);
            assert!((1..=5).contains(&asked), "{asked}");
            let ecs = |question: &Asked| question.message.windows(4).any(|w| w == [0, 8, 0, 7]);
            assert!(
                !upstreams[0].asked().iter().any(ecs),
                "ECS is not forwarded"
            );
        },
    );
}

/// dnsdist CVE-2026-33602: replies of a few octets, over UDP before the right one and over TCP.
#[test]
fn short_replies_end_nothing() {
    let answers = |socket: &UdpSocket, question: &Asked| {
        let honest = honest(&question.message);
        for len in 0..=16 {
            socket.send_to(&honest[..len], question.from).unwrap();
        }
        // Every fourth name over TCP as well, where the upstream sends the beginning of a reply only.
        let number = number(&asked(&question.message).0).unwrap();
        let tc = u8::from(number.is_multiple_of(4)) << 1;
        let mut answer = honest;
        answer[2] |= tc;
        socket.send_to(&answer, question.from).unwrap();
    };
    with_workers(
        || {
            vec![Upstream::start(answers, |question| {
                honest(question)[..16].to_vec()
            })]
        },
        |_, server| {
            for number in 0..20 {
                let answer = ask_name(server.dns, &name(number), Rtype::A);
                let expected = if number % 4 == 0 {
                    Rcode::SERVFAIL
                } else {
                    Rcode::NOERROR
                };
                assert_eq!(rcode(&answer), expected, "name {number}");
            }
        },
    );
}

/// "Poison Over Troubled Forwarders" (2020): answers in fragments, of which the second is forged.
#[test]
fn upstreams_are_told_to_send_no_fragments() {
    with_workers(
        || vec![Upstream::honest()],
        |upstreams, server| {
            assert_resolves(server.dns, 1);
            for question in upstreams[0].asked() {
                let message = Message::parse(&question.message).unwrap();
                assert_eq!(message.opt().unwrap().unwrap().udp_size, 1232);
            }
        },
    );
}

/// Options without end, options and OPT records twice (Unbound CVE-2026-41292, CVE-2026-42944).
#[test]
fn flood_of_options_is_answered() {
    with_workers(
        || vec![Upstream::honest()],
        |_, server| {
            let nsid = [0, 3, 0, 0];
            let cookie = [0, 10, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8];
            for options in [nsid.repeat(300), cookie.repeat(2), cookie.repeat(90)] {
                let answer = ask(server.dns, &query_edns(7, &name(3), 1232, &options));
                assert!(answer.len() <= 1232);
            }
            // RFC 6891 section 6.1.1.
            let mut two = query_edns(8, &name(3), 1232, &[]);
            two[11] = 2;
            two.extend([0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
            assert_eq!(rcode(&ask(server.dns, &two)), Rcode::FORMERR);
            assert_resolves(server.dns, 4);
        },
    );
}

/// A resolver that refuses, one that sends referrals, and one that answers with loops, each beside a healthy one: after
/// a second, the healthy one gets the questions.
#[test]
fn useless_upstream_is_left_within_a_second() {
    let refusal = |question: &[u8]| response(question, Rcode::REFUSED, &[]);
    let failure = |question: &[u8]| response(question, Rcode::SERVFAIL, &[]);
    let lame = |question: &[u8]| {
        let mut referral = response(question, Rcode::NOERROR, &[]);
        // `. 300 NS .`
        referral[9] = 1;
        referral.extend([0, 0, 2, 0, 1, 0, 0, 1, 44, 0, 1, 0]);
        referral
    };
    let looping = |question: &[u8]| {
        let (name, _) = asked(question);
        response(question, Rcode::NOERROR, &[Record::alias(&name, &name)])
    };
    let useless: [Answers; 4] = [refusal, failure, lame, looping];
    for (useless, reason) in useless
        .into_iter()
        .zip(["refused", "servfail", "lame", "loop"])
    {
        let upstreams = move || {
            let answers = move |socket: &UdpSocket, question: &Asked| {
                let _ = socket.send_to(&useless(&question.message), question.from);
            };
            vec![Upstream::start(answers, useless), Upstream::honest()]
        };
        with_workers(upstreams, |upstreams, server| {
            let begun = MonotonicClock.now();
            let mut number = 0;
            while MonotonicClock.now() < begun + SECOND || number < 20 {
                assert_resolves(server.dns, number);
                number += 1;
            }
            upstreams[0].forget();
            upstreams[1].forget();
            for number in number..number + 50 {
                assert_resolves(server.dns, number);
            }
            let [useless, healthy] = [0, 1].map(|server| upstreams[server].asked().len());
            assert!(
                healthy >= 100 && useless < healthy / 4,
                "{reason}: {useless} and {healthy}"
            );
            let address = upstreams[0].address;
            assert!(figure(server, &format!("upstream_faults.{address}.{reason}")) >= 3);
        });
    }
}

/// NXDOMAIN of a parent hides a forwarded zone (Unbound CVE-2026-44687); a fallback from an internal zone to public
/// servers.
#[test]
fn forwarded_name_is_never_asked_of_the_public_servers() {
    for workers in [1, 2] {
        unless_busy(|| {
            let refuse = |question: &[u8]| response(question, Rcode::REFUSED, &[]);
            let refusing = move |socket: &UdpSocket, question: &Asked| {
                let _ = socket.send_to(&refuse(&question.message), question.from);
            };
            let public = Upstream::honest();
            let inside = Upstream::honest();
            let broken = Upstream::start(refusing, refuse);
            let settings = format!(
                "workers = {workers}\n[upstream]\nservers = [\"{}\"]\n\
                 [[forward]]\nname = \"inside\"\ndomains = [\"n7.example\"]\nservers = [\"{}\"]\n\
                 [[forward]]\ndomains = [\"n8.example\"]\nservers = [\"{}\"]\n",
                public.address, inside.address, broken.address
            );
            let server = Server::start(&settings, Stdio::null);
            // Its parent does not exist.
            let parent = ask_name(server.dns, &"example".parse().unwrap(), Rtype::A);
            assert_eq!(rcode(&parent), Rcode::NXDOMAIN);
            for number in 1..20 {
                let answer = ask_name(server.dns, &name(number), Rtype::AAAA);
                let failed = rcode(&answer) == Rcode::SERVFAIL;
                assert_eq!(failed, number == 8, "{number}");
            }
            for (upstream, asked) in [(&public, 18), (&inside, 1), (&broken, 1)] {
                let names = upstream.asked();
                let names = names.iter().map(asked_name);
                let names: BTreeSet<_> = names.collect();
                assert_eq!(names.len(), asked, "{names:?}");
                let is_public = upstream.address == public.address;
                assert_eq!(
                    names.contains("n7.example."),
                    upstream.address == inside.address
                );
                assert_eq!(
                    names.contains("n8.example."),
                    upstream.address == broken.address
                );
                assert_eq!(names.contains("example."), is_public);
            }
            let status = stdout(&server.ctl(&["status"]));
            let shown = format!(
                "inside up=1/1 servers={} domains=n7.example.",
                inside.address
            );
            assert_eq!(value(&status, "forward"), shown);
            server.ends();
        });
    }
}

/// The name of a question, in lower case.
fn asked_name(question: &Asked) -> String {
    asked(&question.message).0.to_string().to_ascii_lowercase()
}
