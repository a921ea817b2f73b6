//! The build information that `--version` prints: commit, profile, architecture and compiler.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=../build.rs");
    let variable = |name| env::var(name).unwrap_or_default();
    let profile = variable("PROFILE");
    let compiler = first_line(&variable("RUSTC"), &["--version"]).unwrap_or_default();
    // Without the commit and the day of the compiler.
    let compiler = compiler.split(" (").next().unwrap_or_default();
    // Debug builds omit the commit: they are built often between two commits and should not be rebuilt for each.
    let commit = (profile == "release").then(commit).flatten();
    let commit = commit.map_or_else(String::new, |commit| format!("commit {commit}, "));
    let target = variable("CARGO_CFG_TARGET_ARCH");
    println!("cargo::rustc-env=BUILD={commit}{profile} build, {target}, {compiler}");
}

/// The commit of the source, with a + if the crates differ from it. `None` outside a repository.
fn commit() -> Option<String> {
    let log = first_line("git", &["rev-parse", "--git-path", "logs/HEAD"])?;
    let sources = [
        log.as_str(),
        "src",
        "bpf",
        "../wire/src",
        "../transport/src",
        "../transport/bpf",
        "../measure/src",
        "../measure/bpf",
    ];
    // A path that does not exist counts as changed.
    for changed in sources.iter().filter(|path| Path::new(path).exists()) {
        println!("cargo::rerun-if-changed={changed}");
    }
    let commit = first_line("git", &["rev-parse", "--short=12", "HEAD"])?;
    let is_changed = first_line("git", &["status", "--porcelain", "--", ".."]).is_some();
    Some(if is_changed { commit + "+" } else { commit })
}

fn first_line(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().next().map(str::to_owned)
}
