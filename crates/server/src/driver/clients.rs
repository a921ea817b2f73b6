//! The clients that the driver answers, as ranges of addresses.

use std::net::IpAddr;

use crate::settings::Settings;

/// Source addresses that the kernel refuses: "this network", loopback, multicast and the rest of the former classes D
/// and E.
const NO_SOURCES4: [(u32, u32); 3] = [
    (0, 0x00ff_ffff),
    (0x7f00_0000, 0x7fff_ffff),
    (0xe000_0000, u32::MAX),
];

/// The same for IPv6: unspecified and loopback, IPv4-mapped, multicast.
const NO_SOURCES6: [(u128, u128); 3] = [
    (0, 1),
    (0xffff_0000_0000, 0xffff_ffff_ffff),
    (0xff << 120, u128::MAX),
];

/// The permitted clients outside all configured views, without addresses of this host and broadcast addresses.
pub(super) fn ranges4(settings: &Settings, own: &[IpAddr]) -> Vec<(u32, u32)> {
    let mut ranges = settings.allow.ranges4().to_vec();
    for view in views(settings) {
        subtract(&mut ranges, view.clients.ranges4());
    }
    let own = own.iter().filter_map(|address| match address {
        IpAddr::V4(address) => Some((address.to_bits(), address.to_bits())),
        IpAddr::V6(_) => None,
    });
    subtract(&mut ranges, &own.chain(NO_SOURCES4).collect::<Vec<_>>());
    ranges
}

/// The same for IPv6.
pub(super) fn ranges6(settings: &Settings, own: &[IpAddr]) -> Vec<(u128, u128)> {
    let mut ranges = settings.allow.ranges6().to_vec();
    for view in views(settings) {
        subtract(&mut ranges, view.clients.ranges6());
    }
    let own = own.iter().filter_map(|address| match address {
        IpAddr::V6(address) => Some((address.to_bits(), address.to_bits())),
        IpAddr::V4(_) => None,
    });
    subtract(&mut ranges, &own.chain(NO_SOURCES6).collect::<Vec<_>>());
    ranges
}

/// All views except the default view, which is the last.
fn views(settings: &Settings) -> &[crate::settings::View] {
    settings.views.split_last().map_or(&[], |(_, views)| views)
}

/// An address as a number.
trait Address: Copy + Ord {
    const ONE: Self;
    fn before(self) -> Option<Self>;
    fn after(self) -> Option<Self>;
}

impl Address for u32 {
    const ONE: Self = 1;
    fn before(self) -> Option<Self> {
        self.checked_sub(Self::ONE)
    }
    fn after(self) -> Option<Self> {
        self.checked_add(Self::ONE)
    }
}

impl Address for u128 {
    const ONE: Self = 1;
    fn before(self) -> Option<Self> {
        self.checked_sub(Self::ONE)
    }
    fn after(self) -> Option<Self> {
        self.checked_add(Self::ONE)
    }
}

/// Removes addresses from sorted ranges.
fn subtract<T: Address>(ranges: &mut Vec<(T, T)>, holes: &[(T, T)]) {
    for (hole_first, hole_last) in holes {
        let mut left = Vec::with_capacity(ranges.len() + 1);
        for (first, last) in ranges.drain(..) {
            if *hole_last < first || last < *hole_first {
                left.push((first, last));
                continue;
            }
            let below = hole_first.before().filter(|before| first <= *before);
            let above = hole_last.after().filter(|after| *after <= last);
            left.extend(below.map(|before| (first, before)));
            left.extend(above.map(|after| (after, last)));
        }
        *ranges = left;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    #[test]
    fn subtraction_splits_and_shortens_ranges() {
        let left = |holes: &[(u32, u32)]| {
            let mut ranges = vec![(10, 20), (30, 40)];
            subtract(&mut ranges, holes);
            ranges
        };
        assert_eq!(left(&[]), [(10, 20), (30, 40)]);
        assert_eq!(left(&[(15, 15)]), [(10, 14), (16, 20), (30, 40)]);
        assert_eq!(left(&[(0, 9), (21, 29), (41, 50)]), [(10, 20), (30, 40)]);
        assert_eq!(left(&[(0, 10), (20, 30)]), [(11, 19), (31, 40)]);
        assert_eq!(left(&[(0, u32::MAX)]), []);
    }

    #[test]
    fn clients_of_views_and_this_host_are_left_to_the_sockets() {
        let text = "allow = [\"10.0.0.0/8\", \"::/0\"]\n[upstream]\nservers = [\"192.0.2.53\"]\n\
            [[view]]\nclients = [\"10.1.0.0/16\", \"2001:db8::/32\"]\ndns64 = { enabled = false }\n";
        let settings = config::parse(text, "test").unwrap();
        let own: Vec<IpAddr> = ["10.0.0.1", "fe80::1"]
            .map(|own| own.parse().unwrap())
            .into();
        let answered = |client: &str| match client.parse::<IpAddr>().unwrap() {
            IpAddr::V4(client) => {
                let mut ranges = ranges4(&settings, &own).into_iter();
                ranges.any(|(first, last)| (first..=last).contains(&client.to_bits()))
            }
            IpAddr::V6(client) => {
                let mut ranges = ranges6(&settings, &own).into_iter();
                ranges.any(|(first, last)| (first..=last).contains(&client.to_bits()))
            }
        };
        for yes in [
            "10.0.0.2",
            "10.2.0.0",
            "fe80::2",
            "2001:db9::1",
            "2001:db7:ffff::1",
            "::2",
        ] {
            assert!(answered(yes), "{yes}");
        }
        for no in [
            "10.0.0.1",
            "10.1.2.3",
            "11.0.0.1",
            "fe80::1",
            "2001:db8::5",
            "::1",
            "::",
            "ff02::1",
            "::ffff:10.0.0.2",
        ] {
            assert!(!answered(no), "{no}");
        }
    }
}
