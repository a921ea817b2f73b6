//! Figures of the evidence.

use expect_test::expect;

use super::{first_rows, sample};
use crate::report::campaign::analysis::{Analysis, Lost};
use crate::report::campaign::plots::{Figure, Figures};
use crate::trial::place::Place;

fn rows(figure: &Figure) -> String {
    first_rows(figure, usize::MAX).join("\n") + "\n"
}

#[test]
fn sender_is_shown_with_its_limits() {
    let figures = Figures::of(&sample());
    let [lateness, rate_error] = &figures.sender[..] else {
        panic!("{} figures", figures.sender.len());
    };
    let three = |figure: &Figure, rows| first_rows(figure, rows).join("\n") + "\n";
    expect![[r#"
        dns64d cores=1 | p50 | 300 ns | 300 ns | 10 ms
        dns64d cores=1 | p99 | 2 us | 2.81 us | 10 ms
        dns64d cores=1 | p99.9 | 9 us | 9 us | 10 ms
        dns64d cores=1 | max | 50 us | 99 us | 10 ms
    "#]]
    .assert_eq(&three(lateness, 4));
    expect![[r#"
        dns64d cores=1 | 1 ms | 12.5 % | 12.5 % | –
        dns64d cores=1 | 10 ms | 1.3 % | 1.3 % | –
        dns64d cores=1 | 100 ms | 0.1 % | 0.1 % | 10 %
    "#]]
    .assert_eq(&three(rate_error, 3));
    assert_eq!(lateness.legend[2].1, "limit: 10 ms");
    assert_eq!(rate_error.legend[2].1, "limit: 10 %");
    // One limit for each row of the first figure, and one for one of three rows of the second.
    let limits = |figure: &Figure| figure.svg.matches("stroke-dasharray").count();
    assert_eq!((limits(lateness), limits(rate_error)), (3 * 4, 3));
}

#[test]
fn a_journal_without_limits_and_places_has_figures_without_them() {
    let mut analysis = sample();
    for evidence in &mut analysis.evidence {
        evidence.losses = None;
        let sender = evidence.sender.as_mut().unwrap();
        sender.lateness_limit_ns = None;
        sender.bin_1ms_deviation_pct_max = None;
    }
    let figures = Figures::of(&analysis);
    let [lateness, rate_error] = &figures.sender[..] else {
        panic!("{} figures", figures.sender.len());
    };
    assert_eq!(
        (lateness.legend.len(), lateness.table.rows[0][4].as_str()),
        (2, "–")
    );
    assert_eq!(rate_error.table.rows[0][1], "10 ms");
    assert_eq!(
        figures.losses.len(),
        3,
        "how the trials of each variant ended"
    );
}

#[test]
fn self_tests_are_shown_with_the_rates_under_them() {
    let figures = Figures::of(&sample());
    let [margins] = &figures.margins[..] else {
        panic!("{} figures", figures.margins.len());
    };
    expect![[r#"
        AAAA 0 %, cached 0 %, 1 s, timeout 1 s | self-test 1 | 59,000 | –
        AAAA 0 %, cached 0 %, 1 s, timeout 1 s | self-test 2 | 59,000 | –
        AAAA 0 %, cached 0 %, 1 s, timeout 1 s | dns64d cores=1 | 9,000 | 6.56
        AAAA 0 %, cached 0 %, 1 s, timeout 1 s | dns64d cores=1-2 | 17,125 | 3.45
        AAAA 0 %, cached 0 %, 1 s, timeout 1 s | un_bound & <co> | 12,000 | 4.92
    "#]]
    .assert_eq(&rows(margins));
    let mut failed = sample();
    failed.certificates[0].certified_rate_qps = None;
    let figures = Figures::of(&failed);
    assert_eq!(figures.margins[0].table.rows[0][2], "failed");
    assert!(figures.margins[0].svg.contains("line failed"));
}

/// The first variant with these losses at places and elsewhere.
fn with_losses(at: &[(Place, Lost)], undecided: Lost) -> Analysis {
    let mut analysis = sample();
    let losses = analysis.evidence[0].losses.as_mut().unwrap();
    losses.undecided = undecided;
    for row in &mut losses.places {
        let lost = at.iter().find(|lost| lost.0 == row.place);
        row.lost = lost.map_or(Lost::default(), |lost| lost.1);
    }
    analysis
}

fn lost(valid_trials: u64, invalid_trials: u64) -> Lost {
    Lost {
        valid_trials,
        invalid_trials,
    }
}

#[test]
fn every_place_has_its_losses_and_their_owner() {
    let at = [(Place::Dut, lost(12_345, 0)), (Place::ToDut, lost(0, 678))];
    let figures = Figures::of(&with_losses(&at, lost(0, 9)));
    let [places, outcomes, ..] = &figures.losses[..] else {
        panic!("{} figures", figures.losses.len());
    };
    expect![[r#"
        never sent by the Measurer | the Tester’s | 0 | 0
        lost on the way to the DUT | the Tester’s | 0 | 678
        dropped by the DUT's host before its sockets | the Tester’s | 0 | 0
        at the DUT's sockets | the DUT’s | 0 | 0
        lost on the way to the authority | the Tester’s | 0 | 0
        lost at the authority | the Tester’s | 0 | 0
        lost on the way from the authority | the Tester’s | 0 | 0
        never answered by the DUT | the DUT’s | 12,345 | 0
        lost on the way back from the DUT | the Tester’s | 0 | 0
        lost at the Measurer | the Tester’s | 0 | 0
        answered late | the DUT’s | 0 | 0
        answered, but not validly | the DUT’s | 0 | 0
        place not known | cannot be told | 0 | 9
    "#]]
    .assert_eq(&rows(places));
    for shown in [">12,345<", ">+ 678 invalid<", ">+ 9 invalid<"] {
        assert_eq!(places.svg.matches(shown).count(), 1, "{shown}");
    }
    assert!(!places.title.contains("not proof"));
    // All other places show no losses.
    assert_eq!(places.svg.matches(">0<").count(), 12);
    expect![[r#"
        passed | 651
        failed: the DUT lost queries | 758
        invalid: sender held up | 1
    "#]]
    .assert_eq(&rows(outcomes));
}

#[test]
fn messages_are_in_order_with_the_times_between_them() {
    let mut analysis = sample();
    let figures = Figures::of(&analysis);
    assert_eq!(figures.messages.len(), 3);
    expect![[r#"
        AAAA query | 0 ns
        AAAA question | 20 us
        AAAA answer | 25 us
        A question | 60 us
        A answer | 66 us
        AAAA response | 200 us
    "#]]
    .assert_eq(&rows(&figures.messages[0]));
    let svg = &figures.messages[0].svg;
    for shown in [">20 us<", ">134 us<"] {
        assert!(svg.contains(shown), "{shown}: {svg}");
    }
    let shares = |figure: &Figure| figure.legend.iter().map(|entry| entry.1.clone()).collect();
    let shown: Vec<String> = shares(&figures.messages[0]);
    assert_eq!(
        shown,
        ["DUT and links: 189 us (94.5 %)", "authority: 11 us (5.5 %)"]
    );
    // In the drawing both would meet on a phone.
    assert!(!svg.contains("DUT and links"), "{svg}");
    // Both queries at once: the time that the authority had both counts once.
    let path = analysis.points[0].path.as_mut().unwrap();
    let typical = path.typical.as_mut().unwrap();
    typical.a_question_ns = Some(22_000);
    typical.a_answer_ns = Some(30_000);
    let shown: Vec<String> = shares(&Figures::of(&analysis).messages[0]);
    assert_eq!(shown[1], "authority: 10 us (5.0 %)");
}

#[test]
fn authority_work_after_the_response_is_excluded() {
    let mut analysis = sample();
    let path = analysis.points[0].path.as_mut().unwrap();
    let typical = path.typical.as_mut().unwrap();
    typical.a_question_ns = Some(190_000);
    typical.a_answer_ns = Some(300_000);
    let figure = &Figures::of(&analysis).messages[0];
    assert_eq!(figure.table.rows.len(), 5);
    assert_eq!(figure.legend[1].1, "authority: 15 us (7.5 %)");
}

#[test]
fn time_without_the_authority_is_shown_beside_the_total() {
    let figures = Figures::of(&sample());
    let [figure] = &figures.dut_only[..] else {
        panic!("{} figures", figures.dut_only.len());
    };
    expect![[r#"
        dns64d cores=1, AAAA 0 %, cached 0 % | p50 | 560 us | 141 us | 397.8
        dns64d cores=1, AAAA 0 %, cached 0 % | p90 | 960 us | 302 us | 318.2
        dns64d cores=1, AAAA 0 %, cached 0 % | p99 | 1.05 ms | 2.11 ms | 49.7
        dns64d cores=1, AAAA 0 %, cached 0 % | p99.9 | 1.06 ms | 20.2 ms | 5.2
        dns64d cores=1, AAAA 0 %, cached 0 % | max | 1.06 ms | 20.2 ms | 5.2
    "#]]
    .assert_eq(&(first_rows(figure, 5).join("\n") + "\n"));
}

#[test]
fn shared_counters_are_marked_as_evidence_only() {
    let mut analysis = sample();
    analysis.evidence[0].losses.as_mut().unwrap().shared = true;
    let figures = Figures::of(&analysis);
    assert!(figures.losses[0].title.ends_with("evidence, not proof"));
    assert!(!figures.losses[2].title.ends_with("evidence, not proof"));
}
