//! Reads hosts from an Ansible inventory: its variables become tables of the plan, once, when the plan is loaded.
//!
//! A journal keeps the text with these tables, so neither a resume nor a report needs the inventory or Ansible.

use std::path::Path;
use std::process::Command;

use dns64_transport::clock::{Nanos, SECOND};
use serde_json::Value as Json;
use toml::{Table, Value};

use super::duts::beside;
use super::fault::{Fault, Faults};
use super::file::{At, File};
use crate::machine::process::{find_program, run};

/// A plan with the hosts of its inventory.
pub(super) struct Expanded {
    /// The text of the plan: the key `inventory` is a comment, and the hosts are at the end.
    pub text: String,
    /// Offset of the hosts.
    begin: usize,
    /// Place of the key `inventory` in the original text.
    at: At<()>,
    path: String,
}

impl Expanded {
    /// Moves a fault in a generated table to the key `inventory` of the original text, since the user has not seen
    /// these tables. Returns other faults as errors.
    pub(super) fn relocate(&self, fault: Fault) -> Result<Fault, Fault> {
        if fault.span.start < self.begin {
            return Err(fault);
        }
        let message = format!("inventory {}: {}", self.path, fault.message);
        Ok(self.at.fault(message))
    }
}

/// Reads the inventory of a plan; `None` if it has none, or if it cannot be read.
pub(super) fn expand(file: &File, origin: &str, faults: &mut Faults<'_>) -> Option<Expanded> {
    let at = file.inventory.as_ref()?;
    if !file.hosts.is_empty() {
        let why = "both inventory and [hosts.NAME] describe the hosts; omit one of them";
        faults.add(at.fault(why));
        return None;
    }
    let path = beside(origin, at.get_ref());
    let listed = listed(&path).map_err(|message| vec![message]);
    let tables = match listed.and_then(|json| as_toml(&json)) {
        Ok(tables) => tables,
        Err(messages) => {
            for message in messages {
                let path = path.display();
                faults.add(at.fault(format!("inventory {path}: {message}")));
            }
            return None;
        }
    };
    let (text, begin) = put_in(faults.text, at, &tables);
    Some(Expanded {
        text,
        begin,
        at: at.whole(),
        path: path.display().to_string(),
    })
}

/// Returns the text with the key as a comment and these tables at its end, and their offset. All other lines keep their
/// place, so that errors point at them.
fn put_in(text: &str, at: &At<String>, tables: &str) -> (String, usize) {
    let span = at.span();
    let begin = text[..span.start].rfind('\n').map_or(0, |end| end + 1);
    let lines = text[begin..span.end].replace('\n', "\n# ");
    let mut result = format!("{}# {lines}{}", &text[..begin], &text[span.end..]);
    if !result.ends_with('\n') {
        result.push('\n');
    }
    let name = at.get_ref().escape_debug();
    result.push_str(&format!("\n# Read from the inventory {name}:\n"));
    let tables_begin = result.len();
    result.push_str(tables);
    (result, tables_begin)
}

/// Output of `ansible-inventory --list`.
fn listed(path: &Path) -> Result<String, String> {
    if !path.exists() {
        return Err("there is no such file; give the path of an Ansible inventory".to_owned());
    }
    let program = find_program(PROGRAM).ok_or(
        "ansible-inventory is not installed: install the Debian package ansible-core, or write the hosts into the \
         plan as [hosts.NAME]",
    )?;
    let mut command = Command::new(program);
    // Without this variable an unreadable inventory counts as empty, with a warning.
    command.env("ANSIBLE_INVENTORY_UNPARSED_FAILED", "true");
    let end = run(command.arg("-i").arg(path).arg("--list"), LIMIT);
    let end = end.map_err(|error| error.to_string())?;
    if end.status.success() {
        return Ok(end.stdout);
    }
    let lines: Vec<_> = end
        .stderr
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let last = &lines[lines.len().saturating_sub(LINES_MAX)..];
    Err(format!(
        "{PROGRAM} failed ({}): {}",
        end.status,
        last.join("\n")
    ))
}

