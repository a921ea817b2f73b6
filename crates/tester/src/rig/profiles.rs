//! The profiles of a measurement.

use std::collections::BTreeMap;

use super::spec::{AuthorityChoice, Subject};
use crate::lab::profile::{Profile, ProfileRole};
use crate::lab::{Blame, LabError};

/// Profiles of a measurement.
#[derive(Clone, Debug, Default)]
pub struct Profiles {
    /// Of the DUT.
    pub dut: Option<Profile>,
    /// Of the authority, unless it is the built-in one.
    pub authority: Option<Profile>,
}

impl Profiles {
    /// Reads the profiles and looks up their programs. Starts and changes nothing.
    ///
    /// # Errors
    ///
    /// A profile is unreadable, has the wrong role or lacks a configured setting, or its program is missing.
    pub fn load(subject: &Subject) -> Result<Self, LabError> {
        let Some(lab) = subject.lab() else {
            return Ok(Self::default());
        };
        let dut = lab
            .dut
            .as_ref()
            .map(|choice| load(ProfileRole::Dut, &choice.profile, &choice.settings));
        let dut = dut.transpose()?;
        let authority = match &lab.authority {
            AuthorityChoice::BuiltIn | AuthorityChoice::InDriver(_) => None,
            AuthorityChoice::Profile { profile, settings } => {
                Some(load(ProfileRole::Authority, profile, settings)?)
            }
        };
        // Other hosts look up their programs themselves.
        if lab.at.is_none() {
            let named = lab
                .dut
                .as_ref()
                .and_then(|choice| choice.program.as_deref());
            dut.as_ref()
                .map(|profile| profile.program(named))
                .transpose()?;
            authority
                .as_ref()
                .map(|profile| profile.program(None))
                .transpose()?;
        }
        Ok(Self { dut, authority })
    }
}

fn load(
    role: ProfileRole,
    name: &str,
    settings: &BTreeMap<String, String>,
) -> Result<Profile, LabError> {
    let profile = Profile::load(name)?;
    if profile.role != role {
        let wanted = match role {
            ProfileRole::Dut => "a DNS64 server",
            ProfileRole::Authority => "an authoritative server",
        };
        let name = &profile.name;
        let what = format!("profile {name} is not a profile of {wanted}");
        return Err(Blame::Request.error(what));
    }
    profile.check_settings(settings)?;
    Ok(profile)
}
