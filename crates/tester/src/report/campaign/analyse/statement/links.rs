//! B-20 and B-21: the links of the trials.

use std::collections::BTreeMap;

use super::{Facts, Finding, met, met_if, not_known, not_met};
use crate::campaign::plan::Laboratory;
use crate::campaign::record::InterfaceFacts;
use crate::lab::LabKind;
use crate::report::campaign::analyse::distinct;
use crate::report::campaign::numbers;

/// Kind of the loopback interface.
const LOOPBACK: &str = "loopback";

/// B-20: whether the medium of each link is known.
pub(super) fn media(f: &Facts<'_>) -> Finding {
    let links = links(f);
    let kinds = by(&links, |link| link.driver.as_deref().map(str::to_owned));
    match (links.is_empty(), kinds.get(&None)) {
        (true, _) => not_met("the environment names no interface of the trials"),
        (_, Some(unknown)) => not_met(format!("the driver is not known of {}", unknown.join(", "))),
        _ if !f.servers_of_others().is_empty() => {
            let servers = f.servers_of_others().join(", ");
            not_met(format!("the media are not known of the hosts of {servers}"))
        }
        _ => met(told(&kinds, |kind| kind.clone().unwrap_or_default())),
    }
}

/// B-21: whether the interfaces of DUT and Tester have the same MTU. RFC 8219 section 5.1 requires the larger one at
/// all of them.
pub(super) fn mtus(f: &Facts<'_>) -> Finding {
    let links = links(f);
    let mtus = by(&links, |link| link.mtu);
    let told = told(&mtus, |mtu| format!("MTU {mtu}"));
    match mtus.len() {
        0 => not_met("the environment names no interface of the trials"),
        _ if !f.servers_of_others().is_empty() => {
            let servers = f.servers_of_others().join(", ");
            not_known(format!("the MTUs are not known of the hosts of {servers}"))
        }
        different => met_if(different == 1, told),
    }
}

/// Interfaces on the path of the trials, over all sessions, without duplicates.
fn links<'a>(f: &'a Facts<'_>) -> Vec<&'a InterfaceFacts> {
    let laboratory = f.history.laboratory();
    let is_shared = laboratory == Laboratory::Here(LabKind::Loopback);
    let is_lab = laboratory != Laboratory::Elsewhere && !is_shared;
    let sessions = f.history.sessions.iter();
    let all = sessions.flat_map(|session| &session.environment.interfaces);
    let is_link = |link: &&InterfaceFacts| {
        let is_loopback = link.driver.as_deref() == Some(LOOPBACK);
        link.host.is_some() == is_lab && is_loopback == is_shared
    };
    distinct(all.filter(is_link))
}

/// Groups the names of interfaces by a property.
fn by<K: Ord>(
    links: &[&InterfaceFacts],
    property: impl Fn(&InterfaceFacts) -> K,
) -> BTreeMap<K, Vec<String>> {
    let mut groups: BTreeMap<K, Vec<String>> = BTreeMap::new();
    for link in links {
        let name = match &link.host {
            Some(host) => format!("{} of {host}", link.name),
            None => link.name.clone(),
        };
        groups.entry(property(link)).or_default().push(name);
    }
    groups
}

/// "veth at 6 interfaces"; with the names if there are several groups.
fn told<K>(groups: &BTreeMap<K, Vec<String>>, word: impl Fn(&K) -> String) -> String {
    let group = |(key, names): (&K, &Vec<String>)| match groups.len() {
        1 => format!(
            "{} at {}",
            word(key),
            numbers::count(names.len(), "interface")
        ),
        _ => format!("{} at {}", word(key), names.join(", ")),
    };
    groups.iter().map(group).collect::<Vec<_>>().join("; ")
}
