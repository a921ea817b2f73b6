//! The cases: TOML in `crates/tester/conformance`, one file for each RFC.
//!
//! ```toml
//! rfc = 6147
//!
//! [[case]]
//! id = "5.1.4-mapped"             # "rfc6147-5.1.4-mapped" with the RFC in front
//! clause = "5.1.4"
//! level = "should"                # must, should or policy
//! why = "One sentence with the sense of the clause"
//! needs = ["forwards-all"]        # optional: without it the verdict is "not known"
//! harms = true                    # optional: it runs alone, and a server of a lab is restarted after it
//! soa = [300, 60]                 # optional: TTL and MINIMUM of negative answers; [] for no SOA record
//! zone = """                      # what the authority serves, as a zone file; $ORIGIN is a name of this run alone
//! @ 60 A 192.0.2.1
//! """
//! [[case.reply]]                  # optional: what the authority answers instead
//! to = "@ AAAA"
//! rcode = "SERVFAIL"
//! [[case.step]]
//! ask = "@ AAAA"                  # name, type, and words of `Query`
//! expect = [{ answer = ["@ <=60 AAAA pref64(192.0.2.1)"], asked = ["@ A"] }]   # one of these
//! ```
//!
//! Names are relative to the origin of the run. Texts may have `addr(N)` and `addr6(N)`, addresses of this run alone;
//! `pref64(IPV4)`, that address synthesised with the prefix of the server; `wkp(IPV4)`, with the well-known prefix;
//! `reverse(ADDRESS)`, its name for PTR. An address may be one of the others.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use dns64_wire::pref64::Pref64;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::AsRefStr;

/// What the words of a clause demand.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, AsRefStr, JsonSchema, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Level {
    /// MUST, MUST NOT, or a procedure that the standard describes without alternatives.
    Must,
    /// SHOULD, RECOMMENDED.
    Should,
    /// The standards leave it open: the verdict tells what the server does.
    Policy,
}

/// What a case requires of the server's setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, AsRefStr, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Need {
    /// It sends questions about all names to the authority, not only those of the zone.
    ForwardsAll,
    /// Its prefix is not the well-known one.
    OwnPrefix,
    /// Its prefix is the well-known one.
    WellKnownPrefix,
}

/// A case.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Its name: "rfc6147-5.1.4-mapped".
    pub id: String,
    /// The clause: "RFC 6147 section 5.1.4".
    pub clause: String,
    /// What the clause demands.
    pub level: Level,
    /// The sense of the clause.
    pub why: String,
    /// What it requires.
    #[serde(default)]
    pub needs: Vec<Need>,
    /// Whether the server remembers something of it that matters to other cases: an authority that misbehaves, or names that
    /// other cases have as well.
    #[serde(default)]
    pub harms: bool,
    /// TTL and MINIMUM of the SOA record in negative answers; empty for none.
    #[serde(default = "usual_soa")]
    pub soa: Vec<u32>,
    /// Records of the authority.
    #[serde(default)]
    pub zone: String,
    /// Answers that do not follow from the zone.
    #[serde(default)]
    pub reply: Vec<Reply>,
    /// Queries and expectations, one after the other.
    pub step: Vec<Step>,
}

/// An answer of the authority that does not follow from the zone.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reply {
    /// Name and type of the questions; `*` for any type.
    pub to: String,
    /// Over TCP alone, or over UDP alone; unless given, over both.
    pub tcp: Option<bool>,
    /// For so many questions; for all others the next answer holds, or the zone.
    pub times: Option<usize>,
    /// No answer.
    #[serde(default)]
    pub drop: bool,
    /// Delay in milliseconds.
    #[serde(default)]
    pub delay_ms: u64,
    /// Response code; with records of this answer only, if it is given.
    pub rcode: Option<String>,
    /// Flags: "tc", "ad", "!aa", "!ra".
    #[serde(default)]
    pub flags: String,
    /// Records of the answer section.
    #[serde(default)]
    pub answer: String,
    /// Records of the authority section.
    #[serde(default)]
    pub authority: String,
    /// Records of the additional section.
    #[serde(default)]
    pub additional: String,
    /// What is wrong with the message; the right one follows.
    pub lie: Option<Lie>,
    /// No OPT record.
    #[serde(default)]
    pub no_edns: bool,
    /// Octets after which it is cut.
    pub cut: Option<usize>,
}

/// What is wrong with a forged response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lie {
    /// Another ID.
    Id,
    /// From another port.
    Port,
    /// About another name.
    Name,
    /// About another type.
    Type,
    /// About another class.
    Class,
    /// A query, not a response.
    Query,
    /// Without its question.
    NoQuestion,
    /// Garbage.
    Garbage,
}

