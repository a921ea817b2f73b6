//! Checks the requirements of a plan before anything is started: a campaign of days must not fail at its last DUT
//! because of a missing package. `run`, `resume` and `run --dry-run` run the same checks, and all faults are reported
//! together.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::estimate::estimate;
use super::journal::{self, JOURNAL_FILE};
use super::plan::tasks::Point;
use super::plan::{Method, Place, Places, Plan, Problem, Variant};
use crate::lab::profile::Profile;
use crate::lab::zone::Mib;
use crate::lab::{Blame, LabError, server};
use crate::load::names::{Names, RESERVED};
use crate::load::pace::Schedule;
use crate::machine::Machine;
use crate::machine::cpuset::CpuSet;
use crate::quantity::Thousands;
use crate::rig::spec::Subject;
use crate::rig::target;

/// Environment for a run of a plan.
#[derive(Debug)]
pub struct Surroundings<'a> {
    /// This machine.
    pub machine: &'a Machine,
    /// Why the lab of the plan is not possible here, if it needs one that is not.
    pub no_lab: Option<&'a LabError>,
    /// Why its Measurer cannot send from the source addresses of the plan, if that is so.
    pub no_sources: Option<String>,
    /// Directory of the journal.
    pub directory: &'a Path,
    /// Free octets there, if known.
    pub free: Option<u64>,
    /// The journal exists.
    pub is_resumed: bool,
    /// The user permits load on public addresses.
    pub may_load: bool,
}

/// One obstacle to a run of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// The fault, and its place in the plan.
    pub problem: Problem,
    /// What has to change.
    pub blame: Blame,
}

/// Returns everything that prevents a run of the plan, in the order of its text. Starts nothing except programs to get
/// their version. Other hosts report their own missing requirements.
pub fn check(plan: &Plan, around: &Surroundings<'_>) -> Vec<Obstacle> {
    let places = &Places::of(&plan.origin, &plan.text);
    let mut obstacles = Obstacles {
        places,
        found: Vec::new(),
    };
    if plan.hosts.at.is_none() {
        if let Some(error) = around.no_lab {
            obstacles.add(
                &Place::of(&["tester", "lab"]),
                error.blame,
                &format!("{error:#}"),
            );
        }
        programs(plan, &mut obstacles);
        cpus(plan, around.machine, &mut obstacles);
        if let Some(why) = &around.no_sources {
            obstacles.add(&Place::of(&["tester", "local"]), Blame::Machine, why);
        }
    }
    for (index, variant) in plan.variants.iter().enumerate() {
        let place = match variant.cidr {
            Some(_) => Place::dut(variant.number, "namespace"),
            None => Place::of(&["tester", "namespace"]),
        };
        for error in plan.zone_faults(variant, around.machine) {
            let blame = error.blame().unwrap_or(Blame::Machine);
            obstacles.add(&place, blame, &format!("{error:#}"));
        }
        if let Subject::Server {
            server,
            self_test_server,
            ..
        } = variant.subject
        {
            addresses(variant, (server, self_test_server), around, &mut obstacles);
            names(plan, index, server, &mut obstacles);
        }
    }
    journal(plan, around, &mut obstacles);
    let mut found = obstacles.found;
    found.sort_by_key(|obstacle| (obstacle.problem.line, obstacle.problem.column));
    found
}

/// Remarks on a plan that can run nevertheless.
pub fn remarks(plan: &Plan) -> Vec<String> {
    let mut told = overlaps(plan);
    for (_, profile, given) in servers(plan) {
        let version = found(profile, given).map(|(profile, it)| server::version(&profile, &it));
        if let Ok(Err(error)) = version
            && error.blame == Blame::Server
        {
            told.push(error.to_string());
        }
    }
    told
}

/// Variants that share a core with the Tester, if the plan pins both.
fn overlaps(plan: &Plan) -> Vec<String> {
    let mut told = Vec::new();
    for variant in &plan.variants {
        let lab = variant.subject.lab().filter(|lab| lab.at.is_none());
        let Some((lab, dut)) = lab.and_then(|lab| Some((lab, lab.dut.as_ref()?))) else {
            continue;
        };
        let tester = [&plan.load.cpus, &lab.authority_cpus];
        let shared = dut.cpus.cpus().iter().copied();
        let shared: CpuSet = shared
            .filter(|cpu| tester.iter().any(|set| set.cpus().contains(cpu)))
            .collect();
        if !shared.is_unrestricted() {
            told.push(format!(
                "{} shares core {shared} with the Tester: its results will not be measurements",
                variant.name
            ));
        }
    }
    told
}

/// Obstacles found so far.
struct Obstacles<'a> {
    places: &'a Places<'a>,
    found: Vec<Obstacle>,
}

impl Obstacles<'_> {
    fn add(&mut self, place: &Place, blame: Blame, message: &str) {
        let problem = self.places.problem(place, message);
        let obstacle = Obstacle { problem, blame };
        if !self.found.contains(&obstacle) {
            self.found.push(obstacle);
        }
    }
}

/// Checks that programs exist and are executable.
fn programs(plan: &Plan, obstacles: &mut Obstacles<'_>) {
    for (place, profile, given) in servers(plan) {
        let told = found(profile, given)
            .and_then(|(profile, program)| server::known_version(&profile, &program));
        if let Err(error) = told {
            obstacles.add(&place, error.blame, &format!("{error:#}"));
        }
    }
}

fn found(profile: &str, given: Option<&Path>) -> Result<(Profile, PathBuf), LabError> {
    let profile = Profile::load(profile)?;
    let program = profile.program(given)?;
    Ok((profile, program))
}

