//! XDP programs and AF_XDP sockets on the real kernel.

use dns64_transport::xdp::STEER_OBJECT;
use dns64_transport::xdp::program::{Action, Object, XdpError};

/// An Ethernet frame with a UDP datagram over IPv6 from port 53 of 2001:db8::2 to port 4000 of 2001:db8::1.
fn frame() -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd];
    frame.extend([0x60, 0, 0, 0, 0, 12, 17, 64]);
    for last in [2, 1] {
        frame.extend([0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
    }
    frame.extend([0, 53, 0x0f, 0xa0, 0, 12, 0, 0, 1, 2, 3, 4]);
    frame
}

#[test]
#[ignore = "needs root: run by .ci/run driver"]
fn unwanted_frames_are_passed_on() {
    let object = Object::load(STEER_OBJECT).unwrap();
    let mut out = Vec::new();
    for program in ["pass", "steer"] {
        let action = object.run(program, &frame(), &mut out).unwrap();
        assert_eq!((action, &out), (Action::Pass, &frame()), "{program}");
    }
}

#[test]
#[ignore = "needs root: run by .ci/run driver"]
fn maps_return_the_stored_values() {
    let object = Object::load_sized(STEER_OBJECT, &[("ends", 3000)]).unwrap();
    let ends = object.map("ends").unwrap();
    assert_eq!(ends.entries(), 3000);
    let key = |i: u32| {
        let mut key = [0; 20];
        key[..4].copy_from_slice(&i.to_ne_bytes());
        key
    };
    for i in 0..2500 {
        ends.set(&key(i), &(i * 3).to_ne_bytes()).unwrap();
    }
    let mut value = [0; 4];
    assert!(ends.get(&key(17), &mut value).unwrap());
    assert_eq!(u32::from_ne_bytes(value), 51);
    assert!(ends.remove(&key(17)).unwrap());
    assert!(!ends.remove(&key(17)).unwrap());
    assert!(!ends.get(&key(17), &mut value).unwrap());
    let mut seen = 0;
    let each = |key: &[u8], value: &[u8]| {
        let key = u32::from_ne_bytes(key[..4].try_into().unwrap());
        assert_eq!(value, (key * 3).to_ne_bytes());
        seen += 1;
    };
    ends.each(each).unwrap();
    assert_eq!(seen, 2499);
}

#[test]
fn invalid_object_is_refused() {
    for octets in [&b""[..], b"\x7fELF", &STEER_OBJECT[..200]] {
        let error = Object::load(octets).unwrap_err();
        assert!(matches!(error, XdpError::Object { .. }), "{error}");
    }
}
