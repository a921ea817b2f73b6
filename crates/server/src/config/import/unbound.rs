//! What the statements of an unbound.conf mean (unbound.conf(5)).

use std::net::IpAddr;
use std::slice;

use super::draft::{Draft, endpoint, quoted};
use super::tree::{Statement, last};
use crate::answer::reverse;

const RULES: &str = include_str!("unbound.txt");

pub(super) fn convert(clauses: &[Statement], draft: &mut Draft) {
    // Statements behind an included file are in no clause: most belong to this one.
    let server = clauses.iter().flat_map(|clause| match clause.word(0) {
        "server" => clause.block(0),
        _ if clause.has_block() => &[],
        _ => slice::from_ref(clause),
    });
    let server: Vec<Statement> = server.cloned().collect();
    let value = |key, default| last(&server, key).map_or(default, |it| it.word(1));
    let ports = [value("port", "53"), value("tls-port", "853")];
    for it in &server {
        if !draft.apply(RULES, it) {
            one(it, ports, draft);
        }
    }
    let others = clauses.iter().filter(|clause| clause.has_block());
    for (number, clause) in others.enumerate() {
        match clause.word(0) {
            "server" => {}
            "forward-zone" => zone(clause, number, draft),
            _ => draft.leave(clause, ""),
        }
    }
    let Some(first) = clauses.first() else { return };
    let has_interface = !value("interface", "").is_empty() || !value("ip-address", "").is_empty();
    // What Unbound does without statements.
    for (net, address) in [("127.0.0.0/8", "127.0.0.1"), ("::1", "::1")] {
        let is_net = |it: &Statement| [it.word(0), it.word(1)] == ["access-control", net];
        if !server.iter().any(is_net) {
            draft.text("allow", net, first);
        }
        if !has_interface {
            draft.text("listen", &endpoint(address, ports[0]), first);
        }
    }
    if !value("module-config", "")
        .split_whitespace()
        .any(|module| module == "dns64")
    {
        draft.set("dns64.enabled", "false".to_owned(), first);
    }
    draft.stale(&server, ["serve-expired", "serve-expired-ttl"]);
    draft.query_beside("Unbound", first);
}

/// A statement of the clause `server` without a rule.
fn one(it: &Statement, [port, tls_port]: [&str; 2], draft: &mut Draft) {
    let value = it.word(1);
    match (it.word(0), it.word(2)) {
        ("interface" | "ip-address", _) => {
            let (address, port) = value.split_once('@').unwrap_or((value, port));
            let key = if port == tls_port {
                "tls.listen"
            } else {
                "listen"
            };
            draft.text(key, &endpoint(address, port), it);
        }
        ("access-control", "allow" | "allow_snoop" | "allow_setrd") => {
            draft.text("allow", value, it);
        }
        ("access-control", "refuse" | "refuse_non_local") if value.ends_with("/0") => {}
        ("access-control", _) => draft.leave(it, "all networks outside allow are refused"),
        ("local-zone", "static" | "always_nxdomain") => draft.text("local.zones", value, it),
        ("local-zone", "nodefault") => draft.text("forward-special", value, it),
        ("local-zone", "transparent" | "typetransparent") => {}
        ("local-data-ptr", _) => match pointer(value) {
            Some(record) => draft.text("local.records", &record, it),
            None => draft.leave(it, "not an address and a name"),
        },
        ("port" | "tls-port" | "module-config" | "serve-expired" | "serve-expired-ttl", _) => {}
        _ if value == "no" => {}
        _ => draft.leave(it, ""),
    }
}

/// Servers for all names, or for those of a domain.
fn zone(clause: &Statement, number: usize, draft: &mut Draft) {
    let inside = clause.block(0);
    let value = |key| last(inside, key).map_or("", |it| it.word(1));
    let is_tls = [value("forward-tls-upstream"), value("forward-ssl-upstream")].contains(&"yes");
    let mut path = "upstream.servers".to_owned();
    if value("name") != "." {
        let table = format!("forward.{number:04}");
        draft.text(&format!("{table}.domains"), value("name"), clause);
        path = format!("{table}.servers");
    }
    for it in inside {
        match it.word(0) {
            "forward-addr" => {
                let toml = server(it, is_tls, draft);
                draft.set(&path, toml, it);
            }
            "name" | "forward-tls-upstream" | "forward-ssl-upstream" => {}
            _ if it.word(1) == "no" => {}
            _ => draft.leave(it, ""),
        }
    }
}

/// A server, `ADDRESS@PORT#NAME`: the name is that of its certificate.
fn server(it: &Statement, is_tls: bool, draft: &mut Draft) -> String {
    let (address, name) = it.word(1).split_once('#').unwrap_or((it.word(1), ""));
    let (address, tls) = match (is_tls, name) {
        (false, _) => return quoted(&at_port(address, "53")),
        (true, "") => {
            draft.leave(it, "without a name, dns64d may query it in clear text");
            let host = address.split('@').next().unwrap_or_default();
            (endpoint(host, "53"), "\"opportunistic\"".to_owned())
        }
        (true, name) => (
            at_port(address, "853"),
            format!("{{ name = {} }}", quoted(name)),
        ),
    };
    format!("{{ address = {}, tls = {tls} }}", quoted(&address))
}

/// An address with `@PORT`, or with this port.
fn at_port(text: &str, port: &str) -> String {
    let (address, port) = text.split_once('@').unwrap_or((text, port));
    endpoint(address, port)
}

/// The PTR record of `ADDRESS [TTL] NAME`.
fn pointer(text: &str) -> Option<String> {
    let (address, rest) = text.split_once(char::is_whitespace)?;
    let address: IpAddr = address.parse().ok()?;
    let (ttl, name) = rest.trim().rsplit_once(' ').unwrap_or(("", rest));
    Some(format!(
        "{} {ttl} PTR {name}",
        reverse::of_address(address)?
    ))
}
