//! The procedure of RFC 6147 as a pure function: from the known responses for a query to its
//! response, or to the next query to upstreams.

use dns64_wire::codes::{Class, Rtype};
use dns64_wire::name::NameBuf;

use crate::answer::asker::Asker;
use crate::answer::reverse::Reverse;
use crate::answer::stored::{Aged, Kind};
use crate::answer::synthesis::{Reason, Verdict};
use crate::answer::{reply, reverse, synthesis};
use crate::settings::dns64::Dns64;

/// The two parts that a response can be built from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The response to the question itself; for a synthesised address, to that for its IPv4
    /// address.
    First = 0,
    /// The A records of the same name.
    Second = 1,
}

/// The known parts.
#[derive(Clone, Copy, Default)]
pub(super) struct Known<'a> {
    pub(super) first: Option<Aged<'a>>,
    pub(super) second: Option<Aged<'a>>,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The response, with this length in octets.
    Answer(usize, Made),
    /// This part must be queried first.
    Need(Part),
}

/// How a response was built, for the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Made {
    Forwarded,
    Aaaa,
    Ptr,
    NotFor(Reason),
    NoA,
}

impl Made {
    /// All variants; the position of each is its note.
    pub(super) const ALL: [Self; 7] = [
        Self::Forwarded,
        Self::Aaaa,
        Self::Ptr,
        Self::NotFor(Reason::Dnssec),
        Self::NotFor(Reason::Domain),
        Self::NotFor(Reason::Translator),
        Self::NoA,
    ];

    /// A number that encodes it, with the number of responses that the response was built from.
    pub(super) fn note(self, responses: u8) -> u8 {
        // There are seven.
        let place = u8::try_from(self.place()).unwrap_or_default();
        responses << MADE_BITS | place
    }

    /// Its position among all.
    pub(super) fn place(self) -> usize {
        let mut all = Self::ALL.iter();
        all.position(|made| *made == self).unwrap_or_default()
    }

    /// Decodes a note.
    pub(super) fn from_note(note: u8) -> (Self, u8) {
        let place = note & ((1 << MADE_BITS) - 1);
        let made = Self::ALL.get(usize::from(place)).copied();
        (made.unwrap_or(Self::Forwarded), note >> MADE_BITS)
    }
}

/// Bits of a note for the way a response was built. The others have room for 31 responses, more
/// than two chains of aliases need.
const MADE_BITS: u32 = 3;

/// The plan for a query.
#[derive(Clone, Debug)]
pub(super) enum Plan {
    /// Forward it.
    Forward,
    /// It is for AAAA records, which may have to be synthesised.
    Aaaa,
    /// It is for the reverse name of a synthesised address: that of this IPv4 address is queried.
    Reverse(Box<NameBuf>),
}

impl Plan {
    /// The plan for a query of a client with or without DNS64, or the response if no upstream is
    /// needed.
    pub(super) fn new(
        asker: &Asker,
        dns64: Option<&Dns64>,
        frame: &mut [u8],
    ) -> Result<Self, usize> {
        let Some(dns64) = dns64.filter(|_| asker.class == Class::IN) else {
            // RFC 6147 section 5.1: other classes as without DNS64.
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

    /// The name in the query to upstreams.
    pub(super) fn name<'a>(&'a self, asker: &'a Asker) -> &'a NameBuf {
        match self {
            Self::Reverse(name) => name,
            Self::Forward | Self::Aaaa => &asker.name,
        }
    }

    /// Runs one step of the procedure; a response is written into `frame`.
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
            _ => Step::Answer(reply::forward(asker, first, frame), Made::Forwarded),
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
            Some(a) if !synthesis::is_proven(asker, dns64, first.stored, a.stored) => {
                let len = match first.stored.found() {
                    0 => reply::forward(asker, first, frame),
                    _ => synthesis::filtered(asker, dns64, first, frame),
                };
                Step::Answer(len, Made::NotFor(Reason::Dnssec))
            }
            Some(a) if synthesis::is_cut_off(asker, dns64, a.stored) => {
                let len = synthesis::cut_off(asker, frame);
                Step::Answer(len, Made::NotFor(Reason::Translator))
            }
            Some(a) => {
                let done = synthesis::synthesise(asker, dns64, first, a, frame);
                let made = if done.made > 0 { Made::Aaaa } else { Made::NoA };
                Step::Answer(done.len, made)
            }
        },
    }
}
