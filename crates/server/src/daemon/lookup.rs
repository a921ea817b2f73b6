//! What a client would get for a query, and from where: an engine of its own answers it from the cache of all workers.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use dns64_transport::clock::Nanos;
use dns64_wire::build::Builder;
use dns64_wire::codes::{Class, Rtype};
use dns64_wire::message::{Flags, Message, Record, Section};
use dns64_wire::name::NameBuf;
use ipnet::IpNet;

use crate::cache::Cache;
use crate::counts::Counts;
use crate::engine::actions::{Action, Actions, Client};
use crate::engine::{Engine, Seeds};
use crate::settings::Settings;

/// Octets of the longest query: a header and a question.
const QUERY_MAX: usize = 512;

/// The lines of a report on this query of a client (default: ::1).
pub(super) fn report(
    settings: &Settings,
    cache: &Arc<Cache>,
    name: &NameBuf,
    rtype: Rtype,
    client: Option<IpAddr>,
    now: Nanos,
) -> Vec<String> {
    let counts = Arc::new(Counts::default());
    let seeds = Seeds {
        random: rand::random(),
        cookies: rand::random(),
    };
    let mut engine = Engine::new(settings, Arc::clone(cache), Arc::clone(&counts), &seeds);
    let address = SocketAddr::new(client.unwrap_or(Ipv6Addr::LOCALHOST.into()), 0);
    let mut actions = Actions::default();
    // No frame: a response over TCP is an action.
    let client = Client::Tcp {
        connection: 0,
        address,
        tls: false,
    };
    engine.on_query(client, &query(name, rtype), &mut [], now, &mut actions);
    let mut lines = vec![format!("name={name} type={rtype} client={}", address.ip())];
    let mut asked = Vec::new();
    for action in actions.list() {
        match action {
            Action::Reply { message, .. } => {
                let message = actions.message(message);
                answer(message, from(&counts), &mut lines);
                if counts.synthesised_aaaa.get() > 0 {
                    lines.extend(prefixes(settings, message, name, address.ip()));
                }
            }
            Action::Ask {
                server, message, ..
            }
            | Action::AskConnection {
                server, message, ..
            } => {
                asked.push(question(settings, *server, actions.message(message)));
            }
            _ => {}
        }
    }
    if lines.len() == 1 {
        // Otherwise they are questions to refresh the cache.
        lines.extend(asked);
    }
    for rtype in [Some(rtype), (rtype == Rtype::AAAA).then_some(Rtype::A)]
        .into_iter()
        .flatten()
    {
        let state = engine.cached(name, rtype, address.ip(), now);
        lines.push(format!("cache type={rtype} {state}"));
    }
    lines
}

fn query(name: &NameBuf, rtype: Rtype) -> Vec<u8> {
    let mut octets = vec![0; QUERY_MAX];
    let mut len = 0;
    if let Ok(mut message) = Builder::new(&mut octets, QUERY_MAX) {
        message.header(0, Flags::default().with_rd(true).with_ad(true));
        // There is room for the longest name.
        let _fits = message.question(name, rtype, Class::IN);
        len = message.finish();
    }
    octets.truncate(len);
    octets
}

/// What an engine has answered its only query from.
fn from(counts: &Counts) -> &'static str {
    let sources = [
        (&counts.refused_access, "access"),
        (&counts.refused_type, "any"),
        (&counts.filtered_a, "filter-a"),
        (&counts.ipv4only, "ipv4only"),
        (&counts.cache_stale, "stale"),
        (&counts.cache_hits, "cache"),
        (&counts.local_zones, "local"),
    ];
    let mut sources = sources.into_iter().filter(|(counter, _)| counter.get() > 0);
    sources.next().map_or("settings", |(_, source)| source)
}

fn answer(octets: &[u8], from: &str, lines: &mut Vec<String>) {
    let Ok(message) = Message::parse(octets) else {
        lines.push("dropped".to_owned());
        return;
    };
    let mut line = format!("answer={} from={from}", message.rcode());
    for (is_set, flag) in [(message.aa(), " aa"), (message.ad(), " ad")] {
        line.push_str(if is_set { flag } else { "" });
    }
    lines.push(line);
    lines.extend(message.records().map_while(Result::ok).map(|r| record(&r)));
}

