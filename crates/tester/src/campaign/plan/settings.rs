//! The table of settings: everything that flags or the keys of a plan can set. A row of `settings.toml` describes a
//! setting for all readers (command line, plans, help, pages, dry run); its setter converts a text to a value, and is the
//! only code that does.

use std::fmt::Display;
use std::sync::LazyLock;

use dns64_transport::Backend;
use serde::Deserialize;
use serde::de::value::{Error, StrDeserializer};
use serde::de::{DeserializeOwned, IntoDeserializer as _};

use super::draft::{Directory, Draft};
use super::places::Place;
use super::server;
use crate::lab::hosts::Reach;
use crate::namespace::{Share, parse_suffix};
use crate::naming::{Name, Naming};
use crate::quantity::{self, ValueError};

/// A setting.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Setting {
    /// Its key in a plan, with the table: `trial.duration`.
    pub key: Option<String>,
    /// Its flag, without hyphens.
    pub flag: Option<String>,
    /// One-letter form of the flag.
    pub short: Option<char>,
    /// Another name of the flag.
    pub alias: Option<String>,
    /// Commands that have the flag.
    #[serde(default = "measurements")]
    pub commands: Vec<String>,
    /// Heading of the flag in the help.
    pub heading: Option<String>,
    /// Name of the value in the help.
    pub value: Option<String>,
    /// What the flag sets, if it takes no value.
    pub switch: Option<String>,
    /// What is set without it; several values of a list.
    #[serde(default)]
    pub default: Vec<String>,
    /// What happens without it, in words.
    pub otherwise: Option<String>,
    /// A value for errors, if the default is none, as in a plan.
    pub example: Option<String>,
    /// Unit of a number without a unit.
    pub bare: Option<String>,
    /// Whether it is a whole number between its bounds.
    #[serde(default)]
    pub whole: bool,
    /// Smallest value.
    pub least: Option<String>,
    /// Largest value.
    pub most: Option<String>,
    /// All values, each with a description; none if there are others.
    #[serde(default)]
    pub choices: Vec<(String, String)>,
    /// Whether a plan may give a list.
    #[serde(default)]
    pub many: bool,
    /// Whether the flag may be given several times.
    #[serde(default)]
    pub repeats: bool,
    /// Whether it is a table of values with names: `NAME=VALUE`.
    #[serde(default)]
    pub named: bool,
    /// One line of help.
    pub help: String,
    /// That of its key, if it differs from that of the flag.
    pub key_help: Option<String>,
    /// More help.
    pub more: Option<String>,
    /// A flag without which this one is an error.
    pub requires: Option<String>,
    /// Flags beside which this one is an error.
    #[serde(default)]
    pub conflicts: Vec<String>,
}

#[derive(Deserialize)]
struct Rows {
    setting: Vec<Setting>,
}

/// All settings.
///
/// # Panics
///
/// Never: a test reads the table.
pub fn all() -> &'static [Setting] {
    static ALL: LazyLock<Rows> =
        LazyLock::new(|| toml::from_str(include_str!("settings.toml")).expect("a table"));
    &ALL.setting
}

/// The settings of a table of plans, such as `trial`, in their order; the empty name is that of the keys outside tables.
pub fn of_table(table: &str) -> impl Iterator<Item = &'static Setting> {
    all().iter().filter(move |it| it.table() == Some(table))
}

/// Flag and key of a setting with this name in the table.
fn name_of(id: &str) -> Name {
    let setting = all().iter().find(|it| it.id() == id);
    Name {
        flag: setting.and_then(|it| it.flag.as_deref()),
        key: setting.map_or("", Setting::name),
    }
}

