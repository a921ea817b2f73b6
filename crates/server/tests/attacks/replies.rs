//! Hostile responses of upstreams, and forged ones.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicU64, Ordering};

use dns64_wire::codes::{Rcode, Rtype};
use dns64_wire::message::Section;
use dns64_wire::name::NameBuf;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::packets::{
    MESSAGE_MAX, Record, address, addresses, asked, honest, mutant, name, number, query, rcode,
    response, truncated,
};
use super::upstream::Upstream;
use super::victim::{
    ask_connection, ask_name, assert_resolves, assert_resolves_in_the_end, figure, start,
    unless_busy,
};

/// Number of the address in forged responses.
const LIE: u32 = 0x00ff_ffff;

/// A forged response to any query; its last record is an address.
fn lie(question: &[u8]) -> Vec<u8> {
    let (name, rtype) = asked(question);
    let address = |section| Record::a(section, &name, address(LIE));
    match rtype {
        Rtype::A => response(question, Rcode::NOERROR, &[address(Section::Answer)]),
        _ => {
            let records = [Record::soa(), address(Section::Additional)];
            response(question, Rcode::NXDOMAIN, &records)
        }
    }
}

/// Forged responses that can be detected: none has the ID, the question and the format of a valid
/// response.
fn tellable_lies(question: &[u8]) -> Vec<Vec<u8>> {
    let lie = lie(question);
    let end = 12 + asked(question).0.as_wire().len() + 4;
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut lie = lie.clone();
        change(&mut lie);
        lie
    };
    vec![
        Vec::new(),
        lie[..3].to_vec(),
        lie[..11].to_vec(),
        changed(&|lie| lie.truncate(end + 5)),
        changed(&|lie| lie.truncate(end - 2)),
        // No question; a header alone. With an error code it would be a response.
        changed(&|lie| lie[5] = 0),
        changed(&|lie| {
            lie.truncate(12);
            lie[4..12].fill(0);
            lie[3] &= 0xf0;
        }),
        changed(&|lie| lie[5] = 2),
        // A query instead of a response.
        changed(&|lie| lie[2] &= 0x7f),
        // Another name, type and class.
        changed(&|lie| lie[13] ^= 1),
        changed(&|lie| lie[end - 3] ^= 1),
        changed(&|lie| lie[end - 1] ^= 2),
        // Compression pointers to themselves, to each other and beyond the end.
        changed(&|lie| lie[12..14].copy_from_slice(&[0xc0, 12])),
        changed(&|lie| {
            lie.truncate(end);
            lie.extend([
                0xc0,
                u8::try_from(end).unwrap(),
                0,
                1,
                0,
                1,
                0,
                0,
                1,
                0,
                0,
                0,
            ]);
        }),
        changed(&|lie| {
            lie.truncate(end);
            lie.extend([0xff, 0xff, 0, 1, 0, 1, 0, 0, 1, 0, 0, 0]);
        }),
        // An alias whose target is within its TTL, at a label of a reserved type.
        changed(&|lie| {
            lie.truncate(end);
            lie[6..12].copy_from_slice(&[0, 1, 0, 0, 0, 0]);
            let target = u8::try_from(end + 9).unwrap();
            lie.extend([0xc0, 12, 0, 5, 0, 1, 5, 0, 0, 0x80, 0, 2, 0xc0, target]);
        }),
        // A data length that is too small or too large; fewer records than the header counts.
        changed(&|lie| *lie.iter_mut().nth_back(4).unwrap() = 5),
        changed(&|lie| {
            let len = lie.len();
            lie[len - 6..len - 4].copy_from_slice(&[0xff, 0xff]);
        }),
        changed(&|lie| lie[6..8].fill(0xff)),
    ]
}

/// Forged responses with wrong IDs.
fn guessed_lies(question: &[u8], random: &mut StdRng) -> Vec<Vec<u8>> {
    let lie = lie(question);
    let mut lies = Vec::new();
    for _ in 0..50 {
        let other: u16 = random.random_range(1..=u16::MAX);
        let id = u16::from_be_bytes([lie[0], lie[1]]) ^ other;
        lies.push([&id.to_be_bytes(), &lie[2..]].concat());
    }
    for _ in 0..30 {
        let mut noise = mutant(&lie, random);
        if noise.starts_with(&lie[..2]) {
            noise[0] ^= 0x55;
        }
        lies.push(noise);
    }
    lies
}

#[test]
fn forged_responses_do_not_replace_the_valid_one() {
    unless_busy(|| {
        let mut random = StdRng::seed_from_u64(5);
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        let neighbour = UdpSocket::bind("127.0.0.2:0").unwrap();
        let upstream = Upstream::start(
            move |socket, question| {
                let (to, message) = (question.from, &question.message);
                // From another port and another address, but otherwise valid. The kernel may reject
                // them.
                let _ = stranger.send_to(&lie(message), to);
                let _ = neighbour.send_to(&lie(message), to);
                let guessed = guessed_lies(message, &mut random);
                for lie in tellable_lies(message).iter().chain(&guessed) {
                    socket.send_to(lie, to).unwrap();
                }
                socket.send_to(&honest(message), to).unwrap();
                // Forged responses after the valid one have no effect.
                socket.send_to(&lie(message), to).unwrap();
                socket.send_to(&lie(message), to).unwrap();
            },
            honest,
        );
        let server = start(&upstream, "", "timeout = \"4500ms\"");
        for number in 0..40 {
            assert_resolves(server.dns, number);
        }
        for reason in ["malformed", "question", "unknown"] {
            let rejected = figure(&server, &format!("upstream_rejected.{reason}"));
            assert!(rejected >= 80, "{rejected} rejected as {reason}");
        }
        server.ends();
    });
}

