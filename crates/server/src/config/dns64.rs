//! The tables `[dns64]` and `[[view]]`.

use dns64_wire::name::NameBuf;
use dns64_wire::pref64::Pref64;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use toml::Spanned;

use super::error::{Fault, Faults};
use super::forward::{self, Forward};
use super::keys::{self, Keys};
use super::section::{Section, Value};
use super::{check, defaults, values};
use crate::settings::dns64::{
    Dns64, DomainAction, DomainRule, DomainRules, FailurePolicy, Ptr, SignedPolicy,
};
use crate::settings::domains::Domains;
use crate::settings::nets::NetSet;
use crate::settings::{VIEWS_MAX, View};

/// All groups of clients, with the default view last.
pub(super) fn views(top: &Section<'_, '_>, forwards: &[Forward], faults: &mut Faults) -> Vec<View> {
    let default = match top.section("dns64", &keys::DNS64, faults) {
        Some(section) => Given::read(&section, faults),
        None => Given::default(),
    };
    let example = "[[view]] with clients = [\"2001:db8::/32\"] below";
    let given = top.list("view", example, faults, |v, faults| {
        view(v, &default, forwards, faults)
    });
    let given = given.unwrap_or_default();
    if let Some(first_over) = given.get(VIEWS_MAX) {
        let text = format!("more than {VIEWS_MAX} views are given; merge some of them");
        faults.add(first_over.span(), text);
    }
    let mut given: Vec<GivenView> = given.into_iter().map(Spanned::into_inner).collect();
    check::shadowed(given.iter().map(|view| &view.clients[..]), faults);
    given.push(GivenView {
        clients: vec![],
        dns64: default.build(faults),
        forwards: vec![],
    });
    let listed: Vec<_> = given.iter().map(|view| &view.forwards[..]).collect();
    let domains = forward::domains_of_views(forwards, &listed, faults);
    let last = given.len() - 1;
    let views = given.into_iter().zip(domains).enumerate();
    let views = views.map(|(index, (view, forwards))| View {
        clients: match index == last {
            true => NetSet::all(),
            false => NetSet::new(view.clients.into_iter().map(Spanned::into_inner).collect()),
        },
        dns64: view.dns64,
        forwards,
    });
    views.collect()
}

/// The values of a view.
struct GivenView {
    clients: Vec<Spanned<IpNet>>,
    dns64: Option<Dns64>,
    /// Indices of the tables `[[forward]]` that it lists.
    forwards: Vec<Spanned<usize>>,
}

fn view(
    value: Value<'_, '_>,
    default: &Given,
    forwards: &[Forward],
    faults: &mut Faults,
) -> Option<GivenView> {
    let section = value.section(&keys::VIEW, faults)?;
    if section.value("clients").is_none() {
        let text = "this view has no clients; add clients = [\"2001:db8::/32\"]";
        faults.add(section.span(), text);
    }
    let clients = section.networks("clients", faults);
    let given = match section.section("dns64", &keys::VIEW_DNS64, faults) {
        Some(section) => Given::read(&section, faults).or(default),
        None => default.clone(),
    };
    Some(GivenView {
        clients: clients.unwrap_or_default(),
        dns64: given.build(faults),
        forwards: forward::listed(&section, forwards, faults),
    })
}

/// The values in a table of the DNS64 function; `None` for missing ones.
#[derive(Clone, Debug, Default)]
struct Given {
    enabled: Option<bool>,
    prefixes: Option<Vec<Pref64>>,
    map: Option<Map>,
    exclude_aaaa: Option<Vec<Spanned<Ipv6Net>>>,
    private_addresses: Option<bool>,
    include_domains: Option<Vec<Spanned<NameBuf>>>,
    exclude_domains: Option<Vec<Spanned<NameBuf>>>,
    force_domains: Option<Vec<Spanned<NameBuf>>>,
    domain_prefixes: Option<Vec<Spanned<(NameBuf, Pref64)>>>,
    signed: Option<SignedPolicy>,
    ptr: Option<Spanned<PtrWord>>,
    ptr_name: Option<Spanned<NameBuf>>,
    ipv4only: Option<bool>,
    mark_synthesised: Option<bool>,
    failure: Option<FailurePolicy>,
    filter_a: Option<bool>,
}

