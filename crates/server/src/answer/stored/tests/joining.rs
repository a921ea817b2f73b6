//! Incomplete chains and the responses that continue them.

use super::*;
use crate::answer::texts;

/// The combination of `first`, 10 s old, and `next`, fresh.
fn continued(first: &Stored, next: &Stored) -> Stored {
    Aged::fresh(first, 10).continued(&Aged::fresh(next, 0))
}

/// The aliases from `n0.test` to `n5.sub.test`, with a signature over each.
fn links() -> Vec<String> {
    let link = |i| {
        [
            format!("an n{i}.sub.test 60 CNAME n{}.sub.test", i + 1),
            format!("an n{i}.sub.test 60 RRSIG CNAME"),
        ]
    };
    (0..5).flat_map(link).collect()
}

/// A response to a query for `asked`, in two sections of lines.
fn stored(asked: &str, rcode: Rcode, parts: [&[String]; 2]) -> Stored {
    let lines: Vec<&str> = parts
        .iter()
        .copied()
        .flatten()
        .map(String::as_str)
        .collect();
    texts::stored(asked, Rtype::AAAA, rcode, &lines)
}

/// The contents of a response, independent of the compression of its names.
fn said(stored: &Stored) -> impl PartialEq + std::fmt::Debug {
    let open_end = stored.open_end().map(|name| name.to_string());
    (
        texts::lines(stored.message().bytes()),
        (
            stored.kind(),
            stored.found(),
            stored.ad(),
            stored.is_signed(),
        ),
        (stored.ttl_s(), stored.soa_ttl_s()),
        (stored.chain_end().to_string(), open_end),
        stored.aaaa().collect::<Vec<_>>(),
    )
}

#[test]
fn chain_in_two_responses_equals_chain_in_one() {
    let signature = String::from("an n5.sub.test 60 RRSIG AAAA");
    let records = [
        String::from("an n5.sub.test 60 AAAA 2001:db8::1"),
        signature,
    ];
    let nothing = ["test 900 SOA 50", "test 900 RRSIG SOA"].map(|line| format!("ns {line}"));
    for (rcode, end) in [
        (Rcode::NOERROR, &records[..]),
        (Rcode::NOERROR, &records[..1]),
        (Rcode::NOERROR, &nothing[..]),
        (Rcode::NXDOMAIN, &nothing[..]),
        (Rcode::NOERROR, &[]),
    ] {
        let links = links();
        let whole = stored("n0.sub.test", rcode, [&links, end]);
        for cut in 1..5 {
            let (before, behind) = links.split_at(2 * cut);
            let first = stored("n0.sub.test", Rcode::NOERROR, [before, &[]]);
            assert!(first.leads_on());
            // The upstream was queried in upper case; the combined response has another case.
            let asked = first.chain_end().to_string().to_uppercase();
            let next = stored(&asked, rcode, [behind, end]);
            let joined = Aged::fresh(&first, 0).continued(&Aged::fresh(&next, 0));
            assert_eq!(said(&joined), said(&whole));
        }
    }
}

#[test]
fn combined_response_has_proofs_and_ttls_of_both() {
    // The alias comes from a wildcard: NSEC proves it (RFC 4035 section 3.1.3.3).
    let alias = [
        "an x.example.com 60 CNAME y.test",
        "an x.example.com 60 RRSIG CNAME",
        "ns w.example.com 60 NSEC z.example.com",
        "ns w.example.com 60 RRSIG NSEC",
    ];
    let alias = texts::stored("x.example.com", Rtype::AAAA, Rcode::NOERROR, &alias);
    let nothing = ["ns test 40 SOA 30"];
    let nothing = texts::stored("y.test", Rtype::AAAA, Rcode::NOERROR, &nothing);
    let whole = continued(&alias, &nothing);
    assert_eq!(
        texts::records(whole.message().bytes()),
        [
            "an x.example.com 50 CNAME y.test",
            "an x.example.com 50 RRSIG CNAME",
            "ns test 30 SOA 30",
            "ns w.example.com 50 NSEC z.example.com",
            "ns w.example.com 50 RRSIG NSEC",
        ]
    );
    assert_eq!((whole.kind(), whole.ttl_s()), (Kind::NoData, 30));
    assert!(whole.is_signed());
}

#[test]
fn combined_response_that_is_too_long_is_a_failure() {
    let text = "x".repeat(200);
    let lines: Vec<_> = (0..299)
        .map(|_| format!("an y.test 60 TXT {text}"))
        .collect();
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    let long = texts::stored("y.test", Rtype::TXT, Rcode::NOERROR, &lines);
    let label = |i: u8| char::from(b'a' + i).to_string().repeat(60);
    let names: Vec<_> = (0..10)
        .map(|i| [label(i), label(i), label(i)].join("."))
        .collect();
    let alias = |i: usize| {
        let target = names.get(i + 1).map_or("y.test", String::as_str);
        [
            format!("an {} 60 CNAME {target}", names[i]),
            format!("an {} 60 RRSIG CNAME", names[i]),
        ]
    };
    let lines: Vec<_> = (0..10).flat_map(alias).collect();
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    let first = texts::stored(&names[0], Rtype::TXT, Rcode::NOERROR, &lines);
    let whole = continued(&first, &long);
    assert_eq!(whole.kind(), Kind::Failure(Rcode::SERVFAIL));
    assert_eq!(
        whole.message().question().unwrap().name.to_string(),
        format!("{}.", names[0])
    );
}
