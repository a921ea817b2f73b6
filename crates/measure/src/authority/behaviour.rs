//! Deliberate faults of an authority: which replies it delays, drops or alters.
//!
//! ```text
//! text <--> Behaviour (as configured) --reads its file--> Rules: (number of the name, type) -> Act
//! ```
//!
//! The fault depends only on the number of the name, the type of the question and a seed. So a repeated query meets the
//! same fault, and shares are exact.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use dns64_transport::clock::Nanos;
use dns64_transport::random::{INCREMENT, below, mix};
use dns64_wire::codes::Rtype;

use crate::load::repeat::unit;
use crate::namespace::{Share, dealt, rest};
use crate::quantity::{self, ValueError};

/// Deliberate faults of an authority. The default is none.
///
/// Its text form is a list such as `delay=5ms+-1ms,loss=0.1%,servfail=1%`, or `none`: keys of [`ReplyFault::KEYS`] with
/// shares of the names, `delay`, and a `seed`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Behaviour {
    /// Delay of each reply over UDP.
    pub delay: Delay,
    /// Share of the names for each fault, in the order of [`ReplyFault::KEYS`]. The shares are [`dealt`] in this order, so
    /// each query meets at most one fault.
    shares: [Share; FAULTS],
    /// Additional delay of a reordered reply.
    hold_ns: Nanos,
    /// Selects the names: another seed selects other names.
    seed: u64,
}

/// Delay of replies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delay {
    /// A constant delay; 0 for none.
    Fixed(Nanos),
    /// Uniformly distributed around a mean.
    Jittered {
        /// The mean.
        middle_ns: Nanos,
        /// Largest deviation from the mean.
        spread_ns: Nanos,
    },
    /// Drawn from a distribution whose quantiles are in a file.
    File(PathBuf),
}

impl Default for Delay {
    fn default() -> Self {
        Self::Fixed(0)
    }
}

/// A fault of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyFault {
    /// It is not sent (UDP only).
    Lost,
    /// Its RCODE is SERVFAIL.
    ServFail,
    /// Its RCODE is REFUSED.
    Refused,
    /// It has TC set and no records; over TCP it is complete.
    Truncated,
    /// It is delayed so that later replies overtake it (UDP only).
    Reordered,
    /// It is sent twice (UDP only).
    Duplicated,
}

/// Number of fault types.
const FAULTS: usize = ReplyFault::KEYS.len();

impl ReplyFault {
    /// All faults with their keys, in the order in which the shares are dealt.
    pub const KEYS: [(Self, &'static str); 6] = [
        (Self::Lost, "loss"),
        (Self::ServFail, "servfail"),
        (Self::Refused, "refused"),
        (Self::Truncated, "truncate"),
        (Self::Reordered, "reorder"),
        (Self::Duplicated, "duplicate"),
    ];
}

impl Behaviour {
    /// Returns whether the authority has no deliberate faults.
    pub fn is_none(&self) -> bool {
        self.delay == Delay::default() && self.shares == [Share::NONE; FAULTS]
    }

    /// Share of the names that meets a fault.
    pub fn share(&self, fault: ReplyFault) -> Share {
        self.shares[fault as usize]
    }

    /// The delay if it is constant and the only fault; 0 without any fault.
    pub fn only_delay_ns(&self) -> Option<Nanos> {
        match self.delay {
            Delay::Fixed(delay_ns) if self.shares == [Share::NONE; FAULTS] => Some(delay_ns),
            _ => None,
        }
    }
}

impl FromStr for Behaviour {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let mut behaviour = Self::default();
        if text == NONE {
            return Ok(behaviour);
        }
        let mut known = Vec::new();
        for part in text.split(',') {
            let (key, value) = part.split_once('=').ok_or_else(|| unreadable(part))?;
            if known.contains(&key) {
                return Err(ValueError(format!("{key} is given twice; give it once")));
            }
            known.push(key);
            let fault = ReplyFault::KEYS.iter().find(|(_, name)| *name == key);
            match (key, fault) {
                ("delay", _) => behaviour.delay = value.parse()?,
                ("seed", _) => behaviour.seed = value.parse().map_err(|_| unreadable(part))?,
                (_, Some((ReplyFault::Reordered, _))) => {
                    let (share, hold) = value.split_once(':').ok_or_else(|| unreadable(part))?;
                    behaviour.hold_ns = quantity::delay(hold)?;
                    behaviour.shares[ReplyFault::Reordered as usize] = share.parse()?;
                }
                (_, Some((fault, _))) => behaviour.shares[*fault as usize] = value.parse()?,
                (_, None) => return Err(unreadable(part)),
            }
        }
        if rest(&behaviour.shares).is_none() {
            let error = "the shares add up to more than 100%; a name gets at most one fault";
            return Err(ValueError(error.to_owned()));
        }
        Ok(behaviour)
    }
}

