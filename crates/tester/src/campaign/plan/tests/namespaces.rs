//! Ranges of names of authorities that are measured by themselves.

use super::{error, names, plan};
use crate::rig::spec::Load;

const TWO: &str = "[search]\nstart-rate = 100\n[[dut]]\nauthority = \"nsd\"\ncores = [\"1\", \"1-2\"]\n\
                   namespace = [\"10.0.0.0/12\", \"10.0.0.0/8\"]\n[[dut]]\nauthority = \"knot\"\n";

#[test]
fn each_range_of_an_authority_is_a_variant() {
    let plan = plan(TWO);
    let expected = [
        "nsd cores=1 namespace=10.0.0.0/12",
        "nsd cores=1 namespace=10.0.0.0/8",
        "nsd cores=1-2 namespace=10.0.0.0/12",
        "nsd cores=1-2 namespace=10.0.0.0/8",
        "knot",
    ];
    assert_eq!(names(&plan), expected);
    assert_eq!(plan.cidr(0).to_string(), "10.0.0.0/12");
    assert_eq!(plan.cidr(4), Load::default().cidr);
}

#[test]
fn an_authority_with_a_range_of_its_own_does_not_widen_that_of_the_plan() {
    let ranges = |more: &str| {
        let text = format!(
            "[search]\nstart-rate = 1000\nmax-rate = 1091\n[[dut]]\nauthority = \"nsd\"\n{more}"
        );
        plan(&text).cidr(0).to_string()
    };
    assert_eq!(ranges(""), "10.0.0.0/16");
    assert_eq!(ranges("namespace = \"10.0.0.0/9\"\n"), "10.0.0.0/9");
}

#[test]
fn small_range_and_range_of_a_dns64_server_are_refused() {
    let small = TWO.replace("10.0.0.0/12", "10.0.0.0/24");
    let small = error(&small);
    assert!(
        small.contains("6:14: ") && small.contains("10.0.0.0/24 has 256 names"),
        "{small}"
    );
    let dns64 = error("[[dut]]\nprofile = \"unbound\"\nnamespace = \"10.0.0.0/8\"\n");
    assert!(dns64.contains("give it in [tester]"), "{dns64}");
}
