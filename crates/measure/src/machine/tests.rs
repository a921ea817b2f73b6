use std::fs;

use super::*;

/// Files of a laptop with two kinds of cores and SMT.
const LAPTOP: &[(&str, &str)] = &[
    (
        "/proc/cpuinfo",
        "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: 12th Gen Intel(R) Core(TM) i5-1240P\n\
         flags\t\t: fpu vme tsc\n\nprocessor\t: 1\nmodel name\t: other\n",
    ),
    ("/sys/devices/system/cpu/smt/active", "1\n"),
    (
        "/sys/devices/system/cpu/cpufreq/policy8/affected_cpus",
        "8 9 10 11\n",
    ),
    (
        "/sys/devices/system/cpu/cpufreq/policy8/scaling_governor",
        "performance\n",
    ),
    (
        "/sys/devices/system/cpu/cpufreq/policy0/affected_cpus",
        "0 1\n",
    ),
    (
        "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor",
        "powersave\n",
    ),
    (
        "/sys/devices/system/cpu/cpufreq/policy0/scaling_driver",
        "intel_pstate\n",
    ),
    (
        "/sys/devices/system/cpu/cpufreq/policy0/scaling_min_freq",
        "400000\n",
    ),
    (
        "/sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq",
        "4400000\n",
    ),
    ("/sys/devices/system/cpu/intel_pstate/no_turbo", "0\n"),
    (
        "/sys/devices/system/clocksource/clocksource0/current_clocksource",
        "hpet\n",
    ),
    (
        "/sys/devices/system/cpu/vulnerabilities/meltdown",
        "Not affected\n",
    ),
    (
        "/sys/devices/system/cpu/vulnerabilities/spectre_v2",
        "Mitigation: Enhanced / Automatic IBRS; IBPB: conditional\n",
    ),
    (
        "/sys/devices/system/cpu/vulnerabilities/mmio_stale_data",
        "Vulnerable: No microcode\n",
    ),
    (
        "/proc/cmdline",
        "BOOT_IMAGE=/vmlinuz ro mitigations=auto -- emergency\n",
    ),
    (
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "always [madvise] never\n",
    ),
    (
        "/proc/self/cgroup",
        "1:name=systemd:/\n0::/user.slice/bench.scope\n",
    ),
    (
        "/sys/fs/cgroup/user.slice/bench.scope/cpu.max",
        "max 100000\n",
    ),
    ("/sys/fs/cgroup/user.slice/cpu.max", "150000 100000\n"),
    ("/sys/fs/cgroup/user.slice/bench.scope/memory.max", "max\n"),
    ("/proc/loadavg", "3.02 1.50 0.75 2/1024 4711\n"),
    (
        "/proc/meminfo",
        "MemTotal:       16080204 kB\nMemAvailable:    1024 kB\n",
    ),
    ("/proc/sys/net/ipv4/udp_mem", "187449\t249932\t374898\n"),
    (
        "/etc/os-release",
        "NAME=Debian\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n",
    ),
];

/// A machine with these files.
fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
    let root = tempfile::tempdir().unwrap();
    let machine = Machine::at(root.path());
    for (path, text) in files {
        let path = machine.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    (root, machine)
}

#[test]
fn properties_of_a_laptop_are_read() {
    let (_root, laptop) = machine(LAPTOP);
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        laptop.cpu_model(),
        some("12th Gen Intel(R) Core(TM) i5-1240P")
    );
    assert_eq!(laptop.smt(), Some(true));
    assert_eq!(laptop.turbo(), Some(true));
    assert_eq!(laptop.hypervisor(), None);
    assert_eq!(laptop.clock_source(), some("hpet"));
    assert_eq!(
        laptop.command_line(),
        some("BOOT_IMAGE=/vmlinuz ro mitigations=auto")
    );
    assert_eq!(laptop.transparent_hugepages(), some("madvise"));
    assert_eq!(laptop.load_average(), some("3.02 1.50 0.75"));
    assert_eq!(laptop.memory_bytes("MemTotal"), Some(16_080_204 * 1024));
    assert_eq!(laptop.memory_bytes("MemAvailable"), Some(1024 * 1024));
    assert_eq!(laptop.memory_bytes("Mem"), None);
    assert_eq!(
        laptop.sysctl("net.ipv4.udp_mem"),
        some("187449 249932 374898")
    );
    assert_eq!(
        laptop.distribution(),
        some("Debian GNU/Linux 12 (bookworm)")
    );
}

#[test]
fn frequency_policies_are_ordered_by_processor() {
    let (_root, laptop) = machine(LAPTOP);
    let policies = laptop.frequency_policies();
    assert_eq!(
        policies,
        [
            FrequencyPolicy {
                cpus: "0-1".parse().unwrap(),
                governor: "powersave".into(),
                driver: Some("intel_pstate".into()),
                range_khz: Some((400_000, 4_400_000)),
            },
            FrequencyPolicy {
                cpus: "8-11".parse().unwrap(),
                governor: "performance".into(),
                driver: None,
                range_khz: None,
            },
        ]
    );
}

