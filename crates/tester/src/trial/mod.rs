//! One trial: a rate, a duration, a timeout, and what came of it.

pub mod result;
