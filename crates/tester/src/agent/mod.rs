//! What a host of a laboratory does for the controller, and what the two have to know of each other.

pub mod clock;
pub mod facts;
