//! What happened to the connections of a link.

use crate::clock::Nanos;

/// How a server ended a connection that it had accepted queries on, or refused one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ending {
    /// It refused the connection (RST to SYN).
    Refused,
    /// It reset the connection.
    Reset,
    /// It closed the connection in order.
    #[default]
    Closed,
    /// The TLS handshake failed, or the server violated the protocol later.
    Tls,
    /// It, or the network on the way to it, did not answer the request for a connection.
    Unreachable,
}

impl Ending {
    /// All of them, by index.
    pub const ALL: [Self; 5] = [
        Self::Refused,
        Self::Reset,
        Self::Closed,
        Self::Tls,
        Self::Unreachable,
    ];
}

/// The connections of a link since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    /// Connections established, with their TLS handshake if there is one.
    pub established: u64,
    /// Those of them that the link was opened with.
    pub at_opening: u64,
    /// Time from the request for each of the first [`SET_UPS_MAX`] of them to its establishment. Saturates at 4.29 s.
    pub set_up_ns: Vec<u32>,
    /// Connections that the server ended while no query was open on them (RFC 7766 section 6.2.3).
    pub ended_idle: u64,
    /// Connections that it ended otherwise, by [`Ending`].
    pub ended: [u64; Ending::ALL.len()],
    /// Queries that were open on these, or were due while there was no connection for this reason.
    pub lost: [u64; Ending::ALL.len()],
    /// Queries that were lost because the server did not read: its window was closed, and so was that of the link.
    pub not_read: u64,
    /// Segments that the kernel sent again.
    pub retransmitted: u64,
}

/// Largest number of set-up times that are kept.
pub const SET_UPS_MAX: usize = 1 << 20;

impl Connections {
    /// Counts a connection that was established after this time.
    pub(super) fn established(&mut self, after_ns: Nanos) {
        self.established += 1;
        if self.set_up_ns.len() < self.set_up_ns.capacity() {
            let after_ns = u32::try_from(after_ns).unwrap_or(u32::MAX);
            self.set_up_ns.push(after_ns);
        }
    }

    /// Counts a connection that the server ended with `lost` open queries.
    pub(super) fn ended(&mut self, how: Ending, lost: u64) {
        self.ended[how as usize] += 1;
        self.lost[how as usize] += lost;
    }
}
