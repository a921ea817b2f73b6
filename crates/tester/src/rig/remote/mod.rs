//! Other hosts: requests to them ([`order`]), the connections to them ([`crew`]), their roles ([`site`]), servers on
//! them ([`host`]) and their clocks ([`clocks`]).

pub mod clocks;
pub mod crew;
pub mod host;
pub mod order;
pub mod site;

/// Applies `work` to all items in parallel.
pub(super) fn at_once<A: Send, B: Send>(all: Vec<A>, work: impl Fn(A) -> B + Sync) -> Vec<B> {
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
