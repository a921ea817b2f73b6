//! Writes responses: with stored or new records, errors, EDNS and truncation.

use dns64_wire::Truncated;
use dns64_wire::build::{Builder, Owner};
use dns64_wire::codes::{Opcode, Rcode, Rtype};
use dns64_wire::message::{Flags, Header, Opt, Record, Records, Section};

use super::asker::{Asker, AskerEdns};
use super::cookie::OPTION_COOKIE;
use super::stored::{Age, Aged, OPTION_EXTENDED_ERROR, Stored};
use super::work::step;
use crate::settings::ShortText;

/// Largest length of the options in a response, in octets: a cookie of 24 octets, an extended
/// error without text, the name of the server and a time, each after 4 octets of code and length (RFC 6891 section
/// 6.1.2).
pub(super) const OPTIONS_LEN_MAX: usize = 4 + 24 + 4 + 2 + 4 + ShortText::LEN_MAX + 4 + 2;

/// Codes of the options with the name of the server (RFC 5001 section 4) and with the time for which a connection is
/// kept (RFC 7828 section 3.1).
pub(super) const OPTION_NSID: u16 = 3;
pub(super) const OPTION_TCP_KEEPALIVE: u16 = 11;

/// Code of the option that pads a message (RFC 7830 section 3).
pub(super) const OPTION_PADDING: u16 = 12;

/// Lengths of padded responses are multiples of this number of octets (RFC 8467 section 4.1).
const PADDED_LEN: usize = 468;

/// Data of the HINFO record in the minimal response to ANY: CPU "RFC8482" and an empty OS (RFC 8482
/// section 4.2).
const ANY_HINFO: &[u8] = b"\x07RFC8482\0";

/// TTL of that record, in seconds. RFC 8482 section 4.2 recommends a TTL long enough to prevent
/// frequent repeated queries: an hour.
const ANY_TTL_S: u32 = 3600;

/// Header fields and extended error of a response. The default is NOERROR without flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Response code.
    pub rcode: Rcode,
    /// Authoritative answer.
    pub aa: bool,
    /// Authentic data.
    pub ad: bool,
    /// Code of an extended error (RFC 8914), sent if the query had an OPT record.
    pub extended_error: Option<u16>,
}

impl Default for Head {
    fn default() -> Self {
        Self {
            rcode: Rcode::NOERROR,
            aa: false,
            ad: false,
            extended_error: None,
        }
    }
}

/// Writes a response into `frame` and returns its length in octets: the header, the question of the
/// query, the records, and an OPT record if the query had one. If the records exceed the client's
/// limit or `frame`, the response has TC set and no records.
///
/// A frame of 512 octets holds every response without records. If the frame is too short for the
/// question, the length is 0.
pub fn write(
    asker: &Asker,
    head: &Head,
    frame: &mut [u8],
    records: impl FnOnce(&mut Builder<'_>) -> Result<(), Truncated>,
) -> usize {
    write_extended(asker, head, 0, frame, records)
}

/// Writes a stored response to the same question, with its TTLs aged and everything else unchanged
/// (RFC 6147 section 5.3.3). AD is set only for clients that support it (RFC 6840 section 5.8). An
/// additional section that does not fit is omitted completely (RFC 2181 section 9): in an
/// incomplete one, names would seem to have no addresses.
///
/// # Panics
///
/// If the question of the stored response has another length.
pub fn forward(asker: &Asker, aged: Aged<'_>, frame: &mut [u8]) -> usize {
    let stored = aged.stored;
    let head = Head {
        rcode: stored.rcode(),
        aa: false,
        ad: ad(asker, stored),
        extended_error: aged.extended_error(),
    };
    let mut end = 0;
    let len = write(asker, &head, frame, |reply| {
        end = stored.write_records(reply)?;
        Ok(())
    });
    if aged.age != Age::Seconds(0) {
        // Records have the same offsets as in the stored message.
        for at in stored.ttl_offsets().take_while(|at| *at < end) {
            if let Some(ttl) = frame[at..].first_chunk_mut() {
                *ttl = aged.ttl(u32::from_be_bytes(*ttl)).to_be_bytes();
            }
        }
    }
    len
}

/// AD of a response with the answer and authority section of a stored one (RFC 4035 section 3.2.3),
/// for clients that support it.
fn ad(asker: &Asker, response: &Stored) -> bool {
    response.ad() && (asker.flags.ad() || asker.do_bit())
}

/// Passes the records of a response to `write`. If an additional record does not fit, the
/// additional section is dropped: the message is complete without it (RFC 2181 section 9).
pub(super) fn each<'a>(
    to: &mut Builder<'_>,
    records: Records<'a>,
    mut write: impl FnMut(&mut Builder<'_>, &Record<'a>) -> Result<(), Truncated>,
) -> Result<(), Truncated> {
    for record in records.map_while(Result::ok) {
        step();
        match write(to, &record) {
            Err(Truncated) if record.section == Section::Additional => {
                to.drop_additional();
                return Ok(());
            }
            written => written?,
        }
    }
    Ok(())
}

