//! The cache in the driver: an XDP program sends responses for frequently queried names, before the kernel
//! processes their queries.
//!
//! - [`Driver`]: the attached program; an [`Outlet`] of the cache;
//! - `keeper`: the thread that writes responses into the maps, and reports sent responses to the cache and counters;
//! - `table`: the place of each response; `layout`: its octets;
//! - `clients`: the clients and the addresses that the program serves.
//!
//! The program is `bpf/cache.bpf.c`. It is attached by links that end with the process.

mod clients;
mod keeper;
mod layout;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dns64_transport::xdp;
use dns64_transport::xdp::netlink::{Address, Interface, Netlink, no_clients};
use dns64_transport::xdp::program::{Attached, Map, Object, XdpError};

use crate::cache::{Cache, Outlet, Policy, PublicAnswer, PublicKey};
use crate::settings::{Attachment, Settings};
use layout::{Bucket, Config, Item, LINKS, LOCALS, Link, Local, RANGES};
use table::Store;

pub use keeper::Keeper;

/// The compiled program.
static OBJECT: &[u8] = include_bytes!("../../bpf/cache.bpf.o");

/// Name of the program in the object.
const PROGRAM: &str = "cache";

/// Capacity of the keeper's queue. Responses that arrive while it is full are not put into the maps; the sockets answer
/// instead.
const LETTERS: usize = 4096;

/// Reason why the driver does not answer.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The interface does not exist.
    #[error("driver-cache: there is no interface {0}; `ip link` lists those of this host")]
    NoInterface(String),
    /// The interface is not Ethernet.
    #[error(
        "driver-cache: interface {0} has no Ethernet address, so its queries cannot be answered in the driver"
    )]
    NoEthernet(String),
    /// The interface carries the default route.
    #[error(
        "driver-cache: {0} carries the default route of this host; if you mean it, write \
         {{ interface = \"{0}\", force = true }}"
    )]
    DefaultRoute(String),
    /// The program cannot be loaded or attached.
    #[error("driver-cache: {0}")]
    Program(#[from] XdpError),
    /// Interfaces and addresses cannot be read.
    #[error("driver-cache: cannot list interfaces and addresses: {0}")]
    Netlink(#[from] io::Error),
}

/// A message to the keeper.
enum Letter {
    Publish(Box<Item>),
    Withdraw(u64),
    Clear,
}

/// The program in the kernel and its state.
pub struct Driver {
    maps: Maps,
    letters: SyncSender<Letter>,
    /// Number of the policy of the clients that it answers; 0: none.
    policy: AtomicU32,
    /// Number of responses that it can send.
    entries: AtomicU64,
    attached: Mutex<Vec<Attached>>,
    force: Mutex<Force>,
}

/// The active configuration.
struct Force {
    /// `None`: interfaces and addresses are not updated.
    netlink: Option<Netlink>,
    interfaces: Vec<Interface>,
    addresses: Vec<Address>,
    settings: Option<Arc<Settings>>,
    /// Kept, so that no other policy gets its number.
    policy: Option<Arc<Policy>>,
    seed: u64,
    config: Config,
    active: u32,
    generation: u32,
}

/// The maps of the program that are used here.
struct Maps {
    state: Map,
    config: Map,
    buckets: Map,
    answers: Map,
    used: Map,
    counts: Map,
}

/// The state of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// Interfaces that the program is attached to, each with its mode.
    pub attached: Vec<(String, String)>,
    /// Number of responses that it can send.
    pub entries: u64,
    /// The configuration key because of which it leaves all queries to the sockets.
    pub idle: Option<&'static str>,
}

