//! Upstreams on the loopback interface.

use std::cell::Cell;

use super::*;
use crate::gateway::upstream::queue::ASKS_MAX;

/// An upstream that passes each of its connections to `serve`.
fn upstream(serve: impl Fn(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            serve(stream.unwrap());
        }
    });
    address
}

#[test]
fn upstreams_are_queried_over_persistent_connections() {
    let rig = Rig::new(TCP);
    let server = upstream(|mut stream| {
        for len in [12, 65_535] {
            assert_eq!(read(&mut stream), message(7, 30));
            write(&mut stream, &message(7, len));
        }
        // Then it closes, which the next query must detect.
    });
    for (exchange, len) in [(1, 12), (2, 65_535), (3, 12)] {
        rig.ask(exchange, server, 15 * SECOND);
        assert_eq!(rig.answer(), (exchange, Ok(message(7, len))));
    }
    assert_eq!(rig.counts.upstream_opened.get(), 2);
    assert_eq!(rig.counts.upstream_answered.get(), 3);
}

#[test]
fn invalid_responses_are_failures() {
    let rig = Rig::new(TCP);
    let wrong_id = upstream(|mut stream| {
        read(&mut stream);
        write(&mut stream, &message(8, 30));
    });
    let short = upstream(|mut stream| {
        read(&mut stream);
        write(&mut stream, &message(7, 11));
    });
    let cut = upstream(|mut stream| {
        read(&mut stream);
        stream.write_all(&[0, 30, 0, 7, 1]).unwrap();
    });
    for (exchange, server) in [(1, wrong_id), (2, short), (3, cut)] {
        rig.ask(exchange, server, 15 * SECOND);
        assert_eq!(rig.answer(), (exchange, Err(ConnectionFailed::Unanswered)));
    }
    assert_eq!(rig.counts.upstream_failed.get(), 3);
    // Each query is retried once over a new connection.
    assert_eq!(rig.counts.upstream_wrong_id.get(), 2);
    assert_eq!(rig.counts.upstream_retried.get(), 3);
}

#[test]
fn refusing_and_hanging_upstreams_fail_within_the_timeout() {
    let rig = Rig::new(TCP);
    let gone = TcpListener::bind("127.0.0.1:0").unwrap();
    let refuses = gone.local_addr().unwrap();
    drop(gone);
    rig.ask(1, refuses, 15 * SECOND);
    assert_eq!(rig.answer(), (1, Err(ConnectionFailed::Unanswered)));
    let hangs = TcpListener::bind("127.0.0.1:0").unwrap();
    rig.ask(2, hangs.local_addr().unwrap(), SECOND / 10);
    assert_eq!(rig.answer(), (2, Err(ConnectionFailed::Unanswered)));
}

#[test]
fn queries_above_the_limit_fail_immediately() {
    let rig = Rig::new(TCP);
    let hangs = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = hangs.local_addr().unwrap();
    let bound = ASKS_MAX as u64;
    for exchange in 0..=bound {
        rig.ask(exchange, server, 20 * SECOND);
    }
    assert_eq!(rig.answer(), (bound, Err(ConnectionFailed::Unanswered)));
    assert_eq!(rig.counts.upstream_full.get(), 1);
    // Another upstream has its own queue.
    let other = upstream(|mut stream| {
        read(&mut stream);
        write(&mut stream, &message(7, 30));
    });
    rig.ask(9999, other, 15 * SECOND);
    assert_eq!(rig.answer(), (9999, Ok(message(7, 30))));
}

/// How an upstream treats its connections.
#[derive(Clone, Copy, Debug)]
enum Temper {
    /// Reads many queries and answers the last first.
    Pipelining,
    /// Reads the next query after answering the previous one.
    OneAtATime,
    /// Answers one query and closes.
    Closing,
    /// Answers one query and ignores the others.
    IgnoringOthers,
}

