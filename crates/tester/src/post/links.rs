//! The connections of a controller to the hosts of its plan.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use super::host::{Host, at_once};
use crate::agent::link::AgentLink;
use crate::agent::ssh::Options;
use crate::agent::trouble::LinkError;
use crate::agent::{program, push};
use crate::lab::hosts::HostSpec;
use crate::lab::{Blame, LabError};

/// Connected hosts. Each stays connected, so that no other controller can use it between two measurements; a lost
/// connection is reopened when the host is next needed.
pub struct Links {
    /// Copy this program to each host first, and run the copy.
    push: bool,
    options: Options,
    hosts: Mutex<BTreeMap<String, Host>>,
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "links of {}", self.options.controller)
    }
}

impl Links {
    /// Creates links for a controller with this purpose, such as "plan x.toml", without connections. With `push` this
    /// program is copied to the hosts over ssh first, and run there. Waiting for hosts ends when `interrupted` is true.
    pub fn new(purpose: &str, push: bool, interrupted: &Arc<AtomicBool>) -> Self {
        Self {
            push,
            options: Options {
                interrupted: Arc::clone(interrupted),
                ..Options::new(purpose)
            },
            hosts: Mutex::default(),
        }
    }

    /// Connects to these hosts in parallel, except for those that are connected.
    ///
    /// # Errors
    ///
    /// The first host that cannot be reached, with the remedy.
    pub fn reach<'a>(
        &self,
        hosts: impl Iterator<Item = &'a HostSpec>,
    ) -> Result<BTreeMap<String, Host>, LabError> {
        let tried = self.try_reach(hosts).into_iter();
        tried.map(|(name, host)| Ok((name, host?))).collect()
    }

    /// Connects to these hosts and returns the error of each host that cannot be reached, in the given order.
    pub fn try_reach<'a>(
        &self,
        hosts: impl Iterator<Item = &'a HostSpec>,
    ) -> Vec<(String, Result<Host, LabError>)> {
        let mut held = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|_, host| host.link().is_none_or(|mut link| link.alive()));
        let reached = at_once(hosts.collect(), |host| {
            let reached = match held.get(&host.name) {
                Some(held) => Ok(held.clone()),
                None => self.open(host).map_or_else(
                    |error| Err(Blame::Machine.error(error.to_string())),
                    |link| Ok(Host::at(&host.name, link)),
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

    /// Returns why a connected host no longer answers, if there is one: measurements in the meantime are void.
    pub fn lost(&self) -> Option<LinkError> {
        let held = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lost = held
            .values()
            .filter_map(|host| host.link()?.lost().cloned());
        lost.next()
    }

    fn open(&self, host: &HostSpec) -> Result<AgentLink, LinkError> {
        let mut options = self.options.clone();
        if self.push {
            let own = Path::new(program::OWN);
            options.program = push::push(&host.name, &host.reach, own, &options)?;
        }
        AgentLink::open(&host.name, &host.reach, host.sudo, &options)
    }
}
