//! What options of other programs that measure DNS servers are here.

use std::ffi::OsStr;

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Options of other programs that ask for the same, and what to do here. By the help of dnsperf and resperf 2.10, kxdpgun
/// 3.2, flamethrower 0.11 and dnspyre 3.
struct Habit {
    options: &'static [&'static str],
    program: &'static str,
    here: &'static str,
}

const HABITS: &[Habit] = &[
    Habit {
        options: &["-d", "-i", "--infile"],
        program: "dnsperf, resperf and kxdpgun: file of queries",
        here: "the Tester makes the names: --namespace, --cached-share, --aaaa-share",
    },
    Habit {
        options: &["-f"],
        program: "dnsperf: address family; flamethrower: file of queries",
        here: "the family is that of --server (-s); the Tester makes the names",
    },
    Habit {
        options: &["-n", "--number"],
        program: "dnsperf, flamethrower and dnspyre: times through the queries",
        here: "--duration (-l); names are repeated only by --cached-share",
    },
    Habit {
        options: &["-m", "-M"],
        program: "dnsperf and resperf: transport; resperf -m: highest rate",
        here: "--transport is udp, tcp or tls; --max-rate of a search",
    },
    Habit {
        options: &["-e", "-E", "-D", "--dnssec", "--ednsopt"],
        program: "dnsperf, resperf, flamethrower and dnspyre: EDNS, its options, DO",
        here: "--edns is none, as in RFC 8219 section 9, plain, do or cookie",
    },
    Habit {
        options: &["-b"],
        program: "dnsperf: size of buffers; kxdpgun: queries in a batch",
        here: "--burst is the maximum number of queries in one system call",
    },
    Habit {
        options: &["-S", "-v", "-O"],
        program: "dnsperf: statistics while it runs, each query, long options",
        here: "a terminal shows the progress; --json all counts and times, --raw each query",
    },
    Habit {
        options: &["-x"],
        program: "dnsperf and resperf: source port",
        here: "--sockets (-c) source ports, --local (-a) addresses",
    },
    Habit {
        options: &["-r", "-L", "-P", "-C"],
        program: "resperf: ramp, limit of losses, file of the plot, clients",
        here: "`dns64bench search`, by trials at constant rates without a lost query",
    },
    Habit {
        options: &["--qps", "--rate-limit"],
        program: "kxdpgun and dnspyre: rate",
        here: "--rate (-Q)",
    },
    Habit {
        options: &["--source"],
        program: "source address",
        here: "--local (-a)",
    },
    Habit {
        options: &["--concurrency"],
        program: "dnspyre: queries at a time",
        here: "--rate (-Q), which does not depend on the answers",
    },
];

/// Commands that take the place of those programs.
const COMMANDS: [&str; 3] = ["trial", "selftest", "search"];

/// Says in an error of a command about an unknown option what it is here, if it is one of another program.
pub fn explain(refused: &mut clap::Error, command: &OsStr) {
    let Some(ContextValue::String(option)) = refused.get(ContextKind::InvalidArg) else {
        return;
    };
    let is_known = |habit: &&Habit| habit.options.contains(&option.as_str());
    let measures = COMMANDS.iter().any(|name| command == *name);
    let is_unknown = refused.kind() == ErrorKind::UnknownArgument;
    let known = HABITS.iter().find(is_known);
    if let Some(habit) = known.filter(|_| measures && is_unknown) {
        refused.remove(ContextKind::SuggestedArg);
        refused.insert(ContextKind::Suggested, habit.suggestion());
    }
}

impl Habit {
    fn suggestion(&self) -> ContextValue {
        ContextValue::StyledStrs(vec![
            format!("{}; here: {}", self.program, self.here).into(),
        ])
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use clap::{CommandFactory as _, Parser as _};

    use super::*;
    use crate::cli::Cli;

    fn options_of_trial() -> Vec<String> {
        let definition = Cli::command();
        let trial = definition.find_subcommand("trial").unwrap();
        let long = trial.get_arguments().filter_map(clap::Arg::get_long);
        let short = trial.get_arguments().filter_map(clap::Arg::get_short);
        let long = long.map(|name| format!("--{name}"));
        long.chain(short.map(|letter| format!("-{letter}")))
            .collect()
    }

    #[test]
    fn each_habit_is_explained_by_options_that_exist() {
        let ours = options_of_trial();
        for habit in HABITS {
            for option in habit.options {
                assert!(!ours.iter().any(|name| name == option), "{option}");
                let line = ["dns64bench", "trial", "-s", "::1", option, "5"];
                let mut refused = Cli::try_parse_from(line).unwrap_err();
                explain(&mut refused, "report".as_ref());
                assert_eq!(refused.get(ContextKind::Suggested), None, "{option}");
                explain(&mut refused, "trial".as_ref());
                let found = refused.get(ContextKind::Suggested);
                assert_eq!(found, Some(&habit.suggestion()), "{option}");
            }
            for word in habit.here.split([' ', '(', ')', ':', ',', ';']) {
                let is_ours = word == "--max-rate" || ours.iter().any(|name| name == word);
                assert!(!word.starts_with('-') || is_ours, "{word}");
            }
        }
    }

    #[test]
    fn page_lists_the_habits() {
        let mut page = "# Coming from dnsperf\n\n\
            *What takes the place of an option of dnsperf, resperf, flamethrower, kxdpgun or dnspyre?* They accept any NOERROR \
            response, and cannot tell whether\nthe server or the load generator lost a query. `-s`, `-p`, `-Q`, `-l`, `-t`, `-T`, \
            `-c` and `-a` are what they are in dnsperf. To test a resolver with real\nquery logs, use dnsperf or DNS Shotgun.\n\n\
            | option there | here |\n|---|---|\n"
            .to_owned();
        for habit in HABITS {
            let options = habit.options.join("`, `");
            writeln!(page, "| `{options}` ({}) | {} |", habit.program, habit.here).unwrap();
        }
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/dnsperf.md");
        expect_test::expect_file![path].assert_eq(&page);
    }
}
