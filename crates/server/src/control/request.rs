//! The requests.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::cache::Place;

/// A request to the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Report the state.
    Status,
    /// Report the counters.
    Stats,
    /// Flush the cache.
    Flush {
        /// Flush only this name and the names below it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// Flush only responses to questions for exactly this name and this type.
        #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
        rtype: Option<String>,
    },
    /// Reload the configuration.
    Reload,
    /// Report what a client would get for a query, and from where.
    Lookup {
        /// The name.
        name: String,
        /// The type; default: AAAA.
        #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
        rtype: Option<String>,
        /// The address of the client; default: ::1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        client: Option<IpAddr>,
    },
    /// List the responses in the cache: a part of them at a time.
    Dump {
        /// The `next` of the part before; default: the first.
        #[serde(default)]
        from: Place,
    },
    /// List the questions that clients wait for.
    Inflight,
    /// Do not query an upstream, or query it again.
    Upstream {
        /// Its address; default port: 53.
        address: String,
        /// Whether it is queried.
        up: bool,
    },
    /// Change the lowest level of the messages in the log, until a restart.
    LogLevel {
        /// `error`, `warn`, `info` or `debug`.
        level: String,
    },
}

impl Request {
    /// Parses a line.
    ///
    /// # Errors
    ///
    /// The reason why the line is not a request.
    pub fn parse(line: &str) -> Result<Self, String> {
        serde_json::from_str(line).map_err(|error| format!("no such request: {error}"))
    }
}
