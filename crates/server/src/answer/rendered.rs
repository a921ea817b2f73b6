//! Caches responses as they are sent, without the parts that depend on the client.
//!
//! These parts are the ID, the case of the question, AD, the OPT record and the largest response
//! length. RD is set in every query that is answered, and CD is part of the cache key. All TTLs
//! count down together: a synthesised record has the smaller TTL of its two responses, less the
//! same age.

use dns64_wire::codes::Rtype;
use dns64_wire::message::{Flags, HEADER_LEN, Header, OPT_LEN, Opt, Options, TYPE_AND_CLASS_LEN};

use super::asker::{Asker, AskerEdns};
use super::copy;
use super::reply::{OPTIONS_LEN_MAX, pad_for, write_options};
use super::stored::OPTION_EXTENDED_ERROR;

/// A query for the same question that permits the longest response: EDNS, AD, and up to `limit`
/// octets.
pub fn fullest(asker: &Asker, limit: usize) -> Asker {
    Asker {
        flags: asker.flags.with_ad(true),
        edns: Some(AskerEdns {
            udp_size: 0,
            do_bit: asker.do_bit(),
            ..AskerEdns::default()
        }),
        limit,
        ..asker.clone()
    }
}

/// A response without its OPT record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Length of the message in octets. Its ID is zero and its question is in lower case.
    pub len: usize,
    /// Number of its records, each of which has a TTL.
    pub ttls: usize,
    /// The extended error from its OPT record.
    pub extended_error: Option<u16>,
}

/// Converts the response to [`fullest`], in place, into the form that is cached, and writes the
/// offsets of its TTLs to `ttls`. `None` if it is truncated or has more TTLs than `ttls` holds.
pub fn keep(message: &mut [u8], ttls: &mut [u16]) -> Option<Kept> {
    let header = Header::parse(message).ok().filter(|header| !header.tc())?;
    let name_end = copy::name_end(message, HEADER_LEN);
    let mut at = name_end + TYPE_AND_CLASS_LEN;
    // The last additional record is OPT.
    let additionals = header.arcount().checked_sub(1)?;
    let counts = [header.ancount(), header.nscount(), additionals];
    let count = counts.into_iter().map(usize::from).sum();
    for ttl in ttls.get_mut(..count)? {
        let (ttl_at, end) = copy::ttl_and_end(message, at);
        *ttl = u16::try_from(ttl_at).ok()?;
        at = end;
    }
    let options = Options::new(message.get(at + OPT_LEN..)?);
    let error = { options }.find(|option| option.code == OPTION_EXTENDED_ERROR);
    let code = error.and_then(|option| option.value.first_chunk().copied());
    let kept = Kept {
        len: at,
        ttls: count,
        extended_error: code.map(u16::from_be_bytes),
    };
    message[..2].fill(0);
    message[10..HEADER_LEN].copy_from_slice(&additionals.to_be_bytes());
    // Only the name: the type of HTTPS has an octet that is also a letter.
    message[HEADER_LEN..name_end].make_ascii_lowercase();
    Some(kept)
}

/// Converts the cached response in the first `len` octets of `frame` into the response to a query
/// for the same question. Returns its length in octets, or `None` if it exceeds the client's limit.
pub fn complete(
    asker: &Asker,
    len: usize,
    extended_error: Option<u16>,
    frame: &mut [u8],
) -> Option<usize> {
    let name = asker.name.as_wire();
    let flags = frame.get(2..4)?.first_chunk()?;
    let flags = Flags(u16::from_be_bytes(*flags));
    let ad = flags.ad() && (asker.flags.ad() || asker.do_bit());
    frame[..2].copy_from_slice(&asker.id.to_be_bytes());
    frame[2..4].copy_from_slice(&flags.with_ad(ad).0.to_be_bytes());
    frame
        .get_mut(HEADER_LEN..HEADER_LEN + name.len())?
        .copy_from_slice(name);
    let limit = asker.limit.min(frame.len());
    let Some(edns) = &asker.edns else {
        return (len <= limit).then_some(len);
    };
    let mut options = [0; OPTIONS_LEN_MAX];
    let options_len = write_options(edns, extended_error, &mut options);
    let end = len + OPT_LEN + options_len;
    let opt = frame.get_mut(len..end).filter(|_| end <= limit)?;
    let [type_high, type_low] = Rtype::OPT.0.to_be_bytes();
    let [size_high, size_low] = edns.udp_size.to_be_bytes();
    let [do_high, do_low] = if edns.do_bit { Opt::DO } else { 0 }.to_be_bytes();
    // At most OPTIONS_LEN_MAX.
    let options_octets = u8::try_from(options_len).ok()?;
    opt[..OPT_LEN].copy_from_slice(&[
        0,
        type_high,
        type_low,
        size_high,
        size_low,
        0,
        0,
        do_high,
        do_low,
        0,
        options_octets,
    ]);
    opt[OPT_LEN..].copy_from_slice(&options[..options_len]);
    let additionals = u16::from_be_bytes([frame[10], frame[11]]).checked_add(1)?;
    frame[10..HEADER_LEN].copy_from_slice(&additionals.to_be_bytes());
    Some(pad_for(edns, options_len, end, limit, frame))
}

#[cfg(test)]
mod tests;
