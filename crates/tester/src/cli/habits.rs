//! What options of other programs that measure DNS servers are here.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// An option of another program, and what to do here.
struct Habit {
    options: &'static [&'static str],
    program: &'static str,
    here: &'static str,
}

const HABITS: &[Habit] = &[
    Habit {
        options: &["-d"],
        program: "dnsperf and resperf: file of queries",
        here: "the Tester makes the names: --namespace says which, --cached-share and --aaaa-share how they are mixed",
    },
    Habit {
        options: &["-i", "--infile", "-f"],
        program: "kxdpgun and flamethrower: file of queries",
        here: "the Tester makes the names: --namespace says which, --cached-share and --aaaa-share how they are mixed",
    },
    Habit {
        options: &["-n"],
        program: "dnsperf: times through the file; dnspyre: queries of each client",
        here: "no name is asked twice unless --cached-share says so: --duration (-l) says how long to send",
    },
    Habit {
        options: &["-m"],
        program: "dnsperf: transport; resperf: highest rate",
        here: "queries are sent over UDP; the highest rate of a search is --max-rate",
    },
    Habit {
        options: &["-e", "-E", "-b"],
        program: "dnsperf: EDNS, its options, sizes of buffers",
        here: "queries have no EDNS, as in RFC 8219 section 9",
    },
    Habit {
        options: &["-D", "--dnssec"],
        program: "dnsperf, kxdpgun, flamethrower and dnspyre: DO",
        here: "queries have no EDNS, hence no DO, as in RFC 8219 section 9",
    },
    Habit {
        options: &["-S", "-v", "--verbose", "-O"],
        program: "dnsperf: statistics while it runs, verbose output, long options",
        here: "progress is shown on a terminal; --json has all counts and times, --raw each query",
    },
    Habit {
        options: &["-x"],
        program: "dnsperf: source port",
        here: "--sockets (-c) sets the number of source ports, --local (-a) the addresses",
    },
    Habit {
        options: &["-r", "-L", "-P", "-C"],
        program: "resperf: ramp, limit of losses, file of the plot",
        here: "`dns64bench search` finds the highest rate by trials at constant rates, and a lost query fails a trial",
    },
    Habit {
        options: &["--qps", "--rate-limit"],
        program: "flamethrower and dnspyre: rate",
        here: "--rate (-Q)",
    },
    Habit {
        options: &["--source", "--bind-ip"],
        program: "flamethrower: source address",
        here: "--local (-a)",
    },
    Habit {
        options: &["--concurrency"],
        program: "dnspyre: clients",
        here: "the rate does not depend on the answers: --rate (-Q) sets it, --sockets (-c) the number of source ports",
    },
];

/// Says in an error about an unknown option what it is here, if it is one of another program.
pub fn explain(refused: &mut clap::Error) {
    let Some(ContextValue::String(option)) = refused.get(ContextKind::InvalidArg) else {
        return;
    };
    let is_known = |habit: &&Habit| habit.options.contains(&option.as_str());
    let known = HABITS.iter().find(is_known);
    if let Some(habit) = known.filter(|_| refused.kind() == ErrorKind::UnknownArgument) {
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
                explain(&mut refused);
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
            `-s`, `-p`, `-Q`, `-l`, `-t`, `-T`, `-c` and `-a` are what they are in dnsperf. `dns64bench trial` sends at one rate, which \
            does not depend on the answers;\n`dns64bench search` finds the highest rate without loss. Both judge the content of each \
            answer, and the timing of the Tester ([FAQ](faq.md)).\n\n\
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