/// An upstream that echoes queries, over any number of concurrent connections.
fn echo(temper: Temper) -> SocketAddr {
    upstream(move |mut stream| {
        thread::spawn(move || {
            let mut held = Vec::new();
            while let Some(question) = try_read(&mut stream) {
                held.push(question);
                // All queries that have arrived by now form one batch.
                let batch = matches!(temper, Temper::Pipelining) && is_more(&stream);
                if !batch {
                    for answer in held.drain(..).rev() {
                        if stream.write_all(&framed(&answer).unwrap()).is_err() {
                            return;
                        }
                    }
                }
                match temper {
                    Temper::Pipelining | Temper::OneAtATime => {}
                    Temper::Closing => return,
                    Temper::IgnoringOthers => {
                        while try_read(&mut stream).is_some() {}
                        return;
                    }
                }
            }
        });
    })
}

/// The next message, unless the peer has closed.
fn try_read(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut length = [0; 2];
    stream.read_exact(&mut length).ok()?;
    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut message).ok()?;
    Some(message)
}

/// Whether a connection has more data to read.
fn is_more(stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).unwrap();
    let peeked = stream.peek(&mut [0]);
    stream.set_nonblocking(false).unwrap();
    matches!(peeked, Ok(1))
}

/// A unique query for each exchange, many of them with the same ID.
fn question(exchange: u64) -> Vec<u8> {
    let mut question = message(u16::try_from(exchange % 7).unwrap(), 30);
    question[20..28].copy_from_slice(&exchange.to_be_bytes());
    question
}

/// Sends many queries at once and asserts that each gets its own response.
fn ask_many(rig: &Rig, server: SocketAddr, questions: u16) {
    for exchange in 0..u64::from(questions) {
        assert!(rig.gateway.send(ToGateway::Ask {
            worker: 0,
            exchange,
            server,
            tls: false,
            timeout_ns: 60 * SECOND,
            message: question(exchange),
        }));
    }
    let mut answered = vec![false; questions.into()];
    for _ in 0..questions {
        let (exchange, answer) = rig.answer();
        assert_eq!(answer, Ok(question(exchange)));
        let seen = &mut answered[usize::try_from(exchange).unwrap()];
        let before = std::mem::replace(seen, true);
        assert!(!before, "{exchange} was answered twice");
    }
}

#[test]
fn six_hundred_concurrent_queries_lose_none() {
    for temper in [
        Temper::Pipelining,
        Temper::OneAtATime,
        Temper::Closing,
        Temper::IgnoringOthers,
    ] {
        let rig = Rig::new(TCP);
        ask_many(&rig, echo(temper), 600);
        let counts = &rig.counts;
        let opened = counts.upstream_opened.get();
        let expected = match temper {
            // On a busy machine connections stall. Their queries get one each.
            Temper::Pipelining | Temper::OneAtATime => 1..=16 + counts.upstream_retried.get(),
            Temper::Closing | Temper::IgnoringOthers => 600..=u64::MAX,
        };
        assert!(expected.contains(&opened), "{temper:?}: {counts:?}");
        assert_eq!(counts.upstream_answered.get(), 600);
        assert_eq!(counts.upstream_failed.get(), 0);
    }
}

#[test]
fn pipelined_queries_get_their_own_responses() {
    let rig = Rig::new(TCP);
    // The upstream answers after all queries have arrived, which requires pipelining.
    let server = upstream(|mut stream| {
        let questions: Vec<_> = (0..8).map(|_| read(&mut stream)).collect();
        let mut ids: Vec<_> = questions.iter().map(|q| [q[0], q[1]]).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 8, "IDs are in use once");
        for question in questions.iter().rev() {
            write(&mut stream, question);
        }
        is_closed(&mut stream);
    });
    ask_many(&rig, server, 8);
    assert_eq!(rig.counts.upstream_opened.get(), 1);
    assert_eq!(rig.counts.upstream_reused.get(), 7);
}

