//! The known keys of a configuration, by table.

/// A table and its keys.
#[derive(Debug)]
pub(super) struct Keys {
    /// The notation of the table, or its description.
    pub(super) table: &'static str,
    /// Its keys.
    pub(super) keys: &'static [&'static str],
}

pub(super) const TOP: Keys = Keys {
    table: "the top level",
    keys: &[
        "listen",
        "free-bind",
        "driver-cache",
        "af-xdp",
        "workers",
        "user",
        "sandbox",
        "allow",
        "deny-action",
        "proxy-protocol",
        "any",
        "udp-size",
        "queries-max",
        "server-id",
        "server-version",
        "cookie-secrets",
        "client-prefix-ipv4",
        "client-prefix-ipv6",
        "forward-special",
        "block-addresses",
        "block-except",
        "upstream",
        "forward",
        "local",
        "dns64",
        "nat64-health",
        "view",
        "cache",
        "tcp",
        "tls",
        "rate-limit",
        "log",
        "metrics",
        "control",
    ],
};

pub(super) const UPSTREAM: Keys = Keys {
    table: "[upstream]",
    keys: &[
        "servers",
        "selection",
        "timeout",
        "attempts",
        "edns",
        "cookies",
        "randomise-case",
        "tcp",
        "source",
        "interface",
        "avoid-ports",
        "order",
        "delay",
    ],
};

pub(super) const FORWARD: Keys = Keys {
    table: "[[forward]]",
    keys: &[
        "name",
        "domains",
        "servers",
        "selection",
        "timeout",
        "attempts",
        "edns",
        "cookies",
        "randomise-case",
        "tcp",
        "source",
        "interface",
    ],
};

pub(super) const LOCAL: Keys = Keys {
    table: "[local]",
    keys: &["records", "files", "zones"],
};

pub(super) const SERVER: Keys = Keys {
    table: "an entry of servers",
    keys: &[
        "address",
        "tls",
        "timeout",
        "attempts",
        "edns",
        "cookies",
        "randomise-case",
        "tcp",
        "source",
        "interface",
    ],
};

pub(super) const SERVER_TLS: Keys = Keys {
    table: "tls of a server",
    keys: &["name", "roots", "pins"],
};

pub(super) const INTERFACE: Keys = Keys {
    table: "an interface of driver-cache or af-xdp",
    keys: &["interface", "mode", "force"],
};

pub(super) const DNS64: Keys = Keys {
    table: "[dns64]",
    keys: &[
        "enabled",
        "prefix",
        "map",
        "exclude-aaaa",
        "private-addresses",
        "include-domains",
        "exclude-domains",
        "force-domains",
        "domain-prefixes",
        "synthesise-signed",
        "ptr",
        "ptr-name",
        "ipv4only",
        "mark-synthesised",
        "aaaa-failure",
        "filter-a",
    ],
};

pub(super) const MAP: Keys = Keys {
    table: "an entry of map",
    keys: &["ipv4", "prefix"],
};

pub(super) const DOMAIN_PREFIX: Keys = Keys {
    table: "an entry of domain-prefixes",
    keys: &["domain", "prefix"],
};

pub(super) const VIEW: Keys = Keys {
    table: "[[view]]",
    keys: &["clients", "dns64", "forward"],
};

pub(super) const VIEW_DNS64: Keys = Keys {
    table: "[view.dns64]",
    keys: DNS64.keys,
};

pub(super) const NAT64_HEALTH: Keys = Keys {
    table: "[nat64-health]",
    keys: &["hosts", "failures", "successes"],
};

pub(super) const CACHE: Keys = Keys {
    table: "[cache]",
    keys: &[
        "size",
        "min-ttl",
        "max-ttl",
        "max-negative-ttl",
        "serve-stale",
        "prefetch",
    ],
};

pub(super) const TCP: Keys = Keys {
    table: "[tcp]",
    keys: &["connections", "connections-per-client", "idle", "pipeline"],
};

pub(super) const TLS: Keys = Keys {
    table: "[tls]",
    keys: &["listen", "certificate", "key"],
};

pub(super) const RATE_LIMIT: Keys = Keys {
    table: "[rate-limit]",
    keys: &["responses-per-second", "burst", "slip", "exempt"],
};

pub(super) const LOG: Keys = Keys {
    table: "[log]",
    keys: &[
        "target",
        "level",
        "queries",
        "dnstap",
        "sample",
        "anonymise",
        "servfail",
    ],
};

pub(super) const METRICS: Keys = Keys {
    table: "[metrics]",
    keys: &["listen"],
};

pub(super) const CONTROL: Keys = Keys {
    table: "[control]",
    keys: &["socket"],
};

/// The tables that a misplaced key may be meant for.
const TABLES: [&Keys; 13] = [
    &UPSTREAM,
    &FORWARD,
    &LOCAL,
    &DNS64,
    &VIEW,
    &NAT64_HEALTH,
    &CACHE,
    &TCP,
    &TLS,
    &RATE_LIMIT,
    &LOG,
    &METRICS,
    &CONTROL,
];

/// All tables, including those of list entries.
#[cfg(test)]
pub(super) fn tables() -> impl Iterator<Item = &'static Keys> {
    let entries: [&Keys; 6] = [&TOP, &INTERFACE, &SERVER, &SERVER_TLS, &MAP, &DOMAIN_PREFIX];
    TABLES.into_iter().chain(entries)
}

impl Keys {
    /// Describes the fault of an unknown key in this table.
    pub(super) fn unknown(&self, key: &str) -> String {
        let Self { table, keys } = self;
        let at = if *table == TOP.table { "at" } else { "in" };
        format!(
            "unknown key {key:?} {at} {table}; {}",
            remedy(key, table, keys)
        )
    }
}

fn remedy(key: &str, table: &str, keys: &[&str]) -> String {
    if let Some(near) = nearest(key, keys.iter().copied()) {
        return format!("did you mean {near}?");
    }
    if table == VIEW.table && DNS64.keys.contains(&key) {
        return format!("write it under {}", VIEW_DNS64.table);
    }
    let home = TABLES.iter().find(|home| home.keys.contains(&key));
    if let Some(home) = home {
        return format!("write it under {}", home.table);
    }
    if TOP.keys.contains(&key) {
        return "write it at the top of the file, before the first table".to_owned();
    }
    format!("its keys are {}", listed(keys))
}

/// The nearest of some words, if one is similar enough.
pub(super) fn nearest<'w>(word: &str, words: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    // A third of the letters: "prefx" is similar, but "ttl" is not similar to "tcp".
    let limit = word.chars().count().min(LONG_WORD) / 3;
    let abridged = |known: &str| word.len() >= 3 && known.starts_with(word);
    words
        .into_iter()
        .map(|known| match abridged(known) {
            true => (0, known),
            false => (distance(word, known), known),
        })
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, known)| known)
}

/// Length of a word above which more letters do not make more mistakes likely.
const LONG_WORD: usize = 12;

/// The number of letters to insert, delete or replace (Levenshtein 1966). Underscores and capitals
/// are the most common mistakes in kebab-case words, so they cost nothing.
fn distance(word: &str, known: &str) -> usize {
    let fold = |c: char| {
        if c == '_' {
            '-'
        } else {
            c.to_ascii_lowercase()
        }
    };
    let known: Vec<char> = known.chars().collect();
    let mut row: Vec<usize> = (0..=known.len()).collect();
    for (i, c) in word.chars().map(fold).enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, k) in known.iter().enumerate() {
            let replaced = diagonal + usize::from(c != *k);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[known.len()]
}

/// Words as an enumeration: "a, b and c".
pub(super) fn listed(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
