//! The authority's engine: turns a query into a reply, both as octets, without sockets or clocks.

use dns64_wire::Truncated;
use dns64_wire::build::{Builder, Owner};
use dns64_wire::codes::{BADVERS, Class, Opcode, Rcode, Rtype};
use dns64_wire::message::{Flags, HEADER_LEN, Header, Message, Opt, Question, Section};
use dns64_wire::name::Name;

use super::counts::{AnswerKind, AuthorityCounts};
use super::fast::Fast;
use super::zone::{
    Lookup, Position, TARGET_RDATA_LEN, ZoneConfig, https_rdata, ns_rdata, soa_rdata, target_rdata,
};
use crate::load::query::UDP_SIZE;
use crate::load::transport::Protocol;
use crate::namespace::{AskedName, own_aaaa};

/// Outcome of a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// Octets of the reply; 0 means no reply.
    pub len: usize,
    /// The queried address and type, if the name encodes an address.
    pub asked: Option<AskedName>,
}

/// Default TTL of records: longer than any trial, so that the cached name of a trial stays cached.
pub const TTL_DEFAULT_S: u32 = 3600;

/// Default TTL of negative answers. It is as long as [`TTL_DEFAULT_S`], because RFC 6147 section 5.1.7 limits the TTL
/// of a synthesised answer to it.
pub const NEGATIVE_TTL_DEFAULT_S: u32 = TTL_DEFAULT_S;

/// An authoritative server of one zone whose answers are computed from the names.
#[derive(Clone, Debug)]
pub struct Authority {
    config: ZoneConfig,
    fast: Fast,
    counts: AuthorityCounts,
}

impl Authority {
    /// Creates an authority with all counters at zero.
    pub fn new(config: ZoneConfig) -> Self {
        Self {
            fast: Fast::new(&config),
            config,
            counts: AuthorityCounts::default(),
        }
    }

    /// Returns the counters.
    pub fn counts(&self) -> AuthorityCounts {
        self.counts
    }

    /// The suffix of all names of the zone.
    pub(super) fn suffix(&self) -> Name<'_> {
        self.config.zone.suffix.as_name()
    }

    /// Writes the reply to `query` into `out`.
    ///
    /// `out` should hold [`REPLY_LEN_MAX`](super::REPLY_LEN_MAX) octets. In a shorter buffer, a reply that does not fit
    /// is truncated and has TC set.
    pub fn answer(&mut self, query: &[u8], out: &mut [u8], transport: Protocol) -> Answered {
        let fast = self.fast.answer(&self.config, query, out);
        let answered = match fast {
            Some(reply) => {
                self.count(reply.asked.rtype, reply.kind);
                Answered {
                    len: reply.len,
                    asked: Some(reply.asked),
                }
            }
            None => self.answer_any(query, out),
        };
        if transport != Protocol::Udp && answered.len > 0 {
            self.counts.tcp += 1;
        }
        answered
    }

    /// Answers any query. If [`Fast`] answers it, the octets are the same.
    // In line, it costs the common query 14 instructions.
    #[cold]
    fn answer_any(&mut self, query: &[u8], out: &mut [u8]) -> Answered {
        let Some(reply) = self.decide(query) else {
            self.counts.ignored += 1;
            return Answered::default();
        };
        let rtype = reply.question.map_or(Rtype(0), |question| question.rtype);
        self.count(rtype, reply.verdict.kind());
        Answered {
            // No reply if the buffer has no room for a header.
            len: self.write(&reply, out).unwrap_or(0),
            asked: match reply.place {
                Position::Host(address, 0) => Some(AskedName { address, rtype }),
                _ => None,
            },
        }
    }

    /// Applies the rules in order; the first match decides. `None` means no reply.
    fn decide<'q>(&self, query: &'q [u8]) -> Option<Response<'q>> {
        let header = Header::parse(query).ok()?;
        if header.qr() {
            // A reply to a reply could start an endless loop between two servers.
            return None;
        }
        let mut reply = Response {
            header,
            question: None,
            place: Position::Nowhere,
            opt: None,
            verdict: Decision::Error(Rcode::FORMERR),
        };
        if header.opcode() != Opcode::QUERY {
            return Some(reply.with(Decision::Error(Rcode::NOTIMP)));
        }
        let Ok(message) = Message::parse(query) else {
            return Some(reply);
        };
        let Some(question) = message.question() else {
            return Some(reply);
        };
        reply.question = Some(question);
        let Ok(opt) = message.opt() else {
            return Some(reply);
        };
        reply.opt = opt;
        if opt.is_some_and(|opt| opt.version > 0) {
            return Some(reply.with(Decision::BadVersion));
        }
        if question.class != Class::IN || matches!(question.rtype, Rtype::AXFR | Rtype::IXFR) {
            return Some(reply.with(Decision::Error(Rcode::REFUSED)));
        }
        let Some(place) = Position::of(&question.name, &self.config.zone.suffix.as_name()) else {
            return Some(reply.with(Decision::Error(Rcode::REFUSED)));
        };
        reply.place = place;
        let found = self.config.look_up(place, question.rtype);
        Some(reply.with(Decision::Found(found)))
    }

    fn write(&self, reply: &Response<'_>, out: &mut [u8]) -> Result<usize, Truncated> {
        let limit = out.len();
        let mut builder = Builder::new(out, limit)?;
        builder.header(reply.header.id(), reply.flags());
        let written = self.write_sections(reply, &mut builder);
        if written.is_err() {
            builder.truncate();
        }
        Ok(builder.finish())
    }

    fn write_sections(
        &self,
        reply: &Response<'_>,
        builder: &mut Builder<'_>,
    ) -> Result<(), Truncated> {
        let Some(question) = reply.question else {
            return Ok(());
        };
        builder.question(&question.name.to_buf(), question.rtype, question.class)?;
        if let Some(opt) = reply.opt {
            builder.opt(reply.answer_to(&opt))?;
        }
        let Decision::Found(found) = reply.verdict else {
            return Ok(());
        };
        let suffix_at = self.suffix_at(&question);
        let ZoneConfig {
            ttl_s,
            negative_ttl_s,
            ..
        } = self.config;
        let mut owner = Owner::Question;
        for label in self.config.targets(reply.place, question.rtype) {
            let target = target_rdata(label, suffix_at);
            let (section, rtype) = (Section::Answer, Rtype::CNAME);
            builder.record(section, owner, rtype, Class::IN, ttl_s, &target)?;
            owner = Owner::At(offset(builder.position() - TARGET_RDATA_LEN));
        }
        let soa = soa_rdata(suffix_at, negative_ttl_s);
        let mut answer = |rtype, ttl_s, rdata: &[u8]| {
            builder.record(Section::Answer, owner, rtype, Class::IN, ttl_s, rdata)
        };
        match found {
            Lookup::Alias => Ok(()),
            Lookup::A(host) => {
                let mut each = self.config.zone.addresses(host);
                each.try_for_each(|ipv4| answer(Rtype::A, ttl_s, &ipv4.octets()))
            }
            Lookup::Aaaa(host) => {
                let mut each = self.config.zone.addresses(host).map(own_aaaa);
                each.try_for_each(|ipv6| answer(Rtype::AAAA, ttl_s, &ipv6.octets()))
            }
            Lookup::Https(hint) => answer(Rtype::HTTPS, ttl_s, &https_rdata(hint)),
            Lookup::Ns => answer(Rtype::NS, ttl_s, &ns_rdata(suffix_at)),
            Lookup::Soa => answer(Rtype::SOA, negative_ttl_s, &soa),
            Lookup::NoData | Lookup::NxDomain => {
                let (section, owner) = (Section::Authority, Owner::At(suffix_at));
                builder.record(section, owner, Rtype::SOA, Class::IN, negative_ttl_s, &soa)
            }
        }
    }

    /// Offset of the suffix in a query for a name inside the zone: at the end of the name.
    fn suffix_at(&self, question: &Question<'_>) -> u16 {
        let suffix_len = self.config.zone.suffix.as_wire().len();
        offset(HEADER_LEN + question.name.wire_len() - suffix_len)
    }

    fn count(&mut self, rtype: Rtype, kind: AnswerKind) {
        let counts = &mut self.counts;
        let asked = match rtype {
            Rtype::AAAA => &mut counts.aaaa,
            Rtype::A => &mut counts.a,
            _ => &mut counts.other,
        };
        *asked += 1;
        let answered = match kind {
            AnswerKind::Answered => &mut counts.answered,
            AnswerKind::NoData => &mut counts.nodata,
            AnswerKind::NxDomain => &mut counts.nxdomain,
            AnswerKind::Refused => &mut counts.refused,
        };
        *answered += 1;
    }
}

