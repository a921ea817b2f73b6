//! The thread that maintains the program's maps: it writes published responses of the cache into them, and reports sent
//! responses to the cache and the counters.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use dns64_transport::clock::{Clock, MonotonicClock, Nanos, SECOND};

use super::layout::{ANSWERS, Sums, USED_PAGE};
use super::table::Table;
use super::{Driver, DriverError, Inbox, Letter};
use crate::cache::{Cache, seconds};
use crate::counts::Counts;

/// Interval in seconds for updating the addresses of this host.
const ADDRESSES_S: u32 = 10;

/// State of the thread.
pub struct Keeper {
    driver: Arc<Driver>,
    inbox: Inbox,
    cache: Arc<Cache>,
    counts: Arc<Counts>,
    table: Table,
    /// End of the current second, and the number of seconds until the next update of the addresses.
    due: Nanos,
    addresses_in: u32,
}

impl Keeper {
    /// Creates the keeper of a driver with responses of this cache; it is the only writer of `counts`.
    pub fn new(
        driver: Arc<Driver>,
        inbox: Inbox,
        cache: Arc<Cache>,
        counts: Arc<Counts>,
        now: Nanos,
    ) -> Self {
        let seed = super::lock(&driver.force).seed;
        Self {
            driver,
            inbox,
            cache,
            counts,
            table: Table::new(seed),
            due: now + SECOND,
            addresses_in: ADDRESSES_S,
        }
    }

    /// Runs until the process ends. If the kernel refuses something, the program is detached.
    pub fn run(mut self) {
        if let Err(error) = self.turn(&MonotonicClock) {
            // Otherwise the program would answer from outdated maps until they expire.
            tracing::error!("{error}; the program is detached");
            self.driver.detach();
            self.driver.policy.store(0, Ordering::Relaxed);
        }
    }

    /// Runs until the kernel refuses something.
    fn turn(&mut self, clock: &impl Clock) -> Result<(), DriverError> {
        loop {
            let left = self.due.saturating_sub(clock.now());
            match self.inbox.0.recv_timeout(Duration::from_nanos(left)) {
                Ok(letter) => self.take(&letter)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            let now = clock.now();
            if now >= self.due {
                self.next_second(now)?;
                self.due = now + SECOND;
            }
        }
    }

    /// Processes all waiting letters.
    #[cfg(test)]
    pub(super) fn take_all(&mut self) {
        while let Ok(letter) = self.inbox.0.try_recv() {
            self.take(&letter).unwrap();
        }
    }

    /// The cache's hashes of all responses that the program can send.
    #[cfg(test)]
    pub(super) fn hashes(&self) -> Vec<u64> {
        self.table.hashes()
    }

    fn take(&mut self, letter: &Letter) -> Result<(), DriverError> {
        let store = &self.driver.maps;
        match letter {
            Letter::Publish(item) => {
                self.table.publish(store, item)?;
            }
            Letter::Withdraw(hash) => self.table.withdraw(store, *hash)?,
            Letter::Clear => self.table.clear(store)?,
        }
        self.note_entries();
        Ok(())
    }

    fn note_entries(&self) {
        let entries = self.table.len() as u64;
        self.driver.entries.store(entries, Ordering::Relaxed);
        self.counts.driver_entries.set(entries);
    }

    /// Does the work of each second.
    pub(super) fn next_second(&mut self, now: Nanos) -> Result<(), DriverError> {
        self.count()?;
        self.pass_on_use()?;
        let (store, cache) = (&self.driver.maps, &self.cache);
        let again = |hash| cache.offer_again(hash);
        self.table.next_second(store, seconds(now), again)?;
        self.note_entries();
        self.addresses_in -= 1;
        if self.addresses_in == 0 {
            self.addresses_in = ADDRESSES_S;
            self.driver.refresh()?;
        }
        Ok(())
    }

    /// Reports to the cache which responses the program has sent.
    fn pass_on_use(&mut self) -> Result<(), DriverError> {
        let mut page = vec![0; USED_PAGE];
        for (number, first) in (0_u32..).zip((0..ANSWERS as usize).step_by(USED_PAGE)) {
            let key = number.to_ne_bytes();
            self.driver.maps.used.get(&key, &mut page)?;
            if page.iter().all(|mark| *mark == 0) {
                continue;
            }
            // A mark set between these two calls is lost until the response is sent again.
            self.driver.maps.used.set(&key, &[0; USED_PAGE])?;
            let marked = page.iter().enumerate().filter(|(_, mark)| **mark != 0);
            for (at, _) in marked {
                if let Some(hash) = self.table.note_used(first + at) {
                    self.cache.note_used(hash);
                }
            }
        }
        Ok(())
    }

    /// Reads the program's counters.
    fn count(&self) -> Result<(), DriverError> {
        let mut sums = Sums::default();
        self.driver
            .maps
            .counts
            .per_cpu(&[0; 4], |counts| sums.add(counts))?;
        let counts = &self.counts;
        let total: u64 = sums.notes.iter().sum();
        counts.queries_udp.set(total + sums.torn);
        counts.dropped_driver.set(sums.torn);
        counts.driver_answers.set(total);
        counts.at_once.set(total);
        counts.set_sent_again(&sums.notes);
        let [a, aaaa, ptr, https, other] = sums.kinds;
        counts.type_a.set(a);
        counts.type_aaaa.set(aaaa);
        counts.type_ptr.set(ptr);
        counts.type_https.set(https);
        counts.type_other.set(other + sums.torn);
        let [
            noerror,
            formerr,
            servfail,
            nxdomain,
            notimp,
            refused,
            others @ ..,
        ] = &sums.rcodes;
        counts.responses_noerror.set(*noerror);
        counts.responses_formerr.set(*formerr);
        counts.responses_servfail.set(*servfail);
        counts.responses_nxdomain.set(*nxdomain);
        counts.responses_notimp.set(*notimp);
        counts.responses_refused.set(*refused);
        counts.responses_other.set(others.iter().sum());
        Ok(())
    }
}
