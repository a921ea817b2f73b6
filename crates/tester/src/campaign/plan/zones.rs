//! The zones that the authorities of a plan serve.

use dns64_transport::clock::Nanos;

use super::{Cell, Plan, Variant};
use crate::lab::profile::Profile;
use crate::lab::zone::Room;
use crate::machine::Machine;
use crate::namespace::{Cidr, Zone};
use crate::procedure::selftest::self_test_rate;
use crate::rig::RigError;
use crate::rig::spec::Load;
use crate::rig::zones::{self, Demand};

impl Plan {
    /// Zones of the authorities that are programs, without duplicates; none for the built-in authority.
    pub fn rooms(&self) -> Vec<Room> {
        let mut rooms = Vec::new();
        for variant in &self.variants {
            let Some(profile) = profile(variant) else {
                continue;
            };
            let self_test = self.demand(variant).self_test;
            for load in self.loads(variant) {
                let room = Room::of(&profile, &load.zone_file(self_test));
                if !rooms.contains(&room) {
                    rooms.push(room);
                }
            }
        }
        rooms
    }

    /// Returns why authorities that are programs cannot serve the names of a variant: too few names for the longest
    /// trial at the highest rate, or too little memory or disk on this machine if they run on it.
    pub(in crate::campaign) fn zone_faults(
        &self,
        variant: &Variant,
        machine: &Machine,
    ) -> Vec<RigError> {
        let Some(profile) = profile(variant) else {
            return Vec::new();
        };
        let demand = self.demand(variant);
        let of = |load| match self.hosts.at {
            // Other machines are checked when they are connected.
            Some(_) => {
                let names = zones::check_names(&load, demand).err();
                names.map(RigError::from).into_iter().collect()
            }
            None => zones::faults(&load, &profile, demand, machine),
        };
        self.loads(variant).flat_map(of).collect()
    }

    /// Processor time that the authority of a variant takes to load its zone at each start, if known.
    pub(in crate::campaign) fn zone_load_ns(&self, variant: &Variant) -> Nanos {
        let profile = profile(variant);
        let self_test = self.demand(variant).self_test;
        let records = self
            .loads(variant)
            .map(|load| load.zone_file(self_test).records());
        let load_ns = profile.zip(records.max()).and_then(|(profile, records)| {
            let zone_use = profile.zone;
            zone_use.load_ns(records)
        });
        load_ns.unwrap_or(0)
    }

    /// Returns the smallest part of the range with the names of all trials if an authority is a program, which keeps
    /// each name in memory; otherwise the whole range. A running server is queried for no name twice, and so needs the
    /// whole range.
    pub(super) fn smallest_range(&self) -> Cidr {
        if self.variants.iter().any(|it| it.subject.server().is_some()) {
            return self.load.cidr;
        }
        let variants = self.variants.iter();
        let is_program = |it: &&Variant| {
            let lab = it.subject.lab();
            lab.is_some_and(|lab| lab.authority.is_program()) && it.cidr.is_none()
        };
        let variants = variants.filter(is_program);
        let ranges = variants.flat_map(|variant| {
            let demand = self.demand(variant);
            let loads = self.loads(variant);
            loads.map(move |load| zones::smallest(&load, demand))
        });
        let widest = ranges.max_by_key(Cidr::names);
        widest.unwrap_or(self.load.cidr)
    }

    /// Requirements of the trials of a variant for its authority. Self-tests cover the highest search rate of a DUT;
    /// overload goes beyond that rate.
    fn demand(&self, variant: &Variant) -> Demand {
        let max_qps = self.search.method.max_qps();
        if variant.subject.is_authority() {
            return Demand {
                self_test: true,
                highest_qps: max_qps,
            };
        }
        let factors = self.overload_milli.iter();
        let factor_milli = u64::from(factors.copied().max().unwrap_or(0).max(1000));
        let highest = |max_qps: u64| {
            let overload = max_qps.saturating_mul(factor_milli) / 1000;
            match self.uncertified {
                true => overload,
                false => overload.max(self_test_rate(max_qps)),
            }
        };
        Demand {
            self_test: !self.uncertified,
            highest_qps: max_qps.map(highest),
        }
    }