#[test]
fn mutated_responses_affect_no_other_name() {
    unless_busy(|| {
        // A hostile upstream may give wrong responses to its own queries, but must not affect
        // others.
        let mut random = StdRng::seed_from_u64(6);
        let upstream = Upstream::start(
            move |socket, question| {
                let (name, to) = (asked(&question.message).0, question.from);
                if number(&name).is_some_and(|number| number >= 1000) {
                    for _ in 0..8 {
                        let mutant = mutant(&honest(&question.message), &mut random);
                        let _ = socket.send_to(&mutant, to);
                    }
                } else {
                    socket.send_to(&honest(&question.message), to).unwrap();
                }
            },
            honest,
        );
        let server = start(&upstream, "", "timeout = \"50ms\"\nattempts = 2");
        for number in 0..150 {
            let answer = ask_name(server.dns, &name(1000 + number), Rtype::AAAA);
            assert!(answer[2] & 0x80 != 0);
            assert_resolves_in_the_end(server.dns, number);
        }
        server.ends();
    });
}

#[test]
fn records_of_other_names_are_not_cached() {
    unless_busy(|| {
        let victim = || name(2);
        let poison = move |question: &[u8]| {
            let (name, _) = asked(question);
            let alias = |target: &NameBuf| Record::alias(&name, target);
            let victims = |section| Record::a(section, &victim(), address(LIE));
            let records = match number(&name) {
                Some(10) => vec![
                    Record::a(Section::Answer, &name, address(10)),
                    victims(Section::Answer),
                ],
                Some(11) => vec![Record::soa(), victims(Section::Authority)],
                Some(12) => vec![Record::soa(), victims(Section::Additional)],
                Some(13) => vec![alias(&victim()), victims(Section::Answer)],
                _ => return honest(question),
            };
            response(question, Rcode::NOERROR, &records)
        };
        let upstream = Upstream::start(
            move |socket, question| {
                let _ = socket.send_to(&poison(&question.message), question.from);
            },
            honest,
        );
        let server = start(&upstream, "", "timeout = \"4500ms\"");
        for number in [10, 11, 12, 13] {
            for rtype in [Rtype::A, Rtype::AAAA, Rtype::NS] {
                ask_name(server.dns, &name(number), rtype);
            }
        }
        assert_resolves(server.dns, 2);
        assert_eq!(upstream.times_asked("n2.example", Rtype::A), 1);
        server.ends();
    });
}

/// A response with as many records as a message holds: many short ones, aliases in reverse order,
/// or names that share a suffix only after many labels.
fn largest(question: &[u8], number: u32) -> Vec<u8> {
    let (name, _) = asked(question);
    let link = |i: u32| super::packets::name(1 << 20 | i);
    let records: Vec<Record> = match number {
        0 => (0..6000)
            .map(|i| Record::a(Section::Answer, &name, address(i)))
            .collect(),
        1 => (0..4000)
            .map(|i| Record::a(Section::Answer, &link(i), address(i)))
            .collect(),
        2 => (0..2000)
            .rev()
            .map(|i| match i {
                0 => Record::alias(&name, &link(1)),
                i => Record::alias(&link(i), &link(i + 1)),
            })
            .collect(),
        _ => (0..2000)
            .map(|i| {
                let labels: NameBuf = "x.".repeat(60).parse::<NameBuf>().unwrap();
                let owner = labels.child(format!("{i}").as_bytes()).unwrap();
                Record::a(Section::Additional, &owner, address(i))
            })
            .chain([Record::a(Section::Additional, &name, address(number))])
            .collect(),
    };
    response(question, Rcode::NOERROR, &records)
}

#[test]
fn largest_responses_are_forwarded_or_fail() {
    unless_busy(|| {
        let octets = std::sync::Arc::new(AtomicU64::new(0));
        let sent = std::sync::Arc::clone(&octets);
        let upstream = Upstream::start(
            |socket, question| {
                let name = asked(&question.message).0;
                let answer = match number(&name) {
                    Some(0..8) => truncated(&question.message),
                    _ => honest(&question.message),
                };
                let _ = socket.send_to(&answer, question.from);
            },
            move |question| {
                let answer = match (number(&asked(question).0), asked(question).1) {
                    (Some(number), rtype) if number < 4 || rtype != Rtype::AAAA => {
                        largest(question, number % 4)
                    }
                    _ => honest(question),
                };
                sent.fetch_max(answer.len() as u64, Ordering::Relaxed);
                answer
            },
        );
        let server = start(&upstream, "", "");
        for number in 0..8 {
            for rtype in [Rtype::A, Rtype::AAAA, Rtype::HTTPS] {
                let answer = ask_connection(server.dns, &query(9, &name(number), rtype));
                // All records are well-formed, or the response is a failure.
                let _made = addresses(&answer);
                assert!([Rcode::NOERROR, Rcode::SERVFAIL].contains(&rcode(&answer)));
            }
        }
        let octets = octets.load(Ordering::Relaxed);
        assert!(octets > MESSAGE_MAX as u64 - 300, "{octets} octets at most");
        assert_resolves(server.dns, 100);
        server.ends();
    });
}
