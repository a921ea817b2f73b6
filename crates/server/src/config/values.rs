//! Parses single values. Errors are texts: the value, the bound, the remedy.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use dns64_transport::clock::{Nanos, SECOND};
use dns64_wire::name::NameBuf;
use dns64_wire::pref64::{Pref64, Pref64Error};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::keys::{listed, nearest};

pub(super) const MILLISECOND: Nanos = SECOND / 1_000;
pub(super) const MINUTE: Nanos = 60 * SECOND;
pub(super) const HOUR: Nanos = 60 * MINUTE;
pub(super) const DAY: Nanos = 24 * HOUR;

pub(super) const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;
pub(super) const GIB: u64 = 1 << 30;

/// Units of durations, largest first.
const TIME_UNITS: [(&str, u64); 5] = [
    ("d", DAY),
    ("h", HOUR),
    ("m", MINUTE),
    ("s", SECOND),
    ("ms", MILLISECOND),
];

/// Units of memory, largest first.
const SIZE_UNITS: [(&str, u64); 3] = [("GiB", GIB), ("MiB", MIB), ("KiB", KIB)];

/// Parses a duration with its unit: "800ms", "1.5s", "1h".
pub(super) fn time(text: &str, bounds: RangeInclusive<Nanos>) -> Result<Nanos, String> {
    let example = "\"800ms\", \"2s\" or \"1h\"";
    let ns = with_unit(text, &TIME_UNITS, "time", example)?;
    within(ns, &bounds, |ns| in_units(ns, &TIME_UNITS))
        .map_err(|wrong| format!("{text:?} {wrong}"))?;
    Ok(ns)
}

/// Parses a duration in whole seconds, with its unit.
pub(super) fn seconds(text: &str, bounds: RangeInclusive<u32>) -> Result<u32, String> {
    let (least, most) = (u64::from(*bounds.start()), u64::from(*bounds.end()));
    let ns = time(text, least * SECOND..=most * SECOND)?;
    match u32::try_from(ns / SECOND) {
        Ok(s) if ns.is_multiple_of(SECOND) => Ok(s),
        _ => Err(format!(
            "{text:?} is not a whole number of seconds; write it like \"30s\" or \"1h\""
        )),
    }
}

/// Parses a size with its unit: "256MiB".
pub(super) fn size(text: &str, bounds: RangeInclusive<u64>) -> Result<u64, String> {
    let octets = with_unit(text, &SIZE_UNITS, "size", "\"64MiB\" or \"1GiB\"")?;
    within(octets, &bounds, |octets| in_units(octets, &SIZE_UNITS))
        .map_err(|wrong| format!("{text:?} {wrong}"))?;
    Ok(octets)
}

/// Parses a number with one of these units; returns it in the smallest unit's base.
fn with_unit(text: &str, units: &[(&str, u64)], what: &str, example: &str) -> Result<u64, String> {
    let at = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let unit = unit.trim();
    let names: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
    if number.is_empty() {
        return Err(format!("{text:?} is not a {what}; write it like {example}"));
    }
    if unit.is_empty() {
        return Err(format!(
            "{text:?} has no unit; add one of {}, like {example}",
            listed(&names)
        ));
    }
    let Some((_, scale)) = units.iter().find(|(name, _)| *name == unit) else {
        return Err(format!(
            "{text:?} has the unit {unit:?}, which is not one of {}; write it like {example}",
            listed(&names)
        ));
    };
    scaled(number, *scale)
        .ok_or_else(|| format!("{text:?} is not a {what}; write it like {example}"))
}

/// A decimal number times a scale; saturates at the maximum. `None` if the text is not a number or the result is not a
/// whole number.
fn scaled(number: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if whole.is_empty() || fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let whole = whole.parse::<u64>().unwrap_or(u64::MAX);
    let fraction = fraction.trim_end_matches('0');
    let digits = u32::try_from(fraction.len()).ok()?;
    let parts = 10_u128.checked_pow(digits)?;
    let fraction = match fraction {
        "" => 0,
        digits => digits.parse::<u128>().ok()?,
    };
    let product = fraction.checked_mul(u128::from(scale))?;
    let product = product.is_multiple_of(parts).then_some(product / parts)?;
    let product = u64::try_from(product).ok()?;
    Some(whole.saturating_mul(scale).saturating_add(product))
}

