//! The behaviour of the authority, and its working set.

use expect_test::expect;

use super::*;

#[test]
fn each_authority_behaviour_is_a_variant_outside_rfc_8219() {
    let plan = plan(
        "[[dut]]\nprofile = \"unbound\"\ncores = [\"1\", \"2\"]\n\
         authority-behaviour = [\"none\", \"delay=5ms\", \"delay=@d.txt\"]\n\
         [[dut]]\nprofile = \"bind\"\nauthority-behaviour = \"loss=1%\"\n",
    );
    assert_eq!(
        names(&plan),
        [
            "unbound cores=1 authority=none",
            "unbound cores=1 authority=delay=5ms",
            "unbound cores=1 authority=delay=@dir/d.txt",
            "unbound cores=2 authority=none",
            "unbound cores=2 authority=delay=5ms",
            "unbound cores=2 authority=delay=@dir/d.txt",
            "bind",
        ]
    );
    let only_delay_ns = |v: &Variant| v.behaviour().unwrap().only_delay_ns();
    let delays: Vec<_> = plan.variants.iter().map(only_delay_ns).collect();
    assert_eq!(delays[..3], [Some(0), Some(5_000_000), None]);
    assert_eq!(delays[6], None);
    let remarks: Vec<_> = plan.remarks().iter().map(ToString::to_string).collect();
    expect![[r#"
        unbound cores=1 authority=delay=5ms, unbound cores=2 authority=delay=5ms: the authority injects faults (delay=5ms), which RFC 8219 does not provide for
        unbound cores=1 authority=delay=@dir/d.txt, unbound cores=2 authority=delay=@dir/d.txt: the authority injects faults (delay=@dir/d.txt), which RFC 8219 does not provide for
        bind: the authority injects faults (loss=1%), which RFC 8219 does not provide for
    "#]]
    .assert_eq(&(remarks.join("\n") + "\n"));
}

#[test]
fn the_working_set_of_an_authority_is_its_pattern() {
    let plan = plan(
        "[cells]\ncached-share = \"100%\"\npattern = [\"stack:1024\", \"zipf:1024,0\"]\n\
         [search]\nstart-rate = \"1M\"\n[[dut]]\nauthority = \"built-in\"\n",
    );
    assert_eq!(
        cells(&plan),
        [
            "AAAA 0%, cached 100% (stack distance 1024)",
            "AAAA 0%, cached 100% (Zipf 0 over 1024 names)",
        ]
    );
    assert_eq!(plan.remarks(), []);
}

#[test]
fn invalid_behaviours_are_refused_with_place() {
    for (text, expected) in [
        (
            "[[dut]]\nprofile = \"bind\"\nauthority-behaviour = [\"none\", \"lose=1%\"]",
            expect![
                "3:32: `authority-behaviour`: 'lose=1%' is not a behaviour; write none, or a list such as delay=5ms,loss=0.1% of delay=TIME, delay=TIME+-TIME or delay=@FILE, loss=SHARE, servfail=SHARE, refused=SHARE, truncate=SHARE, reorder=SHARE:TIME, duplicate=SHARE and seed=NUMBER"
            ],
        ),
        (
            "[tester]\nauthority = \"nsd\"\n[[dut]]\nprofile = \"bind\"\nauthority-behaviour = \"loss=1%\"",
            expect![
                "5:23: authority-behaviour does not apply to a profile whose authority is not the built-in one; omit it"
            ],
        ),
        (
            "[[dut]]\nauthority = \"built-in\"\nauthority-behaviour = \"loss=1%\"",
            expect![
                "3:23: authority-behaviour does not apply to the Tester's own authority; omit it"
            ],
        ),
    ] {
        expected.assert_eq(&error(text));
    }
}

#[test]
fn a_file_of_delays_is_looked_up_when_a_plan_is_loaded() {
    let delays = "[[dut]]\nprofile = \"unbound\"\nauthority-behaviour = \"delay=@no.txt\"";
    expect!["3:23: delays of the authority: DIR/no.txt: No such file or directory (os error 2); each line has a share and a time, such as 50% 2ms, the first 0%, the last 100%, both rising"]
    .assert_eq(&load_error(delays));
}
