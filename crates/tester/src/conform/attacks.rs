//! What attackers make of a server, as figures: how hard its questions are to forge, and what a query costs others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dns64_transport::clock::{MonotonicClock, Nanos, SECOND};
use dns64_wire::pref64::Pref64;

use super::case::Case;
use super::client::{Back, Client, WAIT_NS};
use super::lab::Dut;
use super::play::{self, Played, Unplayed};
use super::query::Query;
use super::report::{Attack, Attacks};
use super::script::Script;
use super::{ELSEWHERE, End, NoVerdict, Ran, Suite, only, read};

/// Queries for the source ports and IDs of their questions: values of 16 bits collide in eight of the pairs.
const QUERIES: usize = 1024;

/// Plain queries before each class.
const WARM_UP: usize = 16;

/// Width of a port and of an ID.
const BITS_MAX: f64 = 16.0;

impl Suite {
    /// Attacks the server, by 1,024 queries one after the other and one query of each class. It recovers after classes
    /// that harm.
    ///
    /// # Errors
    ///
    /// A fault of the Tester.
    pub fn attack(
        &self,
        ran: &mut Ran,
        interrupted: &AtomicBool,
        dut: &mut Dut<'_>,
    ) -> Result<(), NoVerdict> {
        if ran.end != End::Complete {
            return Ok(());
        }
        if !dut.recover() {
            ran.end = End::Gone;
            return Ok(());
        }
        let sources = self.sources(ran.known.pref64, interrupted)?;
        let (ports, ids): (Vec<u16>, Vec<u16>) = sources.into_iter().unzip();
        let mut attacks = Attacks {
            questions: ports.len(),
            port_bits: entropy_bits(&ports),
            id_bits: entropy_bits(&ids),
            classes: Vec::new(),
        };
        let cases = read::attacks().map_err(NoVerdict::Tester)?;
        let mut harmed = false;
        for case in &cases {
            if interrupted.load(Ordering::Relaxed) {
                ran.end = End::Interrupted;
                break;
            }
            if harmed && !dut.recover() {
                ran.end = End::Gone;
                break;
            }
            let play = |case: &Case| {
                let run = self.next(ran.known.pref64);
                let played = play::steps(case, &run, &self.runs, &self.client(), WAIT_NS);
                played.map_err(unplayed)
            };
            // The first is a plain query: after some of them a server needs no new memory.
            let warm_up = || {
                for plain in cases.iter().take(1).cycle().take(WARM_UP) {
                    let played = play(plain)?;
                    if played.iter().any(|it| it.response().is_none()) {
                        return Ok(false);
                    }
                }
                Ok(true)
            };
            // Each query to a server that has stopped answering waits its whole time.
            if !warm_up()? {
                ran.end = End::Gone;
                break;
            }
            let before_ns = idle_cpu_ns(dut);
            let played = play(case)?;
            let after_ns = idle_cpu_ns(dut);
            harmed = case.harms || dut.ended().is_some();
            let spent_ns = before_ns.zip(after_ns).map(|(a, b)| b.saturating_sub(a));
            let last = played.last().map(|it| cost(it, case, spent_ns));
            attacks.classes.extend(last);
        }
        ran.attacks = Some(attacks);
        Ok(())
    }

    /// Source ports and IDs of the questions about names that do not exist. It ends with the first query that is not
    /// answered.
    fn sources(
        &self,
        pref64: Pref64,
        interrupted: &AtomicBool,
    ) -> Result<Vec<(u16, u16)>, NoVerdict> {
        let (case, run) = (only(ELSEWHERE)?, self.next(pref64));
        let script = Script::new(&case, &run).map_err(NoVerdict::Tester)?;
        let (script, client) = (Arc::new(script), self.client());
        let query = |number| Query::parse(&format!("q{number} AAAA"), &run);
        self.runs.begin(&script);
        self.runs.watch();
        for number in 0..QUERIES {
            let query = query(number).map_err(NoVerdict::Tester)?;
            let id = u16::try_from(number).unwrap_or_default();
            let back = client.ask(&query, id, SECOND, None);
            if !matches!(back, Back::Response(_)) || interrupted.load(Ordering::Relaxed) {
                break;
            }
        }
        self.runs.end(&script);
        Ok(self.runs.watched())
    }
}

/// CPU time of a server that has done its work: of a thread that runs, the kernel tells it late.
fn idle_cpu_ns(dut: &Dut<'_>) -> Option<Nanos> {
    MonotonicClock.sleep(SECOND / 10);
    dut.cpu_ns()
}

fn unplayed(why: Unplayed) -> NoVerdict {
    NoVerdict::Tester(format!("{why:?}"))
}

/// What a query has cost.
pub(super) fn cost(played: &Played, case: &Case, cpu_ns: Option<Nanos>) -> Attack {
    let query = played.query.octets(played.id).len() as f64;
    let asked: usize = played.asked.iter().map(|it| it.octets.len()).sum();
    Attack {
        id: case.id.clone(),
        why: case.why.clone(),
        questions: played.asked.len(),
        question_octets: asked as f64 / query,
        response_octets: played.response().map_or(0, <[u8]>::len) as f64 / query,
        cpu_us: cpu_ns.map(|ns| ns as f64 / 1e3),
    }
}

/// The entropy of values in bits: the lower of theirs and that of their steps, so that a counter has none.
fn entropy_bits(values: &[u16]) -> f64 {
    let steps = values.windows(2).map(|it| it[1].wrapping_sub(it[0]));
    let steps: Vec<u16> = steps.collect();
    collision_bits(values)
        .min(collision_bits(&steps))
        .min(BITS_MAX)
}

/// Collision entropy (of Renyi, of order 2): the logarithm of how rarely two values are equal.
fn collision_bits(values: &[u16]) -> f64 {
    let mut counts: BTreeMap<u16, u64> = BTreeMap::new();
    for value in values {
        *counts.entry(*value).or_default() += 1;
    }
    let pairs = |n: u64| n * n.saturating_sub(1) / 2;
    let equal: u64 = counts.values().map(|n| pairs(*n)).sum();
    let all = pairs(values.len() as u64);
    (all.max(1) as f64 / equal.max(1) as f64).log2()
}

#[cfg(test)]
mod tests {
    use dns64_transport::random::SplitMix64;

    use super::*;

    #[test]
    fn entropy_is_that_of_the_generator() {
        let mut random = SplitMix64(1);
        let mut drawn = |bits: u32| -> Vec<u16> {
            let draw = |_| u16::try_from(random.draw() >> (64 - bits)).unwrap();
            (0..QUERIES).map(draw).collect()
        };
        for bits in [4, 8, 12, 16] {
            let found = entropy_bits(&drawn(bits));
            assert!((found - f64::from(bits)).abs() < 2.0, "{bits}: {found}");
        }
        let counter: Vec<u16> = (0..1024).map(|number| number * 3).collect();
        for predictable in [counter, vec![53; 1024], Vec::new()] {
            assert!(entropy_bits(&predictable).abs() < 0.01);
        }
    }
}