#[test]
fn silent_upstream_fails_within_the_timeout_and_delays_no_other() {
    let rig = Rig::new(TCP);
    // Accepted by the kernel only.
    let hangs = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = hangs.local_addr().unwrap();
    for exchange in 1000..1300 {
        rig.ask(exchange, silent, 15 * SECOND);
    }
    ask_many(&rig, echo(Temper::Pipelining), 300);
    assert_eq!(rig.counts.upstream_failed.get(), 0);
    rig.ask(2000, silent, SECOND / 10);
    assert_eq!(rig.answer(), (2000, Err(ConnectionFailed::Unanswered)));
}

#[test]
fn queries_on_a_connection_that_stalls_are_answered_on_others() {
    let rig = Rig::new(TCP);
    let connections = Cell::new(0);
    let server = upstream(move |mut stream| {
        connections.set(connections.get() + 1);
        if connections.get() == 1 {
            thread::spawn(move || while try_read(&mut stream).is_some() {});
            return;
        }
        thread::spawn(move || {
            while let Some(question) = try_read(&mut stream) {
                write(&mut stream, &question);
            }
        });
    });
    // They would fail with the first deadline on the connection.
    ask_many(&rig, server, 8);
    assert_eq!(rig.counts.upstream_failed.get(), 0);
    assert!(rig.counts.upstream_opened.get() > 1);
}

#[test]
fn late_response_is_dropped_and_its_connection_continues() {
    let rig = Rig::new(TCP);
    let server = upstream(|mut stream| {
        let late = read(&mut stream);
        let kept = read(&mut stream);
        write(&mut stream, &kept);
        let third = read(&mut stream);
        write(&mut stream, &late);
        write(&mut stream, &third);
        is_closed(&mut stream);
    });
    let ask = |exchange, timeout_ns| {
        assert!(rig.gateway.send(ToGateway::Ask {
            worker: 0,
            exchange,
            server,
            tls: false,
            timeout_ns,
            message: question(exchange),
        }));
    };
    // Before the connection stalls.
    ask(1, SECOND * 9 / 10);
    ask(2, 15 * SECOND);
    let mut first = [rig.answer(), rig.answer()];
    // If the machine stalls, the second response may be as late as the timeout of the first.
    first.sort_by_key(|(exchange, _)| *exchange);
    assert_eq!(
        first,
        [(1, Err(ConnectionFailed::Unanswered)), (2, Ok(question(2)))]
    );
    ask(3, 15 * SECOND);
    assert_eq!(rig.answer(), (3, Ok(question(3))));
    assert_eq!(rig.counts.upstream_opened.get(), 1);
}

/// A listening socket to which no connection can be established: its backlog is full, and the
/// kernel drops further attempts (listen(2)).
fn unreachable_server() -> (TcpListener, Vec<TcpStream>) {
    let socket = |flags| {
        rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap()
    };
    let listening = socket(SocketFlags::CLOEXEC);
    rustix::net::bind(&listening, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    rustix::net::listen(&listening, 0).unwrap();
    let listener = TcpListener::from(listening);
    let address = listener.local_addr().unwrap();
    let fill = |_| {
        let stream = socket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK);
        // In progress, and one of them established.
        let _ = rustix::net::connect(&stream, &address);
        stream.into()
    };
    let filling = (0..4).map(fill).collect();
    (listener, filling)
}

#[test]
fn queries_keep_their_deadlines_during_a_connection_attempt() {
    let rig = Rig::new(TCP);
    let (listener, _filling) = unreachable_server();
    let server = listener.local_addr().unwrap();
    rig.ask(1, server, 600 * SECOND);
    for exchange in 2..5 {
        rig.ask(exchange, server, SECOND / 10);
        assert_eq!(rig.answer(), (exchange, Err(ConnectionFailed::Unanswered)));
    }
    assert_eq!(rig.counts.upstream_opened.get(), 0);
    let other = echo(Temper::Pipelining);
    rig.ask(9, other, 15 * SECOND);
    assert_eq!(rig.answer(), (9, Ok(message(7, 30))));
}
