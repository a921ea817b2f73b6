use super::*;

fn reached_by_ssh() -> Reach {
    Reach::Ssh("root@gen1".into())
}

/// Returns the error for this exit code and these texts.
fn trouble(reach: &Reach, greeted: bool, code: i32, stderr: &str) -> Trouble {
    let status = Some(ExitStatus::from_raw(code << 8));
    let remains = Remains {
        reach,
        greeted,
        status,
        stderr,
    };
    remains.trouble()
}

fn by_ssh(code: i32, stderr: &str) -> Trouble {
    trouble(&reached_by_ssh(), false, code, stderr)
}

fn told(trouble: Trouble) -> String {
    let error = LinkError {
        host: "gen1".into(),
        reach: reached_by_ssh(),
        trouble,
    };
    error.to_string()
}

/// The texts are those of OpenSSH 9.2p1, bash 5.2, dash 0.5.12 and sudo 1.9.13.
#[test]
fn messages_of_ssh_are_classified() {
    let said = "ssh: Could not resolve hostname gen1: Name or service not known\r\n";
    assert!(matches!(by_ssh(255, said), Trouble::UnknownName(text) if text == said.trim_end()));
    for said in [
        "ssh: connect to host gen1 port 22: Connection refused\r\n",
        "ssh: connect to host 10.0.0.9 port 22: Connection timed out\r\n",
        "ssh: connect to host 10.0.0.9 port 22: No route to host\r\n",
        "Connection timed out during banner exchange\r\nConnection to 10.0.0.9 port 22 timed out\r\n",
    ] {
        let found = by_ssh(255, said);
        assert!(
            matches!(found, Trouble::Unreachable(_)),
            "{said}: {found:?}"
        );
    }
    let said = "No ED25519 host key is known for gen1 and you have requested strict checking.\r\n\
                Host key verification failed.\r\n";
    assert_eq!(by_ssh(255, said), Trouble::HostKeyUnknown);
    for said in [
        "root@gen1: Permission denied (publickey,password).\r\n",
        "Received disconnect from 10.0.0.9 port 22:2: Too many authentication failures\r\n\
         Disconnected from 10.0.0.9 port 22\r\n",
    ] {
        let found = by_ssh(255, said);
        assert!(
            matches!(found, Trouble::PermissionDenied(_)),
            "{said}: {found:?}"
        );
    }
    let said = "kex_exchange_identification: Connection closed by remote host\r\n\
                Connection closed by 10.0.0.9 port 22\r\n";
    let shown = said.replace('\r', "");
    assert_eq!(by_ssh(255, said), Trouble::Ssh(shown.trim_end().to_owned()));
}

#[test]
fn changed_host_key_is_not_an_unknown_one() {
    let said = "\
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\r
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\r
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\r
IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!\r
Someone could be eavesdropping on you right now (man-in-the-middle attack)!\r
It is also possible that a host key has just been changed.\r
The fingerprint for the ED25519 key sent by the remote host is\n\
SHA256:ClRVDvQwXnhZnzC7VZQYfDmLFqmFQnlGF0oVEnPg3Xw.\r
Please contact your system administrator.\r
Add correct host key in /root/.ssh/known_hosts to get rid of this message.\r
Offending ED25519 key in /root/.ssh/known_hosts:1\r
Host key for gen1 has changed and you have requested strict checking.\r
Host key verification failed.\r
";
    assert_eq!(by_ssh(255, said), Trouble::HostKeyChanged);
}

#[test]
fn failed_starts_by_a_shell_are_classified() {
    for said in [
        "bash: line 1: dns64bench: command not found\n",
        "sh: 1: dns64bench: not found\n",
    ] {
        assert_eq!(by_ssh(127, said), Trouble::NoProgram(said.trim().into()));
    }
    let said = "sudo: dns64bench: command not found\n";
    assert_eq!(by_ssh(1, said), Trouble::NoProgram(said.trim().into()));
    let said =
        "bash: line 1: /usr/local/bin/dns64bench: cannot execute binary file: Exec format error\n";
    assert_eq!(
        by_ssh(126, said),
        Trouble::NotExecutable(said.trim().into())
    );
    let said = "bash: line 1: /usr/local/bin/dns64bench: Permission denied\n";
    assert_eq!(
        by_ssh(126, said),
        Trouble::NotExecutable(said.trim().into())
    );
    for said in [
        "sudo: a password is required\n",
        "sudo: sorry, you must have a tty to run sudo\n",
    ] {
        assert_eq!(by_ssh(1, said), Trouble::Sudo(said.trim().into()));
    }
}

