//! What is true of any dialogue.

use std::collections::HashSet;

use dns64_transport::clock::SECOND;
use dns64_wire::codes::{Rcode, Rtype};
use proptest::prelude::*;

use super::messages::{REPLY_WORDS, Words};
use super::stage::{InFlight, Query, Stage, Way};

/// RFC 5452 section 9.2: whoever guesses must guess both port and ID. Questions that come one by one
/// have a port each; in a burst eight share one, the next burst has others.
#[test]
fn ports_and_ids_are_spread() {
    for (at_once, ports) in [(1, 3000), (8, 3000), (50, 480)] {
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
            Way::Connection(_) => panic!("nobody asked for a connection"),
        };
        let asked: HashSet<usize> = stage.in_flight().iter().map(port).collect();
        assert_eq!(asked.len(), ports, "{at_once} at once");
        // 67 of 3000 IDs twice are expected (birthdays among 65,536).
        let ids: HashSet<u16> = stage.in_flight().iter().map(|asked| asked.id).collect();
        assert!(ids.len() > 2800, "{} IDs", ids.len());
    }
}

const SETTINGS: [&str; 5] = [
    "",
    "cache.serve-stale = \"1h\"\nupstream.order = \"both\"",
    "cache.prefetch = true\nupstream.order = \"delayed\"\nupstream.delay = \"50ms\"\n\
     upstream.servers = [\"192.0.2.1\", \"192.0.2.2\"]\nupstream.selection = \"fastest\"",
    "cache.size = \"off\"\nqueries-max = 16\nupstream.randomise-case = true\n\
     upstream.servers = [\"192.0.2.1\", \"192.0.2.2\", \"192.0.2.3\"]\n\
     upstream.selection = \"round-robin\"\nupstream.attempts = 1",
    "dns64.enabled = false\ncache.serve-stale = \"1h\"\ncache.prefetch = true",
];

/// 2001:db8:64::c000:201, an address made from 192.0.2.1.
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

/// What an upstream says: the truth, in one of several shapes, or a lie before it.
fn reply(stage: &mut Stage, which: usize, kind: usize, lie: usize) {
    let Some(InFlight { question, way, .. }) = stage.in_flight().get(which) else {
        return;
    };
    if kind == 8 && matches!(way, Way::Connection(_)) {
        return stage.close(which);
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

/// What no answer may say, whatever was said before.
fn check(lines: &[String]) -> Result<(), TestCaseError> {
    let mut head = "";
    for line in lines {
        if line.starts_with("answer ") {
            head = line;
        }
        let is_made = line.contains("AAAA 2001:db8:64:");
        prop_assert!(
            !is_made || !head.contains(" ad"),
            "AD on what was made: {head} {line}"
        );
        prop_assert!(
            !(is_made && head.contains(" cd") && head.contains(" do")),
            "made for who validates: {head} {line}"
        );
    }
    Ok(())
}

proptest! {
    /// Whatever clients ask and upstreams say: nobody is answered twice or with what cannot be read
    /// (the stage sees to that), nothing made is called authentic or made for who validates, and in
    /// the end each has an answer, or it came too late, and nothing is left in the tables.
    #[test]
    fn any_dialogue_ends_with_an_answer_for_each(
        settings in 0..SETTINGS.len(),
        events in prop::collection::vec(event(), 1..60),
    ) {
        let mut stage = Stage::new(SETTINGS[settings]);
        let mut lines = Vec::new();
        for (label, event) in (1..).zip(events) {
            match event {
                Event::Query { name, rtype, bits } => ask(&mut stage, label, name, rtype, bits),
                Event::Reply { which, kind, lie } => reply(&mut stage, which, kind, lie),
                Event::Wait { ms } => stage.wait(ms * SECOND / 1000),
                Event::Flush => stage.flush(None),
                Event::Reload { settings } => stage.reload(SETTINGS[settings]),
            }
            lines.extend(stage.take_lines());
        }
        // Connections of which nobody hears, one upstream after the other, for A and AAAA.
        stage.wait(600 * SECOND);
        lines.extend(stage.take_lines());
        check(&lines)?;
        prop_assert!(stage.is_at_rest());
        let (_, unanswered) = stage.answered();
        stage.count("dropped");
        let dropped = stage.take_lines().concat();
        let late = dropped.split("late=").nth(1).map_or(0, |n| n.parse::<usize>().unwrap());
        prop_assert!(unanswered <= late, "{unanswered} have no answer: {dropped}");
        for gauge in ["queries_waiting", "lookups_in_flight"] {
            stage.count(gauge);
        }
        prop_assert_eq!(stage.take_lines(), ["queries_waiting", "lookups_in_flight"]);
    }
}
