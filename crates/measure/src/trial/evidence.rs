//! Derives the losses on the Tester's side from the counters of hosts and links, each loss once: pure functions on
//! plain numbers.
//!
//! One loss can increase several counters: of the queue that drops a packet, of the IP layer above it, and the
//! difference between the packets that left one host and reached the next. Among counters that can cover the same
//! packets the largest counts, and a named counter takes precedence over a difference.

use super::place::{Evidence, LossKind, Place, Source};
use crate::machine::Role;
use crate::machine::counters::{Counter, Layer, SEGMENTS_MAX};
use crate::machine::watch::{CounterChange, Leg, Observed};

/// Counters of the Tester's own datagrams.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Own {
    /// Queries that the kernel accepted.
    pub(super) sent: u64,
    /// Queries with any response.
    pub(super) answered: u64,
    /// Queries that the kernel did not accept.
    pub(super) not_sent: u64,
    /// Queries that were open when the trial ended early.
    pub(super) undecided: u64,
    /// Datagrams lost by the Measurer's sockets.
    pub(super) receive_drops: u64,
    /// Datagrams lost by the authority's sockets, and replies that the network did not accept.
    pub(super) authority_drops: u64,
    /// Queries travel on connections, which repair the loss of a packet.
    pub(super) is_stream: bool,
    /// The Measurer's datagrams bypass the counters of its host (AF_XDP).
    pub(super) is_past_the_kernel: bool,
    /// The authority takes its queries from the driver, so they bypass the counters of its host.
    pub(super) authority_in_driver: bool,
}

/// Returns the losses on the Tester's side.
pub(super) fn gather(observed: &Observed, own: &Own) -> Vec<Evidence> {
    let mut found = Vec::new();
    if let Some(leg) = &observed.client {
        client(observed, leg, own, &mut found);
    }
    for k in 0..observed.upstreams.len() {
        upstream(observed, k, own, &mut found);
    }
    let at_sockets = [
        (Place::Measurer, Role::Measurer, own.receive_drops),
        (Place::Authority, Role::Authority, own.authority_drops),
    ];
    for (place, role, count) in at_sockets.into_iter().filter(|(_, _, count)| *count > 0) {
        let is_measurer = place == Place::Measurer;
        found.push(Evidence {
            place,
            kind: LossKind::Sockets,
            source: Source {
                host: role.into(),
                link: None,
                counter: "drops of its sockets".to_owned(),
                count,
            },
            low: if is_measurer { count } else { 0 },
            high: is_measurer.then(|| count.saturating_mul(SEGMENTS_MAX)),
        });
    }
    found
}

/// Returns all loss counters of all hosts that increased.
pub(super) fn counters(observed: &Observed) -> Vec<Source> {
    let of_host = |host: &CounterChange| {
        let losses = host.most.losses();
        let sources = losses.map(|(counter, count)| host.source(counter, count));
        sources.collect::<Vec<_>>()
    };
    observed.hosts.iter().flat_map(of_host).collect()
}

/// Returns the queue of the Measurer's link that dropped packets which the kernel did not accept.
pub(super) fn refusing(observed: &Observed) -> Option<Source> {
    let leg = observed.client.as_ref()?;
    let near = observed.hosts.get(leg.near)?;
    let drops = near.most.of_queues(leg.link.as_deref()?, "drops");
    let (counter, count) = drops.into_iter().max_by_key(|(_, count)| *count)?;
    (count > 0).then(|| near.source(&counter, count))
}

/// Returns whether both ends of the link between Measurer and server are hosts of this lab, or one host, with readable
/// counters.
pub(super) fn is_watched(observed: &Observed, own: &Own) -> bool {
    observed.client.as_ref().is_some_and(|leg| {
        let is_read = |host: usize| !observed.hosts[host].is_unread;
        let counts = |far| {
            leg.link
                .as_deref()
                .is_some_and(|link| counts(observed, leg, far, link, own))
        };
        let far = leg.far.filter(|far| is_read(leg.near) && is_read(*far));
        far.is_some_and(counts)
    })
}

