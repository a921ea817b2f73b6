//! What a reader has to know before a number is quoted, as a value.

use std::fmt;

use serde::Serialize;

/// A warning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// How grave it is.
    pub severity: Severity,
    /// The variant, point or session that it is about; `None` for the whole campaign.
    pub about: Option<String>,
    /// What was found.
    pub text: String,
    /// What to do about it, if anything can be done.
    pub remedy: Option<String>,
}

/// How grave a warning is, the gravest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// A result is missing, or is no measurement in the sense of RFC 8219.
    Critical,
    /// A result may be wrong or hard to repeat, or a recommendation was not followed.
    Warning,
    /// For completeness.
    Note,
}

impl Severity {
    /// A warning of this severity, about the whole campaign and without a remedy.
    pub fn warning(self, text: impl Into<String>) -> Warning {
        Warning {
            severity: self,
            about: None,
            text: text.into(),
            remedy: None,
        }
    }
}

impl Warning {
    /// The same about one variant, point or session.
    pub fn about(self, about: impl Into<String>) -> Self {
        let about = Some(about.into());
        Self { about, ..self }
    }

    /// The same with a remedy.
    pub fn remedy(self, remedy: impl Into<String>) -> Self {
        let remedy = Some(remedy.into());
        Self { remedy, ..self }
    }
}

/// In one line: "about: text; remedy".
impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(about) = &self.about {
            write!(f, "{about}: ")?;
        }
        f.write_str(&self.text)?;
        match &self.remedy {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}
