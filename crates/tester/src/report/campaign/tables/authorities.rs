//! The table of authoritative servers.

use super::two;
use crate::report::campaign::analysis::{Analysis, AuthorityRow};
use crate::report::campaign::table::{Cell, Table, columns, rate_if};
use crate::report::numbers::whole;

/// Rates, processor time, memory and starts.
pub(super) fn authorities(analysis: &Analysis) -> Table {
    let columns = columns![r: AuthorityRow;
        "server", "server" => &r.server;
        "cores", "cores" => r.cores;
        "names", "zone names" => r.names;
        "p1_qps", "p1" => rate(r, r.p1);
        "median_qps", "median" => rate(r, r.median);
        "p99_qps", "p99" => rate(r, r.p99);
        "dispersion_pct", "disp. (%)" => r.dispersion_pct.map(two);
        "certifies_qps", "certifies" => rate(r, r.certifies_qps.map(|qps| qps as f64));
        "cpu_us_per_query", "CPU (us/query)" => r.cpu_ns_per_query.map(|ns| Cell::Decimal(ns / 1e3, 3));
        "rss_bytes", "RSS" => r.rss_bytes.map(Cell::Bytes);
        "pss_bytes", "PSS" => r.pss_bytes.map(Cell::Bytes);
        "first_start_ns", "first start" => r.first_start_ns.map(Cell::Span);
        "zone_written", "zone file" => match r.zone_written {
            Some(true) => "written before",
            Some(false) => "cached",
            None => "none",
        };
        "later_starts_ns", "later starts" => r.later_starts_ns.map(|ns| Cell::Span(whole(ns)));
    ];
    let mut table = Table::new(
        "authorities",
        "Authoritative servers",
        "Authoritative servers by themselves: rates of their self-tests in queries per second; certifies: the \
         1st percentile / 2.2, the highest rate of a DNS64 server that a Tester with this authority can measure \
         (RFC 8219 section 9.2.1); CPU: time of its processes for each query at the rates that were found; RSS \
         and PSS: memory once the zone is loaded, summed over its processes; starts: from its launch to the \
         first right answer, later ones in the median. The zone file is written once and cached; that time is \
         not in a start. ≥ marks a lower bound.",
    );
    table.notes.extend(
        analysis
            .authorities
            .recommendation
            .iter()
            .map(|it| it.text.clone()),
    );
    table.with(&columns, &analysis.authorities.rows)
}

fn rate(row: &AuthorityRow, qps: Option<f64>) -> Cell {
    qps.map(|qps| rate_if(qps, row.lower_bound, None)).into()
}