/// A number in the largest unit that gives a whole number.
fn in_units(number: u64, units: &[(&str, u64)]) -> String {
    units
        .iter()
        .find(|(_, scale)| number > 0 && number.is_multiple_of(*scale))
        .map_or_else(
            || number.to_string(),
            |(name, scale)| format!("{}{name}", number / scale),
        )
}

/// Describes the fault of a number outside its bounds.
pub(super) fn within(
    number: u64,
    bounds: &RangeInclusive<u64>,
    show: impl Fn(u64) -> String,
) -> Result<(), String> {
    let (least, most) = (show(*bounds.start()), show(*bounds.end()));
    if number < *bounds.start() {
        Err(format!("is below {least}: must be {least} to {most}"))
    } else if number > *bounds.end() {
        Err(format!("is above {most}: must be {least} to {most}"))
    } else {
        Ok(())
    }
}

/// Parses an address with a port, or without one for the default port.
pub(super) fn address(text: &str, default_port: u16) -> Result<SocketAddr, String> {
    dns64_transport::address::parse(text, default_port).map_err(|error| error.to_string())
}

/// Parses a network of clients, or one address. IPv4-mapped networks are refused: clients with such addresses count as
/// IPv4.
pub(super) fn network(text: &str) -> Result<IpNet, String> {
    let net = any_network(text)?;
    let IpNet::V6(v6) = net else {
        return Ok(net);
    };
    let Some(ipv4) = v6.addr().to_ipv4_mapped() else {
        return Ok(net);
    };
    match v6.prefix_len().checked_sub(MAPPED_LEN) {
        Some(len) => Err(format!(
            "{text:?} is a network of IPv4-mapped addresses, which count as IPv4; write \
             \"{ipv4}/{len}\""
        )),
        None => Ok(net),
    }
}

/// Number of bits before the IPv4 address in an IPv4-mapped address (RFC 4291 section 2.5.5.2).
const MAPPED_LEN: u8 = 96;

/// Parses an IPv4 network.
pub(super) fn ipv4_network(text: &str) -> Result<Ipv4Net, String> {
    match any_network(text)? {
        IpNet::V4(net) => Ok(net),
        IpNet::V6(_) => Err(format!(
            "{text:?} is an IPv6 network where IPv4 is expected; write it like \"10.0.0.0/8\""
        )),
    }
}

/// Parses a network of AAAA records.
pub(super) fn ipv6_network(text: &str) -> Result<Ipv6Net, String> {
    if text == "::ffff/96" {
        // The notation of RFC 6147 section 5.1.4; by RFC 4291 it would mean ::/96.
        return Err(
            "\"::ffff/96\" is not the network of the IPv4-mapped addresses, though RFC 6147 \
             writes it so; write \"::ffff:0:0/96\""
                .to_owned(),
        );
    }
    match any_network(text)? {
        IpNet::V6(net) => Ok(net),
        IpNet::V4(_) => Err(format!(
            "{text:?} is an IPv4 network where IPv6 is expected; write it like \
             \"::ffff:0:0/96\""
        )),
    }
}

fn any_network(text: &str) -> Result<IpNet, String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(address.into());
    }
    let net: IpNet = text.parse().map_err(|_| {
        format!("{text:?} is not a network; write it like \"10.0.0.0/8\" or \"2001:db8::/32\"")
    })?;
    let trunc = net.trunc();
    if trunc != net {
        let len = net.prefix_len();
        return Err(format!(
            "{text:?} has bits set after its first {len}; write \"{trunc}\", or \"{}\" for that \
             address alone",
            net.addr()
        ));
    }
    Ok(net)
}