impl Draft {
    /// The draft of a measurement by flags. `given` returns the values of a setting, if its flag is given.
    ///
    /// # Errors
    ///
    /// A value is invalid.
    pub fn of_flags(given: impl Fn(&Setting) -> Option<Vec<String>>) -> Result<Self, ValueError> {
        let mut draft = Self::new(Directory::default());
        draft.naming = Naming::Flags;
        let of_campaigns = ["queue-check", "overload", "soak", "conformance"];
        for setting in all() {
            if let Some(texts) = given(setting) {
                draft.given.push(Place::of_flag(setting.id()));
                for text in texts {
                    setting.set(&mut draft, &text)?;
                }
            } else if !setting
                .table()
                .is_some_and(|table| of_campaigns.contains(&table))
            {
                setting.set_default(&mut draft);
            }
        }
        if draft.is_forced {
            let backend = &mut draft.plan.load.backend;
            *backend = backend.map(Backend::forced);
        }
        draft.dut.place = Place::of(&["dut"]).item(0);
        Ok(draft)
    }

    /// A setting in a message.
    pub(super) fn name(&self, id: &str) -> String {
        self.naming.name(name_of(id))
    }

    /// A setting with a value in a message.
    pub(super) fn with(&self, id: &str, value: impl Display) -> String {
        self.naming.value(name_of(id), value)
    }
}

fn measurements() -> Vec<String> {
    ["trial", "selftest", "search"].map(str::to_owned).to_vec()
}

impl Setting {
    /// Its name in this table: the key, or else the flag.
    pub fn id(&self) -> &str {
        let flag = self.flag.as_deref().unwrap_or_default();
        self.key.as_deref().unwrap_or(flag)
    }

    /// Table of its key.
    pub fn table(&self) -> Option<&str> {
        let key = self.key.as_deref()?;
        Some(key.split_once('.').map_or("", |(table, _)| table))
    }

    /// Its key within the table.
    pub fn name(&self) -> &str {
        let id = self.id();
        id.split_once('.').map_or(id, |(_, name)| name)
    }

    /// A value as in a plan, for errors.
    pub fn example(&self) -> String {
        let first = self.choices.first().map(|(name, _)| name);
        let text = self.example.as_ref().or(self.default.first()).or(first);
        let text = text.or(self.least.as_ref()).map_or("...", String::as_str);
        match text.starts_with(['{', '[']) || text.parse::<f64>().is_ok() || boolean(text).is_ok() {
            true => text.to_owned(),
            false => format!("{text:?}"),
        }
    }

    /// Sets it.
    ///
    /// # Errors
    ///
    /// The text is not one of its values: what is expected.
    pub fn set(&self, draft: &mut Draft, text: &str) -> Result<(), ValueError> {
        self.check_listed(text)?;
        let set = match self.table() {
            None => set_flag,
            Some("") => set_top,
            Some("tester") => set_tester,
            Some("trial") => set_trial,
            Some("search") => set_search,
            Some("cells") => set_cells,
            Some("dut") => set_dut,
            Some("hosts") => set_host,
            Some("link") => set_link,
            Some(_) => set_more,
        };
        set(draft, self.name(), text)?;
        let told = (self.id().to_owned(), text.to_owned());
        draft.plan.settings.push(told);
        Ok(())
    }

    /// Sets its default, if it has one.
    pub fn set_default(&self, draft: &mut Draft) {
        for text in &self.default {
            // A test sets all of them.
            let _ = self.set(draft, text);
        }
    }

    /// The values that it can have, if they can be listed.
    fn names(&self) -> Vec<&str> {
        self.choices.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// What to give for it, at least, where nothing is: "value", or "of a, b or c".
    pub(super) fn one(&self) -> String {
        match self.names().as_slice() {
            [] => "value".to_owned(),
            names => format!("of {}", or(names)),
        }
    }

    /// Checks a value, as [`Self::set`] does.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn check(&self, text: &str) -> Result<(), ValueError> {
        self.set(&mut Draft::new(Directory::default()), text)
    }

