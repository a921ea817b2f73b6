//! The positional arguments of dns64perf++ and of dns64perf.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use dns64_transport::clock::{Nanos, SECOND};
use dns64_wire::name::NameBuf;
use ipnet::Ipv4Net;

use crate::cli::values::without_port;
use crate::lab::{Blame, LabError};
use crate::load::generator::PORT_IDS;
use crate::namespace::{Cidr, Zone};
use crate::quantity;

/// A test of dns64perf++.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Test {
    pub(super) server: SocketAddr,
    pub(super) subnet: Cidr,
    pub(super) requests: u64,
    pub(super) burst: u64,
    pub(super) threads: usize,
    pub(super) ports_each: usize,
    /// Time between two bursts of a thread.
    pub(super) delay_ns: Nanos,
    pub(super) timeout_ns: Nanos,
}

impl Test {
    /// Parses 8 arguments, 9 with the ports of each thread before the delay, or 7 without threads, as in dns64perf++
    /// 1.0.0 of 2016, which has one thread (Lencse and Bakai 2017, figure 3).
    pub(super) fn parse(arguments: &[String]) -> Result<Self, LabError> {
        let (first, threads, ports, last) = match arguments {
            [first @ .., delay, timeout] if first.len() == 5 => {
                (first, None, None, [delay, timeout])
            }
            [first @ .., threads, delay, timeout] if first.len() == 5 => {
                (first, Some(threads), None, [delay, timeout])
            }
            [first @ .., threads, ports, delay, timeout] if first.len() == 5 => {
                (first, Some(threads), Some(ports), [delay, timeout])
            }
            other => {
                return Err(Blame::Request.error(format!(
                    "{} arguments; dns64perf++ takes 8, 9 with the ports per thread, or 7 as \
                     version 1.0.0: server, port, subnet, number of requests, burst size, [number \
                     of threads, [ports per thread,]] delay between bursts in ns, timeout in s",
                    other.len()
                )));
            }
        };
        let test = Self {
            server: server(&first[0], port(&first[1])?)?,
            subnet: subnet(&first[2])?,
            requests: whole("number of requests", &first[3], 1..=1 << 32)?,
            burst: whole("burst size", &first[4], 1..=PORT_IDS)?,
            threads: match threads {
                Some(threads) => index(whole("number of threads", threads, 1..=256)?),
                None => 1,
            },
            ports_each: match ports {
                Some(ports) => index(whole("number of ports per thread", ports, 1..=16_384)?),
                None => 1,
            },
            delay_ns: whole("delay between bursts in ns", last[0], 1..=3600 * SECOND)?,
            timeout_ns: timeout(last[1])?,
        };
        test.fits()
    }

    /// Checks that the subnet has a name for each request.
    fn fits(self) -> Result<Self, LabError> {
        let (requests, subnet) = (self.requests, self.subnet);
        if requests <= subnet.names() {
            return Ok(self);
        }
        let remedy = match subnet.widened_to(requests) {
            Some(wider) => format!("use {wider}, or fewer requests"),
            None => "use fewer requests".to_owned(),
        };
        let names = subnet.names();
        Err(Blame::Request.error(format!(
            "{requests} requests need as many names and {subnet} has {names}; {remedy}"
        )))
    }
}

/// Like dns64perf++, takes any address of the range.
fn subnet(given: &str) -> Result<Cidr, LabError> {
    let net: Ipv4Net = parsed("subnet", given, "an IPv4 range such as 10.0.0.0/8")?;
    Ok(net.into())
}

/// Experiments of a run, and queries of an experiment (Lencse 2015, section II).
pub(super) const EXPERIMENTS: usize = 256;

/// A run of dns64perf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Classic {
    /// Number of the client, so that several clients query different names.
    pub(super) client: u8,
    /// Threads; a divisor of [`EXPERIMENTS`].
    pub(super) threads: usize,
    /// Timeout of each query; above zero.
    pub(super) timeout_ns: Nanos,
    pub(super) server: SocketAddr,
    /// Suffix of the names, after the first label.
    pub(super) suffix: NameBuf,
}