#[test]
fn missing_namespace_is_recognised() {
    let said = "Cannot open network namespace \"gen1\": No such file or directory\n";
    let netns = Reach::Netns("gen1".into());
    assert_eq!(trouble(&netns, false, 255, said), Trouble::NoNamespace);
}

#[test]
fn end_of_an_agent_and_lost_connection_are_distinguished() {
    // Messages of programs that the agent runs are not taken for messages of ssh.
    let said = "server: Permission denied (bind)\ndns64bench: the agent was killed\n";
    let died = trouble(&reached_by_ssh(), true, 4, said);
    assert_eq!(
        died,
        Trouble::Died {
            how: "exit status: 4".into(),
            said: said.trim().into()
        }
    );
    let lost = "Timeout, server gen1 not responding.\r\n";
    assert_eq!(
        trouble(&reached_by_ssh(), true, 255, lost),
        Trouble::Lost("Timeout, server gen1 not responding.".into())
    );
    let remains = Remains {
        reach: &Reach::Local,
        greeted: true,
        status: Some(ExitStatus::from_raw(9)),
        stderr: "",
    };
    let Trouble::Died { how, .. } = remains.trouble() else {
        panic!("not dead");
    };
    assert_eq!(how, "killed by signal 9");
    let reach = reached_by_ssh();
    let remains = Remains {
        reach: &reach,
        ..remains
    };
    let by_ssh = Trouble::Lost("ssh was killed by signal 9".into());
    assert_eq!(remains.trouble(), by_ssh);
}

#[test]
fn every_error_names_the_host_and_a_remedy() {
    for (trouble, remedy) in [
        (Trouble::Target, "must not"),
        (Trouble::Start("ssh: not found".into()), "openssh-client"),
        (Trouble::UnknownName("x".into()), "~/.ssh/config"),
        (Trouble::Unreachable("x".into()), "sshd"),
        (Trouble::HostKeyUnknown, "ssh root@gen1"),
        (Trouble::HostKeyChanged, "ssh-keygen -R"),
        (
            Trouble::PermissionDenied("x".into()),
            "ssh-copy-id root@gen1",
        ),
        (Trouble::NoNamespace, "ip netns add"),
        (Trouble::NoProgram("x".into()), "--push-binary"),
        (Trouble::NotExecutable("x".into()), "--push-binary"),
        (Trouble::Sudo("x".into()), "NOPASSWD"),
        (
            Trouble::Refused(AgentRefusal::Version {
                version: 7,
                tester: "dns64bench 9".into(),
            }),
            "root@gen1:/usr/local/bin/dns64bench",
        ),
        (
            Trouble::Refused(AgentRefusal::InUse { by: "bob".into() }),
            "in use by bob",
        ),
        (
            Trouble::Refused(AgentRefusal::Other { reason: "x".into() }),
            "x",
        ),
        (Trouble::Garbage("x".into()), "profile"),
        (
            Trouble::Silent {
                limit_ns: 1,
                said: "x".into(),
            },
            "no answer within",
        ),
        (Trouble::Ssh("x".into()), "x"),
        (Trouble::Lost("x".into()), "x"),
        (
            Trouble::Died {
                how: "x".into(),
                said: String::new(),
            },
            "no error message",
        ),
        (Trouble::Protocol("x".into()), "x"),
        (Trouble::Push("disk full".into()), "disk full"),
    ] {
        let text = told(trouble.clone());
        assert!(text.starts_with("host gen1: "), "{text}");
        assert!(text.contains(remedy), "{trouble:?}: {text}");
    }
}

#[test]
fn foreign_texts_are_shortened_and_have_no_control_characters() {
    assert_eq!(printable("a\x1b]0;x\x07\tb"), "a?]0;x??b");
    let long = "x".repeat(5000);
    assert_eq!(printable(&long).len(), TEXT_MAX);
    let lines: Vec<_> = (0..20).map(|n| n.to_string()).collect();
    assert_eq!(
        tail(&lines.join("\r\n\n")),
        "12\n13\n14\n15\n16\n17\n18\n19"
    );
}
