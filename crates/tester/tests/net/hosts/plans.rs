//! Plans for the hosts of `deploy/rehearsal/hosts --addresses`. Rates are low and limits are wide, so that the
//! assertions hold on any machine.

/// Measurer, DUT and authority, each on its own host.
pub(super) const THREE: &str = r#"
[hosts.gen1]
ssh = "gen1"
roles = ["measurer"]
cpus = "0"
links.client = { interface = "client", addresses = ["2001:2:0:1::1/64"] }

[hosts.dut]
ssh = "dut"
roles = ["dut"]
cpus = "1"
links.client = { interface = "client1", addresses = ["2001:2:0:1::2/64"] }
links.upstream = { interface = "upstream", addresses = ["2001:2:0:2::1/64", "198.18.0.1/24"] }

[hosts.auth]
ssh = "auth"
roles = ["authority"]
cpus = "0"
links.upstream = { interface = "upstream", addresses = ["2001:2:0:2::2/64", "198.18.0.2/24"] }
"#;

/// A second Measurer, with a separate link to the DUT.
pub(super) const SECOND: &str = r#"
[hosts.gen2]
ssh = "gen2"
roles = ["measurer"]
cpus = "1"
links.client = { interface = "client", addresses = ["2001:2:0:11::1/64"] }
"#;

/// Two Measurers, a DUT, and two authorities.
pub(super) const FIVE: &str = r#"
[hosts.gen1]
ssh = "gen1"
roles = ["measurer"]
cpus = "0"
links.client = { interface = "client", addresses = ["2001:2:0:1::1/64"] }

[hosts.gen2]
ssh = "gen2"
roles = ["measurer"]
cpus = "0"
links.client = { interface = "client", addresses = ["2001:2:0:11::1/64"] }

[hosts.dut]
ssh = "dut"
roles = ["dut"]
cpus = "1"
links.client = [
  { interface = "client1", addresses = ["2001:2:0:1::2/64"] },
  { interface = "client2", addresses = ["2001:2:0:11::2/64"] },
]
links.upstream = [
  { interface = "upstream", addresses = ["2001:2:0:2::1/64", "198.18.0.1/24"] },
  { interface = "upstream2", addresses = ["2001:2:0:12::1/64", "198.18.1.1/24"] },
]

[hosts.auth]
ssh = "auth"
roles = ["authority"]
cpus = "0"
links.upstream = { interface = "upstream", addresses = ["2001:2:0:2::2/64", "198.18.0.2/24"] }

[hosts.auth2]
ssh = "auth2"
roles = ["authority"]
cpus = "0"
links.upstream = { interface = "upstream", addresses = ["2001:2:0:12::2/64", "198.18.1.2/24"] }
"#;

/// A plan with this name and these hosts.
pub(super) fn plan(name: &str, hosts: &str, tester: &str, dut: &str) -> String {
    format!(
        r#"
name = "{name}"
{hosts}
[tester]
self-tests = 1
{tester}

[trial]
duration = "600ms"
timeout = "200ms"
max-stall = "1s"
max-burst = 1000000
max-rate-error = "100%"
max-stolen = "100%"

[search]
runs = 1
start-rate = "1k"
max-rate = "2k"
resolution = "50%"

[[dut]]
{dut}
"#
    )
}

/// The three hosts with Unbound.
pub(super) fn three(name: &str) -> String {
    plan(name, THREE, "", "profile = \"unbound\"")
}
