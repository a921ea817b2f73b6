//! What the statements of a named.conf mean (named.conf(5)).

use std::net::IpAddr;

use super::draft::{Draft, endpoint, quoted};
use super::tree::{DEPTH_MAX, Statement, last};

const RULES: &str = include_str!("named.txt");

pub(super) fn convert(top: &[Statement], draft: &mut Draft) {
    let options = last(top, "options").map_or(&[][..], |it| it.block(0));
    for (number, it) in options.iter().enumerate() {
        match it.word(0) {
            "dns64" => dns64(it, number, top, draft),
            _ if draft.apply(RULES, it) => {}
            _ => one(it, top, draft),
        }
    }
    for (number, it) in top.iter().enumerate() {
        let kind = last(it.block(0), "type").map_or("", |it| it.word(1));
        match (it.word(0), kind) {
            ("options" | "acl", _) | ("zone", "hint") => {}
            ("zone", "forward") => {
                draft.text(&format!("forward.{number:04}.domains"), it.word(1), it);
                let path = format!("forward.{number:04}.servers");
                for inside in it.block(0) {
                    match (inside.word(0), inside.word(1)) {
                        ("forwarders", _) => servers(inside, &path, draft),
                        ("type", _) | ("forward", "only") => {}
                        _ => draft.leave(inside, ""),
                    }
                }
            }
            _ => draft.leave(it, ""),
        }
    }
    let Some(first) = last(top, "options").or(top.first()) else {
        return;
    };
    listen(options, first, draft);
    let mut access = ["allow-recursion", "allow-query-cache", "allow-query"].into_iter();
    if let Some(it) = access.find_map(|key| last(options, key)) {
        add("allow", it, top, draft);
    } else {
        draft.text("allow", "127.0.0.0/8", first);
        draft.text("allow", "::1", first);
        draft.leave(first, "localnets: add the networks of this host to allow");
    }
    if !draft.has("dns64.prefix") {
        draft.set("dns64.enabled", "false".to_owned(), first);
    }
    draft.stale(options, ["stale-answer-enable", "max-stale-ttl"]);
    draft.query_beside("BIND", first);
}

/// A statement of `options` without a rule.
fn one(it: &Statement, top: &[Statement], draft: &mut Draft) {
    match (it.word(0), it.word(1)) {
        ("forwarders", _) => servers(it, "upstream.servers", draft),
        ("deny-answer-addresses", _) => {
            add("block-addresses", it, top, draft);
            for name in it.block(1) {
                draft.text("block-except", name.word(0), it);
            }
        }
        ("query-source" | "query-source-v6", value) => {
            let mut words = [it.after("address"), value].into_iter();
            if let Some(address) = words.find(|word| word.parse::<IpAddr>().is_ok()) {
                draft.text("upstream.source", address, it);
            }
        }
        ("rate-limit", _) => {
            for inside in it.block(0) {
                match inside.word(0) {
                    "exempt-clients" => add("rate-limit.exempt", inside, top, draft),
                    _ if draft.apply(RULES, inside) => {}
                    _ => draft.leave(inside, ""),
                }
            }
        }
        // Together with others.
        ("listen-on" | "listen-on-v6" | "stale-answer-enable" | "max-stale-ttl", _)
        | ("allow-query" | "allow-recursion" | "allow-query-cache", _)
        | ("forward", "only")
        | (_, "no") => {}
        _ => draft.leave(it, ""),
    }
}

/// `listen-on [port N] { ADDRESS; ... }`; by default all addresses.
fn listen(options: &[Statement], first: &Statement, draft: &mut Draft) {
    for (key, any) in [("listen-on-v6", "::"), ("listen-on", "0.0.0.0")] {
        let Some(it) = last(options, key) else {
            draft.text("listen", &endpoint(any, "53"), first);
            continue;
        };
        for inside in it.block(0) {
            match inside.word(0) {
                "none" => {}
                "any" => draft.text("listen", &endpoint(any, port(&[it])), inside),
                address => draft.text("listen", &endpoint(address, port(&[it])), inside),
            }
        }
    }
}

/// `forwarders [port N] { ADDRESS [port N]; ... }`
fn servers(it: &Statement, path: &str, draft: &mut Draft) {
    for server in it.block(0) {
        match server.after("tls") {
            "" => draft.text(path, &endpoint(server.word(0), port(&[server, it])), server),
            _ => draft.leave(server, "write it with tls = { name = ... }"),
        }
    }
}

