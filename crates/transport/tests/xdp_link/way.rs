//! The way back: a response goes where its own query came from.

use std::num::NonZeroU32;
use std::os::fd::OwnedFd;

use dns64_transport::xdp::Attachment;
use dns64_transport::xdp::relay::XdpRelay;
use dns64_transport::{ClientSide, Origin, Relay};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketType};

use super::*;

/// MAC addresses of a client, and of somebody else on its link who uses its IP address.
const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 0x53], [2, 0, 0, 0, 0, 0x66]];

/// A client at the first end that sends from both MAC addresses.
struct Client {
    pair: Pair,
    socket: UdpSocket,
    /// Sees all frames of its end.
    frames: OwnedFd,
    mac_of_server: String,
    server: SocketAddr,
}

impl Client {
    fn new(name: &str) -> Self {
        let pair = Pair::new(name);
        let link = ip(&format!("-n {} -o link show wire", pair.0[1]));
        let mut words = link.split(' ').skip_while(|word| *word != "link/ether");
        let mac_of_server = words.nth(1).unwrap().to_owned();
        let (socket, frames) = pair.enter(0, || {
            let every = NonZeroU32::new(u32::from(3_u16.to_be())).map(Protocol::from_raw);
            let frames = rustix::net::socket(AddressFamily::PACKET, SocketType::RAW, every);
            (UdpSocket::bind((V4[0], 4000)).unwrap(), frames.unwrap())
        });
        Self {
            pair,
            socket,
            frames,
            mac_of_server,
            server: SocketAddr::new(V4[1].parse().unwrap(), 53),
        }
    }

    /// Sends a datagram with one octet from each MAC address: the index of the address.
    fn ask_from_both(&self) {
        let left = &self.pair.0[0];
        for (number, mac) in (0..).zip(MACS) {
            let mac = mac.map(|octet| format!("{octet:02x}")).join(":");
            ip(&format!("-n {left} link set wire address {mac}"));
            let (to, lladdr) = (self.server.ip(), &self.mac_of_server);
            ip(&format!(
                "-n {left} neighbour replace {to} lladdr {lladdr} dev wire nud permanent"
            ));
            self.socket.send_to(&[number], self.server).unwrap();
        }
    }

    /// The destination and the payload of the next two frames from port 53.
    fn answers(&self) -> Vec<([u8; 6], u8)> {
        let mut found = Vec::new();
        let mut frame = [0; 2048];
        until(|| {
            let got = rustix::net::recv(&self.frames, &mut frame[..], RecvFlags::DONTWAIT);
            if let Ok((len, _)) = got
                && frame[12..14] == [8, 0]
                && frame[34..36] == [0, 53]
            {
                found.push((frame[..6].try_into().unwrap(), frame[42..len][0]));
            }
            found.len() == MACS.len()
        });
        found
    }
}

fn expected() -> Vec<([u8; 6], u8)> {
    MACS.into_iter().zip(0..).collect()
}

#[test]
#[ignore = "needs root: run by .ci/run driver"]
fn late_reply_of_a_link_goes_to_the_mac_of_its_own_query() {
    let client = Client::new("way-link");
    let listen = || XdpLink::server(client.server, false, &Options::default());
    let mut link = told(client.pair.enter(1, listen));
    client.ask_from_both();
    let mut waiting = Vec::new();
    until(|| {
        let keep = |datagram: dns64_transport::Datagram<'_>, _: &mut [u8]| {
            waiting.push((datagram.origin(), datagram.payload[0]));
            0
        };
        link.answer(8, keep).unwrap();
        waiting.len() == MACS.len()
    });
    let mut left = waiting.into_iter();
    let reply = |frame: &mut [u8]| {
        let (origin, payload) = left.next()?;
        frame[0] = payload;
        Some((origin, 1))
    };
    assert_eq!(link.reply(reply).unwrap(), MACS.len());
    assert_eq!(client.answers(), expected());
}

#[test]
#[ignore = "needs root: run by .ci/run driver"]
fn late_reply_of_a_relay_goes_to_the_mac_of_its_own_query() {
    let client = Client::new("way-relay");
    let attachments = [Attachment {
        interface: "wire".into(),
        mode: Mode::Auto,
        force: false,
    }];
    let open = || XdpRelay::open(&[client.server], false, &attachments, Part::WHOLE);
    let mut relay = told(client.pair.enter(1, open));
    client.ask_from_both();
    let mut waiting = Vec::new();
    until(|| {
        let keep = |origin: &Origin, query: &[u8], _: &mut [u8]| {
            waiting.push((*origin, query[0]));
            0
        };
        relay.wait(1_000_000).unwrap();
        ClientSide::receive(relay.clients(), 8, keep).unwrap();
        waiting.len() == MACS.len()
    });
    for (origin, payload) in waiting {
        ClientSide::reply(relay.clients(), &origin, |frame| {
            frame[0] = payload;
            1
        });
    }
    ClientSide::flush(relay.clients());
    assert_eq!(client.answers(), expected());
}

#[test]
#[ignore = "needs root: run by .ci/run driver"]
fn interface_that_hides_vlan_tags_is_refused_by_servers() {
    let pair = Pair::new("tags");
    let server = SocketAddr::new(V4[1].parse().unwrap(), 53);
    let open = || pair.enter(1, || XdpLink::server(server, false, &Options::default()));
    assert!(open().is_ok());
    for feature in ["rx-vlan-hw-parse", "rx-vlan-stag-hw-parse"] {
        let switch = |state: &str| {
            let command = format!("netns exec {} ethtool -K wire {feature} {state}", pair.0[1]);
            ip(&command);
        };
        switch("on");
        let refused = open().err();
        let is_refused = matches!(&refused, Some(OpenError::Xdp(XdpError::HiddenTags { interface })) if interface == "wire");
        assert!(is_refused, "{feature}: {refused:?}");
        switch("off");
        assert!(open().is_ok());
    }
}

#[test]
#[ignore = "needs root: run by .ci/run driver"]
fn port_of_a_bridge_is_refused_by_servers() {
    let pair = Pair::new("port");
    let right = &pair.0[1];
    ip(&format!("-n {right} link add above type bridge"));
    ip(&format!("-n {right} link set wire master above"));
    let server = SocketAddr::new(V4[1].parse().unwrap(), 53);
    let refused = pair.enter(1, || {
        XdpLink::server(server, false, &Options::default()).err()
    });
    let is_refused = matches!(&refused, Some(OpenError::Xdp(XdpError::Subordinate { interface })) if interface == "wire");
    assert!(is_refused, "{refused:?}");
}
