//! The prefixes of synthesised addresses that count as correct.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use dns64_wire::pref64::Pref64;

use crate::quantity::ValueError;

/// Prefixes with which a server may synthesise AAAA records. A network may have several (RFC 7050 section 3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prefixes {
    /// Every prefix of a length of RFC 6052.
    Any,
    /// The first prefix, and all others.
    Of(Pref64, Vec<Pref64>),
}

impl Prefixes {
    /// Returns the first one; `None` if all are correct.
    pub fn first(&self) -> Option<Pref64> {
        match self {
            Self::Any => None,
            Self::Of(first, _) => Some(*first),
        }
    }

    fn iter(&self) -> impl Iterator<Item = Pref64> {
        let others = match self {
            Self::Any => &[],
            Self::Of(_, others) => others.as_slice(),
        };
        self.first().into_iter().chain(others.iter().copied())
    }

    /// Returns the addresses that represent `ipv4`; none if every prefix is correct.
    pub fn embed(&self, ipv4: Ipv4Addr) -> impl Iterator<Item = Ipv6Addr> {
        self.iter().map(move |prefix| prefix.embed(ipv4))
    }

    /// Returns whether `found` represents `ipv4` with one of the prefixes.
    pub fn explain(&self, found: Ipv6Addr, ipv4: Ipv4Addr) -> bool {
        match self {
            Self::Any => Pref64::learn(found, ipv4).next().is_some(),
            Self::Of(..) => self.embed(ipv4).any(|address| address == found),
        }
    }

    /// Returns whether an address has one of the prefixes; if every prefix is correct, it always has.
    pub fn contain(&self, address: Ipv6Addr) -> bool {
        let is_any = matches!(self, Self::Any);
        is_any || self.iter().any(|prefix| prefix.extract(address).is_some())
    }

    /// Returns the prefixes with which a server synthesised the addresses that it gave for these names. An address that
    /// several prefixes explain counts if one of them also explains the answer for another name (RFC 7050 section 3).
    /// `None` if there is an answer that none explains.
    pub fn learn(answers: &[(Ipv4Addr, Vec<Ipv6Addr>)]) -> Option<Self> {
        let explains = |prefix: &Pref64, (name, found): &(Ipv4Addr, Vec<Ipv6Addr>)| {
            found.contains(&prefix.embed(*name))
        };
        let mut learnt: Vec<Pref64> = Vec::new();
        for (k, (name, found)) in answers.iter().enumerate() {
            for address in found {
                let candidates: Vec<_> = Pref64::learn(*address, *name).collect();
                let is_sole = candidates.len() == 1;
                let is_certain = |prefix: &Pref64| {
                    let mut others = answers.iter().enumerate().filter(|(n, _)| *n != k);
                    is_sole || others.any(|(_, other)| explains(prefix, other))
                };
                let certain = candidates.into_iter().filter(is_certain);
                let new: Vec<_> = certain.filter(|it| !learnt.contains(it)).collect();
                learnt.extend(new);
            }
        }
        let is_explained = |answer| learnt.iter().any(|prefix| explains(prefix, answer));
        if !answers.iter().all(is_explained) {
            return None;
        }
        let mut learnt = learnt.into_iter();
        learnt.next().map(|first| Self::Of(first, learnt.collect()))
    }
}

impl From<Pref64> for Prefixes {
    fn from(prefix: Pref64) -> Self {
        Self::Of(prefix, Vec::new())
    }
}

impl fmt::Display for Prefixes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str(ANY),
            Self::Of(first, others) => {
                first.fmt(f)?;
                others.iter().try_for_each(|other| write!(f, ",{other}"))
            }
        }
    }
}

impl FromStr for Prefixes {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if text == ANY {
            return Ok(Self::Any);
        }
        let parse = |text: &str| {
            let prefix = text.trim().parse::<Pref64>();
            prefix.map_err(|error| ValueError(error.to_string()))
        };
        let mut all = text.split(',').map(parse);
        // A text has at least one part.
        let first = all.next().unwrap_or_else(|| parse(text))?;
        Ok(Self::Of(first, all.collect::<Result<_, _>>()?))
    }
}

const ANY: &str = "any";

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(name: &str, found: &[&str]) -> (Ipv4Addr, Vec<Ipv6Addr>) {
        let found = found.iter().map(|it| it.parse().unwrap());
        (name.parse().unwrap(), found.collect())
    }

    fn learnt(answers: &[(Ipv4Addr, Vec<Ipv6Addr>)]) -> Option<String> {
        Prefixes::learn(answers).map(|prefixes| prefixes.to_string())
    }

    #[test]
    fn all_prefixes_of_answers_are_learnt() {
        let both = |name, last| {
            let addresses = [
                format!("64:ff9b::a00:{last}"),
                format!("2001:db8:64::a00:{last}"),
            ];
            answer(name, &[&addresses[0], &addresses[1]])
        };
        let at_once = [both("10.0.0.1", 1), both("10.0.0.2", 2)];
        let two = Some("64:ff9b::/96,2001:db8:64::/96".to_owned());
        assert_eq!(learnt(&at_once), two);
        let in_turn = [
            answer("10.0.0.1", &["64:ff9b::a00:1"]),
            answer("10.0.0.2", &["2001:db8:64::a00:2"]),
        ];
        assert_eq!(learnt(&in_turn), two);
    }

    #[test]
    fn address_with_two_explanations_needs_another_name() {
        // The address at the position of /32 and at that of /96.
        let twice = answer("192.0.2.33", &["2001:db8:c000:221::192.0.2.33"]);
        assert_eq!(learnt(std::slice::from_ref(&twice)), None);
        let other = answer("192.0.2.34", &["2001:db8:c000:221::192.0.2.34"]);
        let one = Some("2001:db8:c000:221::/96".to_owned());
        assert_eq!(learnt(&[twice, other]), one);
    }

    #[test]
    fn answer_without_explanation_teaches_nothing() {
        let right = answer("10.0.0.1", &["64:ff9b::a00:1"]);
        let wrong = answer("10.0.0.2", &["64:ff9b::a00:1"]);
        assert_eq!(learnt(&[right, wrong]), None);
        assert_eq!(learnt(&[]), None);
    }

    #[test]
    fn set_is_a_list_or_any() {
        for text in ["any", "64:ff9b::/96", "64:ff9b::/96,2001:db8::/32"] {
            let prefixes: Prefixes = text.parse().unwrap();
            assert_eq!(prefixes.to_string(), text);
        }
        for bad in ["", ",", "64:ff9b::/96,", "any,64:ff9b::/96", "64:ff9b::/95"] {
            assert!(bad.parse::<Prefixes>().is_err(), "{bad}");
        }
    }

    #[test]
    fn address_is_explained_by_a_prefix_of_the_set() {
        let ipv4 = Ipv4Addr::new(10, 0, 0, 1);
        let set: Prefixes = "64:ff9b::/96, 2001:db8::/32".parse().unwrap();
        for (address, by_set, by_any) in [
            ("64:ff9b::a00:1", true, true),
            ("2001:db8:a00:1::", true, true),
            ("2001:db8:64::a00:1", false, true),
            ("64:ff9b::a00:2", false, false),
        ] {
            let address = address.parse().unwrap();
            let explained = [&set, &Prefixes::Any].map(|it| it.explain(address, ipv4));
            assert_eq!(explained, [by_set, by_any], "{address}");
        }
    }
}