/// Writes a response without records.
pub fn error(asker: &Asker, rcode: Rcode, extended_error: Option<u16>, frame: &mut [u8]) -> usize {
    let head = Head {
        rcode,
        extended_error,
        ..Head::default()
    };
    write(asker, &head, frame, |_| Ok(()))
}

/// Writes a response without records and with TC set: the client retries over TCP.
pub fn truncated(asker: &Asker, frame: &mut [u8]) -> usize {
    write(asker, &Head::default(), frame, |_| Err(Truncated))
}

/// Writes the response to a query with an unsupported EDNS version: BADVERS, with the supported
/// version (RFC 6891 section 6.1.3).
pub fn bad_version(asker: &Asker, frame: &mut [u8]) -> usize {
    // BADVERS is 16: 1 in the OPT record and 0 in the header.
    write_extended(asker, &Head::default(), 1, frame, |_| Ok(()))
}

/// Writes a response without a question and with the opcode of the query, for queries whose
/// question is missing or cannot be read. If `edns` is given, the response has an OPT record with
/// the upper 8 bits of the response code. Returns the length in octets, or 0 if `frame` is too
/// short.
pub fn bare(
    query: &Header,
    rcode: Rcode,
    edns: Option<(&AskerEdns, u8)>,
    frame: &mut [u8],
) -> usize {
    let mut options = [0; OPTIONS_LEN_MAX];
    let room = frame.len();
    let Ok(mut reply) = Builder::new(frame, room) else {
        return 0;
    };
    let flags = Flags::default()
        .with_qr(true)
        .with_opcode(query.opcode())
        .with_rd(query.rd())
        .with_ra(true)
        .with_cd(query.cd())
        .with_rcode(rcode);
    reply.header(query.id(), flags);
    if let Some((edns, ext_rcode)) = edns {
        let options_len = write_options(edns, None, &mut options);
        let opt = opt(edns, ext_rcode, &options[..options_len]);
        if reply.opt(opt).is_err() {
            return 0;
        }
        let len = reply.finish();
        return pad_for(edns, options_len, len, room, frame);
    }
    reply.finish()
}

/// Writes the minimal response to a query for ANY (RFC 8482 section 4.2).
pub fn any_minimal(asker: &Asker, frame: &mut [u8]) -> usize {
    write(asker, &Head::default(), frame, |reply| {
        reply.record(
            Section::Answer,
            Owner::Question,
            Rtype::HINFO,
            asker.class,
            ANY_TTL_S,
            ANY_HINFO,
        )
    })
}