/// The value of `ptr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PtrWord {
    Cname,
    Local,
}

const PTR: [(&str, PtrWord); 2] = [("cname", PtrWord::Cname), ("local", PtrWord::Local)];

const SIGNED: [(&str, SignedPolicy); 3] = [
    ("validated", SignedPolicy::Validated),
    ("always", SignedPolicy::Always),
    ("never", SignedPolicy::Never),
];

const FAILURE: [(&str, FailurePolicy); 2] = [
    ("synthesise", FailurePolicy::Synthesise),
    ("fail", FailurePolicy::Fail),
];

const PREFIX_EXAMPLE: &str = "\"64:ff9b::/96\" or \"none\"";

impl Given {
    fn read(section: &Section<'_, '_>, faults: &mut Faults) -> Self {
        let mut flag = |key| section.read(key, faults, |v| v.boolean());
        let (enabled, private_addresses) = (flag("enabled"), flag("private-addresses"));
        let (ipv4only, mark_synthesised) = (flag("ipv4only"), flag("mark-synthesised"));
        let filter_a = flag("filter-a");
        let mut domains = |key| {
            section.list(key, "[\"example.com\"]", faults, |v, faults| {
                faults.keep(v.text("\"example.com\"", values::domain))
            })
        };
        Self {
            enabled,
            include_domains: domains("include-domains"),
            exclude_domains: domains("exclude-domains"),
            force_domains: domains("force-domains"),
            prefixes: prefixes(section, faults),
            map: map(section, faults),
            exclude_aaaa: section.list("exclude-aaaa", "[\"::ffff:0:0/96\"]", faults, |v, f| {
                f.keep(v.text("\"::ffff:0:0/96\"", values::ipv6_network))
            }),
            private_addresses,
            domain_prefixes: domain_prefixes(section, faults),
            signed: section.read("synthesise-signed", faults, |v| {
                v.text("\"validated\"", |t| values::choice(t, &SIGNED))
            }),
            ptr: section.read("ptr", faults, |v| {
                let word = v.text("\"cname\"", |t| values::choice(t, &PTR))?;
                Ok(v.spanned(word))
            }),
            ptr_name: section.read("ptr-name", faults, |v| {
                let name = v.text("\"nat64.example\"", values::domain)?;
                Ok(v.spanned(name))
            }),
            ipv4only,
            mark_synthesised,
            failure: section.read("aaaa-failure", faults, |v| {
                v.text("\"synthesise\"", |t| values::choice(t, &FAILURE))
            }),
            filter_a,
        }
    }

    /// Fills missing values from the other table. A view's own `ptr = "cname"` disables the other's
    /// `ptr-name`.
    fn or(self, other: &Self) -> Self {
        let other = other.clone();
        let cname = self
            .ptr
            .as_ref()
            .is_some_and(|p| *p.get_ref() == PtrWord::Cname);
        Self {
            enabled: self.enabled.or(other.enabled),
            prefixes: self.prefixes.or(other.prefixes),
            map: self.map.or(other.map),
            exclude_aaaa: self.exclude_aaaa.or(other.exclude_aaaa),
            private_addresses: self.private_addresses.or(other.private_addresses),
            include_domains: self.include_domains.or(other.include_domains),
            exclude_domains: self.exclude_domains.or(other.exclude_domains),
            force_domains: self.force_domains.or(other.force_domains),
            domain_prefixes: self.domain_prefixes.or(other.domain_prefixes),
            signed: self.signed.or(other.signed),
            ptr_name: self.ptr_name.or(other.ptr_name.filter(|_| !cname)),
            ptr: self.ptr.or(other.ptr),
            ipv4only: self.ipv4only.or(other.ipv4only),
            mark_synthesised: self.mark_synthesised.or(other.mark_synthesised),
            failure: self.failure.or(other.failure),
            filter_a: self.filter_a.or(other.filter_a),
        }
    }

