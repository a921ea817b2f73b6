//! Examples and properties of the source of names.

use std::collections::HashMap;

use dns64_wire::pref64::Pref64;
use proptest::prelude::*;

use super::*;
use crate::namespace::DEFAULT_SUFFIX;

fn source(cidr: &str, aaaa: &str, cached: &str) -> NameSource {
    with_pattern(cidr, aaaa, cached, "one-name").unwrap()
}

fn with_pattern(
    cidr: &str,
    aaaa: &str,
    cached: &str,
    pattern: &str,
) -> Result<NameSource, Message> {
    let suffix = DEFAULT_SUFFIX.parse().unwrap();
    let zone = Zone {
        suffix,
        aaaa_share: aaaa.parse().unwrap(),
        ..Zone::default()
    };
    NameSource::new(
        cidr.parse().unwrap(),
        zone,
        cached.parse().unwrap(),
        pattern.parse().unwrap(),
    )
}

#[test]
fn names_are_used_once_and_refusal_suggests_a_wider_range() {
    let mut source = source("10.0.0.0/24", "0", "0");
    assert_eq!(source.take(100, None).unwrap().first, 0);
    assert_eq!(source.take(92, None).unwrap().first, 100);
    let error = source.take(1000, None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "10.0.0.0/24 has 0 unused names and the trial needs 1000; \
         use --namespace 10.0.0.0/21, or a shorter or slower trial"
    );
    source.start_over();
    assert_eq!(source.take(1, None).unwrap().first, 0);
}

#[test]
fn names_used_by_earlier_trials_of_a_journal_are_not_reused() {
    let begin = Begin { at: 100, used: 150 };
    let mut source = source("10.0.0.0/24", "0", "0").begun_at(begin);
    let names = source.take(30, None).unwrap();
    let dealt = NameRange {
        namespace: "10.0.0.0/24".parse().unwrap(),
        begin: 100,
        first: 58,
        fresh: 30,
    };
    assert_eq!(names.range(), dealt);
    assert_eq!(Begin::after(&dealt), Begin { at: 100, used: 180 });
    let error = source.take(13, None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "10.0.0.0/24 has 12 unused names, because earlier trials of this journal have used 150, \
         and the trial needs 13; use --namespace 10.0.0.0/23, or a shorter or slower trial"
    );
    source.start_over();
    assert_eq!(source.take(192, None).unwrap().range().first, 100);
}

proptest! {
    #[test]
    fn every_name_is_dealt_exactly_once_across_continued_sources(
        at: u64,
        pattern in prop::sample::select(vec!["one-name", "stack:9", "window:60", "zipf:64,1"]),
        share in prop::sample::select(vec!["0", "0.3", "0.9"]),
        trials in prop::collection::vec((1..60_u64, any::<bool>()), 1..60),
    ) {
        let range = "10.0.0.0/24".parse::<Cidr>().unwrap();
        let fresh_source = || with_pattern("10.0.0.0/24", "0", share, pattern).unwrap();
        let mut source = fresh_source().begun_at(Begin { at, used: 0 });
        let set = source.working_set();
        let mut seen: Vec<Ipv4Addr> = Vec::new();
        for (queries, resumes) in trials {
            let Ok(names) = source.take(queries, None) else { break };
            let repeats = names.repeats;
            let own = (0..queries).filter(|&i| !repeats.share().picks(i));
            let asked: Vec<_> = own.map(|i| names.asked(i)).collect();
            prop_assert_eq!(asked.len() as u64, names.fresh);
            for (number, address) in (0..).zip(&asked) {
                prop_assert!(!seen.contains(address), "{}", address);
                prop_assert_eq!(names.index_of(*address), Some(number));
                prop_assert!(range.index(*address).unwrap() < 192);
            }
            let mut others = seen.iter().copied().chain([source.cached()]);
            prop_assert!(others.all(|other| names.index_of(other).is_none()));
            // A moving set was queried before the trial; a fixed set belongs to no trial.
            let before = names.first - set..names.first;
            let moving = match pattern.starts_with("zipf") || share == "0" {
                true => 0..set,
                false => before,
            };
            for i in (0..queries).filter(|&i| repeats.share().picks(i)) {
                let address = names.asked(i);
                let number = names.ring.number_of(address);
                let known = address == source.cached()
                    || names.index_of(address).is_some()
                    || number.is_some_and(|number| moving.contains(&number));
                prop_assert!(known, "{} of {:?}", address, names);
            }
            seen.extend(asked);
            if resumes && names.fresh > 0 {
                source = fresh_source().begun_at(Begin::after(&names.range()));
            }
        }
        let left = 192 - source.next;
        prop_assert!(source.take(left, None).is_ok());
    }
}

