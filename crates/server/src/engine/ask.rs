//! Questions to upstreams: their bytes, and whether a reply is to one of them.

use std::hash::Hasher as _;

use dns64_wire::build::Builder;
use dns64_wire::codes::{BADCOOKIE, Rcode, Rtype};
use dns64_wire::message::{Flags, HEADER_LEN, Message, OPT_LEN, Opt, Section, TYPE_AND_CLASS_LEN};
use dns64_wire::name::{NAME_LEN_MAX, NameBuf};
use rand::Rng as _;
use rand::rngs::StdRng;

use super::habits::{COOKIE_MAX, Form, Habits};
use crate::answer::cookie::OPTION_COOKIE;
use crate::cache::{self, Key};

/// Largest UDP answer that upstreams may send: what passes without fragments (DNS flag day 2020).
const UDP_SIZE: u16 = 1232;

/// Octets before the value of an EDNS option (RFC 6891 section 6.1.2).
const OPTION_HEAD: usize = 4;

/// Octets of the longest question: header, name, type and class, OPT with a cookie.
pub(super) const QUESTION_MAX: usize =
    HEADER_LEN + NAME_LEN_MAX + TYPE_AND_CLASS_LEN + OPT_LEN + OPTION_HEAD + COOKIE_MAX;

/// Writes a question with its name in the case in which it is to be asked; returns its length.
///
/// The client's AD is not passed on: it is always set, so that one answer serves clients that
/// want to know it and those that do not (RFC 6840 section 5.7). No EDNS option of a client is
/// passed on either: they are between it and this server.
pub(super) fn write(
    question: &Key<'_>,
    name: &NameBuf,
    form: Form,
    habits: &Habits,
    id: u16,
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
    match written {
        Ok(()) => builder.finish(),
        // The frame has room for every question.
        Err(_) => 0,
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

/// How the question of a reply fits that which was asked with its ID at its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// It is the same.
    Same,
    /// It is the same but for the case of its letters.
    OtherCase,
    /// There is none, in a message without anything but a response code for a failure: all that some
    /// servers say to what they do not understand or do not want to answer.
    Bare,
    /// It is another, or there is none.
    Other,
}

/// Compares the question of a reply with that which was asked (RFC 5452 section 9.1).
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

/// Whether an upstream fails a question by this response code: another may answer it.
///
/// So it does by all codes but three: a resolver answers a standard query with NOERROR, NXDOMAIN or, where a DNAME
/// record leads to a name that is too long (RFC 6672 section 2.2), YXDOMAIN. NXRRSET, YXRRSET, NOTAUTH and
/// NOTZONE are about updates (RFC 2136 section 2.2), DSOTYPENI is about sessions (RFC 8490), and 12 to 15
/// are not assigned.
pub(super) fn is_refusal(rcode: Rcode) -> bool {
    ![Rcode::NOERROR, Rcode::NXDOMAIN, Rcode::YXDOMAIN].contains(&rcode)
}

/// What the OPT record of a reply says to the engine.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EdnsSeen<'a> {
    /// There is one.
    pub(super) present: bool,
    /// Its cookie.
    pub(super) cookie: Option<&'a [u8]>,
    /// The reply is BADCOOKIE.
    pub(super) bad_cookie: bool,
}

impl<'a> EdnsSeen<'a> {
    /// Of a reply without a sound OPT record: nothing.
    pub(super) fn of(reply: &Message<'a>) -> Self {
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

/// What a reply says, in whatever case, order and age its records are: equal for equal answers.
/// `None` if it is malformed.
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

/// Leaves the case of each letter to chance (draft-vixie-dnsext-dns0x20-00).
pub(super) fn randomise_case(name: &mut NameBuf, random: &mut StdRng) {
    let mut bits = 0_u64;
    let mut i = 0;
    name.flip_case(|_| {
        if i % 64 == 0 {
            bits = random.next_u64();
        }
        let flips = bits >> (i % 64) & 1 == 1;
        i += 1;
        flips
    });
}

/// The name in lower case.
pub(super) fn lower_case(name: &NameBuf) -> NameBuf {
    let mut name = name.clone();
    name.flip_case(|letter| letter.is_ascii_uppercase());
    name
}
