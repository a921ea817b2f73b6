//! Servers with one rule broken each: which clauses find them?

use std::collections::BTreeMap;
use std::fmt::Write as _;

use dns64_wire::codes::Rtype as Code;
use dns64_wire::message::{Message, Section};
use domain::base::iana::Rtype;
use domain::base::message_builder::MessageBuilder;

use super::super::query::Query;
use super::super::read;
use super::super::script::{Outgoing, question};
use super::super::text::{self, Shown};
use super::simulated::{Mutant, RIGHT, failed};

const PREF64: &str = "2001:db8:64::/96";

#[test]
fn each_broken_rule_is_found_by_the_cases_of_its_clause() {
    let cases = read::built_in().unwrap();
    let mut found = String::new();
    let mut unfound = Vec::new();
    for mutant in MUTANTS {
        let mut clauses: BTreeMap<String, usize> = BTreeMap::new();
        for id in failed(&cases, mutant, PREF64) {
            let clause: Vec<&str> = id.splitn(3, '-').take(2).collect();
            *clauses.entry(clause.join(" ")).or_default() += 1;
        }
        if clauses.is_empty() {
            unfound.push(mutant.name);
        }
        let clauses = clauses
            .iter()
            .map(|(clause, number)| format!("{clause} ({number})"));
        let clauses: Vec<String> = clauses.collect();
        writeln!(found, "{}: {}", mutant.name, clauses.join(", ")).unwrap();
    }
    expect_test::expect_file!["found.txt"].assert_eq(&found);
    assert_eq!(unfound, Vec::<&str>::new());
}

/// What an edit changes of a message.
struct Edited {
    flags: u16,
    records: Vec<Shown>,
    /// Octets of the OPT record.
    opt: Vec<u8>,
}

/// Changes a message, which stays as it is if nothing changes.
fn edited(octets: &[u8], edit: impl FnOnce(&mut Edited)) -> Vec<u8> {
    let parsed = Message::parse(octets).unwrap();
    let before = text::shown(octets).unwrap();
    let opt = parsed.opt().unwrap().map_or(Vec::new(), |opt| {
        let length = u16::try_from(opt.options.len()).unwrap();
        let fixed = [0, opt.ext_rcode, opt.version, u8::from(opt.do_bit) << 7, 0];
        let [root, rest @ ..] = fixed;
        let mut record = vec![root];
        record.extend(Code::OPT.0.to_be_bytes());
        record.extend(opt.udp_size.to_be_bytes());
        record.extend(rest);
        record.extend(length.to_be_bytes());
        record.extend(opt.options);
        record
    });
    let mut message = Edited {
        flags: parsed.flags().0,
        records: before.clone(),
        opt: opt.clone(),
    };
    edit(&mut message);
    if message.records == before && message.opt == opt {
        let mut octets = octets.to_vec();
        octets[2..4].copy_from_slice(&message.flags.to_be_bytes());
        return octets;
    }
    let mut builder = MessageBuilder::new_vec();
    builder.header_mut().set_id(parsed.id());
    let mut questions = builder.question();
    if let Some(question) = question(octets) {
        questions.push(question).unwrap();
    }
    let rr = |it: &Shown| text::absolute(&it.to_string(), ".").unwrap().remove(0);
    let of = |section| {
        message
            .records
            .iter()
            .filter(move |it| it.section == section)
    };
    let mut answer = questions.answer();
    of(Section::Answer).for_each(|it| answer.push(rr(it)).unwrap());
    let mut authority = answer.authority();
    of(Section::Authority).for_each(|it| authority.push(rr(it)).unwrap());
    let mut additional = authority.additional();
    of(Section::Additional).for_each(|it| additional.push(rr(it)).unwrap());
    let mut octets = additional.finish();
    octets[2..4].copy_from_slice(&message.flags.to_be_bytes());
    if !message.opt.is_empty() {
        octets[11] += 1;
        octets.extend(&message.opt);
    }
    octets
}

