//! Laws that hold for every dialogue.

use std::collections::HashSet;

use dns64_transport::clock::SECOND;
use dns64_wire::codes::{Rcode, Rtype};
use dns64d::mailbox::ConnectionFailed;
use proptest::prelude::*;

use super::messages::{REPLY_WORDS, Words};
use super::stage::{InFlight, Query, Stage, Way};

/// RFC 5452 section 9.2: an attacker must guess both port and ID. Each query has its own port, in a
/// burst too, unless bursts of at least 64 follow each other.
#[test]
fn upstream_ports_and_ids_are_spread() {
    // Of 100 at once, the second and later iterations share four ports for each 64 queries of an
    // iteration.
    for (at_once, ports) in [(1, 3000), (50, 3000), (100, 100 + 29 * 8)] {
        let mut stage = Stage::new("");
        for first in (1..=3000).step_by(at_once) {
            stage.query(&Query {
                labels: first..=first + u32::try_from(at_once).unwrap() - 1,
                from: "2001:db8::1",
                words: vec!["n{}.example", "A"],
            });
        }
        let port = |asked: &InFlight| match asked.way {
            Way::Port(port) => port,
            Way::Connection(_) | Way::Tls(_) => panic!("unexpected connection"),
        };
        let asked: HashSet<usize> = stage.in_flight().iter().map(port).collect();
        // A random port without queries in flight is not always found.
        let found = asked.len();
        assert!(
            (ports - ports / 20..=ports).contains(&found),
            "{at_once} at once: {found}"
        );
        // 67 of 3000 IDs twice are expected (birthdays among 65,536).
        let ids: HashSet<u16> = stage.in_flight().iter().map(|asked| asked.id).collect();
        assert!(ids.len() > 2800, "{} IDs", ids.len());
    }
}

const SETTINGS: [&str; 6] = [
    "",
    "cache.serve-stale = \"1h\"\nupstream.order = \"both\"",
    "cache.prefetch = true\nupstream.order = \"delayed\"\nupstream.delay = \"50ms\"\n\
     upstream.servers = [\"192.0.2.1\", \"192.0.2.2\"]\nupstream.selection = \"fastest\"",
    "cache.size = \"off\"\nqueries-max = 16\nupstream.randomise-case = true\n\
     upstream.servers = [\"192.0.2.1\", \"192.0.2.2\", \"192.0.2.3\"]\n\
     upstream.selection = \"round-robin\"\nupstream.attempts = 1",
    "dns64.enabled = false\ncache.serve-stale = \"1h\"\ncache.prefetch = true",
    "cache.prefetch = true\n[[forward]]\ndomains = [\"end.example\"]\nservers = [\"192.0.2.9\"]",
];

/// The settings with a domain that has an upstream of its own: number 1.
const FORWARDING: usize = 5;

/// The reverse name of 2001:db8:64::c000:201, which is synthesised from 192.0.2.1.
const MADE: &str = "1.0.2.0.0.0.0.c.0.0.0.0.0.0.0.0.0.0.0.0.4.6.0.0.8.b.d.0.1.0.0.2.ip6.arpa";

#[derive(Clone, Debug)]
enum Event {
    Query {
        name: usize,
        rtype: usize,
        bits: usize,
    },
    Reply {
        which: usize,
        kind: usize,
        lie: usize,
    },
    Wait {
        ms: u64,
    },
    Flush,
    Reload {
        settings: usize,
    },
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..4_usize, 0..5_usize, 0..8_usize)
            .prop_map(|(name, rtype, bits)| Event::Query { name, rtype, bits }),
        5 => (0..8_usize, 0..9_usize, 0..12_usize)
            .prop_map(|(which, kind, lie)| Event::Reply { which, kind, lie }),
        2 => prop_oneof![0..200_u64, 500..4_000_u64, Just(31_000)]
            .prop_map(|ms| Event::Wait { ms }),
        1 => prop_oneof![
            Just(Event::Flush),
            (0..SETTINGS.len()).prop_map(|settings| Event::Reload { settings }),
        ],
    ]
}

fn ask(stage: &mut Stage, label: u32, name: usize, rtype: usize, bits: usize) {
    let name = ["www.example", "WWW.Example", "alias.example", "n{}.example"][name];
    let rtype = ["AAAA", "AAAA", "A", "HTTPS", "PTR"][rtype];
    let name = if rtype == "PTR" { MADE } else { name };
    let bits = [
        vec![],
        vec![],
        vec!["+do"],
        vec!["+cd"],
        vec!["+do", "+cd"],
        vec!["tcp"],
        vec!["+ad", "edns=1232"],
        vec!["cookie=last"],
    ][bits]
        .clone();
    stage.query(&Query {
        labels: label..=label,
        from: "2001:db8::1",
        words: [vec![name, rtype], bits].concat(),
    });
}

