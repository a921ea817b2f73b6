//! The tables `[[forward]]`: domains with servers of their own, and which views use them.

use dns64_wire::name::NameBuf;
use toml::Spanned;

use super::error::Faults;
use super::section::{Section, Value};
use super::upstream::{self, Manner, UpstreamTable};
use super::{check, keys, values};
use crate::settings::domains::Domains;
use crate::settings::{FORWARDS_MAX, Selection, ServerSet, UPSTREAMS_MAX, Upstream};

/// A table `[[forward]]`.
pub(super) struct Forward {
    pub(super) name: String,
    pub(super) domains: Vec<Spanned<NameBuf>>,
    pub(super) servers: Vec<Spanned<Upstream>>,
    pub(super) selection: Selection,
}

/// All tables; keys that one does not set have the values of `[upstream]`.
pub(super) fn read(
    top: &Section<'_, '_>,
    others: &UpstreamTable,
    faults: &mut Faults,
) -> Vec<Forward> {
    let example = "[[forward]] with domains = [\"corp.example\"] below";
    let all = top.list("forward", example, faults, |v, faults| {
        forward(v, others, faults)
    });
    let all = all.unwrap_or_default();
    if let Some(first_over) = all.get(FORWARDS_MAX) {
        let text = format!(
            "more than {FORWARDS_MAX} tables [[forward]] are given; write all domains of the same servers into one"
        );
        faults.add(first_over.span(), text);
    }
    for (index, forward) in all.iter().enumerate() {
        let name = &forward.get_ref().name;
        let mut others = all[..index].iter().map(|other| &other.get_ref().name);
        if name == UPSTREAM || others.any(|other| other == name) {
            let text = format!("another table is named {name}, too; add name = \"...\"");
            faults.add(forward.span(), text);
        }
    }
    all.into_iter().map(Spanned::into_inner).collect()
}

fn forward(value: Value<'_, '_>, others: &UpstreamTable, faults: &mut Faults) -> Option<Forward> {
    let section = value.section(&keys::FORWARD, faults)?;
    if section.value("domains").is_none() {
        let text = "[[forward]] names no domains; add domains = [\"corp.example\"]";
        faults.add(section.span(), text);
    }
    let example = "[\"corp.example\", \"10.in-addr.arpa\"]";
    let domains = section.some("domains", example, faults, |v, faults| {
        faults.keep(v.text("\"corp.example\"", values::domain))
    });
    let domains = domains.unwrap_or_default();
    let own = section.read("name", faults, |v| v.text("\"corp\"", label));
    let first = domains.first().map(|domain| domain.get_ref().to_string());
    let manner = Manner::read(&section, &others.manner, faults);
    let selection = upstream::selection(&section, faults);
    Some(Forward {
        name: own.or(first).unwrap_or_default(),
        domains,
        servers: upstream::servers(&section, &manner, faults),
        selection: selection.unwrap_or(others.selection),
    })
}

/// A name in metrics and in the output of `dns64d ctl`.
fn label(text: &str) -> Result<String, String> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    match text.is_empty() || !text.chars().all(is_good) {
        true => Err(format!(
            "{text:?} is not a name of ASCII letters, digits, dots, hyphens and underscores; write it like \"corp\""
        )),
        false => Ok(text.to_owned()),
    }
}

/// The name of the servers of `[upstream]` in metrics.
const UPSTREAM: &str = "upstream";

