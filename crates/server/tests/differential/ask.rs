//! Sends queries to a server and reads its responses.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use dns64_wire::build::Builder;
use dns64_wire::codes::{Class, Rtype};
use dns64_wire::message::{Flags, Message, Opt, Record, Section};
use dns64_wire::name::{Name, NameBuf};

/// Timeout for a response. A server whose upstream does not respond takes a few seconds.
const PATIENCE: Duration = Duration::from_secs(8);

#[derive(Clone)]
pub(crate) struct Question {
    pub(crate) name: NameBuf,
    pub(crate) rtype: Rtype,
    pub(crate) class: Class,
    pub(crate) rd: bool,
    pub(crate) cd: bool,
    pub(crate) ad: bool,
    /// Largest UDP payload in octets, and DO.
    pub(crate) edns: Option<(u16, bool)>,
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.name.as_name(), self.class, self.rtype)?;
        let flags = [
            (self.rd, " rd"),
            (self.cd, " cd"),
            (self.ad, " ad"),
            (self.edns.is_some_and(|(_, do_bit)| do_bit), " do"),
        ];
        for (_, flag) in flags.iter().filter(|(set, _)| *set) {
            f.write_str(flag)?;
        }
        match self.edns {
            Some((size, _)) => write!(f, " edns={size}"),
            None => Ok(()),
        }
    }
}

/// A record without its TTL, with all names in lower case, in the data too.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Data {
    pub(crate) owner: String,
    pub(crate) rtype: Rtype,
    pub(crate) rdata: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Response code with the upper bits from the OPT record.
    pub(crate) rcode: u16,
    pub(crate) aa: bool,
    pub(crate) ad: bool,
    pub(crate) ra: bool,
    /// Whether the UDP response was truncated. The records are then those of the TCP response.
    pub(crate) tc: bool,
    /// The answer section: records and their TTLs in seconds.
    pub(crate) records: BTreeMap<Data, u32>,
    /// Number of duplicate records.
    pub(crate) repeated: usize,
    /// TTL of the SOA record in the authority section.
    pub(crate) soa: Option<u32>,
}

/// Sends a query over UDP, and over TCP if the response is truncated; `None` without a response.
pub(crate) fn ask(server: IpAddr, question: &Question, id: u16) -> Option<Answer> {
    let query = query(question, id);
    let reply = over_udp(server, &query)?;
    let first = read(&reply, &query)?;
    if !first.tc {
        return Some(first);
    }
    let whole = read(&over_tcp(server, &query)?, &query)?;
    Some(Answer { tc: true, ..whole })
}

fn query(question: &Question, id: u16) -> Vec<u8> {
    let mut frame = [0; 512];
    let mut builder = Builder::new(&mut frame, 512).unwrap();
    let flags = Flags::default().with_rd(question.rd).with_cd(question.cd);
    builder.header(id, flags.with_ad(question.ad));
    let (name, rtype, class) = (&question.name, question.rtype, question.class);
    builder.question(name, rtype, class).unwrap();
    if let Some((udp_size, do_bit)) = question.edns {
        let opt = Opt {
            udp_size,
            ext_rcode: 0,
            version: 0,
            do_bit,
            options: &[],
        };
        builder.opt(opt).unwrap();
    }
    let len = builder.finish();
    frame[..len].into()
}

fn over_udp(server: IpAddr, query: &[u8]) -> Option<Vec<u8>> {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect(SocketAddr::new(server, 53)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.send(query).ok()?;
    let mut reply = vec![0; 65_535];
    let len = socket.recv(&mut reply).ok()?;
    reply.truncate(len);
    Some(reply)
}

fn over_tcp(server: IpAddr, query: &[u8]) -> Option<Vec<u8>> {
    let mut stream = TcpStream::connect(SocketAddr::new(server, 53)).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let len = u16::try_from(query.len()).unwrap();
    stream
        .write_all(&[&len.to_be_bytes(), query].concat())
        .ok()?;
    let mut len = [0; 2];
    stream.read_exact(&mut len).ok()?;
    let mut reply = vec![0; u16::from_be_bytes(len).into()];
    stream.read_exact(&mut reply).ok()?;
    Some(reply)
}

/// Reads a response, which must belong to this query and be well-formed.
fn read(reply: &[u8], query: &[u8]) -> Option<Answer> {
    let (message, query) = (Message::parse(reply).ok()?, Message::parse(query).ok()?);
    assert!(message.qr() && message.id() == query.id(), "{reply:?}");
    let opt = message.opt().unwrap();
    let mut answer = Answer {
        rcode: u16::from(message.rcode().0) | u16::from(opt.map_or(0, |opt| opt.ext_rcode)) << 4,
        aa: message.aa(),
        ad: message.ad(),
        ra: message.ra(),
        tc: message.tc(),
        records: BTreeMap::new(),
        repeated: 0,
        soa: None,
    };
    for record in message.records() {
        let record = record.unwrap();
        match (record.section, record.rtype) {
            (Section::Answer, _) => {
                let known = answer.records.insert(data(&message, &record), record.ttl);
                answer.repeated += usize::from(known.is_some());
            }
            (Section::Authority, Rtype::SOA) => answer.soa = Some(record.ttl),
            _ => {}
        }
    }
    Some(answer)
}

fn lower(name: &Name<'_>) -> String {
    name.to_string().to_ascii_lowercase()
}

fn data(message: &Message<'_>, record: &Record<'_>) -> Data {
    Data {
        owner: lower(&record.name),
        rtype: record.rtype,
        rdata: rdata(message, record),
    }
}

/// The data as text. Types whose data may be compressed have their names uncompressed (RFC 3597
/// section 4).
fn rdata(message: &Message<'_>, record: &Record<'_>) -> String {
    let ahead = match record.rtype {
        Rtype::A => return record.a().map_or("no address".into(), |a| a.to_string()),
        Rtype::AAAA => return record.aaaa().map_or("no address".into(), |a| a.to_string()),
        Rtype::CNAME | Rtype::DNAME | Rtype::NS | Rtype::PTR | Rtype::SOA => 0,
        Rtype::MX => 2,
        Rtype::SRV => 6,
        _ => return hex(record.rdata),
    };
    let names = if record.rtype == Rtype::SOA { 2 } else { 1 };
    let mut text = hex(&record.rdata[..ahead]);
    let mut at = record.rdata_offset + ahead;
    for _ in 0..names {
        let (name, end) = Name::parse(message.bytes(), at).unwrap();
        text += &lower(&name);
        at = end;
    }
    text + &hex(&message.bytes()[at..record.rdata_offset + record.rdata.len()])
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}