/// Returns whether the counters of the server's host include the Measurer's datagrams: they must include the answered
/// ones. A server that takes them from the driver (XDP) bypasses the counters of the kernel.
fn counts(observed: &Observed, leg: &Leg, far: usize, link: &str, own: &Own) -> bool {
    let is_other = far != leg.near && !observed.hosts[far].shared && !own.is_stream;
    let (low, _) = not_arrived(&observed.hosts[far], link, own.sent);
    !is_other || low <= own.sent.saturating_sub(own.answered)
}

/// Losses between Measurer and server.
fn client(observed: &Observed, leg: &Leg, own: &Own, found: &mut Vec<Evidence>) {
    let Some(link) = leg.link.as_deref() else {
        return;
    };
    let near = &observed.hosts[leg.near];
    let Some(far) = ends(observed, leg) else {
        if !near.is_unread {
            on_one_host(near, link, found);
        }
        return;
    };
    match own.is_stream {
        true => of_connections(near, far, link, found),
        false => of_datagrams(observed, (near, far, link), own, found),
    }
    found.extend(held(near, link, Place::ToDut));
    found.extend(held(far, link, Place::FromDut));
    found.extend(far.damaged(Place::DutHost));
}

/// Packets lost between two hosts are segments of connections. They are sent again, which delays any number of queries, or none.
/// Only counters of drops are usable: hosts join segments and divide them.
fn of_connections(
    near: &CounterChange,
    far: &CounterChange,
    link: &str,
    found: &mut Vec<Evidence>,
) {
    let ways = [
        (Place::ToDut, dropped(near, far, link)),
        (Place::DutHost, far.undelivered(Some(link), Layer::Ip6)),
        (Place::FromDut, dropped(far, near, link)),
        (Place::Measurer, near.undelivered(Some(link), Layer::Ip6)),
    ];
    let losses = ways.into_iter();
    found.extend(losses.filter_map(|(place, source)| Some(lost(place, source?, 0, None))));
}

/// Packets lost between two hosts are queries or responses.
fn of_datagrams(
    observed: &Observed,
    (near, far, link): (&CounterChange, &CounterChange, &str),
    own: &Own,
    found: &mut Vec<Evidence>,
) {
    let there = crossing(near, far, link);
    let (low, high) = match is_watched(observed, own) {
        true => not_arrived(far, link, own.sent),
        false => (0, 0),
    };
    // The lost queries can be among those that were still open.
    let low = low.saturating_sub(own.undecided);
    // Queries that the kernel did not accept were dropped before they were sent and are not counted here.
    if low > 0 || (high > 0 && there.is_some() && own.not_sent == 0) {
        let named = there.map(|crossing| crossing.source);
        let source = named.unwrap_or_else(|| near.difference(link, NOT_ARRIVED, low));
        found.push(lost(Place::ToDut, source, low, Some(high)));
    }
    let undelivered = |host: &CounterChange| {
        let source = host.undelivered(Some(link), Layer::Ip6)?;
        let count = source.count;
        Some((source, count))
    };
    // Received datagrams bypass the counters of the Measurer's host: only drop counters are usable.
    let from_dut = match own.is_past_the_kernel {
        true => dropped(far, near, link).map(|source| (source.clone(), source.count)),
        false => crossing(far, near, link).map(|found| (found.source, found.packets)),
    };
    let back = [
        (Place::DutHost, undelivered(far)),
        (Place::FromDut, from_dut),
        (Place::Measurer, undelivered(near)),
    ];
    for (place, loss) in back {
        if let Some((source, packets)) = loss {
            let high = packets.saturating_mul(SEGMENTS_MAX);
            found.push(lost(place, source, packets, Some(high)));
        }
    }
}

