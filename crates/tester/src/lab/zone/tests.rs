use std::net::Ipv6Addr;

use expect_test::expect;

use super::*;
use crate::namespace::{self, DEFAULT_SUFFIX};

fn zone_file(cidr: &str, aaaa_share: &str, self_test: bool) -> ZoneFile {
    let suffix = DEFAULT_SUFFIX.parse().unwrap();
    let aaaa_share = aaaa_share.parse().unwrap();
    ZoneFile {
        cidr: cidr.parse().unwrap(),
        config: ZoneConfig {
            zone: namespace::Zone {
                suffix,
                aaaa_share,
                ..namespace::Zone::default()
            },
            self_test,
            ttl_s: 3600,
            negative_ttl_s: 60,
        },
    }
}

fn written(zone: &ZoneFile) -> String {
    let mut text = Vec::new();
    zone.write(&mut text).unwrap();
    assert!(text.len() as u64 <= zone.octets_max(), "{zone:?}");
    String::from_utf8(text).unwrap()
}

#[test]
fn names_have_their_own_addresses_and_their_share_of_aaaa() {
    expect![[r#"
        $ORIGIN dns64perf.test.
        $TTL 3600
        @ 60 SOA ns hostmaster 1 3600 900 604800 60
        @ NS ns
        ns A 198.18.0.2
        ns AAAA 2001:2:0:2::2
        010-000-000-000 A 10.0.0.0
        010-000-000-001 A 10.0.0.1
         AAAA 2001:db8::0a00:0001
    "#]]
    .assert_eq(&written(&zone_file("10.0.0.0/31", "0.5", false)));
}

#[test]
fn every_name_has_an_aaaa_in_a_self_test() {
    let text = written(&zone_file("255.255.255.254/31", "0", true));
    assert!(text.ends_with("255-255-255-255 A 255.255.255.255\n AAAA 2001:db8::ffff:ffff\n"));
    assert_eq!(text.matches(" AAAA 2001:db8::").count(), 2);
}

#[test]
fn every_record_of_several_blocks_belongs_to_its_name() {
    let zone = zone_file("1.22.252.0/22", "0.3", false);
    let text = written(&zone);
    let mut lines = text.lines().skip(6);
    let mut records = 0;
    for index in 0..zone.names() {
        let address = zone.cidr.address(index);
        let label = String::from_utf8(namespace::label(address).to_vec()).unwrap();
        assert_eq!(lines.next().unwrap(), format!("{label} A {address}"));
        records += 1;
        if zone.config.has_aaaa(address) {
            let data = lines.next().unwrap().strip_prefix(" AAAA ").unwrap();
            let data: Ipv6Addr = data.parse().unwrap();
            assert_eq!(data, namespace::own_aaaa(address));
            records += 1;
        }
    }
    assert_eq!((lines.next(), zone.records()), (None, records));
}

#[test]
fn longest_suffix_is_within_the_length_bound() {
    let label = "\\255".repeat(63);
    let suffix = format!("{label}.{label}.{label}.{}", "\\255".repeat(45));
    let mut zone = zone_file("10.0.0.0/32", "0", true);
    zone.config.zone.suffix = suffix.parse().unwrap();
    zone.config.ttl_s = u32::MAX;
    zone.config.negative_ttl_s = u32::MAX;
    written(&zone);
}

#[test]
fn equal_zones_share_a_file_and_others_do_not() {
    let directory = tempfile::tempdir().unwrap();
    let stored = |zone: &ZoneFile| zone.stored(directory.path()).unwrap().path;
    let zone = zone_file("10.0.0.0/24", "0", false);
    let first = stored(&zone);
    assert_eq!(std::fs::read_to_string(&first).unwrap(), written(&zone));
    let inode = |path| std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(path).unwrap());
    let before = inode(&first);
    assert_eq!((stored(&zone), inode(&first)), (first.clone(), before));
    let mut others = vec![
        zone_file("10.0.0.0/25", "0", false),
        zone_file("10.0.0.0/24", "0.5", false),
        zone_file("10.0.0.0/24", "0", true),
    ];
    for change in [
        |zone: &mut ZoneFile| zone.config.ttl_s = 1,
        |zone: &mut ZoneFile| zone.config.negative_ttl_s = 1,
        |zone: &mut ZoneFile| zone.config.zone.suffix = "example.".parse().unwrap(),
    ] {
        let mut other = zone.clone();
        change(&mut other);
        others.push(other);
    }
    let mut paths: Vec<_> = others.iter().map(stored).collect();
    paths.push(first);
    paths.sort();
    paths.dedup();
    assert_eq!(paths.len(), 7);
    // A share of 1 gives the same text as a self-test.
    let whole = zone_file("10.0.0.0/24", "1", false);
    assert!(paths.contains(&stored(&whole)));
}

#[test]
fn incomplete_files_are_removed() {
    let directory = tempfile::tempdir().unwrap();
    let part = directory.path().join("0123.part");
    std::fs::write(&part, "$ORIGIN").unwrap();
    let stored = zone_file("10.0.0.0/30", "0", false).stored(directory.path());
    assert!(stored.unwrap().path.exists());
    assert!(!part.exists());
}
