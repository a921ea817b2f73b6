//! The lab of this machine as a site, as the hosts of a plan are one.

use std::net::SocketAddr;

use super::{
    CLIENT_LINK_MEASURER, LOOPBACK_AUTHORITY, SELF_TEST_LINK_MEASURER, Setup,
    UPSTREAM_LINK_AUTHORITY,
};
use crate::lab::hosts::{LinkName, Site, SiteAuthority, SiteDut, SiteEnd, SiteLink, SiteMeasurer};
use crate::lab::profile::Family;
use crate::machine::Role;
use crate::machine::cpuset::CpuSet;

impl Setup {
    /// The roles and their addresses, with DUT and authority connected by `upstream`. Its hosts have their names in
    /// results.
    pub fn site(self, upstream: Family) -> Site {
        let name = |role| self.host_of(role).to_string();
        let (local, _) = self.pick(CLIENT_LINK_MEASURER, LOOPBACK_AUTHORITY);
        let listen = SocketAddr::from(match upstream {
            Family::Ipv4 => self.upstream_v4(),
            Family::Ipv6 => self.upstream_v6(),
        });
        let (dut, port) = self.dut();
        let self_test = SocketAddr::from(self.self_test());
        let link = |name: LinkName, near, far| {
            let end = |role| SiteEnd {
                host: self.host_of(role).to_string(),
                interface: name.to_string(),
            };
            SiteLink {
                name,
                near: end(near),
                far: end(far),
            }
        };
        let client = link(LinkName::Client, Role::Measurer, Role::Dut);
        let upstream = link(LinkName::Upstream, Role::Dut, Role::Authority);
        Site {
            measurers: vec![SiteMeasurer {
                host: name(Role::Measurer),
                local,
                dut: Some((dut, port).into()),
                self_test_local: match self {
                    Self::TwoDevice => UPSTREAM_LINK_AUTHORITY,
                    Self::ThreeDevice => SELF_TEST_LINK_MEASURER,
                    Self::Loopback => local,
                },
                authority: 0,
                self_test,
                router: None,
                threads: 1,
                cpus: CpuSet::unrestricted(),
            }],
            dut: Some(SiteDut {
                host: name(Role::Dut),
                listen: dut,
                port,
                upstreams: vec![listen],
                cpus: CpuSet::unrestricted(),
            }),
            authorities: vec![SiteAuthority {
                host: name(Role::Authority),
                listen,
                self_test_listen: self_test,
                cpus: CpuSet::unrestricted(),
            }],
            links: match self {
                Self::Loopback => Vec::new(),
                Self::TwoDevice => vec![client, upstream],
                Self::ThreeDevice => vec![
                    client,
                    upstream,
                    link(LinkName::SelfTest, Role::Measurer, Role::Authority),
                ],
            },
        }
    }
}