/// A response of an upstream: a valid one of several kinds, perhaps after a forged one.
fn reply(stage: &mut Stage, which: usize, kind: usize, lie: usize) {
    let Some(InFlight { question, way, .. }) = stage.in_flight().get(which) else {
        return;
    };
    if kind == 8 && matches!(way, Way::Connection(_)) {
        return stage.close(which, ConnectionFailed::Unanswered);
    }
    let name = question.name.to_string();
    let record = |text: String| ("answer".to_owned(), text);
    let data = match question.rtype {
        Rtype::A => "A 192.0.2.1",
        Rtype::AAAA => "AAAA 2001:db8::80",
        Rtype::PTR => "PTR www.example",
        _ => "HTTPS 1 . ipv4hint=192.0.2.1",
    };
    let soa = ("authority".to_owned(), "example 5 SOA 5".to_owned());
    let signature = ("authority".to_owned(), "example 5 RRSIG SOA".to_owned());
    let (rcode, words, records) = match kind {
        0 if question.rtype != Rtype::AAAA => (
            Rcode::NOERROR,
            "ad",
            vec![record(format!("{name} 10 {data}"))],
        ),
        1 => {
            let alias = record(format!("{name} 10 CNAME end.example"));
            let end = record(format!("end.example 0 {data}"));
            (Rcode::NOERROR, "ad", vec![alias, end])
        }
        2 => (Rcode::NXDOMAIN, "ad", vec![soa]),
        3 => (Rcode::SERVFAIL, "ede=6", vec![]),
        4 => (Rcode::REFUSED, "noedns", vec![]),
        5 => (Rcode::NOERROR, "tc", vec![]),
        6 => (Rcode::NOERROR, "ad", vec![soa, signature]),
        _ => (Rcode::NOERROR, "aa", vec![soa]),
    };
    let lie = [
        "id=wrong",
        "port=wrong",
        "qr=0",
        "no-question",
        "cut=9",
        "case=flip",
    ]
    .get(lie);
    if let Some(lie) = lie {
        let words = Words::read(&[lie, words, "keep"], &REPLY_WORDS);
        return stage.reply(which, rcode, &words, &records);
    }
    let words = Words::read(&[words], &REPLY_WORDS);
    stage.reply(which, rcode, &words, &records);
}

/// Checks what no response may contain in any dialogue.
fn check(lines: &[String]) -> Result<(), TestCaseError> {
    let mut head = "";
    for line in lines {
        if line.starts_with("answer ") {
            head = line;
        }
        let is_made = line.contains("AAAA 2001:db8:64:");
        prop_assert!(
            !is_made || !head.contains(" ad"),
            "AD with synthesised records: {head} {line}"
        );
        prop_assert!(
            !(is_made && head.contains(" cd") && head.contains(" do")),
            "synthesis for a validating client: {head} {line}"
        );
    }
    Ok(())
}

/// Checks that only the upstreams of a name are queried for it.
fn check_upstreams(settings: usize, lines: &[String]) -> Result<(), TestCaseError> {
    for line in lines.iter().filter(|_| settings == FORWARDING) {
        let Some(asked) = line.strip_prefix("ask ") else {
            continue;
        };
        let is_end = asked.to_ascii_lowercase().contains(": end.example. ");
        prop_assert_eq!(asked.starts_with('1'), is_end, "{}", line);
    }
    Ok(())
}

proptest! {
    /// Whatever clients and upstreams send: no query gets two responses or a malformed one (`stage`
    /// checks that), nothing synthesised has AD or goes to a client that validates. At the end,
    /// each query has a response or is counted as late, and the tables are empty.
    #[test]
    fn every_dialogue_ends_with_a_response_to_each_query(
        settings in 0..SETTINGS.len(),
        events in prop::collection::vec(event(), 1..60),
    ) {
        let mut stage = Stage::new(SETTINGS[settings]);
        let (mut settings, mut lines) = (settings, Vec::new());
        for (label, event) in (1..).zip(events) {
            match event {
                Event::Query { name, rtype, bits } => ask(&mut stage, label, name, rtype, bits),
                Event::Reply { which, kind, lie } => reply(&mut stage, which, kind, lie),
                Event::Wait { ms } => stage.wait(ms * SECOND / 1000),
                Event::Flush => stage.flush(None),
                Event::Reload { settings: new } => {
                    settings = new;
                    stage.reload(SETTINGS[settings]);
                }
            }
            let new = stage.take_lines();
            check_upstreams(settings, &new)?;
            lines.extend(new);
        }
        // Connections without any response, to one upstream after the other, for A and AAAA.
        stage.wait(600 * SECOND);
        lines.extend(stage.take_lines());
        check(&lines)?;
        prop_assert!(stage.is_at_rest());
        let (_, unanswered) = stage.answered();
        stage.count("dropped");
        let dropped = stage.take_lines().concat();
        let late = dropped.split("late=").nth(1).map_or(0, |n| n.parse::<usize>().unwrap());
        prop_assert!(unanswered <= late, "{unanswered} queries without a response: {dropped}");
        for gauge in ["queries_waiting", "lookups_in_flight"] {
            stage.count(gauge);
        }
        prop_assert_eq!(stage.take_lines(), ["queries_waiting", "lookups_in_flight"]);
    }
}