/// A query and what must come back.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Name, type and the words of `Query`.
    pub ask: String,
    /// Time before it, in seconds.
    #[serde(default)]
    pub after_s: u64,
    /// It says something only if it is asked this soon after the response before, in milliseconds; otherwise the case is
    /// repeated.
    pub within_ms: Option<u64>,
    /// The outcomes that the clause allows; any if empty.
    #[serde(default)]
    pub expect: Vec<Expect>,
}

/// An outcome. Everything that is given holds.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// No response.
    #[serde(default)]
    pub silence: bool,
    /// Response codes, with | between; NOERROR unless given, * for any.
    pub rcode: Option<String>,
    /// The records of the answer section: no other, in any order. A TTL is a bound: `@ <=60 A 192.0.2.1`; `*`
    /// is any data.
    pub answer: Option<Vec<String>>,
    /// The records of the answer section have the order of `answer`.
    #[serde(default)]
    pub ordered: bool,
    /// Records of the answer section, among others.
    #[serde(default)]
    pub has: Vec<String>,
    /// Types and records that no section has.
    #[serde(default)]
    pub lacks: Vec<String>,
    /// Whether the authority section has an SOA record, by its owner and a bound for its TTL: `@ <=60`; "" for none.
    pub soa: Option<String>,
    /// The name in the question section has the case of the query.
    #[serde(default)]
    pub same_case: bool,
    /// Flags of the header: "ra", "!ad", "tc".
    #[serde(default)]
    pub flags: String,
    /// Whether it has an OPT record.
    pub edns: Option<bool>,
    /// DO in the OPT record.
    pub do_bit: Option<bool>,
    /// Whether it has a server cookie for the client cookie of the query.
    pub cookie: Option<bool>,
    /// Largest length, in octets.
    pub size_max: Option<usize>,
    /// Questions that the authority got in this case so far: `@ A`, `@ A =0`, `@ A <=2 tcp`.
    #[serde(default)]
    pub asked: Vec<String>,
    /// The authority got no question since the step before.
    #[serde(default)]
    pub quiet: bool,
}

fn usual_soa() -> Vec<u32> {
    vec![300, 300]
}

/// What is particular to one run of a case, for its texts.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its origin, with the final dot.
    pub origin: String,
    /// Prefix of the server.
    pub pref64: Pref64,
    /// Number of the run, for its addresses.
    pub number: u16,
}

impl Run {
    /// Replaces `addr()`, `addr6()`, `pref64()`, `wkp()` and `reverse()`.
    ///
    /// # Errors
    ///
    /// Something else in the parentheses than an address.
    pub fn fill(&self, text: &str) -> Result<String, String> {
        let mut done = text.to_owned();
        // The innermost first: the last that begins.
        while let Some((at, function)) = FUNCTIONS
            .iter()
            .filter_map(|function| Some((done.rfind(&format!("{function}("))?, *function)))
            .max()
        {
            let inside = at + function.len() + 1;
            let end = done[inside..].find(')').map(|length| inside + length);
            let end = end.ok_or_else(|| format!("{function}( without ) in {text:?}"))?;
            let value = self.value(function, &done[inside..end]);
            let value = value.ok_or_else(|| format!("no address in {function}() in {text:?}"))?;
            done.replace_range(at..=end, &value);
        }
        Ok(done)
    }

    fn value(&self, function: &str, argument: &str) -> Option<String> {
        let embedded = |prefix: Pref64| Some(prefix.embed(argument.parse().ok()?).to_string());
        match function {
            "addr" => {
                let [high, low] = self.number.to_be_bytes();
                let address = Ipv4Addr::new(20, high, low, argument.parse().ok()?);
                Some(address.to_string())
            }
            "addr6" => {
                let number = self.number;
                Some(
                    Ipv6Addr::new(0x2a00, number, 0, 0, 0, 0, 0, argument.parse().ok()?)
                        .to_string(),
                )
            }
            "pref64" => embedded(self.pref64),
            "wkp" => embedded(Pref64::WELL_KNOWN),
            _ => argument.parse::<IpAddr>().ok().map(reverse),
        }
    }
}

/// The name of an address for PTR (RFC 1035 section 3.5, RFC 3596 section 2.5), with the final dot.
fn reverse(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa.")
        }
        IpAddr::V6(address) => {
            let nibbles = address.octets().into_iter().rev();
            let nibbles = nibbles.flat_map(|octet| [octet & 15, octet >> 4]);
            let labels: String = nibbles.map(|nibble| format!("{nibble:x}.")).collect();
            format!("{labels}ip6.arpa.")
        }
    }
}

/// Replaced functions.
const FUNCTIONS: [&str; 5] = ["addr", "addr6", "pref64", "wkp", "reverse"];

impl Step {
    /// Whether it is an allowed outcome that there is no response.
    pub(super) fn may_be_silent(&self) -> bool {
        self.expect.iter().any(|it| it.silence)
    }
}