impl Driver {
    /// Loads the program and attaches it. It passes all queries to the kernel until [`Driver::configure`] is called.
    /// The receiver is for [`Keeper::new`].
    ///
    /// # Errors
    ///
    /// An interface is missing or must not be used; the kernel refuses.
    pub fn open(interfaces: &[Attachment]) -> Result<(Arc<Self>, Inbox), DriverError> {
        let mut netlink = Netlink::open()?;
        let known = netlink.interfaces()?;
        let mut found = Vec::new();
        for wanted in interfaces {
            let interface = known.iter().find(|known| known.name == wanted.interface);
            let interface =
                interface.ok_or_else(|| DriverError::NoInterface(wanted.interface.clone()))?;
            if interface.mac.is_none() {
                return Err(DriverError::NoEthernet(wanted.interface.clone()));
            }
            xdp::allow(&wanted.interface, wanted.force).map_err(|error| match error {
                XdpError::DefaultRoute { interface } => DriverError::DefaultRoute(interface),
                other => other.into(),
            })?;
            xdp::may_answer(&wanted.interface)?;
            found.push(interface.clone());
        }
        let mut object = Object::load(OBJECT)?;
        let (driver, inbox) = Self::new(&object, Some(netlink), found, Vec::new())?;
        let attach = |wanted: &Attachment| object.attach(PROGRAM, &wanted.interface, wanted.mode);
        let attached: Result<_, _> = interfaces.iter().map(attach).collect();
        *lock(&driver.attached) = attached?;
        Ok((Arc::new(driver), inbox))
    }

    fn new(
        object: &Object,
        netlink: Option<Netlink>,
        interfaces: Vec<Interface>,
        addresses: Vec<Address>,
    ) -> Result<(Self, Inbox), DriverError> {
        let (letters, inbox) = sync_channel(LETTERS);
        let seed = rand::random();
        let driver = Self {
            maps: Maps::of(object)?,
            letters,
            policy: AtomicU32::new(0),
            entries: AtomicU64::new(0),
            attached: Mutex::default(),
            force: Mutex::new(Force {
                netlink,
                interfaces,
                addresses,
                settings: None,
                policy: None,
                seed,
                config: Config::default(),
                active: 0,
                generation: 0,
            }),
        };
        Ok((driver, Inbox(inbox)))
    }

    /// Applies settings, from the next query on.
    ///
    /// # Errors
    ///
    /// The kernel refuses; then the program is detached.
    pub fn configure(&self, settings: &Settings, cache: &Cache) -> Result<(), DriverError> {
        let others = settings.views.last();
        let policy = others.map(|view| cache.policy(settings, view));
        let number = policy.as_ref().map_or(0, |policy| policy.number());
        self.policy.store(number, Ordering::Relaxed);
        let mut force = lock(&self.force);
        force.policy = policy;
        force.settings = Some(Arc::new(settings.clone()));
        self.take_on(&mut force)
    }

    /// Applies the current addresses of this host.
    ///
    /// # Errors
    ///
    /// The kernel refuses; then the program is detached.
    fn refresh(&self) -> Result<(), DriverError> {
        self.take_on(&mut lock(&self.force))
    }

    fn take_on(&self, force: &mut Force) -> Result<(), DriverError> {
        let taken = force.config_now().and_then(|config| {
            if config == force.config {
                return Ok(());
            }
            // The inactive one of the two configurations, until it is complete.
            let other = 1 - force.active;
            self.maps
                .config
                .set(&other.to_ne_bytes(), &config.encode())?;
            force.active = other;
            self.maps.set_state(force)?;
            force.config = config;
            Ok(())
        });
        if taken.is_err() {
            self.detach();
        }
        taken
    }

    /// Detaches the program: the sockets get all queries.
    pub fn detach(&self) {
        lock(&self.attached).clear();
    }

    /// The current state.
    pub fn state(&self) -> State {
        let attached = lock(&self.attached);
        let attached = attached.iter().map(|attached| {
            let mode = attached.mode().to_string();
            (attached.interface().to_owned(), mode)
        });
        let settings = lock(&self.force).settings.clone();
        State {
            attached: attached.collect(),
            entries: self.entries.load(Ordering::Relaxed),
            idle: settings.and_then(|settings| settings.driver_obstacle()),
        }
    }
}

impl Outlet for Driver {
    fn publish(&self, question: &PublicKey<'_>, answer: &PublicAnswer<'_>) {
        if question.policy != self.policy.load(Ordering::Relaxed) {
            return;
        }
        let item = Item {
            hash: question.hash,
            generation: answer.generation,
            policy: question.policy,
            bits: question.bits,
            note: answer.note,
            extended_error: answer.extended_error,
            rendered_s: answer.rendered_s,
            expires_s: answer.expires_s,
            question_len: question.question.len(),
            message: answer.message.into(),
            ttls: answer.ttls.into(),
        };
        if item.fits() {
            // If the queue is full or closed, the sockets continue to answer.
            let _ = self.letters.try_send(Letter::Publish(Box::new(item)));
        }
    }