#[test]
fn cached_share_uses_no_fresh_names() {
    let mut source = source("10.0.0.0/24", "0", "0.5");
    assert_eq!(source.take(384, None).unwrap().first, 0);
    assert_eq!(source.take(1, None).unwrap_err().left, 0);
}

#[test]
fn cached_and_probe_names_have_no_aaaa_and_are_in_no_trial() {
    let mut source = source("10.0.0.0/24", "0.5", "0.2");
    let cached = source.cached();
    assert!(!source.zone().has_aaaa(cached));
    for _ in 0..100 {
        let probe = source.probe();
        assert!(!source.zone().has_aaaa(probe) && probe != cached);
        assert!(probe >= Ipv4Addr::new(10, 0, 0, 192));
    }
}

#[test]
fn sample_has_names_of_each_kind_that_trials_query() {
    for (aaaa, cached, kinds) in [
        ("0", "0", (8, 0)),
        ("0.5", "0", (8, 8)),
        ("0.02", "0.2", (8, 1)),
        ("1", "0", (0, 8)),
    ] {
        let source = source("10.0.0.0/24", aaaa, cached);
        let names: [Vec<_>; 2] = [false, true].map(|has| source.sample(has).collect());
        let count = (names[0].len(), names[1].len());
        assert_eq!(count, kinds, "{aaaa}, {cached}");
        assert!(names[0].iter().all(|it| !source.zone().has_aaaa(*it)));
        assert_eq!(
            source.has_cached(),
            names[0].contains(&source.cached()) && cached != "0"
        );
    }
}

#[test]
fn types_are_independent_of_own_aaaa_records_and_of_repetitions() {
    let types = "AAAA=50%,A=40%,HTTPS=10%".parse().unwrap();
    let form = QueryForm {
        types,
        ..QueryForm::default()
    };
    for pattern in ["one-name", "stack:64", "window:64"] {
        let source = with_pattern("10.0.0.0/16", "0.5", "0.5", pattern).unwrap();
        let names = source.in_form(form).take(4_000, None).unwrap();
        let mut counts = HashMap::new();
        for i in 0..4_000 {
            let asked = names.question(i);
            assert_eq!(asked.address, names.asked(i));
            let is_fresh = names.repeats.fresh(i).is_some();
            let kind = (names.zone.has_aaaa(asked.address), is_fresh, asked.rtype);
            *counts.entry(kind).or_insert(0) += 1_u32;
        }
        for has_aaaa in [false, true] {
            for (rtype, share) in [(Rtype::AAAA, 500), (Rtype::A, 400), (Rtype::HTTPS, 100)] {
                let fresh = counts[&(has_aaaa, true, rtype)];
                assert!(fresh.abs_diff(share) <= 2, "{pattern}: {counts:?}");
            }
        }
    }
}

#[test]
fn answer_is_expected_with_each_prefix_or_with_its_own_address() {
    let mut source = source("10.0.0.0/24", "0.5", "0");
    let prefixes = "64:ff9b::/96,2001:db8:64::/96".parse().unwrap();
    let names = source.take(2, Some(prefixes)).unwrap();
    let texts = |name: &str| -> Vec<String> {
        let name = name.parse().unwrap();
        let expected: Vec<_> = names.expected(name).collect();
        assert!(expected.iter().all(|address| names.accept(*address, name)));
        assert!(!names.accept("64:ff9b::1".parse().unwrap(), name));
        expected.iter().map(ToString::to_string).collect()
    };
    assert_eq!(texts("10.0.0.0"), ["64:ff9b::a00:0", "2001:db8:64::a00:0"]);
    assert_eq!(texts("10.0.0.1"), ["2001:db8::a00:1"]);
}

