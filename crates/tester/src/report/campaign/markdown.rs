//! The report as Markdown, for places that show it: the same order as the page.

use std::fmt::{Display, Write as _};

use super::analysis::{Analysis, PointResult};
use super::words;
use crate::report::{Span, Thousands};

/// The whole report.
pub(super) fn page(analysis: &Analysis) -> String {
    let mut out = format!("# {}\n", escaped(&analysis.name));
    paragraph(&mut out, &analysis.description);
    list(&mut out, "Verdict", &analysis.verdict);
    list(&mut out, "Not a measurement", &analysis.not_a_measurement);
    let warnings: Vec<_> = analysis.warnings.iter().map(ToString::to_string).collect();
    list(&mut out, "Warnings", &warnings);
    results(&mut out, analysis);
    grids(&mut out, analysis);
    several_points(&mut out, analysis);
    beyond(&mut out, analysis);
    conditions(&mut out, analysis);
    self_tests(&mut out, analysis);
    machines(&mut out, analysis);
    statement(&mut out, analysis);
    repeat(&mut out, analysis);
    out
}

/// User text as Markdown shows it, on one line.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            out.push(' ');
            continue;
        }
        if "\\`*_<>[]|#~".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

fn paragraph(out: &mut String, text: &str) {
    if !text.is_empty() {
        // Writing to a text does not fail.
        let _ = writeln!(out, "\n{}", escaped(text));
    }
}

fn list(out: &mut String, title: &str, items: &[String]) {
    if items.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n## {title}\n");
    for item in items {
        let _ = writeln!(out, "- {}", escaped(item));
    }
}

