//! Diagrams of the path of the queries with the losses at each place.

use super::super::analysis::{Analysis, Evidence, Lost};
use super::super::numbers::{self, Thousands};
use super::Figure;
use crate::report::chart::{Diagram, Key, Look, MEDIUM, Role, Stroke};
use crate::trial::place::Place;

/// Places of losses, for each variant that lost any query.
pub(super) fn losses(analysis: &Analysis) -> Vec<Figure> {
    let evidence = analysis.evidence.iter();
    evidence
        .filter_map(|evidence| places(analysis, evidence))
        .collect()
}

/// Owner of a loss: colour and outline, and words.
const DUT: (Role, Look, &str) = (Role::DUT, Look::Square, "the DUT’s");
const TESTER: (Role, Look, &str) = (Role::TESTER, Look::Round, "the Tester’s");
const UNDECIDED: (Role, Look, &str) = (Role::MUTED, Look::Dashed, "cannot be told");

fn owner(place: Place) -> (Role, Look, &'static str) {
    if place.is_dut() { DUT } else { TESTER }
}

/// Direction of a query at a place: the column of the diagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// On the way of a query to the authority.
    There,
    /// On the way of a response to the client.
    Back,
}

/// Position of a place in the diagram: direction, vertical position, label.
fn stands(place: Place) -> (Way, f64, &'static str) {
    match place {
        Place::NotSent => (Way::There, 110.0, "not sent"),
        Place::ToDut => (Way::There, 178.0, "link to the DUT"),
        Place::DutHost => (Way::There, 246.0, "at the DUT’s host"),
        Place::Measurer => (Way::Back, 144.0, "at the Measurer"),
        Place::FromDut => (Way::Back, 212.0, "link from the DUT"),
        Place::DutSockets => (Way::There, 352.0, "at its sockets"),
        Place::Dut => (Way::There, 420.0, "never answered"),
        Place::Late => (Way::Back, 352.0, "answered late"),
        Place::NotValid => (Way::Back, 420.0, "not validly answered"),
        Place::ToAuthority => (Way::There, 526.0, "link to AuthDNS"),
        Place::FromAuthority => (Way::Back, 526.0, "link from AuthDNS"),
        Place::Authority => (Way::There, 632.0, "at AuthDNS"),
    }
}

/// Horizontal positions of the directions.
const THERE: f64 = 405.0;
const BACK: f64 = 555.0;

/// Half of the width of the hosts and of their places.
const HOST: f64 = 160.0;
const COUNT: f64 = 62.0;

/// The hosts: name, role, upper and lower end.
const HOSTS: [(&str, Role, f64, f64); 3] = [
    ("Measurer", Role::TESTER, 6.0, 62.0),
    ("DUT", Role::DUT, 282.0, 462.0),
    ("AuthDNS", Role::TESTER, 562.0, 672.0),
];

fn places(analysis: &Analysis, evidence: &Evidence) -> Option<Figure> {
    let losses = evidence.losses.as_ref()?;
    let all = losses.places.iter().map(|at| at.lost);
    if all
        .chain([losses.undecided])
        .all(|lost| lost == Lost::default())
    {
        return None;
    }
    let name = analysis.name_of(evidence.variant);
    let shared = match losses.shared {
        true => ". Other programs use the counters as well: they are evidence, not proof",
        false => "",
    };
    let title = format!(
        "{name}: where queries were lost, of {} sent in {} (+: in invalid trials). Good: every number of the Tester \
         is 0; those of the DUT are what a search looks for{shared}",
        Thousands(losses.queries_sent),
        numbers::count(losses.trials, "trial"),
    );
    let mut diagram = Diagram::new((MEDIUM.0, 760.0));
    draw_hosts(&mut diagram);
    for at in &losses.places {
        draw_place(&mut diagram, stands(at.place), owner(at.place), at.lost);
    }
    let undecided = (Way::There, 730.0, "place cannot be told");
    draw_place(&mut diagram, undecided, UNDECIDED, losses.undecided);
    let entry =
        |(role, look, words): (Role, Look, &str)| (Key::frame(role, look), words.to_owned());
    Some(Figure {
        legend: [DUT, TESTER, UNDECIDED].map(entry).to_vec(),
        ..Figure::new(&title, diagram.drawing())
    })
}

fn draw_hosts(diagram: &mut Diagram) {
    let middle = f64::midpoint(THERE, BACK);
    for (i, (name, role, top, bottom)) in HOSTS.into_iter().enumerate() {
        let size = (2.0 * HOST, bottom - top);
        diagram.frame(
            role,
            Look::Square,
            (middle, f64::midpoint(top, bottom)),
            size,
        );
        diagram.word("middle ink", (middle, top + 28.0), name);
        // Links to the host below, with gaps for the numbers.
        let Some((.., below, _)) = HOSTS.get(i + 1) else {
            continue;
        };
        for (way, x) in [(Way::There, THERE), (Way::Back, BACK)] {
            draw_link(diagram, way, x, (bottom, *below));
        }
    }
}

/// A vertical link, with gaps for the numbers on it.
fn draw_link(diagram: &mut Diagram, way: Way, x: f64, (top, bottom): (f64, f64)) {
    let mut stops = vec![top];
    for place in Place::ALL {
        let (its, height, _) = stands(place);
        if its == way && (top..bottom).contains(&height) {
            stops.extend([height - 20.0, height + 20.0]);
        }
    }
    stops.push(bottom);
    stops.sort_by(f64::total_cmp);
    let pieces: Vec<_> = stops
        .chunks_exact(2)
        .map(|ends| (ends[0], ends[1]))
        .collect();
    for (i, (from, to)) in pieces.iter().copied().enumerate() {
        match way {
            Way::There if i + 1 == pieces.len() => diagram.arrow(Role::MUTED, (x, from), (x, to)),
            Way::Back if i == 0 => diagram.arrow(Role::MUTED, (x, to), (x, from)),
            _ => diagram.line(Role::MUTED, Stroke::THICK, (x, from), (x, to)),
        }
    }
}

fn draw_place(
    diagram: &mut Diagram,
    (way, y, words): (Way, f64, &str),
    (role, look, _): (Role, Look, &str),
    lost: Lost,
) {
    let (x, anchor, beside) = match way {
        Way::There => (THERE, "end", THERE - COUNT - 34.0),
        Way::Back => (BACK, "", BACK + COUNT + 34.0),
    };
    let is_none = lost == Lost::default();
    diagram.frame(role, look, (x, y), (2.0 * COUNT, 36.0));
    let ink = if is_none { "muted" } else { "ink" };
    if !is_none {
        let number = Thousands(lost.valid_trials).to_string();
        diagram.word("middle ink", (x, y), &number);
    }
    let class = format!("{anchor} {ink}");
    if lost.invalid_trials > 0 {
        let more = format!("+ {} invalid", Thousands(lost.invalid_trials));
        diagram.word(class.trim(), (beside, y - 17.0), words);
        diagram.word(format!("{anchor} muted").trim(), (beside, y + 17.0), &more);
    } else {
        diagram.word(class.trim(), (beside, y), words);
    }
}
