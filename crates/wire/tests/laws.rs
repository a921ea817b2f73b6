//! Properties of every name, message and prefix; the crate `domain` is the reference.

mod messages;

use std::net::{Ipv4Addr, Ipv6Addr};

use dns64_wire::ParseError;
use dns64_wire::message::Message;
use dns64_wire::name::{LABEL_LEN_MAX, Name, NameBuf};
use dns64_wire::pref64::{LENGTHS, Pref64};
use messages::{Plan, Seen, damaged, name, ours, plan, theirs};
use proptest::prelude::*;

/// Errors for messages that this crate refuses and `domain` accepts: several questions, names that
/// read their own labels again from the middle or that start in the header, longer chains of
/// pointers.
fn stricter_here(error: ParseError) -> bool {
    matches!(
        error,
        ParseError::Questions { .. }
            | ParseError::PointerForward
            | ParseError::PointerHeader
            | ParseError::PointerChain
    )
}

fn agree(bytes: &[u8]) -> Result<(), TestCaseError> {
    match (ours(bytes), theirs(bytes)) {
        (Ok(ours), Some(theirs)) => prop_assert_eq!(ours, theirs),
        (Ok(ours), None) => prop_assert!(false, "only this crate accepts {:?}", ours),
        (Err(error), Some(_)) => prop_assert!(stricter_here(error), "{}", error),
        (Err(_), None) => {}
    }
    Ok(())
}

proptest! {
    #[test]
    fn built_messages_are_parsed_correctly(plan in plan()) {
        let bytes = plan.build();
        let seen = ours(&bytes).expect("the builder writes valid messages");
        prop_assert_eq!(&seen, &plan.seen());
        prop_assert_eq!(&seen, &theirs(&bytes).expect("valid for domain too"));
        let opt = Message::parse(&bytes).and_then(|message| message.opt());
        prop_assert_eq!(opt.expect("sound"), plan.opt());
    }

    #[test]
    fn parsed_messages_are_rebuilt_octet_for_octet(plan in plan()) {
        let bytes = plan.without_compression().build();
        prop_assert_eq!(Plan::from_parsed(&bytes).build(), bytes);
    }

    #[test]
    fn damaged_messages_parse_alike_in_both_crates(bytes in damaged()) {
        agree(&bytes)?;
    }

    #[test]
    fn random_octets_parse_alike_in_both_crates(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        agree(&bytes)?;
    }

    #[test]
    fn malicious_names_parse_alike_in_both_crates(
        octets in prop::collection::vec(prop_oneof![Just(0_u8), 0..4_u8, Just(0xc0), 12..40_u8], 0..40),
    ) {
        let mut bytes = b"\0\0\0\0\0\x01\0\x01\0\0\0\0".to_vec();
        bytes.extend_from_slice(&octets);
        agree(&bytes)?;
    }

    #[test]
    fn a_limited_message_stays_within_its_limit_and_is_valid(plan in plan(), limit in 12..300_usize) {
        let bytes = plan.build_within(limit);
        prop_assert!(bytes.len() <= limit);
        let Seen { records, .. } = ours(&bytes).expect("valid though truncated");
        prop_assert!(records.len() <= plan.seen().records.len());
    }

    #[test]
    fn a_name_survives_text_and_wire_forms_with_its_case(name in name()) {
        let text = name.to_string();
        prop_assert_eq!(text.parse(), Ok(name.clone()));
        prop_assert_eq!(NameBuf::from_wire(name.as_wire()), Ok(name.clone()));
        prop_assert_eq!(name.as_name().to_buf(), name.clone());
        let flipped: Vec<u8> = name.as_wire().iter().map(|octet| flip_case(*octet)).collect();
        let flipped = NameBuf::from_wire(&flipped).expect("letters are not lengths");
        prop_assert!(flipped.as_name().eq_ignore_case(&name.as_name()));
        let has_letters = name.as_wire().iter().any(u8::is_ascii_alphabetic);
        prop_assert_eq!(flipped != name, has_letters);
    }

    #[test]
    fn case_of_each_letter_follows_its_bit_and_nothing_else_changes(
        name in name(),
        words in prop::collection::vec(any::<u64>(), 32),
    ) {
        let mut changed = name.clone();
        let mut next = words.iter().copied();
        changed.flip_case(|| next.next().expect("255 octets are at most 32 words"));
        let bits = words.iter().flat_map(|word| word.to_le_bytes());
        let expected = name.as_wire().iter().zip(bits).map(|(octet, bits)| match bits & 0x20 {
            0 => *octet,
            _ => flip_case(*octet),
        });
        prop_assert_eq!(changed.as_wire(), expected.collect::<Vec<_>>());
        changed.make_lower_case();
        prop_assert_eq!(changed.as_wire(), name.as_wire().to_ascii_lowercase());
    }

    #[test]
    fn a_name_with_an_extra_label_is_within_the_name(name in name(), label in "[a-z]{1,5}") {
        if let Ok(child) = name.child(label.as_bytes()) {
            prop_assert!(child.as_name().is_within(&name.as_name()));
            prop_assert!(!name.as_name().is_within(&child.as_name()));
        }
    }

    #[test]
    fn names_are_read_to_their_end_and_no_further(bytes in prop::collection::vec(any::<u8>(), 0..40), at in 0..40_usize) {
        if let Ok((name, end)) = Name::parse(&bytes, at) {
            prop_assert!(at < end && end <= bytes.len());
            let len: usize = name.labels().map(|label| label.len() + 1).sum();
            prop_assert_eq!(len + 1, name.wire_len());
            prop_assert!(name.labels().all(|label| (1..=LABEL_LEN_MAX).contains(&label.len())));
        }
    }

    #[test]
    fn extraction_undoes_embedding(bits: u128, ipv4: u32, suffix: u128, len in prop::sample::select(&LENGTHS)) {
        let u_octet = 0xff_u128 << 56;
        let addr = Ipv6Addr::from(bits & !u_octet & !0 << (128 - len));
        let pref64 = Pref64::new(addr, len).expect("reserved bits are zero");
        let ipv4 = Ipv4Addr::from(ipv4);
        let ipv6 = pref64.embed(ipv4);
        prop_assert_eq!(pref64.extract(ipv6), Some(ipv4));
        prop_assert_eq!(u128::from(ipv6) & u_octet, 0);
        prop_assert!(Pref64::learn(ipv6, ipv4).any(|learnt| learnt == pref64));
        prop_assert_eq!(pref64.to_string().parse(), Ok(pref64));
        let suffix_len = [56, 48, 40, 32, 24, 0][LENGTHS.iter().position(|l| *l == len).expect("one of them")];
        let with_suffix = u128::from(ipv6) | suffix & !(!0 << suffix_len);
        prop_assert_eq!(pref64.extract(with_suffix.into()), Some(ipv4));
    }

    #[test]
    fn a_learnt_prefix_explains_the_address(aaaa: u128, ipv4: u32) {
        for pref64 in Pref64::learn(aaaa.into(), ipv4.into()) {
            prop_assert_eq!(pref64.extract(aaaa.into()), Some(ipv4.into()));
        }
    }
}

fn flip_case(octet: u8) -> u8 {
    if octet.is_ascii_alphabetic() {
        octet ^ 0x20
    } else {
        octet
    }
}
