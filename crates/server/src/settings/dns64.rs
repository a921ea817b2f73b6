//! The DNS64 function for one group of clients (RFC 6147).

use std::net::{Ipv4Addr, Ipv6Addr};

use dns64_wire::name::{Name, NameBuf};
use dns64_wire::pref64::Pref64;
use ipnet::Ipv4Net;

use super::domains::Domains;
use super::nets::NetSet;

/// The synthesis of AAAA records for one group of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dns64 {
    /// Prefixes for IPv4 addresses outside `ranges`: one AAAA record for each prefix, in this order
    /// (several Pref64::/n, RFC 7050 section 3). Without prefixes, nothing is synthesised.
    pub prefixes: Vec<Pref64>,
    /// IPv4 ranges with their own prefix, or without one (RFC 6147 section 5.1.7). They do not
    /// overlap.
    pub ranges: Vec<(Ipv4Net, Option<Pref64>)>,
    /// AAAA records in these ranges are treated as absent (RFC 6147 section 5.1.4).
    pub exclude_aaaa: NetSet,
    /// Whether the Well-Known Prefix may represent non-global IPv4 addresses, which RFC 6052
    /// section 3.1 forbids.
    pub well_known_private: bool,
    /// Domains with their own rule.
    pub domains: DomainRules,
    /// Policy for synthesis with DO=1 if the AAAA response contained DNSSEC records.
    pub signed: SignedPolicy,
    /// Reverse lookup of synthesised addresses.
    pub ptr: Ptr,
    /// Whether this server answers for `ipv4only.arpa` itself (RFC 8880).
    pub ipv4only: bool,
    /// Whether synthesised answers are marked with the extended error 4 (RFC 8914 section 4.5).
    pub mark_synthesised: bool,
    /// Response to an AAAA query that the upstreams fail.
    pub failure: FailurePolicy,
    /// Whether A queries get an empty response.
    pub filter_a: bool,
    /// Prefixes whose translator does not answer: no addresses are synthesised with them.
    pub withdrawn: Vec<Pref64>,
}

/// Response to an AAAA query that the upstreams fail, or do not answer in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailurePolicy {
    /// Synthesis as if there were no AAAA records (RFC 6147 sections 5.1.2 and 5.1.3).
    Synthesise,
    /// The failure.
    Fail,
}

impl Dns64 {
    /// The addresses that represent `ipv4` under a name with this rule.
    pub fn embed(&self, ipv4: Ipv4Addr, rule: DomainRule) -> impl Iterator<Item = Ipv6Addr> {
        let prefixes = self.prefixes_for(ipv4, rule);
        prefixes
            .filter(move |prefix| !self.withdrawn.contains(prefix))
            .map(move |prefix| prefix.embed(ipv4))
    }

    /// Whether addresses would represent `ipv4` if no prefix were withdrawn.
    pub fn is_cut_off(&self, ipv4: Ipv4Addr, rule: DomainRule) -> bool {
        self.embed(ipv4, rule).next().is_none() && self.prefixes_for(ipv4, rule).next().is_some()
    }

    fn prefixes_for(&self, ipv4: Ipv4Addr, rule: DomainRule) -> impl Iterator<Item = Pref64> {
        let range = self.ranges.iter().find(|(net, _)| net.contains(&ipv4));
        let (own, common) = match (range, rule.prefix) {
            (Some((_, prefix)), _) => (*prefix, &[][..]),
            (None, Some(prefix)) => (Some(prefix), &[][..]),
            (None, None) => (None, &self.prefixes[..]),
        };
        let prefixes = own.into_iter().chain(common.iter().copied());
        prefixes.filter(move |prefix| {
            *prefix != Pref64::WELL_KNOWN || self.well_known_private || is_global(ipv4)
        })
    }

    /// The prefix of an address that is synthesised under a name with this rule, and the key that chose it.
    pub fn origin(&self, aaaa: Ipv6Addr, rule: DomainRule) -> Option<(Pref64, &'static str)> {
        self.prefixes_in_use().find_map(|prefix| {
            let ipv4 = prefix.extract(aaaa)?;
            let is_in_range = self.ranges.iter().any(|(net, _)| net.contains(&ipv4));
            let key = match (is_in_range, rule.prefix) {
                (true, _) => "map",
                (false, Some(_)) => "domain-prefixes",
                (false, None) => "prefix",
            };
            let mut prefixes = self.prefixes_for(ipv4, rule);
            prefixes
                .any(|other| other == prefix)
                .then_some((prefix, key))
        })
    }