/// Converts the output of `ansible-inventory --list` to tables of a plan: the hosts with `dns64bench_roles`.
///
/// # Errors
///
/// The output is not such a list, no host has roles, or variables are invalid: all faults, each with the host and the
/// remedy.
pub(super) fn as_toml(json: &str) -> Result<String, Vec<String>> {
    let list: Json = serde_json::from_str(json).map_err(|error| {
        vec![format!(
            "what {PROGRAM} says is not JSON ({error}); update ansible-core"
        )]
    })?;
    let all = list.pointer("/_meta/hostvars").and_then(Json::as_object);
    let mut hosts = Table::new();
    let mut faults = Vec::new();
    for (name, variables) in all.into_iter().flatten() {
        if variables.get("dns64bench_roles").is_some() {
            let mut variables = Variables::of(variables);
            hosts.insert(name.clone(), Value::Table(variables.host(name)));
            let its = variables.faults.into_iter();
            faults.extend(its.map(|message| format!("host {name}: {message}")));
        }
    }
    if hosts.is_empty() {
        let why = "no host has the variable dns64bench_roles; set it, such as dns64bench_roles: [measurer]";
        faults.push(why.to_owned());
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let plan = Table::from_iter([("hosts".to_owned(), Value::Table(hosts))]);
    toml::to_string(&plan).map_err(|error| vec![error.to_string()])
}

/// The variables of a host.
struct Variables<'a> {
    all: &'a Json,
    faults: Vec<String>,
}

impl<'a> Variables<'a> {
    fn of(all: &'a Json) -> Self {
        let faults = Vec::new();
        Self { all, faults }
    }

    /// The equivalent table of a plan; adds a fault for each invalid variable.
    fn host(&mut self, name: &str) -> Table {
        let mut host = Table::new();
        let (key, value) = self.reach(name);
        host.insert(key.to_owned(), value);
        if self.needs_sudo() {
            host.insert("sudo".to_owned(), Value::Boolean(true));
        }
        let roles = self.all.get("dns64bench_roles").unwrap_or(&Json::Null);
        let roles = self.texts("dns64bench_roles", roles);
        host.insert("roles".to_owned(), Value::Array(roles));
        for (variable, key) in [
            ("dns64bench_cpus", "cpus"),
            ("dns64bench_authority_cpus", "authority-cpus"),
        ] {
            if let Some(cpus) = self.text(variable) {
                host.insert(key.to_owned(), Value::String(cpus));
            }
        }
        if let Some(threads) = self.text("dns64bench_threads") {
            let number = threads.parse().map_err(|_| {
                format!("dns64bench_threads is {threads:?}; must be a number such as 4")
            });
            let number = self.keep(number).map(Value::Integer);
            host.extend(number.map(|number| ("threads".to_owned(), number)));
        }
        if let Some(links) = self.all.get("dns64bench_links") {
            host.insert("links".to_owned(), Value::Table(self.all_links(links)));
        }
        host
    }

    /// Key and value of the connection to the host.
    fn reach(&mut self, name: &str) -> (&'static str, Value) {
        if let Some(netns) = self.text("dns64bench_netns") {
            return ("netns", Value::String(netns));
        }
        match self.text("ansible_connection").as_deref() {
            Some("local" | "ansible.builtin.local") => return ("local", Value::Boolean(true)),
            None | Some("ssh" | "ansible.builtin.ssh" | "smart" | "paramiko" | "paramiko_ssh") => {}
            Some(other) => self.faults.push(format!(
                "ansible_connection is {other:?}; an agent is reached by ssh or local"
            )),
        }
        let host = self.text("ansible_host");
        let host = host.unwrap_or_else(|| name.to_owned());
        let user = self.text("ansible_user").map(|user| format!("{user}@"));
        let user = user.unwrap_or_default();
        let target = match self.text("ansible_port") {
            Some(port) if host.contains(':') => format!("ssh://{user}[{host}]:{port}"),
            Some(port) => format!("ssh://{user}{host}:{port}"),
            None => format!("{user}{host}"),
        };
        ("ssh", Value::String(target))
    }

    fn needs_sudo(&mut self) -> bool {
        // Ansible accepts these words as booleans as well.
        let written = self.text("ansible_become").map(|text| text.to_lowercase());
        let becomes = match written.as_deref() {
            None | Some("false" | "no" | "off" | "0") => false,
            Some("true" | "yes" | "on" | "1") => true,
            Some(other) => {
                self.faults.push(format!(
                    "ansible_become is {other:?}; must be true or false"
                ));
                false
            }
        };
        match self.text("ansible_become_method").as_deref() {
            None | Some("sudo" | "ansible.builtin.sudo") => {}
            Some(other) if becomes => self
                .faults
                .push(format!("ansible_become_method is {other:?}; must be sudo")),
            Some(_) => {}
        }
        becomes && self.text("ansible_user").as_deref() != Some("root")
    }

    /// A variable as text, if it is set.
    fn text(&mut self, variable: &str) -> Option<String> {
        match self.all.get(variable) {
            None | Some(Json::Null) => None,
            Some(value) => self.keep(text(variable, value)),
        }
    }