/// The port of the first statement that has one.
fn port<'s>(statements: &[&'s Statement]) -> &'s str {
    let mut ports = statements.iter().map(|it| it.after("port"));
    ports.find(|port| !port.is_empty()).unwrap_or("53")
}

/// `dns64 PREFIX { clients { ... }; mapped { ... }; exclude { ... }; ... }`
fn dns64(it: &Statement, number: usize, top: &[Statement], draft: &mut Draft) {
    let prefix = |is_in: bool| quoted(if is_in { it.word(1) } else { "none" });
    let of = |key| last(it.block(0), key);
    let [clients, mapped] =
        ["clients", "mapped"].map(|key| of(key).map_or(vec![], |it| nets(top, it.block(0), 0)));
    let is_all = |(net, is_in): &(String, bool)| *is_in && net.ends_with("/0");
    let whole = prefix(mapped.is_empty() || mapped.iter().any(is_all));
    let map = mapped.iter().filter(|entry| !is_all(entry));
    let map = map.map(|(net, is_in)| {
        let (net, prefix) = (quoted(net), prefix(*is_in));
        format!("{{ ipv4 = {net}, prefix = {prefix} }}")
    });
    if !clients.is_empty() && !clients.iter().any(is_all) {
        let map = map.collect::<Vec<_>>().join(", ");
        let keys = format!("{{ enabled = true, prefix = {whole}, map = [{map}] }}");
        draft.set(&format!("view.{number:04}.dns64"), keys, it);
        let path = format!("view.{number:04}.clients");
        add(&path, of("clients").unwrap_or(it), top, draft);
    } else if draft.has("dns64.prefix") {
        return draft.leave(it, "prefix can be a list: add it there");
    } else {
        draft.set("dns64.prefix", whole, it);
        map.for_each(|entry| draft.set("dns64.map", entry, it));
    }
    for inside in it.block(0) {
        match (inside.word(0), inside.word(1)) {
            ("exclude", _) => add("dns64.exclude-aaaa", inside, top, draft),
            ("clients" | "mapped" | "recursive-only", _) | ("suffix", "::") => {}
            _ if draft.apply(RULES, inside) => {}
            _ => draft.leave(inside, ""),
        }
    }
}

/// Adds the networks of a statement to a list.
fn add(path: &str, it: &Statement, top: &[Statement], draft: &mut Draft) {
    for (net, is_in) in nets(top, it.block(0), 0) {
        match is_in {
            true => draft.text(path, &net, it),
            false => draft.leave(it, &format!("{path} has no exceptions, such as {net}")),
        }
    }
}

/// The networks of a list, and whether they are in it; lists with names are at the top level.
fn nets(top: &[Statement], list: &[Statement], depth: usize) -> Vec<(String, bool)> {
    let mut all = Vec::new();
    for it in list {
        let words = format!("{}{}", it.word(0), it.word(1));
        let word = words.trim_start_matches('!');
        let mut acls = top.iter().filter(|acl| acl.word(0) == "acl");
        let acl = acls.find(|acl| acl.word(1) == word);
        let known = match (word, if it.has_block() { Some(it) } else { acl }) {
            (_, Some(inner)) if depth < DEPTH_MAX => nets(top, inner.block(0), depth + 1),
            ("none", _) => vec![],
            ("any", _) => ["0.0.0.0/0", "::/0"]
                .map(|net| (net.to_owned(), true))
                .into(),
            ("localhost", _) => ["127.0.0.0/8", "::1"]
                .map(|net| (net.to_owned(), true))
                .into(),
            _ => vec![(whole(word), true)],
        };
        let is_in = word == words;
        all.extend(
            known
                .into_iter()
                .map(|(net, is_inside)| (net, is_inside == is_in)),
        );
    }
    all
}

/// A network with all octets: `10/8` is `10.0.0.0/8`.
fn whole(net: &str) -> String {
    match net.split_once('/') {
        Some((address, len)) if !address.contains(':') => {
            let missing = 3_usize.saturating_sub(address.matches('.').count());
            format!("{address}{}/{len}", ".0".repeat(missing))
        }
        _ => net.to_owned(),
    }
}
