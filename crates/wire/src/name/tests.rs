use super::*;

fn wire(text: &str) -> Vec<u8> {
    text.parse::<NameBuf>().unwrap().as_wire().to_vec()
}

#[test]
fn text_and_wire_forms_convert_to_each_other() {
    assert_eq!(wire("www.Example"), b"\x03www\x07Example\0");
    assert_eq!(wire("www.Example."), b"\x03www\x07Example\0");
    assert_eq!(wire("."), b"\0");
    assert_eq!(wire(r"a\.b\046c\\.\000"), b"\x06a.b.c\\\x01\0\0");
    let name = NameBuf::from_wire(b"\x06a.b c\\\x01\0\0").unwrap();
    assert_eq!(name.to_string(), r"a\.b\032c\\.\000.");
    assert_eq!(NameBuf::root().to_string(), ".");
}

#[test]
fn labels_have_the_stated_offsets() {
    let message = b"............\x01a\x02bc\0\x03www\xc0\x0e";
    let (name, _) = Name::parse(message, 18).unwrap();
    let labels: Vec<_> = name.labels_at().collect();
    assert_eq!(labels, [(18, &b"www"[..]), (14, &b"bc"[..])]);
    assert_eq!(NameBuf::root().as_name().labels_at().count(), 0);
}

#[test]
fn invalid_texts_are_refused() {
    let error = |text: &str| text.parse::<NameBuf>().unwrap_err();
    assert_eq!(error(""), NameError::EmptyLabel);
    assert_eq!(error(".a"), NameError::EmptyLabel);
    assert_eq!(error("a..b"), NameError::EmptyLabel);
    assert_eq!(error("a.."), NameError::EmptyLabel);
    assert_eq!(error(r"a\"), NameError::BadEscape);
    assert_eq!(error(r"a\12"), NameError::BadEscape);
    assert_eq!(error(r"a\256"), NameError::BadEscape);
    assert_eq!(error(&"a".repeat(64)), NameError::LabelTooLong { len: 64 });
    assert!("a".repeat(63).parse::<NameBuf>().is_ok());
}

#[test]
fn a_name_has_at_most_255_octets() {
    // 127 labels of one octet and the root: 2 * 127 + 1 = 255.
    let longest = "a.".repeat(127);
    assert_eq!(wire(&longest).len(), 255);
    let longer = format!("b{longest}");
    assert_eq!(longer.parse::<NameBuf>(), Err(NameError::TooLong));
    assert_eq!("a.".repeat(128).parse::<NameBuf>(), Err(NameError::TooLong));
    let name: NameBuf = longest.parse().unwrap();
    assert_eq!(name.child(b"x"), Err(NameError::TooLong));
    let mut octets = b"\x02bb".to_vec();
    octets.extend_from_slice(&wire(&"a.".repeat(126)));
    assert_eq!(octets.len(), 256);
    assert_eq!(NameBuf::from_wire(&octets), Err(ParseError::NameTooLong));
}

#[test]
fn compressed_names_are_followed() {
    let message = b"............\x04TEST\0\x03www\xc0\x0c\x01a\xc0\x12";
    let (name, end) = Name::parse(message, 24).unwrap();
    assert_eq!(end, 28);
    assert_eq!(name.to_string(), "a.www.TEST.");
    assert_eq!(name.wire_len(), 12);
    assert_eq!(name.to_buf().as_wire(), b"\x01a\x03www\x04TEST\0");
    assert_eq!(Name::parse(message, 18).unwrap().1, 24);
}

#[test]
fn pointers_that_do_not_point_backwards_are_refused() {
    let error = |message: &[u8], at| Name::parse(message, at).unwrap_err();
    let after_header = |octets: &[u8], at| error(&[&[0; 12], octets].concat(), at);
    // A loop: to itself, forwards, and back into the labels before it.
    let forward = ParseError::PointerForward;
    assert_eq!(after_header(b"\xc0\x0c", 12), forward);
    assert_eq!(after_header(b"\xc0\x0e\x00", 12), forward);
    assert_eq!(after_header(b"\x00\x01a\xc0\x0d", 13), forward);
    // Two pointers to each other.
    assert_eq!(after_header(b"\xc0\x0e\xc0\x0c", 14), forward);
    // Into the header, whose ID the sender chooses.
    let header = ParseError::PointerHeader;
    assert_eq!(after_header(b"\xc0\x00", 12), header);
    assert_eq!(after_header(b"\x01a\xc0\x0b", 12), header);
    assert_eq!(error(b"\x00\xc0", 1), ParseError::ShortMessage);
    assert_eq!(error(b"\x41a\x00", 0), ParseError::LabelType);
    assert_eq!(error(b"\x80a\x00", 0), ParseError::LabelType);
    assert_eq!(error(b"\x02a", 0), ParseError::ShortMessage);
    assert_eq!(error(b"\x01a", 0), ParseError::ShortMessage);
    assert_eq!(error(b"", 0), ParseError::ShortMessage);
}

#[test]
fn pointer_chains_are_bounded() {
    let mut message = vec![0; 13];
    let mut target: u16 = 12;
    for _ in 0..=POINTERS_MAX {
        let pointer = 0xc000 | target;
        target = u16::try_from(message.len()).unwrap();
        message.extend_from_slice(&pointer.to_be_bytes());
    }
    let last = message.len() - 2;
    assert_eq!(
        Name::parse(&message, last).unwrap_err(),
        ParseError::PointerChain
    );
    assert!(Name::parse(&message, last - 2).unwrap().0.is_root());
}

#[test]
fn eq_is_case_sensitive_and_eq_ignore_case_ignores_ascii_case() {
    let lower: NameBuf = "www.example".parse().unwrap();
    let mixed: NameBuf = "wWw.exAmple".parse().unwrap();
    assert_ne!(lower, mixed);
    assert!(lower.as_name().eq_ignore_case(&mixed.as_name()));
    assert!(!lower.as_name().eq_ignore_case(&NameBuf::root().as_name()));
    // '@' (0x40) and '`' (0x60) differ in the case bit and are not letters.
    let (at, tick) = (b"\x01@\0", b"\x01`\0");
    let (at, tick) = (
        NameBuf::from_wire(at).unwrap(),
        NameBuf::from_wire(tick).unwrap(),
    );
    assert!(!at.as_name().eq_ignore_case(&tick.as_name()));
}

#[test]
fn is_within_compares_whole_labels() {
    let zone: NameBuf = "Example.test".parse().unwrap();
    let within = |text: &str| {
        let name: NameBuf = text.parse().unwrap();
        name.as_name().is_within(&zone.as_name())
    };
    assert!(within("example.TEST"));
    assert!(within("a.b.example.test"));
    assert!(!within("anexample.test"));
    assert!(!within("test"));
    assert!(!within("."));
    assert!(zone.as_name().is_within(&NameBuf::root().as_name()));
    assert_eq!(zone.child(b"ns").unwrap().to_string(), "ns.Example.test.");
}
