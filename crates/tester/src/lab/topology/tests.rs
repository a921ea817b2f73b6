use super::*;
use expect_test::expect;

#[test]
fn three_devices_have_three_links() {
    expect![[r#"
        netns add dns64bench-measurer
        -n dns64bench-measurer link set lo up
        netns add dns64bench-dut
        -n dns64bench-dut link set lo up
        netns add dns64bench-authority
        -n dns64bench-authority link set lo up
        -n dns64bench-measurer link add client address 02:00:00:00:01:01 type veth peer name client address 02:00:00:00:01:02 netns dns64bench-dut
        -n dns64bench-measurer link set client addrgenmode none up
        -n dns64bench-measurer address add 2001:2:0:1::1/64 dev client nodad
        -n dns64bench-dut link set client addrgenmode none up
        -n dns64bench-dut address add 2001:2:0:1::2/64 dev client nodad
        -n dns64bench-dut link add upstream address 02:00:00:00:02:01 type veth peer name upstream address 02:00:00:00:02:02 netns dns64bench-authority
        -n dns64bench-dut link set upstream addrgenmode none up
        -n dns64bench-dut address add 2001:2:0:2::1/64 dev upstream nodad
        -n dns64bench-dut address add 198.18.0.1/24 dev upstream
        -n dns64bench-authority link set upstream addrgenmode none up
        -n dns64bench-authority address add 2001:2:0:2::2/64 dev upstream nodad
        -n dns64bench-authority address add 198.18.0.2/24 dev upstream
        -n dns64bench-measurer link add self-test address 02:00:00:00:03:01 type veth peer name self-test address 02:00:00:00:03:02 netns dns64bench-authority
        -n dns64bench-measurer link set self-test addrgenmode none up
        -n dns64bench-measurer address add 2001:2:0:3::1/64 dev self-test nodad
        -n dns64bench-authority link set self-test addrgenmode none up
        -n dns64bench-authority address add 2001:2:0:3::2/64 dev self-test nodad"#]]
    .assert_eq(&Setup::ThreeDevice.plan().join("\n"));
}

#[test]
fn two_devices_share_the_tester() {
    let setup = Setup::TwoDevice;
    assert_eq!(
        setup.network(Role::Measurer),
        setup.network(Role::Authority)
    );
    assert_ne!(setup.network(Role::Measurer), setup.network(Role::Dut));
    let plan = setup.plan().join("\n");
    assert!(plan.contains("-n dns64bench-tester link add client"));
    assert!(plan.contains("netns dns64bench-tester"));
    assert!(!plan.contains("self-test"));
    assert_eq!(IpAddr::V6(setup.self_test().0), setup.upstream_v6().0);
}

#[test]
fn all_addresses_are_reserved_for_benchmarking() {
    for setup in [Setup::TwoDevice, Setup::ThreeDevice] {
        for line in setup.plan() {
            let Some((_, address)) = line.split_once("address add ") else {
                continue;
            };
            assert!(
                address.starts_with("2001:2:0:") || address.starts_with("198.18."),
                "{address}"
            );
        }
    }
    assert_eq!(PREF64.0.segments()[..3], [0x2001, 2, 0]);
}

#[test]
fn loopback_setup_creates_nothing() {
    assert_eq!(Setup::Loopback.plan(), Vec::<String>::new());
    assert_eq!(Setup::Loopback.network(Role::Dut), Network::Own);
    Lab::up(Setup::Loopback, None).unwrap();
    let sources = "2001:2:0:78::/116".parse().unwrap();
    assert_eq!(plan_sources(Setup::Loopback, sources), Vec::<String>::new());
}

#[test]
fn each_host_has_a_route_back_to_the_sources() {
    let sources = "2001:2:0:78::/116".parse().unwrap();
    let plan = |setup| plan_sources(setup, sources).join("\n");
    expect![[r#"
        -n dns64bench-measurer route add local 2001:2:0:78::/116 dev lo
        -n dns64bench-measurer neigh add 2001:2:0:1::2 lladdr 02:00:00:00:01:02 dev client nud permanent
        -n dns64bench-dut route add 2001:2:0:78::/116 via 2001:2:0:1::1
        -n dns64bench-measurer neigh add 2001:2:0:3::2 lladdr 02:00:00:00:03:02 dev self-test nud permanent
        -n dns64bench-authority route add 2001:2:0:78::/116 via 2001:2:0:3::1"#]]
    .assert_eq(&plan(Setup::ThreeDevice));
    expect![[r#"
        -n dns64bench-tester route add local 2001:2:0:78::/116 dev lo
        -n dns64bench-tester neigh add 2001:2:0:1::2 lladdr 02:00:00:00:01:02 dev client nud permanent
        -n dns64bench-dut route add 2001:2:0:78::/116 via 2001:2:0:1::1"#]]
    .assert_eq(&plan(Setup::TwoDevice));
}

#[test]
fn lock_in_use_names_its_holder() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deeper/lab.lock");
    let held = lock(&path).unwrap();
    let error = lock(&path).unwrap_err().to_string();
    let process = format!("in use by process {} (", std::process::id());
    assert!(error.contains(&process), "{error}");
    drop(held);
    lock(&path).unwrap();
}
