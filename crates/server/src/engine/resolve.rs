//! The procedure of RFC 6147 as a pure function: from what is known of a query to its answer, or
//! to what has to be asked first.

use dns64_wire::codes::{Class, Rtype};
use dns64_wire::name::NameBuf;

use crate::answer::asker::Asker;
use crate::answer::reverse::Reverse;
use crate::answer::stored::{Aged, Kind};
use crate::answer::synthesis::{Reason, Verdict};
use crate::answer::{reply, reverse, service, synthesis};
use crate::settings::dns64::Dns64;

/// The two things that an answer can be made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The answer to the question itself; for a synthesised address, that of its IPv4 address.
    First = 0,
    /// The A records of the same name.
    Second = 1,
}

/// What is known so far.
#[derive(Clone, Copy, Default)]
pub(super) struct Known<'a> {
    pub(super) first: Option<Aged<'a>>,
    pub(super) second: Option<Aged<'a>>,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The answer, of this many octets.
    Answer(usize, Made),
    /// This has to be known first.
    Need(Part),
}

/// How an answer was made, for the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Made {
    Forwarded,
    Aaaa,
    Ptr,
    Svcb,
    NotFor(Reason),
    NoA,
}

impl Made {
    /// All of them; the place of each is its note.
    pub(super) const ALL: [Self; 7] = [
        Self::Forwarded,
        Self::Aaaa,
        Self::Ptr,
        Self::Svcb,
        Self::NotFor(Reason::Dnssec),
        Self::NotFor(Reason::Domain),
        Self::NoA,
    ];

    /// A number to keep it as, with the number of responses that the answer was made of.
    pub(super) fn note(self, responses: u8) -> u8 {
        // One of seven.
        let place = u8::try_from(self.place()).unwrap_or_default();
        responses << MADE_BITS | place
    }

    /// Its place among all.
    pub(super) fn place(self) -> usize {
        let mut all = Self::ALL.iter();
        all.position(|made| *made == self).unwrap_or_default()
    }

    /// What a note says.
    pub(super) fn from_note(note: u8) -> (Self, u8) {
        let place = note & ((1 << MADE_BITS) - 1);
        let made = Self::ALL.get(usize::from(place)).copied();
        (made.unwrap_or(Self::Forwarded), note >> MADE_BITS)
    }
}

/// Bits of a note for how an answer was made; the rest has room for 31 responses, more than two chains
/// of aliases are made of.
const MADE_BITS: u32 = 3;

/// What is done with a query.
#[derive(Clone, Debug)]
pub(super) enum Plan {
    /// It is passed on.
    Forward,
    /// It asks for AAAA records, which may have to be made.
    Aaaa,
    /// It asks for the name of a synthesised address: that of this IPv4 address is asked for.
    Reverse(Box<NameBuf>),
}

impl Plan {
    /// The plan for a query of a client with or without DNS64, and the answer if there is one
    /// already.
    pub(super) fn new(
        asker: &Asker,
        dns64: Option<&Dns64>,
        frame: &mut [u8],
    ) -> Result<Self, usize> {
        let Some(dns64) = dns64.filter(|_| asker.class == Class::IN) else {
            // RFC 6147 section 5.1: other classes as if DNS64 were not there.
            return Ok(Self::Forward);
        };
        match asker.rtype {
            Rtype::AAAA => Ok(Self::Aaaa),
            Rtype::PTR => match reverse::target(asker, dns64) {
                Some(Reverse::Local(name)) => Err(reverse::local(asker, name, frame)),
                Some(Reverse::Alias(name)) => Ok(Self::Reverse(Box::new(name))),
                None => Ok(Self::Forward),
            },
            _ => Ok(Self::Forward),
        }
    }

    /// The name that is asked for.
    pub(super) fn name<'a>(&'a self, asker: &'a Asker) -> &'a NameBuf {
        match self {
            Self::Reverse(name) => name,
            Self::Forward | Self::Aaaa => &asker.name,
        }
    }

    /// One step of the procedure; an answer is written into `frame`.
    pub(super) fn step(
        &self,
        asker: &Asker,
        dns64: Option<&Dns64>,
        known: &Known<'_>,
        frame: &mut [u8],
    ) -> Step {
        let Some(first) = known.first else {
            return Step::Need(Part::First);
        };
        match (self, dns64) {
            (Self::Reverse(name), _) => {
                let made = match first.stored.kind() {
                    Kind::Positive => Made::Ptr,
                    _ => Made::Forwarded,
                };
                Step::Answer(reverse::alias(asker, name, first, frame), made)
            }
            (Self::Aaaa, Some(dns64)) => aaaa(asker, dns64, first, known.second, frame),
            (_, dns64) => {
                let with_addresses =
                    dns64.and_then(|dns64| service::with_addresses(asker, dns64, first, frame));
                match with_addresses {
                    Some(len) => Step::Answer(len, Made::Svcb),
                    None => Step::Answer(reply::forward(asker, first, frame), Made::Forwarded),
                }
            }
        }
    }
}

fn aaaa(
    asker: &Asker,
    dns64: &Dns64,
    first: Aged<'_>,
    second: Option<Aged<'_>>,
    frame: &mut [u8],
) -> Step {
    match synthesis::judge(asker, dns64, first.stored) {
        Verdict::Native => Step::Answer(reply::forward(asker, first, frame), Made::Forwarded),
        Verdict::No(why) => Step::Answer(reply::forward(asker, first, frame), Made::NotFor(why)),
        Verdict::Filtered => Step::Answer(
            synthesis::filtered(asker, dns64, first, frame),
            Made::Forwarded,
        ),
        Verdict::NeedsA => match second {
            None => Step::Need(Part::Second),
            Some(a) => {
                let done = synthesis::synthesise(asker, dns64, first, a, frame);
                let made = if done.made > 0 { Made::Aaaa } else { Made::NoA };
                Step::Answer(done.len, made)
            }
        },
    }
}
