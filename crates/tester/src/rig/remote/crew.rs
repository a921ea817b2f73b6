//! The connections of a controller to the hosts of its plan, for as long as it works.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::at_once;
use super::host::Remote;
use crate::agent::link::Link;
use crate::agent::ssh::Options;
use crate::agent::trouble::LinkError;
use crate::agent::{program, push};
use crate::lab::hosts::HostSpec;
use crate::lab::{Blame, LabError};

/// Hosts that were reached. Each is held from then on, so that no other controller gets in between two measurements; one whose
/// connection was lost is reached again when it is next needed.
pub struct Crew {
    purpose: String,
    /// Copy this program to each host first, and use the copy.
    push: bool,
    interrupted: Arc<AtomicBool>,
    /// Made when the first host is reached.
    options: OnceLock<Options>,
    hosts: Mutex<BTreeMap<String, Remote>>,
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "crew of {}", self.purpose)
    }
}

impl Crew {
    /// For a controller that does this, such as "plan x.toml". Nobody is reached yet.
    /// With `push` this program is copied to them over ssh first, and used there. Nobody waits for them once `interrupted` is true.
    pub fn new(purpose: &str, push: bool, interrupted: &Arc<AtomicBool>) -> Self {
        Self {
            purpose: purpose.to_owned(),
            push,
            interrupted: Arc::clone(interrupted),
            options: OnceLock::new(),
            hosts: Mutex::default(),
        }
    }

    /// Reaches these hosts at the same time, but for those that are held already.
    ///
    /// # Errors
    ///
    /// The first that cannot be reached, with what to do.
    pub fn reach<'a>(
        &self,
        hosts: impl Iterator<Item = &'a HostSpec>,
    ) -> Result<BTreeMap<String, Remote>, LabError> {
        let tried = self.try_reach(hosts).into_iter();
        tried.map(|(name, host)| Ok((name, host?))).collect()
    }

    /// The same; of each host that cannot be reached, why, in the order that they are given.
    pub fn try_reach<'a>(
        &self,
        hosts: impl Iterator<Item = &'a HostSpec>,
    ) -> Vec<(String, Result<Remote, LabError>)> {
        let mut held = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|_, host| host.link().alive());
        let options = self.options.get_or_init(|| {
            let mut options = Options::new(&self.purpose);
            options.interrupted = Arc::clone(&self.interrupted);
            options
        });
        let reached = at_once(hosts.collect(), |host| {
            let reached = match held.get(&host.name) {
                Some(held) => Ok(held.clone()),
                None => self.open(host, options).map_or_else(
                    |error| Err(Blame::Machine.error(error.to_string())),
                    |link| Ok(Remote::new(&host.name, link)),
                ),
            };
            (host.name.clone(), reached)
        });
        for (name, host) in &reached {
            if let Ok(host) = host {
                held.insert(name.clone(), host.clone());
            }
        }
        reached
    }

    /// Why a host that was held cannot be asked any more, if there is one: whatever was measured meanwhile says nothing.
    pub fn lost(&self) -> Option<LinkError> {
        let held = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        held.values().find_map(|host| host.link().lost().cloned())
    }

    fn open(&self, host: &HostSpec, options: &Options) -> Result<Link, LinkError> {
        let mut options = options.clone();
        if self.push {
            let own = Path::new(program::OWN);
            options.program = push::push(&host.name, &host.reach, own, &options)?;
        }
        Link::open(&host.name, &host.reach, host.sudo, &options)
    }
}
