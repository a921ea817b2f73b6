//! Does a response do what the clause says? Pure: response, questions to the authority and expectation in, faults out.

use dns64_wire::message::{HEADER_LEN, Message, Section};
use domain::base::iana::{OptRcode, Rtype};

use super::case::{Expect, Run};
use super::query::{COOKIE, COOKIE_OPTION, Query};
use super::script::Asked;
use super::text::{self, Bound, Bounded, Lacked, Shown, Wanted};

/// What happened in a step.
#[derive(Debug)]
pub(super) struct Exchange<'a> {
    /// The query.
    pub(super) query: &'a Query,
    /// Its ID.
    pub(super) id: u16,
    /// The response.
    pub(super) response: Option<&'a [u8]>,
    /// All questions that the authority got in this run so far.
    pub(super) asked: &'a [Asked],
    /// How many of them it got before this step.
    pub(super) asked_before: usize,
}

/// The faults of a step: those of the response as such, or those of the allowed outcome with the fewest.
pub(super) fn faults(exchange: &Exchange<'_>, expect: &[Expect], run: &Run) -> Vec<String> {
    let head = exchange.response.and_then(|it| head(it, exchange.query));
    let response = head.as_deref().or(exchange.response);
    let exchange = &Exchange {
        response,
        ..*exchange
    };
    let own = response.map_or_else(Vec::new, |it| of_any(it, exchange));
    if !own.is_empty() {
        return own;
    }
    if expect.is_empty() && exchange.response.is_none() {
        return vec!["no response".into()];
    }
    let each = expect.iter().map(|it| {
        // Silence is not what a response was meant to be, if the clause allows one.
        let is_other = it.silence && exchange.response.is_some();
        (is_other, it.faults(exchange, run))
    });
    let nearest =
        each.min_by_key(|(is_other, faults)| (!faults.is_empty() && *is_other, faults.len()));
    nearest.map(|(_, faults)| faults).unwrap_or_default()
}

/// The header alone of a response that repeats the malformed part of a query.
fn head(response: &[u8], query: &Query) -> Option<Vec<u8>> {
    if query.is_whole() || Message::parse(response).is_ok() {
        return None;
    }
    let (id_and_flags, _) = response.split_at_checked(HEADER_LEN - COUNTS)?;
    Some([id_and_flags, &[0; COUNTS]].concat())
}

/// Octets of the four counts of a header (RFC 1035 section 4.1.1).
const COUNTS: usize = 8;

/// What holds for every response (RFC 1035 section 4.1, RFC 5452 section 9.1).
fn of_any(response: &[u8], exchange: &Exchange<'_>) -> Vec<String> {
    let message = match Message::parse(response) {
        Ok(message) => message,
        Err(error) => return vec![format!("the response is malformed: {error}")],
    };
    let mut faults = Vec::new();
    if message.id() != exchange.id {
        faults.push(format!("ID {} instead of {}", message.id(), exchange.id));
    }
    if !message.qr() {
        faults.push("QR is not set".into());
    }
    if let Err(why) = text::shown(response) {
        faults.push(format!("a record is malformed: {why}"));
    }
    let query = exchange.query;
    if let Some(question) = message.question().filter(|_| query.is_whole()) {
        let name = question.name.to_buf();
        let is_same = name.as_wire().eq_ignore_ascii_case(&query.name);
        if !is_same || question.rtype.0 != query.rtype {
            faults.push(format!("another question: {name} {}", question.rtype));
        }
    } else if query.is_whole() {
        faults.push("no question".into());
    }
    faults
}

impl Expect {
    /// The faults of an exchange where this is the outcome.
    fn faults(&self, exchange: &Exchange<'_>, run: &Run) -> Vec<String> {
        let mut faults = match (exchange.response, self.silence) {
            (None, true) => Vec::new(),
            (None, false) => vec!["no response".into()],
            (Some(_), true) => vec!["a response where there must be none".into()],
            (Some(response), false) => self.of_response(response, exchange.query, run),
        };
        let more = exchange.asked.len() - exchange.asked_before;
        if self.quiet && more > 0 {
            faults.push(format!("the authority was asked {more} more questions"));
        }
        for asked in &self.asked {
            // Every text was read when the case was.
            if let Ok(count) = Count::parse(asked, run) {
                faults.extend(count.fault(exchange.asked));
            }
        }
        faults
    }

    fn of_response(&self, response: &[u8], query: &Query, run: &Run) -> Vec<String> {
        let Ok(message) = Message::parse(response) else {
            return vec!["the response is malformed".into()];
        };
        let records = text::shown(response).unwrap_or_default();
        let mut faults = self.of_header(&message);
        let name = message.question().map(|it| it.name.to_buf());
        if self.same_case && name.is_none_or(|it| it.as_wire() != query.name) {
            faults.push("the question has another case".into());
        }
        let wanted = |texts: &[String]| -> Vec<(String, Wanted)> {
            let each = texts.iter();
            each.filter_map(|it| Some((it.clone(), Wanted::parse(it, run).ok()?)))
                .collect()
        };
        let answer: Vec<&Shown> = of(&records, Section::Answer).collect();
        if let Some(expected) = &self.answer {
            faults.extend(differences(&answer, &wanted(expected), self.ordered));
        }
        for (text, wanted) in wanted(&self.has) {
            if !answer.iter().any(|it| wanted.is(it)) {
                faults.push(format!("the answer section lacks {}", shown(&text, run)));
            }
        }
        for lacked in self
            .lacks
            .iter()
            .filter_map(|it| Lacked::parse(it, run).ok())
        {
            let found = records.iter().find(|it| lacked.is(it));
            faults.extend(found.map(|it| format!("{it} must not be there")));
        }
        faults.extend(self.of_soa(&records, run));
        faults.extend(self.of_edns(response, &message));
        faults
    }

