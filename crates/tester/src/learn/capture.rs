//! Packets of a capture: pcap and pcapng.

use std::io::Read;
use std::net::IpAddr;

use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket, TransportSlice};
use pcap_parser::{Block, Linktype, PcapBlockOwned, PcapError, create_reader};

use super::At;
use super::trace::{Carrier, Seen, Trace};
use crate::lab::LabError;

/// Largest block of a capture: a packet has at most 256 KiB.
const BLOCK_MAX: usize = 1 << 20;

const DNS: u16 = 53;
const DNS_OVER_TLS: u16 = 853;

/// An interface of a capture.
#[derive(Clone, Copy)]
struct Interface {
    link: Linktype,
    /// Units of its timestamps in a second.
    resolution: u64,
    offset_s: i64,
}

/// Reads all packets, or as many as a trace has room for.
pub(super) fn read(input: impl Read + Send, trace: &mut Trace) -> Result<(), LabError> {
    let mut offset = 0;
    let damaged = |offset, error: PcapError<&[u8]>| {
        let what = match error {
            PcapError::NomError(_, kind) => format!("not a block of a capture ({kind:?})"),
            other => other.to_string(),
        };
        let remedy = "capture again, or repair it, for example by `editcap`";
        super::damaged(At::Octet(offset), what, remedy)
    };
    let mut reader = create_reader(BLOCK_MAX, input).map_err(|error| damaged(0, error))?;
    let mut interfaces = Vec::new();
    while !trace.is_full() {
        match reader.next() {
            Ok((length, block)) => {
                self::block(block, &mut interfaces, trace);
                reader.consume(length);
                offset += length as u64;
            }
            Err(PcapError::Eof) => return Ok(()),
            Err(PcapError::Incomplete(_)) => {
                // Otherwise refilling has no effect.
                if reader.data().len() >= BLOCK_MAX {
                    return Err(damaged(offset, PcapError::BufferTooSmall));
                }
                reader.refill().map_err(|error| damaged(offset, error))?;
            }
            Err(error) => return Err(damaged(offset, error)),
        }
    }
    Ok(())
}

fn block(block: PcapBlockOwned<'_>, interfaces: &mut Vec<Interface>, trace: &mut Trace) {
    match block {
        PcapBlockOwned::LegacyHeader(header) => interfaces.push(Interface {
            link: header.network,
            resolution: 1,
            offset_s: 0,
        }),
        PcapBlockOwned::Legacy(it) => {
            let link = interfaces.first().map(|interface| interface.link);
            packet(Some(it.ts_sec.into()), link, it.data, trace);
        }
        // Each section has its own interfaces.
        PcapBlockOwned::NG(Block::SectionHeader(_)) => interfaces.clear(),
        PcapBlockOwned::NG(Block::InterfaceDescription(it)) => interfaces.push(Interface {
            link: it.linktype,
            resolution: it.ts_resolution().unwrap_or(1_000_000).max(1),
            offset_s: it.if_tsoffset,
        }),
        PcapBlockOwned::NG(Block::EnhancedPacket(it)) => {
            let interface = usize::try_from(it.if_id).ok();
            let interface = interface.and_then(|number| interfaces.get(number));
            let units = u64::from(it.ts_high) << 32 | u64::from(it.ts_low);
            let at_s = interface.and_then(|interface| {
                let since = units / interface.resolution;
                since.checked_add_signed(interface.offset_s)
            });
            let octets = captured(it.data, it.caplen);
            packet(
                at_s,
                interface.map(|interface| interface.link),
                octets,
                trace,
            );
        }
        PcapBlockOwned::NG(Block::SimplePacket(it)) => {
            let link = interfaces.first().map(|interface| interface.link);
            packet(None, link, captured(it.data, it.origlen), trace);
        }
        PcapBlockOwned::NG(_) => {}
    }
}

/// Returns a packet without the padding of its block.
fn captured(data: &[u8], length: u32) -> &[u8] {
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    &data[..length.min(data.len())]
}

fn packet(at_s: Option<u64>, link: Option<Linktype>, octets: &[u8], trace: &mut Trace) {
    let Some(sliced) = link.and_then(|link| sliced(link, octets)) else {
        return trace.other();
    };
    let source = match &sliced.net {
        Some(LaxNetSlice::Ipv4(it)) => Some(IpAddr::V4(it.header().source_addr())),
        Some(LaxNetSlice::Ipv6(it)) => Some(IpAddr::V6(it.header().source_addr())),
        Some(LaxNetSlice::Arp(_)) | None => None,
    };
    let seen = |carrier, octets| Seen {
        at_s,
        client: source,
        carrier,
        octets,
    };
    match &sliced.transport {
        Some(TransportSlice::Udp(it))
            if [it.source_port(), it.destination_port()].contains(&DNS) =>
        {
            trace.message(&seen(Carrier::Udp, it.payload()));
        }
        Some(TransportSlice::Tcp(it))
            if [it.source_port(), it.destination_port()].contains(&DNS) =>
        {
            // Messages that are in one segment each, as most queries are.
            let mut rest = it.payload();
            while let Some((length, after)) = rest.split_first_chunk() {
                let length = usize::from(u16::from_be_bytes(*length));
                let Some(octets) = after.get(..length) else {
                    return trace.other();
                };
                trace.message(&seen(Carrier::Tcp, octets));
                rest = &after[length..];
            }
        }
        Some(TransportSlice::Tcp(it))
            if it.destination_port() == DNS_OVER_TLS && it.syn() && !it.ack() =>
        {
            trace.encrypted();
        }
        _ => trace.other(),
    }
}

/// Splits a packet into its layers, as far as it has them.
fn sliced(link: Linktype, octets: &[u8]) -> Option<LaxSlicedPacket<'_>> {
    let of_type = |at: usize, header: usize| {
        let ether_type = octets.get(at..)?.first_chunk()?;
        let ether_type = EtherType(u16::from_be_bytes(*ether_type));
        Some(LaxSlicedPacket::from_ether_type(
            ether_type,
            octets.get(header..)?,
        ))
    };
    match link {
        Linktype::ETHERNET => LaxSlicedPacket::from_ethernet(octets).ok(),
        Linktype::RAW | Linktype::IPV4 | Linktype::IPV6 => LaxSlicedPacket::from_ip(octets).ok(),
        Linktype::NULL | Linktype::LOOP => LaxSlicedPacket::from_ip(octets.get(4..)?).ok(),
        Linktype::LINUX_SLL => of_type(14, 16),
        Linktype::LINUX_SLL2 => of_type(0, 20),
        _ => None,
    }
}
