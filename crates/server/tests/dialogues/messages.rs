//! Builds messages from the words of a script, and describes messages in these words.

use std::fmt::Write as _;

use dns64_wire::codes::{Class, Rcode, Rtype};
use dns64_wire::message::{Flags, HEADER_LEN, Message};
use dns64_wire::name::NameBuf;

use super::stage::InFlight;
use super::text::{self, Writer};

/// Code of the EDNS option with an extended error (RFC 8914 section 2).
const EXTENDED_ERROR: u16 = 15;

/// Code of the EDNS option that pads a message (RFC 7830 section 3).
const PADDING: u16 = 12;

/// Code of the EDNS option with a cookie (RFC 7873 section 4).
const COOKIE: u16 = 10;

/// The client cookie of every query that has one.
pub(crate) const CLIENT_COOKIE: [u8; 8] = *b"a client";

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) name: NameBuf,
    pub(crate) rtype: Rtype,
    pub(crate) class: Class,
}

impl Question {
    /// Reads `NAME TYPE [CLASS]`; returns the words after it.
    pub(crate) fn read<'w>(words: &'w [&'w str]) -> (Self, &'w [&'w str]) {
        let [name, rtype, rest @ ..] = words else {
            panic!("no question: {words:?}");
        };
        let class = rest.first().and_then(|word| text::class(word));
        let question = Self {
            name: text::name(name),
            rtype: text::rtype(rtype).unwrap_or_else(|| panic!("no type: {rtype}")),
            class: class.unwrap_or(Class::IN),
        };
        (question, &rest[usize::from(class.is_some())..])
    }

    /// Whether two questions are equal except for the case of letters.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.name.as_name().eq_ignore_case(&other.name.as_name())
            && (self.rtype, self.class) == (other.rtype, other.class)
    }

    pub(crate) fn of(message: &Message<'_>) -> Option<Self> {
        let question = message.question()?;
        Some(Self {
            name: question.name.to_buf(),
            rtype: question.rtype,
            class: question.class,
        })
    }

    fn write(&self, to: &mut Writer) {
        to.name(&self.name);
        to.u16(self.rtype.0);
        to.u16(self.class.0);
    }
}

impl std::fmt::Display for Question {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.name, self.rtype)?;
        match self.class {
            Class::IN => Ok(()),
            class => write!(f, " {class}"),
        }
    }
}

/// The words that change a message, as `word` or `word=value`.
#[derive(Clone, Debug)]
pub(crate) struct Words<'w>(Vec<(&'w str, Option<&'w str>)>);

impl<'w> Words<'w> {
    /// Reads words, all of which must be known.
    pub(crate) fn read(words: &[&'w str], known: &[&str]) -> Self {
        let split = |word: &&'w str| match word.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (*word, None),
        };
        let words: Vec<_> = words.iter().map(split).collect();
        for (word, _) in &words {
            assert!(
                known.contains(word),
                "{word} is not understood; known: {known:?}"
            );
        }
        Self(words)
    }

    pub(crate) fn has(&self, word: &str) -> bool {
        self.0.iter().any(|(known, _)| *known == word)
    }

    pub(crate) fn value(&self, word: &str) -> Option<&'w str> {
        self.0.iter().find(|(known, _)| *known == word)?.1
    }

    pub(crate) fn number(&self, word: &str) -> Option<u16> {
        let value = self.value(word)?;
        Some(
            value
                .parse()
                .unwrap_or_else(|_| panic!("{word}={value} is not a number")),
        )
    }

    fn values<'s>(&'s self, word: &'s str) -> impl Iterator<Item = &'w str> + 's {
        self.0
            .iter()
            .filter(move |(known, _)| *known == word)
            .filter_map(|(_, value)| *value)
    }
}

/// Words of a query.
pub(crate) const QUERY_WORDS: [&str; 19] = [
    "+do",
    "+cd",
    "+ad",
    "-rd",
    "tcp",
    "tls",
    "edns",
    "id",
    "version",
    "opcode",
    "qr",
    "aa",
    "tc",
    "questions",
    "opt",
    "cookie",
    "cut",
    "junk",
    "answer",
];

