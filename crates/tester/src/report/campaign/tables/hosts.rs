//! Tables of the hosts of a plan with several machines.

use super::two;
use crate::machine::Role;
use crate::report::campaign::analysis::{Analysis, ClockRow, HostRow, ShareRow};
use crate::report::campaign::numbers;
use crate::report::campaign::table::{Cell, Table, columns};

/// A row for each host.
pub(super) fn hosts(analysis: &Analysis) -> Table {
    let columns = columns![h: HostRow;
        "host", "host" => &h.host;
        "roles", "roles" => Cell::list(h.roles.iter().map(Role::to_string));
        "machine", "machine" => h.machine.as_ref().map(|m| {
            Cell::list([m.hostname.clone(), m.kernel.clone(), numbers::count(m.cpus, "CPU")])
        });
        "program", "program" => h.machine.as_ref().map(|m| {
            let hash = m.sha256.iter().map(|hash| short(hash));
            Cell::list([m.tester.clone()].into_iter().chain(hash))
        });
        "queries_pct", "queries (%)" => h.queries_pct;
        "waited_pct_max", "waited (%)" => h.waited_pct_max.map(two);
        "taken_pct_max", "stolen (%)" => h.taken_pct_max.map(two);
        "bound_ns_max", "clock within" => h.clock.and_then(|c| c.bound_ns_max).map(Cell::Span);
        "drift_ppm", "drift (ppm)" => h.clock.and_then(drift);
        "late_ns_max", "latest start" => h.clock.map(|c| match c.late_ns_max {
            0 => Cell::from("in time"),
            late_ns => Cell::Span(late_ns),
        });
        "clock_set", "clock set" => h.clock.map(|c| match c.set {
            0 => "never".to_owned(),
            set => format!("in {set} of {}", c.trials),
        });
    ];
    let table = Table::new(
        "hosts",
        "Hosts",
        "The hosts of the plan over all trials, including those of self-tests. Queries: share that it sends; waited: the largest \
         share of a trial for which threads of its roles could have run and waited for a core; stolen: for which \
         others had the cores; clock within: the largest error bound of its clock; drift: of its clock \
         from the controller's; latest start: how late it began a trial.",
    );
    table.with(&columns, &analysis.hosts.rows)
}

/// A row for each of several authorities.
pub(super) fn shares(analysis: &Analysis) -> Table {
    let columns = columns![s: ShareRow;
        "trials", "trials" => &s.trials;
        "host", "host" => &s.host;
        "questions", "questions" => s.questions;
        "pct", "share (%)" => two(s.pct);
        "drops", "lost there" => s.drops;
    ];
    Table::new(
        "authority_shares",
        "Shares of the authorities",
        "Questions that each of several authorities received over all trials. In self-tests each Measurer asks one of them; in the \
         trials of a DUT the DUT distributes its questions. Of an authority that is a program the questions are \
         datagrams that programs of its host received. Lost there: datagrams at the sockets of the built-in authority.",
    )
    .with(&columns, &analysis.hosts.shares)
}

/// The digits of a hash that are displayed for comparison.
fn short(hash: &str) -> String {
    let digits: String = hash.chars().take(HASH_DIGITS).collect();
    format!("sha256 {digits}")
}

const HASH_DIGITS: usize = 12;

fn drift(clock: ClockRow) -> Option<Cell> {
    let (least, most) = (clock.drift_ppm_min?, clock.drift_ppm_max?);
    let [least, most] = [least, most].map(|ppm| numbers::decimal(ppm, 1));
    Some(Cell::Text(match least == most {
        true => least,
        false => format!("{least} to {most}"),
    }))
}
