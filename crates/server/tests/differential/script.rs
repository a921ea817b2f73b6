//! An upstream whose behaviour the queried name determines. Some of it no real server would have.
//!
//! The first label of a name below `script.example` is the behaviour. In all other respects it
//! answers like a recursive resolver.

use std::net::{Ipv4Addr, UdpSocket};

use dns64_wire::build::{Builder, Owner};
use dns64_wire::codes::{Class, Rcode, Rtype};
use dns64_wire::message::{Flags, Message, Opt, Section};
use dns64_wire::name::NameBuf;

/// The A record of every name that has one.
const ADDRESS: [u8; 4] = [20, 9, 0, 1];

/// Its TTL in seconds.
const TTL: u32 = 3600;

/// Length of the longest response in octets.
const FRAME: usize = 1232;

/// YXDOMAIN (RFC 6672 section 2.2).
const YXDOMAIN: Rcode = Rcode(6);

/// Answers queries at this address until the process ends.
pub(crate) fn serve(address: Ipv4Addr) {
    let socket = UdpSocket::bind((address, 53)).unwrap();
    std::thread::spawn(move || {
        let mut query = [0; 512];
        while let Ok((len, from)) = socket.recv_from(&mut query) {
            if let Some(answer) = answer(&query[..len]) {
                // Ignored: the client may have stopped waiting.
                let _ = socket.send_to(&answer, from);
            }
        }
    });
}

/// The contents of a response besides the question.
struct Play {
    rcode: Rcode,
    /// Records by section. The owner is the name of the question, the zone or [`host`].
    records: Vec<(Section, Rtype, u32, Vec<u8>)>,
}

fn answer(query: &[u8]) -> Option<Vec<u8>> {
    let query = Message::parse(query).ok()?;
    let question = query.question()?;
    let opt = query.opt().ok()?;
    let label = question.name.labels().next().unwrap_or_default();
    let label = String::from_utf8_lossy(label).to_ascii_lowercase();
    let play = play(&label, question.rtype)?;

    let mut frame = [0; FRAME];
    let mut builder = Builder::new(&mut frame, FRAME).ok()?;
    let flags = Flags::default()
        .with_qr(true)
        .with_rd(true)
        .with_ra(true)
        .with_rcode(play.rcode);
    builder.header(query.id(), flags);
    let name = question.name.to_buf();
    builder
        .question(&name, question.rtype, question.class)
        .ok()?;
    if let Some(opt) = opt {
        let opt = Opt {
            udp_size: 1232,
            ext_rcode: 0,
            version: 0,
            do_bit: opt.do_bit,
            options: &[],
        };
        builder.opt(opt).ok()?;
    }
    let (zone, host) = (zone(), host());
    for (section, rtype, ttl, data) in play.records {
        let owner = match section {
            Section::Answer => Owner::Question,
            Section::Authority => Owner::Name(&zone),
            Section::Additional => Owner::Name(&host),
        };
        let class = Class::IN;
        builder
            .record(section, owner, rtype, class, ttl, &data)
            .ok()?;
    }
    let len = builder.finish();
    Some(frame[..len].into())
}

fn zone() -> NameBuf {
    "script.example".parse().unwrap()
}

/// The target of MX, HTTPS and NS records.
fn host() -> NameBuf {
    "host.script.example".parse().unwrap()
}

/// The response for a behaviour; `None` for no response.
fn play(label: &str, rtype: Rtype) -> Option<Play> {
    let mut play = Play {
        rcode: Rcode::NOERROR,
        records: Vec::new(),
    };
    let a = || (Section::Answer, Rtype::A, TTL, ADDRESS.to_vec());
    let soa = |ttl, minimum| (Section::Authority, Rtype::SOA, ttl, soa_data(minimum));
    match (label, rtype) {
        ("silent", _) | ("no-reply", Rtype::AAAA) => return None,
        ("servfail", Rtype::AAAA) | ("failing", _) | ("no-a", Rtype::A) => {
            play.rcode = Rcode::SERVFAIL;
        }
        ("refused", Rtype::AAAA) => play.rcode = Rcode::REFUSED,
        ("notimp", Rtype::AAAA) => play.rcode = Rcode::NOTIMP,
        ("formerr", Rtype::AAAA) => play.rcode = Rcode::FORMERR,
        ("yxdomain", Rtype::AAAA) => play.rcode = YXDOMAIN,
        ("a-missing", Rtype::A) => {
            play.rcode = Rcode::NXDOMAIN;
            play.records.push(soa(TTL, TTL));
        }
        ("no-soa", Rtype::AAAA) => {}
        ("soa-ttl", Rtype::AAAA) => play.records.push(soa(100, 7200)),
        ("soa-minimum", Rtype::AAAA) => play.records.push(soa(7200, 100)),
        ("referred", Rtype::A) => {
            let to = host().as_wire().to_vec();
            play.records.push(a());
            play.records.push((Section::Authority, Rtype::NS, TTL, to));
            play.records
                .push((Section::Additional, Rtype::A, TTL, ADDRESS.into()));
        }
        ("mail", Rtype::MX) => {
            let data = [&[0, 10], host().as_wire()].concat();
            play.records.push((Section::Answer, rtype, TTL, data));
            play.records
                .push((Section::Additional, Rtype::A, TTL, ADDRESS.into()));
        }
        ("web", Rtype::HTTPS) => {
            // SvcPriority 1, TargetName, ipv4hint (RFC 9460 section 2.2).
            let data = [&[0, 1], host().as_wire(), &[0, 4, 0, 4], &ADDRESS].concat();
            play.records.push((Section::Answer, rtype, TTL, data));
            play.records
                .push((Section::Additional, Rtype::A, TTL, ADDRESS.into()));
        }
        (_, Rtype::A) => play.records.push(a()),
        _ => play.records.push(soa(TTL, TTL)),
    }
    Some(play)
}

fn soa_data(minimum: u32) -> Vec<u8> {
    let mut data = [zone().as_wire(), zone().as_wire()].concat();
    for number in [1, 3600, 900, 86_400, minimum] {
        data.extend_from_slice(&number.to_be_bytes());
    }
    data
}
