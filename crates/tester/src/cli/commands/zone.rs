//! `dns64bench zone`

use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context as _;

use super::{Failure, exit, print};
use crate::authority::answer::NEGATIVE_TTL_DEFAULT_S;
use crate::authority::zone::ZoneConfig;
use crate::cli::args::ZoneArgs;
use crate::lab::zone::ZoneFile;
use crate::post::probe::Prober;
use crate::rig::sample::{self, SAMPLE_MAX};

/// Writes the zone, or compares a sample of it with the answers of a server.
pub(super) fn run(args: ZoneArgs) -> Result<u8, Failure> {
    let zone = ZoneFile {
        cidr: args.namespace,
        config: ZoneConfig {
            zone: args.settings.0.zone(),
            self_test: args.self_test,
            ttl_s: args.ttl,
            negative_ttl_s: NEGATIVE_TTL_DEFAULT_S,
        },
    };
    match (args.check, args.output.as_deref()) {
        (Some(server), _) => check(&zone, server),
        (None, Some(path)) if path != Path::new("-") => {
            let cannot = || format!("cannot write {}", path.display());
            let mut file = File::create(path).with_context(cannot)?;
            zone.write(&mut file).with_context(cannot)?;
            Ok(exit::PASSED)
        }
        (None, _) => match zone.write(&mut io::stdout().lock()) {
            // The reader may have closed the output.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(exit::PASSED),
        },
    }
}

fn check(zone: &ZoneFile, server: SocketAddr) -> Result<u8, Failure> {
    let prober = Prober::here(server, zone.config.zone.clone());
    let checked = sample::check(&prober, zone, SAMPLE_MAX)?;
    let cidr = zone.cidr;
    print(|out| {
        writeln!(
            out,
            "{server} answers A and AAAA queries for {checked} names of {cidr} as the built-in \
             authority does"
        )
    })?;
    Ok(exit::PASSED)
}
