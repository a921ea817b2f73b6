//! An engine with clients and upstreams that a script controls, on a manual clock.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::SocketAddr;

use dns64_transport::clock::{Clock as _, ManualClock, Nanos, SECOND};
use dns64_transport::{FRAME_BYTES, Origin};
use dns64_wire::codes::Rcode;
use dns64_wire::message::Message;
use dns64d::config;
use dns64d::engine::Seeds;
use dns64d::engine::actions::{Action, Actions, Client};
use dns64d::health::Turn;
use dns64d::mailbox::ConnectionFailed;
use dns64d::settings::Settings;

use super::messages::{self, Question, Words};
use super::text;
use super::twins::Twins;

/// Common settings of all scripts; the settings of a script override them.
const SETTINGS: &str = r#"
    listen = ["[::1]:53"]
    workers = 1
    allow = ["::/0", "0.0.0.0/0"]
    [upstream]
    servers = ["192.0.2.53"]
    selection = "failover"
    [dns64]
    prefix = "2001:db8:64::/96"
"#;

/// Start of the clock. At 0, an age that is too small would not be detected.
const BEGINNING: Nanos = 1_000 * SECOND;

pub(crate) struct Stage {
    engine: Twins,
    clock: ManualClock,
    actions: Actions,
    /// The queries by label; answered queries have no question any more.
    queries: HashMap<u32, Asked>,
    in_flight: Vec<InFlight>,
    last_cookie: Vec<u8>,
    /// Responses since the last line.
    replies: Vec<(u32, Vec<String>)>,
    lines: Vec<String>,
}

struct Asked {
    question: Option<Question>,
    id: u16,
    /// Length of the longest response that it accepts.
    limit: usize,
    answers: usize,
}

/// A query to an upstream.
pub(crate) struct InFlight {
    pub(crate) server: usize,
    pub(crate) way: Way,
    pub(crate) id: u16,
    pub(crate) question: Question,
    /// Its client cookie.
    pub(crate) cookie: Vec<u8>,
}

/// The transport of the query.
pub(crate) enum Way {
    Port(usize),
    Connection(u64),
    Tls(u64),
}

/// A query in a line of a script.
pub(crate) struct Query<'w> {
    pub(crate) labels: std::ops::RangeInclusive<u32>,
    pub(crate) from: &'w str,
    pub(crate) words: Vec<&'w str>,
}

impl Stage {
    pub(crate) fn new(own: &str) -> Self {
        let settings = settings(own);
        let clock = ManualClock::default();
        clock.advance(BEGINNING);
        let seeds = Seeds {
            random: [7; 32],
            cookies: [9; 16],
        };
        Self {
            engine: Twins::new(&settings, &seeds),
            clock,
            actions: Actions::default(),
            queries: HashMap::new(),
            in_flight: Vec::new(),
            last_cookie: Vec::new(),
            replies: Vec::new(),
            lines: Vec::new(),
        }
    }

