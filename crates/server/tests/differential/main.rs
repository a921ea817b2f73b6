//! dns64d beside Unbound and BIND: the same questions, and every difference explained.
//!
//! All three ask the same upstream, an Unbound without DNS64 in front of an authority: what they
//! get is what a resolver gives, chains across zones followed, DNSSEC validated, TTLs counted
//! down in one cache. So a difference between two answers is one between two servers.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

mod ask;
mod cases;
mod compare;
mod lab;
mod script;
mod world;

#[test]
#[ignore = "needs root, NSD, Unbound and BIND: run by .ci/run net"]
fn explore() {
    use std::collections::BTreeMap;
    let world = world::World::new();
    let mut seen: BTreeMap<_, (usize, String)> = BTreeMap::new();
    println!("{} names {} questions", world.names(), world.cases.len());
    lab::run(
        |lab| {
            lab.start_upstream(&world);
            lab.start_dns64d("dns64d", lab::DNS64D, lab::RESOLVER, "");
            lab.start_unbound();
            lab.start_bind();
        },
        |_| {
            for (id, case) in world.cases.iter().enumerate() {
                let id = u16::try_from(id).unwrap();
                let [ours, unbound, bind] = [lab::DNS64D, lab::UNBOUND, lab::BIND]
                    .map(|server| ask::ask(server.into(), &case.question, id));
                for (peer, answer) in [("unbound", &unbound), ("bind", &bind)] {
                    let d = compare::differences(ours.as_ref(), answer.as_ref());
                    let e = seen.entry((case.kind, peer, d)).or_insert_with(|| {
                        (
                            0,
                            format!("{}\n   ours {ours:?}\n   peer {answer:?}", case.question),
                        )
                    });
                    e.0 += 1;
                }
            }
        },
    );
    let kinds = world.kinds();
    for ((kind, peer, d), (count, example)) in seen {
        println!("{kind} | {peer} | {d:?} | {count}/{}", kinds[kind]);
        if !d.is_empty() {
            println!("   {example}");
        }
    }
}
