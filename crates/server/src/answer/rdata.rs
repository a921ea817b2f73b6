//! Reads the data of records by type: the offsets of names in it, and whether its format is valid.

use dns64_wire::codes::{Class, Rtype};
use dns64_wire::message::{Record, Records};
use dns64_wire::name::Name;

/// The positions of the names in the data of a type that may be received compressed. Data of all
/// other types is copied unchanged (RFC 3597 section 4).
pub(super) struct Layout {
    before: Before,
    names: usize,
    /// Whether the names may be compressed in responses.
    pub(super) compress: bool,
}

/// The data before the first name.
enum Before {
    /// This number of octets.
    Octets(usize),
    /// This number of octets and three character strings (NAPTR, RFC 3403 section 4.1).
    Strings(usize),
}

impl Layout {
    pub(super) fn of(rtype: Rtype) -> Option<Self> {
        let layout = |octets, names, compress| {
            Some(Self {
                before: Before::Octets(octets),
                names,
                compress,
            })
        };
        match rtype.0 {
            // The types of RFC 1035: NS, MD, MF, CNAME, MB, MG, MR, PTR; SOA, MINFO; MX.
            2 | 3 | 4 | 5 | 7 | 8 | 9 | 12 => layout(0, 1, true),
            6 | 14 => layout(0, 2, true),
            15 => layout(2, 1, true),
            // Types that are accepted compressed and sent uncompressed (RFC 3597 section 4): RP;
            // AFSDB, RT; SIG; PX; NXT; SRV; DNAME (RFC 6672 section 2.5); KX (RFC 2230 section
            // 3.1); NAPTR.
            17 => layout(0, 2, false),
            18 | 21 | 36 => layout(2, 1, false),
            24 => layout(18, 1, false),
            26 => layout(2, 2, false),
            30 | 39 => layout(0, 1, false),
            33 => layout(6, 1, false),
            35 => Some(Self {
                before: Before::Strings(4),
                names: 1,
                compress: false,
            }),
            _ => None,
        }
    }

    /// Splits a record's data into its parts; `None` if it does not have this layout. `name` reads
    /// the name at an offset of the message and returns its end too.
    pub(super) fn split<'a, N: Copy>(
        &self,
        record: &Record<'a>,
        mut name: impl FnMut(usize) -> Option<(N, usize)>,
    ) -> Option<Parts<'a, N>> {
        let data = record.rdata;
        let before_len = match self.before {
            Before::Octets(len) => len,
            Before::Strings(len) => {
                let string_end = |at: usize| Some(at + 1 + usize::from(*data.get(at)?));
                string_end(string_end(string_end(len)?)?)?
            }
        };
        let before = data.get(..before_len)?;
        let mut at = record.rdata_offset + before_len;
        let mut names = [None; 2];
        for place in names.iter_mut().take(self.names) {
            let (found, end) = name(at)?;
            *place = Some(found);
            at = end;
        }
        let after = data.get(at - record.rdata_offset..)?;
        Some(Parts {
            before,
            names,
            after,
        })
    }
}

/// The parts of a record's data.
pub(super) struct Parts<'a, N> {
    pub(super) before: &'a [u8],
    pub(super) names: [Option<N>; 2],
    pub(super) after: &'a [u8],
}

/// Octets of an SOA record after its two names (RFC 1035 section 3.3.13).
const SOA_NUMBERS_LEN: usize = 20;

/// Octets of an RRSIG record before the signer's name (RFC 4034 section 3.1).
const RRSIG_FIXED_LEN: usize = 18;

/// Octets of SvcPriority (RFC 9460 section 2.2).
const PRIORITY_LEN: usize = 2;

/// Checks that the data of a record has the format of its type: names and strings end within the
/// data, and fields of fixed length have that length. The data of unknown types (RFC 3597 section 3)
/// and of addresses in classes other than IN is not restricted. `None` if it does not; otherwise the
/// [`Target`] in it. Names count towards the limit of `records`, the iterator that returned the
/// record.
pub(super) fn check<'a>(records: &mut Records<'a>, record: &Record<'a>) -> Option<Target<'a>> {
    let mut name = |at| records.name(at).ok();
    if let Some(layout) = Layout::of(record.rtype) {
        let parts = layout.split(record, name)?;
        let is_sound = match record.rtype.0 {
            6 => parts.after.len() == SOA_NUMBERS_LEN,
            // SIG: the signature. NXT: the type bit map.
            24 | 30 => !parts.after.is_empty(),
            _ => parts.after.is_empty(),
        };
        let is_target = match record.rtype.0 {
            // CNAME, DNAME; NS, MX, AFSDB, RT, SRV, NAPTR, KX.
            5 | 39 | 2 | 15 | 18 | 21 | 33 | 35 | 36 => true,
            _ => false,
        };
        return is_sound.then_some(parts.names[0].filter(|_| is_target));
    }
    if record.class != Class::IN && matches!(record.rtype, Rtype::A | Rtype::AAAA) {
        return Some(None);
    }
    has_form(record.rtype, record.rdata)?;
    match record.rtype {
        Rtype::RRSIG => Some(Some(name(record.rdata_offset + RRSIG_FIXED_LEN)?.0)),
        Rtype::SVCB | Rtype::HTTPS => {
            let (target, _) = name(record.rdata_offset + PRIORITY_LEN)?;
            // "." is the owner in ServiceMode (RFC 9460 section 2.5.2); in AliasMode there is no
            // service (section 2.5.1).
            Some(match (target.is_root(), record.rdata.first_chunk()) {
                (false, _) => Some(target),
                (true, Some([0, 0])) => None,
                (true, _) => Some(record.name),
            })
        }
        _ => Some(None),
    }
}

