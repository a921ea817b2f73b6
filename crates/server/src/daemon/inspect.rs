//! What an operator asks of a running server, and tells it: the cache, questions in flight, upstreams.

use std::net::IpAddr;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use dns64_transport::clock::{Clock, MonotonicClock, Nanos, SECOND};
use dns64_wire::codes::Rtype;
use dns64_wire::name::NameBuf;

use super::lookup;
use super::server::Server;
use crate::cache::Place;
use crate::config;
use crate::control::{Answer, lines, refused};
use crate::mailbox::ToWorker;

/// Lines of one answer: with names of 1 KiB, less than the longest answer.
const PAGE_LINES: usize = 512;

/// Time for the workers to list their questions.
const LIST_NS: Nanos = SECOND;

impl Server {
    /// Removes the responses for a name and a type from the cache, or for a name and all names below it, or everything.
    pub(super) fn flush(&self, name: Option<&str>, rtype: Option<&str>) -> Answer {
        let (name, rtype) = match (
            name.map(domain_name).transpose(),
            rtype.map(record_type).transpose(),
        ) {
            (Ok(name), Ok(rtype)) => (name, rtype),
            (Err(message), _) | (_, Err(message)) => return refused(message),
        };
        let name = name.map(|name| name.as_wire().to_ascii_lowercase());
        let cache = &self.stats.cache;
        let entries = match (name, rtype) {
            (Some(name), Some(rtype)) => cache.flush_question(&name, rtype),
            (None, Some(rtype)) => {
                return refused(format!(
                    "type {rtype} has no name: give one, or omit the type"
                ));
            }
            (name, _) => cache.flush(name.as_deref()),
        };
        Answer::Flushed { entries }
    }

    /// Reports what a client would get for a query.
    pub(super) fn lookup(&self, name: &str, rtype: Option<&str>, client: Option<IpAddr>) -> Answer {
        let (settings, now) = (&self.in_force.settings, MonotonicClock.now());
        match (
            domain_name(name),
            rtype.map_or(Ok(Rtype::AAAA), record_type),
        ) {
            (Ok(name), Ok(rtype)) => lines(lookup::report(
                settings,
                &self.stats.cache,
                &name,
                rtype,
                client,
                now,
            )),
            (Err(message), _) | (_, Err(message)) => refused(message),
        }
    }

    /// Lists a part of the cache.
    pub(super) fn dump(&self, from: Place) -> Answer {
        let (settings, cache) = (&self.in_force.settings, &self.stats.cache);
        let sets = settings.sets.iter().enumerate();
        let names: Vec<_> = sets
            .map(|(index, set)| (cache.set_number(settings, index), &set.name))
            .collect();
        let name = |number: u16| {
            let known = names.iter().find(|(known, _)| *known == number);
            known.map_or_else(|| "removed".to_owned(), |(_, name)| (*name).clone())
        };
        let (lines, next) = cache.page(
            &settings.cache,
            from,
            PAGE_LINES,
            MonotonicClock.now(),
            name,
        );
        Answer::Lines { lines, next }
    }

    /// Lists the questions that clients wait for, as far as the workers answer in time.
    pub(super) fn in_flight(&self) -> Answer {
        let (sender, receiver) = sync_channel(self.workers.len());
        let most = PAGE_LINES / self.workers.len().max(1);
        let asked = self
            .workers
            .iter()
            .filter(|worker| worker.send(ToWorker::List(most, sender.clone())).is_ok());
        let until = MonotonicClock.now() + LIST_NS;
        let answered = (0..asked.count()).map_while(|_| {
            let left = until.saturating_sub(MonotonicClock.now());
            receiver.recv_timeout(Duration::from_nanos(left)).ok()
        });
        lines(answered.flatten())
    }

