//! The live page: the status of a campaign for browsers and for Prometheus, over HTTP/1.1.
//!
//! | path | content |
//! |---|---|
//! | `/` | a page that updates itself every 2 s |
//! | `/status.json` | a [`Status`], the version and the time |
//! | `/metrics` | metrics, as OpenMetrics 1.0 or in the text format of Prometheus |
//!
//! All paths are read only. One thread of the lowest priority serves all clients. A request holds the lock on the
//! status only while it is copied, for a few microseconds. The rest takes less than a millisecond for a campaign of 93
//! points and 20 runs, on a CPU that no role of a trial needs, if there is one.

#[path = "../../../../exposition.rs"]
mod exposition;
#[path = "../../../../http.rs"]
mod http;
mod metrics;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};

use dns64_transport::cpu;
use schemars::JsonSchema;
use serde::Serialize;

use crate::campaign::status::Status;
use crate::connections::{ConnectionService, Next};
use crate::lab::{Blame, LabError};
use exposition::Format;
use http::{Answer, Request};

/// The live page of a campaign. It is served until this value is dropped.
#[derive(Debug)]
pub struct Live(ConnectionService);

impl Live {
    /// Serves `status` at `listen` until dropped; the system selects the port if it is 0. `now_unix_ms` returns the
    /// time in milliseconds since 1970.
    ///
    /// # Errors
    ///
    /// The address is not available, or a thread cannot be started.
    pub fn start(
        listen: SocketAddr,
        status: Arc<Mutex<Status>>,
        now_unix_ms: fn() -> u64,
    ) -> Result<Self, LabError> {
        let refused = |reason: io::Error| {
            let why = match reason.kind() {
                io::ErrorKind::AddrInUse => IN_USE.to_owned(),
                _ => format!("{reason}; give an address of this machine and a port from 1024 on"),
            };
            Blame::Machine.error(format!("cannot serve the live page at {listen}: {why}"))
        };
        let listener = TcpListener::bind(listen).map_err(refused)?;
        let own = listener.local_addr().map_err(refused)?.ip();
        let begin = move || {
            // Without the permission the page is served nevertheless.
            let _ = cpu::give_way();
            // After a panic with the lock held the status is still worth showing.
            let copy = move || {
                let status = status.lock().unwrap_or_else(PoisonError::into_inner);
                status.clone()
            };
            move |head: &mut Vec<u8>, page: &mut Vec<u8>| {
                if head.len() <= http::HEAD_MAX && !http::is_whole(head) {
                    return Next::Wait;
                }
                *page = http::reply(head, own, FIELDS, |request| {
                    answer(request, now_unix_ms, &copy)
                });
                Next::Close
            }
        };
        let no_thread = Blame::Machine.because("cannot start the thread of the live page");
        let service = ConnectionService::start(listener, "live page", VISITORS_MAX, None, begin);
        service.map(Self).map_err(no_thread)
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

/// Content of `/status.json`.
#[derive(JsonSchema, Serialize)]
pub struct Picture<'a> {
    /// Program and version of the Tester.
    tester: &'static str,
    /// Current time of the Tester's clock: milliseconds since 1970.
    now_unix_ms: u64,
    #[serde(flatten)]
    status: &'a Status,
}

/// Answers one request; `None` for a path that does not exist.
fn answer(
    request: &Request<'_>,
    now_unix_ms: fn() -> u64,
    copy: impl FnOnce() -> Status,
) -> Option<Answer> {
    Some(match request.path {
        "/" => Answer::page("text/html; charset=utf-8", PAGE.to_owned()),
        "/status.json" => {
            let picture = Picture {
                tester: crate::PROGRAM,
                now_unix_ms: now_unix_ms(),
                status: &copy(),
            };
            // Only numbers and texts: all of them have a JSON form.
            let body = serde_json::to_string(&picture).unwrap_or_default();
            Answer::page("application/json", body)
        }
        "/metrics" => {
            let format = Format::preferred(&request.accept);
            Answer::page(format.content_type(), format.page(metrics::text(copy())))
        }
        _ => return None,
    })
}

/// The page includes its script and style and loads nothing else: these fields let the browser enforce that.
const FIELDS: &str = "Cache-Control: no-store\r\n\
    Content-Security-Policy: default-src 'none'; script-src 'unsafe-inline'; \
    style-src 'unsafe-inline'; img-src data:; connect-src 'self'; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'\r\n\
    X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n";

const IN_USE: &str = "the address is in use; give another port, or stop the program that uses it (`ss -ltnp` names it)";

/// Maximum number of connections.
const VISITORS_MAX: usize = 16;

/// The page, which fetches `status.json` and shows it.
const PAGE: &str = include_str!("live/page.html");

#[cfg(test)]
mod tests;