/// Parses a prefix for IPv4 addresses (RFC 6052). Prefixes that no translator can use are refused.
pub(super) fn prefix(text: &str) -> Result<Pref64, String> {
    let prefix: Pref64 = text.parse().map_err(|error| match error {
        Pref64Error::Length { len } => {
            format!("length {len} is not one of 32, 40, 48, 56, 64 and 96; use one of these")
        }
        other => other.to_string(),
    })?;
    routed(prefix, text)
}

/// Refuses a prefix that no packet to a translator has.
pub(super) fn routed(prefix: Pref64, text: &str) -> Result<Pref64, String> {
    let own = Ipv6Net::new_assert(prefix.addr(), prefix.prefix_len());
    let known = Ipv6Net::new_assert(Pref64::WELL_KNOWN.addr(), Pref64::WELL_KNOWN.prefix_len());
    if own != known && own.contains(&known) {
        return Err(format!(
            "{text:?} contains the well-known prefix, which has length 96 only (RFC 6052 section 2.1); write {known:?}, \
             or use a prefix of your own, or one of 64:ff9b:1::/48 (RFC 8215)",
            known = known.to_string()
        ));
    }
    let taken = NO_PREFIX.into_iter().find_map(|(first, len, what)| {
        let net = Ipv6Net::new_assert(first, len);
        (net.contains(&own) || own.contains(&net)).then_some((net, what))
    });
    match taken {
        None => Ok(prefix),
        Some((net, what)) => Err(format!(
            "{text:?} overlaps {net}, the {what} addresses, which are not routed to a translator; \
             use the prefix of your NAT64, like \"64:ff9b::/96\""
        )),
    }
}

/// IPv6 networks that are never the destination of a packet to a translator (RFC 4291 section 2.4).
const NO_PREFIX: [(Ipv6Addr, u8, &str); 4] = [
    // Including unspecified and loopback: RFC 4291 section 2.5.5.1.
    (Ipv6Addr::UNSPECIFIED, MAPPED_LEN, "IPv4-compatible"),
    // RFC 4291 section 2.5.5.2.
    (
        Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0),
        MAPPED_LEN,
        "IPv4-mapped",
    ),
    // RFC 4291 section 2.5.6.
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, "link-local"),
    // RFC 4291 section 2.7.
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, "multicast"),
];

/// Parses a domain, which includes all names below it.
pub(super) fn domain(text: &str) -> Result<NameBuf, String> {
    if let Some(below) = text.strip_prefix("*.") {
        return Err(format!(
            "{text:?} has a wildcard, but a domain stands for all names below it anyway; write \
             {below:?}"
        ));
    }
    if !text.is_ascii() {
        return Err(format!(
            "{text:?} has letters that are not ASCII; write their labels as xn--..."
        ));
    }
    text.parse().map_err(|error| format!("{text:?}: {error}"))
}

/// A range of ports, `FIRST-LAST`.
pub(super) fn ports(text: &str) -> Result<RangeInclusive<u16>, String> {
    let range = text.split_once('-').and_then(|(first, last)| {
        let [first, last] = [first, last].map(|port| port.trim().parse::<u16>().ok());
        Some(first?..=last?)
    });
    let range = range.filter(|range| !range.is_empty());
    range.ok_or_else(|| format!("{text:?} is not a range of ports; write it like \"6000-6100\""))
}

/// Parses the absolute path of a file.
pub(super) fn absolute_path(path: &str, example: &str) -> Result<PathBuf, String> {
    match path.starts_with('/') && !path.contains('\0') {
        true => Ok(path.into()),
        false => Err(format!(
            "{path:?} is not an absolute path; write it like {example:?}"
        )),
    }
}

/// Parses one of some words.
pub(super) fn choice<T: Copy>(text: &str, words: &[(&str, T)]) -> Result<T, String> {
    if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
        return Ok(*value);
    }
    let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
    let remedy = nearest(text, names.iter().copied()).map_or_else(
        || "use one of these".to_owned(),
        |near| format!("did you mean {near:?}?"),
    );
    Err(format!(
        "{text:?} is not one of {}; {remedy}",
        listed(&names)
    ))
}

