//! Facts of simulated machines, and of this one.

use std::fs;

use super::*;

fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let machine = Machine::at(root.path());
    (root, machine)
}

#[test]
fn programs_that_steer_the_clock_are_listed() {
    let (_root, here) = machine(&[
        ("/proc/7/comm", "ptp4l\n"),
        ("/proc/8/comm", "chronyd\n"),
        ("/proc/self/comm", "ntpd\n"),
    ]);
    assert_eq!(of_machine(&here).time_sync, ["chronyd"]);
}

#[test]
fn only_lab_namespaces_are_listed() {
    let (_root, here) = machine(&[
        ("/run/netns/dns64bench-dut", ""),
        ("/run/netns/rehearsal-dut", ""),
        ("/sys/devices/system/cpu/online", "0-3\n"),
        ("/sys/devices/system/cpu/cpufreq/policy0/affected_cpus", "0"),
        (
            "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor",
            "powersave",
        ),
        ("/sys/devices/system/cpu/cpufreq/policy1/affected_cpus", "1"),
        (
            "/sys/devices/system/cpu/cpufreq/policy1/scaling_governor",
            "powersave",
        ),
    ]);
    let facts = of_machine(&here);
    assert_eq!(facts.lab_namespaces, ["dns64bench-dut"]);
    assert_eq!(facts.cpus.cpus(), [0, 1, 2, 3]);
    assert_eq!(facts.governors, ["powersave"]);
}

#[test]
fn facts_of_this_machine_survive_json() {
    let facts = HostFacts::here();
    assert!(!facts.cpus.is_unrestricted());
    assert_eq!(facts.identity, Welcome::here());
    let text = serde_json::to_string(&facts).unwrap();
    assert_eq!(serde_json::from_str::<HostFacts>(&text).unwrap(), facts);
}
