//! Order of use of the names of a range: from one of them to the last, then from the first on.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::namespace::Cidr;

/// Names of a range, counted from one of them around the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ring {
    cidr: Cidr,
    names: u64,
    begin: u64,
}

impl Ring {
    /// Takes the first `names` names of `cidr`, at most all, counted from index `begin` on. A larger `begin` is reduced
    /// to one of their indices.
    pub fn new(cidr: Cidr, names: u64, begin: u64) -> Self {
        let names = names.min(cidr.names());
        Self {
            cidr,
            names,
            begin: begin % names.max(1),
        }
    }

    /// Takes all names of `cidr` in order.
    pub fn whole(cidr: Cidr) -> Self {
        Self::new(cidr, cidr.names(), 0)
    }

    /// The range.
    pub fn cidr(&self) -> Cidr {
        self.cidr
    }

    /// Number of names.
    pub fn names(&self) -> u64 {
        self.names
    }

    /// Index in the range of the first name.
    pub fn begin(&self) -> u64 {
        self.begin
    }

    /// Returns the index in the range of name `number`, which must be below [`Ring::names`].
    pub fn index(&self, number: u64) -> u64 {
        let index = self.begin + number;
        match index < self.names {
            true => index,
            false => index - self.names,
        }
    }

    /// Returns the number of the name at this index of the range; `None` if it is not in the ring.
    pub fn number(&self, index: u64) -> Option<u64> {
        let number = match index >= self.begin {
            true => index - self.begin,
            false => index + self.names - self.begin,
        };
        (index < self.names).then_some(number)
    }

    /// Returns the address of name `number`, which must be below [`Ring::names`].
    pub fn address(&self, number: u64) -> Ipv4Addr {
        self.cidr.address(self.index(number))
    }

    /// Returns the number of the name of `address`; `None` if it is not in the ring.
    pub fn number_of(&self, address: Ipv4Addr) -> Option<u64> {
        self.number(self.cidr.index(address)?)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn last_name_is_followed_by_the_first() {
        let ring = Ring::new("10.0.0.0/29".parse().unwrap(), 6, 4);
        let indices: Vec<u64> = (0..6).map(|number| ring.index(number)).collect();
        assert_eq!(indices, [4, 5, 0, 1, 2, 3]);
        assert_eq!(ring.number_of(Ipv4Addr::new(10, 0, 0, 6)), None);
        assert_eq!(ring.number_of(Ipv4Addr::new(10, 0, 0, 8)), None);
        let none = Ring::new("10.0.0.0/29".parse().unwrap(), 0, 4);
        assert_eq!(none.number(0), None);
    }

    proptest! {
        #[test]
        fn each_name_has_one_number(length in 20_u8..=32, names in 1_u64..5000, begin: u64) {
            let cidr: Cidr = format!("0.0.0.0/{length}").parse().unwrap();
            let ring = Ring::new(cidr, names, begin);
            let mut seen = vec![false; usize::try_from(ring.names()).unwrap()];
            for number in 0..ring.names() {
                let address = ring.address(number);
                prop_assert_eq!(ring.number_of(address), Some(number));
                let index = usize::try_from(cidr.index(address).unwrap()).unwrap();
                prop_assert!(!std::mem::replace(&mut seen[index], true));
            }
        }
    }
}
