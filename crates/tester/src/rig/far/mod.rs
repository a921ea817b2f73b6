//! A measurement over several hosts: what is asked of them ([`order`]), what they do then ([`post`]), and the same Tester and
//! servers as on one machine, made of them ([`tester`], [`remote`]).

pub mod any;
mod clocks;
pub mod crew;
pub mod order;
pub mod post;
pub mod preflight;
pub mod remote;
mod rig;
pub mod site;
pub mod tester;

/// Does something for each of them at the same time.
fn at_once<A: Send, B: Send>(all: Vec<A>, work: impl Fn(A) -> B + Sync) -> Vec<B> {
    let work = &work;
    std::thread::scope(|scope| {
        let begun: Vec<_> = all
            .into_iter()
            .map(|one| scope.spawn(move || work(one)))
            .collect();
        let ended = begun.into_iter().map(|thread| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ended.collect()
    })
}

#[cfg(test)]
mod tests;