fn write_extended(
    asker: &Asker,
    head: &Head,
    ext_rcode: u8,
    frame: &mut [u8],
    records: impl FnOnce(&mut Builder<'_>) -> Result<(), Truncated>,
) -> usize {
    let mut options = [0; OPTIONS_LEN_MAX];
    let limit = asker.limit.min(frame.len());
    let Ok(mut reply) = Builder::new(frame, limit) else {
        return 0;
    };
    let flags = Flags::default()
        .with_qr(true)
        .with_opcode(Opcode::QUERY)
        .with_aa(head.aa)
        .with_rd(asker.flags.rd())
        .with_ra(true)
        .with_ad(head.ad)
        .with_cd(asker.flags.cd())
        .with_rcode(head.rcode);
    reply.header(asker.id, flags);
    let mut begun = reply.question(&asker.name, asker.rtype, asker.class);
    let mut options_len = 0;
    if let Some(edns) = asker.edns {
        options_len = write_options(&edns, head.extended_error, &mut options);
        let opt = opt(&edns, ext_rcode, &options[..options_len]);
        begun = begun.and_then(|()| reply.opt(opt));
    }
    if begun.is_err() {
        return 0;
    }
    if records(&mut reply).is_err() {
        reply.truncate();
    }
    let len = reply.finish();
    match &asker.edns {
        Some(edns) => pad_for(edns, options_len, len, limit, frame),
        None => len,
    }
}

/// Pads a response if its client requested it, like [`pad`].
#[inline]
pub(super) fn pad_for(
    edns: &AskerEdns,
    options_len: usize,
    len: usize,
    limit: usize,
    frame: &mut [u8],
) -> usize {
    match edns.padding {
        true => pad(PADDED_LEN, options_len, len, limit, frame),
        false => len,
    }
}

/// Pads a message that ends with an OPT record with options of this length, to a multiple of `block` octets or up to
/// the limit. Returns its length in octets.
pub(crate) fn pad(
    block: usize,
    options_len: usize,
    len: usize,
    limit: usize,
    frame: &mut [u8],
) -> usize {
    let bare = len + OPTION_HEAD_LEN;
    if bare > limit {
        return len;
    }
    let padded = bare.next_multiple_of(block).min(limit);
    let (Ok(padding_len), Ok(rdata_len)) = (
        u16::try_from(padded - bare),
        u16::try_from(options_len + padded - len),
    ) else {
        return len;
    };
    let rdata_len_at = len - options_len - 2;
    frame[rdata_len_at..][..2].copy_from_slice(&rdata_len.to_be_bytes());
    frame[len..padded].fill(0);
    frame[len..][..2].copy_from_slice(&OPTION_PADDING.to_be_bytes());
    frame[len + 2..][..2].copy_from_slice(&padding_len.to_be_bytes());
    padded
}

/// Octets before the value of an option (RFC 6891 section 6.1.2).
const OPTION_HEAD_LEN: usize = 4;

/// The OPT record of a response.
fn opt<'o>(edns: &AskerEdns, ext_rcode: u8, options: &'o [u8]) -> Opt<'o> {
    Opt {
        udp_size: edns.udp_size,
        ext_rcode,
        version: 0,
        do_bit: edns.do_bit,
        options,
    }
}

/// Writes the options of a response and returns their length in octets.
pub(super) fn write_options(
    edns: &AskerEdns,
    extended_error: Option<u16>,
    options: &mut [u8; OPTIONS_LEN_MAX],
) -> usize {
    let mut len = 0;
    let mut push = |octets: &[u8]| {
        options[len..len + octets.len()].copy_from_slice(octets);
        len += octets.len();
    };
    let nsid = edns.nsid.as_bytes();
    if let Ok(nsid_len @ 1..) = u8::try_from(nsid.len()) {
        push(&OPTION_NSID.to_be_bytes());
        push(&[0, nsid_len]);
        push(nsid);
    }
    if edns.keepalive > 0 {
        push(&OPTION_TCP_KEEPALIVE.to_be_bytes());
        push(&[0, 2]);
        push(&edns.keepalive.to_be_bytes());
    }
    if let Some(cookie) = &edns.cookie {
        push(&OPTION_COOKIE.to_be_bytes());
        push(&[0, 24]);
        push(cookie);
    }
    if let Some(code) = extended_error {
        push(&OPTION_EXTENDED_ERROR.to_be_bytes());
        push(&[0, 2]);
        push(&code.to_be_bytes());
    }
    len
}

#[cfg(test)]
mod tests;