/// Parses the address of one server.
pub(crate) fn upstream_address(text: &str) -> Result<SocketAddr, String> {
    server_address(text, DNS_PORT)
}

/// Parses the address of one server, with a port or for this one.
pub(super) fn server_address(text: &str, default_port: u16) -> Result<SocketAddr, String> {
    let address = address(text, default_port)?;
    let ip = address.ip();
    if ip.is_unspecified() || ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST) {
        return Err(format!(
            "{text:?} is not the address of one server; write that of a recursive resolver"
        ));
    }
    Ok(address)
}

/// Parses a source address.
pub(super) fn source(text: &str) -> Result<IpAddr, String> {
    let found = text.parse::<IpAddr>().ok();
    let found = found.filter(|ip| !ip.is_unspecified() && !ip.is_multicast());
    found.ok_or_else(|| {
        format!("{text:?} is not an address of an interface; write one like \"192.0.2.1\", without a port")
    })
}

/// Checks the name of an interface by the rules of the kernel (`dev_valid_name`).
pub(super) fn interface(name: &str) -> Result<String, String> {
    let is_bad = |c: char| c.is_whitespace() || c == '/' || c == ':' || c == '\0';
    if name.is_empty() || name.len() > 15 || [".", ".."].contains(&name) || name.contains(is_bad) {
        return Err(format!(
            "{name:?} is not the name of an interface; `ip link` lists those of this host"
        ));
    }
    Ok(name.to_owned())
}

/// The port of DNS (RFC 1035 section 4.2).
pub(super) const DNS_PORT: u16 = 53;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units_and_may_have_decimals() {
        let read = |text| time(text, 0..=DAY);
        assert_eq!(read("800ms"), Ok(800 * MILLISECOND));
        assert_eq!(read("1.5s"), Ok(1_500 * MILLISECOND));
        assert_eq!(read("1 h"), Ok(HOUR));
        assert_eq!(read("0s"), Ok(0));
        assert_eq!(read("1d"), Ok(DAY));
        assert_eq!(read("0.000001ms"), Ok(1));
        for bad in [
            "",
            "s",
            "-1s",
            "1..5s",
            "1.s",
            ".5s",
            "1e3s",
            "5x",
            "5",
            "2d",
            "0.0000001ms",
            "99999999999999999999d",
            "0.00000000000000000000000000000000000000000000000001s",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert_eq!(seconds("2m", 0..=300), Ok(120));
        assert!(seconds("1500ms", 0..=300).is_err());
        assert!(seconds("301s", 0..=300).is_err());
    }

    #[test]
    fn sizes_have_binary_units() {
        let read = |text| size(text, MIB..=GIB);
        assert_eq!(read("256MiB"), Ok(256 * MIB));
        assert_eq!(read("0.5GiB"), Ok(512 * MIB));
        assert_eq!(read("1GiB"), Ok(GIB));
        for bad in [
            "256MB",
            "256",
            "1023KiB",
            "1025MiB",
            "MiB",
            "99999999999999GiB",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn networks_have_no_host_bits() {
        assert_eq!(network("::1").unwrap().to_string(), "::1/128");
        assert_eq!(network("0.0.0.0/0").unwrap().to_string(), "0.0.0.0/0");
        assert_eq!(network("::/0").unwrap().to_string(), "::/0");
        for bad in [
            "10.0.0.1/8",
            "2001:db8::1/32",
            "10.0.0.0/33",
            "10.0.0",
            "::ffff:10.0.0.0/104",
        ] {
            assert!(network(bad).is_err(), "{bad}");
        }
        assert_eq!(
            ipv6_network("::ffff:0:0/96").unwrap().to_string(),
            "::ffff:0.0.0.0/96"
        );
        assert!(ipv6_network("10.0.0.0/8").is_err());
        assert!(ipv4_network("2001:db8::/32").is_err());
    }
}
