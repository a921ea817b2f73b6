//! Compares two responses.

use dns64_transport::clock::{Nanos, SECOND};

use crate::ask::Answer;

/// Tolerance for TTLs in seconds, for servers that have run for `age_ns`. The servers and the
/// resolver round, and they are queried in sequence on a machine that may be busy. A record in
/// several responses (the SOA of a zone) may count down from the first of them in one server and
/// from the last in another.
pub(crate) fn ttl_tolerance_s(age_ns: Nanos) -> u32 {
    const ROUNDING_S: u64 = 5;
    u32::try_from(age_ns / SECOND + ROUNDING_S).unwrap_or(u32::MAX)
}

/// A part of a response that can differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Aspect {
    /// One of the two does not respond.
    Silence,
    /// Response code.
    Rcode,
    /// Authoritative answer.
    Aa,
    /// Authentic data.
    Ad,
    /// Recursion available.
    Ra,
    /// Whether the UDP response was truncated.
    Tc,
    /// Records of the answer section: owner, type, data.
    Records,
    /// TTL of a record that both responses have.
    Ttl,
    /// Whether there is an SOA record in the authority section.
    Soa,
    /// TTL of the SOA record, if both responses have one.
    SoaTtl,
}

/// The differences in the order of [`Aspect`]; TTLs if they differ by more than `tolerance_s`.
pub(crate) fn differences(
    one: Option<&Answer>,
    other: Option<&Answer>,
    tolerance_s: u32,
) -> Vec<Aspect> {
    let (Some(one), Some(other)) = (one, other) else {
        return if one.is_some() == other.is_some() {
            Vec::new()
        } else {
            vec![Aspect::Silence]
        };
    };
    let keys = |answer: &Answer| answer.records.keys().cloned().collect::<Vec<_>>();
    let ttls = one.records.iter().any(|(data, ttl)| {
        let other = other.records.get(data);
        other.is_some_and(|other| ttl.abs_diff(*other) > tolerance_s)
    });
    let soa_ttls = one.soa.zip(other.soa);
    let all = [
        (Aspect::Rcode, one.rcode != other.rcode),
        (Aspect::Aa, one.aa != other.aa),
        (Aspect::Ad, one.ad != other.ad),
        (Aspect::Ra, one.ra != other.ra),
        (Aspect::Tc, one.tc != other.tc),
        (
            Aspect::Records,
            keys(one) != keys(other) || one.repeated != other.repeated,
        ),
        (Aspect::Ttl, ttls),
        (Aspect::Soa, one.soa.is_some() != other.soa.is_some()),
        (
            Aspect::SoaTtl,
            soa_ttls.is_some_and(|(a, b)| a.abs_diff(b) > tolerance_s),
        ),
    ];
    let differs = all.into_iter().filter(|(_, differs)| *differs);
    differs.map(|(aspect, _)| aspect).collect()
}