/// The octets of a query.
pub(crate) fn query(
    question: &Question,
    id: u16,
    words: &Words<'_>,
    last_cookie: &[u8],
) -> Vec<u8> {
    let mut to = Writer::new();
    let mut flags = Flags::default()
        .with_rd(!words.has("-rd"))
        .with_ad(words.has("+ad"))
        .with_cd(words.has("+cd"))
        .with_qr(words.has("qr"))
        .with_aa(words.has("aa"))
        .with_tc(words.has("tc"));
    flags.0 |= words.number("opcode").unwrap_or(0) << 11;
    let mut options = Writer::new();
    for option in words.values("opt") {
        let (code, value) = option.split_once(':').unwrap();
        push_option(&mut options, code.parse().unwrap(), &text::hex(value));
    }
    let server_cookie = match words.value("cookie") {
        Some("new") => Some(&[][..]),
        Some("last") => Some(last_cookie),
        Some("forged") => Some(&b"\x01\0\0\0forged cookie"[..16]),
        Some("short") => Some(&b"short"[..]),
        Some(other) => panic!("cookie={other} is not understood"),
        None => None,
    };
    if let Some(server) = server_cookie {
        push_option(&mut options, COOKIE, &[&CLIENT_COOKIE, server].concat());
    }
    let has_opt = ["+do", "edns", "version", "opt", "cookie"]
        .iter()
        .any(|word| words.has(word));
    let questions = words.number("questions").unwrap_or(1);
    let answers = u16::from(words.has("answer"));
    for number in [id, flags.0, questions, answers, 0, u16::from(has_opt)] {
        to.u16(number);
    }
    for _ in 0..questions {
        question.write(&mut to);
    }
    if answers > 0 {
        to.record("poison. 300 A 192.0.2.66");
    }
    if has_opt {
        let version = words.number("version").unwrap_or(0);
        let do_bit = u16::from(words.has("+do")) << 15;
        push_opt(
            &mut to,
            words.number("edns").unwrap_or(1232),
            version,
            do_bit,
            &options.bytes,
        );
    }
    cut_and_join(to.bytes, words)
}

/// Words of a reply.
pub(crate) const REPLY_WORDS: [&str; 19] = [
    "aa",
    "tc",
    "ad",
    "id",
    "port",
    "server",
    "qr",
    "question",
    "no-question",
    "case",
    "cut",
    "junk",
    "ede",
    "noedns",
    "ext",
    "keep",
    "plain",
    "bare",
    "cookie",
];

/// The octets of an upstream's response to a query.
pub(crate) fn reply(
    in_flight: &InFlight,
    rcode: Rcode,
    words: &Words<'_>,
    records: &[(String, String)],
) -> Vec<u8> {
    let mut to = Writer::new();
    to.compress = !words.has("plain");
    let (id, mut question) = (in_flight.id, in_flight.question.clone());
    if let Some(other) = words.value("question") {
        question = Question::read(&other.split('/').collect::<Vec<_>>()).0;
    }
    if words.has("case") {
        let flipped: Vec<u8> = question.name.as_wire().iter().map(flip).collect();
        question.name = NameBuf::from_wire(&flipped).unwrap();
    }
    let flags = Flags::default()
        .with_qr(words.value("qr") != Some("0"))
        .with_rd(true)
        .with_ra(true)
        .with_aa(words.has("aa"))
        .with_tc(words.has("tc"))
        .with_ad(words.has("ad"))
        .with_rcode(rcode);
    let count = |section: &str| {
        let count = records
            .iter()
            .filter(|(in_section, _)| in_section == section)
            .count();
        u16::try_from(count).unwrap()
    };
    // `bare`: only a header.
    let questions = u16::from(!words.has("no-question") && !words.has("bare"));
    let edns = u16::from(!words.has("noedns") && !words.has("bare"));
    let counts = [
        count("answer"),
        count("authority"),
        count("additional") + edns,
    ];
    let id = if words.has("id") { id ^ 0x5555 } else { id };
    for number in [id, flags.0, questions, counts[0], counts[1], counts[2]] {
        to.u16(number);
    }
    if questions > 0 {
        question.write(&mut to);
    }
    for section in ["answer", "authority", "additional"] {
        for (_, record) in records
            .iter()
            .filter(|(in_section, _)| in_section == section)
        {
            to.record(record);
        }
    }
    if edns > 0 {
        let options = reply_options(in_flight, words);
        let ext = words.number("ext").unwrap_or(0) << 8;
        push_opt(&mut to, 1232, ext, 0, &options.bytes);
    }
    cut_and_join(to.bytes, words)
}