/// Returns whether most upstream queries bypassed the counters of the authority's host, as with a driver (XDP): most
/// queries were answered, so they were not lost.
fn is_passed_by(near: &CounterChange, far: &CounterChange, link: &str, own: &Own) -> bool {
    let (sent, arrived) = (near.transmitted(Some(link), Layer::Ip6), far.received(link));
    own.answered > own.sent / 2 && arrived < sent / 2
}

/// Losses between DUT and one of the authorities. Each can cost any number of answers, or none. Counters of a whole
/// host are reported with the first of its links.
fn upstream(observed: &Observed, k: usize, own: &Own, found: &mut Vec<Evidence>) {
    let (leg, earlier) = (&observed.upstreams[k], &observed.upstreams[..k]);
    let (Some(link), Some(far)) = (leg.link.as_deref(), ends(observed, leg)) else {
        return;
    };
    let near = &observed.hosts[leg.near];
    let near_whole = Some(near).filter(|_| k == 0);
    let far_whole = Some(far).filter(|_| earlier.iter().all(|other| other.far != leg.far));
    // Differences are meaningless if a server bypasses its host's counters.
    let is_counted = is_watched(observed, own)
        && !own.authority_in_driver
        && !is_passed_by(near, far, link, own);
    let source = |found: Crossing| (found.is_named || is_counted).then_some(found.source);
    // With two devices the Measurer sends from the authority's host, and has its own counter of unsent queries.
    let not_taken = far_whole.filter(|_| own.not_sent == 0);
    let there = [
        crossing(near, far, link).and_then(source),
        near_whole.and_then(|near| near.held_back(None, Layer::Ip)),
        far.undelivered(Some(link), Layer::Ip6),
        far_whole.and_then(|far| far.undelivered(None, Layer::Ip)),
    ];
    let back = [
        crossing(far, near, link).and_then(source),
        not_taken.and_then(CounterChange::not_sent),
        far_whole.and_then(|far| far.held_back(None, Layer::Ip)),
        near.undelivered(Some(link), Layer::Ip6),
        near_whole.and_then(|near| near.undelivered(None, Layer::Ip)),
    ];
    // The first one is the most specific.
    let mut there = there.into_iter().flatten().next();
    let back = back.into_iter().flatten().next();
    let is_last = k + 1 == observed.upstreams.len();
    if back.is_none() && is_counted && is_last && !is_told(found) {
        there = there.or_else(|| between_hosts(observed));
    }
    found.extend(there.map(|source| lost(Place::ToAuthority, source, 0, None)));
    found.extend(back.map(|source| lost(Place::FromAuthority, source, 0, None)));
    found.extend(held(near, link, Place::ToAuthority));
    found.extend(held(far, link, Place::FromAuthority));
    found.extend(far_whole.and_then(|far| far.damaged(Place::Authority)));
}

/// Returns whether a loss between the DUT and another authority was found.
fn is_told(found: &[Evidence]) -> bool {
    let mut losses = found.iter().filter(|it| it.kind == LossKind::Lost);
    losses.any(|it| matches!(it.place, Place::ToAuthority | Place::FromAuthority))
}

/// Losses at an interface of the only observed host. On the loopback interface they can be anybody's, on the way to the
/// DUT, to the authority, or back.
fn on_one_host(host: &CounterChange, link: &str, found: &mut Vec<Evidence>) {
    if link == "lo" {
        let lost_here = largest(host.leaving(link).into_iter().chain(host.arriving(link)));
        found.extend(lost_here.map(|source| lost(Place::ToDut, source, 0, None)));
        return;
    }
    let ways = [
        // Queue drops are already reported to the sending sockets.
        (Place::ToDut, largest(host.left_device(link))),
        (Place::FromDut, largest(host.arriving(link))),
    ];
    for (place, source) in ways {
        found.extend(source.map(|source| {
            let high = source.count.saturating_mul(SEGMENTS_MAX);
            lost(place, source, 0, Some(high))
        }));
    }
}

