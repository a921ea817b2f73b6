//! The profiles that a measurement names.

use std::collections::BTreeMap;

use super::RigError;
use super::spec::{AuthorityChoice, Subject};
use crate::lab::profile::{Profile, ProfileRole};

/// The profiles that a measurement names.
#[derive(Clone, Debug, Default)]
pub struct Profiles {
    /// Of the DUT.
    pub(super) dut: Option<Profile>,
    /// Of the authority, unless it is the Tester's own.
    pub(super) authority: Option<Profile>,
}

impl Profiles {
    /// Reads them and looks their programs up. Nothing is started or changed.
    ///
    /// # Errors
    ///
    /// A profile cannot be read, is one of the other role, lacks a setting that is given, or its
    /// program is not here.
    pub fn load(subject: &Subject) -> Result<Self, RigError> {
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
        // Other hosts look their programs up themselves.
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

    /// Of the DUT, if one is started.
    pub fn dut(&self) -> Option<&Profile> {
        self.dut.as_ref()
    }

    /// Of the authority, unless it is the Tester's own.
    pub fn authority(&self) -> Option<&Profile> {
        self.authority.as_ref()
    }
}

fn load(
    role: ProfileRole,
    name: &str,
    settings: &BTreeMap<String, String>,
) -> Result<Profile, RigError> {
    let profile = Profile::load(name)?;
    if profile.role != role {
        return Err(RigError::WrongRole {
            name: profile.name,
            wanted: match role {
                ProfileRole::Dut => "a DNS64 server",
                ProfileRole::Authority => "an authoritative server",
            },
        });
    }
    profile.check_settings(settings)?;
    Ok(profile)
}
