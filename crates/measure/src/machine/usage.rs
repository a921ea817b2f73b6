//! Use of the processors during a trial: Linux counters of the threads of each role, of their cores and of all other
//! processes, read before and after the trial.
//!
//! Nothing is read while the trial runs. Reading takes about 20 us for each process of the machine.

use std::collections::{BTreeMap, HashMap};

use dns64_transport::clock::{Clock, MonotonicClock, Nanos};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Role;
use super::cpuset::CpuSet;
use super::process;
use super::{Machine, field, number};

/// Use of the machine during a trial.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Usage {
    /// Time between the two readings: the trial and some milliseconds.
    pub span_ns: Nanos,
    /// Time in which at least one process of the machine waited for a processor (`/proc/pressure/cpu`, "some"); `None`
    /// without PSI.
    pub pressure_ns: Option<Nanos>,
    /// One entry for each role whose processes are known.
    pub roles: Vec<RoleUsage>,
}

impl Usage {
    /// Adds the roles of another host of the measurement, with its name.
    pub fn join(&mut self, other: Self, host: &str) {
        self.span_ns = self.span_ns.max(other.span_ns);
        self.pressure_ns = self.pressure_ns.max(other.pressure_ns);
        self.roles
            .extend(other.roles.into_iter().map(|row| RoleUsage {
                host: Some(host.to_owned()),
                ..row
            }));
    }

    /// CPU time of a role in per cent of one core; `None` if the role has no entry.
    pub fn cpu_pct(&self, role: Role) -> Option<f64> {
        let used = self.of(role).filter(|_| self.span_ns > 0)?;
        Some(used.cpu_ns as f64 / self.span_ns as f64 * 100.0)
    }

    /// Returns the entry of a role; of several Measurers, the one that waited longest.
    pub fn of(&self, role: Role) -> Option<&RoleUsage> {
        let rows = self.roles.iter().filter(|row| row.role == role);
        rows.rev().max_by_key(|row| row.run_delay_ns)
    }
}

/// CPU use of a role, and the disturbances of its cores. Times of several threads are added, and times of several cores
/// as well.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct RoleUsage {
    /// The role.
    pub role: Role,
    /// Its host by its name in the plan; `None` if all roles are on one machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Number of threads at the end.
    pub threads: u64,
    /// Its cores, such as "1" or "1-3"; `None` if unrestricted.
    pub cores: Option<String>,
    /// CPU time of its threads.
    pub cpu_ns: Nanos,
    /// Time in which its threads were runnable and waited for a core (`/proc/PID/task/TID/schedstat`). This includes
    /// waiting for threads of the same role.
    pub run_delay_ns: Nanos,
    /// Number of involuntary context switches of its threads.
    pub involuntary_switches: u64,
    /// Time that the hypervisor took from its cores (`/proc/stat`, in units of 10 ms).
    pub steal_ns: Option<Nanos>,
    /// CPU time of others on its cores, at least: the time in `/proc/stat`, in units of 10 ms, without the threads of all
    /// roles and of the kernel, or that of the processes that may only run there, if it is more. `None` without exclusive cores, or if not all processes are visible.
    pub foreign_ns: Option<Nanos>,
    /// The process among those others with the most CPU time, if it still runs.
    pub neighbour: Option<Neighbour>,
    /// Time for which a CPU quota throttled its cgroup or an ancestor (`cpu.stat`).
    pub throttled_ns: Option<Nanos>,
    /// Like `pressure_ns` of the machine, but only for its cgroup.
    pub pressure_ns: Option<Nanos>,
    /// The lower of the frequencies of its cores before and after the trial; `None` if cpufreq does not report them.
    pub frequency_khz: Option<u64>,
}

/// A process that belongs to no role.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Neighbour {
    /// Name of its program, truncated to 15 characters by the kernel.
    pub name: String,
    /// Process ID.
    pub pid: u32,
    /// Its CPU time during the trial, on any core.
    pub cpu_ns: Nanos,
}

/// The threads of a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// These threads of this process.
    Threads(Vec<u32>),
    /// A process and all its descendants.
    Tree(u32),
}

/// Counters at one moment.
#[derive(Debug)]
pub struct UsageSnapshot {
    at_ns: Nanos,
    cores: BTreeMap<usize, CoreTimes>,
    pressure_ns: Option<Nanos>,
    processes: HashMap<u32, Process>,
    roles: Vec<RoleSnapshot>,
}