/// Returns the far end of a leg between two hosts of the lab.
fn ends<'a>(observed: &'a Observed, leg: &Leg) -> Option<&'a CounterChange> {
    let far = leg.far.filter(|far| *far != leg.near)?;
    let (near, far) = (&observed.hosts[leg.near], &observed.hosts[far]);
    let is_usable = |host: &CounterChange| !host.shared && !host.is_unread;
    (is_usable(near) && is_usable(far)).then_some(far)
}

fn lost(place: Place, source: Source, low: u64, high: Option<u64>) -> Evidence {
    Evidence {
        place,
        kind: LossKind::Lost,
        source,
        low,
        high,
    }
}

/// Returns the packets that waited in a rate-limiting queue.
fn held(host: &CounterChange, link: &str, place: Place) -> Option<Evidence> {
    let waited = host.most.of_queues(link, "overlimits").into_iter();
    let waited = waited.map(|(counter, count)| host.source(&counter, count));
    largest(waited).map(|source| Evidence {
        kind: LossKind::Held,
        ..lost(place, source, 0, None)
    })
}

/// Returns the counter with the most drops in one direction of a link, at either end.
fn dropped(from: &CounterChange, to: &CounterChange, link: &str) -> Option<Source> {
    largest(from.leaving(link).into_iter().chain(to.arriving(link)))
}

/// Returns the counter of the packets that left one host over a link and did not reach the next, with their minimum
/// number. Packets held back by the sender's IP layer never reach the link, so they are added. All counters of the link
/// can cover the same packets.
fn crossing(from: &CounterChange, to: &CounterChange, link: &str) -> Option<Crossing> {
    let (sent, arrived) = (from.transmitted(Some(link), Layer::Ip6), to.received(link));
    let gap = sent.saturating_sub(arrived);
    let named = dropped(from, to, link);
    let on_link = named.as_ref().map_or(gap, |named| named.count.max(gap));
    let held_back = from.held_back(Some(link), Layer::Ip6);
    let packets = on_link + held_back.as_ref().map_or(0, |source| source.count);
    let difference = || (gap > 0).then(|| from.difference(link, NOT_ARRIVED, gap));
    let is_named = named.is_some() || gap == 0;
    let source = named.or_else(difference).or(held_back)?;
    Some(Crossing {
        source,
        packets,
        is_named,
    })
}

/// Packets that left one host and did not reach the next.
struct Crossing {
    source: Source,
    /// Their minimum number.
    packets: u64,
    /// A counter shows them, not only the difference of two.
    is_named: bool,
}

/// Returns the packets that left all hosts and reached none, because IPv4 has no counters of interfaces. They were lost
/// on the link between DUT and authority, the only one with IPv4. Packets of a host to itself are in both sums.
fn between_hosts(observed: &Observed) -> Option<Source> {
    let hosts = observed.hosts.iter();
    let sent: u64 = hosts.clone().map(|h| h.transmitted(None, Layer::Ip)).sum();
    let arrived: u64 = hosts.map(|h| h.most.get(&host_ip("InReceives"))).sum();
    let leg = observed.upstreams.first()?;
    let dut = observed.hosts.get(leg.near)?;
    let count = sent.saturating_sub(arrived);
    (count > 0).then(|| Source {
        // With several upstreams the link is unknown.
        link: leg.link.clone().filter(|_| observed.upstreams.len() == 1),
        ..dut.source(&host_ip(NOT_ARRIVED), count)
    })
}