/// The prefixes of synthesised addresses, each with the key that chose it, and the clients of its view.
fn prefixes(
    settings: &Settings,
    octets: &[u8],
    name: &NameBuf,
    client: IpAddr,
) -> BTreeSet<String> {
    let view = &settings.views[settings.view_of(client)];
    let (Some(dns64), Ok(message)) = (&view.dns64, Message::parse(octets)) else {
        return BTreeSet::new();
    };
    let rule = dns64.domains.rule(&name.as_name());
    let clients: Vec<_> = view.clients.nets().iter().map(IpNet::to_string).collect();
    let records = message.records().map_while(Result::ok);
    let origins = records.filter_map(|record| dns64.origin(record.aaaa()?, rule));
    let line = |(prefix, key)| format!("prefix={prefix} by={key} view={}", clients.join(","));
    origins.map(line).collect()
}

fn question(settings: &Settings, server: usize, octets: &[u8]) -> String {
    let asked = Message::parse(octets)
        .ok()
        .and_then(|message| message.question());
    let asked = asked.map(|q| format!(" name={} type={}", q.name, q.rtype));
    let server = settings.upstreams[server].address;
    format!("asks={server}{}", asked.unwrap_or_default())
}

/// A record; data of other types than the usual ones as in RFC 3597.
fn record(record: &Record<'_>) -> String {
    let section = match record.section {
        Section::Answer => "answer",
        Section::Authority => "authority",
        Section::Additional => "additional",
    };
    let data = match record.rtype {
        Rtype::A => record.a().map(|address| address.to_string()),
        Rtype::AAAA => record.aaaa().map(|address| address.to_string()),
        Rtype::CNAME | Rtype::NS | Rtype::PTR | Rtype::DNAME => {
            record.rdata_name().ok().map(|name| name.to_string())
        }
        _ => None,
    };
    let data = data.unwrap_or_else(|| {
        let mut text = format!("\\# {} ", record.rdata.len());
        for octet in record.rdata {
            // Writing to a text never fails.
            let _ = write!(text, "{octet:02x}");
        }
        text
    });
    format!(
        "{section}={} {} {} {data}",
        record.name, record.ttl, record.rtype
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    const CONFIG: &str = r#"
        dns64 = { prefix = ["2001:db8:1::/96", "2001:db8:2::/96"], map = [{ ipv4 = "10.0.0.0/8", prefix = "2001:db8:3::/96" }] }
        local.records = ["two A 192.0.2.1", "range A 10.0.0.1", "own.corp A 192.0.2.1", "native AAAA 2001:db8:1::1"]
        upstream.servers = ["192.0.2.53"]
        [[view]]
        clients = ["fd00::/8", "10.0.0.0/8"]
        dns64 = { domain-prefixes = [{ domain = "corp", prefix = "2001:db8:4::/96" }] }
    "#;

    #[test]
    fn synthesised_answer_has_its_prefix_and_what_chose_it() {
        let settings = config::parse(CONFIG, "test").unwrap();
        let cache = Arc::new(Cache::new(&settings.cache, None));
        let told = |name: &str, client: &str| {
            let (name, client) = (name.parse().unwrap(), client.parse().unwrap());
            let mut lines = report(&settings, &cache, &name, Rtype::AAAA, Some(client), 0);
            lines.retain(|line| line.starts_with("prefix="));
            lines.join("\n")
        };
        assert_eq!(
            told("two", "::1"),
            "prefix=2001:db8:1::/96 by=prefix view=::/0,0.0.0.0/0\n\
             prefix=2001:db8:2::/96 by=prefix view=::/0,0.0.0.0/0"
        );
        assert_eq!(
            told("range", "::1"),
            "prefix=2001:db8:3::/96 by=map view=::/0,0.0.0.0/0"
        );
        assert_eq!(
            told("own.corp", "fd00::1"),
            "prefix=2001:db8:4::/96 by=domain-prefixes view=fd00::/8,10.0.0.0/8"
        );
        assert_eq!(told("native", "::1"), "");
    }
}
