use super::*;
use crate::namespace::Share;

/// A server that is a shell script.
pub(crate) fn spec(script: &str, port: u16) -> ServerSpec {
    let text = format!(
        "name = 'script'\nrole = 'dut'\nprograms = ['sh']\ncaches = false\n\
         command = ['{{program}}', '{{workdir}}/script']\n\
         version = {{ command = ['echo', 'noise script 1.2'], starts_with = 'script ' }}\n\
         [files]\nscript = '''\n{script}\n'''\n"
    );
    ServerSpec {
        profile: Profile::parse("script", &text).unwrap(),
        program: None,
        network: Network::Own,
        settings: Settings {
            listen: "::1".parse().unwrap(),
            listen_v4: "127.0.0.1".parse().unwrap(),
            port,
            upstreams: vec!["127.0.0.1:9".parse().unwrap()],
            pref64: super::super::topology::PREF64,
            suffix: "dns64perf.test".into(),
            aaaa_share: Share::NONE,
            cpus: crate::machine::cpuset::CpuSet::unrestricted(),
            chosen: std::collections::BTreeMap::new(),
        },
        zone: None,
    }
}

pub(crate) fn free_port() -> u16 {
    let socket = UdpSocket::bind("[::1]:0").unwrap();
    socket.local_addr().unwrap().port()
}

#[test]
fn server_runs_is_measured_and_is_removed() {
    let spec = spec("echo hello; sleep 100 & wait", free_port());
    let mut server = Server::launch(spec).unwrap();
    let workdir = server.workdir.path.clone();
    assert!(process::wait_until(10 * SECOND, || server.log_tail() == "hello"));
    assert!(process::wait_until(10 * SECOND, || process::tree(
        server.pid()
    )
    .len()
        == 2));
    assert!(server.is_alive() && server.resources().threads == 2);
    assert_eq!(server.version().unwrap(), "script 1.2");
    let sleeper = process::tree(server.pid())[1];
    server.stop();
    assert!(!server.is_alive());
    let gone = || !Path::new(&format!("/proc/{sleeper}/exe")).exists();
    assert!(process::wait_until(10 * SECOND, gone));
    drop(server);
    assert!(!workdir.exists());
}

#[test]
fn address_in_use_is_detected() {
    let stranger = UdpSocket::bind("[::1]:0").unwrap();
    let port = stranger.local_addr().unwrap().port();
    let error = Server::launch(spec("sleep 100", port)).unwrap_err();
    let expected = format!("cannot listen on [::1]:{port} on this host");
    assert!(error.to_string().starts_with(&expected), "{error}");
}

#[test]
fn restart_begins_with_an_empty_directory() {
    let script = "ls; touch cache; sleep 100";
    let mut server = Server::launch(spec(script, free_port())).unwrap();
    let cache = server.workdir.path.join("cache");
    assert!(process::wait_until(10 * SECOND, || cache.exists()));
    let first = server.pid();
    server.relaunch().unwrap();
    assert_ne!(server.pid(), first);
    assert!(process::wait_until(10 * SECOND, || cache.exists()));
    assert!(
        !server.log_tail().contains("cache"),
        "{}",
        server.log_tail()
    );
}

#[test]
fn server_is_restricted_to_its_cpus_by_either_method() {
    let mut spec = spec("sleep 100 & wait", free_port());
    let core = dns64_transport::cpu::available()[0];
    spec.settings.cpus = [core].into_iter().collect();
    let mut server = Server::launch(spec).unwrap();
    assert!(process::wait_until(10 * SECOND, || process::tree(
        server.pid()
    )
    .len()
        == 2));
    for pid in process::tree(server.pid()) {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let allowed = format!("Cpus_allowed_list:\t{core}\n");
        assert!(status.contains(&allowed), "{status}");
    }
    let note = server.cores().note().unwrap();
    let cgroup = std::fs::read_to_string(format!("/proc/{}/cgroup", server.pid())).unwrap();
    let by_cgroup = cgroup.contains("/dns64bench.");
    assert_eq!(note == "by cgroup cpuset", by_cgroup, "{note}");
    server.relaunch().unwrap();
    let again = || std::fs::read_to_string(format!("/proc/{}/cgroup", server.pid())).unwrap();
    assert!(process::wait_until(10 * SECOND, || again() == cgroup));
}

#[test]
fn rendered_files_do_not_have_the_directory_of_this_start() {
    let spec = spec("cd {workdir}; sleep 100", free_port());
    let server = Server::launch(spec).unwrap();
    let expected = ("script".to_owned(), "cd {workdir}; sleep 100\n".to_owned());
    assert_eq!(server.rendered().unwrap().files, [expected]);
    assert!(server.program().ends_with("sh"), "{:?}", server.program());
}

#[test]
fn directories_of_running_servers_are_not_swept() {
    let living = workdir("living").unwrap();
    let base = workdir_base();
    let dead = base.join("dead.1.1");
    std::fs::create_dir_all(dead.join("deep")).unwrap();
    owned::sweep(&base, "");
    assert!(living.path.exists());
    assert!(!dead.exists());
}
