//! Reads the dependencies between the modules of a crate from its source.

use std::collections::BTreeMap;
use std::fs::read_to_string;

use super::{root, rust_files};

/// The path of a module in its crate: `["lab", "host"]`.
type Path = Vec<String>;

/// The modules of a crate with their code, without tests and comments.
pub(crate) struct Sources(BTreeMap<Path, String>);

impl Sources {
    /// Reads `crates/NAME/src`.
    pub(crate) fn read(name: &str) -> Self {
        let folder = format!("crates/{name}/src");
        let source = root().join(&folder);
        let mut modules = BTreeMap::new();
        for file in rust_files(&folder) {
            let inside = file.strip_prefix(&source).unwrap().with_extension("");
            let mut path: Path = inside
                .iter()
                .map(|part| part.to_str().unwrap().to_owned())
                .collect();
            path.retain(|part| part != "mod");
            // Tests may use any module.
            let is_test = path
                .iter()
                .any(|part| part.ends_with("tests") || part == "laws");
            if !is_test && path != ["lib"] && path != ["main"] {
                modules.insert(path, code(&read_to_string(file).unwrap()));
            }
        }
        Self(modules)
    }

    /// Returns the top-level modules of the crate, in alphabetical order.
    pub(crate) fn rooms(&self) -> Vec<String> {
        let mut rooms: Vec<_> = self.0.keys().map(|path| path[0].clone()).collect();
        rooms.dedup();
        rooms
    }

    /// Returns every module with each module that it names.
    pub(crate) fn uses(&self) -> Vec<(&Path, &Path)> {
        let mut uses = Vec::new();
        for (user, text) in &self.0 {
            let used = named(text).into_iter().filter_map(|path| {
                let path = absolute(user, &path);
                // The path continues into the module.
                (1..=path.len())
                    .rev()
                    .find_map(|len| self.0.get_key_value(&path[..len]))
            });
            uses.extend(used.map(|(used, _)| (user, used)).filter(|(a, b)| a != b));
        }
        uses
    }

    /// Returns the cycles among modules with the same parent: `parent: modules`. Submodules count as their module, and
    /// may use it and be used by it.
    pub(crate) fn circles(&self) -> Vec<String> {
        let mut families: BTreeMap<&[String], Vec<(&str, &str)>> = BTreeMap::new();
        for (user, used) in self.uses() {
            let common = user.iter().zip(used).take_while(|(a, b)| a == b).count();
            if common < user.len().min(used.len()) {
                let siblings = (user[common].as_str(), used[common].as_str());
                families.entry(&user[..common]).or_default().push(siblings);
            }
        }
        let mut circles = Vec::new();
        for (parent, uses) in families {
            let mut found: Vec<_> = uses.iter().map(|(user, _)| circle(user, &uses)).collect();
            found.retain(|circle| !circle.is_empty());
            found.sort();
            found.dedup();
            let parent = parent.join("::");
            circles.extend(found.iter().map(|c| format!("{parent}: {}", c.join(", "))));
        }
        circles
    }
}

/// Returns all modules that `module` uses, directly or indirectly, and that use it, including itself. Empty if it is in
/// no cycle.
fn circle<'a>(module: &str, uses: &[(&'a str, &'a str)]) -> Vec<&'a str> {
    let reached = |from: &str| {
        let mut reached: Vec<&'a str> = Vec::new();
        let mut open = vec![from];
        while let Some(next) = open.pop() {
            for &(_, used) in uses.iter().filter(|(user, _)| *user == next) {
                if !reached.contains(&used) {
                    reached.push(used);
                    open.push(used);
                }
            }
        }
        reached
    };
    let mut circle = reached(module);
    circle.retain(|other| reached(other).contains(&module));
    circle.sort_unstable();
    circle
}

/// Returns a text without its unit tests, which are at its end, and without comments.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the paths that a text names from its crate, from its module or from its parents: each of `crate::{these,
/// and::{those, too}}` is one.
fn named(code: &str) -> Vec<Path> {
    let mut named = Vec::new();
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(start) {
            // Not within a path, `super::super::`, and not at the end of a longer word.
            if !code[..at].ends_with(|c| is_word(c) || c == ':' || c == '$') {
                list(&code[at..], &[], &mut named);
            }
        }
    }
    named
}

/// Adds the path at the start of a text, or each of a list in braces; returns the remaining text.
fn list<'a>(text: &'a str, before: &[String], found: &mut Vec<Path>) -> &'a str {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut path = before.to_vec();
    let mut rest = text;
    loop {
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        if end > 0 {
            path.push(rest[..end].to_owned());
        }
        rest = &rest[end..];
        if let Some(inside) = rest.strip_prefix('{') {
            rest = inside.trim_start();
            while !rest.is_empty() && !rest.starts_with('}') {
                rest = list(rest, &path, found);
                // `as` and another name.
                rest = rest.trim_start_matches(|c| c != ',' && c != '}');
                rest = rest.trim_start_matches(',').trim_start();
            }
            return rest.strip_prefix('}').unwrap_or(rest);
        }
        match rest.strip_prefix("::") {
            Some(more) => rest = more,
            None => break,
        }
    }
    found.push(path);
    rest
}

/// Converts a path in `module` to one from the crate's root.
fn absolute(module: &[String], path: &[String]) -> Path {
    let mut absolute = module.to_vec();
    let mut rest = path;
    while let Some((first, more)) = rest.split_first() {
        match first.as_str() {
            "crate" => absolute.clear(),
            "super" => drop(absolute.pop()),
            "self" => {}
            _ => break,
        }
        rest = more;
    }
    absolute.extend_from_slice(rest);
    absolute
}

#[test]
fn imports_are_read_with_their_lists() {
    let text = "use crate::a::B;\n// crate::no\nuse crate::{b, c::{d, e as x}, f};\
                use super::g::{self, H};\n#[cfg(test)]\nuse crate::neither;";
    let found: Vec<_> = named(&code(text))
        .iter()
        .map(|path| absolute(&["m".to_owned(), "n".to_owned()], path).join("::"))
        .collect();
    assert_eq!(
        found,
        ["a::B", "b", "c::d", "c::e", "f", "m::g::self", "m::g::H"]
    );
}

#[test]
fn cycles_are_found_among_siblings_only() {
    let module = |(path, code): (&str, &str)| {
        (
            path.split("::").map(str::to_owned).collect(),
            code.to_owned(),
        )
    };
    let modules = [
        ("a", "use crate::a::x::X;"),
        ("a::x", "use super::A; use super::y::deep::D;"),
        ("a::y", ""),
        ("a::y::deep", "use crate::a::z::Z;"),
        ("a::z", "use super::x::{W, X};"),
        ("b", "use crate::a::A; use crate::a::y::Y;"),
    ];
    let sources = Sources(modules.map(module).into());
    assert_eq!(sources.circles(), ["a: x, y, z"]);
}