    fn of_header(&self, message: &Message<'_>) -> Vec<String> {
        let mut faults = Vec::new();
        let extended = message.opt().ok().flatten().map_or(0, |opt| opt.ext_rcode);
        let rcode = u16::from(extended) << 4 | u16::from(message.rcode().0);
        let rcode = OptRcode::masked_from_int(rcode).to_string();
        let allowed = self.rcode.as_deref().unwrap_or("NOERROR");
        if allowed != "*" && !allowed.split('|').any(|it| it == rcode) {
            faults.push(format!(
                "{rcode} instead of {}",
                allowed.replace('|', " or ")
            ));
        }
        for (name, bit, set) in text::flags(&self.flags).unwrap_or_default() {
            if (message.flags().0 & bit != 0) != set {
                let is = if set { "is not set" } else { "is set" };
                faults.push(format!("{} {is}", name.to_uppercase()));
            }
        }
        faults
    }

    fn of_soa(&self, records: &[Shown], run: &Run) -> Option<String> {
        let expected = self.soa.as_ref()?;
        let mut soas = of(records, Section::Authority).filter(|it| it.rtype == Rtype::SOA);
        let found = soas.next();
        if expected.is_empty() {
            return found.map(|it| format!("an SOA record where there is none: {it}"));
        }
        let Some(found) = found else {
            return Some("no SOA record".into());
        };
        let bounded = Bounded::parse(expected, run).ok()?;
        let fits = bounded.owner == found.owner && bounded.ttl.holds(found.ttl);
        (!fits).then(|| format!("SOA {found} instead of {expected}"))
    }

    fn of_edns(&self, response: &[u8], message: &Message<'_>) -> Vec<String> {
        let mut faults = Vec::new();
        let opt = message.opt().ok().flatten();
        let mut check = |what: &str, wanted: Option<bool>, found: bool| match wanted {
            Some(true) if !found => faults.push(format!("no {what}")),
            Some(false) if found => faults.push(format!("{what} where there must be none")),
            _ => {}
        };
        check("OPT record", self.edns, opt.is_some());
        check("DO", self.do_bit, opt.is_some_and(|it| it.do_bit));
        let has_cookie = opt.is_some_and(|opt| {
            opt.options().any(|option| {
                let own = option.value.starts_with(&COOKIE);
                // A server cookie has 8 to 32 octets (RFC 7873 section 4.2).
                option.code == COOKIE_OPTION && own && (16..=40).contains(&option.value.len())
            })
        });
        check("server cookie", self.cookie, has_cookie);
        if let Some(most) = self.size_max.filter(|most| response.len() > *most) {
            faults.push(format!("{} octets, more than {most}", response.len()));
        }
        faults
    }
}

fn of(records: &[Shown], section: Section) -> impl Iterator<Item = &Shown> {
    records.iter().filter(move |it| it.section == section)
}

/// A record as it is expected in this run.
fn shown(text: &str, run: &Run) -> String {
    let filled = run.fill(text).unwrap_or_else(|_| text.into());
    match filled.strip_prefix('@') {
        Some(rest) => format!("{}{rest}", run.origin),
        None => filled,
    }
}

/// Records that are missing, and those that should not be there.
fn differences(found: &[&Shown], expected: &[(String, Wanted)], ordered: bool) -> Vec<String> {
    let mut left: Vec<&&Shown> = found.iter().collect();
    let mut faults = Vec::new();
    let mut places = Vec::new();
    for (text, wanted) in expected {
        match left.iter().position(|it| wanted.is(it)) {
            Some(at) => {
                let it = left.remove(at);
                places.push(found.iter().position(|other| std::ptr::eq(*other, *it)));
            }
            None => faults.push(format!("the answer section lacks {text}")),
        }
    }
    faults.extend(left.iter().map(|it| format!("the answer section has {it}")));
    if faults.is_empty() && ordered && !places.is_sorted() {
        faults.push("the records of the answer section have another order".into());
    }
    faults
}

/// How often the authority was asked.
#[derive(Clone, Debug)]
pub(super) struct Count {
    name: String,
    /// `None` for any.
    rtype: Option<Rtype>,
    /// Over TCP alone.
    tcp: bool,
    bound: Bound,
}

impl Count {
    /// Reads a name, a type or `*`, a bound (at least once unless given), and `tcp` for questions over TCP alone.
    pub(super) fn parse(text: &str, run: &Run) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let (Some(name), Some(rtype)) = (words.next(), words.next()) else {
            return Err("asked: a name and a type".into());
        };
        let mut count = Self {
            name: text::dotted(&text::name(name, run)?),
            rtype: match rtype {
                "*" => None,
                rtype => Some(text::rtype(rtype)?),
            },
            tcp: false,
            bound: Bound::SOME,
        };
        for word in words {
            match Bound::parse(word) {
                Some(bound) => count.bound = bound,
                None if word == "tcp" => count.tcp = true,
                None => return Err(format!("asked: {word:?} is neither a bound nor tcp")),
            }
        }
        Ok(count)
    }

    fn fault(&self, asked: &[Asked]) -> Option<String> {
        let fits = |it: &&Asked| {
            it.name == self.name
                && self.rtype.is_none_or(|rtype| it.rtype == rtype)
                && (it.tcp || !self.tcp)
        };
        let times = asked.iter().filter(fits).count();
        let holds = self.bound.holds(u32::try_from(times).unwrap_or(u32::MAX));
        let rtype = self.rtype.map_or("*".into(), |it| it.to_string());
        (!holds).then(|| {
            format!(
                "the authority was asked {} {rtype} {times} times",
                self.name
            )
        })
    }
}