/// All servers, each once, and which of them are queried for the same names.
pub(super) fn sets(
    table: &UpstreamTable,
    forwards: &[Forward],
    faults: &mut Faults,
) -> (Vec<Upstream>, Vec<ServerSet>) {
    let given = forwards.iter().flat_map(|forward| &forward.servers);
    check::sessions(table.servers.iter().chain(given), faults);
    let mut all: Vec<Upstream> = Vec::new();
    let mut numbers = |servers: &[Spanned<Upstream>]| {
        let number = |server: &Spanned<Upstream>| {
            let own = server.get_ref();
            let known = all.iter().position(|other| other.address == own.address);
            let Some(number) = known else {
                all.push(own.clone());
                if all.len() == UPSTREAMS_MAX + 1 {
                    let text = format!(
                        "more than {UPSTREAMS_MAX} servers are given; remove this and the following"
                    );
                    faults.add(server.span(), text);
                }
                return all.len() - 1;
            };
            if all[number] != *own {
                let text = format!(
                    "{} has other keys in an earlier table; write the same ones in both",
                    own.address
                );
                faults.add(server.span(), text);
            }
            number
        };
        servers.iter().map(number).collect()
    };
    let first = ServerSet {
        name: UPSTREAM.to_owned(),
        domains: Vec::new(),
        servers: numbers(&table.servers),
        selection: table.selection,
    };
    let others = forwards.iter().map(|forward| ServerSet {
        name: forward.name.clone(),
        domains: forward
            .domains
            .iter()
            .map(|d| d.get_ref().clone())
            .collect(),
        servers: numbers(&forward.servers),
        selection: forward.selection,
    });
    let sets = [first].into_iter().chain(others).collect();
    (all, sets)
}

/// The indices of the tables that a view lists.
pub(super) fn listed(
    view: &Section<'_, '_>,
    forwards: &[Forward],
    faults: &mut Faults,
) -> Vec<Spanned<usize>> {
    let names = forwards.iter().map(|forward| forward.name.as_str());
    let names: Vec<_> = names.zip(0..).collect();
    let listed = view.list("forward", "[\"corp\"]", faults, |v, faults| {
        let read = |text: &str| match names.is_empty() {
            true => Err(format!(
                "{text:?} is the name of no [[forward]]; add one with name = {text:?}"
            )),
            false => values::choice(text, &names),
        };
        faults.keep(v.text("\"corp\"", read))
    });
    listed.unwrap_or_default()
}

/// The domains with servers of their own for each view, by index of [`crate::settings::Settings::sets`]: those of the
/// tables that it lists, then those of the tables that no view lists.
pub(super) fn domains_of_views(
    forwards: &[Forward],
    views: &[&[Spanned<usize>]],
    faults: &mut Faults,
) -> Vec<Domains<usize>> {
    let is_listed = |index: usize| {
        let mut listed = views.iter().copied().flatten();
        listed.any(|listed| *listed.get_ref() == index)
    };
    let mut common = Domains::default();
    for (index, forward) in forwards.iter().enumerate().filter(|(i, _)| !is_listed(*i)) {
        for domain in &forward.domains {
            if let Some(set) = common.insert(domain.get_ref(), index + 1) {
                let (domain_text, other) = (domain.get_ref(), &forwards[set - 1].name);
                let text = format!(
                    "{domain_text} is already a domain of [[forward]] {other}; remove it from one, or list the tables \
                     in different views"
                );
                faults.add(domain.span(), text);
            }
        }
    }
    let of_view = |listed: &&[Spanned<usize>]| {
        let mut own = Domains::default();
        for entry in *listed {
            let forward = &forwards[*entry.get_ref()];
            for domain in &forward.domains {
                if let Some(set) = own.insert(domain.get_ref(), entry.get_ref() + 1) {
                    let (domain, other) = (domain.get_ref(), &forwards[set - 1].name);
                    let text = format!(
                        "forward lists {other} and {}, which both have {domain}; remove one",
                        forward.name
                    );
                    faults.add(entry.span(), text);
                }
            }
        }
        own.or(&common)
    };
    views.iter().map(of_view).collect()
}

/// Checks that no domain is forwarded both to these servers and, as a special-use zone, to those of `[upstream]`.
pub(super) fn apart(forwards: &[Forward], special: &[Spanned<NameBuf>], faults: &mut Faults) {
    let domains = forwards.iter().flat_map(|forward| &forward.domains);
    let domains: Domains<()> = domains.map(|d| (d.get_ref().clone(), ())).collect();
    for zone in special
        .iter()
        .filter(|zone| domains.exact(zone.get_ref()).is_some())
    {
        let text = format!(
            "{} is a domain of [[forward]], too; remove it from forward-special, which means the servers of [upstream]",
            zone.get_ref()
        );
        faults.add(zone.span(), text);
    }
}