/// The EDNS options of an upstream's response.
fn reply_options(in_flight: &InFlight, words: &Words<'_>) -> Writer {
    let mut options = Writer::new();
    if let Some(code) = words.number("ede") {
        push_option(&mut options, EXTENDED_ERROR, &code.to_be_bytes());
    }
    let cookie = match words.value("cookie") {
        Some("forged") => [CLIENT_COOKIE, *b"a server"].concat(),
        Some(server) => [&in_flight.cookie, server.as_bytes()].concat(),
        None => return options,
    };
    push_option(&mut options, COOKIE, &cookie);
    options
}

/// A letter in the other case.
fn flip(octet: &u8) -> u8 {
    octet ^ if octet.is_ascii_alphabetic() { 0x20 } else { 0 }
}

fn push_option(to: &mut Writer, code: u16, value: &[u8]) {
    to.u16(code);
    to.u16(u16::try_from(value.len()).unwrap());
    to.bytes.extend(value);
}

fn push_opt(to: &mut Writer, size: u16, ext_and_version: u16, flags: u16, options: &[u8]) {
    to.bytes.push(0);
    for number in [Rtype::OPT.0, size, ext_and_version, flags] {
        to.u16(number);
    }
    to.u16(u16::try_from(options.len()).unwrap());
    to.bytes.extend(options);
}

fn cut_and_join(mut bytes: Vec<u8>, words: &Words<'_>) -> Vec<u8> {
    let kept = bytes.len() - usize::from(words.number("cut").unwrap_or(0));
    bytes.truncate(kept);
    bytes.extend(words.value("junk").map(text::hex).unwrap_or_default());
    bytes
}

/// Describes a response to a client, with a line for the head and one for each record. Usual values
/// are omitted: ID and question of the query, QR=1 and opcode 0.
pub(crate) fn of_answer(message: &[u8], asked: Option<&Question>, id: u16) -> Vec<String> {
    if message.len() < HEADER_LEN {
        return vec![format!("{message:02x?}")];
    }
    let Ok(parsed) = Message::parse(message) else {
        return vec![format!("no sound message: {message:02x?}")];
    };
    let mut head = parsed.rcode().to_string();
    let bits = [
        ("qr=0", !parsed.qr()),
        ("aa", parsed.aa()),
        ("tc", parsed.tc()),
        ("rd", parsed.rd()),
        ("ra", parsed.ra()),
        ("ad", parsed.ad()),
        ("cd", parsed.cd()),
    ];
    for (name, _) in bits.iter().filter(|(_, set)| *set) {
        write!(head, " {name}").unwrap();
    }
    if parsed.opcode().0 != 0 {
        write!(head, " opcode={}", parsed.opcode().0).unwrap();
    }
    if parsed.id() != id {
        write!(head, " id={}", parsed.id()).unwrap();
    }
    let question = Question::of(&parsed);
    if question.as_ref() != asked {
        let text = question.map_or("none".to_owned(), |q| q.to_string());
        write!(head, " question={}", text.replace(' ', "/")).unwrap();
    }
    write!(head, "{}", of_opt(&parsed)).unwrap();
    if message.len() > 512 {
        write!(head, " octets={}", message.len()).unwrap();
    }
    let mut lines = vec![head];
    for record in parsed.records() {
        match record {
            Ok(record) if record.rtype == Rtype::OPT => {}
            Ok(record) => lines.push(text::of_record(&record, message)),
            Err(reason) => lines.push(format!("unsound: {reason}")),
        }
    }
    lines
}

