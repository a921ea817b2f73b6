//! Files in the form of `/etc/hosts`.

use std::path::PathBuf;

use dns64_wire::codes::Rtype;
use dns64_wire::name::NameBuf;
use tempfile::TempDir;

use super::super::load;

/// A directory, the path of the hosts file, and a configuration that names it.
fn files() -> (TempDir, PathBuf, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let hosts = dir.path().join("hosts");
    let path = dir.path().join("dns64d.toml");
    let text = format!(
        "[upstream]\nservers = [\"192.0.2.1\"]\n[local]\nrecords = [\"alias.home CNAME router.home\"]\nfiles = [{hosts:?}]\n\
         [[forward]]\ndomains = [\"corp\"]\nservers = [\"10.0.0.1\"]\n"
    );
    std::fs::write(&path, text).unwrap();
    (dir, hosts, path)
}

#[test]
fn hosts_file_gives_names_and_reverse_names() {
    let (_dir, hosts, path) = files();
    let missing = load(&path).unwrap_err().to_string();
    assert!(missing.contains("hosts: cannot be read"), "{missing}");
    std::fs::write(
        &hosts,
        "127.0.0.1 localhost\nff02::1 ip6-allnodes\n\n192.168.1.1\trouter.home Router # the router\n\
         fd00::1 router.home\n192.168.1.1 other.home router.home\n",
    )
    .unwrap();
    let local = load(&path).unwrap().settings.local;
    let records = |name: &str| -> Vec<(Rtype, usize)> {
        let node = local
            .exact(&name.parse().unwrap())
            .filter(|node| node.is_given);
        let records = node.map_or(&[][..], |node| &node.records);
        records
            .iter()
            .map(|record| (record.rtype, record.data.len()))
            .collect()
    };
    assert_eq!(records("router.home"), [(Rtype::A, 4), (Rtype::AAAA, 16)]);
    assert_eq!(records("router"), [(Rtype::A, 4)]);
    assert_eq!(records("localhost"), []);
    assert_eq!(records("ip6-allnodes"), []);
    let router = "router.home".parse::<NameBuf>().unwrap();
    let reverse = local
        .exact(&"1.1.168.192.in-addr.arpa".parse().unwrap())
        .unwrap();
    assert_eq!(*reverse.records[0].data, *router.as_wire());
    let ipv6 = "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.d.f.ip6.arpa";
    assert_eq!(records(ipv6).len(), 1);
}

#[test]
fn faults_of_a_hosts_file_have_their_positions() {
    let (dir, hosts, path) = files();
    std::fs::write(
        &hosts,
        "192.168.1 a\n192.168.1.2\n192.168.1.3 alias.home corp b_.home\n",
    )
    .unwrap();
    let refused = load(&path).unwrap_err().to_string();
    let refused = refused.replace(dir.path().to_str().unwrap(), "");
    expect_test::expect![[r#"
        /hosts:1:1: "192.168.1" is not an address; write lines like `192.168.1.1 router.home`
          |
        1 | 192.168.1 a
          | ^^^^^^^^^

        /hosts:2:1: 192.168.1.2 has no name; add one, or remove the line
          |
        2 | 192.168.1.2
          | ^^^^^^^^^^^

        /hosts:3:13: alias.home. has a CNAME record, and so can have no other; remove one of them
          |
        3 | 192.168.1.3 alias.home corp b_.home
          |             ^^^^^^^^^^

        /hosts:3:24: corp. is a domain of [[forward]], too; remove it from one of them
          |
        3 | 192.168.1.3 alias.home corp b_.home
          |                        ^^^^"#]]
    .assert_eq(&refused);
}