/// Returns the minimum and maximum number of the Measurer's datagrams that did not reach the IP layer of the server's
/// host. That layer counts segments, but also the few ICMP messages and multicasts, such as neighbour solicitations,
/// whose number is unknown.
fn not_arrived(host: &CounterChange, link: &str, sent: u64) -> (u64, u64) {
    let most = |layer, name| host.most.get(&Counter::of_link(link, layer, name));
    let least = |layer, name| host.least.get(&Counter::of_link(link, layer, name));
    let marks = ["InNoECTPkts", "InECT0Pkts", "InECT1Pkts", "InCEPkts"];
    let segments: u64 = marks.into_iter().map(|mark| most(Layer::Ip6, mark)).sum();
    let (icmp, multicast) = ((Layer::Icmp6, "InMsgs"), (Layer::Ip6, "InMcastPkts"));
    let others_least = least(icmp.0.clone(), icmp.1).max(least(multicast.0.clone(), multicast.1));
    let others_most = most(icmp.0, icmp.1) + most(multicast.0, multicast.1);
    let not = |others| sent.saturating_sub(segments.saturating_sub(others));
    (not(others_least), not(others_most))
}

/// Returns the largest, if it is above 0; the first of equal ones.
fn largest(sources: impl IntoIterator<Item = Source>) -> Option<Source> {
    let larger = |a: Source, b: Source| if b.count > a.count { b } else { a };
    let largest = sources.into_iter().reduce(larger);
    largest.filter(|source| source.count > 0)
}

fn host_ip(name: &str) -> Counter {
    Counter::of_host(Layer::Ip, name)
}

/// Stands for the counter if only the difference of two shows a loss.
const NOT_ARRIVED: &str = "packets that left and did not arrive";
const NOT_DELIVERED: &str = "packets received and not delivered (a filter?)";
const NOT_TRANSMITTED: &str = "packets made and not transmitted (a filter?)";

impl CounterChange {
    fn source(&self, counter: &Counter, count: u64) -> Source {
        Source {
            host: self.of.clone(),
            link: counter.link.clone(),
            counter: counter.to_string(),
            count,
        }
    }

    fn difference(&self, link: &str, what: &str, count: u64) -> Source {
        self.source(&Counter::of_link(link, Layer::Ip6, what), count)
    }

    /// Returns the packets lost on their way out of an interface. On a shared host the sending sockets report them.
    fn leaving(&self, link: &str) -> Vec<Source> {
        let queues = self.most.of_queues(link, "drops").into_iter();
        let queues = queues.filter(|(counter, _)| !is_queue(counter, &["ingress"]));
        let queues = queues.map(|(counter, count)| self.source(&counter, count));
        queues.chain(self.left_device(link)).collect()
    }

    /// Returns those that the interface lost.
    fn left_device(&self, link: &str) -> [Source; 4] {
        let names = ["tx_drop", "tx_errs", "tx_fifo", "tx_carrier"];
        names.map(|name| {
            let counter = Counter::of_link(link, Layer::Device, name);
            self.source(&counter, self.most.get(&counter))
        })
    }

    /// Returns the packets lost on their way in from an interface. A physical interface of a shared host also drops
    /// frames that are not for this host (`rx_drop`), which are irrelevant.
    fn arriving(&self, link: &str) -> Vec<Source> {
        let queues = self.most.of_queues(link, "drops").into_iter();
        // `clsact` has both directions.
        let queues = queues.filter(|(counter, _)| is_queue(counter, &["ingress", "clsact"]));
        let names: &[&str] = match self.shared && link != "lo" {
            true => &["rx_fifo", "rx_missed"],
            false => &["rx_errs", "rx_fifo", "rx_frame", "rx_drop"],
        };
        let device = names.iter().map(|name| {
            let counter = Counter::of_link(link, Layer::Device, name);
            let count = self.most.get(&counter);
            (counter, count)
        });
        let all = queues.chain(device);
        all.map(|(counter, count)| self.source(&counter, count))
            .collect()
    }

