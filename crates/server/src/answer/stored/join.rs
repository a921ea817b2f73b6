//! Combines the responses of an incomplete CNAME chain.

use dns64_wire::Truncated;
use dns64_wire::build::Builder;
use dns64_wire::codes::{Rcode, Rtype};
use dns64_wire::message::{HEADER_LEN, Message, Record, Section};
use dns64_wire::name::{NAME_LEN_MAX, Name};

use super::accept::{MESSAGE_LEN_MAX, offset};
use super::{Aged, Asked, Kind, Malformed, Stored, TtlBounds};
use crate::answer::copy::{Copier, QUESTION_AT};

/// Largest number of aliases that are followed with another query, the default of BIND 9 and
/// Unbound (`max-query-restarts` of both).
pub const FOLLOWED_MAX: usize = 11;

impl Stored {
    /// Whether the name at the end of the aliases can be queried: the chain is neither a loop nor
    /// too long.
    pub fn leads_on(&self) -> bool {
        let (message, end, mut followed) = (self.message(), self.chain_end(), 0);
        let records = self.aliases(&message).map_while(Result::ok);
        for alias in records.filter(|record| record.rtype == Rtype::CNAME) {
            followed += 1;
            if followed > FOLLOWED_MAX || alias.name.eq_ignore_case(&end) {
                return false;
            }
        }
        followed > 0
    }

    /// A failure of the same query.
    pub fn failed(&self, rcode: Rcode, extended_error: Option<u16>) -> Self {
        let message = self.message();
        let Some(question) = message.question() else {
            unreachable!("a stored message has a question");
        };
        let asked = Asked {
            name: &question.name.to_buf(),
            rtype: question.rtype,
            class: question.class,
        };
        Self::failure(&asked, rcode, extended_error)
    }

    /// What a response that a name does not exist is for a question for this name or one below it, of any type.
    pub fn denial_of(&self, asked: &Asked<'_>) -> Self {
        let mut frame = vec![0; self.bytes().len() + NAME_LEN_MAX];
        let stored = self.write_denial(asked, &mut frame).ok().and_then(|len| {
            let message = Message::parse(&frame[..len]).ok()?;
            Self::accept(&message, &TtlBounds::NONE).ok()
        });
        match stored {
            Some(stored) => stored.with_extended_error(self.extended_error()),
            None => Self::failure(asked, Rcode::SERVFAIL, None),
        }
    }

    fn write_denial(&self, asked: &Asked<'_>, frame: &mut [u8]) -> Result<usize, Truncated> {
        let (message, room) = (self.message(), frame.len());
        let mut to = Builder::new(frame, room)?;
        to.header(0, message.flags());
        to.question(asked.name, asked.rtype, asked.class)?;
        let labels_len = asked.name.as_wire().len() - self.question_name().len();
        let mut copier = Copier::new(&message, Some(offset(HEADER_LEN + labels_len)?));
        for record in self.behind_answer(&message).map_while(Result::ok) {
            copier.record(&mut to, &record, record.ttl)?;
        }
        Ok(to.finish())
    }
}

impl Aged<'_> {
    /// This response up to the first alias whose target is foreign, without what it says of that name; `None` if there
    /// is no such alias. All TTLs are the remaining ones.
    pub fn before_alias_to(&self, is_foreign: impl Fn(&Name<'_>) -> bool) -> Option<Stored> {
        let message = self.stored.message();
        let (mut kept, mut is_over) = (0, false);
        for record in self.stored.aliases(&message).map_while(Result::ok) {
            // The signatures of an alias follow it.
            if is_over && record.rtype != Rtype::RRSIG {
                break;
            }
            kept += 1;
            let target = Name::parse(message.bytes(), record.rdata_offset);
            is_over |=
                record.rtype == Rtype::CNAME && target.is_ok_and(|(name, _)| is_foreign(&name));
        }
        if !is_over || self.stored.is_failure() {
            return None;
        }
        // It is not longer than the whole.
        let mut frame = vec![0; message.bytes().len()];
        let stored = self.write_aliases(kept, &mut frame).ok().and_then(|len| {
            let message = Message::parse(&frame[..len]).ok()?;
            Stored::accept(&message, &TtlBounds::NONE).ok()
        });
        stored.or_else(|| Some(self.stored.failed(Rcode::SERVFAIL, None)))
    }

    fn write_aliases(&self, count: usize, frame: &mut [u8]) -> Result<usize, Truncated> {
        let message = self.stored.message();
        let room = frame.len();
        let mut to = Builder::new(frame, room)?;
        to.header(0, message.flags().with_rcode(Rcode::NOERROR));
        if let Some(question) = message.question() {
            to.question_raw(&question)?;
        }
        let mut copier = Copier::new(&message, QUESTION_AT);
        let records = self.stored.aliases(&message).map_while(Result::ok);
        for record in records.take(count) {
            copier.record(&mut to, &record, self.ttl(record.ttl))?;
        }
        Ok(to.finish())
    }

    /// Combines this response, whose chain is incomplete, with the response for its end. All TTLs
    /// are the remaining ones; AD is set if both responses have it. A failure of the second query
    /// is a failure of the first.
    pub fn continued(&self, next: &Aged<'_>) -> Stored {
        let extended_error = next.extended_error().or(self.extended_error());
        if let Kind::Failure(rcode) = next.stored.kind() {
            return self.stored.failed(rcode, extended_error);
        }
        match self.joined(next) {
            Ok(stored) => stored.with_extended_error(extended_error),
            Err(_) => self.stored.failed(Rcode::SERVFAIL, extended_error),
        }
    }

    fn joined(&self, next: &Aged<'_>) -> Result<Stored, Malformed> {
        let mut frame = vec![0; MESSAGE_LEN_MAX];
        let len = self
            .write_joined(next, &mut frame)
            .map_err(|_| Malformed::TooLong)?;
        let message = Message::parse(&frame[..len])?;
        // The TTLs of both were limited when they were accepted.
        Stored::accept(&message, &TtlBounds::NONE)
    }

    fn write_joined(&self, next: &Aged<'_>, frame: &mut [u8]) -> Result<usize, Truncated> {
        let (first, second) = (self.stored.message(), next.stored.message());
        let mut to = Builder::new(frame, MESSAGE_LEN_MAX)?;
        let flags = first.flags().with_rcode(next.stored.rcode());
        to.header(0, flags.with_ad(first.ad() && second.ad()));
        if let Some(question) = first.question() {
            to.question_raw(&question)?;
        }
        let mut copier = Copier::new(&first, QUESTION_AT);
        for part in [Section::Answer, Section::Authority, Section::Additional] {
            for (aged, message) in [(self, &first), (next, &second)] {
                copier.switch(message);
                for record in section(aged, part) {
                    copier.record(&mut to, &record, aged.ttl(record.ttl))?;
                }
            }
        }
        Ok(to.finish())
    }
}

/// The records of one section of a response.
fn section<'a>(aged: &Aged<'a>, section: Section) -> impl Iterator<Item = Record<'a>> + use<'a> {
    let records = aged.stored.message().records().map_while(Result::ok);
    records.filter(move |record| record.section == section)
}
