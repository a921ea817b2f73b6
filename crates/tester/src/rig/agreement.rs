//! Compares the two halves of the Tester before the first trial: the answers of the server, which follow from the zone of
//! the authority behind it, and those that the Measurer expects.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::RigError;
use super::equipment::{Client, PROBE_NS};
use super::running::{Asker, BURST_QPS};
use crate::lab::{Blame, LabError};
use crate::namespace::{Prefixes, own_aaaa};
use crate::naming::{AAAA_SHARE, ADDRESSES, CNAME_SHARE, Message, PREF64};
use crate::post::probe::ProbeError;

/// Number of names of a kind without an answer after which no more are queried. A server that answers some loses others in
/// trials as well.
const FAILURES_MAX: u32 = 3;

/// A name and the addresses in the answer for it.
type Answered = (Ipv4Addr, Vec<Ipv6Addr>);

impl<C: Client> Asker<C> {
    /// Queries names of each kind once, and sets the prefixes to those given, or to those that the answers show.
    ///
    /// # Errors
    ///
    /// The server does not answer, or not as the trials expect; the text names the setting to correct.
    pub(super) fn agree(&mut self, given: Option<Prefixes>) -> Result<(), RigError> {
        let [without, with] = [false, true].map(|has_aaaa| self.answers(has_aaaa));
        let (synthesised, own) = (without?, with?);
        // A given prefix can be that of the AAAA records.
        let is_given = |own, name| given.as_ref().is_some_and(|it| it.explain(own, name));
        for (name, found) in synthesised.iter().chain(&own) {
            let own = own_aaaa(*name);
            let has_own = self.names.zone().has_aaaa(*name);
            if has_own != found.contains(&own) && (has_own || !is_given(own, *name)) {
                return Err(self.other_share(*name, found).into());
            }
        }
        let learnt = Prefixes::learn(&synthesised);
        self.pref64 = match (given, &learnt) {
            (Some(given), _) => given,
            (None, Some(learnt)) => learnt.clone(),
            // Every name has its own AAAA.
            (None, None) if synthesised.is_empty() => return Ok(()),
            (None, None) => return Err(self.no_prefix(&synthesised).into()),
        };
        let expected = self.expected();
        let is_right = |(name, found): &&Answered| {
            found.iter().any(|address| expected.accept(*address, *name))
        };
        match synthesised.iter().find(|answer| !is_right(answer)) {
            Some((name, found)) => Err(self.other_prefix(*name, found, learnt).into()),
            None => Ok(()),
        }
    }

    /// Checks by a burst whether the answers have all addresses and CNAME records of their names.
    ///
    /// # Errors
    ///
    /// Some have not: the authority behind the server serves other records.
    pub(super) fn agree_on_records(&mut self) -> Result<(), RigError> {
        let records = self.names.zone().records;
        if records.are_plain() {
            return Ok(());
        }
        let (names, queries) = (self.expected(), self.names.burst_len());
        let wrong = self.once(names, queries, BURST_QPS)?.answers.wrong;
        if wrong == 0 {
            return Ok(());
        }
        let server = self.server;
        let other = Blame::Server.error(Message::new(|naming| {
            let [addresses, share] = [ADDRESSES, CNAME_SHARE].map(|name| naming.name(name));
            format!(
                "{wrong} of {queries} answers of {server} lack addresses or CNAME records that their names have by {addresses} \
                 and {share}; give the authority behind it the same ({}), or correct them",
                records.flags()
            )
        }));
        Err(other.into())
    }

    /// Returns the answers for the names of a kind; none if there are no such names.
    fn answers(&self, has_aaaa: bool) -> Result<Vec<Answered>, ProbeError> {
        let (mut answers, mut failures) = (Vec::new(), 0);
        let mut last = None;
        for name in self.names.sample(has_aaaa) {
            match self.client.aaaa(name, PROBE_NS) {
                Ok(found) => answers.push((name, found)),
                Err(error) if error.blame() == Blame::Machine => return Err(error),
                Err(error) => {
                    failures += 1;
                    last = Some(error);
                }
            }
            if failures == FAILURES_MAX {
                break;
            }
        }
        match last {
            Some(error) if answers.is_empty() => Err(error),
            _ => Ok(answers),
        }
    }

    fn other_share(&self, name: Ipv4Addr, found: &[Ipv6Addr]) -> LabError {
        let (server, zone, found) = (self.server, self.names.zone(), list(found));
        let (named, share, own) = (zone.name(name), zone.aaaa_share, own_aaaa(name));
        let (verb, without) = match zone.has_aaaa(name) {
            true => ("has an", "without its AAAA record"),
            false => ("has no", "with the AAAA record"),
        };
        Blame::Server.error(Message::new(|naming| {
            let setting = naming.value(AAAA_SHARE, share);
            format!(
                "{named} {verb} AAAA record by {setting}, and {server} answers {without} {own}: {found}; give the \
                 authority behind it the same share (`dns64bench authority --aaaa-share {share}`), or correct {}",
                naming.name(AAAA_SHARE)
            )
        }))
    }

    fn no_prefix(&self, answers: &[Answered]) -> LabError {
        let server = self.server;
        let all: Vec<_> = answers
            .iter()
            .flat_map(|(_, found)| found)
            .copied()
            .collect();
        let all = list(&all);
        Blame::Server.error(Message::new(|naming| {
            let name = naming.name(PREF64);
            format!(
                "no prefixes explain the AAAA records of {server} ({all}); give them with {name}"
            )
        }))
    }

    fn other_prefix(&self, name: Ipv4Addr, found: &[Ipv6Addr], used: Option<Prefixes>) -> LabError {
        let (server, named, found) = (self.server, self.names.zone().name(name), list(found));
        let (given, used) = (&self.pref64, used.map(|it| it.to_string()));
        let used = used.unwrap_or_else(|| "auto".to_owned());
        Blame::Server.error(Message::new(|naming| {
            format!(
                "{server} answers {found} for {named}, which has none of the prefixes of {}; give {}",
                naming.value(PREF64, given),
                naming.value(PREF64, &used)
            )
        }))
    }
}

fn list(addresses: &[Ipv6Addr]) -> String {
    let texts: Vec<_> = addresses.iter().map(Ipv6Addr::to_string).collect();
    texts.join(", ")
}
