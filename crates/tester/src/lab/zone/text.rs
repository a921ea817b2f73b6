//! Text of a zone file. No formatting machinery is used for a record: 20 million records per second and more.

use std::io::{self, Write};
use std::net::Ipv4Addr;

use crate::authority::zone::ZoneConfig;
use crate::namespace::{self, Cidr};

/// Incremented whenever the text of a zone changes: a cached file of another version is not used.
pub(super) const VERSION: &str = "dns64bench zone 1";

/// Length of the longest line with an A record: `255-255-255-255 A 255.255.255.255`.
pub(super) const A_MAX: u64 = 34;

/// Length of a line with an AAAA record: ` AAAA 2001:db8::0a00:0001`.
pub(super) const AAAA_MAX: u64 = 26;

/// Longest head in octets: the longest name has 1004 in its text, with all its octets escaped.
pub(super) const HEAD_MAX: u64 = 1300;

/// Text is written in pieces of at least this many octets.
const PIECE: usize = 1 << 20;

/// Number of names whose addresses differ only in the last octet.
const BLOCK: u64 = 256;

/// Text of the addresses of one block up to the last octet.
struct Block {
    /// `010-000-000-`
    label: [u8; 12],
    /// `10.0.0.`
    dotted: String,
    /// ` AAAA 2001:db8::0a00:00`
    aaaa: String,
}

impl Block {
    fn of(address: Ipv4Addr) -> Self {
        let [a, b, c, _] = address.octets();
        let mut label = [0; 12];
        label.copy_from_slice(&namespace::label(address)[..12]);
        Self {
            label,
            dotted: format!("{a}.{b}.{c}."),
            aaaa: format!(" AAAA 2001:db8::{a:02x}{b:02x}:{c:02x}"),
        }
    }
}

/// Blocks of a range: the first address of each, and its range of last octets.
fn blocks(cidr: Cidr) -> impl Iterator<Item = (Ipv4Addr, std::ops::RangeInclusive<u8>)> {
    let last = cidr.names().min(BLOCK) - 1;
    (0..cidr.names().div_ceil(BLOCK)).map(move |n| {
        let first = cidr.address(n * BLOCK);
        let from = first.octets()[3];
        (first, from..=from + u8::try_from(last).unwrap_or(u8::MAX))
    })
}

fn head(config: &ZoneConfig, to: &mut Vec<u8>) -> io::Result<()> {
    let (ttl_s, negative_ttl_s) = (config.ttl_s, config.negative_ttl_s);
    writeln!(
        to,
        "$ORIGIN {}\n$TTL {ttl_s}\n\
         @ {negative_ttl_s} SOA ns hostmaster 1 3600 900 604800 {negative_ttl_s}\n\
         @ NS ns\nns A 198.18.0.2\nns AAAA 2001:2:0:2::2",
        config.zone.suffix
    )
}

/// Writes each record on a line of its own (RFC 1035 section 5).
pub(super) fn write(cidr: Cidr, config: &ZoneConfig, to: &mut impl Write) -> io::Result<()> {
    let mut text = Vec::with_capacity(PIECE + 2 * 256 * 64);
    head(config, &mut text)?;
    for (first, octets) in blocks(cidr) {
        let block = Block::of(first);
        let [a, b, c, _] = first.octets();
        for octet in octets {
            push_name(&mut text, &block, octet);
            if config.has_aaaa(Ipv4Addr::new(a, b, c, octet)) {
                push_aaaa(&mut text, &block, octet);
            }
        }
        if text.len() >= PIECE {
            to.write_all(&text)?;
            text.clear();
        }
    }
    to.write_all(&text)
}

/// `010-000-000-001 A 10.0.0.1`
fn push_name(text: &mut Vec<u8>, block: &Block, octet: u8) {
    let digits = [
        b'0' + octet / 100,
        b'0' + octet / 10 % 10,
        b'0' + octet % 10,
    ];
    text.extend_from_slice(&block.label);
    text.extend_from_slice(&digits);
    text.extend_from_slice(b" A ");
    text.extend_from_slice(block.dotted.as_bytes());
    let leading = usize::from(octet < 100) + usize::from(octet < 10);
    text.extend_from_slice(&digits[leading..]);
    text.push(b'\n');
}

/// ` AAAA 2001:db8::0a00:0001`: the name of the preceding line.
fn push_aaaa(text: &mut Vec<u8>, block: &Block, octet: u8) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    text.extend_from_slice(block.aaaa.as_bytes());
    let digits = [HEX[usize::from(octet >> 4)], HEX[usize::from(octet & 15)]];
    text.extend_from_slice(&digits);
    text.push(b'\n');
}
