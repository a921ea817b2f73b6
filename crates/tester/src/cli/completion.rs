//! Shell completion of the values of flags. The shell gets them from the program itself when the user presses TAB.

use std::ffi::{OsStr, OsString};

use clap_complete::engine::{CompletionCandidate, PathCompleter, ValueCompleter as _};

use crate::lab::profile::{Profile, ProfileRole, built_in_names};

/// Environment variable by which a shell requests completions.
pub const VARIABLE: &str = "DNS64BENCH_COMPLETE";

/// Built-in profiles of DNS64 servers, and files.
pub fn duts(current: &OsStr) -> Vec<CompletionCandidate> {
    profiles(Some(ProfileRole::Dut), &[], current)
}

/// Built-in authorities, built-in profiles of authorities, and files.
pub fn authorities(current: &OsStr) -> Vec<CompletionCandidate> {
    let own = ["built-in", "in-driver", "in-driver:generic"];
    profiles(Some(ProfileRole::Authority), &own, current)
}

/// All built-in profiles, and files.
pub fn any_profile(current: &OsStr) -> Vec<CompletionCandidate> {
    profiles(None, &[], current)
}

fn profiles(
    role: Option<ProfileRole>,
    others: &[&'static str],
    current: &OsStr,
) -> Vec<CompletionCandidate> {
    let is_meant = |name: &&str| {
        let profile = Profile::built_in(name);
        role.is_none_or(|role| profile.is_ok_and(|profile| profile.role == role))
    };
    let names = others
        .iter()
        .copied()
        .chain(built_in_names().filter(is_meant));
    let fitting = names.filter(|name| fits(name, current));
    let is_profile = |path: &std::path::Path| path.extension() == Some("toml".as_ref());
    let files = PathCompleter::file().filter(is_profile).complete(current);
    fitting.map(CompletionCandidate::new).chain(files).collect()
}

/// Settings of the profile in `--dut` on the same command line.
pub fn settings(current: &OsStr) -> Vec<CompletionCandidate> {
    settings_of(&std::env::args_os().collect::<Vec<_>>(), current)
}

fn settings_of(words: &[OsString], current: &OsStr) -> Vec<CompletionCandidate> {
    let after = words.iter().skip_while(|word| *word != "--dut").nth(1);
    let joined = || {
        words
            .iter()
            .find_map(|word| word.to_str()?.strip_prefix("--dut="))
    };
    let name = after.and_then(|name| name.to_str()).or_else(joined);
    let Some(Ok(profile)) = name.map(Profile::load) else {
        return Vec::new();
    };
    let settings = profile.settings().map(|(name, default)| {
        let help = format!("default: {default}");
        (format!("{name}="), help)
    });
    let fitting = settings.filter(|(value, _)| fits(value, current));
    fitting
        .map(|(value, help)| CompletionCandidate::new(value).help(Some(help.into())))
        .collect()
}

fn fits(value: &str, current: &OsStr) -> bool {
    current
        .to_str()
        .is_some_and(|begun| value.starts_with(begun))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(candidates: &[CompletionCandidate]) -> Vec<&str> {
        let values = candidates
            .iter()
            .map(|one| one.get_value().to_str().unwrap());
        values.filter(|value| !value.ends_with('/')).collect()
    }

    #[test]
    fn profiles_are_offered_by_their_role() {
        assert_eq!(values(&duts(OsStr::new("u"))), ["unbound"]);
        assert_eq!(values(&duts(OsStr::new("knot-"))), ["knot-resolver"]);
        assert_eq!(
            values(&authorities(OsStr::new("knot"))),
            ["knot", "knot-xdp"]
        );
        let own = authorities(OsStr::new("in-"));
        assert_eq!(values(&own), ["in-driver", "in-driver:generic"]);
        assert_eq!(values(&any_profile(OsStr::new("nsd"))), ["nsd"]);
        let files = duts(OsStr::new("profiles/dns64d"));
        assert_eq!(values(&files), ["profiles/dns64d.toml"]);
    }

    #[test]
    fn settings_are_those_of_the_profile_on_the_line() {
        let offered = |line: &str, current: &str| {
            let words: Vec<_> = line.split(' ').map(OsString::from).collect();
            let candidates = settings_of(&words, OsStr::new(current));
            values(&candidates).join(" ")
        };
        let line = "dns64bench search --dut dns64d --dut-set";
        assert_eq!(
            offered(line, ""),
            "af_xdp= cache_size= driver_cache= threads="
        );
        assert_eq!(offered(line, "th"), "threads=");
        assert_eq!(
            offered("dns64bench search --dut=dns64d --dut-set", "c"),
            "cache_size="
        );
        assert_eq!(offered("dns64bench search --dut no-such --dut-set", ""), "");
        assert_eq!(offered("dns64bench search --dut-set", ""), "");
    }
}
