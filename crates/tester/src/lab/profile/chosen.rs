//! The settings of a profile that a user has chosen.

use std::collections::BTreeMap;

use super::Profile;
use crate::lab::{Blame, LabError};

impl Profile {
    /// Checks that the profile has all settings for which values are given, and that the values are valid: a setting
    /// whose default is the number of cores is a number of threads or processes.
    ///
    /// # Errors
    ///
    /// An unknown setting, with the known ones; an invalid number of threads.
    pub fn check_settings(&self, chosen: &BTreeMap<String, String>) -> Result<(), LabError> {
        for (key, value) in chosen {
            let Some(default) = self.settings.get(key) else {
                return Err(self.unknown(key));
            };
            let number = value.parse::<u64>().ok();
            let is_count = number.is_some_and(|number| (1..=THREADS_MAX).contains(&number));
            if default.get_ref() == CORES && !is_count {
                return Err(Blame::Request.error(format!(
                    "setting {key} of profile {} is {value:?}: it must be a whole number from 1 to {THREADS_MAX}; write \
                     such as {key}=1",
                    self.name
                )));
            }
        }
        Ok(())
    }

    fn unknown(&self, key: &str) -> LabError {
        let known: Vec<&str> = self.settings().map(|(name, _)| name).collect();
        let known = match known.is_empty() {
            true => "none".to_owned(),
            false => known.join(", "),
        };
        let name = &self.name;
        Blame::Request.error(format!(
            "profile {name} has no setting {key:?}; it has {known}"
        ))
    }
}

/// The placeholder for the number of CPUs of a server.
const CORES: &str = "{cores}";

/// More than the observed maximum of threads of any of the servers.
const THREADS_MAX: u64 = 1024;
