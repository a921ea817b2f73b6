//! The meaning of a `PLAN.toml`: what a campaign measures, as plain data.
//!
//! ```text
//! settings (the table) <- reader (keys of a text), or flags -> draft (values) -> read (what they mean together) -> Plan
//!                              \-> inventory (hosts)              \-> lookup (profiles that it names), if loaded from a file
//! ```

mod cells;
pub mod draft;
mod duts;
mod hosts;
mod inventory;
mod lookup;
pub(crate) mod pages;
mod places;
mod read;
mod reader;
mod server;
pub mod settings;
pub mod tasks;
mod zones;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use dns64_transport::clock::Nanos;
use serde::Deserialize;

use draft::Draft;
use inventory::Expanded;
use places::{Fault, Faults};
pub use places::{Place, Places, Problem};
pub use read::measurement;
pub use server::{DNS_PORT, ServerName};

use crate::authority::behaviour::Behaviour;
use crate::conform::case::Level;
use crate::lab::LabKind;
use crate::lab::hosts::Hosts;
use crate::load::pace::Pacing;
use crate::machine::cpuset::CpuSet;
use crate::namespace::{Cidr, Pattern, Share};
use crate::procedure::goal::Goal;
use crate::procedure::search::Resolution;
use crate::rig::recommended::Recommended;
use crate::rig::sources;
use crate::rig::spec::{AuthorityChoice, LabSpec, Load, Subject};
use crate::warning::{Severity, Warning};
use tasks::{Point, Task};

/// A whole plan.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Path that it was read from.
    pub origin: String,
    /// Its text, with the hosts of its inventory.
    pub text: String,
    /// Title of the report; by default the name of the file without `.toml`.
    pub name: String,
    /// Description by the user.
    pub description: String,
    /// Settings by their names in the table, with their values as texts, given or by default.
    pub settings: Vec<(String, String)>,
    /// Where the roles run, if a server is started; without effect if the plan has hosts.
    pub lab: LabKind,
    /// The part of the lab that all variants share, including the hosts of the plan; without a DUT.
    pub hosts: LabSpec,
    /// Load that all trials share, except the shares of their cells and the durations and timeouts of the queue check.
    pub load: Load,
    /// Measure without a certificate; the report says so.
    pub uncertified: bool,
    /// Self-tests of each certificate.
    pub self_tests: usize,
    /// The queries of each trial are written beside the journal, in the format of dns64perf++.
    pub raw: bool,
    /// Search for rates.
    pub search: SearchPlan,
    /// Measured subjects: each DUT with each of its core counts and settings. At least one.
    pub variants: Vec<Variant>,
    /// Combinations of shares. At least one; the first is used for overload, soak and queue check.
    pub cells: Vec<Cell>,
    /// The rows of the results, which follow from variants, cells and queue check.
    pub points: Vec<Point>,
    /// All work, in order.
    pub tasks: Vec<Task>,
    /// More durations and timeouts for the first cell, to find out whether the DUT stores queries.
    pub queue_check: Option<QueueCheck>,
    /// Multiples of the median rate for one trial each, in thousandths: 500 is half the rate. Empty without an overload
    /// curve.
    pub overload_milli: Vec<u32>,
    /// A long load below the measured rate.
    pub soak: Option<Soak>,
    /// Test the conformance of each variant by the cases up to this level.
    pub conformance: Option<Level>,
}

impl Plan {
    /// Parses a plan. `origin` is the path that it was read from: it names the plan in errors, and paths in the plan
    /// are relative to its directory. Reads nothing but the text, so that a journal's plan can be parsed anywhere.
    ///
    /// # Errors
    ///
    /// Not TOML, a missing or unknown key, an invalid value, or a combination of values that is not possible: all
    /// faults, each with line, column and remedy.
    pub fn parse(origin: &str, text: &str) -> Result<Self, PlanError> {
        let mut faults = Faults::default();
        let draft = reader::read(text, origin, &mut faults);
        let plan = draft.map(|draft| read::plan(&draft, &mut faults));
        let places = Places::of(origin, text);
        faults.check(plan, |fault| fault.locate(&places))
    }