    /// All prefixes in use.
    pub fn prefixes_in_use(&self) -> impl Iterator<Item = Pref64> {
        let ranges = self.ranges.iter().filter_map(|(_, prefix)| *prefix);
        let common = self.prefixes.iter().copied();
        common.chain(ranges).chain(self.domains.prefixes())
    }

    /// The IPv4 address that a synthesised address represents: with any prefix in use or the
    /// Well-Known Prefix (RFC 6147 section 5.3.1).
    pub fn extract(&self, ipv6: Ipv6Addr) -> Option<Ipv4Addr> {
        self.prefixes_in_use()
            .chain([Pref64::WELL_KNOWN])
            .find_map(|prefix| prefix.extract(ipv6))
    }

    /// Whether an AAAA record is treated as absent.
    pub fn excludes(&self, aaaa: Ipv6Addr) -> bool {
        self.exclude_aaaa.contains_bits(aaaa)
    }
}

/// Policy for synthesis for a client that sets DO without CD, if DNSSEC records prove that there
/// are no AAAA records, or other ones (RFC 6147 section 5.5 (2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignedPolicy {
    /// If the upstream has validated both responses, that is, set AD in them.
    Validated,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Reverse lookup of synthesised addresses (RFC 6147 section 5.3.1).
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one for each view, read in place"
)]
pub enum Ptr {
    /// By the name of the IPv4 address: a CNAME to `in-addr.arpa`.
    Cname,
    /// Always with this name.
    Local(NameBuf),
}

/// The rule for a domain and all names below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DomainRule {
    /// Action.
    pub action: DomainAction,
    /// A prefix for this domain, used for addresses without a prefix from an IPv4 range.
    pub prefix: Option<Pref64>,
}

/// The action for a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DomainAction {
    /// Synthesise AAAA records if there are none.
    Include,
    /// Synthesise nothing.
    Exclude,
    /// Synthesise AAAA records even if there are some, and omit the existing ones.
    Force,
}

/// Rules by domain, and one for all other names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainRules {
    rules: Domains<DomainRule>,
    default: DomainRule,
}

impl Default for DomainRules {
    fn default() -> Self {
        Self::new([])
    }
}

impl DomainRules {
    /// Creates rules for these domains. If one of them includes a domain, all other names are
    /// excluded.
    pub fn new(rules: impl IntoIterator<Item = (NameBuf, DomainRule)>) -> Self {
        let rules: Vec<_> = rules.into_iter().collect();
        let includes = |(_, rule): &(NameBuf, DomainRule)| rule.action == DomainAction::Include;
        let others = if rules.iter().any(includes) {
            DomainAction::Exclude
        } else {
            DomainAction::Include
        };
        Self::with_others(rules, others)
    }

    /// Creates rules for these domains and for all other names.
    pub fn with_others(
        rules: impl IntoIterator<Item = (NameBuf, DomainRule)>,
        others: DomainAction,
    ) -> Self {
        let default = DomainRule {
            action: others,
            prefix: None,
        };
        Self {
            rules: rules.into_iter().collect(),
            default,
        }
    }

    /// The rule for a name.
    pub fn rule(&self, name: &Name<'_>) -> DomainRule {
        if self.rules.is_empty() {
            return self.default;
        }
        let rule = self.rules.get(&name.to_buf());
        rule.map_or(self.default, |(_, rule)| *rule)
    }

    /// The prefixes of all rules.
    pub fn prefixes(&self) -> impl Iterator<Item = Pref64> {
        self.rules.values().filter_map(|rule| rule.prefix)
    }
}