/// CPU time of a core since boot (`/proc/stat`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CoreTimes {
    /// Time in tasks: user, nice and system. Time in interrupts is not included.
    tasks_ns: Nanos,
    steal_ns: Nanos,
}

/// Counters of a thread since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ThreadTimes {
    cpu_ns: Nanos,
    run_delay_ns: Nanos,
    involuntary_switches: u64,
    cores: CpuSet,
}

/// Counters of a process since its start (`/proc/PID/stat`).
#[derive(Clone, Debug, PartialEq, Eq)]
struct Process {
    name: String,
    is_kernel: bool,
    /// CPU time, threads that have ended included.
    cpu_ns: Nanos,
    /// CPU time of its children that have ended.
    children_ns: Nanos,
    /// The core on which its first thread ran last.
    core: usize,
    /// The cores to which its first thread is restricted; empty for the kernel's own.
    cores: CpuSet,
}

#[derive(Debug)]
struct RoleSnapshot {
    role: Role,
    pids: Vec<u32>,
    threads: HashMap<u32, ThreadTimes>,
    throttled_ns: Option<Nanos>,
    pressure_ns: Option<Nanos>,
    frequency_khz: Option<u64>,
}

/// Unit of the times in `/proc/stat` and `/proc/PID/stat`: `USER_HZ` is 100 on every architecture except Alpha and
/// Itanium (proc(5)).
pub const TICK_NS: Nanos = 10_000_000;

/// `PF_KTHREAD` of the kernel's `include/linux/sched.h`.
const KERNEL_THREAD: u64 = 0x0020_0000;

/// Limit of the number of processes: reading more would take over a tenth of a second.
const PROCESSES_MAX: usize = 4096;

impl UsageSnapshot {
    /// Reads the counters of the machine and of these roles.
    pub fn at(machine: &Machine, roles: &[(Role, Who)]) -> Self {
        let text = |path: &str| machine.read(path).unwrap_or_default();
        let looks = roles
            .iter()
            .map(|(role, who)| role_look(machine, *role, who));
        Self {
            at_ns: MonotonicClock.now(),
            cores: core_times(&text("/proc/stat")),
            pressure_ns: pressure_ns(&text("/proc/pressure/cpu")),
            roles: looks.collect(),
            processes: processes(machine),
        }
    }

    /// Returns the use since an earlier look at the same roles.
    pub fn since(&self, before: &Self) -> Usage {
        let difference = Interval {
            before,
            after: self,
            span_ns: self.at_ns.saturating_sub(before.at_ns),
        };
        let roles = self.roles.iter().map(|role| difference.role(role));
        Usage {
            span_ns: difference.span_ns,
            pressure_ns: less(self.pressure_ns, before.pressure_ns),
            roles: roles.collect(),
        }
    }

    /// Returns the use by all other processes since an earlier look.
    pub fn others_since(&self, before: &Self) -> Others {
        let difference = Interval {
            before,
            after: self,
            span_ns: self.at_ns.saturating_sub(before.at_ns),
        };
        let all: CpuSet = self.cores.keys().copied().collect();
        let tasks_ns = |core: &usize| difference.core(*core, |times| times.tasks_ns);
        let all_ns: Nanos = self.cores.keys().map(tasks_ns).sum();
        let own = std::process::id();
        let own_ns = self.processes.get(&own);
        let own_ns = own_ns.map_or(0, |process| difference.ran_ns(own, process));
        Others {
            cpu_ns: all_ns.saturating_sub(own_ns),
            busiest: difference.neighbour(&all),
        }
    }
}

/// Use by all processes except this one between two looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Others {
    /// CPU time of their tasks, kernel tasks included, in units of 10 ms.
    pub cpu_ns: Nanos,
    /// The process with most of it.
    pub busiest: Option<Neighbour>,
}

/// The difference between two looks.
struct Interval<'a> {
    before: &'a UsageSnapshot,
    after: &'a UsageSnapshot,
    span_ns: Nanos,
}

