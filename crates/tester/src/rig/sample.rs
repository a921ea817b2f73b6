//! Checks by a sample over the whole range of names, A and AAAA of each, whether an authority serves the same records
//! as the built-in one.

use std::net::Ipv4Addr;

use dns64_transport::clock::{Nanos, SECOND};
use dns64_wire::codes::{Rcode, Rtype};
use dns64_wire::message::{Message, Section};

use super::RigError;
use crate::authority::REPLY_LEN_MAX;
use crate::authority::answer::Authority;
use crate::lab::Blame;
use crate::lab::zone::ZoneFile;
use crate::load::query::{Edns, QUERY_BYTES, QueryTemplate};
use crate::load::transport::Protocol;
use crate::namespace::{AskedName, Cidr};
use crate::post::probe::{ProbeError, Prober};

/// Maximum number of names in a sample.
pub const SAMPLE_MAX: u64 = 64;

/// Compares the responses of the server of `prober` with those of the built-in authority, for at most `names` names;
/// returns the number of names compared.
///
/// # Errors
///
/// The first difference, or a query that remained unanswered several times.
pub fn check(prober: &Prober, zone: &ZoneFile, names: u64) -> Result<u64, RigError> {
    let mut built_in = Authority::new(zone.config.clone());
    let mut checked = 0;
    for address in sampled(zone.cidr, names) {
        for (rtype, name_of_type) in [(Rtype::A, "A"), (Rtype::AAAA, "AAAA")] {
            let expected = told(&answer(&mut built_in, zone, address, rtype));
            let found = told(&reply(prober, address, rtype)?);
            if found != expected {
                let (server, name) = (prober.server, prober.name(address));
                return Err(Blame::Server.error(format!(
                    "{server} answers the {name_of_type} query for {name} with {found}, and the built-in authority with \
                     {expected}; it must serve the zone that `dns64bench zone` writes"
                )).into());
            }
        }
        checked += 1;
    }
    Ok(checked)
}

/// Returns this number of addresses of a range, in order: the first, the last, and one from each of equal parts in
/// between, at varying positions.
fn sampled(cidr: Cidr, most: u64) -> impl Iterator<Item = Ipv4Addr> {
    let names = cidr.names();
    let count = names.min(most);
    (0..count).map(move |n| {
        let (from, to) = (names * n / count, names * (n + 1) / count);
        let index = match n {
            0 => 0,
            _ if n + 1 == count => names - 1,
            _ => from + n.wrapping_mul(GOLDEN) % (to - from),
        };
        cidr.address(index)
    })
}

/// 2^32 times the fractional part of the golden ratio: its multiples are spread evenly (Knuth, The Art of Computer
/// Programming, volume 3, section 6.4).
const GOLDEN: u64 = 2_654_435_769;

fn answer(built_in: &mut Authority, zone: &ZoneFile, address: Ipv4Addr, rtype: Rtype) -> Vec<u8> {
    let template = QueryTemplate::new(&zone.config.zone.suffix, Edns::None);
    let (mut query, mut reply) = ([0; QUERY_BYTES], vec![0; REPLY_LEN_MAX]);
    let len = template.write(0, AskedName { address, rtype }, &mut query);
    let answered = built_in.answer(&query[..len], &mut reply, Protocol::Udp);
    reply.truncate(answered.len);
    reply
}

/// Repeats a lost query: the server has just loaded its zone.
fn reply(prober: &Prober, address: Ipv4Addr, rtype: Rtype) -> Result<Vec<u8>, ProbeError> {
    let mut tries = 1;
    loop {
        match prober.reply(address, rtype, WAIT_NS) {
            Err(ProbeError::Silent(_)) if tries < TRIES_MAX => tries += 1,
            replied => return replied,
        }
    }
}

/// Formats the relevant part of a response for a DNS64 server: its RCODE and the addresses in its answer.
fn told(reply: &[u8]) -> String {
    let Ok(message) = Message::parse(reply) else {
        return "garbage".to_owned();
    };
    let mut words = Vec::new();
    if message.rcode() != Rcode::NOERROR {
        words.push(message.rcode().to_string());
    }
    if message.tc() {
        words.push("a truncated answer".to_owned());
    }
    for record in message.records() {
        match record {
            Ok(record) if record.section == Section::Answer => {
                words.push(match (record.rtype, record.a(), record.aaaa()) {
                    (Rtype::A, Some(a), _) => a.to_string(),
                    (Rtype::AAAA, _, Some(aaaa)) => aaaa.to_string(),
                    (other, _, _) => format!("a record of type {}", other.0),
                })
            }
            Ok(_) => {}
            Err(_) => words.push("garbage".to_owned()),
        }
    }
    match words.is_empty() {
        true => "no record".to_owned(),
        false => words.join(", "),
    }
}

const WAIT_NS: Nanos = SECOND;
const TRIES_MAX: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_contains_ends_and_each_part_of_range() {
        let cidr: Cidr = "10.0.0.0/8".parse().unwrap();
        let indices: Vec<u64> = sampled(cidr, 64).map(|a| cidr.index(a).unwrap()).collect();
        assert_eq!((indices[0], indices[63]), (0, (1 << 24) - 1));
        for (n, index) in indices.iter().enumerate() {
            assert_eq!(index >> 18, n as u64, "{indices:?}");
        }
        // No pattern of low bits that could hide a fault.
        let odd = indices.iter().filter(|index| *index % 2 == 1).count();
        assert!((16..48).contains(&odd), "{indices:?}");
    }

    #[test]
    fn small_range_is_sampled_completely() {
        let cidr: Cidr = "10.0.0.0/30".parse().unwrap();
        let indices: Vec<u64> = sampled(cidr, 64).map(|a| cidr.index(a).unwrap()).collect();
        assert_eq!(indices, [0, 1, 2, 3]);
        let one: Vec<Ipv4Addr> = sampled("10.0.0.7/32".parse().unwrap(), 64).collect();
        assert_eq!(one, [Ipv4Addr::new(10, 0, 0, 7)]);
    }

    #[test]
    fn responses_are_formatted_by_rcode_and_addresses() {
        let cidr: Cidr = "10.0.0.0/30".parse().unwrap();
        let zone = crate::rig::spec::Load::default();
        let zone_file = |self_test| ZoneFile {
            cidr,
            ..zone.zone_file(self_test)
        };
        let told_of = |rtype, self_test| {
            let zone = zone_file(self_test);
            let mut built_in = Authority::new(zone.config.clone());
            told(&answer(&mut built_in, &zone, cidr.first(), rtype))
        };
        assert_eq!(told_of(Rtype::A, false), "10.0.0.0");
        assert_eq!(told_of(Rtype::AAAA, false), "no record");
        assert_eq!(told_of(Rtype::AAAA, true), "2001:db8::a00:0");
        assert_eq!(told(&[]), "garbage");
    }
}
