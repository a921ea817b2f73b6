//! The DNS64 function for one group of clients (RFC 6147).

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use dns64_wire::name::{Name, NameBuf};
use dns64_wire::pref64::Pref64;
use ipnet::Ipv4Net;

use super::nets::NetSet;

/// How AAAA records are made for one group of clients.
#[derive(Clone, Debug)]
pub struct Dns64 {
    /// The prefix for IPv4 addresses that no range of `ranges` holds; `None`: nothing is made.
    pub prefix: Option<Pref64>,
    /// IPv4 ranges with a prefix of their own, or with none (RFC 6147 section 5.1.7). They do
    /// not overlap.
    pub ranges: Vec<(Ipv4Net, Option<Pref64>)>,
    /// AAAA records in these ranges are treated as absent (RFC 6147 section 5.1.4).
    pub exclude_aaaa: NetSet,
    /// Whether the Well-Known Prefix may stand for IPv4 addresses that are not global, which
    /// RFC 6052 section 3.1 forbids.
    pub well_known_private: bool,
    /// Domains with a rule of their own.
    pub domains: DomainRules,
    /// Whether an answer is made for DO=1 where the AAAA answer came with DNSSEC records.
    pub break_dnssec: bool,
    /// How names of synthesised addresses are looked up.
    pub ptr: Ptr,
    /// Whether this server answers for `ipv4only.arpa` itself (RFC 8880).
    pub ipv4only: bool,
    /// Whether SVCB and HTTPS answers get AAAA records for their A records (RFC 9460 section
    /// 4.2.1).
    pub svcb: bool,
    /// Whether synthesised answers are marked by the extended error 4 (RFC 8914 section 4.5).
    pub mark_synthesised: bool,
}

impl Dns64 {
    /// The address that stands for `ipv4` under a name with this rule; `None` if none is to be
    /// made.
    pub fn embed(&self, ipv4: Ipv4Addr, rule: DomainRule) -> Option<Ipv6Addr> {
        let range = self.ranges.iter().find(|(net, _)| net.contains(&ipv4));
        let prefix = match range {
            Some((_, prefix)) => *prefix,
            None => rule.prefix.or(self.prefix),
        }?;
        let allowed = prefix != Pref64::WELL_KNOWN || self.well_known_private || is_global(ipv4);
        allowed.then(|| prefix.embed(ipv4))
    }

    /// All the prefixes in use.
    pub fn prefixes(&self) -> impl Iterator<Item = Pref64> {
        let ranges = self.ranges.iter().filter_map(|(_, prefix)| *prefix);
        self.prefix
            .into_iter()
            .chain(ranges)
            .chain(self.domains.prefixes())
    }

    /// The IPv4 address that a synthesised address stands for: under any prefix in use or the
    /// Well-Known Prefix (RFC 6147 section 5.3.1).
    pub fn extract(&self, ipv6: Ipv6Addr) -> Option<Ipv4Addr> {
        self.prefixes()
            .chain([Pref64::WELL_KNOWN])
            .find_map(|prefix| prefix.extract(ipv6))
    }

    /// Whether an AAAA record is to be treated as absent.
    pub fn excludes(&self, aaaa: Ipv6Addr) -> bool {
        self.exclude_aaaa.contains_bits(aaaa)
    }
}

/// How names of synthesised addresses are looked up (RFC 6147 section 5.3.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ptr {
    /// By the name of the IPv4 address: a CNAME into `in-addr.arpa`.
    Cname,
    /// Always with this name.
    Local(NameBuf),
}

/// What is done for a domain and all names below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DomainRule {
    /// What is done.
    pub action: DomainAction,
    /// A prefix for this domain only, for addresses that no IPv4 range gives one.
    pub prefix: Option<Pref64>,
}

/// What is done for a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DomainAction {
    /// AAAA records are made where there are none.
    Include,
    /// None are made.
    Exclude,
    /// They are made even where there are AAAA records, which are left out.
    Force,
}

/// Rules by domain; the longest name that matches is taken.
#[derive(Clone, Debug)]
pub struct DomainRules {
    /// By lower-case name, uncompressed.
    rules: HashMap<Vec<u8>, DomainRule>,
    /// For all other names.
    default: DomainRule,
}

impl Default for DomainRules {
    fn default() -> Self {
        Self::new([])
    }
}

impl DomainRules {
    /// Rules for these domains. Where one of them includes a domain, all other names are
    /// excluded.
    pub fn new(rules: impl IntoIterator<Item = (NameBuf, DomainRule)>) -> Self {
        let rules: HashMap<Vec<u8>, DomainRule> = rules
            .into_iter()
            .map(|(name, rule)| (name.as_wire().to_ascii_lowercase(), rule))
            .collect();
        let includes = rules.values().any(|r| r.action == DomainAction::Include);
        let default = DomainRule {
            action: if includes {
                DomainAction::Exclude
            } else {
                DomainAction::Include
            },
            prefix: None,
        };
        Self { rules, default }
    }

    /// The rule for a name.
    pub fn rule(&self, name: &Name<'_>) -> DomainRule {
        if self.rules.is_empty() {
            return self.default;
        }
        let wire = name.to_buf().as_wire().to_ascii_lowercase();
        let mut at = 0;
        loop {
            if let Some(rule) = self.rules.get(&wire[at..]) {
                return *rule;
            }
            match wire[at] {
                0 => return self.default,
                len => at += 1 + usize::from(len),
            }
        }
    }

    fn prefixes(&self) -> impl Iterator<Item = Pref64> {
        self.rules.values().filter_map(|rule| rule.prefix)
    }
}

/// Whether an IPv4 address is global: none of the special-purpose ranges that the IANA registry
/// (RFC 6890) marks as not globally reachable.
pub fn is_global(ipv4: Ipv4Addr) -> bool {
    const NOT_GLOBAL: [(u32, u8); 14] = [
        (0x0000_0000, 8),  // 0.0.0.0/8, this network: RFC 791 section 3.2
        (0x0a00_0000, 8),  // 10.0.0.0/8, private: RFC 1918
        (0x6440_0000, 10), // 100.64.0.0/10, shared: RFC 6598
        (0x7f00_0000, 8),  // 127.0.0.0/8, loopback: RFC 1122 section 3.2.1.3
        (0xa9fe_0000, 16), // 169.254.0.0/16, link-local: RFC 3927
        (0xac10_0000, 12), // 172.16.0.0/12, private: RFC 1918
        (0xc000_0000, 24), // 192.0.0.0/24, protocol assignments: RFC 6890 section 2.1
        (0xc000_0200, 24), // 192.0.2.0/24, documentation: RFC 5737
        (0xc0a8_0000, 16), // 192.168.0.0/16, private: RFC 1918
        (0xc612_0000, 15), // 198.18.0.0/15, benchmarking: RFC 2544
        (0xc633_6400, 24), // 198.51.100.0/24, documentation: RFC 5737
        (0xcb00_7100, 24), // 203.0.113.0/24, documentation: RFC 5737
        (0xe000_0000, 4),  // 224.0.0.0/4, multicast: RFC 5771
        (0xf000_0000, 4),  // 240.0.0.0/4, reserved and broadcast: RFC 1112, RFC 919
    ];
    let bits = ipv4.to_bits();
    !NOT_GLOBAL
        .iter()
        .any(|&(net, len)| (bits ^ net) >> (32 - len) == 0)
}