impl Interval<'_> {
    fn role(&self, role: &RoleSnapshot) -> RoleUsage {
        let before = self.before.roles.iter().find(|old| old.role == role.role);
        let empty = HashMap::new();
        let old = before.map_or(&empty, |before| &before.threads);
        let sum = |of: fn(&ThreadTimes) -> u64| -> u64 {
            let each = role.threads.iter();
            each.map(|(tid, now)| of(now).saturating_sub(old.get(tid).map_or(0, of)))
                .sum()
        };
        let cores = own_cores(role, self.after.cores.len());
        let foreign_ns = cores.as_ref().and_then(|cores| self.foreign_ns(cores));
        let over_cores = |cores: &CpuSet, of: fn(&CoreTimes) -> Nanos| -> Nanos {
            cores.cpus().iter().map(|core| self.core(*core, of)).sum()
        };
        let frequencies = [Some(role), before].map(|look| look?.frequency_khz);
        RoleUsage {
            host: None,
            role: role.role,
            threads: role.threads.len() as u64,
            cpu_ns: sum(|t| t.cpu_ns),
            run_delay_ns: sum(|t| t.run_delay_ns),
            involuntary_switches: sum(|t| t.involuntary_switches),
            steal_ns: cores
                .as_ref()
                .map(|cores| over_cores(cores, |c| c.steal_ns)),
            neighbour: match (foreign_ns, &cores) {
                (Some(1..), Some(cores)) => self.neighbour(cores),
                _ => None,
            },
            foreign_ns,
            cores: cores.map(|cores| cores.to_string()),
            // Without a limit before, nothing had been counted.
            throttled_ns: role.throttled_ns.map(|now| {
                let old = before.and_then(|before| before.throttled_ns);
                now.saturating_sub(old.unwrap_or(0))
            }),
            pressure_ns: less(role.pressure_ns, before.and_then(|b| b.pressure_ns)),
            frequency_khz: frequencies.into_iter().flatten().min(),
        }
    }

    fn core(&self, core: usize, of: fn(&CoreTimes) -> Nanos) -> Nanos {
        let at = |look: &UsageSnapshot| look.cores.get(&core).map_or(0, of);
        at(self.after).saturating_sub(at(self.before))
    }

    /// CPU time on these cores that neither a role nor the kernel used: a lower bound. It is what remains of the cores'
    /// time, or the time of the processes that are kept to these cores if that is more. The kernel samples the former 100 to 1000
    /// times a second (`CONFIG_HZ`), and a role whose work follows the queries can be missed by each sample; a
    /// thread that may run on one of the cores counts there with all its time.
    fn foreign_ns(&self, cores: &CpuSet) -> Option<Nanos> {
        let mut seen = HashMap::new();
        let mut ended_ns = 0;
        for role in &self.after.roles {
            let old = self.before.roles.iter().find(|old| old.role == role.role);
            let mut alive_ns = 0;
            for (tid, now) in &role.threads {
                if now
                    .cores
                    .cpus()
                    .iter()
                    .any(|core| cores.cpus().contains(core))
                {
                    let old = old.and_then(|old| old.threads.get(tid));
                    let ran_ns = now.cpu_ns.saturating_sub(old.map_or(0, |t| t.cpu_ns));
                    // A thread may have two roles.
                    seen.insert(*tid, ran_ns);
                    alive_ns += ran_ns;
                }
            }
            if alive_ns > 0 {
                ended_ns += self.of_processes_ns(role).saturating_sub(alive_ns);
            }
        }
        let kernel = self.after.processes.values().any(|p| p.is_kernel);
        let on_them = |process: &Process| cores.cpus().contains(&process.core);
        let of_kernel = self.after.processes.iter();
        let of_kernel = of_kernel.filter(|(_, p)| p.is_kernel && on_them(p));
        let of_kernel: Nanos = of_kernel.map(|(pid, p)| self.ran_ns(*pid, p)).sum();
        let tasks = cores
            .cpus()
            .iter()
            .map(|core| self.core(*core, |c| c.tasks_ns));
        let own = seen.values().sum::<Nanos>() + ended_ns;
        let rest_ns = tasks.sum::<Nanos>().saturating_sub(own + of_kernel);
        let is_kept = |kept: &CpuSet| {
            let mut kept = kept.cpus().iter();
            kept.len() > 0 && kept.all(|core| cores.cpus().contains(core))
        };
        let kept = self.others().filter(|(_, p)| is_kept(&p.cores));
        let kept_ns: Nanos = kept.map(|(pid, p)| self.ran_ns(pid, p)).sum();
        kernel.then(|| rest_ns.max(kept_ns))
    }

    /// CPU time of the processes of a role, in units of 10 ms each, with threads and children that have ended.
    fn of_processes_ns(&self, role: &RoleSnapshot) -> Nanos {
        let all = role.pids.iter().filter_map(|pid| {
            let now = self.after.processes.get(pid)?;
            let old = self
                .before
                .processes
                .get(pid)
                .filter(|old| old.name == now.name);
            let before_ns = old.map_or(0, |old| old.cpu_ns + old.children_ns);
            Some((now.cpu_ns + now.children_ns).saturating_sub(before_ns))
        });
        all.sum()
    }

    fn ran_ns(&self, pid: u32, now: &Process) -> Nanos {
        let old = self
            .before
            .processes
            .get(&pid)
            .filter(|old| old.name == now.name);
        now.cpu_ns.saturating_sub(old.map_or(0, |old| old.cpu_ns))
    }

    /// Returns the processes that are neither this one, nor of a role, nor the kernel's.
    fn others(&self) -> impl Iterator<Item = (u32, &Process)> {
        let roles = self.after.roles.iter().flat_map(|role| &role.pids);
        let roles: Vec<u32> = roles.copied().chain([std::process::id()]).collect();
        let all = self.after.processes.iter().map(|(pid, p)| (*pid, p));
        all.filter(move |(pid, p)| !p.is_kernel && !roles.contains(pid))
    }

    /// Returns the process with the most CPU time, preferably one that was seen on these cores.
    fn neighbour(&self, cores: &CpuSet) -> Option<Neighbour> {
        let was_there = |pid: u32, now: &Process| {
            let old = self.before.processes.get(&pid).map(|old| old.core);
            [Some(now.core), old]
                .into_iter()
                .flatten()
                .any(|core| cores.cpus().contains(&core))
        };
        let ran = self.others();
        let ran = ran.map(|(pid, p)| (was_there(pid, p), self.ran_ns(pid, p), pid, p));
        let most = ran.filter(|(_, ran_ns, ..)| *ran_ns > 0);
        let (_, cpu_ns, pid, process) = most.max_by_key(|(there, ran_ns, ..)| (*there, *ran_ns))?;
        Some(Neighbour {
            name: process.name.clone(),
            pid,
            cpu_ns,
        })
    }
}

