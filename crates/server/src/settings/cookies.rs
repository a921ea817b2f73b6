//! The secrets of the DNS cookies that several servers share.

use std::fmt;

/// Secrets of server cookies (RFC 9018 section 4.2). Their text never shows them.
#[derive(Clone, PartialEq, Eq)]
pub struct CookieSecrets {
    /// Makes and checks cookies.
    pub first: [u8; 16],
    /// Checks cookies as well: the one before or after, while the servers change from one to the other.
    pub second: Option<[u8; 16]>,
    /// Seconds since 1970 at the start of the server's clock, so that servers agree on the time of a cookie.
    pub epoch_s: u32,
}

impl CookieSecrets {
    /// The secret of a single server, for which any clock is sufficient.
    pub fn own(secret: [u8; 16]) -> Self {
        Self {
            first: secret,
            second: None,
            epoch_s: 0,
        }
    }
}

impl fmt::Debug for CookieSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = 1 + usize::from(self.second.is_some());
        write!(f, "CookieSecrets({number})")
    }
}