#[test]
fn only_vulnerabilities_of_the_processor_are_listed() {
    let (_root, laptop) = machine(LAPTOP);
    let found: Vec<_> = laptop.mitigations().into_iter().collect();
    let expected = [
        ("mmio_stale_data", "Vulnerable: No microcode"),
        ("spectre_v2", "Enhanced / Automatic IBRS; IBPB: conditional"),
    ];
    assert_eq!(found, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
}

#[test]
fn nearest_limit_of_a_cgroup_applies() {
    let (_root, laptop) = machine(LAPTOP);
    assert_eq!(
        laptop.cgroup_limit("cpu.max").as_deref(),
        Some("150000 100000")
    );
    assert_eq!(laptop.cgroup_limit("memory.max"), None);
    // In its own cgroup namespace a container sees its cgroup as the root.
    let (_root, container) = machine(&[
        ("/proc/self/cgroup", "0::/\n"),
        ("/sys/fs/cgroup/memory.max", "536870912\n"),
    ]);
    assert_eq!(
        container.cgroup_limit("memory.max").as_deref(),
        Some("536870912")
    );
}

#[test]
fn memory_room_is_the_minimum_of_machine_and_cgroup_limits() {
    const AVAILABLE: (&str, &str) = ("/proc/meminfo", "MemAvailable: 8192 kB\n");
    let (_root, free) = machine(&[AVAILABLE]);
    assert_eq!(free.memory_room(), Some(8192 << 10));
    let (_root, container) = machine(&[
        AVAILABLE,
        ("/proc/self/cgroup", "0::/a/b\n"),
        ("/sys/fs/cgroup/a/memory.max", "5000000\n"),
        ("/sys/fs/cgroup/a/memory.current", "4000000\n"),
        (
            "/sys/fs/cgroup/a/memory.stat",
            "anon 1\ninactive_file 1500000\n",
        ),
        ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
        ("/sys/fs/cgroup/a/b/memory.current", "4000000\n"),
    ]);
    assert_eq!(container.memory_room(), Some(2_500_000));
    let (_root, version_1) = machine(&[
        AVAILABLE,
        ("/proc/self/cgroup", "4:memory:/a\n"),
        ("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "3000000\n"),
        ("/sys/fs/cgroup/memory/a/memory.usage_in_bytes", "1000000\n"),
    ]);
    assert_eq!(version_1.memory_room(), Some(2_000_000));
}

#[test]
fn cpu_quota_is_found_in_both_cgroup_versions() {
    let (_root, laptop) = machine(LAPTOP);
    assert_eq!(laptop.cpu_quota().as_deref(), Some("150000 100000"));
    let one = |quota| {
        let own = ("/proc/self/cgroup", "4:cpu,cpuacct:/jobs/mine\n0::/\n");
        let group = "/sys/fs/cgroup/cpu,cpuacct/jobs";
        let quota = (format!("{group}/cpu.cfs_quota_us"), quota);
        let period = (format!("{group}/cpu.cfs_period_us"), "10000\n");
        let files = [(own.0.to_owned(), own.1), quota, period];
        let files: Vec<_> = files.iter().map(|(p, t)| (p.as_str(), *t)).collect();
        machine(&files).1.cpu_quota()
    };
    assert_eq!(one("5000\n").as_deref(), Some("5000 10000"));
    assert_eq!(one("-1\n"), None);
}

#[test]
fn guests_are_recognised_by_flag_or_by_xen() {
    let flags = ("/proc/cpuinfo", "flags\t\t: sse2 hypervisor lahf_lm\n");
    let (_root, guest) = machine(&[
        flags,
        ("/sys/class/dmi/id/sys_vendor", "QEMU\n"),
        (
            "/sys/class/dmi/id/product_name",
            "Standard PC (Q35 + ICH9, 2009)\n",
        ),
    ]);
    assert_eq!(
        guest.hypervisor().as_deref(),
        Some("QEMU Standard PC (Q35 + ICH9, 2009)")
    );
    let (_root, silent) = machine(&[flags]);
    assert_eq!(silent.hypervisor().as_deref(), Some("unknown"));
    let (_root, xen) = machine(&[("/sys/hypervisor/type", "xen\n")]);
    assert_eq!(xen.hypervisor().as_deref(), Some("xen"));
}

#[test]
fn arm_processors_are_named_by_numbers() {
    let text = "processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";
    assert_eq!(
        cpu_model(text).as_deref(),
        Some("implementer 0x41, part 0xd0c")
    );
    assert_eq!(cpu_model("processor : 0\n"), None);
}

#[test]
fn turbo_is_read_from_amd_boost_and_intel_no_turbo() {
    let boost = "/sys/devices/system/cpu/cpufreq/boost";
    assert_eq!(machine(&[]).1.turbo(), None);
    let (_root, amd) = machine(&[(boost, "0\n")]);
    assert_eq!(amd.turbo(), Some(false));
}

#[test]
fn machine_without_files_has_no_properties() {
    let (_root, empty) = machine(&[("/proc/cmdline", "\n")]);
    assert_eq!(empty.cpu_model(), None);
    assert_eq!(empty.smt(), None);
    assert_eq!(empty.hypervisor(), None);
    assert_eq!(empty.command_line(), None);
    assert_eq!(empty.cgroup_limit("cpu.max"), None);
    assert_eq!(empty.cpu_quota(), None);
    assert!(empty.frequency_policies().is_empty());
    assert!(empty.mitigations().is_empty());
}
