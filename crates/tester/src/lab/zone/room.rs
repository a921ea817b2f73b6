//! Checks whether a machine has room for a zone: for the file on its disk, and for its names in the memory of a server.

use std::fmt;

use dns64_transport::clock::{Nanos, SECOND};

use super::ZoneFile;
use super::cache::{Mib, directory};
use crate::lab::profile::{Profile, ZoneUse};
use crate::lab::{Blame, LabError};
use crate::machine::Machine;
use crate::namespace::Cidr;
use crate::naming::{Message, NAMESPACE, Naming};
use crate::quantity::Thousands;

/// Requirements of one authority for its zone, in octets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    /// Name of its profile.
    pub server: String,
    /// The range of names.
    pub cidr: Cidr,
    /// A and AAAA records of all names.
    pub records: u64,
    /// Memory, if the profile has figures for it.
    pub memory: Option<u64>,
    /// Processor time to load it at each start, if the profile has a figure for it.
    pub load_ns: Option<Nanos>,
    /// Length of the zone file; 0 for a server that reads none.
    pub file: u64,
}

impl Room {
    /// Requirements of the server of `profile` for this zone.
    pub fn of(profile: &Profile, zone: &ZoneFile) -> Self {
        let zone_use = profile.zone;
        Self {
            server: profile.name.clone(),
            cidr: zone.cidr,
            records: zone.records(),
            memory: zone_use.memory(zone.names(), zone.records()),
            load_ns: zone_use.load_ns(zone.records()),
            file: if zone_use.file { zone.octets_max() } else { 0 },
        }
    }
}

impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (names, records) = (Thousands(self.cidr.names()), Thousands(self.records));
        let server = &self.server;
        write!(
            f,
            "{server} serves {names} names of {} with {records} records",
            self.cidr
        )?;
        match self.memory {
            Some(memory) => write!(f, ": about {} of memory", Mib(memory))?,
            None => write!(f, ": its memory is not known")?,
        }
        if let Some(load_ns) = self.load_ns {
            write!(
                f,
                ", {} s to load them at each start",
                load_ns.div_ceil(SECOND)
            )?;
        }
        match self.file {
            0 => write!(f, ", no zone file"),
            octets => write!(f, ", a zone file of at most {}", Mib(octets)),
        }
    }
}

/// Returns why the server of `profile` could not load a zone on this machine, before anything is written or started:
/// not enough memory, or not enough space for the zone file. A range that is suggested instead has at least `needed`
/// names.
pub fn faults(profile: &Profile, zone: &ZoneFile, needed: u64, machine: &Machine) -> Vec<LabError> {
    let available = machine.memory_room();
    let memory = check_memory(profile.zone, &profile.name, zone, needed, available);
    let file = match profile.zone.file {
        true => zone.check_space(&directory()),
        false => Ok(()),
    };
    [memory, file].into_iter().filter_map(Result::err).collect()
}

fn check_memory(
    zone_use: ZoneUse,
    server: &str,
    zone: &ZoneFile,
    needed: u64,
    available: Option<u64>,
) -> Result<(), LabError> {
    let (Some(memory), Some(available)) =
        (zone_use.memory(zone.names(), zone.records()), available)
    else {
        return Ok(());
    };
    if memory <= available {
        return Ok(());
    }
    let narrower = (1..=32).find_map(|bits| {
        let cidr = zone.cidr.narrowed_to(zone.names() >> bits)?;
        let zone = ZoneFile {
            cidr,
            ..zone.clone()
        };
        let fits = zone_use.memory(zone.names(), zone.records())? <= available;
        fits.then_some(cidr)
    });
    let remedy = |naming: Naming| match narrower {
        Some(cidr) if cidr.names() >= needed => {
            let range = naming.value(NAMESPACE, cidr);
            format!("the memory is enough for {cidr}: use {range}")
        }
        Some(cidr) => format!(
            "the memory is enough for {cidr} only, but a trial needs {} names: use a lower rate, a shorter \
             trial or the built-in authority",
            Thousands(needed)
        ),
        None => "use the built-in authority, which keeps no names".to_owned(),
    };
    let (names, cidr) = (Thousands(zone.names()), zone.cidr);
    Err(Blame::Machine.error(Message::new(|naming| {
        format!(
            "{server} needs about {} of memory for the {names} names of {cidr}, and {} are available; {}",
            Mib(memory),
            Mib(available),
            remedy(naming)
        )
    })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::spec::Load;

    fn refused(available: u64, needed: u64) -> String {
        let zone_use = ZoneUse {
            base_mib: 16,
            octets_per_name: 200,
            octets_per_record: 100,
            ..ZoneUse::default()
        };
        let zone = Load::default().zone_file(true);
        // 16 MiB and 2^24 times 400 octets.
        assert!(check_memory(zone_use, "nsd", &zone, needed, Some(6416 << 20)).is_ok());
        assert!(check_memory(ZoneUse::default(), "nsd", &zone, needed, Some(0)).is_ok());
        assert!(check_memory(zone_use, "nsd", &zone, needed, None).is_ok());
        let checked = check_memory(zone_use, "nsd", &zone, needed, Some(available));
        checked.unwrap_err().to_string()
    }

    #[test]
    fn too_little_memory_suggests_a_range_that_fits() {
        assert_eq!(
            refused(6415 << 20, 1 << 23),
            "nsd needs about 6416 MiB of memory for the 16,777,216 names of 10.0.0.0/8, and 6415 MiB \
             are available; the memory is enough for 10.0.0.0/9: use --namespace 10.0.0.0/9"
        );
        assert!(refused(816 << 20, 1 << 10).contains("; the memory is enough for 10.0.0.0/11:"));
    }

    #[test]
    fn requirements_of_a_server_are_reported_with_their_figures() {
        let zone = ZoneFile {
            cidr: "10.0.0.0/12".parse().unwrap(),
            ..Load::default().zone_file(true)
        };
        let nsd = Profile::built_in("nsd").unwrap();
        assert_eq!(
            Room::of(&nsd, &zone).to_string(),
            "nsd serves 1,048,576 names of 10.0.0.0/12 with 2,097,152 records: about 460 MiB of \
             memory, 4 s to load them at each start, a zone file of at most 60 MiB"
        );
        let fakedns = Profile::built_in("fakedns").unwrap();
        let told = Room::of(&fakedns, &zone).to_string();
        assert!(
            told.ends_with(": its memory is not known, no zone file"),
            "{told}"
        );
    }

    #[test]
    fn too_little_memory_for_the_trial_suggests_no_range() {
        let error = refused(6415 << 20, 9_000_000);
        assert!(
            error.ends_with(
                "the memory is enough for 10.0.0.0/9 only, but a trial needs 9,000,000 names: use a lower rate, \
                 a shorter trial or the built-in authority"
            ),
            "{error}"
        );
        assert!(
            refused(15 << 20, 64).ends_with("use the built-in authority, which keeps no names")
        );
    }
}
