//! The old timer beside the new one.

use super::*;
use crate::campaign::bench;
use crate::campaign::tasks::points;

#[test]
fn each_pacing_of_a_dut_or_an_authority_is_a_variant_and_the_old_one_no_measurement() {
    let both = "pacing = [\"self-correcting\", \"absolute\"]\n";
    let plan = plan(&format!(
        "[[dut]]\nprofile = \"bind\"\n{both}[[dut]]\nauthority = \"nsd\"\n{both}\
         [[dut]]\nname = \"old\"\nserver = \"2001:2::2\"\nself-test-server = \"2001:2::3\"\n\
         pacing = \"self-correcting\"\n{MINIMAL}"
    ));
    let names = names(&plan);
    assert_eq!(
        names,
        [
            "bind pacing=self-correcting",
            "bind pacing=absolute",
            "nsd pacing=self-correcting",
            "nsd pacing=absolute",
            "old",
            "unbound",
        ]
    );
    let rigs = points(&plan);
    let rigs = rigs.iter().map(|at| bench::spec(&plan, at, LabKind::Netns));
    let (old, new) = (Pacing::SelfCorrecting, Pacing::Absolute);
    let pacings: Vec<_> = rigs.map(|rig| rig.load.pacing).collect();
    assert_eq!(pacings, [old, new, old, new, old, new]);
    let remarks: Vec<_> = plan.remarks().iter().map(ToString::to_string).collect();
    let flawed = [names[0], names[2], names[4]].map(|name| {
        format!(
            "{name}: paced by the self-correcting timer of Lencse and Pivoda 2018, equation (1), to show its fault"
        )
    });
    assert_eq!(remarks, flawed);
}

#[test]
fn a_pacing_that_cannot_be_is_pointed_at() {
    expect![[r#"3:10: `pacing`: "old" is not a pacing; write absolute or self-correcting"#]]
        .assert_eq(&error("[[dut]]\nprofile = \"bind\"\npacing = \"old\"\n"));
}
