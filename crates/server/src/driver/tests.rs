//! Compares the program with the socket path: its responses equal those of an engine, and it does not change frames
//! that it does not answer. `BPF_PROG_TEST_RUN` needs root.

mod frames;
mod questions;
mod world;

use dns64_transport::xdp::program::Action;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::*;
use crate::config;
use frames::{Frame, mutant};
use questions::QUESTIONS;
use world::World;

/// Number of corrupted frames.
const MUTANTS: usize = 100_000;

#[test]
#[ignore = "needs root: run by .ci/run driver"]
fn driver_and_sockets_give_the_same_answers() {
    let world = &mut World::new("");
    world.publish(5);
    let mut sent = 0;
    for frame in world.frames() {
        let action = world.compare(&frame.octets());
        let is_short = frame.udp_size.is_none_or(|size| size < 600);
        let is_long = frame.question.name.starts_with("long");
        // Nothing is synthesised for a validating client.
        let is_empty = frame.question.name.starts_with("much") && frame.do_bit && frame.cd;
        let is_kept = frame.question.is_kept_in_driver() || is_empty;
        let expected = match is_kept && !(is_short && is_long) {
            true => Action::Tx,
            false => Action::Pass,
        };
        assert_eq!(action, expected, "{frame:?}");
        sent += usize::from(action == Action::Tx);
    }
    assert!(sent > 500, "{sent}");
    world.counts_agree();
}

#[test]
#[ignore = "needs root: run by .ci/run driver"]
fn mutated_frames_get_no_answer_that_the_sockets_would_not_give() {
    let world = &mut World::new("");
    world.publish(5);
    let frames = world.frames();
    let mut random = StdRng::seed_from_u64(64);
    let mut sent = 0;
    for _ in 0..MUTANTS {
        let frame = &frames[random.random_range(0..frames.len())];
        let frame = mutant(&frame.octets(), &mut random);
        sent += usize::from(world.compare(&frame) == Action::Tx);
    }
    // Mutations of ID, case, ports and so on leave a valid query.
    assert!((2_000..MUTANTS / 2).contains(&sent), "{sent}");
    world.counts_agree();
}

#[test]
#[ignore = "needs root: run by .ci/run driver"]
fn frames_that_the_kernel_would_refuse_are_passed_on() {
    let world = &mut World::new("");
    world.publish(0);
    let good = Frame::of(&QUESTIONS[0]);
    for (name, octets) in frames::untaken(&good) {
        assert_eq!(world.compare(&octets), Action::Pass, "{name}");
    }
    for (name, octets) in frames::unfit(&good) {
        assert_eq!(world.compare(&octets), Action::Pass, "{name}");
    }
    assert_eq!(world.compare(&good.octets()), Action::Tx);
    // A checksum of the pseudo-header alone, as from local senders, is accepted only on links of this machine.
    let partial = good.with_partial_sum();
    assert_eq!(world.run(&partial).0, Action::Pass);
    world.make_virtual();
    assert_eq!(world.run(&partial).0, Action::Tx);
}

#[test]
#[ignore = "needs root: run by .ci/run driver"]
fn flush_reload_and_expiry_withdraw_an_answer() {
    let good = Frame::of(&QUESTIONS[0]).octets();
    let world = &mut World::new("");
    assert_eq!(world.compare(&good), Action::Pass, "never queried");
    world.publish(0);
    assert_eq!(world.compare(&good), Action::Tx);
    // Takes effect immediately, before the keeper acts.
    world.cache.flush(None);
    assert_eq!(world.run(&good).0, Action::Pass, "flushed");
    for text in [
        "allow = [\"10.1.0.0/16\"]\n",
        "[rate-limit]\nresponses-per-second = 1000\n",
        "[log]\nqueries = true\n",
        "[cache]\nsize = \"off\"\n",
        "dns64.prefix = \"2001:db8:64::/96\"\n",
        "[[view]]\nclients = [\"10.0.0.0/16\"]\ndns64 = { enabled = false }\n",
    ] {
        let world = &mut World::new("");
        world.publish(0);
        assert_eq!(world.compare(&good), Action::Tx);
        world.configure(text);
        assert_eq!(world.run(&good).0, Action::Pass, "{text}");
        world.configure("");
        assert_eq!(world.run(&good).0, Action::Tx, "back from {text}");
    }
    let world = &mut World::new("");
    // The TTL is 300 s.
    world.publish(299);
    let action = world.compare(&good);
    // The second may have ended meanwhile.
    assert!([Action::Tx, Action::Pass].contains(&action));
    let world = &mut World::new("");
    world.publish(300);
    assert_eq!(world.run(&good).0, Action::Pass, "expired");
}

#[test]
#[ignore = "needs root: run by .ci/run driver"]
fn answers_sent_by_the_driver_are_marked_as_used_in_the_cache() {
    let world = &mut World::new("");
    world.publish(0);
    let good = Frame::of(&QUESTIONS[0]).octets();
    world.take_marked();
    world.next_second();
    assert_eq!(world.take_marked(), 0, "none was sent");
    assert_eq!(world.run(&good).0, Action::Tx);
    world.next_second();
    assert_eq!(world.take_marked(), 1);
    world.next_second();
    assert_eq!(world.take_marked(), 0, "not sent again");
}
