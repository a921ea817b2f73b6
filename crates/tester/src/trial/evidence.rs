//! From the counters of hosts and links to the losses on the Tester's side, each of them once: pure
//! functions on plain numbers.
//!
//! One loss can move several counters: a queue that drops a packet, the IP layer above it, and the
//! difference between what left one host and reached the next. Of those that can be about the same packets
//! the largest counts, and a counter with a name is told before a difference.

use super::place::{Evidence, Kind, Place, Source};
use crate::lab::counters::{Counter, Layer, SEGMENTS_MAX};
use crate::lab::watch::{Change, Leg, Observed};

/// What the Tester itself knows of its datagrams.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Own {
    /// Queries that the kernel took.
    pub(super) sent: u64,
    /// Those of them that were answered, whatever with.
    pub(super) answered: u64,
    /// Queries that it did not take.
    pub(super) not_sent: u64,
    /// Queries that were still open when the trial ended early.
    pub(super) undecided: u64,
    /// Datagrams that the Measurer's sockets lost.
    pub(super) receive_drops: u64,
    /// Datagrams that the authority's sockets lost, and replies that were not taken from it.
    pub(super) authority_drops: u64,
    /// The Measurer sends and receives past the counters of its host (AF_XDP).
    pub(super) is_past_the_kernel: bool,
    /// The authority takes its questions from the driver, so that the counters of its host do not know of them.
    pub(super) authority_in_driver: bool,
}

