//! The contents of a journal: its history with the results of all trials, borrowed from the lines.

use crate::campaign::history::{History, TaskHistory, TrialHistory};
use crate::trial::result::TrialResult;

pub(super) type Told<'a> = History<&'a TrialResult>;
pub(super) type TaskTold<'a> = TaskHistory<&'a TrialResult>;
pub(super) type TrialTold<'a> = TrialHistory<&'a TrialResult>;