    /// Reads the plan in a file and looks up its profiles and its inventory.
    ///
    /// # Errors
    ///
    /// As [`Self::parse`]; the file or the inventory cannot be read; a profile cannot be read, does not have the role
    /// that it is used for, or does not have a setting that the plan sets.
    pub fn load(path: &Path) -> Result<Self, PlanError> {
        let origin = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|reason| PlanError::Read {
            path: path.to_path_buf(),
            reason,
        })?;
        let mut faults = Faults::default();
        let places = Places::of(&origin, &text);
        let draft = reader::read(&text, &origin, &mut faults);
        let expand = |draft: &Draft| inventory::expand(draft, &places, &mut faults);
        let Some(expanded) = draft.as_ref().and_then(expand) else {
            let plan = draft.map(|draft| looked_up(&draft, &mut faults));
            return faults.check(plan, |fault| fault.locate(&places));
        };
        let Expanded { text, begin, path } = expanded;
        let mut faults = Faults::default();
        let draft = reader::read(&text, &origin, &mut faults);
        let plan = draft.map(|draft| looked_up(&draft, &mut faults));
        let all = Places::of(&origin, &text);
        let locate = |fault: Fault| {
            let span = fault.span.clone().unwrap_or_else(|| all.span(&fault.place));
            match span.start < begin {
                true => all.located(&span, &fault.message),
                // The user has not seen these tables.
                false => {
                    let host = fault
                        .host()
                        .map_or_else(String::new, |host| format!("host {host}: "));
                    let message = format!("inventory {path}: {host}{}", fault.message);
                    places.problem(&Place::of(&["inventory"]), &message)
                }
            }
        };
        faults.check(plan, locate)
    }

    /// The settings of a table, each with its value as it is understood.
    pub fn settings_of(&self, table: &str) -> Vec<(String, String)> {
        let of = |setting: &settings::Setting| {
            let (_, text) = self.settings.iter().rfind(|(id, _)| id == setting.id())?;
            let is_bare = text.parse::<f64>().is_ok();
            let unit = setting.bare.as_ref().filter(|_| is_bare);
            let unit = unit.map_or_else(String::new, |unit| format!(" {unit}"));
            Some((setting.name().to_owned(), format!("{text}{unit}")))
        };
        settings::of_table(table).filter_map(of).collect()
    }

    /// Range of the names in the trials of a variant.
    pub fn cidr(&self, variant: usize) -> Cidr {
        self.variants[variant].cidr.unwrap_or(self.load.cidr)
    }

    /// The source addresses of its queries in words, if it gives them.
    pub fn sources(&self) -> Option<String> {
        let mut variants = self.variants.iter();
        let site = variants.find_map(|variant| variant.subject.site(None));
        sources::told(&self.load, site.as_ref())
    }

    /// Deviations of the plan from the recommendations of RFC 8219.
    pub fn remarks(&self) -> Vec<Warning> {
        let ipv4_servers = self.variants.iter().filter_map(|v| match v.subject {
            Subject::Server { server, .. } if server.is_ipv4() => Some(v.name.as_str()),
            _ => None,
        });
        let recommended = Recommended {
            duration_ns: self.load.duration_ns,
            timeout_ns: self.load.timeout_ns,
            runs: Some(self.search.runs),
            has_goals: false,
            ipv4_servers: ipv4_servers.collect(),
        };
        let deviation = recommended.deviation().into_iter();
        let mut remarks: Vec<_> = deviation
            .map(|text| Severity::Warning.warning(text))
            .collect();
        remarks.extend(recommended.remarks());
        let has_dut = self.variants.iter().any(|v| !v.subject.is_authority());
        if has_dut && !self.cells.iter().any(|cell| cell.is_worst_case()) {
            remarks.push(Severity::Critical.warning(
                "no cell without AAAA records and cached names, which RFC 8219 section 9.2 \
                 requires",
            ));
        }
        for (flaw, names) in self.flaws() {
            let remark = Severity::Critical.warning(flaw);
            remarks.push(match names.len() == self.variants.len() {
                true => remark,
                false => remark.about(names.join(", ")),
            });
        }
        if self.uncertified {
            remarks.push(
                Severity::Critical
                    .warning("the Tester is not certified, which RFC 8219 section 9.2.1 requires"),
            );
            return remarks;
        }
        for variant in &self.variants {
            if let Subject::Server {
                self_test_server: None,
                ..
            } = variant.subject
            {
                let text = format!("the Tester is not certified for {}", variant.name);
                let remedy = "name an authority with self-test-server";
                remarks.push(Severity::Critical.warning(text).remedy(remedy));
            }
        }
        remarks
    }

    /// What keeps variants from being measurements of RFC 8219, and the names of these.
    fn flaws(&self) -> BTreeMap<String, Vec<&str>> {
        let mut flaws: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for variant in &self.variants {
            let load = Load {
                pacing: variant.pacing,
                ..self.load.clone()
            };
            let subject = variant.subject.clone().on(self.lab);
            let of_lab = subject.lab().into_iter().flat_map(LabSpec::flaws);
            for flaw in load.flaws().chain(of_lab) {
                flaws.entry(flaw).or_default().push(&variant.name);
            }
        }
        flaws
    }

    /// Whether the tasks of a point need a certificate of the Tester. An authority is measured by the self-test itself.
    pub fn needs_certificate(&self, point: &Point) -> bool {
        let can_be = match &self.variants[point.variant].subject {
            Subject::Server {
                self_test_server, ..
            } => self_test_server.is_some(),
            subject @ Subject::Lab(_) => !subject.is_authority(),
        };
        can_be && !self.uncertified
    }

    /// Where the roles run.
    pub fn laboratory(&self) -> Laboratory<'_> {
        let mut subjects = self.variants.iter().map(|variant| &variant.subject);
        match &self.hosts.at {
            Some(hosts) => Laboratory::Hosts(hosts),
            None if subjects.any(|subject| subject.lab().is_some()) => Laboratory::Here(self.lab),
            None => Laboratory::Elsewhere,
        }
    }
}

