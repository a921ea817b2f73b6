//! The passed trials in DNS-OARC's dns-metrics format (draft of 2024-05-30): JSON lines for other DNS measurement
//! tools.

use serde_json::json;

use super::analysis::Analysis;
use super::words;
use crate::campaign::record::{Line, Record};
use crate::trial::result::{Outcome, TrialResult};

/// The draft that defines the keys.
const SCHEMA_VERSION: u32 = 20_240_530;

/// A header, then a `stats_sum` for each trial that passed. All durations are in nanoseconds, as the header says;
/// `since` and `until` include the rests before and after the trial.
pub(super) fn lines(analysis: &Analysis, lines: &[Line]) -> String {
    let (generator, version) = analysis
        .tester
        .split_once(' ')
        .unwrap_or((&analysis.tester, ""));
    let run_id = &analysis.journal_seal;
    let command = lines.iter().find_map(|line| match &line.record {
        Record::Campaign { command, .. } => command.get(1..),
        _ => None,
    });
    let header = json!({
        "runid": run_id,
        "type": "header",
        "schema_version": SCHEMA_VERSION,
        "generator": generator,
        "generator_version": version,
        "generator_params": command.unwrap_or_default(),
        "time_units_per_sec": 1_000_000_000,
        "stats_interval": analysis.points[0].duration_s,
        "timeout": analysis.points[0].timeout_s,
    });
    let mut out = format!("{header}\n");
    for line in lines {
        let Record::Trial {
            task,
            number,
            took_ns,
            result,
            ..
        } = &line.record
        else {
            continue;
        };
        let Some(point) = analysis.points.get(task.point()) else {
            continue;
        };
        if result.outcome != Outcome::Passed {
            continue;
        }
        let of = words::point(analysis, point);
        let mark = words::unless_certified(result.certified);
        let sub_id = format!("{of}, {task}, trial {number}{mark}");
        let until = line.at_unix_ms.saturating_mul(1_000_000);
        out += &format!(
            "{}\n",
            stats(
                run_id,
                &sub_id,
                until.saturating_sub(*took_ns),
                until,
                result
            )
        );
    }
    out
}

fn stats(
    run_id: &str,
    sub_id: &str,
    since: u64,
    until: u64,
    trial: &TrialResult,
) -> serde_json::Value {
    let a = &trial.answers;
    let responses = a.answered();
    let least = trial.rtt_percentiles.iter().find(|(pct, _)| *pct == 0.0);
    let mut latency = json!({ "max": trial.rtt.max });
    if let Some((_, least_ns)) = least {
        latency["min"] = json!(least_ns);
    }
    json!({
        "runid": run_id,
        "subid": sub_id,
        "type": "stats_sum",
        "since": since,
        "until": until,
        "queries": trial.queries_sent,
        "responses": responses,
        "timeouts": a.missing,
        "unexpected": a.duplicate + a.stray,
        "response_rcodes": { "NOERROR": responses },
        "response_latency": latency,
        "certified": trial.certified,
        "conn_info": {
            "type": "udp",
            "packets_sent": trial.queries_sent,
            "packets_received": responses + a.duplicate + a.stray,
        },
    })
}
