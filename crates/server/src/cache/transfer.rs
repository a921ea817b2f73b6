//! The cache on its way to another process of this machine, whose monotonic clock is the same.
//!
//! A record has the length of its rest in four octets; the time when the response was stored, in seconds, in four; DO
//! and CD of its question in one; and the response, which is checked again.

use dns64_transport::clock::{Nanos, SECOND};
use dns64_wire::message::Message;

use super::answers::Listed;
use super::{Cache, Key, Place, name_hash, seconds};
use crate::answer::stored::{Stored, TtlBounds};
use crate::settings::CacheSettings;

/// Version of the records.
pub const RECORDS: u16 = 1;

/// Longest record without its length: the time, the bits, and a message (RFC 1035 section 4.2.2).
pub const RECORD_MAX: usize = 4 + 1 + u16::MAX as usize;

/// Some records, and the place of the next ones.
pub type Page = (Vec<u8>, Option<Place>);

/// Responses of a page, for which one lock is held.
const PAGE_MAX: usize = 128;

impl Cache {
    /// The next records, and the place of those behind. Left out are stale responses, failures, what has an extended
    /// error, which is not in its octets, and responses of `[[forward]]`s, whose numbers are those of this process.
    pub fn records(&self, settings: &CacheSettings, from: Place, now: Nanos) -> Page {
        let (listed, next) = self.answers.page(settings, from, PAGE_MAX, now);
        (listed.iter().filter_map(record).flatten().collect(), next)
    }

    /// Stores the response of a record, without its length; `false`: it is none, or expired.
    pub fn restore(&self, settings: &CacheSettings, record: &[u8], now: Nanos) -> bool {
        let restored = || {
            let (stored_s, rest) = record.split_first_chunk()?;
            let (bits, message) = rest.split_first()?;
            let message = Message::parse(message).ok()?;
            let bounds = TtlBounds {
                min_s: settings.min_ttl_s,
                max_s: settings.max_ttl_s,
                max_negative_s: settings.max_negative_ttl_s,
            };
            let stored = Stored::accept(&message, &bounds).ok()?;
            let stored_s = u32::from_be_bytes(*stored_s).min(seconds(now));
            let question = message.question()?;
            let name = question.name.to_buf();
            let (rtype, class) = (question.rtype, question.class);
            let (do_bit, cd) = (bits & 1 != 0, bits & 2 != 0);
            let key = Key::new(&name, name_hash(&name), rtype, class, do_bit, cd);
            let is_fresh = seconds(now) < stored_s.saturating_add(stored.ttl_s());
            is_fresh.then(|| self.keep(settings, &key, stored, Nanos::from(stored_s) * SECOND))
        };
        restored().is_some()
    }
}

fn record(listed: &Listed) -> Option<Vec<u8>> {
    let stored = &listed.learnt.stored;
    let stored_s = listed.learnt.stored_s?.to_be_bytes();
    let is_whole = !stored.is_failure() && stored.extended_error().is_none() && listed.set == 0;
    let message = stored.bytes();
    let len = u32::try_from(stored_s.len() + 1 + message.len()).ok()?;
    is_whole.then(|| [&len.to_be_bytes()[..], &stored_s, &[listed.bits], message].concat())
}

#[cfg(test)]
mod tests {
    use dns64_wire::build::{Builder, Owner};
    use dns64_wire::codes::{Class, Rcode, Rtype};
    use dns64_wire::message::{Flags, Section};
    use dns64_wire::name::NameBuf;

    use super::super::Found;
    use super::super::tests::SETTINGS;
    use super::*;

    fn key(name: &NameBuf) -> Key<'_> {
        Key::new(name, name_hash(name), Rtype::A, Class::IN, true, false)
    }

    fn response(name: &NameBuf, rcode: Rcode, answer: &[u8]) -> Stored {
        let mut octets = [0; 512];
        let mut message = Builder::new(&mut octets, 512).unwrap();
        message.header(
            0,
            Flags::default()
                .with_qr(true)
                .with_ad(true)
                .with_rcode(rcode),
        );
        message.question(name, Rtype::A, Class::IN).unwrap();
        let soa = [&b"\0\0"[..], &[0; 16], &900_u32.to_be_bytes()].concat();
        let (section, rtype, data) = match answer {
            [] => (Section::Authority, Rtype::SOA, &soa[..]),
            data => (Section::Answer, Rtype::A, data),
        };
        let owner = Owner::Question;
        message
            .record(section, owner, rtype, Class::IN, 600, data)
            .unwrap();
        let len = message.finish();
        let message = Message::parse(&octets[..len]).unwrap();
        Stored::accept(&message, &TtlBounds::NONE).unwrap()
    }

    /// The records of a cache, without their lengths.
    fn records(cache: &Cache, now: Nanos) -> Vec<Vec<u8>> {
        let (mut all, mut from) = (Vec::new(), Some(Place::default()));
        while let Some(place) = from {
            let (octets, next) = cache.records(&SETTINGS, place, now);
            let mut rest = &octets[..];
            while let Some((len, behind)) = rest.split_first_chunk() {
                let (record, behind) = behind.split_at(u32::from_be_bytes(*len) as usize);
                all.push(record.to_vec());
                rest = behind;
            }
            from = next;
        }
        all
    }

    #[test]
    fn restored_cache_answers_like_the_old_one() {
        let (old, new) = (Cache::new(&SETTINGS, None), Cache::new(&SETTINGS, None));
        let [a, none, denied, failed, elsewhere] = [
            "a.example",
            "none.example",
            "no.example",
            "servfail.example",
            "corp.example",
        ]
        .map(|name| name.parse::<NameBuf>().unwrap());
        for (name, rcode, data) in [
            (&a, Rcode::NOERROR, &[192, 0, 2, 1][..]),
            (&none, Rcode::NOERROR, &[]),
            (&denied, Rcode::NXDOMAIN, &[]),
        ] {
            old.keep(
                &SETTINGS,
                &key(name),
                response(name, rcode, data),
                100 * SECOND,
            );
        }
        let failure = Stored::failure(&key(&failed).asked(), Rcode::SERVFAIL, None);
        old.keep(&SETTINGS, &key(&failed), failure, 100 * SECOND);
        let of_set = response(&elsewhere, Rcode::NOERROR, &[10, 0, 0, 1]);
        old.keep(&SETTINGS, &key(&elsewhere).to_set(1), of_set, 100 * SECOND);

        let now = 200 * SECOND;
        let records = records(&old, now);
        assert_eq!(records.len(), 3);
        for record in &records {
            assert!(new.restore(&SETTINGS, record, now));
            assert!(!new.restore(&SETTINGS, record, 700 * SECOND), "expired");
            assert!(!new.restore(&SETTINGS, &record[..20], now), "cut");
        }
        let below = "below.no.example".parse().unwrap();
        for name in [&a, &none, &denied, &below] {
            let find = |cache: &Cache| match cache.find(&SETTINGS, &key(name), now) {
                Found::Fresh(learnt) => learnt,
                other => panic!("{name}: {other:?}"),
            };
            assert_eq!(find(&old), find(&new));
        }
        for name in [&failed, &elsewhere] {
            let found = new.find(&SETTINGS, &key(name), now);
            assert!(matches!(found, Found::Missing), "{name}");
        }
    }
}
