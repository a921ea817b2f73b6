//! One of two upstreams is bad from the start.

use std::net::UdpSocket;

use dns64_transport::clock::SECOND;
use dns64_wire::codes::{Rcode, Rtype};
use dns64_wire::message::Message;

use super::super::packets::{asked, honest, response};
use super::super::support::{Server, stdout};
use super::super::upstream::{Asked, Upstream};
use super::super::victim::serve;
use super::load::{Temper, percentile_ms, steady};
use super::{Row, ask_all, right};

/// Its answer to a question over UDP.
type Answers = fn(&[u8]) -> Option<Vec<u8>>;

/// Kinds of bad upstreams, with the settings that they need.
const KINDS: [(&str, &str, Answers); 6] = [
    ("REFUSED", "", |question| failure(question, Rcode::REFUSED)),
    ("SERVFAIL", "", |question| {
        failure(question, Rcode::SERVFAIL)
    }),
    ("silent", "", |_| None),
    ("lower-case", "randomise-case = true", |question| {
        let (name, _) = asked(question);
        let mut answer = honest(question);
        answer[12..][..name.as_wire().len()].make_ascii_lowercase();
        Some(answer)
    }),
    ("dropping EDNS", "", |question| {
        (!has_option(question, None)).then(|| honest(question))
    }),
    ("dropping cookies", "", |question| {
        (!has_option(question, Some(10))).then(|| honest(question))
    }),
];

fn failure(question: &[u8], rcode: Rcode) -> Option<Vec<u8>> {
    Some(response(question, rcode, &[]))
}

/// Whether a question has an OPT record, with this option if one is given.
fn has_option(question: &[u8], code: Option<u16>) -> bool {
    let message = Message::parse(question).unwrap();
    let opt = message.opt().unwrap();
    opt.is_some_and(|opt| code.is_none_or(|code| opt.options().any(|option| option.code == code)))
}

fn upstream(answers: Answers) -> Upstream {
    let datagram = move |socket: &UdpSocket, question: &Asked| {
        if let Some(answer) = answers(&question.message) {
            let _ = socket.send_to(&answer, question.from);
        }
    };
    Upstream::start(datagram, move |question| {
        answers(question).unwrap_or_else(|| honest(question))
    })
}

/// The faults of an upstream by which `dns64d ctl stats` names it.
fn faults(server: &Server, upstream: &Upstream) -> String {
    let stats = stdout(&server.ctl(&["stats"]));
    let of_upstream = format!("upstream_faults.{}.", upstream.address);
    let faults = stats
        .lines()
        .filter_map(|line| line.strip_prefix(&*of_upstream));
    let faults: Vec<_> = faults.filter(|fault| !fault.ends_with("=0")).collect();
    faults.join(", ")
}

/// One after the other, because each takes some of the machine.
pub(crate) fn one_bad() -> Vec<Row> {
    let mut rows: Vec<_> = KINDS
        .into_iter()
        .map(|(name, settings, answers)| beside_honest(name, settings, &upstream(answers)))
        .collect();
    let slow = Temper::taking(3 * SECOND).start();
    rows.push(beside_honest("slow (3 s)", "", &slow));
    rows
}

fn beside_honest(name: &'static str, settings: &str, bad: &Upstream) -> Row {
    let good = Upstream::honest();
    let server = serve(&[bad, &good], "", settings);
    let told = ask_all(&server, Rtype::AAAA, &steady(200, 0, 8 * SECOND));
    let (first, later): (Vec<_>, Vec<_>) = told.iter().partition(|told| told.asked_at < SECOND);
    let p99 = percentile_ms(later.iter().copied(), 99);
    let text = format!(
        "{} of {} right; first second p99 {} ms, then {p99} ms; upstream_faults: {}",
        right(&told),
        told.len(),
        percentile_ms(first.iter().copied(), 99),
        faults(&server, bad)
    );
    let claim = "one of two is such: nobody fails, and after 1 s nobody waits";
    Row(name, claim, text, right(&told) == told.len() && p99 < 50)
}
