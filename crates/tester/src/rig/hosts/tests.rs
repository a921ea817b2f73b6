use super::*;
use crate::machine::watch::Observed;

/// What is observed of a lab on this machine that is not up: its counters cannot be read.
fn observed(setup: Setup, self_test: bool) -> Observed {
    let host = Host::here(&Arc::default());
    let hosts = Role::ALL.map(|role| {
        let at = (host.clone(), setup.network(role));
        (setup.host_of(role).to_string(), at)
    });
    let reached = RigHosts {
        site: setup.site(Family::Ipv4),
        hosts: hosts.into(),
        routing: Vec::new(),
        here: Some(setup),
        _up: None,
    };
    assert_eq!(reached.all().len(), 1, "one machine");
    let watched = reached.watched(self_test);
    watched.since(&watched.read())
}

fn roles(observed: &Observed) -> Vec<HostOf> {
    let hosts = observed.hosts.iter();
    hosts.map(|host| host.of.clone()).collect()
}

fn leg(near: usize, far: usize, link: &str) -> Option<Leg> {
    Some(Leg {
        near,
        far: Some(far),
        link: Some(link.to_owned()),
        is_elsewhere: false,
    })
}

#[test]
fn each_network_of_a_lab_is_watched_once() {
    let three = observed(Setup::ThreeDevice, false);
    assert_eq!(roles(&three), Role::ALL.map(HostOf::from));
    assert_eq!(three.client, leg(0, 1, "client"));
    assert_eq!(three.upstreams.first(), leg(1, 2, "upstream").as_ref());
    let two = observed(Setup::TwoDevice, false);
    assert_eq!(roles(&two), [HostOf::Tester, Role::Dut.into()]);
    assert_eq!(two.client, leg(0, 1, "client"));
    assert_eq!(two.upstreams.first(), leg(1, 0, "upstream").as_ref());
    assert!(!two.hosts[0].shared);
    let one = observed(Setup::Loopback, false);
    assert_eq!(roles(&one), [HostOf::Machine]);
    assert_eq!(one.client, leg(0, 0, "lo"));
    assert_eq!(one.upstreams.first(), leg(0, 0, "lo").as_ref());
    assert!(one.hosts[0].shared);
}

#[test]
fn self_test_of_a_lab_uses_a_link_of_its_own_or_the_loopback_interface() {
    let three = observed(Setup::ThreeDevice, true);
    assert_eq!(
        roles(&three),
        [Role::Measurer, Role::Authority].map(HostOf::from)
    );
    assert_eq!(
        (three.client, three.upstreams),
        (leg(0, 1, "self-test"), Vec::new())
    );
    let two = observed(Setup::TwoDevice, true);
    assert_eq!((two.client, two.upstreams), (leg(0, 0, "lo"), Vec::new()));
}