fn less(after: Option<u64>, before: Option<u64>) -> Option<u64> {
    Some(after?.saturating_sub(before?))
}

/// Returns the cores to which the threads of a role are pinned; `None` if one of them may use the whole machine.
fn own_cores(role: &RoleSnapshot, online: usize) -> Option<CpuSet> {
    let sets = || role.threads.values().map(|thread| &thread.cores);
    let kept = |set: &CpuSet| !set.is_unrestricted() && set.cpus().len() < online;
    (!role.threads.is_empty() && sets().all(kept))
        .then(|| sets().flat_map(|set| set.cpus().iter().copied()).collect())
}

fn role_look(machine: &Machine, role: Role, who: &Who) -> RoleSnapshot {
    let (pids, tasks) = match who {
        Who::Threads(tids) => {
            let of = |tid: &u32| (*tid, format!("/proc/self/task/{tid}"));
            (Vec::new(), tids.iter().map(of).collect())
        }
        Who::Tree(root) => {
            let pids = process::tree_on(machine, *root);
            let tasks = pids.iter().flat_map(|pid| tasks(machine, *pid)).collect();
            (pids, tasks)
        }
    };
    let tasks: Vec<(u32, String)> = tasks;
    let threads: HashMap<u32, ThreadTimes> = tasks
        .into_iter()
        .filter_map(|(tid, folder)| Some((tid, thread_times(machine, &folder)?)))
        .collect();
    let cgroup = match who {
        Who::Threads(_) => "/proc/self/cgroup".to_owned(),
        Who::Tree(root) => format!("/proc/{root}/cgroup"),
    };
    let folders = machine.cpu_groups(&machine.read(&cgroup).unwrap_or_default());
    let file = |folder: &String, name: &str| machine.read(&format!("{folder}/{name}"));
    let throttled = folders
        .iter()
        .filter_map(|f| throttled_ns(&file(f, "cpu.stat")?));
    let mut look = RoleSnapshot {
        role,
        pids,
        threads,
        throttled_ns: throttled.max(),
        pressure_ns: folders
            .iter()
            .find_map(|f| pressure_ns(&file(f, "cpu.pressure")?)),
        frequency_khz: None,
    };
    let cores = look.threads.values().flat_map(|t| t.cores.cpus()).copied();
    let cores: CpuSet = cores.collect();
    let folder =
        |core: &usize| format!("/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq");
    let khz = |core| machine.read(&folder(core))?.parse().ok();
    look.frequency_khz = cores.cpus().iter().filter_map(khz).min();
    look
}

