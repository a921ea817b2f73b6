//! Queries to upstreams: their format, and whether a response belongs to one of them.

use std::hash::Hasher as _;

use dns64_wire::build::Builder;
use dns64_wire::codes::{BADCOOKIE, Rcode, Rtype};
use dns64_wire::message::{Flags, HEADER_LEN, Message, OPT_LEN, Opt, Section, TYPE_AND_CLASS_LEN};
use dns64_wire::name::{NAME_LEN_MAX, NameBuf};
use rand::Rng as _;
use rand::rngs::StdRng;

use super::habits::{COOKIE_MAX, Form, Habits, Shown};
use crate::answer::cookie::OPTION_COOKIE;
use crate::answer::reply::pad;
use crate::cache::{self, Key};

/// Largest UDP response that upstreams may send, which is not fragmented (DNS flag day 2020).
const UDP_SIZE: u16 = 1232;

/// Octets before the value of an EDNS option (RFC 6891 section 6.1.2).
const OPTION_HEAD: usize = 4;

/// Lengths of padded queries are multiples of this number of octets (RFC 8467 section 4.1).
const PADDED_LEN: usize = 128;

/// Octets of the longest query: header, name, type and class, OPT with a cookie and padding.
pub(super) const QUESTION_MAX: usize =
    (HEADER_LEN + NAME_LEN_MAX + TYPE_AND_CLASS_LEN + OPT_LEN + 2 * OPTION_HEAD + COOKIE_MAX)
        .next_multiple_of(PADDED_LEN);

/// Writes a query with its name in the case that is sent, padded if it has EDNS and is to be; returns its length.
///
/// AD does not depend on the client: it is always set, so that one response serves clients with and
/// without it (RFC 6840 section 5.7). No EDNS option of a client is forwarded: options are between
/// the client and this server.
pub(super) fn write(
    question: &Key<'_>,
    name: &NameBuf,
    form: Form,
    habits: &Habits,
    id: u16,
    padded: bool,
    frame: &mut [u8; QUESTION_MAX],
) -> usize {
    let Ok(mut builder) = Builder::new(frame, QUESTION_MAX) else {
        return 0;
    };
    let flags = Flags::default()
        .with_rd(true)
        .with_ad(true)
        .with_cd(question.cd);
    builder.header(id, flags);
    let mut option = [0; OPTION_HEAD + COOKIE_MAX];
    let option_len = if form.cookie {
        write_cookie(habits, &mut option)
    } else {
        0
    };
    let opt = Opt {
        udp_size: UDP_SIZE,
        ext_rcode: 0,
        version: 0,
        do_bit: question.do_bit,
        options: &option[..option_len],
    };
    let written = builder
        .question(name, question.rtype, question.class)
        .and_then(|()| match form.edns {
            true => builder.opt(opt),
            false => Ok(()),
        });
    let len = match written {
        Ok(()) => builder.finish(),
        // The frame has room for every query.
        Err(_) => return 0,
    };
    match padded && form.edns {
        true => pad(PADDED_LEN, option_len, len, QUESTION_MAX, frame),
        false => len,
    }
}

fn write_cookie(habits: &Habits, to: &mut [u8; OPTION_HEAD + COOKIE_MAX]) -> usize {
    let mut cookie = [0; COOKIE_MAX];
    let len = habits.cookie(&mut cookie);
    to[..2].copy_from_slice(&OPTION_COOKIE.to_be_bytes());
    // At most 40.
    to[2..OPTION_HEAD].copy_from_slice(&u16::try_from(len).unwrap_or_default().to_be_bytes());
    to[OPTION_HEAD..][..len].copy_from_slice(&cookie[..len]);
    OPTION_HEAD + len
}

/// How the question of a response matches the query with its ID at its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// Equal.
    Same,
    /// Equal except for the case of letters.
    OtherCase,
    /// No question, in a message of only a header with an error code: some servers respond so to
    /// queries that they do not understand or refuse. It shows neither the question nor a cookie.
    Bare,
    /// Another question, or none.
    Other,
}

