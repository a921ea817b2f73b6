//! `dns64bench authority`

use std::io::Write;
use std::sync::atomic::Ordering;

use dns64_transport::Backend;
use dns64_transport::address::Shown;
use dns64_transport::clock::{MonotonicClock, Nanos, SECOND};
use dns64_transport::socket::Segmentation;

use super::{Failure, exit, interrupt, print};
use crate::authority::answer::NEGATIVE_TTL_DEFAULT_S;
use crate::authority::counts::AuthorityCounts;
use crate::authority::zone::ZoneConfig;
use crate::campaign::plan::DNS_PORT;
use crate::cli::args::AuthorityArgs;
use crate::cli::resolve::one_port;
use crate::machine::network::Network;
use crate::report::text;
use crate::trial::in_driver::{InDriver, Interception};
use crate::trial::{AuthDns, Measurer, Tester};

/// How often the command checks for an interrupt.
const POLL_NS: Nanos = SECOND / 10;

/// Serves the zone until it is interrupted, then prints its counts.
pub(super) fn run(args: AuthorityArgs) -> Result<u8, Failure> {
    let interrupted = interrupt()?;
    let mut listen = args.listen;
    let own = (listen.port() != 0).then_some(listen.port());
    listen.set_port(one_port("--listen", own, args.port)?.unwrap_or(DNS_PORT));
    let settings = args.settings.0;
    let zone = settings.zone();
    let behaviour = args.behaviour.filter(|behaviour| !behaviour.is_none());
    let told = behaviour
        .as_ref()
        .map_or_else(String::new, |b| format!("; misbehaves: {b}"));
    let authority = AuthDns {
        network: Network::Own,
        listen,
        workers: args.workers.into(),
        cores: args.cpus.unwrap_or_default().cpus().to_vec(),
        segmentation: match args.self_test {
            true => Segmentation::Off,
            false => Segmentation::On,
        },
        backend: settings.plan.load.backend.unwrap_or(Backend::Socket),
        zone: ZoneConfig {
            zone: zone.clone(),
            self_test: args.self_test,
            ttl_s: args.ttl,
            negative_ttl_s: NEGATIVE_TTL_DEFAULT_S,
        },
        behaviour: behaviour.unwrap_or_default(),
        driver: args.in_driver.map(|interface| Interception {
            interface,
            mode: args.xdp_mode,
            force: settings.is_forced,
            far: None,
        }),
    };
    let tester = Tester::open(Measurer::none(), Some(&authority), &interrupted)?;
    let mode = if args.self_test {
        "every name has an AAAA (self-test)".to_owned()
    } else {
        format!("{} of the names have an AAAA of their own", zone.aaaa_share)
    };
    print(|out| {
        writeln!(
            out,
            "serving {} at {} (UDP and TCP), {} workers; {mode}{told}",
            zone.suffix,
            Shown(listen),
            args.workers
        )
    })?;
    if let Some(in_driver) = tester.in_driver() {
        print(|out| tell_driver(out, in_driver))?;
    }
    while !interrupted.load(Ordering::Relaxed) {
        MonotonicClock.sleep(POLL_NS);
    }
    tell(&tester.authority_counts()?)?;
    Ok(exit::PASSED)
}

/// Prints the interface and mode of the XDP program that answers queries before the sockets.
fn tell_driver(out: &mut dyn Write, in_driver: &InDriver) -> std::io::Result<()> {
    let (interface, mode) = (&in_driver.interface, in_driver.mode);
    writeln!(
        out,
        "A and AAAA queries over UDP are answered at {interface} by XDP, {mode}"
    )?;
    if in_driver.needs_far_end() {
        writeln!(
            out,
            "{interface} is a veth device: answers arrive only if the other end has an XDP program, too; \
             --xdp-mode generic works without one"
        )?;
    }
    Ok(())
}

/// Prints the counts.
fn tell(counts: &AuthorityCounts) -> Result<(), Failure> {
    print(|out| {
        writeln!(
            out,
            "queries: {} AAAA, {} A, {} other, {} over TCP\n\
             answers: {} with records, {} NODATA, {} NXDOMAIN, {} refused; {} datagrams ignored",
            counts.aaaa,
            counts.a,
            counts.other,
            counts.tcp,
            counts.answered,
            counts.nodata,
            counts.nxdomain,
            counts.refused,
            counts.ignored
        )?;
        for (label, n, meaning) in counts.misbehaviour.iter().flat_map(text::misbehaviour) {
            writeln!(out, "{label}: {n} {meaning}")?;
        }
        Ok(())
    })
}