    fn check_listed(&self, text: &str) -> Result<(), ValueError> {
        let names = self.names();
        if !names.is_empty() && !names.contains(&text) {
            let near = names.iter().find(|name| quantity::is_near(text, name));
            let near = near.map_or_else(String::new, |name| format!("; did you mean {name}?"));
            return Err(ValueError(format!("must be {}{near}", or(&names))));
        }
        let bound = |text: &Option<String>| text.as_ref().and_then(|text| text.parse::<u64>().ok());
        if let (true, Some(least), Some(most)) = (self.whole, bound(&self.least), bound(&self.most))
            && !text
                .parse()
                .is_ok_and(|number| (least..=most).contains(&number))
        {
            return Err(ValueError(format!(
                "must be a whole number from {least} to {most}"
            )));
        }
        Ok(())
    }
}

/// "a", "a or b", "a, b or c".
fn or(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [names @ .., last] => format!("{} or {last}", names.join(", ")),
    }
}

/// Sets the flags that are no keys.
fn set_flag(it: &mut Draft, flag: &str, t: &str) -> Set {
    match flag {
        "server" => put_some(&mut it.server, t.parse()),
        "port" => put_some(&mut it.port, t.parse()),
        "force" => put(&mut it.is_forced, boolean(t)),
        _ => Err(no_setter()),
    }
}

fn set_top(it: &mut Draft, key: &str, t: &str) -> Set {
    match key {
        "name" => put(&mut it.plan.name, label(t)),
        "description" => put(&mut it.plan.description, valid(t)),
        "inventory" => put_some(&mut it.inventory, valid(t)),
        _ => Err(no_setter()),
    }
}

fn set_tester(it: &mut Draft, key: &str, t: &str) -> Set {
    let hosts = &mut it.plan.hosts;
    let load = &mut it.plan.load;
    match key {
        "lab" => put(&mut it.plan.lab, choice(t)),
        "setup" => put(&mut hosts.setup, choice(t)),
        "upstream-family" => put_some(&mut hosts.upstream, choice(t)),
        "authority" => put(&mut hosts.authority, it.directory.profile(t).parse()),
        "authority-cpus" => put(&mut hosts.authority_cpus, t.parse()),
        "threads" => put(&mut load.threads, t.parse()),
        "transport" => put(&mut load.transport.protocol, choice(t)),
        "queries-per-connection" => put_some(&mut load.transport.queries_per_connection, t.parse()),
        "pipeline" => put_some(&mut load.transport.pipeline, t.parse()),
        "sockets" => put_some(&mut load.ports, t.parse()),
        "local" => put_some(&mut load.local, t.parse()),
        "cpus" => put(&mut load.cpus, t.parse()),
        "namespace" => put_some(&mut it.namespace, t.parse()),
        "suffix" => put(&mut load.zone.suffix, parse_suffix(t)),
        "cname-share" => put(&mut load.zone.records.cname_share, t.parse()),
        "cname-length" => put(&mut load.zone.records.cname_length, t.parse()),
        "addresses" => put(&mut load.zone.records.addresses, t.parse()),
        "pref64" if t == "auto" => put(&mut load.pref64, valid(None)),
        "pref64" => put_some(&mut load.pref64, t.parse()),
        "segmentation" => put(&mut load.segmentation, t.parse()),
        "backend" if t == "auto" => put(&mut load.backend, valid(None)),
        "backend" => put_some(&mut load.backend, t.parse()),
        "burst" => put(&mut load.burst_max, t.parse()),
        "self-tests" => put(&mut it.plan.self_tests, t.parse()),
        "uncertified" => put(&mut it.plan.uncertified, boolean(t)),
        "raw" => put(&mut it.plan.raw, valid(t == "csv")),
        _ => Err(no_setter()),
    }
}