/// Whether an IPv4 address is global, that is, outside the special-purpose ranges that the IANA
/// registry (RFC 6890) marks as not globally reachable.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn pref64(text: &str) -> Pref64 {
        text.parse().unwrap()
    }

    fn name(text: &str) -> NameBuf {
        text.parse().unwrap()
    }

    fn rule(action: DomainAction) -> DomainRule {
        DomainRule {
            action,
            prefix: None,
        }
    }

    fn with_prefix(prefix: &str) -> Dns64 {
        Dns64 {
            prefixes: vec![pref64(prefix)],
            ranges: Vec::new(),
            exclude_aaaa: NetSet::new(vec!["::ffff:0:0/96".parse().unwrap()]),
            well_known_private: false,
            domains: DomainRules::default(),
            signed: SignedPolicy::Validated,
            ptr: Ptr::Cname,
            ipv4only: true,
            mark_synthesised: false,
            failure: FailurePolicy::Synthesise,
            filter_a: false,
            withdrawn: Vec::new(),
        }
    }

    /// The text of the addresses that represent an IPv4 address under the default rule.
    fn embedded(dns64: &Dns64, ipv4: &str) -> String {
        let made = dns64.embed(ipv4.parse().unwrap(), rule(DomainAction::Include));
        let made: Vec<_> = made.map(|ipv6| ipv6.to_string()).collect();
        match made.is_empty() {
            true => "none".to_owned(),
            false => made.join(" "),
        }
    }

    #[test]
    fn withdrawn_prefix_represents_no_address() {
        let mut dns64 = with_prefix("2001:db8::/96");
        let rule = rule(DomainAction::Include);
        let ipv4 = Ipv4Addr::new(192, 0, 2, 1);
        dns64.withdrawn = vec![pref64("2001:db8::/96")];
        assert_eq!(embedded(&dns64, "192.0.2.1"), "none");
        assert!(dns64.is_cut_off(ipv4, rule));
        dns64.prefixes.push(pref64("2001:db8:2::/96"));
        assert_eq!(embedded(&dns64, "192.0.2.1"), "2001:db8:2::c000:201");
        assert!(!dns64.is_cut_off(ipv4, rule));
        // It still has reverse names.
        assert_eq!(
            dns64.extract("2001:db8::c000:201".parse().unwrap()),
            Some(ipv4)
        );
        dns64.ranges = vec![("192.0.2.0/24".parse().unwrap(), None)];
        assert!(
            !dns64.is_cut_off(ipv4, rule),
            "nothing is synthesised anyway"
        );
    }

    #[test]
    fn range_has_its_own_prefix_or_none() {
        let mut dns64 = with_prefix("2001:db8::/96");
        dns64.ranges = vec![
            ("10.0.0.0/8".parse().unwrap(), None),
            (
                "192.0.2.0/24".parse().unwrap(),
                Some(pref64("2001:db8:1::/96")),
            ),
        ];
        assert_eq!(embedded(&dns64, "10.1.2.3"), "none");
        assert_eq!(embedded(&dns64, "192.0.2.1"), "2001:db8:1::c000:201");
        assert_eq!(embedded(&dns64, "198.51.100.1"), "2001:db8::c633:6401");
    }

    #[test]
    fn prefix_of_a_range_takes_precedence_over_that_of_a_domain() {
        let mut dns64 = with_prefix("2001:db8::/96");
        dns64.ranges = vec![("10.0.0.0/8".parse().unwrap(), None)];
        let corp = DomainRule {
            action: DomainAction::Include,
            prefix: Some(pref64("2001:db8:2::/96")),
        };
        assert_eq!(dns64.embed(Ipv4Addr::new(10, 0, 0, 1), corp).count(), 0);
        let made: Vec<_> = dns64.embed(Ipv4Addr::new(192, 0, 2, 1), corp).collect();
        assert_eq!(made, ["2001:db8:2::c000:201".parse::<Ipv6Addr>().unwrap()]);
    }

    #[test]
    fn well_known_prefix_represents_global_addresses_only() {
        let mut dns64 = with_prefix("64:ff9b::/96");
        assert_eq!(embedded(&dns64, "192.168.1.1"), "none");
        assert_eq!(embedded(&dns64, "8.8.8.8"), "64:ff9b::808:808");
        dns64.well_known_private = true;
        assert_eq!(embedded(&dns64, "192.168.1.1"), "64:ff9b::c0a8:101");
        // RFC 8215: RFC 6052 section 3.1 does not restrict the local-use prefix.
        let local = with_prefix("64:ff9b:1::/96");
        assert_eq!(embedded(&local, "192.168.1.1"), "64:ff9b:1::c0a8:101");
    }

    #[test]
    fn without_a_prefix_nothing_is_synthesised() {
        let mut dns64 = with_prefix("64:ff9b::/96");
        dns64.prefixes.clear();
        assert_eq!(embedded(&dns64, "8.8.8.8"), "none");
        assert_eq!(dns64.prefixes_in_use().count(), 0);
    }

    #[test]
    fn each_prefix_gives_an_address_that_extracts_to_the_original() {
        let mut dns64 = with_prefix("2001:db8::/96");
        dns64.prefixes.push(Pref64::WELL_KNOWN);
        assert_eq!(
            embedded(&dns64, "8.8.8.8"),
            "2001:db8::808:808 64:ff9b::808:808"
        );
        // RFC 6052 section 3.1 restricts only the Well-Known Prefix.
        assert_eq!(embedded(&dns64, "10.0.0.1"), "2001:db8::a00:1");
        for prefix in dns64.prefixes.clone() {
            let ipv4 = Ipv4Addr::new(8, 8, 8, 8);
            assert_eq!(dns64.extract(prefix.embed(ipv4)), Some(ipv4));
        }
    }

    #[test]
    fn extraction_recognises_every_prefix_in_use_and_the_well_known_prefix() {
        let mut dns64 = with_prefix("2001:db8::/96");
        dns64.ranges = vec![(
            "10.0.0.0/8".parse().unwrap(),
            Some(pref64("2001:db8:1::/48")),
        )];
        let corp = DomainRule {
            action: DomainAction::Force,
            prefix: Some(pref64("2001:db8:2::/96")),
        };
        dns64.domains = DomainRules::new([(name("corp.example"), corp)]);
        let ipv4 = Ipv4Addr::new(192, 0, 2, 33);
        for prefix in [
            "2001:db8::/96",
            "2001:db8:1::/48",
            "2001:db8:2::/96",
            "64:ff9b::/96",
        ] {
            assert_eq!(
                dns64.extract(pref64(prefix).embed(ipv4)),
                Some(ipv4),
                "{prefix}"
            );
        }
        assert_eq!(dns64.extract(pref64("2001:db8:3::/96").embed(ipv4)), None);
    }

    #[test]
    fn mapped_addresses_are_excluded_and_adjacent_addresses_are_not() {
        let dns64 = with_prefix("64:ff9b::/96");
        let excludes = |text: &str| dns64.excludes(text.parse().unwrap());
        assert!(excludes("::ffff:192.0.2.1"));
        // The range ::ffff/96, as RFC 6147 section 5.1.4 writes it, would contain this address.
        assert!(!excludes("::192.0.2.1"));
        assert!(!excludes("2001:db8::1"));
    }

    #[test]
    fn including_some_names_excludes_all_others() {
        let some = DomainRules::new([(name("example"), rule(DomainAction::Include))]);
        assert_eq!(
            some.rule(&name("a.example").as_name()).action,
            DomainAction::Include
        );
        assert_eq!(
            some.rule(&name("a.test").as_name()).action,
            DomainAction::Exclude
        );
        let with_prefix = [(name("example"), rule(DomainAction::Include))];
        let rules = DomainRules::with_others(with_prefix, DomainAction::Include);
        assert_eq!(
            rules.rule(&name("a.test").as_name()).action,
            DomainAction::Include
        );
        let root = DomainRules::new([(name("."), rule(DomainAction::Force))]);
        assert_eq!(
            root.rule(&name("a.test").as_name()).action,
            DomainAction::Force
        );
    }

    #[test]
    fn special_ranges_are_not_global_including_their_bounds() {
        let global = |text: &str| is_global(text.parse().unwrap());
        for special in [
            "0.255.255.255",
            "10.0.0.0",
            "100.64.0.0",
            "100.127.255.255",
            "127.0.0.1",
            "169.254.1.1",
            "172.16.0.0",
            "172.31.255.255",
            "192.0.0.170",
            "192.0.2.1",
            "192.168.255.255",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "255.255.255.255",
        ] {
            assert!(!global(special), "{special}");
        }
        for ordinary in [
            "1.0.0.0",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
        ] {
            assert!(global(ordinary), "{ordinary}");
        }
    }
}
