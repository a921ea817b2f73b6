//! A plan as it is written: all keys, and the places of their values.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::de::DeTable;

use super::fault::{Fault, Faults};
use super::section::{self, Section};
use super::{Order, RawFormat, Restart};
use crate::lab::LabKind;
use crate::lab::hosts::{LinkName, Part, THREADS_MAX};
use crate::lab::profile::Family;
use crate::lab::topology::Setup;
use crate::load::pace;
use crate::machine::Role;

pub(crate) use super::section::{At, Many, Word};

/// Reads the keys; [`super::read`] interprets their values. `None` if the text is not TOML.
pub(super) fn parse(faults: &mut Faults<'_>) -> Option<File> {
    let text = faults.text;
    let (document, errors) = DeTable::parse_recoverable(text);
    for error in errors {
        let message = error.message().lines().collect::<Vec<_>>().join(", ");
        let remedy = match message.starts_with("duplicate key") {
            true => "omit one of them",
            false => "put texts into quotes, and close each quote and bracket",
        };
        faults.add(Fault {
            span: error.span().unwrap_or(text.len()..text.len()),
            table: TOP,
            message: format!("not valid TOML: {message}; {remedy}"),
        });
    }
    let is_toml = faults.is_empty();
    is_toml.then(|| section::open(document.get_ref(), TOP, faults, File::read))
}

/// Name for the keys outside all tables.
const TOP: &str = "a plan";

#[derive(Debug)]
pub(crate) struct File {
    pub name: Option<At<String>>,
    pub description: String,
    pub inventory: Option<At<String>>,
    pub hosts: BTreeMap<String, At<Host>>,
    pub tester: Tester,
    pub trial: Trial,
    pub search: Search,
    pub cells: Cells,
    pub dut: Vec<At<Dut>>,
    pub queue_check: Option<At<QueueCheck>>,
    pub overload: Option<At<Overload>>,
    pub soak: Option<At<Soak>>,
}

impl File {
    fn read(s: &mut Section<'_, '_, '_>) -> Self {
        let description = s.text("description", "what it is for");
        Self {
            name: s.text("name", "quick"),
            description: description.map_or_else(String::new, |at| at.get_ref().clone()),
            inventory: s.text("inventory", "hosts.yml"),
            hosts: s.named("hosts", HOSTS, Host::read).into_iter().collect(),
            tester: below(s, "tester", "[tester]", Tester::read),
            trial: below(s, "trial", "[trial]", Trial::read),
            search: below(s, "search", "[search]", Search::read),
            cells: below(s, "cells", "[cells]", Cells::read),
            dut: s.sections("dut", DUT, false, Dut::read),
            queue_check: s.section("queue-check", "[queue-check]", QueueCheck::read),
            overload: s.section("overload", "[overload]", Overload::read),
            soak: s.section("soak", "[soak]", Soak::read),
        }
    }
}

/// Reads an optional table.
fn below<T: Default + Clone>(
    s: &mut Section<'_, '_, '_>,
    key: &'static str,
    name: &'static str,
    read: impl FnOnce(&mut Section<'_, '_, '_>) -> T,
) -> T {
    let table = s.section(key, name, read);
    table.map_or_else(T::default, |at| at.get_ref().clone())
}

/// Name of the table of a host.
pub(super) const HOSTS: &str = "[hosts.NAME]";

/// Name of the table of a DUT.
pub(super) const DUT: &str = "[[dut]]";

#[derive(Debug)]
pub(crate) struct Host {
    pub ssh: Option<At<String>>,
    pub netns: Option<At<String>>,
    pub local: Option<At<bool>>,
    pub sudo: bool,
    pub roles: Option<At<Vec<Role>>>,
    pub cpus: Option<At<String>>,
    pub authority_cpus: Option<At<String>>,
    pub threads: Option<At<u64>>,
    pub links: Vec<(LinkName, Vec<At<Link>>)>,
    /// Parts with a fault that is reported already: the connection, roles or links.
    pub doubts: Vec<Part>,
}

impl Host {
    fn read(s: &mut Section<'_, '_, '_>) -> Self {
        let mut doubts = Vec::new();
        let links_of = [LinkName::Client, LinkName::Upstream, LinkName::SelfTest];
        let ends = |s: &mut Section<'_, '_, '_>| {
            let read = links_of.map(|link| (link, s.sections(link.name(), LINK, true, Link::read)));
            Vec::from(read)
        };
        let known = s.faults.count();
        let links = s.section("links", "[hosts.NAME.links]", ends);
        let links = links.map_or_else(Vec::new, |at| at.get_ref().clone());
        if s.faults.count() > known {
            doubts.extend(links_of.map(Part::Link));
        }
        let known = s.faults.count();
        let ssh = s.text("ssh", "root@gen1");
        let netns = s.text("netns", "gen1");
        let local = s.boolean("local");
        if s.faults.count() > known {
            doubts.push(Part::Reach);
        }
        let known = s.faults.count();
        let roles = s.choices("roles", "roles = [\"measurer\"]");
        if s.faults.count() > known {
            doubts.push(Part::Roles);
        }
        Self {
            ssh,
            netns,
            local,
            sudo: s.boolean("sudo").is_some_and(|at| *at.get_ref()),
            roles,
            cpus: s.text("cpus", "0,2-3"),
            authority_cpus: s.text("authority-cpus", "1"),
            threads: s.number("threads", THREADS_MAX as u64),
            links: links
                .into_iter()
                .filter(|(_, ends)| !ends.is_empty())
                .collect(),
            doubts,
        }
    }
}

