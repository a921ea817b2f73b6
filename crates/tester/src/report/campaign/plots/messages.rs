//! Diagrams of the messages of one query (RFC 8219 section 9.1, figure 3).

use super::super::analysis::{Analysis, PointResult};
use super::super::{numbers, words};
use super::Figure;
use crate::report::chart::{Diagram, Key, MEDIUM, Role, Stroke};
use crate::trial::path::Messages;

/// The typical query at the representative point of each variant.
pub(super) fn of_queries(analysis: &Analysis) -> Vec<Figure> {
    let points = (0..analysis.variants.len()).filter_map(|variant| analysis.headline(variant));
    let typical = points.filter_map(|point| Some((point, point.path.as_ref()?.typical?)));
    typical
        .map(|(point, messages)| figure(analysis, point, &messages))
        .collect()
}

/// Sender and receiver of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Between {
    Query,
    Question,
    Answer,
    Response,
}

/// Colours of the holder of the query: DUT and links, or the authority.
const DUT: Role = Role::DUT;
const AUTHORITY: Role = Role::TESTER;

/// Horizontal positions of the lifelines.
const MEASURER: f64 = 215.0;
const SERVER: f64 = 545.0;
const AUTH: f64 = 875.0;

/// Vertical position of the first message, and distance to the next.
const FIRST: f64 = 100.0;
const PITCH: f64 = 84.0;

/// A message: time, sender and receiver, and name.
type Message = (u64, Between, &'static str);

/// All messages in order of time; simultaneous ones in the order of the list.
fn in_order(messages: &Messages) -> Vec<Message> {
    let mut all = vec![(0, Between::Query, "AAAA query")];
    let names = [("AAAA question", "AAAA answer"), ("A question", "A answer")];
    for ((question, answer), names) in messages.exchanges().into_iter().zip(names) {
        all.extend(question.map(|at| (at, Between::Question, names.0)));
        all.extend(answer.map(|at| (at, Between::Answer, names.1)));
    }
    all.push((messages.response_ns, Between::Response, "AAAA response"));
    all.sort_by_key(|message| message.0);
    all
}

/// Time between consecutive messages, and whether the authority was processing a query.
fn spans(all: &[Message]) -> Vec<(u64, bool)> {
    let mut open = 0_u32;
    let span = |pair: &[Message]| {
        match pair[0].1 {
            Between::Question => open += 1,
            Between::Answer => open = open.saturating_sub(1),
            Between::Query | Between::Response => {}
        }
        (pair[1].0 - pair[0].0, open > 0)
    };
    all.windows(2).map(span).collect()
}

fn figure(analysis: &Analysis, point: &PointResult, messages: &Messages) -> Figure {
    let title = format!(
        "{}: the messages of the query with the median round-trip time. Good: the DUT asks once for AAAA and once for A, \
         and the authority has the query for a small part of the time",
        words::point(analysis, point)
    );
    let all = in_order(messages);
    let until = all
        .iter()
        .position(|message| message.1 == Between::Response);
    // Work of the authority after the response to the client is not part of the query.
    let all = &all[..until.map_or(all.len(), |last| last + 1)];
    let spans = spans(all);
    let last = FIRST + PITCH * spans.len() as f64;
    let mut diagram = Diagram::new((MEDIUM.0, last + 124.0));
    for (x, name) in [(MEASURER, "Measurer"), (SERVER, "DUT"), (AUTH, "AuthDNS")] {
        diagram.word("middle ink", (x, 24.0), name);
        diagram.line(Role::MUTED, Stroke::THIN, (x, 44.0), (x, last + 24.0));
    }
    draw_spans(&mut diagram, &spans);
    for (i, message) in all.iter().enumerate() {
        draw_message(&mut diagram, FIRST + PITCH * i as f64, *message);
    }
    draw_shares(&mut diagram, last + 84.0, &spans);
    Figure {
        legend: shares(&spans),
        ..Figure::new(&title, diagram.drawing())
    }
}

fn draw_message(diagram: &mut Diagram, y: f64, (at, between, name): Message) {
    let (from, to) = match between {
        Between::Query => (MEASURER, SERVER),
        Between::Question => (SERVER, AUTH),
        Between::Answer => (AUTH, SERVER),
        Between::Response => (SERVER, MEASURER),
    };
    // The arrow ends at the bars beside the lifelines.
    let away = if to > from { 8.0 } else { -8.0 };
    diagram.arrow(Role::INK, (from + away, y), (to - away, y));
    diagram.word("middle ink", (f64::midpoint(from, to), y - 22.0), name);
    let at = match at {
        0 => "0".to_owned(),
        at => numbers::span(at as f64),
    };
    diagram.word("end muted", (MEASURER - 65.0, y), &at);
}

/// Bars on the lifelines of the holders of the query, with the times.
fn draw_spans(diagram: &mut Diagram, spans: &[(u64, bool)]) {
    for (i, &(span_ns, at_authority)) in spans.iter().enumerate() {
        let y = FIRST + PITCH * i as f64;
        let (x, role) = if at_authority {
            (AUTH, AUTHORITY)
        } else {
            (SERVER, DUT)
        };
        diagram.block(role, (x - 7.0, y), (14.0, PITCH));
        diagram.word(
            "end ink",
            (x - 20.0, y + 32.0),
            &numbers::span(span_ns as f64),
        );
    }
}

/// A bar to scale.
fn draw_shares(diagram: &mut Diagram, y: f64, spans: &[(u64, bool)]) {
    const WIDTH: f64 = 920.0;
    let total: u64 = spans.iter().map(|span| span.0).sum();
    let mut x = 20.0;
    for &(span_ns, at_authority) in spans {
        let role = if at_authority { AUTHORITY } else { DUT };
        let width = WIDTH * span_ns as f64 / total.max(1) as f64;
        diagram.block(role, (x, y), (width, 32.0));
        x += width;
    }
    diagram.word("ink", (20.0, y - 20.0), "To scale:");
}

/// What the DUT with the links and the authority had of the time, beside their colours.
fn shares(spans: &[(u64, bool)]) -> Vec<(Key, String)> {
    let sum = |of: bool| -> u64 {
        let own = spans.iter().filter(|span| span.1 == of);
        own.map(|span| span.0).sum()
    };
    let total = sum(true) + sum(false);
    let entry = |(role, name, span_ns): (Role, &str, u64)| {
        let part = part(100.0 * span_ns as f64 / total.max(1) as f64);
        let told = format!("{name}: {} ({part})", numbers::span(span_ns as f64));
        (Key::block(role), told)
    };
    let both = [
        (DUT, "DUT and links", sum(false)),
        (AUTHORITY, "authority", sum(true)),
    ];
    both.map(entry).to_vec()
}

/// A share in per cent; almost 0 and almost 100 are not rounded to these.
fn part(pct: f64) -> String {
    match pct {
        pct if pct > 0.0 && pct < 0.1 => "< 0.1 %".to_owned(),
        pct if pct > 99.9 && pct < 100.0 => "> 99.9 %".to_owned(),
        pct => format!("{} %", numbers::decimal(pct, 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_near_zero_or_all_are_not_rounded_to_them() {
        let parts = [0.0, 0.02, 2.6, 99.98, 100.0].map(part);
        assert_eq!(parts, ["0.0 %", "< 0.1 %", "2.6 %", "> 99.9 %", "100.0 %"]);
    }
}
