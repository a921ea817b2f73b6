//! `dns64bench audit`

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::anyhow;
use dns64_transport::clock::{MonotonicClock, SECOND};
use serde::Serialize;

use super::lab::in_user_namespace;
use super::plan::settled;
use super::report::load;
use super::{Failure, exit, interrupt, print, print_raw};
use crate::campaign::bench::spec;
use crate::cli::args::AuditArgs;
use crate::namespace::Share;
use crate::post::links::Links;
use crate::procedure::Trials as _;
use crate::procedure::audit::{self, Audited, Finding, Part, Seed};
use crate::quantity::Thousands;
use crate::report::campaign::analyse::analyse;
use crate::report::campaign::analysis::PointResult;
use crate::report::json;
use crate::report::numbers::whole;
use crate::rig::spec::RigSpec;
use crate::rig::{Rig, RigError};
use crate::statistics::quantile::percentile;
use crate::trial::result::TrialResult;

/// The audit of a campaign.
#[derive(Serialize)]
struct Audit {
    /// SHA-256 of the seed, told before the trials.
    commitment: String,
    seed: String,
    variants: Vec<Variant>,
}

/// The audit of the rate of a variant.
#[derive(Serialize)]
struct Variant {
    variant: String,
    /// Its median rate at its representative point.
    rate_qps: u64,
    /// Rate of the trials.
    audited_qps: u64,
    parts: Vec<Audited>,
}

/// Audits the rates of a campaign and prints what was found.
pub(super) fn run(args: &AuditArgs) -> Result<u8, Failure> {
    let interrupted = interrupt()?;
    let (plan, reading) = load(&args.directory)?;
    let analysis = analyse(&plan, &reading.lines, &reading.seal);
    let lab = settled(&plan).transpose()?;
    let Some(lab) = lab else {
        let error = anyhow!(
            "only servers that a plan starts can be audited: others cannot be given another zone"
        );
        return Err(Failure::new(exit::USAGE, error));
    };
    if let Some(code) = in_user_namespace(lab, &interrupted)? {
        return Ok(code);
    }
    let seed = Seed::draw()?;
    // Before the first trial, and not in the output of `--json`.
    let told = format!("SHA-256 of the seed: {}\n", seed.commitment());
    std::io::stderr().write_all(told.as_bytes())?;
    let mut variants = Vec::new();
    let duts = analysis.variants.iter().enumerate();
    let duts = duts.filter(|(_, it)| it.planned.subject.dut().is_some());
    for (index, info) in duts {
        let point = analysis.headline(index);
        let point = point.filter(|it| it.planned.cell.cached_share == Share::NONE);
        let Some((point, rate_qps)) = point.and_then(|it| Some((it, median_qps(it)?))) else {
            continue;
        };
        let audited_qps = audit::audited_qps(rate_qps);
        let mut spec = spec(&plan, &point.planned, lab);
        spec.load.stop_early = false;
        variants.push(Variant {
            variant: info.name.clone(),
            rate_qps,
            audited_qps,
            parts: parts(&spec, &seed, audited_qps, &interrupted)?,
        });
    }
    if variants.is_empty() {
        let error = anyhow!(
            "{} has no rate to audit: no server has one for names that are not repeated",
            args.directory.display()
        );
        return Err(Failure::new(exit::USAGE, error));
    }
    let audit = Audit {
        commitment: seed.commitment(),
        seed: seed.to_string(),
        variants,
    };
    match args.json {
        true => print_raw(&json::text(&audit)?)?,
        false => print(|out| audit.write(out))?,
    }
    Ok(audit.code())
}

impl Audit {
    fn write(&self, out: &mut Vec<u8>) -> std::io::Result<()> {
        for it in &self.variants {
            let rates = [it.rate_qps, it.audited_qps].map(Thousands);
            writeln!(
                out,
                "{}: {} queries/s, audited at {}",
                it.variant, rates[0], rates[1]
            )?;
            for Audited {
                part,
                zone,
                finding,
                trials,
            } in &it.parts
            {
                let valid: u64 = trials.iter().map(|it| it.answers.valid).sum();
                let found = finding
                    .as_ref()
                    .map_or_else(|| "passed".into(), ToString::to_string);
                let (part, valid) = (part.as_ref(), Thousands(valid));
                writeln!(out, "  {part:<12}  {zone}  {found} ({valid} valid answers)")?;
            }
        }
        writeln!(out, "seed: {}", self.seed)
    }

    fn code(&self) -> u8 {
        let parts = self.variants.iter().flat_map(|it| &it.parts);
        let found: Vec<&Finding> = parts.filter_map(|it| it.finding.as_ref()).collect();
        match found.iter().any(|it| **it != Finding::NotJudged) {
            true => exit::FAILED,
            false if found.is_empty() => exit::PASSED,
            false => exit::TESTER,
        }
    }
}

/// The median rate of the runs of a point, the lower one of two.
fn median_qps(point: &PointResult) -> Option<u64> {
    let rates: Vec<f64> = point.rates_qps().map(|rate| rate as f64).collect();
    percentile(&rates, 50.0).map(whole)
}

/// Runs all parts of the audit of a variant.
fn parts(
    spec: &RigSpec,
    seed: &Seed,
    rate_qps: u64,
    interrupted: &Arc<AtomicBool>,
) -> Result<Vec<Audited>, Failure> {
    let links = Links::new("an audit", false, interrupted);
    let open = |spec: &RigSpec| Rig::open(spec.clone(), &links, Arc::clone(interrupted));
    let mut spec = spec.clone();
    spec.load.begin.at = seed.first_name();
    let audited = |rig: &mut Rig, part: Part| -> Result<Audited, RigError> {
        let mut trials: Vec<TrialResult> = Vec::new();
        while audit::is_open(&trials) {
            trials.push(rig.trial(rate_qps)?);
        }
        Ok(Audited {
            part,
            zone: rig.spec().load.suffix(),
            finding: audit::finding(&trials),
            trials,
        })
    };
    let own = audited(&mut open(&spec)?, Part::SecretNames)?;
    spec.load.zone.suffix = seed.zone(&spec.load.zone.suffix);
    spec.load.ttl_s = audit::TTL_S;
    // Only one lab can exist at a time: the one before is gone.
    let mut rig = open(&spec)?;
    let other = audited(&mut rig, Part::OtherZone)?;
    MonotonicClock.sleep(2 * u64::from(audit::TTL_S) * SECOND);
    rig.ask_again();
    let expired = audited(&mut rig, Part::Expired)?;
    Ok(vec![own, other, expired])
}
