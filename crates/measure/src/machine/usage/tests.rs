use std::fs;
use std::path::Path;

use super::*;

/// A machine of two cores: the Tester (thread 11 of this process) on core 0, the DUT (process 7) on core 1.
struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn set(&self, path: &str, text: &str) -> &Self {
        let path = self.0.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn machine(&self) -> Machine {
        Machine::at(Path::new(self.0.path()))
    }

    fn thread(&self, folder: &str, schedstat: &str, switches: u64, cores: &str) -> &Self {
        let status = format!(
            "Name:\tx\nCpus_allowed:\t2\nCpus_allowed_list:\t{cores}\nvoluntary_ctxt_switches:\t5\n\
             nonvoluntary_ctxt_switches:\t{switches}\n"
        );
        self.set(&format!("{folder}/schedstat"), schedstat);
        self.set(&format!("{folder}/status"), &status)
    }

    fn process(&self, pid: u32, name: &str, flags: u64, ticks: u64, core: usize) -> &Self {
        let before = "S 1 1 1 0 -1";
        let stat = format!(
            "{pid} ({name}) {before} {flags} 0 0 0 0 {ticks} 0 0 0 20 0 1 0 10 0 0 1 0 0 0 0 0 0 0 0 0 0 0 0 17 {core} 0 0"
        );
        self.set(&format!("/proc/{pid}/stat"), &stat)
    }

    fn stat(&self, core_0: &str, core_1: &str) -> &Self {
        let text =
            format!("cpu  1 1 1 1 1 1 1 1 0 0\ncpu0 {core_0} 0 0\ncpu1 {core_1} 0 0\nintr 1\n");
        self.set("/proc/stat", &text)
    }

    fn look(&self) -> UsageSnapshot {
        let roles = [
            (Role::Measurer, Who::Threads(vec![11])),
            (Role::Dut, Who::Tree(7)),
        ];
        UsageSnapshot::at(&self.machine(), &roles)
    }
}

/// Files before a trial of about 10 s.
fn before() -> Files {
    let files = Files::new();
    files
        .stat("1000 0 500 9000 0 10 20 3", "200 0 100 9000 0 10 20 5")
        .set(
            "/proc/pressure/cpu",
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=1000\nfull avg10=0 total=0\n",
        )
        .set("/proc/self/cgroup", "0::/user/mine\n")
        .set(
            "/sys/fs/cgroup/user/cpu.stat",
            "usage_usec 7\nnr_periods 4\nnr_throttled 1\nthrottled_usec 500\n",
        )
        .set("/proc/7/cgroup", "1:cpu:/dut\n0::/\n")
        .set(
            "/sys/fs/cgroup/cpu/dut/cpu.stat",
            "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n",
        )
        .thread("/proc/self/task/11", "10000000000 2000000 9", 4, "0")
        .thread("/proc/7/task/7", "3000000000 1000000 9", 40, "1")
        .thread("/proc/7/task/8", "1000000000 1000000 9", 2, "1")
        .process(2, "kthreadd", 0x0020_8040, 0, 1)
        .process(20, "ksoftirqd/1", 0x0420_8040, 100, 1)
        .process(7, "named (x) y", 0x40_0000, 400, 1)
        .process(99, "stress-ng", 0x40_0000, 50, 1)
        .process(100, "elsewhere", 0x40_0000, 50, 0);
    files
}

/// Use during the trial.
fn during() -> Usage {
    let files = before();
    let first = files.look();
    // On core 1: 500 ticks in tasks, 250 of them of the DUT and 40 of the kernel's own thread.
    files
        .stat("1990 0 510 9000 0 10 20 3", "500 0 300 9000 0 400 900 45")
        .set(
            "/proc/pressure/cpu",
            "some avg10=0.00 avg60=0.00 avg300=0.00 total=4000\n",
        )
        .set(
            "/sys/fs/cgroup/user/cpu.stat",
            "nr_periods 9\nnr_throttled 3\nthrottled_usec 800\n",
        )
        .set(
            "/sys/fs/cgroup/cpu/dut/cpu.stat",
            "nr_throttled 2\nthrottled_time 7000\n",
        )
        .set(
            "/sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq",
            "2400000\n",
        )
        .thread("/proc/self/task/11", "19990000000 2500000 9", 5, "0")
        .thread("/proc/7/task/7", "5000000000 2001000000 9", 140, "1")
        .thread("/proc/7/task/8", "1400000000 1000000 9", 3, "1")
        .thread("/proc/7/task/9", "100000000 3000000 9", 1, "1")
        .process(20, "ksoftirqd/1", 0x0420_8040, 140, 1)
        .process(7, "named (x) y", 0x40_0000, 650, 1)
        .process(99, "stress-ng", 0x40_0000, 260, 1)
        .process(100, "elsewhere", 0x40_0000, 999, 0);
    files.look().since(&first)
}