/// CPU time so far of the threads of a process and of all its descendants. That of a thread that is running may be
/// missing since the last tick.
pub fn cpu_ns(root: u32) -> Nanos {
    let machine = Machine::here();
    let pids = process::tree_on(&machine, root).into_iter();
    let tasks = pids.flat_map(|pid| tasks(&machine, pid));
    let times = tasks.filter_map(|(_, folder)| thread_times(&machine, &folder));
    times.map(|it| it.cpu_ns).sum()
}

/// Threads of a process and their directories in `/proc`.
fn tasks(machine: &Machine, pid: u32) -> Vec<(u32, String)> {
    let folder = format!("/proc/{pid}/task");
    let names = machine.names(&folder).into_iter();
    names
        .filter_map(|tid| Some((tid.parse().ok()?, format!("{folder}/{tid}"))))
        .collect()
}

fn thread_times(machine: &Machine, folder: &str) -> Option<ThreadTimes> {
    let status = machine.read(&format!("{folder}/status"))?;
    let schedstat = machine.read(&format!("{folder}/schedstat"))?;
    thread(&schedstat, &status)
}

/// `schedstat` contains CPU time, run delay and time slices (Documentation/scheduler/sched-stats.rst).
fn thread(schedstat: &str, status: &str) -> Option<ThreadTimes> {
    let mut numbers = schedstat.split_whitespace().map(|n| n.parse().ok());
    let (cpu_ns, run_delay_ns) = (numbers.next()??, numbers.next()??);
    Some(ThreadTimes {
        cpu_ns,
        run_delay_ns,
        involuntary_switches: number(status, "nonvoluntary_ctxt_switches").unwrap_or(0),
        cores: allowed(status),
    })
}

/// The cores on which a thread may run, from its `status`.
fn allowed(status: &str) -> CpuSet {
    let list = field(status, "Cpus_allowed_list").unwrap_or_default();
    list.parse().unwrap_or_default()
}

/// Lines "cpuN user nice system idle iowait irq softirq steal ..." (proc(5)).
fn core_times(text: &str) -> BTreeMap<usize, CoreTimes> {
    let of_line = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split_whitespace();
        let core = words.next()?.parse().ok()?;
        let ticks: Vec<Nanos> = words.map_while(|word| word.parse().ok()).collect();
        let times = CoreTimes {
            tasks_ns: ticks.get(..3)?.iter().sum::<Nanos>() * TICK_NS,
            steal_ns: ticks.get(7)? * TICK_NS,
        };
        // The first line, "cpu  ...", contains the sums of all cores.
        line.as_bytes()[3].is_ascii_digit().then_some((core, times))
    };
    text.lines().filter_map(of_line).collect()
}

/// "some avg10=0.00 avg60=0.00 avg300=0.00 total=12345", in microseconds (Documentation/accounting/psi.rst).
pub fn pressure_ns(text: &str) -> Option<Nanos> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let (_, total) = some.split_once("total=")?;
    Some(total.trim().parse::<Nanos>().ok()? * 1000)
}

/// `cpu.stat` of a cgroup: in microseconds in version 2, in nanoseconds in version 1.
fn throttled_ns(text: &str) -> Option<Nanos> {
    text.lines().find_map(|line| match line.split_once(' ')? {
        ("throttled_usec", value) => Some(value.trim().parse::<Nanos>().ok()? * 1000),
        ("throttled_time", value) => value.trim().parse().ok(),
        _ => None,
    })
}

fn processes(machine: &Machine) -> HashMap<u32, Process> {
    let pids = machine.names("/proc").into_iter();
    let pids = pids.filter_map(|name| name.parse().ok());
    pids.take(PROCESSES_MAX)
        .filter_map(|pid: u32| {
            let file = |name: &str| machine.read(&format!("/proc/{pid}/{name}"));
            let mut process = one_process(&file("stat")?)?;
            if !process.is_kernel {
                process.cores = allowed(&file("status").unwrap_or_default());
            }
            Some((pid, process))
        })
        .collect()
}

/// "pid (name) state ppid ..."; a name may contain spaces and parentheses (proc_pid_stat(5)).
fn one_process(stat: &str) -> Option<Process> {
    let (head, rest) = stat.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // Fields are numbered from 1; the state is number 3.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(Process {
        name: name.to_owned(),
        is_kernel: field(9)? & KERNEL_THREAD != 0,
        cpu_ns: (field(14)? + field(15)?) * TICK_NS,
        children_ns: (field(16)? + field(17)?) * TICK_NS,
        core: usize::try_from(field(39)?).ok()?,
        cores: CpuSet::default(),
    })
}

#[cfg(test)]
mod tests;