    /// Closes an upstream, or opens it again.
    pub(super) fn close(&self, address: &str, closes: bool) -> Answer {
        let address = match config::upstream_address(address) {
            Ok(address) => address,
            Err(message) => return refused(message),
        };
        let since = closes.then(|| MonotonicClock.now());
        let state = if closes { "down" } else { "up" };
        if !self.in_force.health.close(address, since) {
            return refused(format!(
                "{address} is no upstream; `dns64d ctl status` lists them"
            ));
        }
        tracing::info!("upstream {address} is {state} by request");
        lines([format!("upstream={address} {state}")])
    }
}

fn domain_name(text: &str) -> Result<NameBuf, String> {
    text.parse()
        .map_err(|error| format!("{text:?} is not a domain name: {error}"))
}

fn record_type(text: &str) -> Result<Rtype, String> {
    Rtype::named(text)
        .ok_or_else(|| format!("{text:?} is not a type; write it like AAAA or TYPE28"))
}

#[cfg(test)]
mod tests {
    use dns64_wire::codes::{Class, Rcode};
    use expect_test::expect;

    use super::super::server::tests::server;
    use super::*;
    use crate::answer::stored::{Asked, Stored};
    use crate::cache::{Key, name_hash};

    #[test]
    fn name_is_flushed_regardless_of_case() {
        let (server, _events, _mailbox) = server();
        let settings = server.in_force.settings.cache;
        let name = "www.example.com".parse().unwrap();
        let (rtype, class) = (Rtype::A, Class::IN);
        let asked = Asked {
            name: &name,
            rtype,
            class,
        };
        let failure = Stored::failure(&asked, Rcode::SERVFAIL, None);
        let key = Key::new(&name, name_hash(&name), rtype, class, false, false);
        let cache = &server.stats.cache;
        cache.keep(&settings, &key, failure, 0);
        for entries in [1, 0] {
            let without_name = server.flush(None, Some("A"));
            assert!(matches!(without_name, Answer::Refused { .. }));
            let answer = server.flush(Some("Example.COM"), None);
            assert_eq!(answer, Answer::Flushed { entries });
        }
    }

    fn text(answer: &Answer) -> String {
        assert!(matches!(answer, Answer::Lines { .. }), "{answer}");
        answer.to_string()
    }

    #[test]
    fn lookup_tells_the_answer_and_its_source() {
        let (server, _events, _mailbox) = server();
        expect![[r#"
            name=localhost. type=A client=::1
            answer=NOERROR from=local aa
            answer=localhost. 10800 A 127.0.0.1
            cache type=A absent
        "#]]
        .assert_eq(&text(&server.lookup("localhost", Some("a"), None)));
        let client = Some("192.0.2.1".parse().unwrap());
        expect![[r#"
            name=localhost. type=TYPE65280 client=192.0.2.1
            answer=REFUSED from=access
            cache type=TYPE65280 absent
        "#]]
        .assert_eq(&text(&server.lookup(
            "localhost",
            Some("TYPE65280"),
            client,
        )));
        expect![[r#"
            name=v4.example. type=AAAA client=::1
            asks=192.0.2.53:53 name=v4.example. type=AAAA
            cache type=AAAA absent
            cache type=A absent
        "#]]
        .assert_eq(&text(&server.lookup("v4.example", None, None)));
        for (name, rtype) in [("a..b", None), ("a", Some("AAAAA"))] {
            let refusal = server.lookup(name, rtype, None);
            assert!(matches!(refusal, Answer::Refused { .. }), "{refusal}");
        }
    }

    #[test]
    fn closed_upstream_is_down_until_it_is_opened() {
        let (server, _events, _mailbox) = server();
        expect!["upstream=192.0.2.53:53 down\n"]
            .assert_eq(&text(&server.close("192.0.2.53", true)));
        assert_eq!(server.in_force.health.closed(), 1);
        let status = server.status().to_string();
        assert!(
            status.contains("upstream=192.0.2.53:53 down since_s=0 reason=operator\n"),
            "{status}"
        );
        text(&server.close("192.0.2.53:53", false));
        assert_eq!(server.in_force.health.closed(), 0);
        for unknown in ["192.0.2.54", "x"] {
            assert!(matches!(
                server.close(unknown, true),
                Answer::Refused { .. }
            ));
        }
    }
}
