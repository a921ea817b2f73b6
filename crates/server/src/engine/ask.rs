//! Questions to upstreams: their bytes, and whether a reply is to one of them.

use dns64_wire::build::Builder;
use dns64_wire::message::{Flags, Message, Opt};
use dns64_wire::name::NameBuf;
use rand::Rng as _;
use rand::rngs::StdRng;

use super::lookups::Lookup;

/// Largest UDP answer that upstreams may send: what passes without fragments (DNS flag day 2020).
const UDP_SIZE: u16 = 1232;

/// Octets of the longest question: header, name, type and class, OPT.
pub(super) const QUESTION_MAX: usize = 12 + 255 + 4 + 11;

/// Writes the question of a lookup; returns its length.
///
/// The client's AD is not passed on: it is always set, so that one answer serves clients that
/// want to know it and those that do not (RFC 6840 section 5.7). No EDNS option of a client is
/// passed on either: they are between it and this server.
pub(super) fn write(lookup: &Lookup, id: u16, frame: &mut [u8; QUESTION_MAX]) -> usize {
    let Ok(mut builder) = Builder::new(frame, QUESTION_MAX) else {
        return 0;
    };
    let flags = Flags::default()
        .with_rd(true)
        .with_ad(true)
        .with_cd(lookup.cd);
    builder.header(id, flags);
    let opt = Opt {
        udp_size: UDP_SIZE,
        ext_rcode: 0,
        version: 0,
        do_bit: lookup.do_bit,
        options: &[],
    };
    let written = builder
        .question(&lookup.name, lookup.rtype, lookup.class)
        .and_then(|()| builder.opt(opt));
    match written {
        Ok(()) => builder.finish(),
        // The frame has room for every question.
        Err(_) => 0,
    }
}

/// How the question of a reply fits the lookup that has its ID and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// It is the same.
    Same,
    /// It is the same but for the case of its letters.
    OtherCase,
    /// It is another, or there is none.
    Other,
}

/// Compares the question of a reply with that of a lookup (RFC 5452 section 9.1).
pub(super) fn fit(lookup: &Lookup, reply: &Message<'_>) -> Fit {
    match reply.question() {
        Some(question)
            if question.rtype == lookup.rtype
                && question.class == lookup.class
                && question.name.eq_ignore_case(&lookup.name.as_name()) =>
        {
            let wire = &reply.bytes()[question.range()];
            if wire.starts_with(lookup.name.as_wire()) {
                Fit::Same
            } else {
                Fit::OtherCase
            }
        }
        _ => Fit::Other,
    }
}

/// The name with the case of each letter left to chance (draft-vixie-dnsext-dns0x20-00).
pub(super) fn randomise_case(name: &NameBuf, random: &mut StdRng) -> NameBuf {
    let mut wire = [0; 255];
    let len = name.as_wire().len();
    wire[..len].copy_from_slice(name.as_wire());
    let mut bits = 0_u64;
    for (i, octet) in wire[..len].iter_mut().enumerate() {
        if i % 64 == 0 {
            bits = random.next_u64();
        }
        // Length octets are below 64, no letters: they stay.
        if octet.is_ascii_alphabetic() && bits >> (i % 64) & 1 == 1 {
            *octet ^= 0x20;
        }
    }
    NameBuf::from_wire(&wire[..len]).unwrap_or_else(|_| name.clone())
}
