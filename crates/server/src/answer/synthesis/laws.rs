//! Laws of synthesis for every pair of responses.

use dns64_wire::message::Message;
use proptest::prelude::*;

use super::super::texts::*;
use super::tests::{H2, answer_to};
use super::*;

/// A line of the response for [`H2`]: part of a chain, an address, a signature or another record.
fn some_line() -> impl Strategy<Value = String> {
    let owner = prop::sample::select(vec![H2, "H3.example.com", "h4.net", "example.com", "."]);
    let owner2 = prop::sample::select(vec![H2, "h3.Example.com", "h4.net"]);
    let data = prop_oneof![
        6 => any::<u32>().prop_map(|ip| format!("A {}", Ipv4Addr::from(ip & 0xffff_0003))),
        3 => owner2.prop_map(|target| format!("CNAME {target}")),
        1 => Just("RRSIG A".to_owned()),
        1 => Just("RRSIG CNAME".to_owned()),
        1 => Just("SOA 300".to_owned()),
        1 => any::<u32>().prop_map(|ip| format!("AAAA 2001:db8::{}", Ipv4Addr::from(ip))),
    ];
    let section = prop::sample::select(vec!["an", "an", "an", "an", "ns", "ar"]);
    (section, owner, 0..5000_u32, data)
        .prop_map(|(section, owner, ttl, data)| format!("{section} {owner} {ttl} {data}"))
}

fn some_response(rtype: Rtype) -> impl Strategy<Value = Vec<u8>> {
    let rcode = prop::sample::select(vec![0, 0, 0, 0, 2, 3]);
    (prop::collection::vec(some_line(), 0..12), rcode).prop_map(move |(mut lines, rcode)| {
        let order = |line: &String| ["an", "ns", "ar"].iter().position(|s| line.starts_with(s));
        lines.sort_by_key(order);
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        response(H2, rtype, Rcode(rcode), &lines)
    })
}

fn some_dns64() -> impl Strategy<Value = Dns64> {
    let prefix = prop::sample::select(vec![
        "2001:db8:100::/40",
        "2001:db8:1:2::/64",
        "64:ff9b::/96",
    ]);
    let action = prop::sample::select(vec![DomainAction::Include, DomainAction::Force]);
    (prefix, action, any::<bool>()).prop_map(|(prefix, action, ranged)| {
        let ranges = if ranged {
            vec![("0.0.0.0/2".parse().expect("a network"), None)]
        } else {
            vec![]
        };
        let prefixes = vec![prefix.parse().expect("a prefix")];
        Dns64 {
            prefixes,
            ranges,
            ..with_rule("example.com", action, None)
        }
    })
}

fn keep(bytes: &[u8]) -> Option<Stored> {
    Stored::accept(&Message::parse(bytes).ok()?, &BOUNDS).ok()
}

proptest! {
    #[test]
    fn synthesised_records_match_a_records(
        aaaa in some_response(Rtype::AAAA),
        a in some_response(Rtype::A),
        dns64 in some_dns64(),
        limit in 512..2000_usize,
        ages in (0..6000_u32, 0..6000_u32),
    ) {
        let (aaaa, a) = (keep(&aaaa).expect("sound"), keep(&a).expect("sound"));
        let asker = Asker { limit, ..asker("H2.example.COM", Rtype::AAAA) };
        let aged = (Aged::fresh(&aaaa, ages.0), Aged::fresh(&a, ages.1));
        let (bytes, made) = answer_to(&asker, &dns64, aged.0, aged.1);
        prop_assert!(bytes.len() <= limit);
        let message = Message::parse(&bytes).expect("sound");
        let (a_message, end) = (a.message(), a.chain_end());
        let inputs: Vec<_> = a_message.records().map(|r| r.expect("sound")).collect();
        let mut seen = Vec::new();
        for record in message.records() {
            let record = record.expect("sound");
            let Some(ipv6) = record.aaaa().filter(|_| made > 0 && record.section == Section::Answer) else {
                continue;
            };
            prop_assert!(!message.ad());
            prop_assert!(record.name.eq_ignore_case(&end));
            let ipv4 = dns64.prefixes[0].extract(ipv6).expect("a synthesised address");
            let sources = inputs.iter().filter(|r| r.a() == Some(ipv4) && r.section == Section::Answer && r.name.eq_ignore_case(&end));
            let ttl = sources.map(|r| aged.1.ttl(r.ttl)).max().expect("the source record");
            prop_assert!(record.ttl <= ttl.min(ttl_max(aged.0)));
            let rule = dns64.domains.rule(&asker.name.as_name());
            prop_assert!(dns64.embed(ipv4, rule).eq([ipv6]));
            seen.push(ipv6);
        }
        prop_assert_eq!(seen.len(), made);
        seen.sort();
        seen.dedup();
        prop_assert_eq!(seen.len(), made);
        if made > 0 {
            let left_out = message.records().map(|r| r.expect("sound")).any(|r| {
                r.section == Section::Answer && (r.rtype == Rtype::A || r.rtype == Rtype::RRSIG && r.rdata.starts_with(&[0, 1]))
            });
            prop_assert!(!left_out);
        }
    }

    #[test]
    fn synthesis_never_panics(
        responses in (some_response(Rtype::AAAA), some_response(Rtype::A)),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        dns64 in some_dns64(),
    ) {
        let (mut aaaa, mut a) = responses;
        let question_end = 12 + H2.len() + 2 + 4;
        for (at, octet) in damage {
            for bytes in [&mut aaaa, &mut a] {
                // The question was compared with that of the query before.
                let len = bytes.len() - question_end;
                if len > 0 {
                    bytes[question_end + at.index(len)] = octet;
                }
            }
        }
        if let (Some(aaaa), Some(a)) = (keep(&aaaa), keep(&a)) {
            let asker = asker(H2, Rtype::AAAA);
            judge(&asker, &dns64, &aaaa);
            let (bytes, _) = answer_to(&asker, &dns64, Aged::fresh(&aaaa, 1), Aged::fresh(&a, 2));
            let message = Message::parse(&bytes).expect("sound");
            prop_assert!(message.records().all(|record| record.is_ok()));
            let mut frame = [0; 1232];
            let len = filtered(&asker, &dns64, Aged::fresh(&aaaa, 1), &mut frame);
            prop_assert!(Message::parse(&frame[..len]).is_ok());
        }
    }
}
