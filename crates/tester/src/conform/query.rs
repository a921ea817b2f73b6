//! Queries of the cases: from words to octets.

use dns64_wire::codes::{Class, Rtype};
use dns64_wire::message::HEADER_LEN;

use super::case::Run;
use super::text;

/// A query: name, type, and any of these words.
///
/// - `rd=0`, `cd`, `ad`, `z`, `qr`: flags, of which RD alone is set otherwise;
/// - `edns` or `edns=SIZE`, `do`, `version=N`, `option=CODE:HEX`, `cookie`, `opt=2`: an OPT record, which there is none of otherwise;
/// - `tcp`; `reuse`, on the connection of the query before; `pipelined`, after another query in the same segment;
/// - `class=N`, `opcode=N`, `questions=N`, `cut=OCTETS`, `tail=HEX`: unusual and malformed queries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Query {
    /// Octets of the name, in the case in which it was given.
    pub(super) name: Vec<u8>,
    /// Type.
    pub(super) rtype: u16,
    pub(super) class: u16,
    pub(super) flags: u16,
    pub(super) opcode: u16,
    pub(super) edns: Option<Edns>,
    /// Over TCP.
    pub(super) tcp: bool,
    /// On the connection of the query before.
    pub(super) reuse: bool,
    /// After another query in the same segment.
    pub(super) pipelined: bool,
    /// Number of questions.
    pub(super) questions: u16,
    pub(super) opts: u16,
    pub(super) cut: Option<usize>,
    pub(super) tail: Vec<u8>,
}

/// An OPT record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Edns {
    pub(super) size: u16,
    pub(super) version: u8,
    pub(super) do_bit: bool,
    pub(super) options: Vec<(u16, Vec<u8>)>,
}

/// The client cookie of queries with one (RFC 7873 section 4.1).
pub(super) const COOKIE: [u8; 8] = *b"\x1f\x2e\x3d\x4c\x5b\x6a\x79\x88";

/// Option code of cookies (RFC 7873 section 9).
pub(super) const COOKIE_OPTION: u16 = 10;

/// UDP size of queries with EDNS (RFC 9715 appendix A).
const SIZE: u16 = 1232;

impl Query {
    /// Reads the words.
    pub(super) fn parse(words: &str, run: &Run) -> Result<Self, String> {
        let mut words = words.split_whitespace();
        let (Some(name), Some(rtype)) = (words.next(), words.next()) else {
            return Err("a query has a name and a type".into());
        };
        let mut query = Self::plain(&text::name(name, run)?, text::rtype(rtype)?);
        for word in words {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            let read = query.word(key, value);
            read.ok_or_else(|| format!("a query has no {word:?}"))?;
        }
        Ok(query)
    }

    /// A query with RD and nothing else.
    pub(super) fn plain(name: &text::Owned, rtype: domain::base::iana::Rtype) -> Self {
        Self {
            name: name.as_slice().to_vec(),
            rtype: rtype.to_int(),
            class: Class::IN.0,
            flags: RD,
            questions: 1,
            opts: 1,
            ..Self::default()
        }
    }

    fn word(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "tcp" => self.tcp = true,
            "reuse" => self.reuse = true,
            "pipelined" => self.pipelined = true,
            "class" => self.class = value.parse().ok()?,
            "opcode" => self.opcode = value.parse().ok()?,
            "questions" => self.questions = value.parse().ok()?,
            "opt" => self.opts = value.parse().ok()?,
            "cut" => self.cut = Some(value.parse().ok()?),
            "tail" => self.tail = octets(value)?,
            "rd" => self.flags &= !RD,
            "cd" | "ad" | "z" | "qr" | "tc" | "aa" => self.flags |= text::flags(key).ok()?[0].1,
            _ => self.edns_word(key, value)?,
        }
        Some(())
    }

    fn edns_word(&mut self, key: &str, value: &str) -> Option<()> {
        let edns = self.edns.get_or_insert_with(|| Edns {
            size: SIZE,
            ..Edns::default()
        });
        match (key, value) {
            ("edns", "") => {}
            ("edns", size) => edns.size = size.parse().ok()?,
            ("do", _) => edns.do_bit = true,
            ("version", version) => edns.version = version.parse().ok()?,
            ("cookie", _) => edns.options.push((COOKIE_OPTION, COOKIE.to_vec())),
            ("option", option) => {
                let (code, value) = option.split_once(':')?;
                edns.options.push((code.parse().ok()?, octets(value)?));
            }
            _ => return None,
        }
        Some(())
    }

    /// Whether it has a question that a response repeats.
    pub(super) fn is_whole(&self) -> bool {
        self.questions == 1 && self.cut.is_none() && self.opcode == 0
    }

    /// Its octets.
    pub(super) fn octets(&self, id: u16) -> Vec<u8> {
        let opts = self.edns.as_ref().map_or(0, |_| self.opts);
        let header = [
            id,
            self.flags | self.opcode << 11,
            self.questions,
            0,
            0,
            opts,
        ];
        let mut octets: Vec<u8> = header.into_iter().flat_map(u16::to_be_bytes).collect();
        debug_assert_eq!(octets.len(), HEADER_LEN);
        for _ in 0..self.questions {
            octets.extend(&self.name);
            octets.extend(self.rtype.to_be_bytes());
            octets.extend(self.class.to_be_bytes());
        }
        for edns in self.edns.iter().cycle().take(opts.into()) {
            let options = edns.options.iter().flat_map(|(code, value)| {
                let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
                [&code.to_be_bytes()[..], &length.to_be_bytes(), value].concat()
            });
            let options: Vec<u8> = options.collect();
            let length = u16::try_from(options.len()).unwrap_or(u16::MAX);
            octets.push(0);
            octets.extend(Rtype::OPT.0.to_be_bytes());
            octets.extend(edns.size.to_be_bytes());
            octets.extend([0, edns.version, u8::from(edns.do_bit) << 7, 0]);
            octets.extend(length.to_be_bytes());
            octets.extend(options);
        }
        octets.extend(&self.tail);
        octets.truncate(self.cut.unwrap_or(usize::MAX));
        octets
    }
}

/// RD of the header (RFC 1035 section 4.1.1).
const RD: u16 = 0x0100;

/// Reads hexadecimal digits.
fn octets(text: &str) -> Option<Vec<u8>> {
    let octet = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(octet).collect()
}