/// Returns an offset in a reply, all of which are below [`REPLY_LEN_MAX`](super::REPLY_LEN_MAX).
fn offset(at: usize) -> u16 {
    u16::try_from(at).unwrap_or_default()
}

/// A reply before it is written.
struct Response<'q> {
    header: Header,
    /// The question to repeat, if it could be parsed.
    question: Option<Question<'q>>,
    /// The position of its name.
    place: Position,
    /// The OPT record of the query, if present.
    opt: Option<Opt<'q>>,
    verdict: Decision,
}

impl Response<'_> {
    fn with(self, verdict: Decision) -> Self {
        Self { verdict, ..self }
    }

    /// Header bits: RD is copied (RFC 1035 section 4.1.1), CD too (RFC 4035 section 3.1.6). RA is never set, and AA
    /// only on data of the zone.
    fn flags(&self) -> Flags {
        let rcode = match self.verdict {
            Decision::Error(rcode) => rcode,
            Decision::Found(Lookup::NxDomain) => Rcode::NXDOMAIN,
            Decision::Found(_) | Decision::BadVersion => Rcode::NOERROR,
        };
        Flags::default()
            .with_qr(true)
            .with_opcode(self.header.opcode())
            .with_aa(matches!(self.verdict, Decision::Found(_)))
            .with_rd(self.header.rd())
            .with_cd(self.header.cd())
            .with_rcode(rcode)
    }

    /// The OPT record of the reply (RFC 6891 section 6.1.1; DO is copied, RFC 3225 section 3).
    fn answer_to(&self, opt: &Opt<'_>) -> Opt<'static> {
        let ext_rcode = match self.verdict {
            Decision::BadVersion => BADVERS.to_be_bytes()[1] >> 4,
            Decision::Error(_) | Decision::Found(_) => 0,
        };
        Opt {
            udp_size: UDP_SIZE,
            ext_rcode,
            version: 0,
            do_bit: opt.do_bit,
            options: &[],
        }
    }
}

enum Decision {
    Error(Rcode),
    /// Unsupported EDNS version (RFC 6891 section 6.1.3).
    BadVersion,
    Found(Lookup),
}

impl Decision {
    fn kind(&self) -> AnswerKind {
        match self {
            Self::Error(_) | Self::BadVersion => AnswerKind::Refused,
            Self::Found(Lookup::NoData) => AnswerKind::NoData,
            Self::Found(Lookup::NxDomain) => AnswerKind::NxDomain,
            Self::Found(_) => AnswerKind::Answered,
        }
    }
}

#[cfg(test)]
mod tests;