    /// Builds the function, with defaults for missing values; `None` if it is disabled.
    fn build(&self, faults: &mut Faults) -> Option<Dns64> {
        let default = defaults::dns64();
        let map = self.map.clone().unwrap_or_default();
        check::map_overlaps(&map, faults);
        let excluded = self.exclude_aaaa.clone().map(|nets| {
            NetSet::new(
                nets.into_iter()
                    .map(|net| net.into_inner().into())
                    .collect(),
            )
        });
        let built = Dns64 {
            prefixes: self.prefixes.clone().unwrap_or(default.prefixes),
            ranges: map.into_iter().map(Spanned::into_inner).collect(),
            exclude_aaaa: excluded.unwrap_or(default.exclude_aaaa),
            well_known_private: self.private_addresses.unwrap_or(default.well_known_private),
            domains: self.domains(faults),
            signed: self.signed.unwrap_or(default.signed),
            ptr: self.ptr(faults),
            ipv4only: self.ipv4only.unwrap_or(default.ipv4only),
            mark_synthesised: self.mark_synthesised.unwrap_or(default.mark_synthesised),
            failure: self.failure.unwrap_or(default.failure),
            filter_a: self.filter_a.unwrap_or(default.filter_a),
            withdrawn: Vec::new(),
        };
        self.enabled.unwrap_or(true).then_some(built)
    }

    fn ptr(&self, faults: &mut Faults) -> Ptr {
        let word = self.ptr.as_ref().map(|ptr| *ptr.get_ref());
        match (word, &self.ptr, &self.ptr_name) {
            (Some(PtrWord::Local), _, Some(name)) => return Ptr::Local(name.get_ref().clone()),
            (Some(PtrWord::Local), Some(ptr), None) => faults.add(
                ptr.span(),
                "ptr = \"local\" needs a name; add ptr-name = \"nat64.example\"",
            ),
            (_, _, Some(name)) => faults.add(
                name.span(),
                "ptr-name has no effect unless ptr = \"local\"; add that, or remove this key",
            ),
            _ => {}
        }
        Ptr::Cname
    }

    fn domains(&self, faults: &mut Faults) -> DomainRules {
        let lists = [
            (
                "include-domains",
                &self.include_domains,
                DomainAction::Include,
            ),
            (
                "exclude-domains",
                &self.exclude_domains,
                DomainAction::Exclude,
            ),
            ("force-domains", &self.force_domains, DomainAction::Force),
        ];
        let mut actions: Domains<(&str, DomainAction)> = Domains::default();
        for (key, names, action) in lists {
            for name in names.iter().flatten() {
                let said = actions.insert(name.get_ref(), (key, action));
                let Some((before, _)) = said else { continue };
                let place = if before == key {
                    "twice".to_owned()
                } else {
                    format!("as well as {before}")
                };
                let text = format!("{key} has {} {place}; remove one", name.get_ref());
                faults.add(name.span(), text);
            }
        }
        let mut prefixes: Domains<Pref64> = Domains::default();
        for entry in self.domain_prefixes.iter().flatten() {
            let (name, prefix) = entry.get_ref();
            if let Some(("exclude-domains", _)) = actions.exact(name) {
                let text =
                    format!("{name} has a prefix here, but is also in exclude-domains; remove one");
                faults.add(entry.span(), text);
            }
            if prefixes.insert(name, *prefix).is_some() {
                let text = format!("domain-prefixes has {name} twice; remove one");
                faults.add(entry.span(), text);
            }
        }
        let actions = actions.iter().map(|(name, (_, action))| (name, *action));
        rules(&actions.collect(), &prefixes)
    }
}

/// One complete rule for each domain in the lists: a value missing in one list comes from the
/// nearest parent domain in the same list. A domain with a prefix is included unless it is forced.
fn rules(actions: &Domains<DomainAction>, prefixes: &Domains<Pref64>) -> DomainRules {
    let includes = actions.values().any(|a| *a == DomainAction::Include);
    let others = if includes {
        DomainAction::Exclude
    } else {
        DomainAction::Include
    };
    let rule = |name: &NameBuf| {
        let inherited = || match actions.get(name) {
            Some((_, DomainAction::Force)) => DomainAction::Force,
            _ => DomainAction::Include,
        };
        DomainRule {
            action: actions.exact(name).copied().unwrap_or_else(inherited),
            prefix: prefixes.get(name).map(|(_, prefix)| *prefix),
        }
    };
    let named = actions.iter().map(|(name, _)| name);
    let named = named.chain(prefixes.iter().map(|(name, _)| name));
    let complete = named.map(|name| {
        let rule = rule(&name);
        (name, rule)
    });
    DomainRules::with_others(complete, others)
}