impl Classic {
    /// Parses 4 arguments, or 5 with the port (Lencse 2015, section IV.B).
    pub(super) fn parse(arguments: &[String]) -> Result<Self, LabError> {
        let ([client, threads, time, server], at) = match arguments {
            [client, threads, time, server] => ([client, threads, time, server], 53),
            [client, threads, time, server, at] => ([client, threads, time, server], port(at)?),
            other => {
                return Err(Blame::Request.error(format!(
                    "{} arguments; dns64perf takes 4, or 5 with the port: client number, threads, \
                     timeout in s, server, [port]",
                    other.len()
                )));
            }
        };
        let wanted = "a power of two of at most 256";
        let power = |n: &usize| EXPERIMENTS.is_multiple_of(*n);
        let count: Option<usize> = threads.parse().ok().filter(|&n| n > 0).filter(power);
        Ok(Self {
            client: parsed("client number", client, "a number from 0 to 255")?,
            threads: count.ok_or_else(|| wrong("threads", threads, wanted))?,
            timeout_ns: timeout(time)?,
            server: self::server(server, at)?,
            suffix: Zone::default().suffix,
        })
    }
}

fn server(given: &str, port: u16) -> Result<SocketAddr, LabError> {
    match without_port(given) {
        Ok(mut address) => {
            address.set_port(port);
            Ok(address)
        }
        Err(error) => Err(Blame::Request.error(format!("server: {error}"))),
    }
}

fn port(given: &str) -> Result<u16, LabError> {
    match given.parse() {
        Ok(port @ 1..) => Ok(port),
        _ => Err(wrong("port", given, "a number from 1 to 65535")),
    }
}

fn timeout(given: &str) -> Result<Nanos, LabError> {
    let seconds = given.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let value = quantity::timeout(given).ok().filter(|_| seconds);
    value.ok_or_else(|| wrong("timeout in s", given, "a number above 0 and up to 60"))
}

fn whole(what: &str, given: &str, range: RangeInclusive<u64>) -> Result<u64, LabError> {
    let value = given.parse().ok().filter(|value| range.contains(value));
    let (low, high) = range.into_inner();
    value.ok_or_else(|| wrong(what, given, &format!("a number from {low} to {high}")))
}

fn parsed<T: FromStr>(what: &str, given: &str, wanted: &str) -> Result<T, LabError> {
    given.parse().map_err(|_| wrong(what, given, wanted))
}

fn wrong(what: &str, given: &str, wanted: &str) -> LabError {
    Blame::Request.error(format!("{what} is '{given}'; {wanted} is needed"))
}