/// A table; the heads of columns of numbers begin with a space.
fn table(out: &mut String, heads: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    let side = |head: &&str| if head.starts_with(' ') { "---:" } else { "---" };
    let names: Vec<_> = heads.iter().map(|head| head.trim()).collect();
    let sides: Vec<_> = heads.iter().map(side).collect();
    let _ = writeln!(
        out,
        "\n| {} |\n| {} |",
        names.join(" | "),
        sides.join(" | ")
    );
    for row in rows {
        let cells: Vec<_> = row.iter().map(|cell| escaped(cell)).collect();
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
}

/// What is not known is a dash.
fn known(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn results(out: &mut String, analysis: &Analysis) {
    out.push_str("\n## Results\n\nRates are in queries per second.\n");
    let heads = [
        "variant",
        "shares",
        " duration, s",
        " timeout, s",
        " runs",
        " median",
        " 1st perc.",
        " 99th perc.",
        " average",
        " SD",
        " MoE 99.9",
        " MAD",
        " calculated",
        " headroom",
        " degradation, %",
    ];
    table(
        out,
        &heads,
        analysis.points.iter().map(|point| row(analysis, point)),
    );
}

fn row(analysis: &Analysis, point: &PointResult) -> Vec<String> {
    let s = point.summary.as_ref();
    let at_least = if point.lower_bound { "at least " } else { "" };
    let rate = |rate: Option<f64>| known(rate.map(words::rate));
    let two = |figure: Option<f64>| known(figure.map(|figure| format!("{figure:.2}")));
    vec![
        analysis.variants[point.variant].name.clone(),
        words::cell(point),
        point.duration_s.to_string(),
        point.timeout_s.to_string(),
        s.map_or(0, |s| s.runs).to_string(),
        known(s.map(|s| format!("{at_least}{}", words::rate(s.median)))),
        rate(s.map(|s| s.p1)),
        rate(s.map(|s| s.p99)),
        rate(s.map(|s| s.average)),
        two(s.map(|s| s.standard_deviation)),
        two(s.map(|s| s.margin_of_error_999)),
        two(s.map(|s| s.median_absolute_deviation)),
        rate(s.map(|s| s.calculated)),
        two(point.headroom),
        two(point.degradation_pct),
    ]
}

/// Medians by both shares at once.
fn grids(out: &mut String, analysis: &Analysis) {
    for grid in &analysis.grids {
        let name = &analysis.variants[grid.variant].name;
        out.push_str(&format!("\n### {name}: medians by both shares\n"));
        let shares = grid.aaaa_pct.iter().map(|share| format!(" AAAA {share} %"));
        let heads: Vec<String> = std::iter::once("cached".to_owned()).chain(shares).collect();
        let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
        let rows = grid.rows.iter().map(|row| {
            let cells = row.cells.iter().map(|cell| {
                known(cell.map(|cell| {
                    let at_least = if cell.lower_bound { "at least " } else { "" };
                    format!("{at_least}{}", words::rate(cell.median))
                }))
            });
            std::iter::once(format!("{} %", row.cached_pct))
                .chain(cells)
                .collect()
        });
        table(out, &heads, rows);
    }
}

/// Models, queue checks and scaling.
fn several_points(out: &mut String, analysis: &Analysis) {
    let name = |variant: usize| analysis.variants[variant].name.clone();
    if !analysis.models.is_empty() {
        out.push_str("\n## Models\n");
        let rows = analysis.models.iter().map(|m| {
            vec![
                name(m.variant),
                m.model.to_owned(),
                m.equation.clone(),
                format!("{:.4}", m.r_squared),
                format!("{:.2}", m.residual_pct_max),
            ]
        });
        table(
            out,
            &[
                "variant",
                "model",
                "equation",
                " R2",
                " largest residual, %",
            ],
            rows,
        );
    }
    if !analysis.queue_checks.is_empty() {
        out.push_str("\n## Does the DUT store requests?\n\n");
        for check in &analysis.queue_checks {
            let _ = writeln!(
                out,
                "- {}",
                escaped(&format!("{}: {}", name(check.variant), check.verdict))
            );
        }
    }
    if !analysis.scaling.is_empty() {
        out.push_str("\n## Cores\n");
        let rows = analysis.scaling.iter().flat_map(|scaling| {
            scaling.rows.iter().map(|row| {
                vec![
                    analysis.variants[analysis.points[row.point].variant]
                        .name
                        .clone(),
                    row.cores.to_string(),
                    words::rate(row.median),
                    words::rate(row.per_core),
                    format!("{:.2}", row.factor),
                ]
            })
        });
        table(
            out,
            &["variant", " cores", " median", " per core", " factor"],
            rows,
        );
    }
}

/// Overload curves and soaks.
fn beyond(out: &mut String, analysis: &Analysis) {
    let name = |variant: usize| analysis.variants[variant].name.clone();
    let span = |span_ns: Option<u64>| known(span_ns.map(Span));
    if !analysis.overloads.is_empty() {
        out.push_str("\n## Overload\n");
        let rows = analysis.overloads.iter().flat_map(|curve| {
            curve.rows.iter().map(move |row| {
                let bound = if row.doubtful { ">= " } else { "" };
                vec![
                    name(curve.variant),
                    Thousands(row.rate_qps).to_string(),
                    format!("{bound}{}", words::rate(row.goodput_qps)),
                    span(row.rtt_ns_p50),
                    span(row.rtt_ns_p99),
                ]
            })
        });
        table(
            out,
            &[
                "variant",
                " offered",
                " answered in time",
                " RTT p50",
                " RTT p99",
            ],
            rows,
        );
    }
    if !analysis.soaks.is_empty() {
        out.push_str("\n## Soak\n\n");
        for soak in &analysis.soaks {
            let length_s = soak.rows.last().map_or(0.0, |row| row.at_s);
            let text = format!(
                "{}: {length_s:.0} s at {} queries/s, {} queries without an answer in time",
                name(soak.variant),
                Thousands(soak.rate_qps),
                Thousands(soak.shortfall)
            );
            let _ = writeln!(out, "- {}", escaped(&text));
            for slope in &soak.slopes {
                let _ = writeln!(out, "  - {}: {}", slope.of, escaped(&slope.verdict));
            }
        }
    }
}

fn conditions(out: &mut String, analysis: &Analysis) {
    out.push_str("\n## Conditions\n");
    let rows = analysis
        .conditions
        .iter()
        .map(|(name, value)| vec![name.clone(), value.clone()]);
    table(out, &["what", "value"], rows);
    let rows = analysis.variants.iter().map(|v| {
        let pairs = |pairs: &[(String, String)]| {
            let pairs: Vec<_> = pairs.iter().map(|(k, v)| format!("{k}: {v}")).collect();
            pairs.join(", ")
        };
        vec![
            v.name.clone(),
            known(v.version.as_ref()),
            pairs(&v.settings),
            pairs(&v.cpus),
            known(v.server.as_ref()),
            known(v.pref64.as_ref()),
        ]
    });
    table(
        out,
        &[
            "variant", "version", "settings", "cores", "server", "prefix",
        ],
        rows,
    );
    let hashes = analysis.variants.iter().flat_map(|v| {
        v.hashes
            .iter()
            .map(|(file, hash)| vec![v.name.clone(), file.clone(), hash.clone()])
    });
    table(out, &["variant", "file", "SHA-256"], hashes);
    let notes: Vec<String> = analysis
        .variants
        .iter()
        .flat_map(|v| v.notes.iter().map(|note| format!("{}: {note}", v.name)))
        .collect();
    list(out, "Remarks", &notes);
}

fn self_tests(out: &mut String, analysis: &Analysis) {
    if !analysis.certificates.is_empty() {
        out.push_str("\n## Self-tests\n");
        let rows = analysis.certificates.iter().map(|c| {
            vec![
                c.conditions.cell.clone(),
                Span(c.conditions.duration_ns).to_string(),
                Span(c.conditions.timeout_ns).to_string(),
                c.end.clone(),
                known(c.passed_rate_qps.map(Thousands)),
                known(c.certified_rate_qps.map(Thousands)),
            ]
        });
        table(
            out,
            &[
                "shares",
                " duration",
                " timeout",
                "end",
                " passed at",
                " certifies for",
            ],
            rows,
        );
    }
}

fn machines(out: &mut String, analysis: &Analysis) {
    out.push_str("\n## Sessions\n");
    let rows = analysis.sessions.iter().map(|s| {
        let e = &s.environment;
        vec![
            s.began.clone(),
            s.ended.clone(),
            e.host.clone(),
            e.kernel.clone(),
            e.os.clone(),
            e.cpu.clone(),
            e.cpus.to_string(),
            format!("{:.1} GB", e.memory_bytes as f64 / 1e9),
        ]
    });
    let heads = [
        "began",
        "ended",
        "host",
        "kernel",
        "distribution",
        "processor",
        " processors",
        " memory",
    ];
    table(out, &heads, rows);
    if let Some(last) = analysis.sessions.last() {
        let details = last.environment.details.iter();
        table(
            out,
            &["detail", "value"],
            details.map(|(k, v)| vec![k.clone(), v.clone()]),
        );
    }
}

fn statement(out: &mut String, analysis: &Analysis) {
    out.push_str("\n## RFC 8219, clause by clause\n");
    let rows = analysis.statement.iter().map(|c| {
        let texts = [c.id, c.level, c.asks, c.met.word(), &c.why];
        texts.map(str::to_owned).to_vec()
    });
    table(out, &["clause", "level", "asks for", "", "why"], rows);
}

fn repeat(out: &mut String, analysis: &Analysis) {
    out.push_str("\n## To repeat it\n\n");
    for command in &analysis.commands {
        let _ = writeln!(out, "    {}", command.replace(char::is_control, " "));
    }
    let t = &analysis.time;
    let _ = writeln!(
        out,
        "\n{}, plan SHA-256 {}, journal seal {}.\n\n{} trials of searches took {:.0} s, self-tests {:.0} s, \
         overload and soak {:.0} s. A bisection of a fixed range with each trial to its end, as the \
         papers' script does it, would have taken {:.0} s for the same searches.",
        escaped(&analysis.tester),
        analysis.plan_sha256,
        analysis.journal_seal,
        Thousands(t.trials as u64),
        t.searches_s,
        t.self_tests_s,
        t.others_s,
        t.fixed_range_s
    );
}