#[test]
fn use_between_two_looks_is_reported_for_each_role() {
    let usage = during();
    assert_eq!(usage.pressure_ns, Some(3_000_000));
    let measurer = RoleUsage {
        host: None,
        role: Role::Measurer,
        threads: 1,
        cores: Some("0".into()),
        cpu_ns: 9_990_000_000,
        run_delay_ns: 500_000,
        involuntary_switches: 1,
        steal_ns: Some(0),
        foreign_ns: Some(10_000_000),
        neighbour: Some(Neighbour {
            name: "elsewhere".into(),
            pid: 100,
            cpu_ns: 9_490_000_000,
        }),
        throttled_ns: Some(300_000),
        pressure_ns: None,
        frequency_khz: None,
    };
    let dut = RoleUsage {
        host: None,
        role: Role::Dut,
        threads: 3,
        cores: Some("1".into()),
        cpu_ns: 2_500_000_000,
        run_delay_ns: 2_003_000_000,
        involuntary_switches: 102,
        steal_ns: Some(400_000_000),
        foreign_ns: Some(2_100_000_000),
        neighbour: Some(Neighbour {
            name: "stress-ng".into(),
            pid: 99,
            cpu_ns: 2_100_000_000,
        }),
        throttled_ns: Some(7_000),
        pressure_ns: None,
        frequency_khz: Some(2_400_000),
    };
    assert_eq!(usage.roles, [measurer, dut]);
}

#[test]
fn ended_threads_and_children_count_for_their_role() {
    let files = before();
    let first = files.look();
    // Of 300 ticks in tasks on core 1, the DUT's running threads have 60, its ended threads 180 and a child 50.
    files
        .stat("1000 0 500 9000 0 10 20 3", "500 0 100 9000 0 10 20 5")
        .thread("/proc/7/task/7", "3600000000 1000000 9", 40, "1");
    let stat = fs::read_to_string(files.0.path().join("proc/7/stat")).unwrap();
    files.set(
        "/proc/7/stat",
        &stat.replace(" 400 0 0 0 20", " 640 0 50 0 20"),
    );
    let usage = files.look().since(&first);
    let dut = usage.of(Role::Dut).unwrap();
    assert_eq!(dut.cpu_ns, 600_000_000);
    assert_eq!(dut.foreign_ns, Some(100_000_000));
}

#[test]
fn processes_on_cores_of_a_role_count_although_samples_miss_them() {
    // The kernel found only half of the 400 ticks of the DUT, so that nothing remains of the core's time for others.
    let during = |allowed: &str| {
        let files = before();
        let first = files.look();
        let status = format!("Name:\tsh\nCpus_allowed_list:\t{allowed}\n");
        files
            .stat("1000 0 500 9000 0 10 20 3", "500 0 100 9000 0 10 20 5")
            .thread("/proc/7/task/7", "7000000000 1000000 9", 40, "1")
            .process(101, "sh", 0x40_0000, 100, 1)
            .set("/proc/101/status", &status);
        let usage = files.look().since(&first);
        usage.of(Role::Dut).unwrap().foreign_ns
    };
    assert_eq!(during("1"), Some(1_000_000_000));
    assert_eq!(during("0-1"), Some(0));
    assert_eq!(during("0"), Some(0));
}

#[test]
fn shared_cores_have_no_foreign_time() {
    let files = before();
    files.thread("/proc/7/task/7", "1 1 1", 0, "0-1");
    let usage = files.look().since(&files.look());
    let dut = usage.of(Role::Dut).unwrap();
    assert_eq!(
        (&dut.cores, dut.steal_ns, dut.foreign_ns),
        (&None, None, None)
    );
    assert_eq!(dut.threads, 2);
    assert_eq!(usage.of(Role::Authority), None);
}

#[test]
fn foreign_time_is_unknown_without_visible_kernel_threads() {
    let files = before();
    for pid in [2, 20] {
        fs::remove_file(files.machine().path(&format!("/proc/{pid}/stat"))).unwrap();
    }
    let usage = files.look().since(&files.look());
    let dut = usage.of(Role::Dut).unwrap();
    assert_eq!((dut.steal_ns, dut.foreign_ns), (Some(0), None));
}

#[test]
fn files_of_other_kernels_are_read_as_far_as_possible() {
    assert_eq!(pressure_ns(""), None);
    assert_eq!(
        pressure_ns("some avg10=0.00 total=21843126\n"),
        Some(21_843_126_000)
    );
    assert_eq!(throttled_ns("usage_usec 5\nuser_usec 4\n"), None);
    assert_eq!(
        throttled_ns("nr_throttled 1\nthrottled_time 12\n"),
        Some(12)
    );
    assert_eq!(thread("", "Name:\tx\n"), None);
    assert_eq!(
        thread("0 0 0", "").map(|t| t.cores),
        Some(CpuSet::unrestricted())
    );
    assert!(core_times("cpu  1 2 3\ncpu0 1 2\nctxt 5\n").is_empty());
    assert_eq!(one_process("1 (a) S 1"), None);
}

#[test]
fn this_thread_is_measured_on_this_machine() {
    let tid = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
    let roles = [(Role::Measurer, Who::Threads(vec![tid]))];
    let here = Machine::here();
    let first = UsageSnapshot::at(&here, &roles);
    let usage = UsageSnapshot::at(&here, &roles).since(&first);
    let row = usage.of(Role::Measurer).unwrap();
    assert_eq!(row.threads, 1);
    // Reading the files takes CPU time.
    assert!(row.cpu_ns > 0, "{row:?}");
}
