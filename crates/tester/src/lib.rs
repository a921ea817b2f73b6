//! The Tester of RFC 8219 section 9: measures DNS64 servers and proves each number.

pub mod authority;
pub mod cli;
pub mod doctor;
pub mod lab;
pub mod load;
pub mod namespace;
pub mod procedure;
pub mod report;
pub mod rig;
pub mod trial;
