//! One turn of an authority at a link.

use dns64_transport::{Link, LinkError};

use super::answer::Authority;
use super::ledger::Recorder;
use crate::load::transport::Protocol;

/// Answers up to about `max` queries that wait at `link`, and records when they arrived and when their replies were
/// sent. Returns the number of datagrams read, those without a reply included.
#[inline]
pub fn turn<L: Link>(
    authority: &mut Authority,
    link: &mut L,
    max: usize,
    recorder: Option<&mut Recorder>,
) -> Result<usize, LinkError> {
    let Some(recorder) = recorder else {
        return link.answer(max, |datagram, frame| {
            authority.answer(datagram.payload, frame, Protocol::Udp).len
        });
    };
    let taken = link.answer(max, |datagram, frame| {
        let reply = authority.answer(datagram.payload, frame, Protocol::Udp);
        let mark = recorder.arrived(reply.asked, datagram.at);
        if reply.len > 0 {
            recorder.leaves(mark);
        }
        reply.len
    });
    recorder.departed(link.departures());
    taken
}

#[cfg(test)]
mod tests {
    use dns64_transport::clock::ManualClock;
    use dns64_transport::memory::{Impairment, Network};

    use super::*;
    use crate::authority::zone::ZoneConfig;
    use crate::namespace::{Share, Zone};

    #[test]
    fn queries_are_answered_to_their_source_and_replies_are_ignored() {
        let query = b"\x12\x34\0\0\0\x01\0\0\0\0\0\0\x0f192-000-002-033\x01z\0\0\x01\0\x01";
        let mut authority = Authority::new(ZoneConfig {
            zone: Zone {
                suffix: "z".parse().unwrap(),
                aaaa_share: Share::NONE,
                ..Zone::default()
            },
            self_test: false,
            ttl_s: 1,
            negative_ttl_s: 1,
        });
        let network = Network::new(&ManualClock::default(), 0);
        let listen = "[2001:2::53]:53".parse().unwrap();
        let local = "[2001:2::1]:0"
            .parse::<std::net::SocketAddr>()
            .unwrap()
            .ip();
        let mut server = network.server(listen, Impairment::default());
        let mut client = network.client(local, 2, listen, Impairment::default());
        for (port, id, flags) in [(0, 1, 0), (1, 2, 0), (1, 3, 0x80)] {
            let fill = |_: usize, frame: &mut [u8]| {
                frame[..query.len()].copy_from_slice(query);
                (frame[1], frame[2]) = (id, flags);
                query.len()
            };
            assert_eq!(client.send(port, 1, fill).unwrap(), 1);
        }
        assert_eq!(turn(&mut authority, &mut server, 2, None).unwrap(), 2);
        assert_eq!(turn(&mut authority, &mut server, 2, None).unwrap(), 1);
        assert_eq!(turn(&mut authority, &mut server, 2, None).unwrap(), 0);
        let mut replies = Vec::new();
        let collect = |reply: dns64_transport::Datagram<'_>| {
            replies.push((reply.port, reply.payload[1], reply.payload[2]));
        };
        client.receive(9, collect).unwrap();
        assert_eq!(replies, [(0, 1, 0x84), (1, 2, 0x84)]);
        assert_eq!((authority.counts().a, authority.counts().ignored), (2, 1));
    }
}