const LINK: &str = "[hosts.NAME.links.client]";

#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub interface: String,
    pub addresses: Vec<At<String>>,
}

impl Link {
    fn read(s: &mut Section<'_, '_, '_>) -> Self {
        let interface = s.text("interface", "ens1f0");
        Self {
            interface: interface.map_or_else(String::new, |at| at.get_ref().clone()),
            addresses: s.texts("addresses", "addresses = [\"2001:2:0:1::1/64\"]"),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Tester {
    pub lab: Option<At<LabKind>>,
    pub setup: Option<At<Setup>>,
    pub upstream_family: Option<Family>,
    pub authority: Option<At<String>>,
    pub threads: Option<At<u64>>,
    pub sockets: Option<At<u64>>,
    pub local: Option<At<String>>,
    pub cpus: Option<At<String>>,
    pub authority_cpus: Option<At<String>>,
    pub namespace: Option<At<String>>,
    pub suffix: Option<At<String>>,
    pub pref64: Option<At<String>>,
    pub segmentation: Option<At<String>>,
    pub backend: Option<At<String>>,
    pub burst: Option<At<u64>>,
    pub self_tests: Option<At<u64>>,
    pub uncertified: bool,
    pub raw: Option<At<RawFormat>>,
}

impl Tester {
    fn read(s: &mut Section<'_, '_, '_>) -> Self {
        Self {
            lab: s.choice("lab"),
            setup: s.choice("setup"),
            upstream_family: s.choice("upstream-family").map(|at| *at.get_ref()),
            authority: s.text("authority", "built-in"),
            threads: s.number("threads", THREADS_MAX as u64),
            sockets: s.number("sockets", SOCKETS_MAX),
            local: s.text("local", "2001:2:0:78::/116"),
            cpus: s.text("cpus", "0,2-3"),
            authority_cpus: s.text("authority-cpus", "1"),
            namespace: s.text("namespace", "10.0.0.0/8"),
            suffix: s.text("suffix", "dns64perf.test"),
            pref64: s.text("pref64", "64:ff9b::/96"),
            segmentation: s.text("segmentation", "on"),
            backend: s.text("backend", "socket"),
            burst: s.number("burst", pace::BURST_MAX),
            self_tests: s.number("self-tests", SELF_TESTS_MAX),
            uncertified: s.boolean("uncertified").is_some_and(|at| *at.get_ref()),
            raw: s.choice("raw"),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Trial {
    pub duration: Option<At<Word>>,
    pub timeout: Option<At<Word>>,
    pub max_stall: Option<At<Word>>,
    pub max_burst: Option<At<u64>>,
    pub max_rate_error: Option<At<Word>>,
    pub max_stolen: Option<At<Word>>,
}

impl Trial {
    fn read(s: &mut Section<'_, '_, '_>) -> Self {
        Self {
            duration: s.word("duration", "\"60s\""),
            timeout: s.word("timeout", "\"1s\""),
            max_stall: s.word("max-stall", "\"10ms\""),
            max_burst: s.number("max-burst", BURST_MAX),
            max_rate_error: s.word("max-rate-error", "\"10%\""),
            max_stolen: s.word("max-stolen", "\"1%\""),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Search {
    pub runs: Option<At<u64>>,
    pub resolution: Option<At<Word>>,
    pub method: Option<At<Method>>,
    pub start_rate: Option<At<Word>>,
    pub max_rate: Option<At<Word>>,
    pub reuse: Option<At<bool>>,
    pub stop_early: Option<bool>,
    pub restart: Restart,
    pub settle: Option<At<Word>>,
    pub order: Order,
}

impl Search {
    fn read(s: &mut Section<'_, '_, '_>) -> Self {
        Self {
            runs: s.number("runs", RUNS_MAX),
            resolution: s.word("resolution", "\"0.1%\""),
            method: s.choice("method"),
            start_rate: s.word("start-rate", "\"10k\""),
            max_rate: s.word("max-rate", "\"100k\""),
            reuse: s.boolean("reuse"),
            stop_early: s.boolean("stop-early").map(|at| *at.get_ref()),
            restart: s
                .choice("restart")
                .map_or_else(Restart::default, |at| *at.get_ref()),
            settle: s.word("settle", "\"10s\""),
            order: s
                .choice("order")
                .map_or_else(Order::default, |at| *at.get_ref()),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Method {
    #[default]
    Galloping,
    FixedRange,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Cells {
    pub grid: Option<At<Grid>>,
    pub aaaa_share: Option<At<Many>>,
    pub cached_share: Option<At<Many>>,
    pub pattern: Option<At<Many>>,
}

impl Cells {
    fn read(s: &mut Section<'_, '_, '_>) -> Self {
        Self {
            grid: s.choice("grid"),
            aaaa_share: s.many("aaaa-share", "[\"0%\", \"50%\"]"),
            cached_share: s.many("cached-share", "[\"0%\", \"80%\"]"),
            pattern: s.many("pattern", "\"stack:1000\""),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Grid {
    #[default]
    WorstCase,
    Aaaa,
    Cached,
    Rfc8219,
}

#[derive(Debug)]
pub(crate) struct Dut {
    /// Whether a fault of its subject is reported already.
    pub is_mistyped: bool,
    pub name: Option<At<String>>,
    pub host: Option<At<String>>,
    pub profile: Option<At<String>>,
    pub binary: Option<At<String>>,
    pub server: Option<At<String>>,
    pub self_test_server: Option<At<String>>,
    pub authority: Option<At<String>>,
    pub authority_behaviour: Option<At<Many>>,
    pub cores: Option<At<Many>>,
    pub namespace: Option<At<Many>>,
    pub pacing: Option<At<Many>>,
    pub set: BTreeMap<String, At<Vec<At<Word>>>>,
    pub sweep: BTreeMap<String, At<Vec<At<Word>>>>,
}

impl Dut {
    fn read(s: &mut Section<'_, '_, '_>) -> Self {
        let kinds = ["profile", "server", "authority"];
        let [profile, server, authority] = [
            s.text("profile", "unbound"),
            s.text("server", "2001:db8::53"),
            s.text("authority", "nsd"),
        ];
        let read = [&profile, &server, &authority].map(Option::is_some);
        Self {
            is_mistyped: kinds
                .iter()
                .zip(read)
                .any(|(key, read)| s.has(key) && !read),
            name: s.text("name", "mine"),
            host: s.text("host", "dut"),
            profile,
            binary: s.text("binary", "/usr/sbin/unbound"),
            server,
            self_test_server: s.text("self-test-server", "[2001:db8::54]:53"),
            authority,
            authority_behaviour: s.many("authority-behaviour", "\"delay=5ms\""),
            cores: s.many("cores", "\"1-2\""),
            namespace: s.many("namespace", "\"10.0.0.0/8\""),
            pacing: s.many("pacing", "\"absolute\""),
            set: s.settings("set", false).into_iter().collect(),
            sweep: s.settings("sweep", true).into_iter().collect(),
        }
    }
}

#[derive(Debug)]
pub(crate) struct QueueCheck {
    pub durations: Option<At<Many>>,
    pub timeouts: Option<At<Many>>,
}

impl QueueCheck {
    fn read(s: &mut Section<'_, '_, '_>) -> Self {
        Self {
            durations: s.many("durations", "[\"5s\", \"60s\"]"),
            timeouts: s.many("timeouts", "[0.5, 1, 5]"),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Overload {
    pub factors: Option<At<Many>>,
}

impl Overload {
    fn read(s: &mut Section<'_, '_, '_>) -> Self {
        Self {
            factors: s.many("factors", "[0.5, 1, 2]"),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Soak {
    pub share: Option<At<Word>>,
    pub length: Option<At<Word>>,
}

impl Soak {
    fn read(s: &mut Section<'_, '_, '_>) -> Self {
        Self {
            share: s.word("share", "\"80%\""),
            length: s.word("length", "\"4h\""),
        }
    }
}

/// Fifty times the number that RFC 8219 section 9.2 requires.
const RUNS_MAX: u64 = 1000;

/// As on the command line.
const SOCKETS_MAX: u64 = 16_384;

/// As on the command line.
const BURST_MAX: u64 = 1_000_000;

/// As on the command line.
const SELF_TESTS_MAX: u64 = 1000;
