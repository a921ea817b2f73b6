//! Parsing, and properties of the decisions.

use std::io::Write as _;

use proptest::prelude::*;

use super::*;

fn rules(text: &str) -> Rules {
    Rules::new(text.parse().unwrap()).unwrap()
}

fn faults(rules: &Rules, names: std::ops::Range<u32>, rtype: Rtype) -> Vec<Option<ReplyFault>> {
    names.map(|n| rules.act(Some(n), rtype).fault).collect()
}

fn count(faults: &[Option<ReplyFault>], fault: ReplyFault) -> usize {
    faults.iter().filter(|met| **met == Some(fault)).count()
}

#[test]
fn behaviour_is_parsed_from_a_list_and_printed_as_one() {
    for text in [
        "none",
        "delay=5ms",
        "delay=5ms+-1ms",
        "delay=1.500us",
        "delay=@delays.txt",
        "loss=0.1%",
        "delay=250us,loss=1%,servfail=2%,refused=3%,truncate=4%,reorder=5%:2ms,duplicate=6%,seed=7",
    ] {
        let behaviour: Behaviour = text.parse().unwrap();
        assert_eq!(behaviour.to_string(), text);
        assert_eq!(behaviour.is_none(), text == "none");
    }
    let same = ["loss=0.001,delay=0.005", "delay=5ms,loss=0.1%"];
    let [one, other] = same.map(|text| text.parse::<Behaviour>().unwrap());
    assert_eq!(one, other);
    assert!("delay=0s,seed=3".parse::<Behaviour>().unwrap().is_none());
}

#[test]
fn invalid_behaviour_is_refused_with_the_remedy() {
    for (text, expected) in [
        ("", "'' is not a behaviour; write none, or a list such as"),
        ("delay", "'delay' is not a behaviour"),
        ("lose=1%", "'lose=1%' is not a behaviour"),
        ("reorder=1%", "'reorder=1%' is not a behaviour"),
        ("seed=-1", "'seed=-1' is not a behaviour"),
        ("loss=1%,loss=2%", "loss is given twice"),
        ("loss=2", "'2' is not a share"),
        (
            "loss=60%,servfail=40.0001%",
            "the shares add up to more than 100%",
        ),
        ("delay=11s", "a delay must be at most 10s"),
        ("delay=fast", "a time is expected"),
        ("delay=1ms+-2ms", "no delay can be below 0"),
        (
            "delay=@",
            "a file of quantiles is expected, such as @delays.txt",
        ),
    ] {
        let error = text.parse::<Behaviour>().unwrap_err().to_string();
        assert!(error.starts_with(expected), "{text}: {error}");
    }
}

proptest! {
    #[test]
    fn every_fault_has_its_share_of_every_window_of_names(
        ppm in prop::array::uniform6(0_u32..160_000),
        seed: u64,
        from in 0_u32..1 << 31,
        width in 0_u32..3000,
        aaaa: bool,
    ) {
        let mut behaviour = Behaviour { seed, ..Behaviour::default() };
        for (share, ppm) in behaviour.shares.iter_mut().zip(ppm) {
            *share = format!("0.{ppm:06}").parse().unwrap();
        }
        let rules = Rules::new(behaviour.clone()).unwrap();
        let rtype = if aaaa { Rtype::AAAA } else { Rtype::A };
        let met = faults(&rules, from..from + width, rtype);
        for (place, (fault, _)) in ReplyFault::KEYS.into_iter().enumerate() {
            let exact = f64::from(width) * f64::from(ppm[place]) / 1e6;
            let off = (count(&met, fault) as f64 - exact).abs();
            prop_assert!(off < place as f64 + 1.0, "{fault:?}: {off} off {exact}");
        }
        // A repeated query meets the same fault in every instance.
        prop_assert_eq!(&met, &faults(&Rules::new(behaviour).unwrap(), from..from + width, rtype));
    }

    #[test]
    fn jitter_stays_within_its_spread_and_depends_only_on_the_name(n: u32, seed: u64) {
        let rules = rules(&format!("delay=5ms+-1ms,seed={seed}"));
        let act = rules.act(Some(n), Rtype::A);
        prop_assert!((4_000_000..=6_000_000).contains(&act.delay_ns));
        prop_assert_eq!(act, rules.act(Some(n), Rtype::A));
    }
}

