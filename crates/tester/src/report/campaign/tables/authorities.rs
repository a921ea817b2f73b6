//! Tables of authoritative servers: side by side, and their resources by zone size.

use super::two;
use crate::report::campaign::analysis::{Analysis, AuthorityRow, ZoneGrowth};
use crate::report::campaign::table::{Cell, Table, columns, rate_if};
use crate::report::numbers::whole;
use crate::statistics::line::FittedLine;
use crate::statistics::model::can_judge;

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
        "later_starts_ns", "later starts" => r.later_starts_ns.map(span);
    ];
    let mut table = Table::new(
        "authorities",
        "Authoritative servers",
        "Authoritative servers by themselves: rates of their self-tests in queries per second; certifies: the \
         1st percentile / 2.2, the highest rate of a DNS64 server that a Tester with this authority is good for \
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

/// Linear fits over the names of the zone.
pub(super) fn zones(analysis: &Analysis) -> Table {
    let columns = columns![z: ZoneGrowth;
        "server", "server" => &z.server;
        "cores", "cores" => z.cores;
        "zones", "zones" => z.rows.len();
        "memory_base_bytes", "memory without names" => z.memory.map(|line| bytes(line.intercept));
        "memory_bytes_per_name", "octets/name" => z.memory.map(|line| Cell::Decimal(line.slope, 1));
        "memory_r_squared", "R²" => judged(z, z.memory);
        "start_us_per_name", "start (us/name)" => z.start.map(|line| Cell::Decimal(line.slope / 1e3, 3));
        "start_r_squared", "R² " => judged(z, z.start);
        "whole_memory_bytes", "memory of a /5" => z.whole_memory_bytes.map(bytes);
        "whole_start_ns", "start with a /5" => z.whole_start_ns.map(span);
        "extrapolated", "that is" => if z.extrapolated { "extrapolated" } else { "measured range" };
    ];
    Table::new(
        "authority_zones",
        "Memory and start by the size of the zone",
        "Straight lines by least squares over the names of the zone: memory (PSS) and time to the first right \
         answer (later starts), and what they say for the 134,217,728 names of a /5. Fewer than five \
         zones cannot judge it: they have no R².",
    )
    .with(&columns, &analysis.authorities.zones)
}

/// R², if there are enough zones to judge the fit.
fn judged(zones: &ZoneGrowth, line: Option<FittedLine>) -> Cell {
    let line = line.filter(|_| can_judge(zones.rows.len(), 2));
    line.map(|line| Cell::Decimal(line.r_squared, 4)).into()
}

fn bytes(octets: f64) -> Cell {
    Cell::Bytes(whole(octets))
}

fn span(ns: f64) -> Cell {
    Cell::Span(whole(ns))
}