/// The name in the data of a record that other records of the response may belong to: the target of
/// an alias, a host (RFC 1035 section 3.3, RFC 2782, RFC 3403) or a service, and the zone whose key
/// created a signature (RFC 4034 section 3.1.7).
pub(super) type Target<'a> = Option<Name<'a>>;

/// `Some` if the data has the format of a type without compressed names.
fn has_form(rtype: Rtype, data: &[u8]) -> Option<()> {
    let is = |sound: bool| sound.then_some(());
    let len = data.len();
    match rtype.0 {
        1 => is(len == 4),
        28 => is(len == 16),
        // HINFO; TXT and SPF.
        13 => is(strings(data)? == 2),
        16 | 99 => is(strings(data)? > 0),
        // LOC of version 0 (RFC 1876 section 2).
        29 => is(data.first()? > &0 || len == 16),
        // DS and CDS, DNSKEY and CDNSKEY: four octets and a digest or a key (RFC 4034, RFC 7344).
        43 | 48 | 59 | 60 => is(len > 4),
        // SSHFP (RFC 4255 section 3.1).
        44 => is(len > 2),
        // RRSIG: the signer's name is not compressed (RFC 4034 section 3.1.7).
        46 => is(!behind_name(data.get(RRSIG_FIXED_LEN..)?)?.is_empty()),
        // NSEC (RFC 4034 section 4.1), NSEC3 and NSEC3PARAM (RFC 5155 sections 3.2 and 4.2).
        47 => is(is_type_map(behind_name(data)?)),
        50 => {
            let hash = behind_string(data.get(4..)?)?;
            is(hash.first()? > &0 && is_type_map(behind_string(hash)?))
        }
        51 => is(behind_string(data.get(4..)?)?.is_empty()),
        // TLSA and SMIMEA: three octets and data (RFC 6698 section 2.1).
        52 | 53 => is(len > 3),
        // CSYNC (RFC 7477 section 2.1.1).
        62 => is(is_type_map(data.get(6..)?)),
        64 | 65 => is(are_parameters(behind_name(data.get(PRIORITY_LEN..)?)?)),
        // URI: its target is not empty (RFC 7553 section 4.4).
        256 => is(len > 4),
        257 => is(is_caa(data)),
        _ => Some(()),
    }
}

/// Number of character strings that fill the data (RFC 1035 section 3.3).
fn strings(mut data: &[u8]) -> Option<usize> {
    let mut count = 0;
    while !data.is_empty() {
        data = behind_string(data)?;
        count += 1;
    }
    Some(count)
}

/// Returns the data after a character string: an octet of length and as many octets.
fn behind_string(data: &[u8]) -> Option<&[u8]> {
    data.get(1 + usize::from(*data.first()?)..)
}

/// Returns the data after an uncompressed name. A compression pointer in it is invalid.
fn behind_name(data: &[u8]) -> Option<&[u8]> {
    let (_, end) = Name::parse(data, 0).ok()?;
    data.get(end..)
}

/// Whether the data is a type bit map: blocks in ascending order, each with 1 to 32 octets (RFC
/// 4034 section 4.1.2).
fn is_type_map(mut data: &[u8]) -> bool {
    let mut last = None;
    while let [window, len @ 1..=32, rest @ ..] = data {
        if last.is_some_and(|last| last >= window) || rest.len() < usize::from(*len) {
            return false;
        }
        last = Some(window);
        data = &rest[usize::from(*len)..];
    }
    data.is_empty()
}

/// Whether the data is a list of service parameters: each key once, in ascending order (RFC 9460
/// section 2.2), and values of fixed format valid (sections 7.1.1, 7.2 and 7.3).
fn are_parameters(mut data: &[u8]) -> bool {
    let mut last = None;
    while let [k0, k1, l0, l1, rest @ ..] = data {
        let [key, len] = [[*k0, *k1], [*l0, *l1]].map(u16::from_be_bytes);
        let len = usize::from(len);
        let is_formed = match key {
            // no-default-alpn; port; ipv4hint; ipv6hint.
            2 => len == 0,
            3 => len == 2,
            4 => len > 0 && len.is_multiple_of(4),
            6 => len > 0 && len.is_multiple_of(16),
            _ => true,
        };
        if !is_formed || last.is_some_and(|last| last >= key) || rest.len() < len {
            return false;
        }
        last = Some(key);
        data = &rest[len..];
    }
    data.is_empty()
}

/// Whether the tag of a CAA record consists of letters and digits and is not empty (RFC 8659
/// section 4.1).
fn is_caa(data: &[u8]) -> bool {
    let tag = data
        .get(1)
        .and_then(|len| data.get(2..2 + usize::from(*len)));
    tag.is_some_and(|tag| !tag.is_empty() && tag.iter().all(u8::is_ascii_alphanumeric))
}

/// The type that a signature covers (RFC 4034 section 3.1.1); `None` for other records.
pub(super) fn covered(record: &Record<'_>) -> Option<Rtype> {
    let covered = record.rdata.first_chunk()?;
    (record.rtype == Rtype::RRSIG).then(|| Rtype(u16::from_be_bytes(*covered)))
}

#[cfg(test)]
mod tests;