const NONE: &str = "none";

fn unreadable(part: &str) -> ValueError {
    ValueError(format!(
        "'{part}' is not a behaviour; write none, or a list such as delay=5ms,loss=0.1% of delay=TIME, \
         delay=TIME+-TIME or delay=@FILE, loss=SHARE, servfail=SHARE, refused=SHARE, truncate=SHARE, \
         reorder=SHARE:TIME, duplicate=SHARE and seed=NUMBER"
    ))
}

impl FromStr for Delay {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if let Some(path) = text.strip_prefix('@') {
            return match path {
                "" => Err(ValueError::unreadable("a file of quantiles", "@delays.txt")),
                path => Ok(Self::File(path.into())),
            };
        }
        let Some((middle, spread)) = text.split_once("+-") else {
            return Ok(Self::Fixed(quantity::delay(text)?));
        };
        let (middle_ns, spread_ns) = (quantity::delay(middle)?, quantity::delay(spread)?);
        if spread_ns > middle_ns {
            let error =
                format!("no delay can be below 0; give {text} a spread of at most {middle}");
            return Err(ValueError(error));
        }
        Ok(Self::Jittered {
            middle_ns,
            spread_ns,
        })
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let written = quantity::written;
        match self {
            Self::Fixed(delay_ns) => f.write_str(&written(*delay_ns)),
            Self::Jittered {
                middle_ns,
                spread_ns,
            } => write!(f, "{}+-{}", written(*middle_ns), written(*spread_ns)),
            Self::File(path) => write!(f, "@{}", path.display()),
        }
    }
}

impl fmt::Display for Behaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if self.delay != Delay::default() {
            parts.push(format!("delay={}", self.delay));
        }
        for (fault, key) in ReplyFault::KEYS {
            let share = self.share(fault);
            if share != Share::NONE {
                parts.push(match fault {
                    ReplyFault::Reordered => {
                        format!("{key}={share}:{}", quantity::written(self.hold_ns))
                    }
                    _ => format!("{key}={share}"),
                });
            }
        }
        match (parts.is_empty(), self.seed) {
            (true, _) => f.write_str(NONE),
            (false, 0) => f.write_str(&parts.join(",")),
            (false, seed) => write!(f, "{},seed={seed}", parts.join(",")),
        }
    }
}

/// A [`Behaviour`] whose file has been read: decides the fate of each reply.
#[derive(Clone, Debug)]
pub struct Rules {
    behaviour: Behaviour,
    /// Quantiles of the delay, if it comes from a file: shares in ascending order from 0 to 1, and the delay at each.
    quantiles: Vec<(f64, Nanos)>,
}

/// Decision on one reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Act {
    /// Its fault.
    pub fault: Option<ReplyFault>,
    /// Its delay over UDP; for a reordered reply this includes the time for others to overtake it.
    pub delay_ns: Nanos,
}

impl Rules {
    /// Reads the file of delays, if the behaviour names one.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or is not a list of quantiles.
    pub fn new(behaviour: Behaviour) -> Result<Self, ValueError> {
        let quantiles = match &behaviour.delay {
            Delay::File(path) => {
                let text = std::fs::read_to_string(path);
                let text = text.map_err(|error| unusable(path, "", &error.to_string()))?;
                quantiles(path, &text)?
            }
            Delay::Fixed(_) | Delay::Jittered { .. } => Vec::new(),
        };
        Ok(Self {
            behaviour,
            quantiles,
        })
    }

    /// The configured behaviour.
    pub fn behaviour(&self) -> &Behaviour {
        &self.behaviour
    }