/// Changes the records of responses.
fn records(octets: &[u8], edit: impl FnOnce(&mut Vec<Shown>)) -> Option<Vec<u8>> {
    Some(edited(octets, |message| edit(&mut message.records)))
}

/// Changes the flags of responses.
fn flags(octets: &[u8], edit: impl FnOnce(u16) -> u16) -> Option<Vec<u8>> {
    Some(edited(octets, |message| {
        message.flags = edit(message.flags)
    }))
}

fn is_answer(record: &Shown) -> bool {
    record.section == Section::Answer
}

/// Whether it is an AAAA record with the prefix.
fn is_synthetic(record: &Shown) -> bool {
    record.rtype == Rtype::AAAA && record.data.starts_with("2001:db8:64::")
}

fn is_aaaa(query: &Query) -> bool {
    query.rtype == Code::AAAA.0
}

fn rcode(flags: u16) -> u16 {
    flags & 15
}

/// Repeats the question in a forged answer from an octet on: whoever does not compare it takes it.
fn believed(question: &[u8], answer: &mut Outgoing, octets: std::ops::Range<usize>) {
    if answer.octets.len() >= octets.end {
        answer.octets[octets.clone()].copy_from_slice(&question[octets]);
    }
}

/// Where the type of the question stands.
fn type_at(message: &[u8]) -> usize {
    12 + question(message).unwrap().0.as_slice().len()
}