    /// Returns the minimum number of packets that the IP layer passed to one interface, or to all. Kernels before 6.8
    /// do not count them; there it is the generated packets minus the discarded ones.
    fn transmitted(&self, link: Option<&str>, layer: Layer) -> u64 {
        let ip = |name| ip_counter(link, layer.clone(), name);
        match self.least.get(&ip("OutTransmits")) {
            0 => {
                let (made, discarded) = (ip("OutRequests"), ip("OutDiscards"));
                let discarded = self.most.get(&discarded);
                self.least.get(&made).saturating_sub(discarded)
            }
            sent => sent,
        }
    }

    /// Returns the minimum number of packets that the IP layer generated and did not pass on.
    fn held_back(&self, link: Option<&str>, layer: Layer) -> Option<Source> {
        let ip = |name| ip_counter(link, layer.clone(), name);
        let sent = self.most.get(&ip("OutTransmits"));
        let made = self.least.get(&ip("OutRequests"));
        let count = made.saturating_sub(sent);
        // Kernels before 6.8 do not count transmitted packets.
        (sent > 0 && count > 0).then(|| self.source(&ip(NOT_TRANSMITTED), count))
    }

    /// Returns the maximum number of packets that arrived at the IP layer over a link.
    fn received(&self, link: &str) -> u64 {
        let received = Counter::of_link(link, Layer::Ip6, "InReceives");
        self.most.get(&received)
    }

    /// Returns the minimum number of packets that the IP layer received and did not deliver to UDP, TCP or ICMP.
    /// Multicasts for groups without members are not delivered. Packets that the host forwards, as the DUT's host does
    /// in a self-test, are counted where they leave. What comes over a link to an address of a `local` route is
    /// delivered by the loopback interface, so that no more is lost than what the whole host did not deliver.
    fn undelivered(&self, link: Option<&str>, layer: Layer) -> Option<Source> {
        let of = |link| self.received_only(link, &layer);
        let count = of(link).min(of(None));
        (count > 0).then(|| self.source(&ip_counter(link, layer.clone(), NOT_DELIVERED), count))
    }

    fn received_only(&self, link: Option<&str>, layer: &Layer) -> u64 {
        let ip = |name| ip_counter(link, layer.clone(), name);
        let received = self.least.get(&ip("InReceives"));
        let delivered = self.most.get(&ip("InDelivers"));
        // IPv4 and IPv6 use different names.
        let forwarded = ["ForwDatagrams", "OutForwDatagrams"]
            .map(|name| self.most.get(&Counter::of_host(layer.clone(), name)));
        let known = delivered
            + forwarded.iter().sum::<u64>()
            + self.most.get(&ip("InMcastPkts"))
            + self.most.get(&ip("ReasmReqds"));
        received.saturating_sub(known)
    }

    /// Returns the datagrams that a program of the host sent and the kernel dropped.
    fn not_sent(&self) -> Option<Source> {
        let layers = [Layer::Udp, Layer::Udp6].into_iter();
        largest(layers.map(|layer| {
            let counter = Counter::of_host(layer, "SndbufErrors");
            self.source(&counter, self.most.get(&counter))
        }))
    }

    /// Returns the datagrams that UDP lost by checksum errors or lack of memory.
    fn damaged(&self, place: Place) -> Option<Evidence> {
        let names = ["InCsumErrors", "MemErrors"].into_iter();
        let all = names
            .flat_map(|name| [Layer::Udp, Layer::Udp6].map(|layer| Counter::of_host(layer, name)));
        let source = largest(all.map(|counter| self.source(&counter, self.most.get(&counter))));
        source.map(|source| lost(place, source, 0, None))
    }
}

fn ip_counter(link: Option<&str>, layer: Layer, name: &str) -> Counter {
    Counter {
        link: link.map(str::to_owned),
        ..Counter::of_host(layer, name)
    }
}

fn is_queue(counter: &Counter, kinds: &[&str]) -> bool {
    matches!(&counter.layer, Layer::Queue(kind) if kinds.contains(&kind.as_str()))
}

#[cfg(test)]
mod tests;
