//! Self-correcting pacing beside absolute pacing.

use super::*;
use crate::campaign::bench;

#[test]
fn each_pacing_is_a_variant_and_self_correcting_is_not_a_measurement() {
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
    let rigs = plan.points.iter();
    let rigs = rigs.map(|at| bench::spec(&plan, at, LabKind::Netns));
    let (old, new) = (Pacing::SelfCorrecting, Pacing::Absolute);
    let pacings: Vec<_> = rigs.map(|rig| rig.load.pacing).collect();
    assert_eq!(pacings, [old, new, old, new, old, new]);
    let remarks: Vec<_> = plan.remarks().iter().map(ToString::to_string).collect();
    let flawed = [names[0], names[2], names[4]].join(", ");
    let flaw = "paced by the self-correcting timer of Lencse and Pivoda 2018, equation (1), to show its fault";
    assert_eq!(remarks, [format!("{flawed}: {flaw}")]);
}

#[test]
fn invalid_pacing_is_refused_with_place() {
    expect![[r#"3:10: `pacing` is "old": must be absolute or self-correcting"#]]
        .assert_eq(&error("[[dut]]\nprofile = \"bind\"\npacing = \"old\"\n"));
}
