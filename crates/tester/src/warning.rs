//! Warnings for readers of results, as values.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

/// A warning.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Warning {
    /// Severity.
    pub severity: Severity,
    /// The variant, point or session concerned; `None` for the whole campaign.
    pub about: Option<String>,
    /// Text.
    pub text: String,
    /// Remedy, if there is one.
    pub remedy: Option<String>,
    /// Section of a report with the details, if it has one.
    pub section: Option<Section>,
}

/// Section of the page of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Section {
    /// Rates of the points.
    Results,
    /// Self-tests of the Tester.
    SelfTest,
    /// Evidence about the Tester.
    Evidence,
    /// Trials above the measured rate.
    Overload,
    /// Trials for hours.
    Soak,
    /// Processes that worked on the campaign.
    Sessions,
}

/// Severity of a warning, in descending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// A result is missing, or is not a measurement in the sense of RFC 8219.
    Critical,
    /// A result may be wrong or hard to repeat, or a recommendation was not followed.
    Warning,
    /// Information.
    Note,
}

impl Severity {
    /// Creates a warning of this severity, about the whole campaign and without a remedy.
    pub fn warning(self, text: impl Into<String>) -> Warning {
        Warning {
            severity: self,
            about: None,
            text: text.into(),
            remedy: None,
            section: None,
        }
    }
}

impl Warning {
    /// Returns the warning about one variant, point or session.
    pub fn about(self, about: impl Into<String>) -> Self {
        let about = Some(about.into());
        Self { about, ..self }
    }

    /// Returns the warning with a remedy.
    pub fn remedy(self, remedy: impl Into<String>) -> Self {
        let remedy = Some(remedy.into());
        Self { remedy, ..self }
    }

    /// Returns the warning with the section of its details.
    pub fn section(self, section: Section) -> Self {
        let section = Some(section);
        Self { section, ..self }
    }
}

/// One line: "about: text; remedy".
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
