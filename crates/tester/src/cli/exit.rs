//! The exit codes.

use crate::procedure::search::SearchEnd;
use crate::trial::fault::TesterFault;
use crate::trial::result::Outcome;

/// The DUT passed, a rate was found, the Tester is certified, or there was nothing to judge.
pub const PASSED: u8 = 0;

/// The DUT failed the criterion: a trial with a shortfall, a search in which nothing passes.
pub const FAILED: u8 = 1;

/// The command line is invalid.
pub const USAGE: u8 = 2;

/// The result is not trustworthy: an invalid trial, a failed self-test, a search that ended at the limit of the Tester.
pub const TESTER: u8 = 3;

/// The machine or the network lacks something: a permission, a port, a program.
pub const ENVIRONMENT: u8 = 4;

/// Interrupted by the user, who gets what was measured until then: 128 plus the number of SIGINT, as in shells.
pub const INTERRUPTED: u8 = 130;

/// The exit code of a trial.
pub fn of_trial(outcome: &Outcome) -> u8 {
    match outcome {
        Outcome::Passed => PASSED,
        Outcome::Failed { .. } => FAILED,
        Outcome::Invalid(fault) => of_fault(fault),
    }
}

/// The exit code of a search.
pub fn of_search(end: &SearchEnd) -> u8 {
    match end {
        SearchEnd::Found | SearchEnd::LimitedByRequest { .. } => PASSED,
        SearchEnd::NothingPasses => FAILED,
        SearchEnd::LimitedByTester { .. } | SearchEnd::TooWide { .. } => TESTER,
        SearchEnd::TesterFault { fault } => of_fault(fault),
    }
}

/// The exit code of a self-test.
pub fn of_self_test(end: &Outcome) -> u8 {
    match end {
        Outcome::Passed => PASSED,
        Outcome::Failed { .. } => TESTER,
        Outcome::Invalid(fault) => of_fault(fault),
    }
}

fn of_fault(fault: &TesterFault) -> u8 {
    match fault {
        TesterFault::Interrupted => INTERRUPTED,
        _ => TESTER,
    }
}
