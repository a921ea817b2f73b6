use std::os::unix::fs::PermissionsExt as _;
use std::thread;

use expect_test::expect;

use super::*;

/// Serves one socket in a separate thread, which ends with the test process.
fn served(path: &Path) -> Option<SocketFile> {
    let (listener, file) = Socket::open(path).unwrap().into_parts();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let offer = Offer {
            sockets: std::sync::Weak::new(),
            cache: Box::new(|_| (Vec::new(), None)),
            replaced: Box::new(|| {}),
        };
        let serving = serve(listener, offer, |request, answer| {
            let said = match request {
                Request::Flush {
                    name: None,
                    rtype: None,
                } => Answer::Flushed { entries: 3 },
                Request::Flush {
                    name: Some(name), ..
                } => refused(name),
                // Sends no answer.
                _ => return,
            };
            answer.send(said).unwrap();
        });
        tokio::task::LocalSet::new().block_on(&runtime, serving)
    });
    file
}

#[test]
fn requests_can_be_written_by_hand() {
    let parse = |text: &str| serde_json::from_str::<Request>(text).map_err(|e| e.to_string());
    assert_eq!(parse(r#"{"command":"status"}"#), Ok(Request::Status));
    let flush = |name: Option<&str>| {
        Ok(Request::Flush {
            name: name.map(str::to_owned),
            rtype: None,
        })
    };
    assert_eq!(parse(r#"{"command":"flush"}"#), flush(None));
    assert_eq!(
        parse(r#"{"command":"flush","name":"a.b"}"#),
        flush(Some("a.b"))
    );
    assert!(parse(r#"{"command":"halt"}"#).unwrap_err().contains("halt"));
    assert!(parse(r#"{"command":"flush","nam":"a.b"}"#).is_err());
    let line = serde_json::to_string(&Request::Flush {
        name: None,
        rtype: None,
    })
    .unwrap();
    assert_eq!(line, r#"{"command":"flush"}"#);
}

#[test]
fn answers_are_readable_by_people_and_programs() {
    let stats = Answer::Stats {
        figures: [("queries.udp".to_owned(), 3), ("coalesced".to_owned(), 0)].into(),
    };
    expect![[r#"
        coalesced=0
        queries.udp=3
    "#]]
    .assert_eq(&stats.to_string());
    let reloaded = Answer::Reloaded {
        notes: vec!["a note".into()],
        needs_restart: vec!["workers".into()],
    };
    expect![[r#"
        reloaded
        note: a note
        note: workers takes effect after a restart
    "#]]
    .assert_eq(&reloaded.to_string());
    for answer in [stats, reloaded, refused("no")] {
        let line = serde_json::to_string(&answer).unwrap();
        assert_eq!(serde_json::from_str::<Answer>(&line).unwrap(), answer);
    }
}

#[test]
fn request_over_the_socket_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("control.sock");
    let file = served(&path);
    // The umask of the test may remove more permissions.
    let mode = path.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o117, 0, "{mode:o}");
    let flush = |name: Option<&str>| {
        let name = name.map(str::to_owned);
        ask(&path, &Request::Flush { name, rtype: None }).unwrap()
    };
    assert_eq!(flush(None), Answer::Flushed { entries: 3 });
    let long = "x".repeat(3000);
    assert_eq!(flush(Some("a.b")), refused("a.b"));
    let Answer::Refused { message } = flush(Some(&long)) else {
        panic!("an unterminated request was accepted");
    };
    assert!(message.starts_with("no such request"), "{message}");
    let dropped = ask(&path, &Request::Status).unwrap();
    assert_eq!(
        dropped,
        refused("the server is shutting down or overloaded")
    );
    drop(file);
    assert!(!path.exists());
}

#[test]
fn idle_connections_delay_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("control.sock");
    let _file = served(&path);
    let connect = |_| UnixStream::connect(&path).unwrap();
    let silent: Vec<_> = (0..WAITING_MAX).map(connect).collect();
    let flush = Request::Flush {
        name: None,
        rtype: None,
    };
    let flushed = Answer::Flushed { entries: 3 };
    assert_eq!(ask(&path, &flush).unwrap(), flushed);
    // The oldest connection was closed; the others may still send their requests.
    assert_eq!((&silent[0]).read(&mut [0]).unwrap(), 0);
    for peer in &silent[1..] {
        assert_eq!(exchange(peer, &flush).unwrap(), flushed);
    }
}

#[test]
fn socket_file_is_replaced_only_if_no_server_listens() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("control.sock");
    let error = ask(&path, &Request::Status).unwrap_err().to_string();
    assert!(error.contains("start dns64d"), "{error}");
    let denied = AskError::Denied(path.clone()).to_string();
    assert!(
        denied.ends_with(
            "control.sock; use sudo, or become a member of the socket's group (`ls -l` shows it)"
        ),
        "{denied}"
    );
    // Binds and closes, and leaves the file.
    drop(UnixListener::bind(&path).unwrap());
    let first = Socket::open(&path).unwrap();
    let second = Socket::open(&path);
    assert!(matches!(second, Err(SocketError::InUse(_))), "{second:?}");
    drop(first);
    assert!(!path.exists());
    let replaced = Socket::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let other = UnixListener::bind(&path).unwrap();
    drop(replaced);
    assert!(path.exists(), "the file of another process was removed");
    drop(other);
    assert_eq!(dir.path().read_dir().unwrap().count(), 1);
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "a file").unwrap();
    let third = Socket::open(&path);
    assert!(matches!(third, Err(SocketError::NoSocket(_))), "{third:?}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "a file");
    let new = dir.path().join("new");
    let fourth = Socket::open(&new.join("control.sock")).unwrap();
    assert_eq!(new.metadata().unwrap().permissions().mode() & 0o027, 0);
    drop(fourth);
    let nowhere = dir.path().join("no/where/control.sock");
    let error = Socket::open(&nowhere).unwrap_err().to_string();
    assert!(error.contains("create its directory"), "{error}");
}