/// Converts a number that is bounded far below 2^32.
fn index(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn eight_and_nine_arguments_give_the_same_test() {
        let eight = Test::parse(&words("2001:db8::53 53 10.0.0.0/8 60000 1 2 4000 0.25")).unwrap();
        let expected = Test {
            server: "[2001:db8::53]:53".parse().unwrap(),
            subnet: "10.0.0.0/8".parse().unwrap(),
            requests: 60_000,
            burst: 1,
            threads: 2,
            ports_each: 1,
            delay_ns: 4_000,
            timeout_ns: 250_000_000,
        };
        assert_eq!(eight, expected);
        let nine = Test::parse(&words("192.0.2.53 53 10.0.0.0/8 60000 1 2 50 4000 1")).unwrap();
        assert_eq!((nine.ports_each, nine.delay_ns), (50, 4_000));
    }

    #[test]
    fn seven_arguments_of_version_1_0_0_have_one_thread() {
        // Call of the script in Lencse and Bakai (2017), figure 3, at 8192 queries per second.
        let words_of = |threads| {
            words(&format!(
                "2001:2::1 53 10.0.0.0/10 491520 1 {threads} 122070 1"
            ))
        };
        let seven = Test::parse(&words_of("")).unwrap();
        assert_eq!(seven, Test::parse(&words_of("1")).unwrap());
        assert_eq!((seven.threads, seven.delay_ns), (1, 122_070));
        assert_ne!(seven, Test::parse(&words_of("2")).unwrap());
    }

    /// Both are valid for dns64perf++: it ignores the bits beyond the length.
    #[test]
    fn subnet_is_around_its_address_and_bursts_are_large() {
        let test = Test::parse(&words("::1 53 10.1.2.3/8 60000 1000 1 1000000 1")).unwrap();
        assert_eq!(test.subnet, "10.0.0.0/8".parse().unwrap());
        assert_eq!(test.burst, 1000);
    }

    #[test]
    fn invalid_argument_is_named_in_the_error() {
        let told = |line: &str| Test::parse(&words(line)).unwrap_err().to_string();
        for (line, text) in [
            ("::1 53", "2 arguments; dns64perf++ takes 8, 9 with"),
            ("1 2 3 4 5 6 7 8 9 10", "10 arguments"),
            ("1 2 3 4 5 6", "6 arguments"),
            (
                "::1 53 10.0.0.0/8 6 1 0 1",
                "delay between bursts in ns is '0'",
            ),
            (
                "host 53 10.0.0.0/8 6 1 1 1 1",
                "server: \"host\" is not an address; write it like",
            ),
            (
                "::1 0 10.0.0.0/8 6 1 1 1 1",
                "port is '0'; a number from 1 to 65535",
            ),
            (
                "::1 53 10.0.0.0 6 1 1 1 1",
                "subnet is '10.0.0.0'; an IPv4 range",
            ),
            ("::1 53 10.0.0.0/8 -6 1 1 1 1", "number of requests is '-6'"),
            (
                "::1 53 10.0.0.0/8 6 65537 1 1 1",
                "burst size is '65537'; a number from 1 to 65536",
            ),
            ("::1 53 10.0.0.0/8 6 1 0 1 1", "number of threads is '0'"),
            (
                "::1 53 10.0.0.0/8 6 1 1 0 1 1",
                "number of ports per thread is '0'",
            ),
            (
                "::1 53 10.0.0.0/8 6 1 1 0 1",
                "delay between bursts in ns is '0'",
            ),
            ("::1 53 10.0.0.0/8 6 1 1 1 61", "timeout in s is '61'"),
            ("::1 53 10.0.0.0/8 6 1 1 1 1h", "timeout in s is '1h'"),
            (
                "::1 53 10.0.0.0/24 257 1 1 1 1",
                "257 requests need as many names and 10.0.0.0/24 has 256; use 10.0.0.0/23",
            ),
        ] {
            assert!(told(line).starts_with(text), "{line}: {}", told(line));
        }
    }

    #[test]
    fn arguments_of_dns64perf_are_read() {
        let classic = Classic::parse(&words("1 4 1 2001:db8::53")).unwrap();
        let expected = Classic {
            client: 1,
            threads: 4,
            timeout_ns: SECOND,
            server: "[2001:db8::53]:53".parse().unwrap(),
            suffix: "dns64perf.test.".parse().unwrap(),
        };
        assert_eq!(classic, expected);
        assert_eq!(
            Classic::parse(&words("1 4 1 ::1 5353"))
                .unwrap()
                .server
                .port(),
            5353
        );
        let told = |line: &str| Classic::parse(&words(line)).unwrap_err().to_string();
        assert!(told("256 4 1 ::1").starts_with("client number is '256'"));
        assert!(told("1 3 1 ::1").ends_with("a power of two of at most 256 is needed"));
        assert!(told("1 0 1 ::1").starts_with("threads is '0'"));
        assert!(told("1 4 0 ::1").starts_with("timeout in s is '0'"));
        assert!(told("1 4 1").starts_with("3 arguments; dns64perf takes 4"));
    }
}
