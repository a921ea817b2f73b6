//! The authority in the driver of an interface of its host, in front of its sockets at the same address.

use std::net::IpAddr;

use dns64_transport::xdp::program::{Attached, Mode, Object, XdpError};
use dns64_transport::xdp::{STEER_OBJECT, allow, may_answer};
use serde::{Deserialize, Serialize};
use serde_with::{As, DisplayFromStr};

use super::AuthDns;
use super::surroundings::AuthorityReport;
use crate::authority::driver::{Driver, DriverError, Station};
use crate::machine::interface::{self, Interface};
use crate::machine::network::Network;
use crate::machine::{Blame, LabError};

/// Interface at which queries are answered in the driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interception {
    /// Interface of the authority's host at which the queries arrive.
    pub interface: String,
    /// In the driver or behind it. [`Mode::Auto`] uses the driver if it can, but on a veth device only with a known
    /// peer.
    #[serde(with = "As::<DisplayFromStr>")]
    pub mode: Mode,
    /// Whether an interface with a default route is allowed.
    pub force: bool,
    /// Network and interface of the peer, if the interface is a veth pair of this lab. The veth driver sends nothing back
    /// to a peer without a program of its own.
    pub far: Option<(Network, String)>,
}

/// An authority that answers in a driver until it is dropped.
pub struct InDriver {
    driver: Driver,
    /// The interface.
    pub interface: String,
    /// Where its program runs: in the driver or behind it.
    pub mode: Mode,
    is_veth: bool,
    /// The program at the peer of a veth pair.
    _far: Option<Attached>,
}

impl InDriver {
    /// Starts to answer, if configured. The sockets of the authority are already open.
    pub(super) fn open(authority: &AuthDns) -> Result<Option<Self>, LabError> {
        let Some(asked) = &authority.driver else {
            return Ok(None);
        };
        if !authority.behaviour.is_none() {
            return Err(Blame::Request.error(
                "an authority in the driver cannot inject faults; omit the behaviour, or use the built-in authority \
                 over sockets",
            ));
        }
        let (interface, host) = (&asked.interface, &authority.network);
        let found = interface::named(host, interface);
        let found = found.and_then(|found| Some((found.mac?, found)));
        let (mac, found) = found.ok_or_else(|| {
            Blame::Machine.error(format!(
                "{host} has no interface {interface} with a MAC address; `ip link`, which is needed for this, lists its \
                 interfaces"
            ))
        })?;
        let station = station(authority, asked, &found, mac)?;
        let failed = |reason| failed(interface, reason);
        let mode = match asked.mode {
            // Without a program at the peer, replies would be lost.
            Mode::Auto if found.is_veth() && asked.far.is_none() => Mode::Generic,
            mode => mode,
        };
        let attach = || -> Result<(Driver, Mode), DriverError> {
            allow(interface, asked.force)?;
            may_answer(interface)?;
            let mut driver = Driver::load(&authority.zone, &station)?;
            let mode = driver.attach(interface, mode)?;
            Ok((driver, mode))
        };
        let (driver, mode) = host.enter(attach)?.map_err(failed)?;
        let far = asked.far.as_ref().filter(|_| mode == Mode::Native);
        let far = far.map(|(host, interface)| host.enter(|| pass(interface)));
        let far = far.transpose()?.transpose();
        Ok(Some(Self {
            driver,
            interface: interface.clone(),
            mode,
            is_veth: found.is_veth(),
            _far: far.map_err(|reason| failed(reason.into()))?,
        }))
    }

    /// Returns the answers since the start.
    pub(super) fn report(&self) -> Result<AuthorityReport, LabError> {
        let counts = self.driver.counts();
        Ok(AuthorityReport {
            counts: counts.map_err(|reason| failed(&self.interface, reason))?,
            in_driver: true,
            ..AuthorityReport::default()
        })
    }

    /// Returns whether replies are lost unless another program is attached to the peer of the interface.
    pub fn needs_far_end(&self) -> bool {
        self.is_veth && self.mode == Mode::Native && self._far.is_none()
    }
}

/// Returns the address of the interface at which the program answers: the served one, or all if the authority serves
/// all.
fn station(
    authority: &AuthDns,
    asked: &Interception,
    found: &Interface,
    mac: [u8; 6],
) -> Result<Station, LabError> {
    let listen = authority.listen.ip();
    let is_served = |address: &IpAddr| match listen.is_unspecified() {
        // The socket of `::` serves both families.
        true => listen.is_ipv6() || address.is_ipv4(),
        false => *address == listen,
    };
    let addresses = found.addresses.iter().map(|(address, _)| *address);
    let addresses: Vec<_> = addresses.filter(is_served).collect();
    if addresses.is_empty() {
        let interface = &asked.interface;
        return Err(Blame::Machine.error(format!(
            "interface {interface} has no address that the authority serves; give it one, or name its address with \
             --listen"
        )));
    }
    Ok(Station {
        mac,
        addresses,
        port: authority.listen.port(),
        is_veth: found.is_veth(),
    })
}

/// The program was refused.
fn failed(interface: &str, reason: DriverError) -> LabError {
    let what = format!("the authority cannot answer in the driver of {interface}: {reason}");
    Blame::Machine.error(what)
}

/// Attaches a program to the peer of a veth pair that passes everything.
fn pass(interface: &str) -> Result<Attached, XdpError> {
    Object::load(STEER_OBJECT)?.attach("pass", interface, Mode::Native)
}
