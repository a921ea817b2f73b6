//! Replays the corpora of the fuzz targets and mutations of them, so that they are useful without
//! the nightly toolchain.
//!
//! `.ci/run fuzz` runs the tests with mutations. The seed `FUZZ_SEED` (0) determines their inputs;
//! `FUZZ_TIMES` (1) multiplies their number.

#![expect(
    clippy::print_stdout,
    reason = "the seed and the input of a failure are to be found"
)]

#[path = "../../../fuzz/src/config.rs"]
mod config;
#[path = "../../../fuzz/src/control.rs"]
mod control;
#[path = "../../../fuzz/src/dialogue.rs"]
mod dialogue;
#[path = "../../../fuzz/src/engine.rs"]
mod engine;
#[path = "../../../fuzz/src/guard.rs"]
mod guard;
#[path = "../../../fuzz/src/http.rs"]
mod http;
#[path = "../../../fuzz/src/message.rs"]
mod message;
#[path = "../../../fuzz/src/response.rs"]
mod response;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

/// Number of prefixes of an input that are tried.
const CUTS: usize = 200;

/// Largest number of mutations of an input.
const CHANGES_MAX: usize = 8;

/// Octets with a special meaning in a format: limits of numbers, a pointer (RFC 1035 section
/// 4.1.4), the longest label, OPT, and separators of text.
const INTERESTING: [u8; 12] = [
    0, 1, 0x0c, 0x29, 0x3f, 0x40, 0x7f, 0x80, 0xc0, 0xff, b'\n', b'"',
];

/// The octets of each file of a corpus, in the order of the file names.
fn corpus(target: &str) -> Vec<Vec<u8>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let corpus = corpus.join(target);
    let entries = fs::read_dir(&corpus).expect("the corpus is part of the repository");
    let mut paths: Vec<PathBuf> = entries.map(|e| e.expect("readable").path()).collect();
    paths.sort();
    assert!(paths.len() >= 12, "{} inputs of {target}", paths.len());
    let read = |path: &PathBuf| fs::read(path).expect("readable");
    paths.iter().map(read).collect()
}

fn replay(target: &str, check: impl Fn(&[u8])) {
    for bytes in corpus(target) {
        check(&bytes);
        // Each prefix of an input is also an input.
        let cuts = (0..bytes.len()).step_by(1 + bytes.len() / CUTS);
        cuts.for_each(|len| check(&bytes[..len]));
    }
}

/// Checks this many mutants of the corpus. Runs with the same seed have the same mutants.
fn mutate(target: &str, inputs: u64, check: impl Fn(&[u8])) {
    let variable = |name, default| {
        let text = std::env::var(name);
        text.map_or(default, |text| text.parse().expect("a number"))
    };
    let (seed, inputs) = (variable("FUZZ_SEED", 0), inputs * variable("FUZZ_TIMES", 1));
    println!("{target}: {inputs} inputs, FUZZ_SEED={seed}");
    let corpus = corpus(target);
    let mut random = StdRng::seed_from_u64(seed);
    for _ in 0..inputs {
        let input = Input {
            target,
            bytes: mutant(&corpus, &mut random),
        };
        check(&input.bytes);
    }
}

/// An input that is saved if its check fails.
struct Input<'a> {
    target: &'a str,
    bytes: Vec<u8>,
}

impl Drop for Input<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{}", self.target));
            // The panic is the error message; the saved input is only additional information.
            let kept = fs::write(&path, &self.bytes);
            println!("{}: {kept:?}", path.display());
        }
    }
}

/// An input of the corpus with some changes.
fn mutant(corpus: &[Vec<u8>], random: &mut StdRng) -> Vec<u8> {
    let mut bytes = corpus[random.random_range(0..corpus.len())].clone();
    for _ in 0..random.random_range(1..=CHANGES_MAX) {
        change(&mut bytes, corpus, random);
    }
    bytes.truncate(usize::from(u16::MAX));
    bytes
}

fn change(bytes: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut StdRng) {
    let octet = match random.random_range(0..2) {
        0 => random.random(),
        _ => INTERESTING[random.random_range(0..INTERESTING.len())],
    };
    let at = random.random_range(0..=bytes.len());
    let to = random.random_range(at..=bytes.len().min(at + 64));
    match random.random_range(0..8) {
        0 => bytes.insert(at, octet),
        1 => drop(bytes.drain(at..to)),
        2 => {
            let copy = bytes[at..to].to_vec();
            let there = random.random_range(0..=bytes.len());
            bytes.splice(there..there, copy);
        }
        3 => {
            let other = &corpus[random.random_range(0..corpus.len())];
            let from = random.random_range(0..=other.len());
            let until = random.random_range(from..=other.len().min(from + 256));
            bytes.splice(at..to, other[from..until].iter().copied());
        }
        4 => bytes.truncate(at),
        // Faults are most likely in headers.
        5 if !bytes.is_empty() => {
            let at = at % bytes.len().min(16);
            bytes[at] = octet;
        }
        6 if at < bytes.len() => bytes[at] ^= 1 << random.random_range(0..8),
        _ if at < bytes.len() => bytes[at] = octet,
        _ => bytes.push(octet),
    }
}

/// Defines two tests for each target, with the number of mutants, which take 15 s to a minute on
/// two cores together.
macro_rules! targets {
    ($($target:ident: $inputs:expr,)*) => {
        mod the_corpus_holds {$(
            #[test]
            fn $target() {
                super::replay(stringify!($target), super::$target::check);
            }
        )*}

        mod mutants_hold {$(
            #[test]
            #[ignore = "takes minutes with the others: .ci/run fuzz"]
            fn $target() {
                super::mutate(stringify!($target), $inputs, super::$target::check);
            }
        )*}
    };
}

targets! {
    config: 5_000,
    control: 50_000,
    dialogue: 100_000,
    engine: 20_000,
    guard: 200_000,
    http: 75_000,
    message: 200_000,
    response: 75_000,
}