fn set_trial(it: &mut Draft, key: &str, t: &str) -> Set {
    let load = &mut it.plan.load;
    let limits = &mut load.limits;
    match key {
        "duration" => put(&mut load.duration_ns, quantity::duration(t)),
        "timeout" => put(&mut load.timeout_ns, quantity::timeout(t)),
        "types" => put(&mut load.form.types, t.parse()),
        "edns" => put(&mut load.form.edns, choice(t)),
        "max-stall" => put(&mut limits.max_stall_ns, quantity::stall(t)),
        "max-burst" => put(&mut limits.max_burst_queries, t.parse()),
        "max-rate-error" => put(&mut limits.max_rate_error_pct, quantity::pct(t)),
        "max-stolen" => put(&mut limits.max_stolen_pct, quantity::pct(t)),
        _ => Err(no_setter()),
    }
}

fn set_search(it: &mut Draft, key: &str, t: &str) -> Set {
    let search = &mut it.plan.search;
    match key {
        "runs" => put(&mut search.runs, t.parse()),
        "resolution" => put(&mut search.resolution, quantity::resolution(t)),
        "method" => put(&mut it.is_fixed_range, valid(t == "fixed-range")),
        "start-rate" => put_some(&mut it.start_qps, quantity::rate(t)),
        "max-rate" => put_some(&mut it.max_qps, quantity::rate(t)),
        "reuse" => put_some(&mut it.reuse, boolean(t)),
        "stop-early" => put_some(&mut it.stop_early, boolean(t)),
        "restart" => put(&mut search.restart, choice(t)),
        "settle" => put(&mut search.settle_ns, quantity::rest(t)),
        "order" => put(&mut search.order, choice(t)),
        "goals" => push(&mut search.goals, t.parse()),
        _ => Err(no_setter()),
    }
}

fn set_cells(it: &mut Draft, key: &str, t: &str) -> Set {
    match key {
        "grid" => put_some(&mut it.grid, valid(t)),
        "aaaa-share" => push(&mut it.aaaa_shares, t.parse()),
        "cached-share" => push(&mut it.cached_shares, t.parse()),
        "pattern" => push(&mut it.patterns, t.parse()),
        _ => Err(no_setter()),
    }
}

fn set_dut(it: &mut Draft, key: &str, t: &str) -> Set {
    let dut = &mut it.dut;
    match key {
        "name" => put_some(&mut dut.name, label(t)),
        "profile" => put_some(&mut dut.profile, valid(it.directory.profile(t))),
        "server" => put_some(&mut dut.server, server::with_port(t)),
        "authority" => put_some(&mut dut.authority, valid(it.directory.profile(t))),
        "host" => put_some(&mut dut.host, valid(t)),
        "binary" => put_some(&mut dut.binary, valid(it.directory.beside(t))),
        "self-test-server" => put_some(&mut dut.self_test_server, server::with_port(t)),
        "authority-behaviour" => push(&mut dut.behaviours, it.directory.behaviour(t)),
        "cores" => push(&mut dut.cores, t.parse()),
        "namespace" => push(&mut dut.namespaces, t.parse()),
        "pacing" => push(&mut dut.pacings, choice(t)),
        "set" => named(t).map(|(name, value)| drop(dut.set.insert(name, value))),
        "sweep" => {
            let (name, value) = named(t)?;
            dut.sweep.entry(name).or_default().push(value);
            Ok(())
        }
        _ => Err(no_setter()),
    }
}

/// Sets the keys of the tables of other searches and trials.
fn set_more(it: &mut Draft, key: &str, t: &str) -> Set {
    let check = &mut it.plan.queue_check;
    let soak = &mut it.plan.soak;
    match key {
        "durations" => {
            let durations = &mut check.get_or_insert_default().durations_ns;
            push(durations, quantity::duration(t))
        }
        "timeouts" => {
            let timeouts = &mut check.get_or_insert_default().timeouts_ns;
            push(timeouts, quantity::timeout(t))
        }
        "factors" => push(&mut it.plan.overload_milli, quantity::factor(t)),
        "share" => put(&mut soak.get_or_insert_default().share, soak_share(t)),
        "length" => {
            let length_ns = &mut soak.get_or_insert_default().length_ns;
            put(length_ns, quantity::soak_length(t))
        }
        "level" => put_some(&mut it.plan.conformance, choice(t)),
        _ => Err(no_setter()),
    }
}

