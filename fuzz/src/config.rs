//! Checks that hold for any text as a configuration. The fuzz target `config` and the test that
//! replays its corpus use them.

use dns64d::config::{self, ConfigError, mtd64ng};
use dns64d::settings::{Settings, UPSTREAMS_MAX, VIEWS_MAX};

/// The file that `nameserver defaults` reads.
const RESOLV_CONF: &str = "nameserver 192.0.2.53\nnameserver 2001:db8::53\n";

/// Parses the text as each kind of file and panics if a property is violated.
pub(crate) fn check(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let toml = config::parse(&text, "file");
    check_result(&text, toml.as_ref());
    let conf = mtd64ng::parse(&text, "file", RESOLV_CONF);
    check_result(&text, conf.as_ref().map(|loaded| &loaded.settings));
    // The file of the system may be as malformed as any other.
    let strange = mtd64ng::parse("nameserver defaults\n", "file", &text);
    let settings = strange.as_ref().map(|loaded| &loaded.settings);
    check_result("nameserver defaults\n", settings);
}

fn check_result(text: &str, result: Result<&Settings, &ConfigError>) {
    match result {
        Ok(settings) => check_settings(settings),
        Err(ConfigError::Invalid { problems }) => {
            assert!(!problems.is_empty());
            let lines: Vec<&str> = text.split('\n').collect();
            for problem in problems {
                let line = lines.get(problem.line.wrapping_sub(1));
                let line = line.expect("the line is in the text");
                let columns = 1..=line.chars().count() + 1;
                assert!(columns.contains(&problem.column), "{problem}");
                assert!(!problem.text.is_empty() && !problem.to_string().is_empty());
            }
        }
        Err(ConfigError::Unreadable { .. }) => panic!("no file was read"),
    }
}

/// The properties that the rest of the server relies on.
fn check_settings(settings: &Settings) {
    assert!(!settings.listen.is_empty() && settings.workers >= 1);
    assert!((1..=UPSTREAMS_MAX).contains(&settings.upstreams.len()));
    assert!(
        settings
            .upstreams
            .iter()
            .all(|upstream| upstream.attempts >= 1)
    );
    assert!((1..=VIEWS_MAX + 1).contains(&settings.views.len()));
    assert!((512..=4096).contains(&settings.udp_size));
    assert!(settings.cache.min_ttl_s <= settings.cache.max_ttl_s);
    assert!(settings.queries_max >= 1);
}