const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "the TTL of the SOA record does not matter",
        upstream: |question, answer| {
            let is_aaaa = question[type_at(question) + 1] == 28;
            if is_aaaa
                && Message::parse(&answer.octets)
                    .is_ok_and(|it| it.id() == u16::from_be_bytes([question[0], question[1]]))
            {
                answer.octets = edited(&answer.octets, |it| {
                    for soa in it.records.iter_mut().filter(|it| it.rtype == Rtype::SOA) {
                        soa.ttl = 86_400;
                        let (fields, _) = soa.data.rsplit_once(' ').unwrap();
                        soa.data = format!("{fields} 86400");
                    }
                });
            }
        },
        ..RIGHT
    },
    Mutant {
        name: "the owner is that of the question",
        response: |query, octets| {
            let name = question(&query.octets(0)).map(|(name, _)| text::dotted(&name));
            records(&octets, |all| {
                for it in all.iter_mut().filter(|it| is_synthetic(it)) {
                    it.owner = name.clone().unwrap();
                }
            })
        },
        ..RIGHT
    },
    Mutant {
        name: "AD is set",
        response: |_, octets| flags(&octets, |it| it | 0x20),
        ..RIGHT
    },
    Mutant {
        name: "nothing is excluded",
        settings: &[("dns64", "exclude-aaaa = []\n")],
        ..RIGHT
    },
    Mutant {
        name: "::/96 is excluded",
        settings: &[("dns64", "exclude-aaaa = [\"::/96\", \"::ffff:0:0/96\"]\n")],
        ..RIGHT
    },
    Mutant {
        name: "there is always synthesis",
        settings: &[("dns64", "exclude-aaaa = [\"::/0\"]\n")],
        ..RIGHT
    },
    Mutant {
        name: "additional records are synthesised",
        response: |_, octets| {
            records(&octets, |all| {
                let of = |it: &&Shown| it.section == Section::Additional && it.rtype == Rtype::A;
                let made: Vec<Shown> = all.iter().filter(of).cloned().collect();
                all.extend(made.into_iter().map(|it| Shown {
                    rtype: Rtype::AAAA,
                    data: format!("2001:db8:64::{}", it.data),
                    ..it
                }));
            })
        },
        ..RIGHT
    },
    Mutant {
        name: "A records stay",
        response: |_, octets| {
            records(&octets, |all| {
                let made: Vec<Shown> = all.iter().filter(|it| is_synthetic(it)).cloned().collect();
                all.extend(made.into_iter().map(|it| Shown {
                    rtype: Rtype::A,
                    data: "20.0.0.1".into(),
                    ..it
                }));
            })
        },
        ..RIGHT
    },
    Mutant {
        name: "aliases are left out",
        response: |query, octets| {
            let drops = is_aaaa(query);
            records(&octets, |all| {
                all.retain(|it| !drops || it.rtype != Rtype::CNAME)
            })
        },
        ..RIGHT
    },
    Mutant {
        name: "DNAME records are left out",
        response: |query, octets| {
            let drops = is_aaaa(query);
            records(&octets, |all| {
                all.retain(|it| !drops || it.rtype != Rtype::DNAME)
            })
        },
        ..RIGHT
    },
    Mutant {
        name: "a name error is an empty answer",
        response: |_, octets| flags(&octets, |it| if rcode(it) == 3 { it & !15 } else { it }),
        ..RIGHT
    },
    Mutant {
        name: "a server failure is an empty answer",
        response: |_, octets| flags(&octets, |it| if rcode(it) == 2 { it & !15 } else { it }),
        ..RIGHT
    },
    Mutant {
        name: "RA is not set",
        response: |_, octets| flags(&octets, |it| it & !0x80),
        ..RIGHT
    },
    Mutant {
        name: "AA is set",
        response: |_, octets| flags(&octets, |it| it | 0x400),
        ..RIGHT
    },
    Mutant {
        name: "TC is not set",
        response: |_, octets| flags(&octets, |it| it & !0x200),
        ..RIGHT
    },
    Mutant {
        name: "names are in lower case",
        query: |query| query.name.make_ascii_lowercase(),
        ..RIGHT
    },
    Mutant {
        name: "SOA records are left out",
        response: |_, octets| {
            records(&octets, |all| {
                all.retain(|it| it.rtype != Rtype::SOA || is_answer(it));
            })
        },
        ..RIGHT
    },
    Mutant {
        name: "there is no OPT record",
        response: |_, octets| Some(edited(&octets, |it| it.opt.clear())),
        ..RIGHT
    },
    Mutant {
        name: "there is always an OPT record",
        response: |query, octets| {
            let plain = query.edns.is_none();
            Some(edited(&octets, |it| {
                if plain {
                    it.opt = vec![0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0];
                }
            }))
        },
        ..RIGHT
    },
    Mutant {
        name: "DO is not copied",
        query: |query| {
            if let Some(edns) = &mut query.edns {
                edns.do_bit = false;
            }
        },
        ..RIGHT
    },
    Mutant {
        name: "all versions of EDNS are answered",
        query: |query| {
            if let Some(edns) = &mut query.edns {
                edns.version = 0;
            }
        },
        ..RIGHT
    },
    Mutant {
        name: "two OPT records are one",
        query: |query| query.opts = 1,
        ..RIGHT
    },
    Mutant {
        name: "a small EDNS size is taken literally",
        response: |query, octets| {
            let size = query.edns.as_ref().map_or(512, |edns| edns.size);
            let is_long = !query.tcp && octets.len() > size.into();
            Some(edited(&octets, |it| {
                if is_long {
                    it.records.clear();
                    it.flags |= 0x200;
                }
            }))
        },
        ..RIGHT
    },
    Mutant {
        name: "records are never older than before",
        settings: &[("cache", "min-ttl = \"5s\"\n")],
        ..RIGHT
    },
    Mutant {
        name: "answers are not cached",
        settings: &[("cache", "max-negative-ttl = \"0s\"\n")],
        ..RIGHT
    },
    Mutant {
        name: "the order is turned round",
        response: |_, octets| {
            records(&octets, |all| {
                let answers = all.iter().filter(|it| is_answer(it)).count();
                all[..answers].reverse();
            })
        },
        ..RIGHT
    },
    Mutant {
        name: "synthesis beside AAAA records",
        response: |_, octets| {
            records(&octets, |all| {
                let native = all
                    .iter()
                    .find(|it| it.rtype == Rtype::AAAA && !is_synthetic(it));
                let made = native.map(|it| Shown {
                    data: "2001:db8:64::1400:1".into(),
                    ..it.clone()
                });
                all.extend(made);
            })
        },
        ..RIGHT
    },
    Mutant {
        name: "IDs are not compared",
        upstream: |question, answer| believed(question, answer, 0..2),
        ..RIGHT
    },
    Mutant {
        name: "names are not compared",
        upstream: |question, answer| believed(question, answer, 12..type_at(question)),
        ..RIGHT
    },
    Mutant {
        name: "types are not compared",
        upstream: |question, answer| {
            let at = type_at(question);
            believed(question, answer, at..at + 2);
        },
        ..RIGHT
    },
    Mutant {
        name: "classes are not compared",
        upstream: |question, answer| {
            let at = type_at(question) + 2;
            believed(question, answer, at..at + 2);
        },
        ..RIGHT
    },
    Mutant {
        name: "answers of other ports are taken",
        upstream: |_, answer| answer.other_port = false,
        ..RIGHT
    },
    Mutant {
        name: "queries are taken as answers",
        upstream: |_, answer| answer.octets[2] |= 0x80,
        ..RIGHT
    },
    Mutant {
        name: "truncated answers are used",
        upstream: |_, answer| answer.octets[2] &= !2,
        ..RIGHT
    },
    Mutant {
        name: "CD does not matter",
        query: |query| query.flags &= !0x10,
        ..RIGHT
    },
    Mutant {
        name: "the class does not matter",
        query: |query| query.class = 1,
        ..RIGHT
    },
    Mutant {
        name: "RD does not matter",
        query: |query| query.flags |= 0x100,
        ..RIGHT
    },
    Mutant {
        name: "responses are answered",
        query: |query| query.flags &= !0x8000,
        ..RIGHT
    },
    Mutant {
        name: "a second question is ignored",
        query: |query| query.questions = query.questions.min(1),
        ..RIGHT
    },
    Mutant {
        name: "every opcode is a query",
        query: |query| query.opcode = 0,
        ..RIGHT
    },
    Mutant {
        name: "cookies are returned to all",
        query: |query| {
            if let Some(edns) = &mut query.edns
                && edns.options.is_empty()
            {
                edns.options
                    .push((10, b"\x1f\x2e\x3d\x4c\x5b\x6a\x79\x88".to_vec()));
            }
        },
        ..RIGHT
    },
    Mutant {
        name: "there is no TCP",
        response: |query, octets| (!query.tcp).then_some(octets),
        ..RIGHT
    },
    Mutant {
        name: "PTR is like any other type",
        response: |_, octets| {
            let is_own = |it: &Edited| {
                let mut aliases = it.records.iter().filter(|it| it.rtype == Rtype::CNAME);
                aliases.any(|it| it.owner.ends_with("ip6.arpa."))
            };
            Some(edited(&octets, |it| {
                if is_own(it) {
                    it.records.clear();
                    it.flags |= 3;
                }
            }))
        },
        ..RIGHT
    },
    Mutant {
        name: "ipv4only.arpa is a name like any other",
        settings: &[("dns64", "ipv4only = false\n")],
        ..RIGHT
    },
    Mutant {
        name: "a stale record has a TTL of 0",
        settings: &[("cache", "serve-stale = \"1h\"\n")],
        response: |_, octets| {
            records(&octets, |all| {
                for it in all.iter_mut().filter(|it| it.ttl == 30) {
                    it.ttl = 0;
                }
            })
        },
        ..RIGHT
    },
    Mutant {
        name: "hints are translated",
        response: |_, octets| {
            records(&octets, |all| {
                for it in all.iter_mut().filter(|it| it.rtype == Rtype::HTTPS) {
                    it.data = it
                        .data
                        .replace("ipv4hint=20.9.9.9", "ipv6hint=2001:db8:64::1409:909");
                }
            })
        },
        ..RIGHT
    },
    Mutant {
        name: "A records are left out for IPv6 clients",
        response: |query, octets| {
            let drops = query.rtype == Code::A.0;
            records(&octets, |all| {
                all.retain(|it| !drops || it.rtype != Rtype::A || !is_answer(it))
            })
        },
        ..RIGHT
    },
];