#[test]
fn share_of_one_in_a_thousand_is_exact_and_type_and_seed_select_other_names() {
    let first = rules("loss=0.1%");
    let lost = |rules: &Rules, rtype| {
        let met = faults(rules, 0..100_000, rtype);
        let places = met.iter().enumerate().filter(|(_, met)| met.is_some());
        places.map(|(place, _)| place).collect::<Vec<_>>()
    };
    let aaaa = lost(&first, Rtype::AAAA);
    assert_eq!(aaaa.len(), 100);
    assert!(aaaa.windows(2).all(|pair| pair[1] - pair[0] == 1000));
    assert_ne!(lost(&first, Rtype::A), aaaa);
    assert_ne!(lost(&rules("loss=0.1%,seed=1"), Rtype::AAAA), aaaa);
    // Without a number there is no fault except the delay.
    let all = rules("delay=1ms,loss=100%");
    let expected = Act {
        fault: None,
        delay_ns: 1_000_000,
    };
    assert_eq!(all.act(None, Rtype::NS), expected);
}

#[test]
fn jitter_is_uniformly_distributed() {
    let rules = rules("delay=5ms+-1ms");
    let delays = (0..10_000).map(|n| rules.act(Some(n), Rtype::AAAA).delay_ns);
    let mut tenths = [0_u32; 10];
    for delay_ns in delays {
        tenths[usize::try_from((delay_ns - 4_000_000) / 200_001).unwrap()] += 1;
    }
    // Four standard deviations of a binomial distribution.
    assert!(
        tenths.iter().all(|tenth| tenth.abs_diff(1000) < 120),
        "{tenths:?}"
    );
}

#[test]
fn reordered_reply_is_delayed_longer() {
    let rules = rules("delay=1ms,reorder=25%:2ms");
    let delays: Vec<_> = (0..8).map(|n| rules.act(Some(n), Rtype::A)).collect();
    let held = delays
        .iter()
        .filter(|act| act.fault == Some(ReplyFault::Reordered));
    assert_eq!(held.clone().count(), 2);
    assert!(held.into_iter().all(|act| act.delay_ns == 3_000_000));
    assert_eq!(rules.delay_ns_max(), 3_000_000);
}

#[test]
fn delays_of_a_file_follow_its_quantiles() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    write!(
        file,
        "# measured\n0% 1ms\n50% 2ms\n\n99% 10ms # tail\n100% 100ms\n"
    )
    .unwrap();
    let rules = rules(&format!("delay=@{}", file.path().display()));
    let mut delays: Vec<_> = (0..10_000)
        .map(|n| rules.act(Some(n), Rtype::AAAA).delay_ns)
        .collect();
    delays.sort_unstable();
    assert!(delays[0] >= 1_000_000 && delays[9_999] <= 100_000_000);
    let below = |limit| delays.partition_point(|delay_ns| *delay_ns < limit);
    // Four standard deviations of a binomial distribution.
    assert!(
        below(2_000_000).abs_diff(5_000) < 200,
        "{}",
        below(2_000_000)
    );
    assert!(
        below(10_000_000).abs_diff(9_900) < 40,
        "{}",
        below(10_000_000)
    );
    assert_eq!(rules.delay_ns_max(), 100_000_000);
}

#[test]
fn invalid_file_of_quantiles_is_refused_with_the_line() {
    for (text, place, reason) in [
        (
            "0% 1ms\n50% 3ms\n50% 4ms\n100% 5ms",
            ", line 3: ",
            "not above the line before",
        ),
        (
            "0% 2ms\n100% 1ms",
            ", line 2: ",
            "not above the line before",
        ),
        ("0% 1ms\nhalf 2ms\n", ", line 2: ", "is not a share"),
        ("0% 1ms 2ms", ", line 1: ", "not two words"),
        ("0% 11s\n", ", line 1: ", "a delay must be at most 10s"),
        ("10% 1ms\n100% 2ms", "delays.txt: ", "not from 0% to 100%"),
        ("", "delays.txt: ", "not from 0% to 100%"),
    ] {
        let error = quantiles(Path::new("delays.txt"), text).unwrap_err();
        let message = error.to_string();
        assert!(
            message.contains(place) && message.contains(reason),
            "{text}: {error}"
        );
    }
    let missing = Rules::new("delay=@no-such-file".parse().unwrap()).unwrap_err();
    let expected = "delays of the authority: no-such-file: No such file";
    assert!(missing.to_string().starts_with(expected), "{missing}");
}