    /// A text or a list of texts.
    fn texts(&mut self, what: &str, value: &Json) -> Vec<Value> {
        let one = std::slice::from_ref(value);
        let all = value.as_array().map_or(one, Vec::as_slice);
        let texts = all.iter().filter_map(|it| self.keep(text(what, it)));
        texts.map(Value::String).collect()
    }

    fn all_links(&mut self, value: &Json) -> Table {
        let Some(links) = value.as_object() else {
            self.faults
                .push(format!("dns64bench_links is {value}; {LINKS_EXAMPLE}"));
            return Table::new();
        };
        let mut table = Table::new();
        for (link, value) in links {
            if !["client", "upstream", "self-test"].contains(&link.as_str()) {
                self.faults.push(format!(
                    "dns64bench_links has a link {link:?}; there are client, upstream and self-test"
                ));
                continue;
            }
            let ends = match value {
                Json::Array(ends) => {
                    let ends = ends.iter().filter_map(|it| self.end(link, it));
                    Some(Value::Array(ends.collect()))
                }
                one => self.end(link, one),
            };
            table.extend(ends.map(|ends| (link.clone(), ends)));
        }
        table
    }

    fn end(&mut self, link: &str, end: &Json) -> Option<Value> {
        let what = |key: &str| format!("{key} of the link {link} in dns64bench_links");
        let known = end.as_object().filter(|end| {
            let keys: Vec<_> = end.keys().map(String::as_str).collect();
            keys.len() == 2 && keys.contains(&"interface") && keys.contains(&"addresses")
        });
        let known = known.ok_or_else(|| {
            format!("the link {link} in dns64bench_links is {end}; {LINKS_EXAMPLE}")
        });
        let end = self.keep(known)?;
        let addresses = self.texts(&what("addresses"), &end["addresses"]);
        let interface = self.keep(text(&what("interface"), &end["interface"]))?;
        Some(Value::Table(Table::from_iter([
            ("interface".to_owned(), Value::String(interface)),
            ("addresses".to_owned(), Value::Array(addresses)),
        ])))
    }

    /// Returns the value; after a fault, adds the fault and returns `None`.
    fn keep<T>(&mut self, read: Result<T, String>) -> Option<T> {
        read.map_err(|fault| self.faults.push(fault)).ok()
    }
}

fn text(what: &str, value: &Json) -> Result<String, String> {
    match value {
        // `ansible-inventory` prints variables without expanding them.
        Json::String(text) if text.contains("{{") || text.contains("{%") => Err(format!(
            "{what} is the template {text:?}, which {PROGRAM} does not expand; write its value"
        )),
        Json::String(text) => Ok(text.clone()),
        Json::Number(number) => Ok(number.to_string()),
        Json::Bool(on) => Ok(on.to_string()),
        other => Err(format!("{what} is {other}; must be a text or a number")),
    }
}

const PROGRAM: &str = "ansible-inventory";

const LINKS_EXAMPLE: &str =
    "must be such as {client: {interface: ens1, addresses: [\"2001:2:0:1::1/64\"]}}";

/// Python starts within a second; a dynamic inventory may query other services.
const LIMIT: Nanos = 30 * SECOND;

/// Number of lines of its output that an error shows: it prints for each of three formats why parsing failed.
const LINES_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::super::{Plan, file};
    use super::*;

    const TABLES: &str = "[hosts.gen]\nlocal = true\nroles = [\"measurer\", \"authority\"]\n";

    fn put_into(text: &str) -> (String, usize) {
        let file = file::parse(&mut Faults::new(text)).unwrap();
        put_in(text, &file.inventory.unwrap(), TABLES)
    }

    #[test]
    fn hosts_are_appended_and_other_lines_keep_their_place() {
        let text = "name = \"x\"\n  inventory=\"a/b.yml\"  # ours\n[[dut]]\nauthority = \"nsd\"";
        let (expanded, begin) = put_into(text);
        expect_test::expect![[r#"
            name = "x"
            #   inventory="a/b.yml"  # ours
            [[dut]]
            authority = "nsd"

            # Read from the inventory a/b.yml:
            [hosts.gen]
            local = true
            roles = ["measurer", "authority"]
        "#]]
        .assert_eq(&expanded);
        assert_eq!(&expanded[begin..], TABLES);
        let plan = Plan::parse("x.toml", &expanded).unwrap();
        assert_eq!(plan.hosts.at.unwrap().iter().count(), 1);
    }

    #[test]
    fn value_over_several_lines_becomes_a_comment() {
        let text = "inventory = \"\"\"\\\n  b.yml\"\"\"\r\n[[dut]]\r\nauthority = \"nsd\"\r\n";
        let (expanded, _) = put_into(text);
        Plan::parse("x.toml", &expanded).unwrap();
    }
}