/// Where the roles run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Laboratory<'a> {
    /// The servers ran before the campaign and are queried from this machine.
    Elsewhere,
    /// A lab on this machine.
    Here(LabKind),
    /// The hosts of the plan.
    Hosts(&'a Hosts),
}

/// The plan of a draft, with everything that it refers to.
fn looked_up(draft: &Draft, faults: &mut Faults) -> Plan {
    let plan = read::plan(draft, faults);
    lookup::profiles(draft, &plan, faults);
    plan
}

/// Why a plan cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The text is not TOML or has invalid values: all faults.
    #[error("{}", all(problems))]
    Refused {
        /// At least one, in their order in the file.
        problems: Vec<Problem>,
    },
    /// The file cannot be read.
    #[error("cannot read plan {path:?}: {reason}; give the path of a TOML file")]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the kernel.
        reason: std::io::Error,
    },
}

fn all(problems: &[Problem]) -> String {
    let of = match problems {
        [_] => "1 fault in the plan".to_owned(),
        all => format!("{} faults in the plan", all.len()),
    };
    let texts = problems.iter().map(|problem| format!("\n{problem}"));
    of + &texts.collect::<String>()
}

/// How rates are searched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchPlan {
    /// Searches of each point: 20 by RFC 8219 section 9.2.
    pub runs: u32,
    /// Distance between the passing and the failing rate at which a search ends.
    pub resolution: Resolution,
    /// How rates are selected.
    pub method: Method,
    /// End a trial as soon as its failure is certain.
    pub stop_early: bool,
    /// When the DUT is restarted.
    pub restart: Restart,
    /// Rest between trials, in addition to the wait for the DUT's queues.
    pub settle_ns: Nanos,
    /// Order in which the points are measured.
    pub order: Order,
    /// Goals after RFC 9971, which have a search of their own.
    pub goals: Vec<Goal>,
}

/// How the rates of a search are selected. Both methods end with a passing and a failing rate within the resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Gallop from a first rate, then bisect. Later runs of the same point begin at the result of earlier ones.
    Galloping {
        /// First rate of the first run.
        start_qps: u64,
        /// Highest rate to try.
        max_qps: Option<u64>,
        /// Whether a run begins at the result of the earlier runs.
        reuse: bool,
    },
    /// Bisect a fixed range from 0, as the papers' scripts do (Lencse and Bakai 2017, figure 3).
    FixedRange {
        /// Its upper end.
        max_qps: u64,
    },
}

impl Default for Method {
    fn default() -> Self {
        Self::FixedRange { max_qps: 1 }
    }
}

impl Method {
    /// Rate of the first trial of the first run.
    pub fn first_qps(self) -> u64 {
        match self {
            Self::Galloping { start_qps, .. } => start_qps,
            Self::FixedRange { max_qps } => (max_qps / 2).max(1),
        }
    }

