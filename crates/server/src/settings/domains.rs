//! Values by domain.

use std::collections::HashMap;

use dns64_wire::name::{NAME_LEN_MAX, NameBuf};

/// Values by domain, which stands for all names below it as well; the longest domain that a name is in applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domains<T> {
    /// Indexed by lower-case name, uncompressed.
    values: HashMap<Vec<u8>, T>,
    /// Octets of the longest of these names: no longer suffix of a name is looked up.
    longest: usize,
}

impl<T> Default for Domains<T> {
    fn default() -> Self {
        Self {
            values: HashMap::new(),
            longest: 0,
        }
    }
}

impl<T> Domains<T> {
    /// Sets the value of a domain. Returns the one before.
    pub fn insert(&mut self, domain: &NameBuf, value: T) -> Option<T> {
        let wire = domain.as_wire().to_ascii_lowercase();
        self.longest = self.longest.max(wire.len());
        self.values.insert(wire, value)
    }

    /// The same domains, and others of which it has none.
    #[must_use]
    pub fn or(mut self, others: &Self) -> Self
    where
        T: Clone,
    {
        for (domain, value) in &others.values {
            let own = self.values.entry(domain.clone());
            own.or_insert_with(|| value.clone());
        }
        self.longest = self.longest.max(others.longest);
        self
    }

    /// Whether there is no domain.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The value of exactly this domain.
    pub fn exact(&self, domain: &NameBuf) -> Option<&T> {
        self.values.get(&domain.as_wire().to_ascii_lowercase())
    }

    /// The value for a name, and the octets of its domain.
    pub fn get(&self, name: &NameBuf) -> Option<(usize, &T)> {
        if self.is_empty() {
            return None;
        }
        let mut octets = [0; NAME_LEN_MAX];
        let wire = &mut octets[..name.as_wire().len()];
        wire.copy_from_slice(name.as_wire());
        wire.make_ascii_lowercase();
        let mut at = 0;
        loop {
            let suffix = &wire[at..];
            if suffix.len() <= self.longest
                && let Some(value) = self.values.get(suffix)
            {
                return Some((suffix.len(), value));
            }
            match wire[at] {
                0 => return None,
                len => at += 1 + usize::from(len),
            }
        }
    }

    /// All values, in any order.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.values.values()
    }

    /// All domains and their values, in any order.
    pub fn iter(&self) -> impl Iterator<Item = (NameBuf, &T)> {
        let all = self.values.iter();
        all.filter_map(|(wire, value)| Some((NameBuf::from_wire(wire).ok()?, value)))
    }
}

impl<T> FromIterator<(NameBuf, T)> for Domains<T> {
    fn from_iter<I: IntoIterator<Item = (NameBuf, T)>>(all: I) -> Self {
        let mut domains = Self::default();
        for (domain, value) in all {
            domains.insert(&domain, value);
        }
        domains
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> NameBuf {
        text.parse().unwrap()
    }

    #[test]
    fn longest_domain_applies_in_any_case() {
        let domains: Domains<u8> = [("example", 1), ("Corp.example", 2)]
            .map(|(domain, value)| (name(domain), value))
            .into_iter()
            .collect();
        for (text, expected) in [
            ("example", Some((9, &1))),
            ("www.EXAMPLE", Some((9, &1))),
            ("corp.example", Some((14, &2))),
            ("a.b.CORP.example", Some((14, &2))),
            ("uncorp.example", Some((9, &1))),
            ("notexample", None),
            (".", None),
        ] {
            assert_eq!(domains.get(&name(text)), expected, "{text}");
        }
        assert_eq!(domains.exact(&name("CORP.example")), Some(&2));
        assert_eq!(domains.exact(&name("a.corp.example")), None);
    }

    proptest! {
        /// The domain that applies is the longest of those that the name is in.
        #[test]
        fn applying_domain_is_the_longest_one_that_contains_the_name(
            domains in prop::collection::hash_map("([ab]\\.){0,4}", any::<u8>(), 0..8),
            asked in "([abAB]\\.){0,6}",
        ) {
            let text = |labels: &str| if labels.is_empty() { ".".to_owned() } else { labels.to_owned() };
            let all = domains.iter().map(|(domain, value)| (name(&text(domain)), *value));
            let map: Domains<u8> = all.clone().collect();
            let asked = name(&text(&asked));
            let holding = all.filter(|(domain, _)| asked.as_name().is_within(&domain.as_name()));
            let longest = holding.max_by_key(|(domain, _)| domain.as_wire().len());
            let longest = longest.map(|(domain, value)| (domain.as_wire().len(), value));
            prop_assert_eq!(map.get(&asked).map(|(len, value)| (len, *value)), longest);
        }
    }
}
