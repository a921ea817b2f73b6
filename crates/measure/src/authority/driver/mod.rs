//! The authority in the driver of an interface: an XDP program that answers the common query on arrival, before the
//! kernel processes it as a datagram of a socket.
//!
//! It answers the queries that `authority/fast.rs` answers, with the same octets; `bpf/authority.bpf.c` lists the
//! conditions for a frame. It passes all other frames on to the socket authority that serves the same address. It has
//! no clock and no ledger, so only the counts of its answers are known.

mod config;

use std::net::IpAddr;

use dns64_transport::xdp::program::{Action, Attached, Map, Mode, Object, XdpError};

use super::counts::AuthorityCounts;
use super::zone::ZoneConfig;

/// The interface at which the program answers queries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Station {
    /// MAC address of the interface.
    pub mac: [u8; 6],
    /// Its served addresses, at most [`ADDRESSES_MAX`] of each family.
    pub addresses: Vec<IpAddr>,
    /// The UDP port.
    pub port: u16,
    /// Whether it is one end of a veth link, where datagrams arrive with unfinished checksums.
    pub is_veth: bool,
}

/// Largest number of addresses of one family.
pub const ADDRESSES_MAX: usize = 4;

/// Why the authority cannot answer in a driver.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The kernel rejects the program, or cannot attach it to this interface.
    #[error(transparent)]
    Program(#[from] XdpError),
    /// More addresses than the program supports.
    #[error(
        "interface has {count} {family} addresses and the driver answers at up to {ADDRESSES_MAX}; name one with --listen"
    )]
    Addresses {
        /// "IPv4" or "IPv6".
        family: &'static str,
        /// Number of addresses.
        count: usize,
    },
    /// The suffix is too long for a name that encodes an address.
    #[error(
        "suffix of {len} octets leaves no room for the first label of a name; its limit is {limit} octets, shorten it"
    )]
    Suffix {
        /// Its length in octets.
        len: usize,
        /// See [`SUFFIX_LEN_MAX`](crate::namespace::SUFFIX_LEN_MAX).
        limit: usize,
    },
    /// Names with other records than one A and one AAAA.
    #[error(
        "the driver answers for names with one address each; omit aliases and further addresses of the names"
    )]
    Records,
}

/// The program, loaded for one zone and station, and attached once [`Driver::attach`] was called.
pub struct Driver {
    object: Object,
    counts: Map,
    /// Detaches the program on drop.
    attached: Option<Attached>,
}

impl Driver {
    /// Loads the program; it answers nothing yet.
    ///
    /// # Errors
    ///
    /// The kernel rejects it, for example for lack of privileges, or the program does not support the zone or the
    /// station.
    pub fn load(zone: &ZoneConfig, station: &Station) -> Result<Self, DriverError> {
        let config = config::octets(zone, station)?;
        let object = Object::load(OBJECT)?;
        object.map("config")?.set(&KEY, &config)?;
        Ok(Self {
            counts: object.map("counts")?,
            object,
            attached: None,
        })
    }

    /// Starts answering at this interface of the calling thread's network namespace, until dropped. Returns where the
    /// program runs: in the driver or in the generic path behind it.
    ///
    /// # Errors
    ///
    /// The interface does not exist or does not support the mode, or another program is attached.
    pub fn attach(&mut self, interface: &str, mode: Mode) -> Result<Mode, DriverError> {
        let attached = self.object.attach(PROGRAM, interface, mode)?;
        Ok(self.attached.insert(attached).mode())
    }

    /// Returns the counters of the answered queries. Queries that it passed on are counted by the authority that
    /// answers them.
    ///
    /// # Errors
    ///
    /// The kernel does not return the map.
    pub fn counts(&self) -> Result<AuthorityCounts, DriverError> {
        let mut counts = AuthorityCounts::default();
        self.counts.per_cpu(&KEY, |octets| {
            let (words, _) = octets.as_chunks::<8>();
            let mut of_kind = words.iter().map(|word| u64::from_ne_bytes(*word));
            let [a, aaaa, nodata] = [(); 3].map(|()| of_kind.next().unwrap_or_default());
            counts.a += a;
            counts.aaaa += aaaa + nodata;
            counts.answered += a + aaaa;
            counts.nodata += nodata;
        })?;
        Ok(counts)
    }

    /// Runs the program on a frame without sending the result, for tests. Writes the resulting frame to `out`.
    ///
    /// # Errors
    ///
    /// The kernel cannot run it.
    pub fn run(&self, frame: &[u8], out: &mut Vec<u8>) -> Result<Action, DriverError> {
        Ok(self.object.run(PROGRAM, frame, out)?)
    }
}

/// Compiled from `bpf/authority.bpf.c`.
const OBJECT: &[u8] = include_bytes!("../../../bpf/authority.bpf.o");

const PROGRAM: &str = "authority";

/// Key of the only entry of a map.
const KEY: [u8; 4] = [0; 4];