/// The profile and the configured program of each server that the plan starts, and its place in the plan.
fn servers(plan: &Plan) -> Vec<(Place, &str, Option<&Path>)> {
    let mut all = Vec::new();
    for variant in &plan.variants {
        let Some(lab) = variant.subject.lab() else {
            continue;
        };
        if let Some(dut) = &lab.dut {
            let key = dut.program.as_ref().map_or("profile", |_| "binary");
            let place = Place::dut(variant.number, key);
            all.push((place, dut.profile.as_str(), dut.program.as_deref()));
        }
        if let Some(profile) = lab.authority.profile() {
            let place = match lab.dut {
                Some(_) => Place::of(&["tester", "authority"]),
                None => Place::dut(variant.number, "authority"),
            };
            all.push((place, profile, None));
        }
    }
    let mut asked = BTreeSet::new();
    all.retain(|(_, profile, program)| asked.insert((*profile, *program)));
    all
}

/// Checks that CPUs exist and are available.
fn cpus(plan: &Plan, machine: &Machine, obstacles: &mut Obstacles<'_>) {
    let Some(cpus) = machine.cpus() else {
        return;
    };
    let mut refuse = |place, wished: &CpuSet| {
        if let Some(why) = cpus.refuse(wished) {
            obstacles.add(&place, Blame::Machine, &why);
        }
    };
    refuse(Place::of(&["tester", "cpus"]), &plan.load.cpus);
    let authority = &plan.hosts.authority_cpus;
    refuse(Place::of(&["tester", "authority-cpus"]), authority);
    for variant in &plan.variants {
        refuse(Place::dut(variant.number, "cores"), &variant.cpus());
    }
}

/// Checks the addresses of a running server and of its self-test server.
fn addresses(
    variant: &Variant,
    (server, self_test_server): (SocketAddr, Option<SocketAddr>),
    around: &Surroundings<'_>,
    obstacles: &mut Obstacles<'_>,
) {
    let servers = [
        ("server", Some(server)),
        ("self-test-server", self_test_server),
    ];
    for (key, address) in servers {
        let Some(address) = address else { continue };
        let place = Place::dut(variant.number, key);
        if address.ip().is_multicast() || address.ip().is_unspecified() || address.port() == 0 {
            let why = format!(
                "{address} is not the address of a server; use a unicast address and a port above 0"
            );
            obstacles.add(&place, Blame::Request, &why);
        } else if let Err(why) = target::check(address, around.may_load, around.machine) {
            obstacles.add(&place, Blame::Request, &format!("{why:#}"));
        }
    }
    if self_test_server == Some(server) {
        obstacles.add(
            &Place::dut(variant.number, "self-test-server"),
            Blame::Request,
            "the server under test cannot certify the Tester; name an authority in self-test mode, or omit it",
        );
    }
}

/// A running server is queried for no name twice: there must be enough names for the trials with a known rate.
fn names(plan: &Plan, variant: usize, server: SocketAddr, obstacles: &mut Obstacles<'_>) {
    let first_qps = plan.search.method.first_qps();
    let repeats = !matches!(plan.search.method, Method::Galloping { reuse: true, .. });
    let runs = if repeats { plan.search.runs.into() } else { 1 };
    let of_point = |point: &Point| {
        let queries = Schedule::new(first_qps, point.duration_ns).queries();
        Names::fresh(point.cell.cached_share, queries)
    };
    let points = plan.points.iter().filter(|point| point.variant == variant);
    let once: u64 = points.map(of_point).fold(0, u64::saturating_add);
    let needed = once.saturating_mul(runs);
    if needed > NAMES_MAX - RESERVED {
        let why = format!(
            "{server} must not be queried twice for a name: the first trials of its searches need {} names and \
             the namespace has {}; give a lower rate, shorter trials or fewer runs",
            Thousands(needed),
            Thousands(NAMES_MAX)
        );
        let place = Place::dut(plan.variants[variant].number, "server");
        obstacles.add(&place, Blame::Request, &why);
    }
}

/// Checks that the journal can be created, and that there is disk space for the likely number of trials.
fn journal(plan: &Plan, around: &Surroundings<'_>, obstacles: &mut Obstacles<'_>) {
    if !around.is_resumed && around.directory.join(JOURNAL_FILE).exists() {
        let why = journal::exists(around.directory).to_string();
        obstacles.add(&Place::of(&["name"]), Blame::Request, &why);
    }
    let trials = estimate(plan).total.trials;
    let first_qps = plan.search.method.first_qps();
    let row = if plan.raw { ROW_OCTETS } else { 0 };
    let raw = plan.load.schedule(first_qps).queries().saturating_mul(row);
    let needed = trials.saturating_mul(raw.saturating_add(LINE_OCTETS));
    if let Some(free) = around
        .free
        .filter(|free| *free < needed && !around.is_resumed)
    {
        let (place, what) = match plan.raw {
            true => (Place::of(&["tester", "raw"]), "the queries of its trials"),
            false => (Place::of(&["name"]), "its journal"),
        };
        let why = format!(
            "{} likely trials need {} in {} for {what}, and {} are available there; make room, or choose another \
             directory with --output",
            Thousands(trials),
            Mib(needed),
            around.directory.display(),
            Mib(free)
        );
        obstacles.add(&place, Blame::Machine, &why);
    }
}

/// Octets of one query, measured on the files of trials.
const ROW_OCTETS: u64 = 90;

/// Octets of the line of a trial, measured on journals.
const LINE_OCTETS: u64 = 5000;

/// Names are IPv4 addresses.
const NAMES_MAX: u64 = 1 << 32;

#[cfg(test)]
mod tests;