#[test]
fn burst_uses_only_the_reserved_names() {
    let mut source = source("10.0.0.0/24", "0", "0.2");
    let burst = source.burst(Pref64::WELL_KNOWN.into());
    assert_eq!((burst.first, source.burst_len()), (192, 64));
    assert_eq!(burst.repeats.share(), Share::NONE);
    let names = source.take(240, None).unwrap();
    assert_eq!((names.first + names.fresh, names.ring.names()), (192, 192));
}

#[test]
fn working_set_precedes_the_first_trial_and_is_bounded() {
    for pattern in ["stack:64", "window:64", "zipf:64,1"] {
        let mut source = with_pattern("10.0.0.0/24", "0", "0.5", pattern).unwrap();
        let names = source.take(10, None).unwrap();
        assert_eq!(names.first, 64, "{pattern}");
        source.start_over();
        assert_eq!(source.take(256, None).unwrap().first, 64, "{pattern}");
        assert_eq!(source.take(1, None).unwrap_err().left, 0, "{pattern}");
    }
    let error = with_pattern("10.0.0.0/24", "0", "0.5", "stack:65").unwrap_err();
    assert!(
        error
            .to_string()
            .contains("a quarter of 10.0.0.0/24, which is 64;")
    );
    // Without repetitions no names are set aside.
    let mut none = with_pattern("10.0.0.0/24", "0", "0", "stack:65").unwrap();
    let names = none.take(192, None).unwrap();
    assert_eq!((names.first, none.to_ask_before(&names, 0)), (0, None));
}

#[test]
fn window_is_queried_before_the_first_trial_and_then_follows_the_trials() {
    let mut source = with_pattern("10.0.0.0/16", "0", "0.5", "window:100").unwrap();
    let first = source.take(400, None).unwrap();
    assert_eq!(source.to_ask_before(&first, 10), Some(0..100));
    source.were_asked(0..100, 1000);
    assert_eq!(source.to_ask_before(&first, 10), None);
    source.trial_is_over(&first, true, 2000);
    let second = source.take(400, None).unwrap();
    assert_eq!(second.first, 300);
    assert_eq!(source.to_ask_before(&second, 1000), None);
    // The oldest of the answers have expired by then.
    assert_eq!(source.to_ask_before(&second, 1001), Some(200..300));
    source.trial_is_over(&second, false, 3000);
    let third = source.take(400, None).unwrap();
    assert_eq!(source.to_ask_before(&third, 10), Some(400..500));
    source.trial_is_over(&third, true, 3000);
    let fourth = source.take(400, None).unwrap();
    assert_eq!(source.to_ask_before(&fourth, 3000), None);
    source.start_over();
    let again = source.take(400, None).unwrap();
    assert_eq!(source.to_ask_before(&again, 10), Some(0..100));
}

#[test]
fn fixed_set_is_queried_once_and_a_stack_before_every_trial() {
    let mut fixed = with_pattern("10.0.0.0/16", "0", "0.5", "zipf:100,1").unwrap();
    let mut stack = with_pattern("10.0.0.0/16", "0", "0.5", "stack:100").unwrap();
    for (source, second) in [(&mut fixed, None), (&mut stack, Some(200..300))] {
        let first = source.take(400, None).unwrap();
        assert_eq!(source.to_ask_before(&first, 10), Some(0..100));
        source.were_asked(0..100, 1000);
        source.trial_is_over(&first, false, 1000);
        let names = source.take(400, None).unwrap();
        assert_eq!(source.to_ask_before(&names, 10), second);
    }
    let names = fixed.take(1, None).unwrap();
    assert_eq!(fixed.to_ask_before(&names, 1001), Some(0..100));
}

#[test]
fn repeated_names_are_those_of_the_working_set_and_of_the_trial() {
    for pattern in ["stack:100", "window:100", "zipf:100,1"] {
        let mut source = with_pattern("10.0.0.0/16", "0", "0.9", pattern).unwrap();
        source.take(400, None).unwrap();
        let names = source.take(400, None).unwrap();
        let ring = names.ring;
        let asked = (0..400).map(|i| ring.number_of(names.asked(i)).unwrap());
        let (low, high) = match pattern {
            "zipf:100,1" => (0, 180),
            _ => (40, 180),
        };
        assert!(
            asked.into_iter().all(|n| (low..high).contains(&n)),
            "{pattern}"
        );
    }
}