    /// Returns the output since the last call.
    pub(crate) fn take_lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }

    pub(crate) fn reload(&mut self, own: &str) {
        let now = self.clock.now();
        self.engine.reload(&settings(own), now, &mut self.actions);
        self.see();
    }

    /// Reports the prefixes whose translators do not answer.
    pub(crate) fn withdraw(&mut self, prefixes: &[&str]) {
        let mut settings = self.engine.settings().clone();
        let prefixes: Vec<_> = prefixes.iter().map(|p| p.parse().unwrap()).collect();
        settings.withdraw(&prefixes);
        let now = self.clock.now();
        self.engine.reload(&settings, now, &mut self.actions);
        self.see();
    }

    /// Sends queries of clients, one for each label; `{}` in name and address is the label.
    pub(crate) fn query(&mut self, query: &Query<'_>) {
        self.turn();
        for label in query.labels.clone() {
            let in_place = |word: &str| word.replace("{}", &label.to_string());
            let words: Vec<String> = query.words.iter().map(|word| in_place(word)).collect();
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let (question, rest) = Question::read(&words);
            let words = Words::read(rest, &messages::QUERY_WORDS);
            let id = words
                .number("id")
                .unwrap_or_else(|| u16::try_from(label).unwrap());
            let message = messages::query(&question, id, &words, &self.last_cookie);
            let address = in_place(query.from).parse().unwrap();
            let port = 10_000 + u16::try_from(label).unwrap();
            let peer = SocketAddr::new(address, port);
            let tls = words.has("tls");
            let tcp = tls || words.has("tcp");
            let has_opt = Message::parse(&message).is_ok_and(|m| matches!(m.opt(), Ok(Some(_))));
            let size = usize::from(words.number("edns").unwrap_or(1232)).max(512);
            let known = Asked {
                question: (words.number("questions").unwrap_or(1) == 1).then_some(question),
                id,
                limit: if tcp {
                    65_535
                } else if has_opt {
                    size
                } else {
                    512
                },
                answers: 0,
            };
            assert!(
                self.queries.insert(label, known).is_none(),
                "query {label} comes twice"
            );
            let client = if tcp {
                Client::Tcp {
                    connection: u64::from(label),
                    address: peer,
                    tls,
                }
            } else {
                Client::Udp(Origin::new(peer))
            };
            let now = self.clock.now();
            self.see_actions();
            let mut frame = [0; FRAME_BYTES];
            let len = self
                .engine
                .on_query(client, &message, &mut frame, now, &mut self.actions);
            if len > 0 {
                assert!(!tcp, "the response to a TCP query is in the frame");
                let answer = self.see_answer(label, &frame[..len]);
                self.replies.push((label, answer));
            }
        }
        self.see();
    }

    /// Sends a response of an upstream to the query with this index among those in flight.
    pub(crate) fn reply(
        &mut self,
        index: usize,
        rcode: Rcode,
        words: &Words<'_>,
        records: &[(String, String)],
    ) {
        self.turn();
        let asked = &self.in_flight[index];
        let message = messages::reply(asked, rcode, words, records);
        let now = self.clock.now();
        let server = words.number("server").map_or(asked.server, usize::from);
        let actions = &mut self.actions;
        match asked.way {
            Way::Port(port) => {
                let other = (port + 1) % self.engine.settings().ports_per_upstream();
                let port = if words.has("port") { other } else { port };
                self.engine.on_reply(server, port, &message, now, actions);
            }
            Way::Connection(exchange) | Way::Tls(exchange) => {
                self.engine
                    .on_connection(exchange, Ok(&message), now, actions);
            }
        }
        if !words.has("keep") {
            self.in_flight.remove(index);
        }
        self.see();
    }

    /// Reports an ICMP port unreachable error for a query.
    pub(crate) fn unreachable(&mut self, index: usize) {
        self.turn();
        let asked = self.in_flight.remove(index);
        let Way::Port(port) = asked.way else {
            panic!("{} was not queried over UDP", asked.question);
        };
        let now = self.clock.now();
        self.engine
            .on_unreachable(asked.server, port, now, &mut self.actions);
        self.see();
    }

    /// Reports a failed connection.
    pub(crate) fn close(&mut self, index: usize, failed: ConnectionFailed) {
        self.turn();
        let asked = self.in_flight.remove(index);
        let (Way::Connection(exchange) | Way::Tls(exchange)) = asked.way else {
            panic!("{} was not queried over TCP", asked.question);
        };
        let now = self.clock.now();
        self.engine
            .on_connection(exchange, Err(failed), now, &mut self.actions);
        self.see();
    }

    /// The queries in flight, including expired ones: those without a response.
    pub(crate) fn in_flight(&self) -> &[InFlight] {
        &self.in_flight
    }

    /// Number of queries with and without a response.
    pub(crate) fn answered(&self) -> (usize, usize) {
        let answered = self
            .queries
            .values()
            .filter(|asked| asked.answers > 0)
            .count();
        (answered, self.queries.len() - answered)
    }

    /// Whether the engine is idle.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.engine.is_idle() && self.engine.next_deadline().is_none()
    }

    /// Advances the clock by a span, and runs every timer at its time.
    pub(crate) fn wait(&mut self, span: Nanos) {
        let begin = self.clock.now();
        loop {
            let deadline = self.engine.next_deadline().filter(|d| *d <= begin + span);
            self.clock.advance_to(deadline.unwrap_or(begin + span));
            let before = self.lines.len();
            self.turn();
            self.see();
            if self.lines.len() > before {
                let ms = (self.clock.now() - begin) / 1_000_000;
                self.lines.insert(before, format!("after {ms} ms"));
            }
            if deadline.is_none() {
                return;
            }
        }
    }

    pub(crate) fn flush(&mut self, name: Option<&str>) {
        let below = name.map(|name| text::name(name).as_wire().to_vec());
        let flushed = self.engine.flush(below.as_deref());
        self.lines.push(format!("flushed {flushed}"));
    }

    /// Writes the figures of a metric that are not 0.
    pub(crate) fn count(&mut self, metric: &str) {
        self.turn();
        let figures = self.engine.figures();
        assert!(
            figures.iter().any(|f| f.name == metric),
            "no metric {metric}"
        );
        let mut line = metric.to_owned();
        for figure in figures.iter().filter(|f| f.name == metric && f.value > 0) {
            write!(line, " {}={}", figure.label.1, figure.value).unwrap();
        }
        self.lines.push(line.replace(" =", " "));
    }

    pub(crate) fn list_waiting(&mut self) {
        let lines = self.engine.in_flight(self.clock.now());
        self.lines.extend(lines);
    }

    /// Runs the timers first, like a worker.
    fn turn(&mut self) {
        self.engine.on_timer(self.clock.now(), &mut self.actions);
    }

    /// The latest query in flight that matches `[NAME TYPE] [from N]`.
    pub(crate) fn find(&self, which: &[&str]) -> usize {
        let (which, server) = match which {
            [which @ .., "from", server] => (which, Some(server.parse::<usize>().unwrap())),
            _ => (which, None),
        };
        let wanted = (!which.is_empty()).then(|| Question::read(which).0);
        let fits = |asked: &&InFlight| {
            wanted
                .as_ref()
                .is_none_or(|wanted| asked.question.is(wanted))
                && server.is_none_or(|server| server == asked.server)
        };
        let last = self.in_flight.iter().rposition(|asked| fits(&asked));
        let last = last.unwrap_or_else(|| panic!("{which:?} is not in flight"));
        let question = &self.in_flight[last].question;
        if let Some(other) = self
            .in_flight
            .iter()
            .filter(fits)
            .find(|a| !a.question.is(question))
        {
            panic!("{which:?} can be {question} or {}", other.question);
        }
        last
    }

    /// Records the actions of the engine, and updates clients and upstreams.
    fn see(&mut self) {
        self.see_actions();
        self.see_answers();
    }

    fn see_actions(&mut self) {
        let actions = std::mem::take(&mut self.actions);
        for action in actions.list() {
            if let Action::Reply { to, message, .. } = action {
                let label = u32::from(to.address().port()) - 10_000;
                let answer = self.see_answer(label, actions.message(message));
                self.replies.push((label, answer));
                continue;
            }
            self.see_answers();
            match action {
                Action::Ask {
                    server,
                    port,
                    message,
                } => self.see_question(*server, Way::Port(*port), actions.message(message)),
                Action::AskConnection {
                    server,
                    exchange,
                    tls,
                    message,
                } => {
                    let way = match tls {
                        true => Way::Tls(*exchange),
                        false => Way::Connection(*exchange),
                    };
                    self.see_question(*server, way, actions.message(message));
                }
                Action::Servfail { client, why, .. } => {
                    let label = u32::from(client.port()) - 10_000;
                    self.lines.push(format!("note {label}: {why}"));
                }
                Action::Turn { server, turn } => self.lines.push(match turn {
                    Turn::Down(fault) => format!("down {server}: {}", fault.name()),
                    Turn::Up { after_ns } => {
                        format!("up {server}: after {} ms", after_ns / 1_000_000)
                    }
                    Turn::Lacks(capability) => format!("{server} lacks {capability}"),
                }),
                // The time of a port renewal is random.
                Action::ClosePort { .. } | Action::Reply { .. } => {}
                Action::Tell { worker, .. } => panic!("there is no worker {worker}"),
            }
        }
        self.actions = actions;
        self.actions.clear();
    }

    fn see_question(&mut self, server: usize, way: Way, message: &[u8]) {
        let (question, text) = messages::of_question(message);
        let cookie = messages::client_cookie(message);
        let over = match way {
            Way::Port(_) => "",
            Way::Connection(_) => " tcp",
            Way::Tls(_) => " tls",
        };
        self.lines.push(format!("ask {server}{over}: {text}"));
        self.in_flight.push(InFlight {
            server,
            way,
            id: u16::from_be_bytes([message[0], message[1]]),
            question,
            cookie,
        });
    }

    fn see_answer(&mut self, label: u32, message: &[u8]) -> Vec<String> {
        let asked = self.queries.get_mut(&label).unwrap();
        asked.answers += 1;
        assert_eq!(asked.answers, 1, "query {label} is answered twice");
        assert!(
            message.len() <= asked.limit,
            "{} octets for query {label}",
            message.len()
        );
        if message.is_empty() {
            return vec!["nothing".to_owned()];
        }
        check_with_another_reader(message);
        if let Some(cookie) = messages::server_cookie(message) {
            self.last_cookie = cookie;
        }
        messages::of_answer(message, asked.question.as_ref(), asked.id)
    }

    /// Writes responses, with equal consecutive ones combined.
    fn see_answers(&mut self) {
        let replies = std::mem::take(&mut self.replies);
        let mut rest = replies.as_slice();
        while let Some((first, text)) = rest.first() {
            let same = rest
                .iter()
                .zip(*first..)
                .take_while(|((n, t), m)| n == m && t == text);
            let count = same.count();
            let last = rest[count - 1].0;
            let labels = if last == *first {
                first.to_string()
            } else {
                format!("{first}..{last}")
            };
            self.lines.push(format!("answer {labels}: {}", text[0]));
            self.lines
                .extend(text[1..].iter().map(|line| format!("  {line}")));
            rest = &rest[count..];
        }
    }
}

/// Checks that another implementation can read the response.
fn check_with_another_reader(message: &[u8]) {
    use domain::base::Message;
    use domain::rdata::AllRecordData;
    let message = Message::from_octets(message).unwrap();
    for section in [message.answer(), message.authority(), message.additional()] {
        for record in section.unwrap().limit_to::<AllRecordData<_, _>>() {
            record.unwrap();
        }
    }
}

/// The settings of a script, merged into the common ones.
fn settings(own: &str) -> Settings {
    let mut table: toml::Table = SETTINGS.parse().unwrap();
    let own: toml::Table = own.parse().unwrap_or_else(|e| panic!("{e}"));
    lay_over(&mut table, own);
    let text = toml::to_string(&table).unwrap();
    config::parse(&text, "script").unwrap_or_else(|e| panic!("{e}"))
}

fn lay_over(table: &mut toml::Table, own: toml::Table) {
    for (key, value) in own {
        match (table.get_mut(&key), value) {
            (Some(toml::Value::Table(below)), toml::Value::Table(own)) => lay_over(below, own),
            (_, value) => {
                table.insert(key, value);
            }
        }
    }
}