    /// Decides on the reply to a query of type `rtype` for name number `n`. A query without a numbered name meets no
    /// fault except the delay.
    pub fn act(&self, n: Option<u32>, rtype: Rtype) -> Act {
        let Behaviour { shares, seed, .. } = &self.behaviour;
        // Each type has its own positions: the A and the AAAA of a name meet independent faults.
        let place = mix(seed ^ u64::from(rtype.0).wrapping_mul(INCREMENT));
        let number = u64::from(n.unwrap_or(0));
        let at = n.and_then(|_| dealt(shares, number + place % PLACES));
        let fault = at.map(|at| ReplyFault::KEYS[at].0);
        let delay_ns = self.delay_ns(mix(place ^ (number + 1).wrapping_mul(INCREMENT)));
        let hold_ns = match fault {
            Some(ReplyFault::Reordered) => self.behaviour.hold_ns,
            _ => 0,
        };
        Act {
            fault,
            delay_ns: delay_ns + hold_ns,
        }
    }

    fn delay_ns(&self, random: u64) -> Nanos {
        match self.behaviour.delay {
            Delay::Fixed(delay_ns) => delay_ns,
            Delay::Jittered {
                middle_ns,
                spread_ns,
            } => middle_ns - spread_ns + below(random, 2 * spread_ns + 1),
            Delay::File(_) => self.at_quantile(unit(random)),
        }
    }

    /// Delay at this share; linear between two quantiles of the file.
    fn at_quantile(&self, share: f64) -> Nanos {
        let after = self.quantiles.partition_point(|(known, _)| *known <= share);
        let pair = (after.checked_sub(1)).and_then(|from| self.quantiles.get(from..=after));
        let Some(&[(low, from_ns), (high, to_ns)]) = pair else {
            return self.quantiles.last().map_or(0, |(_, delay_ns)| *delay_ns);
        };
        let part = (share - low) / (high - low);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of at most 10 s, never negative"
        )]
        let more_ns = (part * (to_ns - from_ns) as f64) as Nanos;
        from_ns + more_ns
    }

    /// The longest delay.
    pub fn delay_ns_max(&self) -> Nanos {
        let delay_ns = match self.behaviour.delay {
            Delay::Fixed(delay_ns) => delay_ns,
            Delay::Jittered {
                middle_ns,
                spread_ns,
            } => middle_ns + spread_ns,
            Delay::File(_) => self.at_quantile(1.0),
        };
        delay_ns + self.behaviour.hold_ns
    }
}

/// Shares are exact over a million consecutive numbers; each type starts at its own position.
const PLACES: u64 = 1_000_000;

/// The error of a file of delays, at this line.
fn unusable(path: &Path, line: &str, reason: &str) -> ValueError {
    ValueError(format!(
        "delays of the authority: {}{line}: {reason}; each line has a share and a time, such as 50% 2ms, the first 0%, \
         the last 100%, both rising",
        path.display()
    ))
}

/// Parses the lines of a file: "50% 2ms". A # starts a comment.
fn quantiles(path: &Path, text: &str) -> Result<Vec<(f64, Nanos)>, ValueError> {
    let refused = |line: usize, reason: &str| unusable(path, &format!(", line {line}"), reason);
    let mut quantiles: Vec<(f64, Nanos)> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let content = line.split('#').next().unwrap_or_default();
        let mut words = content.split_whitespace();
        let (share, delay) = match (words.next(), words.next(), words.next()) {
            (None, ..) => continue,
            (Some(share), Some(delay), None) => (share, delay),
            _ => return Err(refused(number, "not two words")),
        };
        let wrong = |error: ValueError| refused(number, &error.0);
        let share = share.parse::<Share>().map_err(wrong)?;
        let delay_ns = quantity::delay(delay).map_err(wrong)?;
        let share = share.below(PLACES) as f64 / PLACES as f64;
        if let Some((before, shorter_ns)) = quantiles.last()
            && (share <= *before || delay_ns < *shorter_ns)
        {
            return Err(refused(number, "not above the line before"));
        }
        quantiles.push((share, delay_ns));
    }
    let ends = [quantiles.first(), quantiles.last()].map(|end| end.map(|(share, _)| *share));
    match ends {
        [Some(0.0), Some(1.0)] => Ok(quantiles),
        _ => Err(unusable(path, "", "not from 0% to 100%")),
    }
}

#[cfg(test)]
mod tests;