/// The losses on the Tester's side.
pub(super) fn gather(observed: &Observed, own: &Own) -> Vec<Evidence> {
    let mut found = Vec::new();
    if let Some(leg) = &observed.client {
        client(observed, leg, own, &mut found);
    }
    for k in 0..observed.upstreams.len() {
        upstream(observed, k, own, &mut found);
    }
    let at_sockets = [
        (Place::Measurer, "Measurer", own.receive_drops),
        (Place::Authority, "authority", own.authority_drops),
    ];
    for (place, host, count) in at_sockets.into_iter().filter(|(_, _, count)| *count > 0) {
        let is_measurer = place == Place::Measurer;
        found.push(Evidence {
            place,
            kind: Kind::Sockets,
            source: Source {
                host: host.to_owned(),
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

/// All counters of losses that went on, of all hosts.
pub(super) fn counters(observed: &Observed) -> Vec<Source> {
    let of_host = |host: &Change| {
        let losses = host.most.losses();
        let sources = losses.map(|(counter, count)| host.source(counter, count));
        sources.collect::<Vec<_>>()
    };
    observed.hosts.iter().flat_map(of_host).collect()
}

/// What dropped packets that the kernel did not take from the Measurer: the queue of its link.
pub(super) fn refusing(observed: &Observed) -> Option<Source> {
    let leg = observed.client.as_ref()?;
    let near = observed.hosts.get(leg.near)?;
    let drops = near.most.of_queues(leg.link.as_deref()?, "drops");
    let (counter, count) = drops.into_iter().max_by_key(|(_, count)| *count)?;
    (count > 0).then(|| near.source(&counter, count))
}

/// Both ends of the link between Measurer and server are hosts of this lab's own, or one host, and their counters
/// could be read.
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

/// Whether the datagrams of the Measurer pass by the counters of the server's host: what was answered must have. A
/// server that takes them from the driver (XDP) leaves none for the kernel to count.
fn counts(observed: &Observed, leg: &Leg, far: usize, link: &str, own: &Own) -> bool {
    let is_other = far != leg.near && !observed.hosts[far].shared;
    let (low, _) = not_arrived(&observed.hosts[far], link, own.sent);
    !is_other || low <= own.sent.saturating_sub(own.answered)
}

/// Between Measurer and server.
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
    let there = crossing(near, far, link);
    let (low, high) = match is_watched(observed, own) {
        true => not_arrived(far, link, own.sent),
        false => (0, 0),
    };
    // Those that were lost can be among those that were still open.
    let low = low.saturating_sub(own.undecided);
    // A query that the kernel did not take was dropped before it was sent, and is not among these.
    if low > 0 || (high > 0 && there.is_some() && own.not_sent == 0) {
        let named = there.map(|(source, _)| source);
        let source = named.unwrap_or_else(|| near.difference(link, NOT_ARRIVED, low));
        found.push(lost(Place::ToDut, source, low, Some(high)));
    }
    let undelivered = |host: &Change| {
        let source = host.undelivered(Some(link), Layer::Ip6)?;
        let count = source.count;
        Some((source, count))
    };
    // What arrived past the kernel is in no counter of the Measurer's host: only counters of drops tell.
    let from_dut = match own.is_past_the_kernel {
        true => dropped(far, near, link).map(|source| (source.clone(), source.count)),
        false => crossing(far, near, link),
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
    found.extend(held(near, link, Place::ToDut));
    found.extend(held(far, link, Place::FromDut));
    found.extend(far.damaged(Place::DutHost));
}

/// Whether most questions passed by the counters of the authority's host, as they do where it takes them from the driver
/// (XDP): most queries were answered, so that they were not lost.
fn is_passed_by(near: &Change, far: &Change, link: &str, own: &Own) -> bool {
    let (sent, arrived) = (near.transmitted(Some(link), Layer::Ip6), far.received(link));
    own.answered > own.sent / 2 && arrived < sent / 2
}

/// Between DUT and one of the authorities, where a loss can cost any number of answers, or none. What is counted for a host as
/// a whole is told with the first of its links.
fn upstream(observed: &Observed, k: usize, own: &Own, found: &mut Vec<Evidence>) {
    let (leg, earlier) = (&observed.upstreams[k], &observed.upstreams[..k]);
    let (Some(link), Some(far)) = (leg.link.as_deref(), ends(observed, leg)) else {
        return;
    };
    let near = &observed.hosts[leg.near];
    let near_whole = Some(near).filter(|_| k == 0);
    let far_whole = Some(far).filter(|_| earlier.iter().all(|other| other.far != leg.far));
    // What only a difference tells, tells nothing where a server passes its host's counters by.
    let is_counted = is_watched(observed, own)
        && !own.authority_in_driver
        && !is_passed_by(near, far, link, own);
    let source = |(source, _): (Source, u64)| {
        let is_named = !source.counter.ends_with(NOT_ARRIVED);
        (is_named || is_counted).then_some(source)
    };
    // With two devices the Measurer sends from the authority's host, and knows what it could not send.
    let not_taken = far_whole.filter(|_| own.not_sent == 0);
    let there = [
        crossing(near, far, link).and_then(source),
        near_whole.and_then(|near| near.held_back(None, Layer::Ip)),
        far.undelivered(Some(link), Layer::Ip6),
        far_whole.and_then(|far| far.undelivered(None, Layer::Ip)),
    ];
    let back = [
        crossing(far, near, link).and_then(source),
        not_taken.and_then(Change::not_sent),
        far_whole.and_then(|far| far.held_back(None, Layer::Ip)),
        near.undelivered(Some(link), Layer::Ip6),
        near_whole.and_then(|near| near.undelivered(None, Layer::Ip)),
    ];
    // The first tells most.
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

/// Whether a loss between the DUT and another authority is known already.
fn is_told(found: &[Evidence]) -> bool {
    let mut losses = found.iter().filter(|it| it.kind == Kind::Lost);
    losses.any(|it| matches!(it.place, Place::ToAuthority | Place::FromAuthority))
}

/// What an interface lost on the only host that is watched. On the loopback interface it can have been
/// anybody's, on the way to the DUT, to the authority, or back.
fn on_one_host(host: &Change, link: &str, found: &mut Vec<Evidence>) {
    if link == "lo" {
        let lost_here = largest(host.leaving(link).into_iter().chain(host.arriving(link)));
        found.extend(lost_here.map(|source| lost(Place::ToDut, source, 0, None)));
        return;
    }
    // What queues dropped is known to the sockets that sent it.
    let leaving = host.leaving(link).into_iter();
    let leaving = leaving.filter(|source| source.counter.starts_with("interface "));
    let ways = [
        (Place::ToDut, largest(leaving)),
        (Place::FromDut, largest(host.arriving(link))),
    ];
    for (place, source) in ways {
        found.extend(source.map(|source| {
            let high = source.count.saturating_mul(SEGMENTS_MAX);
            lost(place, source, 0, Some(high))
        }));
    }
}

/// The far end of a leg between two hosts of the lab's own.
fn ends<'a>(observed: &'a Observed, leg: &Leg) -> Option<&'a Change> {
    let far = leg.far.filter(|far| *far != leg.near)?;
    let (near, far) = (&observed.hosts[leg.near], &observed.hosts[far]);
    let is_usable = |host: &Change| !host.shared && !host.is_unread;
    (is_usable(near) && is_usable(far)).then_some(far)
}

fn lost(place: Place, source: Source, low: u64, high: Option<u64>) -> Evidence {
    Evidence {
        place,
        kind: Kind::Lost,
        source,
        low,
        high,
    }
}

/// Packets that had to wait in a queue that limits the rate.
fn held(host: &Change, link: &str, place: Place) -> Option<Evidence> {
    let waited = host.most.of_queues(link, "overlimits").into_iter();
    let waited = waited.map(|(counter, count)| host.source(&counter, count));
    largest(waited).map(|source| Evidence {
        kind: Kind::Held,
        ..lost(place, source, 0, None)
    })
}

/// The counter of either end of a link that counts most drops on the way from one to the other.
fn dropped(from: &Change, to: &Change, link: &str) -> Option<Source> {
    largest(from.leaving(link).into_iter().chain(to.arriving(link)))
}

/// What lost packets that left one host over a link and did not reach the next, and how many those are at
/// least. What the sender's IP layer held back comes before the link; of the counters of the link each can be
/// about the same packets.
fn crossing(from: &Change, to: &Change, link: &str) -> Option<(Source, u64)> {
    let (sent, arrived) = (from.transmitted(Some(link), Layer::Ip6), to.received(link));
    let gap = sent.saturating_sub(arrived);
    let named = dropped(from, to, link);
    let on_link = named.as_ref().map_or(gap, |named| named.count.max(gap));
    let named = named.or_else(|| (gap > 0).then(|| from.difference(link, NOT_ARRIVED, gap)));
    let held_back = from.held_back(Some(link), Layer::Ip6);
    let packets = on_link + held_back.as_ref().map_or(0, |source| source.count);
    named.or(held_back).map(|source| (source, packets))
}

/// IPv4 has no counters of interfaces. What leaves all hosts and reaches none was lost between them: on the link
/// between DUT and authority, the only one with IPv4. What a host sends to itself is in both sums.
fn between_hosts(observed: &Observed) -> Option<Source> {
    let hosts = observed.hosts.iter();
    let sent: u64 = hosts.clone().map(|h| h.transmitted(None, Layer::Ip)).sum();
    let arrived: u64 = hosts.map(|h| h.most.get(&host_ip("InReceives"))).sum();
    let leg = observed.upstreams.first()?;
    let dut = observed.hosts.get(leg.near)?;
    let count = sent.saturating_sub(arrived);
    (count > 0).then(|| Source {
        // On the way to which of several, nothing tells.
        link: leg.link.clone().filter(|_| observed.upstreams.len() == 1),
        ..dut.source(&host_ip(NOT_ARRIVED), count)
    })
}

/// Datagrams of the Measurer that did not reach the IP layer of the server's host, at least and at most.
/// Segments are counted there, but so are the few ICMP messages and multicasts, such as neighbour
/// solicitations, which can be the same or not.
fn not_arrived(host: &Change, link: &str, sent: u64) -> (u64, u64) {
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

/// The largest, if it counts anything; the first of equal ones.
fn largest(sources: impl IntoIterator<Item = Source>) -> Option<Source> {
    let larger = |a: Source, b: Source| if b.count > a.count { b } else { a };
    let largest = sources.into_iter().reduce(larger);
    largest.filter(|source| source.count > 0)
}

fn host_ip(name: &str) -> Counter {
    Counter::of_host(Layer::Ip, name)
}

/// What is said in place of a counter where only the difference of two tells a loss.
const NOT_ARRIVED: &str = "packets that left and did not arrive";
const NOT_DELIVERED: &str = "packets received and not delivered (a filter?)";
const NOT_TRANSMITTED: &str = "packets made and not transmitted (a filter?)";

impl Change {
    fn source(&self, counter: &Counter, count: u64) -> Source {
        Source {
            host: self.role.clone(),
            link: counter.link.clone(),
            counter: counter.to_string(),
            count,
        }
    }

    fn difference(&self, link: &str, what: &str, count: u64) -> Source {
        self.source(&Counter::of_link(link, Layer::Ip6, what), count)
    }

    /// Packets lost on their way out of an interface. A shared host's are told by the sockets that sent them.
    fn leaving(&self, link: &str) -> Vec<Source> {
        let queues = self.most.of_queues(link, "drops").into_iter();
        let queues = queues.filter(|(counter, _)| !is_queue(counter, &["ingress"]));
        let names = ["tx_drop", "tx_errs", "tx_fifo", "tx_carrier"];
        let device = names.map(|name| Counter::of_link(link, Layer::Device, name));
        let device = device.map(|counter| (counter.clone(), self.most.get(&counter)));
        let all = queues.chain(device);
        all.map(|(counter, count)| self.source(&counter, count))
            .collect()
    }

    /// Packets lost on their way in from an interface. A real interface of a shared host also drops frames that
    /// are for nobody here (`rx_drop`), which tells nothing.
    fn arriving(&self, link: &str) -> Vec<Source> {
        let queues = self.most.of_queues(link, "drops").into_iter();
        // `clsact` has both ways.
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

    /// Packets that the IP layer handed to an interface, or to any, at least. Kernels before 6.8 do not count
    /// them; there it is what it made, less what was discarded.
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

    /// Packets that the IP layer made and did not hand on, at least.
    fn held_back(&self, link: Option<&str>, layer: Layer) -> Option<Source> {
        let ip = |name| ip_counter(link, layer.clone(), name);
        let sent = self.most.get(&ip("OutTransmits"));
        let made = self.least.get(&ip("OutRequests"));
        let count = made.saturating_sub(sent);
        // Kernels before 6.8 do not count what was sent.
        (sent > 0 && count > 0).then(|| self.source(&ip(NOT_TRANSMITTED), count))
    }

    /// Packets that arrived at the IP layer over a link, at most.
    fn received(&self, link: &str) -> u64 {
        let received = Counter::of_link(link, Layer::Ip6, "InReceives");
        self.most.get(&received)
    }

    /// Packets that the IP layer received and did not hand to UDP, TCP or ICMP, at least. Multicasts for groups
    /// that nobody has joined are not handed on. What the host forwards, as the DUT's does in a self-test, is
    /// counted where it leaves, either way.
    fn undelivered(&self, link: Option<&str>, layer: Layer) -> Option<Source> {
        let ip = |name| ip_counter(link, layer.clone(), name);
        let received = self.least.get(&ip("InReceives"));
        let delivered = self.most.get(&ip("InDelivers"));
        // IPv4 and IPv6 have different names for it.
        let forwarded = ["ForwDatagrams", "OutForwDatagrams"]
            .map(|name| self.most.get(&Counter::of_host(layer.clone(), name)));
        let known = delivered
            + forwarded.iter().sum::<u64>()
            + self.most.get(&ip("InMcastPkts"))
            + self.most.get(&ip("ReasmReqds"));
        let count = received.saturating_sub(known);
        (count > 0).then(|| self.source(&ip(NOT_DELIVERED), count))
    }

    /// Datagrams that a program of the host sent and the kernel dropped.
    fn not_sent(&self) -> Option<Source> {
        let layers = [Layer::Udp, Layer::Udp6].into_iter();
        largest(layers.map(|layer| {
            let counter = Counter::of_host(layer, "SndbufErrors");
            self.source(&counter, self.most.get(&counter))
        }))
    }

    /// Datagrams that UDP lost by checksums, or because the machine had no memory for it.
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