/// Compares the question of a response with that of the query (RFC 5452 section 9.1).
pub(super) fn fit(asked: &Key<'_>, reply: &Message<'_>) -> Fit {
    match reply.question() {
        Some(question) if (question.rtype, question.class) != (asked.rtype, asked.class) => {
            Fit::Other
        }
        Some(question) if question.octets().starts_with(asked.name.as_wire()) => Fit::Same,
        Some(question) if question.name.eq_ignore_case(&asked.name.as_name()) => Fit::OtherCase,
        None if reply.bytes().len() == HEADER_LEN && is_refusal(reply.rcode()) => Fit::Bare,
        Some(_) | None => Fit::Other,
    }
}

/// Whether this response code is a failure of the upstream, so that another one is queried.
///
/// All codes except three are failures. A resolver answers a standard query with NOERROR, NXDOMAIN
/// or, if the target name of a DNAME record is too long (RFC 6672 section 2.2), YXDOMAIN. NXRRSET,
/// YXRRSET, NOTAUTH and NOTZONE belong to updates (RFC 2136 section 2.2), DSOTYPENI belongs to
/// sessions (RFC 8490), and 12 to 15 are not assigned.
pub(super) fn is_refusal(rcode: Rcode) -> bool {
    ![Rcode::NOERROR, Rcode::NXDOMAIN, Rcode::YXDOMAIN].contains(&rcode)
}

/// The contents of the OPT record of a response that the engine uses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EdnsSeen<'a> {
    /// Whether there is one.
    pub(super) present: bool,
    /// Its cookie.
    pub(super) cookie: Option<&'a [u8]>,
    /// Whether the response code is BADCOOKIE.
    pub(super) bad_cookie: bool,
}

impl<'a> EdnsSeen<'a> {
    /// Reads the OPT record; the default without a valid one.
    pub(super) fn of(reply: &Message<'a>) -> Self {
        if reply.arcount() == 0 {
            return Self::default();
        }
        let Ok(Some(opt)) = reply.opt() else {
            return Self::default();
        };
        let cookie = opt.options().find(|o| o.code == OPTION_COOKIE);
        let rcode = u16::from(opt.ext_rcode) << 4 | u16::from(reply.rcode().0);
        Self {
            present: true,
            cookie: cookie.map(|option| option.value),
            bad_cookie: rcode == BADCOOKIE,
        }
    }
}

impl EdnsSeen<'_> {
    /// What it shows of the upstream.
    pub(super) fn shown(&self) -> Shown {
        Shown {
            edns: self.present,
            cookie: self.cookie.is_some(),
        }
    }
}

/// A hash of a response that does not depend on the case, order and age of its records. `None` if
/// it is malformed.
pub(super) fn fingerprint(reply: &Message<'_>) -> Option<u64> {
    let mut sum = u64::from(reply.rcode().0);
    for record in reply.records() {
        let record = record.ok()?;
        if record.section == Section::Answer && record.rtype != Rtype::OPT {
            let mut hasher = cache::hasher();
            hasher.write_u16(record.rtype.0);
            hasher.write(record.rdata);
            sum = sum.wrapping_add(hasher.finish());
        }
    }
    Some(sum)
}

/// Randomises the case of each letter (draft-vixie-dnsext-dns0x20-00).
pub(super) fn randomise_case(name: &mut NameBuf, random: &mut StdRng) {
    // A word has one bit for each octet at a time, eight times before they repeat.
    let (mut word, mut uses) = (0_u64, 0);
    name.flip_case(|| {
        word = match uses % 8 {
            0 => random.next_u64(),
            _ => word.rotate_right(1),
        };
        uses += 1;
        word
    });
}

/// The name in lower case.
pub(super) fn lower_case(name: &NameBuf) -> NameBuf {
    let mut name = name.clone();
    name.make_lower_case();
    name
}
