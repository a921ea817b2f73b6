use super::*;
use crate::report::campaign::analyse::analyse;
use crate::report::campaign::tables;
use crate::report::campaign::tests::sample::{SEAL, SMALL, analysed, full, small};

fn page(analysis: &Analysis) -> String {
    super::page(analysis, &tables::all(analysis)).unwrap()
}

/// A name that would be a script without escaping.
const HOSTILE: &str = "<script>alert(\"dns\")</script> & Co";

/// The small sample with a reason not to count as a measurement, and a hostile name.
fn sample() -> Analysis {
    let mut analysis = analysed(SMALL);
    analysis.not_a_measurement = vec!["the roles share one machine and its cores".to_owned()];
    analysis.variants[2].marked = HOSTILE.to_owned();
    analysis.variants[2].notes = vec!["<b>bold</b>".to_owned()];
    analysis.warnings[0].about = Some(HOSTILE.to_owned());
    analysis
}

/// A campaign that was stopped before its first trial.
fn bare() -> Analysis {
    let (plan, lines) = small();
    let mut analysis = analyse(&plan, &lines[..2], SEAL);
    analysis.points.clear();
    analysis.warnings.clear();
    analysis
}

fn sections(page: &str) -> Vec<&str> {
    page.split("<section id=\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect()
}

#[test]
fn each_section_appears_once_and_in_order() {
    let page = page(&sample());
    let expected = [
        "verdict",
        "results",
        "conditions",
        "self-test",
        "evidence",
        "latency",
        "curves",
        "scaling",
        "overload",
        "soak",
        "queue",
        "sessions",
        "statement",
        "repeat",
    ];
    assert_eq!(sections(&page), expected);
    for section in &expected[1..] {
        let link = format!("<a href=\"#{section}\">");
        assert_eq!(page.matches(&link).count(), 1, "{section}");
    }
    assert!(page.contains("<strong>NOT A MEASUREMENT</strong>"));
}

#[test]
fn sections_without_data_are_left_out() {
    let page = page(&bare());
    let expected = ["verdict", "conditions", "sessions", "statement", "repeat"];
    assert_eq!(sections(&page), expected);
    assert!(page.contains("The campaign is not complete"));
    assert!(!page.contains("NOT A MEASUREMENT") && !page.contains("<figure"));
}

#[test]
fn the_page_loads_nothing() {
    let page = page(&sample());
    for loader in [
        "http://", "https://", "src=", "@import", "url(", "<link", "<script",
    ] {
        assert!(!page.contains(loader), "{loader}");
    }
    let mut files: Vec<_> = page
        .split("href=\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .filter(|target| !target.starts_with('#'))
        .map(|target| target.replace("&#x2f;", "/"))
        .collect();
    files.sort_unstable();
    files.dedup();
    let expected = ["results.json", "runs.csv"];
    assert_eq!(files, expected);
}

#[test]
fn hostile_names_are_escaped() {
    let mut analysis = sample();
    analysis.name = "</title><img onerror=alert(1)>".to_owned();
    analysis.commands = vec!["</code><i>".to_owned()];
    let page = page(&analysis);
    for tag in ["<script", "<b>bold", "<img", "<i>"] {
        assert!(!page.contains(tag), "{tag}");
    }
    let name = "aria-label=\"&lt;script&gt;alert(&quot;dns&quot;)&lt;/script&gt; &amp; Co";
    assert!(page.contains(name), "not in the drawings");
    assert!(
        page.contains("&lt;b&gt;bold&lt;&#x2f;b&gt;"),
        "not in the remarks"
    );
}

#[test]
fn figures_are_numbered_in_order() {
    let page = page(&sample());
    let numbers = page.split("<figcaption><b>Figure ").skip(1);
    let numbers = numbers.filter_map(|rest| rest.split('.').next()?.parse().ok());
    let numbers: Vec<usize> = numbers.collect();
    assert_eq!(
        numbers,
        (1..=page.matches("<figure").count()).collect::<Vec<_>>()
    );
}

#[test]
fn the_same_analysis_gives_the_same_octets() {
    assert_eq!(page(&sample()), page(&sample()));
}

#[test]
fn page_of_a_full_campaign_stays_small() {
    let (plan, lines) = full();
    let page = page(&analyse(&plan, &lines, SEAL));
    assert!(page.len() < 3_000_000, "{} octets", page.len());
    assert!(
        page.contains("What the authority saw of all 93 points"),
        "not folded"
    );
}