    fn withdraw(&self, hash: u64) {
        // A response that is not withdrawn now expires later.
        let _ = self.letters.try_send(Letter::Withdraw(hash));
    }

    fn withdraw_all(&self, generation: u32) {
        let mut force = lock(&self.force);
        // Two calls can arrive in reverse order.
        if generation.wrapping_sub(force.generation) > u32::MAX / 2 {
            return;
        }
        force.generation = generation;
        if let Err(error) = self.maps.set_state(&force) {
            tracing::error!("driver-cache: {error}; the program is detached");
            self.detach();
        }
        drop(force);
        let _ = self.letters.try_send(Letter::Clear);
    }
}

/// The receiving end of the keeper's queue.
pub struct Inbox(Receiver<Letter>);

impl Force {
    /// The configuration for these settings and the current addresses of this host.
    fn config_now(&mut self) -> Result<Config, DriverError> {
        let Some(settings) = self.settings.clone() else {
            return Ok(Config::default());
        };
        if let Some(netlink) = &mut self.netlink {
            let mut known = netlink.interfaces()?;
            known.retain(|known| self.interfaces.iter().any(|own| own.index == known.index));
            self.interfaces = known;
            self.addresses = netlink.addresses()?;
        }
        let addresses = &self.addresses;
        let links: Vec<Link> = self.interfaces.iter().filter_map(link).collect();
        let no_clients = no_clients(addresses);
        let mut locals = locals(&settings, addresses, &links);
        let mut ranges4 = clients::ranges4(&settings, &no_clients);
        let mut ranges6 = clients::ranges6(&settings, &no_clients);
        locals.truncate(LOCALS);
        ranges4.truncate(RANGES);
        ranges6.truncate(RANGES);
        Ok(Config {
            enabled: settings.driver_obstacle().is_none(),
            policy: self.policy.as_ref().map_or(0, |policy| policy.number()),
            seed: self.seed,
            udp_size: settings.udp_size,
            links: links.into_iter().take(LINKS).collect(),
            locals,
            ranges4,
            ranges6,
        })
    }
}

fn link(interface: &Interface) -> Option<Link> {
    if interface.master.is_some() {
        return None;
    }
    Some(Link {
        index: interface.index,
        mac: interface.mac?,
        partial: interface.is_veth,
    })
}

/// The addresses of this host at which queries are answered: those of `listen`, or all for an unspecified address.
/// Those of the links come first, in case there are too many.
fn locals(settings: &Settings, addresses: &[Address], links: &[Link]) -> Vec<Local> {
    let mut found = BTreeSet::new();
    for address in addresses {
        let ip = address.ip;
        let is_link_local = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        let is_near = links.iter().any(|link| link.index == address.interface);
        if ip.is_loopback() || (is_link_local && !is_near) {
            continue;
        }
        let index = if is_link_local { address.interface } else { 0 };
        for listen in &settings.listen {
            let all = listen.ip().is_unspecified() && listen.is_ipv4() == ip.is_ipv4();
            if all || listen.ip() == ip {
                found.insert((!is_near, ip, listen.port(), index));
            }
        }
    }
    let local = |(_, address, port, index)| Local {
        address,
        port,
        index,
    };
    found.into_iter().map(local).collect()
}

impl Maps {
    fn of(object: &Object) -> Result<Self, XdpError> {
        Ok(Self {
            state: object.map("state")?,
            config: object.map("config")?,
            buckets: object.map("buckets")?,
            answers: object.map("answers")?,
            used: object.map("used")?,
            counts: object.map("counts")?,
        })
    }

    fn set_state(&self, force: &Force) -> Result<(), XdpError> {
        let state = layout::encode_state(force.active, force.generation);
        self.state.set(&[0; 4], &state)
    }
}

impl Store for Maps {
    fn set_answer(&self, number: u32, octets: &[u8]) -> Result<(), XdpError> {
        self.answers.set(&number.to_ne_bytes(), octets)
    }

    fn set_bucket(&self, number: u32, octets: &Bucket) -> Result<(), XdpError> {
        self.buckets.set(&number.to_ne_bytes(), octets)
    }
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}

/// The protected data is always consistent, so a lock poisoned by a panic is still usable.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
