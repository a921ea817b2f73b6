//! The file with the secrets of the DNS cookies.

use std::path::PathBuf;

use dns64_transport::clock::{Clock, MonotonicClock, SECOND};

use super::error::{ConfigError, Faults};
use super::read_text;
use super::section::Section;
use crate::settings::Settings;
use crate::settings::cookies::CookieSecrets;

/// The file of the key.
pub(super) fn file(top: &Section<'_, '_>, faults: &mut Faults) -> Option<PathBuf> {
    top.read("cookie-secrets", faults, |v| v.path("/etc/dns64d/cookies"))
}

/// Reads the secrets: one or two lines of 32 hexadecimal digits, and comments behind `#`.
pub(super) fn read_file(settings: &mut Settings) -> Result<(), ConfigError> {
    let Some(path) = &settings.cookie_file else {
        return Ok(());
    };
    let name = path.display().to_string();
    let text = read_text(path, &name)?;
    let mut faults = Faults::default();
    let secrets = secrets(&text, &mut faults);
    if text.lines().all(|line| said(line).is_empty()) {
        let end = text.len();
        faults.add(
            end..end,
            "no secret is given; write the output of `openssl rand -hex 16`",
        );
    }
    // An error shows the line.
    let hidden = text.replace(|c: char| c.is_ascii_hexdigit(), "*");
    faults.check(&name, &hidden)?;
    let epoch_s = MonotonicClock.realtime_offset() / SECOND.cast_signed();
    let mut secrets = secrets.into_iter();
    settings.cookies = secrets.next().map(|first| CookieSecrets {
        first,
        second: secrets.next(),
        // Times of cookies have 32 bits (RFC 9018 section 4.3).
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "modulo 2^32"
        )]
        epoch_s: epoch_s as u32,
    });
    Ok(())
}

fn secrets(text: &str, faults: &mut Faults) -> Vec<[u8; 16]> {
    let mut secrets = Vec::new();
    for line in text.lines() {
        let word = said(line);
        if word.is_empty() {
            continue;
        }
        let at = word.as_ptr().addr() - text.as_ptr().addr();
        let span = at..at;
        match secret(word) {
            None => faults.add(
                span,
                "this is not a secret of 32 hexadecimal digits; write the output of `openssl rand -hex 16`",
            ),
            Some(_) if secrets.len() == 2 => faults.add(
                span,
                "more than two secrets are given; remove the oldest",
            ),
            Some(secret) if secrets.contains(&secret) => {
                faults.add(span, "this secret is given twice; remove one");
            }
            Some(secret) => secrets.push(secret),
        }
    }
    secrets
}

/// A line without its comment.
fn said(line: &str) -> &str {
    line.split('#').next().unwrap_or_default().trim()
}

fn secret(word: &str) -> Option<[u8; 16]> {
    let is_hex = word.len() == 32 && word.bytes().all(|octet| octet.is_ascii_hexdigit());
    let number = is_hex.then(|| u128::from_str_radix(word, 16).ok())?;
    Some(number?.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::load;

    const SECRETS: &str = "# of October\n445536bcd2513298075a5d379663c962\n\n  DD3BDF9344b678b185a6f5cb60fca715 # old\n";

    /// The settings with this file of secrets, or the error without its directory.
    fn loaded(text: &str) -> Result<Settings, String> {
        let dir = tempfile::tempdir().unwrap();
        let (path, file) = (dir.path().join("dns64d.toml"), dir.path().join("cookies"));
        let config = format!("cookie-secrets = {file:?}\nupstream.servers = [\"192.0.2.1\"]\n");
        std::fs::write(&path, config).unwrap();
        std::fs::write(&file, text).unwrap();
        let directory = format!("{}/", dir.path().display());
        let loaded = load(&path).map(|loaded| loaded.settings);
        loaded.map_err(|error| error.to_string().replace(&directory, ""))
    }

    #[test]
    fn file_has_the_secret_in_use_and_another_one() {
        let secrets = loaded(SECRETS).unwrap().cookies.unwrap();
        assert_eq!(secrets.first[..3], [0x44, 0x55, 0x36]);
        assert_eq!(secrets.second.unwrap()[..3], [0xdd, 0x3b, 0xdf]);
        // After 2020, by the clock of RFC 9018.
        let now_s = MonotonicClock.now() / SECOND;
        assert!(u64::from(secrets.epoch_s) + now_s > 1_577_836_800);
        assert_eq!(format!("{secrets:?}"), "CookieSecrets(2)");
    }

    #[test]
    fn faults_of_the_file_have_their_place_and_hide_the_secrets() {
        for (text, line, said) in [
            ("", "cookies:1:1: ", "no secret is given"),
            ("# none\n", "cookies:2:1: ", "no secret is given"),
            ("12ab\n", "cookies:1:1: ", "32 hexadecimal digits"),
            (
                "\n +4553 6bcd2513298075a5d379663c962",
                "cookies:2:2: ",
                "32 hexadecimal digits",
            ),
            (
                format!("{SECRETS}{}", &SECRETS[13..45]).as_str(),
                "cookies:5:1: ",
                "more than two",
            ),
            (
                format!("{0}\n{0}", &SECRETS[13..45]).as_str(),
                "cookies:2:1: ",
                "given twice",
            ),
        ] {
            let error = loaded(text).unwrap_err();
            assert!(error.starts_with(line), "{error}");
            assert!(error.contains(said) && !error.contains("4455"), "{error}");
        }
    }
}
