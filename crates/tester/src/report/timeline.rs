//! The messages of one query (RFC 8219 section 9.1, figure 3) as a figure in plain text.

use std::str::FromStr;

use dns64_transport::clock::Nanos;

use super::raw::name;
use crate::authority::ledger::Question;
use crate::quantity::ValueError;
use crate::trial::path::Timeline;
use crate::trial::rows::{Row, Rows};

/// Selects a query of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The query with this number in the schedule, from 0.
    Number(u64),
    /// The query with the longest round-trip time; the first of several.
    Slowest,
}

impl FromStr for Which {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text.parse() {
            Ok(number) => Ok(Self::Number(number)),
            Err(_) if text == "slowest" => Ok(Self::Slowest),
            Err(_) => Err(ValueError::unreadable(
                "the number of a query, or slowest",
                "0",
            )),
        }
    }
}

/// The figure, or why there is none.
pub fn figure(rows: &Rows<'_>, which: Which) -> String {
    let row = match which {
        Which::Number(number) => rows.row(number),
        Which::Slowest => {
            let answered = rows.clone().filter(Row::received);
            answered.reduce(|slowest, row| {
                if row.rtt_ns > slowest.rtt_ns {
                    row
                } else {
                    slowest
                }
            })
        }
    };
    let Some((row, timeline)) = row.and_then(|row| Some((row, rows.timeline(row.index)?))) else {
        let queries = rows.schedule().queries();
        return match which {
            Which::Number(number) => {
                format!("Timeline: query {number} of {queries} was not sent\n")
            }
            Which::Slowest => "Timeline: no query was answered\n".to_owned(),
        };
    };
    let name = name(rows, &row);
    let title = format!(
        "Timeline of query {}: {name} AAAA, {}",
        row.index,
        row.class()
    );
    let mut text = format!("{title}\n\n{:>10}  {HEAD}\n", "us");
    for (at, side, label) in messages(&timeline) {
        let us = at.saturating_sub(timeline.sent_at) as f64 / 1000.0;
        text += &format!("{us:>10.1}  {}\n", side.arrow(&label));
    }
    text + "\n" + &sum(&timeline) + "\n"
}

/// Simultaneous messages are in the order of the list.
fn messages(timeline: &Timeline) -> Vec<(Nanos, Side, String)> {
    let mut all = vec![(timeline.sent_at, Side::Query, "AAAA query".to_owned())];
    if let Some(questions) = timeline.questions {
        for (question, rtype) in [(questions.aaaa, "AAAA"), (questions.a, "A")] {
            all.extend(exchange(question, rtype));
        }
    }
    let received = timeline.received_at;
    all.extend(received.map(|at| (at, Side::Answer, "AAAA answer".to_owned())));
    all.sort_by_key(|message| message.0);
    all
}

fn exchange(question: Question, rtype: &str) -> impl Iterator<Item = (Nanos, Side, String)> {
    let times = match question.asked {
        0 | 1 => String::new(),
        more => format!(" (1 of {more})"),
    };
    let came = question
        .arrived_at
        .map(|at| (at, Side::Question, format!("{rtype} question{times}")));
    let left = question
        .answered_at()
        .map(|at| (at, Side::Reply, format!("{rtype} answer")));
    came.into_iter().chain(left)
}

/// Durations between the messages.
fn sum(timeline: &Timeline) -> String {
    let us = |span_ns: Nanos| format!("{:.1} us", span_ns as f64 / 1000.0);
    let Some(rtt_ns) = timeline.rtt_ns() else {
        return "No answer came back.".to_owned();
    };
    match (timeline.questions, timeline.dut_only_ns()) {
        (Some(_), Some(dut_ns)) => format!(
            "Round trip {} = authority {} + DUT only {} (with the links; see docs/latency.md)",
            us(rtt_ns),
            us(rtt_ns - dut_ns),
            us(dut_ns)
        ),
        (Some(_), None) => format!(
            "Round trip {}; the authority did not answer or time each question",
            us(rtt_ns)
        ),
        (None, _) => format!(
            "Round trip {}; what the DUT asked is not known: the name is a repeated one, or the authority is \
             not that of the Tester",
            us(rtt_ns)
        ),
    }
}

/// Sender and receiver of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// Measurer to DUT.
    Query,
    /// DUT to authority.
    Question,
    /// Authority to DUT.
    Reply,
    /// DUT to Measurer.
    Answer,
}

/// The three lifelines begin below the first letters of these words.
const HEAD: &str = "Measurer                  DUT                       AuthDNS";

/// Characters between two lifelines.
const WIDTH: usize = 25;

impl Side {
    fn arrow(self, label: &str) -> String {
        let label = format!(" {label} ");
        let (nothing, shaft) = (
            " ".repeat(WIDTH),
            format!("{label:-^width$}", width = WIDTH - 1),
        );
        match self {
            Self::Query => format!("|{shaft}>|{nothing}|"),
            Self::Question => format!("|{nothing}|{shaft}>|"),
            Self::Reply => format!("|{nothing}|<{shaft}|"),
            Self::Answer => format!("|<{shaft}|{nothing}|"),
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::report::raw::tests::{asked, trial};

    #[test]
    fn messages_of_a_query_are_in_order() {
        let mut queries = trial();
        let rows = Rows::new(&queries);
        expect![[r#"
            Timeline of query 1: 010-000-000-008.dns64perf.test. AAAA, late

                    us  Measurer                  DUT                       AuthDNS
                   0.0  |------ AAAA query ------>|                         |
                   2.0  |<----- AAAA answer ------|                         |

            Round trip 2.0 us; what the DUT asked is not known: the name is a repeated one, or the authority is not that of the Tester
        "#]]
        .assert_eq(&figure(&rows, Which::Number(1)));
        assert_eq!(
            figure(&rows, Which::Number(5)),
            "Timeline: query 5 of 6 was not sent\n"
        );
        queries.asked = Some(asked());
        let rows = Rows::new(&queries);
        // The third query has the longest round-trip time.
        expect![[r#"
            Timeline of query 2: 010-000-000-009.dns64perf.test. AAAA, wrong

                    us  Measurer                  DUT                       AuthDNS
                   0.0  |------ AAAA query ------>|                         |
                   0.7  |                         | AAAA question (1 of 2) >|
                   1.3  |                         |<----- AAAA answer ------|
                   1.9  |                         |------ A question ------>|
                   2.2  |                         |<------- A answer -------|
                   3.0  |<----- AAAA answer ------|                         |

            Round trip 3.0 us = authority 0.8 us + DUT only 2.2 us (with the links; see docs/latency.md)
        "#]]
        .assert_eq(&figure(&rows, Which::Slowest));
    }

    #[test]
    fn query_is_selected_by_number_or_as_the_slowest() {
        assert_eq!("7".parse(), Ok(Which::Number(7)));
        assert_eq!("slowest".parse(), Ok(Which::Slowest));
        for text in ["", "-1", "fastest"] {
            assert!(text.parse::<Which>().is_err(), "{text}");
        }
    }
}
