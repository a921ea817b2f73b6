//! The built program under attack, on loopback: hostile clients, hostile upstreams, hostile loads.
//!
//! - `queries`: what clients send in datagrams; `streams`: over connections;
//! - `replies`: what upstreams, or others in their name, say;
//! - `pressure`: more than there is room for, and upstreams that say nothing;
//! - `flood`: what costs the most, from a stranger;
//! - `overload`: what the operators' page says of all this, measured;
//! - `soak`: all of it for as long as is wanted;
//! - `packets`, `upstream`, `victim`: what the attacks are made of.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod flood;
mod overload;
mod packets;
mod pressure;
mod queries;
mod replies;
mod soak;
mod streams;
#[path = "../support/mod.rs"]
mod support;
mod upstream;
mod victim;
