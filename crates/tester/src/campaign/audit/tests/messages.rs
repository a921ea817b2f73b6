//! Forged message counts of a query.

use super::super::trials::contradiction;
use super::{honest, of_trial, trial};
use crate::trial::path::Messages;
use crate::trial::result::TrialResult;

#[test]
fn impossible_messages_of_a_typical_query_are_found() {
    let forge = |trial: &mut TrialResult, change: fn(&mut Messages)| {
        let mut typical = Messages {
            aaaa_question_ns: Some(10),
            aaaa_answer_ns: Some(20),
            response_ns: trial.rtt.p50.unwrap(),
            ..Messages::default()
        };
        change(&mut typical);
        let path = trial.path.get_or_insert_default();
        path.answered.names = trial.answers.valid;
        path.typical = Some(typical);
    };
    let mut lines = honest().1;
    let (_, result) = trial(&mut lines, 1, 1);
    forge(result, |_| ());
    assert_eq!(contradiction(result), None);
    let changes: [fn(&mut Messages); 3] = [
        |typical| typical.aaaa_answer_ns = Some(9),
        |typical| typical.a_question_ns = Some(30),
        |typical| typical.response_ns = 999_000_000,
    ];
    for change in changes {
        assert_eq!(
            of_trial(1, 1, |trial| forge(trial, change)),
            "the messages of its typical query are in an impossible order"
        );
    }
}
