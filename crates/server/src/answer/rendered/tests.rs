use dns64_wire::codes::{Rcode, Rtype};
use dns64_wire::message::Message;
use proptest::prelude::*;

use super::super::reply;
use super::super::stored::{Aged, Stored};
use super::super::texts::{asker, name, response, stored, with_do};
use super::*;

const OCTETS_MAX: usize = 4096;

/// The response to a query, rendered for this query only.
fn rendered(asker: &Asker, stored: &Stored, age_s: u32) -> Vec<u8> {
    let mut frame = vec![0; OCTETS_MAX];
    let len = reply::forward(asker, Aged::fresh(stored, age_s), &mut frame);
    frame.truncate(len);
    frame
}

/// The response to a query, completed from the response that was cached for `first`; `None` if it
/// is too long.
fn sent_again(first: &Asker, asker: &Asker, stored: &Stored, age_s: u32) -> Option<Vec<u8>> {
    let mut frame = rendered(&fullest(first, OCTETS_MAX), stored, age_s);
    let mut ttls = [0; 64];
    let kept = keep(&mut frame, &mut ttls).expect("an answer that can be kept");
    let records = stored.message().records().count();
    assert_eq!(kept.ttls, records);
    frame.truncate(kept.len);
    frame.resize(OCTETS_MAX, 0xee);
    let len = complete(asker, kept.len, kept.extended_error, &mut frame)?;
    frame.truncate(len);
    Some(frame)
}

fn answer() -> Stored {
    let lines = [
        "an www.example 300 CNAME end.example",
        "an end.example 200 A 192.0.2.1",
        "ns example 100 NS ns.example",
        "ar ns.example 50 A 192.0.2.53",
    ];
    stored("www.example", Rtype::A, Rcode::NOERROR, &lines)
}

fn is_asker() -> impl Strategy<Value = Asker> {
    let names = prop_oneof![
        Just("www.example"),
        Just("WWW.Example"),
        Just("wWw.eXaMpLe")
    ];
    let cookies = prop::option::of(any::<[u8; 24]>());
    let edns = prop::option::of((512..4096_u16, cookies));
    (names, any::<u16>(), any::<bool>(), edns, 80..600_usize).prop_map(
        |(text, id, ad, edns, limit)| {
            let asker = asker(text, Rtype::A);
            Asker {
                id,
                flags: asker.flags.with_ad(ad),
                edns: edns.map(|(udp_size, cookie)| AskerEdns {
                    udp_size,
                    cookie,
                    ..AskerEdns::default()
                }),
                limit,
                ..asker
            }
        },
    )
}

proptest! {
    /// The response completed from the cache is the response that would be rendered, whichever
    /// query was first. If it exceeds the client's limit, there is none, and another response is
    /// rendered. At least 80 octets have room for header, question and OPT record.
    #[test]
    fn response_from_cache_equals_rendered_response(
        first in is_asker(),
        asker in is_asker(),
        age_s in 0..300_u32,
        authentic in any::<bool>(),
    ) {
        let mut bytes = response("www.example", Rtype::A, Rcode::NOERROR, &[
            "an www.example 300 CNAME end.example",
            "an end.example 200 A 192.0.2.1",
        ]);
        bytes[3] = bytes[3] & !0x20 | u8::from(authentic) << 5;
        let message = Message::parse(&bytes).expect("sound");
        let bounds = super::super::texts::BOUNDS;
        let stored = Stored::accept(&message, &bounds).expect("acceptable");
        let alone = rendered(&asker, &stored, age_s);
        let is_whole = !Message::parse(&alone).is_ok_and(|alone| alone.tc());
        let again = sent_again(&first, &asker, &stored, age_s);
        prop_assert_eq!(again, is_whole.then_some(alone));
    }
}

#[test]
fn do_bit_is_copied_into_opt_record() {
    let asker = with_do(asker("www.example", Rtype::A));
    let stored = answer();
    let again = sent_again(&asker, &asker, &stored, 7);
    assert_eq!(again, Some(rendered(&asker, &stored, 7)));
}

#[test]
fn extended_error_is_sent_only_with_edns() {
    let www = name("www.example");
    let asked = super::super::stored::Asked {
        name: &www,
        rtype: Rtype::A,
        class: dns64_wire::codes::Class::IN,
    };
    let stored = Stored::failure(&asked, Rcode::SERVFAIL, Some(22));
    let with = asker("www.example", Rtype::A);
    let without = Asker {
        edns: None,
        ..with.clone()
    };
    for (first, asker) in [(&with, &without), (&without, &with)] {
        let again = sent_again(first, asker, &stored, 0);
        assert_eq!(again, Some(rendered(asker, &stored, 0)));
    }
}

#[test]
fn truncated_response_or_too_many_records_is_not_cached() {
    let stored = answer();
    let asker = asker("www.example", Rtype::A);
    let mut short = rendered(&fullest(&asker, 60), &stored, 0);
    assert_eq!(keep(&mut short, &mut [0; 64]), None);
    let mut whole = rendered(&fullest(&asker, OCTETS_MAX), &stored, 0);
    assert_eq!(keep(&mut whole.clone(), &mut [0; 3]), None);
    assert!(keep(&mut whole, &mut [0; 4]).is_some());
}