fn set_host(it: &mut Draft, key: &str, t: &str) -> Set {
    let host = &mut it.host;
    match key {
        "ssh" => push(&mut host.reach, valid(Reach::Ssh(t.to_owned()))),
        "netns" => push(&mut host.reach, valid(Reach::Netns(t.to_owned()))),
        "local" => match boolean(t)? {
            true => push(&mut host.reach, valid(Reach::Local)),
            false => Ok(()),
        },
        "sudo" => put(&mut host.spec.sudo, boolean(t)),
        "roles" => push(&mut host.spec.roles, choice(t)),
        "cpus" => put(&mut host.spec.cpus, t.parse()),
        "authority-cpus" => put(&mut host.spec.authority_cpus, t.parse()),
        "threads" => put(&mut host.spec.threads, t.parse()),
        _ => Err(no_setter()),
    }
}

fn set_link(it: &mut Draft, key: &str, t: &str) -> Set {
    match key {
        "interface" => put(&mut it.link.interface, valid(t)),
        "addresses" => push(&mut it.link.addresses, t.parse()),
        _ => Err(no_setter()),
    }
}

fn no_setter() -> ValueError {
    ValueError("this setting has no setter; report it as a fault of this program".to_owned())
}

type Set = Result<(), ValueError>;

fn valid<T>(value: impl Into<T>) -> Result<T, ValueError> {
    Ok(value.into())
}

fn put<T, E: Display>(at: &mut T, read: Result<T, E>) -> Set {
    *at = read.map_err(|error| ValueError(error.to_string()))?;
    Ok(())
}

fn put_some<T, E: Display>(at: &mut Option<T>, read: Result<T, E>) -> Set {
    put(at, read.map(Some))
}

/// Adds a value to a list of distinct values.
fn push<T: PartialEq, E: Display>(list: &mut Vec<T>, read: Result<T, E>) -> Set {
    let value = read.map_err(|error| ValueError(error.to_string()))?;
    if list.contains(&value) {
        return Err(ValueError(
            "the list has it twice; omit one of them".to_owned(),
        ));
    }
    list.push(value);
    Ok(())
}

/// Splits a setting of a profile, `threads=2`; the value may be empty.
///
/// # Errors
///
/// There is no name before a `=`.
pub(crate) fn named(text: &str) -> Result<(String, String), ValueError> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => {
            let wanted = "a setting of the profile and its value";
            Err(ValueError::unreadable(wanted, "threads=2"))
        }
    }
}

/// One of the choices of a row, by its name in serde.
pub(crate) fn choice<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    let text: StrDeserializer<'_, Error> = text.into_deserializer();
    T::deserialize(text)
}

fn boolean(text: &str) -> Result<bool, ValueError> {
    let wrong = |_| ValueError("must be true or false".to_owned());
    text.parse().map_err(wrong)
}

/// A name in reports, and of a directory.
fn label(text: &str) -> Result<String, ValueError> {
    let bad = |c: char| c.is_control() || c == '/';
    let wrong = if text.trim().is_empty() || text.starts_with('.') || text.contains(bad) {
        "a name has at least one character, none of them / or a control character, and begins with no dot"
            .to_owned()
    } else if text.chars().count() > LABEL_CHARS_MAX {
        format!("a name has at most {LABEL_CHARS_MAX} characters; shorten it")
    } else {
        return Ok(text.to_owned());
    };
    Err(ValueError(wrong))
}

fn soak_share(text: &str) -> Result<Share, ValueError> {
    match text.parse()? {
        Share::NONE => {
            let why = "a soak without load shows nothing; give a share above 0";
            Err(ValueError(why.to_owned()))
        }
        share => Ok(share),
    }
}

/// A terminal is about 100 characters wide.
const LABEL_CHARS_MAX: usize = 100;

#[cfg(test)]
mod tests;