    /// Highest rate to try, if the plan has one.
    pub fn max_qps(self) -> Option<u64> {
        match self {
            Self::Galloping { max_qps, .. } => max_qps,
            Self::FixedRange { max_qps } => Some(max_qps),
        }
    }
}

/// When the DUT is restarted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Restart {
    /// Only if necessary: after another DUT, after its death, or when the names are used up.
    #[default]
    Never,
    /// Before each search.
    Search,
    /// Before each trial (Lencse et al. 2017, section 6.3).
    Trial,
}

/// Order in which the points are measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Run 1 of all points, then run 2 of all: drift of the machine affects all points equally.
    #[default]
    Interleaved,
    /// All runs of one point, then those of the next.
    Sequential,
}

/// One measured subject.
#[derive(Clone, Debug)]
pub struct Variant {
    /// Unique: the name of the DUT, with its cores and settings if the plan varies them.
    pub name: String,
    /// Name of its DUT.
    pub dut: String,
    /// Number of its `[[dut]]` in the plan, from 0.
    pub number: usize,
    /// What distinguishes it from the other variants of its `[[dut]]`, as in its name.
    pub varied: Vec<(Varied, String)>,
    /// What runs, and where. A lab without a DUT measures its authority by the self-test.
    pub subject: Subject,
    /// Pacing of its trials.
    pub pacing: Pacing,
    /// Range of names of its trials; `None` for that of the plan. Authorities only.
    pub cidr: Option<Cidr>,
}

/// A property in which the variants of a `[[dut]]` differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Varied {
    /// Cores of the measured program.
    Cores,
    /// Range of the names of an authority.
    Names,
    /// Settings of the profile.
    Settings,
    /// Faults of the authority.
    Behaviour,
    /// Pacing of the trials.
    Pacing,
}

impl Variant {
    /// Number of its `[[dut]]`, and its name without these properties: equal for the variants that differ in nothing else.
    pub fn without(&self, omitted: &[Varied]) -> (usize, String) {
        let kept = self
            .varied
            .iter()
            .filter(|(what, _)| !omitted.contains(what));
        let texts = kept.map(|(_, text)| text.as_str());
        (self.number, self.dut.clone() + &texts.collect::<String>())
    }

    /// Cores of the measured program; unrestricted means all those that the Tester does not use.
    pub fn cpus(&self) -> CpuSet {
        let cpus = self.subject.lab().map(|lab| match &lab.dut {
            Some(dut) => &dut.cpus,
            None => &lab.authority_cpus,
        });
        cpus.cloned().unwrap_or_default()
    }

    /// Configured faults of its authority; `None` without a lab.
    pub fn behaviour(&self) -> Option<&Behaviour> {
        self.subject.lab().map(|lab| &lab.behaviour)
    }

    /// Names and values of the settings of its profile.
    pub fn settings(&self) -> &BTreeMap<String, String> {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        match self.subject.lab().map(|lab| (&lab.dut, &lab.authority)) {
            Some((Some(dut), _)) => &dut.settings,
            Some((None, AuthorityChoice::Profile { settings, .. })) => settings,
            Some((None, AuthorityChoice::BuiltIn | AuthorityChoice::InDriver(_))) | None => &NONE,
        }
    }
}

/// A combination of shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Share of the names with their own AAAA record.
    pub aaaa_share: Share,
    /// Share of the queries for names that were queried before.
    pub cached_share: Share,
    /// Pattern of the repeated names; without effect if that share is zero.
    pub pattern: Pattern,
}

impl Cell {
    /// Whether this is the combination that RFC 8219 section 9.2 requires: nothing cached, no AAAA.
    pub fn is_worst_case(&self) -> bool {
        self.aaaa_share == Share::NONE && self.cached_share == Share::NONE
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AAAA {}, cached {}", self.aaaa_share, self.cached_share)?;
        match self.pattern {
            Pattern::OneName => Ok(()),
            pattern => write!(f, " ({pattern})"),
        }
    }
}

/// Combines each duration with each timeout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueCheck {
    /// Lengths of trials.
    pub durations_ns: Vec<Nanos>,
    /// Timeouts of its trials.
    pub timeouts_ns: Vec<Nanos>,
}

/// A long load, in segments of the plan's duration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Soak {
    /// Share of the median rate.
    pub share: Share,
    /// Total length.
    pub length_ns: Nanos,
}

#[cfg(test)]
mod tests;
