use dns64_wire::message::Message;

use super::*;

/// Whether this data of a record of this type and class is accepted, after a question for `a.test`.
fn sound_in(class: u16, rtype: u16, data: &[u8]) -> bool {
    let mut bytes = b"\0\0\x81\x80\0\x01\0\x01\0\0\0\0\x01a\x04test\0\0\x01\0\x01\xc0\x0c".to_vec();
    for field in [rtype, class, 0, 60, u16::try_from(data.len()).unwrap()] {
        bytes.extend_from_slice(&field.to_be_bytes());
    }
    bytes.extend_from_slice(data);
    // Octets that a name without an end would read.
    bytes.extend_from_slice(b"\x01x\0");
    let message = Message::parse(&bytes).unwrap();
    let mut records = message.records();
    let record = records.next().unwrap().unwrap();
    check(&mut records, &record).is_some()
}

fn sound(rtype: u16, data: &[u8]) -> bool {
    sound_in(1, rtype, data)
}

/// Valid data of each type. The compressed name is `a.test`.
const SOUND: &[(u16, &[u8])] = &[
    (1, b"\xc0\0\x02\x01"),
    (2, b"\x02ns\xc0\x0c"),
    (5, b"\xc0\x0c"),
    (6, b"\xc0\x0c\xc0\x0eaaaabbbbccccddddeeee"),
    (12, b"\xc0\x0c"),
    (13, b"\x01c\0"),
    (14, b"\xc0\x0c\0"),
    (15, b"\0\x0a\xc0\x0c"),
    (16, b"\0\x02hi"),
    (17, b"\xc0\x0c\0"),
    (18, b"\0\x01\xc0\x0c"),
    (28, b"0123456789abcdef"),
    (29, b"\x00123456789abcdef"),
    (33, b"\0\0\0\0\0\x50\xc0\x0c"),
    (35, b"\0\0\0\0\x01s\0\0\xc0\x0c"),
    (36, b"\0\x01\xc0\x0c"),
    (39, b"\xc0\x0c"),
    (43, b"\0\0\0\0d"),
    (44, b"\x01\x01f"),
    (46, b"\0\x01\x08\x02aaaabbbbcccc\0\0\x04test\0s"),
    (47, b"\x01b\0\0\x01\x40\x01\x01\x40"),
    (48, b"\x01\0\x03\x08k"),
    (50, b"\x01\0\0\x0a\x01s\x02hh\0\x01\x40"),
    (51, b"\x01\0\0\x0a\0"),
    (52, b"\x03\x01\x01d"),
    (62, b"\0\0\0\x01\0\0\0\x01\x40"),
    (64, b"\0\0\x01b\0"),
    (65, b"\0\x01\0\0\x03\0\x02\0\x50\0\x04\0\x04\xc0\0\x02\x01"),
    (256, b"\0\x01\0\x01u"),
    (257, b"\0\x05issueca.test"),
];

#[test]
fn valid_data_is_accepted_and_shorter_data_is_not() {
    for (rtype, data) in SOUND {
        assert!(sound(*rtype, data), "{rtype} {data:02x?}");
        let min = match rtype {
            // The last field may have any length.
            47 => 3,
            62 => 6,
            257 => 7,
            64 => data.len(),
            16 => 1,
            65 => 3,
            50 => 9,
            _ => data.len(),
        };
        for len in 0..min {
            assert!(
                !sound(*rtype, &data[..len]),
                "{rtype} {:02x?}",
                &data[..len]
            );
        }
    }
}

#[test]
fn data_with_trailing_octets_is_not_accepted() {
    for (rtype, data) in SOUND {
        // Keys, digests, signatures, values and targets of URIs may be of any length.
        if !matches!(rtype, 29 | 43 | 44 | 46 | 48 | 52 | 256 | 257) {
            let longer = [data, &b"\x07"[..]].concat();
            assert!(!sound(*rtype, &longer), "{rtype} {longer:02x?}");
        }
    }
}

#[test]
fn compression_that_rfcs_forbid_is_not_accepted() {
    // RFC 4034 sections 3.1.7 and 4.1.1, RFC 9460 section 2.2.
    assert!(!sound(46, b"\0\x01\x08\x02aaaabbbbcccc\0\0\xc0\x0csig"));
    assert!(!sound(47, b"\xc0\x0c\0\x01\x40"));
    assert!(!sound(65, b"\0\x01\xc0\x0c"));
}

#[test]
fn type_map_blocks_are_in_order_and_have_1_to_32_octets() {
    let map = |blocks: &[u8]| sound(47, &[b"\0", blocks].concat());
    assert!(map(b"") && map(&[&[0, 32][..], &[1; 32]].concat()));
    assert!(!map(b"\x01\x01\x40\0\x01\x40"));
    assert!(!map(b"\0\x01\x40\0\x01\x40"));
    assert!(!map(b"\0\0"));
    assert!(!map(&[&[0, 33][..], &[1; 33]].concat()));
}

#[test]
fn service_parameters_are_in_order_unique_and_of_valid_length() {
    let parameters = |octets: &[u8]| sound(65, &[b"\0\x01\0", octets].concat());
    assert!(parameters(b"\0\x01\0\x03\x02h2\x01\0\0\0"));
    assert!(!parameters(b"\0\x03\0\x02\0\x50\0\x01\0\x03\x02h2"));
    assert!(!parameters(b"\0\x03\0\x02\0\x50\0\x03\0\x02\0\x50"));
    assert!(!parameters(b"\0\x03\0\x03\0\0\x50"));
    assert!(!parameters(b"\0\x02\0\x01x"));
    assert!(!parameters(b"\0\x04\0\0"));
    assert!(!parameters(b"\0\x04\0\x05\xc0\0\x02\x01\x01"));
    assert!(!parameters(b"\0\x06\0\x04\xc0\0\x02\x01"));
    assert!(!parameters(b"\0\x01\0\x09h2"));
}

#[test]
fn caa_tag_has_letters_and_digits_only() {
    // RFC 8659 section 4.1.
    assert!(!sound(257, b"\0\0value"));
    assert!(!sound(257, b"\0\x05is-ue"));
    assert!(!sound(257, b"\0\x06issue"));
}

#[test]
fn unknown_types_and_addresses_of_other_classes_accept_any_data() {
    assert!(sound(65_280, b"") && sound(65_280, b"\xc0\x0c\xff"));
    assert!(sound(29, b"\x01"), "LOC of a version to come");
    assert!(sound_in(3, 1, b"\x01\x02"));
    assert!(!sound_in(3, 16, b"\x05a"));
}
