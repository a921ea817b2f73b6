//! Routes to the source addresses of Measurers, on one host.

use std::fmt;
use std::net::Ipv6Addr;
use std::process::Command;

use dns64_transport::clock::{Nanos, SECOND};
use serde::{Deserialize, Serialize};

use super::{Blame, LabError};
use crate::load::sources::Sources;
use crate::machine::process;

/// One route. Displayed as arguments of ip(8).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Route {
    /// The addresses are this host's.
    Local(Sources),
    /// They are behind this neighbour.
    Via(Sources, Ipv6Addr),
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(sources) => write!(f, "route add local {sources} dev lo"),
            Self::Via(sources, gateway) => write!(f, "route add {sources} via {gateway}"),
        }
    }
}

/// Gives the network of this process these routes, in place of those that it has from here.
///
/// # Errors
///
/// This process may not, or there is a route for the same addresses; then none of them is left.
pub fn set(routes: &[Route]) -> Result<(), LabError> {
    sweep();
    let added = routes.iter().try_for_each(add);
    added.inspect_err(|_| sweep())
}

/// Removes all such routes, whoever has added them. Whoever calls it has to know that nobody uses them.
pub fn sweep() {
    let mut command = Command::new("ip");
    command.args(["-6", "route", "flush", "table", "all", "proto", PROTOCOL]);
    // What cannot be removed is in the way of the next route, which tells it.
    let _ = process::run(&mut command, IP_LIMIT);
}

fn add(route: &Route) -> Result<(), LabError> {
    let line = route.to_string();
    let mut command = Command::new("ip");
    command.args(line.split(' ')).args(["proto", PROTOCOL]);
    let end = process::run(&mut command, IP_LIMIT)
        .map_err(Blame::Machine.because("source addresses need the Debian package iproute2"))?;
    if end.status.success() {
        return Ok(());
    }
    let (Route::Local(sources) | Route::Via(sources, _)) = route;
    let reason = end.stderr.trim();
    let remedy = match () {
        () if reason.contains("not permitted") => {
            "routes need root: log in as root, or give the host sudo = true".to_owned()
        }
        () if reason.contains("File exists") => {
            format!(
                "remove the route that is there (`ip -6 route show table all {sources}`), or use other addresses"
            )
        }
        () => "correct the addresses of the host's test links".to_owned(),
    };
    Err(Blame::Machine.error(format!("`ip {line}` failed: {reason}; {remedy}")))
}

/// What routes from here are marked with: a protocol (rtnetlink(7)) that `/etc/iproute2/rt_protos` gives nobody else.
const PROTOCOL: &str = "64";

/// `ip` takes milliseconds; this is for a machine that swaps.
pub(super) const IP_LIMIT: Nanos = 10 * SECOND;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_told_to_ip_and_to_other_hosts() {
        let sources: Sources = "2001:2:0:78::/116".parse().unwrap();
        let local = Route::Local(sources);
        let via = Route::Via(sources, "2001:2:0:1::1".parse().unwrap());
        assert_eq!(
            local.to_string(),
            "route add local 2001:2:0:78::/116 dev lo"
        );
        assert_eq!(
            via.to_string(),
            "route add 2001:2:0:78::/116 via 2001:2:0:1::1"
        );
        for route in [local, via] {
            let text = serde_json::to_string(&route).unwrap();
            assert_eq!(serde_json::from_str::<Route>(&text).unwrap(), route);
        }
    }
}
