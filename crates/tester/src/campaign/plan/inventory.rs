//! Reads hosts from an Ansible inventory: its variables become tables of the plan, once, when the plan is loaded.
//!
//! A journal keeps the text with these tables, so neither a resume nor a report needs the inventory or Ansible.

use std::path::Path;
use std::process::Command;

use dns64_transport::clock::{Nanos, SECOND};
use serde_json::Value as Json;
use toml::{Table, Value};

use super::draft::Draft;
use super::places::{Faults, Place, Places};
use crate::machine::process::{find_program, run};

/// A plan with the hosts of its inventory.
pub(super) struct Expanded {
    /// The text of the plan: the key `inventory` is a comment, and the hosts are at the end.
    pub text: String,
    /// Offset of the hosts.
    pub begin: usize,
    /// Path of the inventory.
    pub path: String,
}

/// Reads the inventory of a plan; `None` if it has none, or if it cannot be read.
pub(super) fn expand(draft: &Draft, places: &Places<'_>, faults: &mut Faults) -> Option<Expanded> {
    let name = draft.inventory.as_ref()?;
    let place = Place::of(&["inventory"]);
    if !draft.hosts.is_empty() {
        let why = "both inventory and [hosts.NAME] describe the hosts; omit one of them";
        faults.add(&place, why);
        return None;
    }
    let path = draft.directory.beside(name);
    let listed = listed(&path).map_err(|message| vec![message]);
    let tables = match listed.and_then(|json| as_toml(&json)) {
        Ok(tables) => tables,
        Err(messages) => {
            for message in messages {
                faults.add(&place, format!("inventory {}: {message}", path.display()));
            }
            return None;
        }
    };
    let (text, begin) = put_in(places, name, &tables);
    Some(Expanded {
        text,
        begin,
        path: path.display().to_string(),
    })
}

/// Returns the text with the key as a comment and these tables at its end, and their offset. All other lines keep their
/// place, so that errors point at them.
fn put_in(places: &Places<'_>, name: &str, tables: &str) -> (String, usize) {
    let (text, span) = (places.text, places.span(&Place::of(&["inventory"])));
    let begin = text[..span.start].rfind('\n').map_or(0, |end| end + 1);
    let lines = text[begin..span.end].replace('\n', "\n# ");
    let mut result = format!("{}# {lines}{}", &text[..begin], &text[span.end..]);
    if !result.ends_with('\n') {
        result.push('\n');
    }
    let name = name.escape_debug();
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
/// The output is not such a list, no host has roles, or a variable has no equivalent key: all faults, each with the host
/// and the remedy. Invalid values of keys are found when the plan is read.
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
            let mut its = Vec::new();
            hosts.insert(name.clone(), host(name, variables, &mut its).into());
            faults.extend(its.iter().map(|fault| format!("host {name}: {fault}")));
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

/// The table of a host.
fn host(name: &str, variables: &Json, faults: &mut Vec<String>) -> Table {
    let mut host = Table::new();
    let (key, value) = reach(name, variables, faults);
    host.insert(key.to_owned(), value);
    if needs_sudo(variables, faults) {
        host.insert("sudo".to_owned(), true.into());
    }
    for (variable, key) in KEYS {
        let Some(value) = variables.get(variable).filter(|value| !value.is_null()) else {
            continue;
        };
        // `ansible-inventory` prints variables without expanding them.
        let written = value.to_string();
        match Value::try_from(value) {
            _ if written.contains("{{") || written.contains("{%") => faults.push(format!(
                "{variable} has the template {written}, which {PROGRAM} does not expand; write its value"
            )),
            Ok(value) => drop(host.insert(key.to_owned(), value)),
            Err(error) => faults.push(format!("{variable} is {written}: {error}")),
        }
    }
    host
}

/// Variables and the keys that they become.
const KEYS: [(&str, &str); 5] = [
    ("dns64bench_roles", "roles"),
    ("dns64bench_cpus", "cpus"),
    ("dns64bench_authority_cpus", "authority-cpus"),
    ("dns64bench_threads", "threads"),
    ("dns64bench_links", "links"),
];

/// Key and value of the connection to a host.
fn reach(name: &str, variables: &Json, faults: &mut Vec<String>) -> (&'static str, Value) {
    let text = |variable| text(variables, variable);
    if let Some(netns) = text("dns64bench_netns") {
        return ("netns", netns.into());
    }
    match text("ansible_connection").as_deref() {
        Some("local" | "ansible.builtin.local") => return ("local", true.into()),
        None | Some("ssh" | "ansible.builtin.ssh" | "smart" | "paramiko" | "paramiko_ssh") => {}
        Some(other) => faults.push(format!(
            "ansible_connection is {other:?}; an agent is reached by ssh or local"
        )),
    }
    let host = text("ansible_host").unwrap_or_else(|| name.to_owned());
    let user = text("ansible_user").map_or_else(String::new, |user| format!("{user}@"));
    let target = match text("ansible_port") {
        Some(port) if host.contains(':') => format!("ssh://{user}[{host}]:{port}"),
        Some(port) => format!("ssh://{user}{host}:{port}"),
        None => format!("{user}{host}"),
    };
    ("ssh", target.into())
}

fn needs_sudo(variables: &Json, faults: &mut Vec<String>) -> bool {
    // Ansible accepts these words as booleans as well.
    let written = text(variables, "ansible_become").map(|text| text.to_lowercase());
    let becomes = match written.as_deref() {
        None | Some("false" | "no" | "off" | "0") => false,
        Some("true" | "yes" | "on" | "1") => true,
        Some(other) => {
            faults.push(format!(
                "ansible_become is {other:?}; must be true or false"
            ));
            false
        }
    };
    match text(variables, "ansible_become_method").as_deref() {
        None | Some("sudo" | "ansible.builtin.sudo") => {}
        Some(other) if becomes => {
            faults.push(format!("ansible_become_method is {other:?}; must be sudo"));
        }
        Some(_) => {}
    }
    becomes && text(variables, "ansible_user").as_deref() != Some("root")
}

/// A variable as text, if it is set.
fn text(variables: &Json, variable: &str) -> Option<String> {
    match variables.get(variable)? {
        Json::Null => None,
        Json::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

const PROGRAM: &str = "ansible-inventory";

/// Python starts within a second; a dynamic inventory may query other services.
const LIMIT: Nanos = 30 * SECOND;

/// Number of lines of its output that an error shows: it prints for each of three formats why parsing failed.
const LINES_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::super::{Plan, reader};
    use super::*;

    const TABLES: &str = "[hosts.gen]\nlocal = true\nroles = [\"measurer\", \"authority\"]\n";

    fn put_into(text: &str) -> (String, usize) {
        let draft = reader::read(text, "x.toml", &mut Faults::default()).unwrap();
        let places = Places::of("x.toml", text);
        put_in(&places, &draft.inventory.unwrap(), TABLES)
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