/// Settings that lead to different cached responses and TTLs.
const KEEPING: [&str; 4] = [
    "",
    "cache.prefetch = true\ncache.serve-stale = \"1h\"\ndns64.mark-synthesised = true\n\
     [[view]]\nclients = [\"2001:db8:1::/48\"]\ndns64 = { prefix = \"2001:db8:65::/96\" }",
    "[[forward]]\nname = \"end\"\ndomains = [\"end.example\"]\nservers = [\"192.0.2.9\"]\n\
     [[view]]\nclients = [\"2001:db8:1::/48\"]\nforward = [\"end\"]",
    "cache.max-ttl = \"20s\"\ndns64.exclude-aaaa = [\"::/0\"]\ndns64.synthesise-signed = \"always\"",
];

/// A query for one of a few names after some seconds. The upstreams respond to each name in their
/// usual way.
#[derive(Clone, Debug)]
struct Again {
    after_s: u64,
    name: usize,
    rtype: usize,
    bits: usize,
    other_view: bool,
}

fn again() -> impl Strategy<Value = Again> {
    let after_s = prop_oneof![8 => Just(0), 4 => 1..12_u64, 1 => 30..200_u64];
    let question = (0..4_usize, 0..5_usize, 0..9_usize);
    (after_s, question, any::<bool>()).prop_map(|(after_s, (name, rtype, bits), other_view)| {
        Again {
            after_s,
            name,
            rtype,
            bits,
            other_view,
        }
    })
}

/// Answers all queries in flight according to the queried name.
fn answer_all(stage: &mut Stage) {
    while let Some(InFlight { question, .. }) = stage.in_flight().first() {
        let name = question.name.to_string();
        let is_alias = name.to_ascii_lowercase().starts_with("alias");
        let owner = if is_alias { "end.example" } else { &name };
        let line = |section: &str, text: String| (section.to_owned(), text);
        let mut records = Vec::new();
        if is_alias {
            records.push(line("answer", format!("{name} 90 CNAME end.example")));
        }
        match question.rtype {
            Rtype::AAAA if name.starts_with("native") => {
                records.push(line("answer", format!("{owner} 50 AAAA 2001:db8::80")));
            }
            Rtype::A => {
                records.push(line("answer", format!("{owner} 700 A 192.0.2.1")));
                records.push(line("answer", format!("{owner} 40 A 192.0.2.2")));
                records.push(line("additional", "ns.example 30 A 192.0.2.53".to_owned()));
            }
            Rtype::HTTPS => {
                records.push(line(
                    "answer",
                    format!("{owner} 90 HTTPS 1 . ipv4hint=192.0.2.1"),
                ));
                records.push(line("additional", format!("{owner} 700 A 192.0.2.1")));
            }
            Rtype::PTR => records.push(line("answer", format!("{owner} 60 PTR www.example"))),
            _ => records.push(line("authority", "example 60 SOA 45".to_owned())),
        }
        let words = ["ad", "ede=4"];
        let words = Words::read(&words, &REPLY_WORDS);
        stage.reply(0, Rcode::NOERROR, &words, &records);
    }
}

proptest! {
    /// A cached response equals the response that would be rendered at that time, for every client.
    /// `stage` compares it with an engine whose cache of responses is cleared (see `twins`).
    #[test]
    fn cached_response_equals_rendered_response(
        settings in 0..KEEPING.len(),
        queries in prop::collection::vec(again(), 40..120),
    ) {
        let mut stage = Stage::new(KEEPING[settings]);
        for (label, query) in (1..).zip(queries) {
            stage.wait(query.after_s * SECOND);
            let name = ["www.example", "WWW.Example", "alias.example", "native.example"][query.name];
            let rtype = ["AAAA", "AAAA", "A", "HTTPS", "PTR"][query.rtype];
            let name = if rtype == "PTR" { MADE } else { name };
            let bits = ["", "", "+do", "+cd", "+do edns=512", "tcp", "tls opt=12:", "+ad edns=1232", "cookie=last",
                "edns=4096 +ad +do"][query.bits];
            let from = if query.other_view { "2001:db8:1::1" } else { "2001:db8::1" };
            stage.query(&Query {
                labels: label..=label,
                from,
                words: [name, rtype].into_iter().chain(bits.split_whitespace()).collect(),
            });
            answer_all(&mut stage);
        }
        // In any state, at least the third of three responses comes from the cache.
        for label in 1001..=1003 {
            stage.query(&Query {
                labels: label..=label,
                from: "2001:db8::1",
                words: vec!["last.example", "A"],
            });
            answer_all(&mut stage);
        }
        stage.take_lines();
        stage.count("rendered");
        prop_assert_ne!(stage.take_lines(), ["rendered"]);
    }
}