/// Maximum number of prefixes in one list. Each gives an AAAA record for every A record: with 8, a
/// response from five A records still fits into 1232 octets.
const PREFIXES_MAX: usize = 8;

/// One prefix, several, or none.
fn prefixes(section: &Section<'_, '_>, faults: &mut Faults) -> Option<Vec<Pref64>> {
    let value = section.value("prefix")?;
    if !value.is_list() {
        let prefix = faults.keep(prefix_or_none(value))?;
        return Some(prefix.into_iter().collect());
    }
    let example = "[\"64:ff9b::/96\", \"2001:db8:64::/96\"]";
    let given = section.some("prefix", example, faults, |v, faults| {
        faults.keep(v.text("\"64:ff9b::/96\"", values::prefix))
    })?;
    let mut prefixes = Vec::new();
    for prefix in given {
        let (span, prefix) = (prefix.span(), prefix.into_inner());
        if prefixes.contains(&prefix) {
            faults.add(span, format!("prefix has {prefix} twice; remove one"));
        } else if prefixes.len() == PREFIXES_MAX {
            let text = format!("prefix has more than {PREFIXES_MAX} entries; remove some");
            faults.add(span, text);
            break;
        }
        prefixes.push(prefix);
    }
    Some(prefixes)
}

fn prefix_or_none(value: Value<'_, '_>) -> Result<Option<Pref64>, Fault> {
    if value.says("none") {
        return Ok(None);
    }
    value.text(PREFIX_EXAMPLE, values::prefix).map(Some)
}

/// IPv4 ranges with their prefixes.
type Map = Vec<Spanned<(Ipv4Net, Option<Pref64>)>>;

fn map(section: &Section<'_, '_>, faults: &mut Faults) -> Option<Map> {
    let example = "[{ ipv4 = \"10.0.0.0/8\", prefix = \"none\" }]";
    section.list("map", example, faults, |value, faults| {
        let entry = complete(value, &keys::MAP, example, faults)?;
        let net = entry.read("ipv4", faults, |v| {
            v.text("\"10.0.0.0/8\"", values::ipv4_network)
        });
        let prefix = entry.read("prefix", faults, prefix_or_none);
        Some((net?, prefix?))
    })
}

fn domain_prefixes(
    section: &Section<'_, '_>,
    faults: &mut Faults,
) -> Option<Vec<Spanned<(NameBuf, Pref64)>>> {
    let example = "[{ domain = \"example.com\", prefix = \"2001:db8:64::/96\" }]";
    section.list("domain-prefixes", example, faults, |value, faults| {
        let entry = complete(value, &keys::DOMAIN_PREFIX, example, faults)?;
        let name = entry.read("domain", faults, |v| {
            v.text("\"example.com\"", values::domain)
        });
        let prefix = entry.read("prefix", faults, |v| {
            if v.says("none") {
                let text =
                    "\"none\" is not allowed here; to exclude a domain, add it to exclude-domains";
                return Err(v.fault(text));
            }
            v.text("\"2001:db8:64::/96\"", values::prefix)
        });
        Some((name?, prefix?))
    })
}

/// An entry of a list, with all its keys required.
fn complete<'a, 't>(
    value: Value<'a, 't>,
    keys: &'static Keys,
    example: &str,
    faults: &mut Faults,
) -> Option<Section<'a, 't>> {
    let entry = value.section(keys, faults)?;
    let missing = keys.keys.iter().find(|key| entry.value(key).is_none());
    if let Some(missing) = missing {
        let text = format!("{} has no {missing}; write it like {example}", keys.table);
        faults.add(entry.span(), text);
    }
    Some(entry)
}
