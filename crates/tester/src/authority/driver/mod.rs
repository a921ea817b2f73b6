//! The authority in the driver of an interface: a program (XDP) that answers the common query where it arrives, before
//! the kernel makes a socket's datagram of it.
//!
//! It answers what `authority/fast.rs` answers, with the same octets; `bpf/authority.bpf.c` says which frames. All
//! others it passes on, to the socket authority that serves the same address. It has no clock and keeps no ledger, so
//! of its answers only the counts are known.

mod config;

use std::net::IpAddr;

use dns64_transport::xdp::program::{Action, Attached, Map, Mode, Object, XdpError};

use super::counts::AuthorityCounts;
use super::zone::ZoneConfig;

/// Where queries come in that the program is to answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Station {
    /// MAC address of the interface.
    pub mac: [u8; 6],
    /// Its addresses that are served, at most [`ADDRESSES_MAX`] of a family.
    pub addresses: Vec<IpAddr>,
    /// The UDP port.
    pub port: u16,
}

/// Addresses of one family that the program knows at most.
pub const ADDRESSES_MAX: usize = 4;

/// Why the authority cannot answer in a driver.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The kernel does not take the program, or not at this interface.
    #[error(transparent)]
    Program(#[from] XdpError),
    /// More addresses than the program has places for.
    #[error(
        "interface has {count} {family} addresses and the driver answers at up to {ADDRESSES_MAX}; name one with --listen"
    )]
    Addresses {
        /// "IPv4" or "IPv6".
        family: &'static str,
        /// How many there are.
        count: usize,
    },
    /// No name of the form fits below the suffix.
    #[error(
        "suffix of {len} octets leaves no room for the first label of a name; its limit is {limit} octets, shorten it"
    )]
    Suffix {
        /// Its octets.
        len: usize,
        /// See [`SUFFIX_LEN_MAX`](crate::namespace::SUFFIX_LEN_MAX).
        limit: usize,
    },
}

/// The program, loaded for one zone and station, and perhaps attached.
pub struct Driver {
    object: Object,
    counts: Map,
    /// It goes with this.
    attached: Option<Attached>,
}

impl Driver {
    /// Loads the program; nothing is answered yet.
    ///
    /// # Errors
    ///
    /// The kernel refuses it, for want of rights for example, or zone and station are not for it.
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

    /// Answers from now on at this interface of the network of the calling thread, until it is dropped. Says where the
    /// program runs: in the driver or behind it.
    ///
    /// # Errors
    ///
    /// No such interface, no such mode there, or another program is attached.
    pub fn attach(&mut self, interface: &str, mode: Mode) -> Result<Mode, DriverError> {
        let attached = self.object.attach(PROGRAM, interface, mode)?;
        Ok(self.attached.insert(attached).mode())
    }

    /// What it has counted so far: queries that it answered. Those that it passed on are counted by whoever answers them.
    ///
    /// # Errors
    ///
    /// The kernel does not give the map.
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

    /// What the program makes of a frame, which is not sent: for tests. The frame that it leaves is written to `out`.
    ///
    /// # Errors
    ///
    /// The kernel does not run it.
    pub fn run(&self, frame: &[u8], out: &mut Vec<u8>) -> Result<Action, DriverError> {
        Ok(self.object.run(PROGRAM, frame, out)?)
    }
}

/// Made of `bpf/authority.bpf.c`.
const OBJECT: &[u8] = include_bytes!("../../../bpf/authority.bpf.o");

const PROGRAM: &str = "authority";

/// Of the only entry of a map.
const KEY: [u8; 4] = [0; 4];
