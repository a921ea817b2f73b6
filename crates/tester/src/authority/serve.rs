//! One turn of an authority at a link.

use dns64_transport::{Link, LinkError};

use super::answer::{Authority, Transport};

/// Answers up to about `max` queries that wait at `link`; returns how many datagrams were taken
/// in, those without a reply among them.
pub fn turn<L: Link>(
    authority: &mut Authority,
    link: &mut L,
    max: usize,
) -> Result<usize, LinkError> {
    link.answer(max, |datagram, frame| {
        authority.answer(datagram.payload, frame, Transport::Udp)
    })
}
