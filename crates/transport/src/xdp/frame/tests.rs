use super::*;

fn flow_v6() -> Flow {
    Flow {
        macs: [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]],
        addresses: addresses(
            "2001:db8::2".parse().unwrap(),
            "2001:db8::1".parse().unwrap(),
        )
        .unwrap(),
        ports: [53, 4000],
    }
}

fn flow_v4() -> Flow {
    Flow {
        addresses: addresses("192.0.2.2".parse().unwrap(), "192.0.2.1".parse().unwrap()).unwrap(),
        ..flow_v6()
    }
}

fn built(flow: &Flow, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0xee; 2000];
    let len = build(flow, payload, &mut frame).unwrap();
    frame.truncate(len);
    frame
}

/// Checksums of both packets were computed by hand from RFC 1071.
#[test]
fn ipv6_frame_matches_the_standards() {
    let mut expected = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd];
    expected.extend([0x60, 0, 0, 0, 0, 11, 17, 64]);
    for last in [2, 1] {
        expected.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    // 2 * (2001 + 0db8) + 2 + 1 + 11 + 000b + 0035 + 0fa0 + 000b + 0102 + 0300, folded and inverted.
    expected.extend([0, 53, 0x0f, 0xa0, 0, 11, 0x90, 0x8c, 1, 2, 3]);
    assert_eq!(built(&flow_v6(), &[1, 2, 3]), expected);
}

#[test]
fn ipv4_frame_matches_the_standards() {
    let mut expected = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    // 4500 + 001f + 4000 + 4011 + c000 + 0202 + c000 + 0201, folded and inverted.
    expected.extend([0x45, 0, 0, 31, 0, 0, 0x40, 0, 64, 17, 0xb6, 0xca]);
    expected.extend([192, 0, 2, 2, 192, 0, 2, 1]);
    // c000 + 0202 + c000 + 0201 + 0011 + 000b + 0035 + 0fa0 + 000b + 0102 + 0300, folded and inverted.
    expected.extend([0, 53, 0x0f, 0xa0, 0, 11, 0x67, 0xfd, 1, 2, 3]);
    assert_eq!(built(&flow_v4(), &[1, 2, 3]), expected);
}

#[test]
fn padding_is_not_part_of_the_payload() {
    for flow in [flow_v4(), flow_v6()] {
        let mut frame = built(&flow, b"abc");
        frame.extend([0; 20]);
        assert_eq!(parse(&frame, false), Some((flow, &b"abc"[..])));
    }
}

#[test]
fn checksum_of_the_pseudo_header_alone_is_accepted_where_it_may_be_partial() {
    for flow in [flow_v4(), flow_v6()] {
        let mut frame = built(&flow, b"abcd");
        let at = flow.headers_bytes() - 2;
        frame[at..at + 2].copy_from_slice(&fold(flow.pseudo_sum(12)).to_be_bytes());
        assert_eq!(parse(&frame, true), Some((flow, &b"abcd"[..])));
        assert_eq!(parse(&frame, false), None);
    }
}

#[test]
fn only_ipv4_may_omit_the_checksum() {
    for (flow, may) in [(flow_v4(), true), (flow_v6(), false)] {
        let mut frame = built(&flow, b"abcd");
        let at = flow.headers_bytes() - 2;
        frame[at..at + 2].copy_from_slice(&[0, 0]);
        assert_eq!(parse(&frame, false).is_some(), may);
    }
}

/// Any single changed octet after the Ethernet header is detected, except those that no checksum covers: IPv6 traffic
/// class, flow label and hop limit.
#[test]
fn damaged_frame_is_refused() {
    for flow in [flow_v4(), flow_v6()] {
        let frame = built(&flow, b"some payload");
        let ip = frame.len()
            - 12
            - UDP_BYTES
            - match flow.addresses {
                Addresses::V4(_) => IPV4_BYTES,
                Addresses::V6(_) => IPV6_BYTES,
            };
        let is_covered = |at: &usize| {
            matches!(flow.addresses, Addresses::V4(_))
                || ![ip, ip + 1, ip + 2, ip + 3, ip + 7].contains(at)
        };
        for at in (ip..frame.len()).filter(is_covered) {
            let mut damaged = frame.clone();
            damaged[at] ^= 0x10;
            assert_eq!(parse(&damaged, false), None, "octet {at} of {flow:?}");
        }
    }
}

#[test]
fn fragments_options_and_truncated_frames_are_left_to_the_kernel() {
    let frame = built(&flow_v6(), b"abc");
    for len in 0..frame.len() {
        assert_eq!(parse(&frame[..len], false), None, "{len} octets");
    }
    let fix = |packet: &mut [u8]| {
        packet[10..12].fill(0);
        let checksum = !fold(sum(&packet[..IPV4_BYTES]));
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    };
    let ip = ETHERNET_BYTES;
    for (at, value) in [(6, 0x20), (7, 1), (0, 0x46)] {
        let mut frame = built(&flow_v4(), b"abcdefgh");
        frame[ip + at] = value;
        fix(&mut frame[ip..]);
        assert_eq!(
            parse(&frame, false),
            None,
            "octet {at} of the IPv4 header is {value:#x}"
        );
    }
}

#[test]
fn reversing_a_flow_twice_gives_the_same_flow() {
    let flow = flow_v4();
    assert_eq!(flow.reversed().source(), flow.destination());
    assert_eq!(flow.reversed().destination(), flow.source());
    assert_eq!(flow.reversed().macs, [flow.macs[1], flow.macs[0]]);
    assert_eq!(flow.reversed().reversed(), flow);
}

#[test]
fn frame_with_a_vlan_tag_is_left_to_the_kernel() {
    for flow in [flow_v4(), flow_v6()] {
        let mut frame = built(&flow, b"abcd");
        frame.splice(12..12, [0x81, 0, 0, 100]);
        assert_eq!(parse(&frame, true), None);
    }
}

mod laws {
    use proptest::prelude::*;

    use super::*;

    fn flows() -> impl Strategy<Value = Flow> {
        let addresses = prop_oneof![
            any::<[[u8; 4]; 2]>().prop_map(Addresses::V4),
            any::<[[u8; 16]; 2]>().prop_map(Addresses::V6),
        ];
        (any::<[[u8; 6]; 2]>(), addresses, any::<[u16; 2]>()).prop_map(
            |(macs, addresses, ports)| Flow {
                macs,
                addresses,
                ports,
            },
        )
    }

    proptest! {
        #[test]
        fn built_frame_is_parsed_correctly(flow in flows(), payload in prop::collection::vec(any::<u8>(), 0..1500)) {
            let frame = built(&flow, &payload);
            prop_assert_eq!(frame.len(), flow.headers_bytes() + payload.len());
            prop_assert_eq!(parse(&frame, false), Some((flow, &payload[..])));
        }

        #[test]
        fn random_octets_never_panic(frame in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&frame, false);
        }

        #[test]
        fn frame_that_does_not_fit_is_not_built(flow in flows(), payload in prop::collection::vec(any::<u8>(), 0..50)) {
            let mut short = vec![0; flow.headers_bytes() + payload.len() - 1];
            prop_assert_eq!(build(&flow, &payload, &mut short), None);
        }
    }
}