    /// Load of each cell of a variant, in its longest trials.
    fn loads(&self, variant: &Variant) -> impl Iterator<Item = Load> {
        let cidr = variant.cidr.unwrap_or(self.load.cidr);
        let checks = self.queue_check.iter();
        let more = checks.flat_map(|check| check.durations_ns.iter().copied());
        let longest_ns = more.fold(self.load.duration_ns, u64::max);
        self.cells.iter().map(move |cell: &Cell| Load {
            duration_ns: longest_ns,
            cidr,
            zone: Zone {
                aaaa_share: cell.aaaa_share,
                ..self.load.zone.clone()
            },
            cached_share: cell.cached_share,
            pattern: cell.pattern,
            ..self.load.clone()
        })
    }
}

/// Profile of a variant's authority, if it is a program and readable.
fn profile(variant: &Variant) -> Option<Profile> {
    Profile::load(variant.subject.lab()?.authority.profile()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The range of a plan with these tables, whose trials last 60 s at up to 1091 queries per second.
    fn range(tables: &str) -> String {
        let text = format!("[search]\nstart-rate = 1000\nmax-rate = 1091\n{tables}");
        let plan = Plan::parse("x.toml", &text);
        plan.unwrap_or_else(|error| panic!("{error}"))
            .load
            .cidr
            .to_string()
    }

    #[test]
    fn plan_uses_the_names_of_its_longest_trial() {
        const NSD: &str = "[[dut]]\nauthority = \"nsd\"\n";
        const BEHIND: &str = "[tester]\nauthority = \"nsd\"\n[[dut]]\nprofile = \"unbound\"\n";
        assert_eq!(range(NSD), "10.0.0.0/16");
        // 2.2 times as many for the self-test, 5 times as many for overload.
        assert_eq!(range(BEHIND), "10.0.0.0/14");
        assert_eq!(
            range(&format!("{BEHIND}[overload]\nfactors = [1, 5]\n")),
            "10.0.0.0/13"
        );
        let uncertified = BEHIND.replace("[tester]\n", "[tester]\nuncertified = true\n");
        assert_eq!(range(&uncertified), "10.0.0.0/16");
        assert_eq!(
            range(&format!(
                "[queue-check]\ndurations = [\"5s\", \"120s\"]\n{NSD}"
            )),
            "10.0.0.0/15"
        );
        let given = format!("[tester]\nnamespace = \"10.0.0.0/12\"\n{NSD}");
        assert_eq!(range(&given), "10.0.0.0/12");
    }

    #[test]
    fn plan_uses_all_names_for_built_in_authority_or_running_server() {
        let built_in = "[[dut]]\nauthority = \"built-in\"\n";
        assert_eq!(range(built_in), "10.0.0.0/8");
        let server = "[[dut]]\nauthority = \"nsd\"\n[[dut]]\nserver = \"2001:db8::53\"\n";
        assert_eq!(range(server), "10.0.0.0/8");
        let plan = Plan::parse("x.toml", "[[dut]]\nauthority = \"nsd\"\n").unwrap();
        assert_eq!(plan.load.cidr.to_string(), "10.0.0.0/8", "no highest rate");
    }

    #[test]
    fn zone_too_large_for_memory_or_too_small_for_trial_is_refused() {
        let refused = |namespace: &str| {
            let text = format!(
                "[tester]\nnamespace = \"{namespace}\"\n[search]\nstart-rate = 1000\nmax-rate = 1092\n\
                 [[dut]]\nauthority = \"bind-authority\"\n"
            );
            let plan = Plan::parse("x.toml", &text).unwrap();
            let faults = plan.zone_faults(&plan.variants[0], &Machine::here());
            faults[0].to_string()
        };
        let memory = refused("0.0.0.0/0");
        assert!(
            memory.starts_with("bind-authority needs about 1984 GiB of memory"),
            "{memory}"
        );
        assert!(
            memory.contains("the 4,294,967,296 names of 0.0.0.0/0"),
            "{memory}"
        );
        let names = refused("10.0.0.0/16");
        assert!(names.contains("use --namespace 10.0.0.0/15"), "{names}");
    }
}