fn of_opt(message: &Message<'_>) -> String {
    let opt = match message.opt() {
        Ok(Some(opt)) => opt,
        Ok(None) => return String::new(),
        Err(reason) => return format!(" unsound OPT: {reason}"),
    };
    let mut text = format!(" edns={}", opt.udp_size);
    if opt.do_bit {
        text.push_str(" do");
    }
    if opt.ext_rcode != 0 {
        write!(text, " ext={}", opt.ext_rcode).unwrap();
    }
    if opt.version != 0 {
        write!(text, " version={}", opt.version).unwrap();
    }
    for option in opt.options() {
        match (option.code, option.value) {
            (EXTENDED_ERROR, [high, low, said @ ..]) => {
                write!(text, " ede={}", u16::from_be_bytes([*high, *low])).unwrap();
                assert!(said.is_empty(), "an extended error with a text");
            }
            (COOKIE, value) if value.starts_with(&CLIENT_COOKIE) => {
                write!(text, " cookie=8+{}", value.len() - 8).unwrap();
            }
            (PADDING, value) if value.iter().all(|octet| *octet == 0) => {
                write!(text, " padding={}", value.len()).unwrap();
            }
            (code, value) => write!(text, " opt={code}:{value:02x?}").unwrap(),
        }
    }
    text
}

/// The server cookie of a response.
pub(crate) fn server_cookie(message: &[u8]) -> Option<Vec<u8>> {
    let opt = Message::parse(message).ok()?.opt().ok()??;
    let option = opt.options().find(|option| option.code == COOKIE)?;
    option
        .value
        .strip_prefix(&CLIENT_COOKIE)
        .map(<[u8]>::to_vec)
}

/// Describes a query to an upstream. Usual values are omitted: RD=1, AD=1, an OPT record with 1232
/// octets and no options except a client cookie.
pub(crate) fn of_question(message: &[u8]) -> (Question, String) {
    let parsed = Message::parse(message).unwrap();
    let question = Question::of(&parsed).unwrap();
    let usual = Flags::default().with_rd(true).with_ad(true);
    let rest = parsed.flags().with_cd(false);
    assert_eq!(rest, usual, "flags of a query to an upstream");
    let mut line = question.to_string();
    let opt = parsed.opt().unwrap();
    if let Some(opt) = opt {
        assert_eq!((opt.udp_size, opt.version), (1232, 0));
    } else {
        line.push_str(" noedns");
    }
    if opt.is_some_and(|opt| opt.do_bit) {
        line.push_str(" +do");
    }
    if parsed.cd() {
        line.push_str(" +cd");
    }
    for option in opt.iter().flat_map(|opt| opt.options()) {
        if option.code == PADDING {
            assert!(message.len().is_multiple_of(128) && option.value.iter().all(|o| *o == 0));
            line.push_str(" padded");
            continue;
        }
        assert_eq!(option.code, COOKIE);
        if let Some(server) = option.value.get(8..).filter(|server| !server.is_empty()) {
            write!(line, " cookie={}", str::from_utf8(server).unwrap()).unwrap();
        }
    }
    (question, line)
}

/// The client cookie of a query to an upstream, if it has one.
pub(crate) fn client_cookie(message: &[u8]) -> Vec<u8> {
    let opt = Message::parse(message).unwrap().opt().unwrap();
    let mut options = opt.iter().flat_map(|opt| opt.options());
    let cookie = options.find(|option| option.code == COOKIE);
    cookie.map_or(Vec::new(), |option| option.value[..8].to_vec())
}
