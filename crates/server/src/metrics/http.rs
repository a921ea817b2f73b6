//! The metrics page over HTTP/1.1: bounds on connections and time.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::rc::Rc;
use std::time::Duration;

use dns64_transport::clock::{Clock, MonotonicClock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::Page;
use super::exposition::Format;
use super::message::{Answer, END, HEAD_MAX, is_whole, reply};
use crate::gateway::places::{Limits, Places, Standing};

/// Maximum numbers of concurrent requests. A few scrapers connect every few seconds, and one client
/// network leaves places for three others. A new request closes the connection with the oldest
/// unfinished request.
const REQUESTS: Limits = Limits {
    total: 64,
    network: 16,
};

/// Timeout for the head of a request: enough for a lost segment, which is retransmitted after 1 s
/// (RFC 6298 section 2.1).
const HEAD_TIME: Duration = Duration::from_secs(2);

/// Timeout for sending the page; the default timeout of scrapers is 10 s.
const READ_TIME: Duration = Duration::from_secs(10);

/// Pause after the kernel refused to accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves the page as long as the runtime runs. Needs a [`tokio::task::LocalSet`].
///
/// # Errors
///
/// Tokio cannot use the socket.
pub async fn serve(listener: TcpListener, page: Page) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let own = listener.local_addr()?.ip();
    let page = Rc::new(page);
    let places = Rc::new(RefCell::new(Places::default()));
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            // Usually no descriptors are left.
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (network, now) = (page.network_of(peer.ip()), MonotonicClock.now());
        if places
            .borrow_mut()
            .make_room(network, REQUESTS, now)
            .is_err()
        {
            continue;
        }
        // Dropping the place ends the request.
        let (place, evicted) = oneshot::channel::<()>();
        let number = places.borrow_mut().take(network, now, place);
        let request = Request {
            number,
            own,
            places: Rc::clone(&places),
            page: Rc::clone(&page),
        };
        tokio::task::spawn_local(async move {
            tokio::select! {
                _ = evicted => {}
                // Clients that are too slow, or have disconnected, do not get the page.
                _ = request.answer(stream) => {}
            }
            request.places.borrow_mut().release(request.number);
        });
    }
}

/// A request.
struct Request {
    number: u64,
    /// The address that it came to.
    own: IpAddr,
    places: Rc<RefCell<Places<oneshot::Sender<()>>>>,
    page: Rc<Page>,
}

impl Request {
    async fn answer(&self, mut stream: TcpStream) -> io::Result<()> {
        let head = tokio::time::timeout(HEAD_TIME, read_head(&mut stream)).await??;
        let standing = Standing {
            busy: true,
            since: MonotonicClock.now(),
        };
        self.places.borrow_mut().stand(self.number, standing);
        let response = response(&head, self.own, &self.page);
        tokio::time::timeout(READ_TIME, stream.write_all(&response)).await??;
        stream.shutdown().await
    }
}

/// Reads the head of a request, or its first part if it is too long.
async fn read_head(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut seen = 0;
    while !is_whole(&head[seen..]) && head.len() <= HEAD_MAX {
        // The end marker may have begun in the octets read so far.
        seen = head.len().saturating_sub(END.len() - 1);
        if stream.read_buf(&mut head).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(head)
}

/// The response of a page that listens on `own` to any head of a request.
#[doc(hidden)] // For a fuzz target.
pub fn response(request: &[u8], own: IpAddr, page: &Page) -> Vec<u8> {
    reply(request, own, "Vary: Accept\r\n", |request| {
        let format = Format::preferred(&request.accept);
        (request.path == "/metrics")
            .then(|| Answer::page(format.content_type(), format.page(page.text())))
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, SocketAddr};
    use std::thread;

    use tokio::runtime::Builder;
    use tokio::task::LocalSet;

    use super::super::tests::page;
    use super::*;

    const OWN: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const OPEN_METRICS: &str = "Accept: application/openmetrics-text\r\n";

    fn respond(request: &str) -> String {
        String::from_utf8(response(request.as_bytes(), OWN, &page())).unwrap()
    }

    #[test]
    fn only_the_metrics_page_exists() {
        let (head, body) = {
            let whole = respond("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
            let (head, body) = whole.split_once("\r\n\r\n").unwrap();
            (head.to_owned(), body.to_owned())
        };
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(
            head.contains(&format!("Content-Length: {}\r\n", body.len())),
            "{head}"
        );
        assert_eq!(body, Format::Text.page(page().text()));
        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("GET /metrics/x HTTP/1.1\r\n\r\n", "404"),
            ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", "200"),
        ] {
            let got = respond(request);
            assert!(
                got.starts_with(&format!("HTTP/1.1 {status} ")),
                "{request:?}: {got}"
            );
        }
    }

    #[test]
    fn accept_field_selects_the_format() {
        let open = "application/openmetrics-text; version=1.0.0";
        let asked = |fields: &str| respond(&format!("GET /metrics HTTP/1.1\r\n{fields}\r\n"));
        for (fields, content) in [
            ("".to_owned(), "text/plain; version=0.0.4; charset=utf-8"),
            (
                "Accept: text/plain\r\n".to_owned(),
                "text/plain; version=0.0.4",
            ),
            (format!("accept: {open}\r\n"), open),
            (
                format!("Accept: */*;q=0.1\r\nX: y\r\nAccept: {open};q=0.2\r\n"),
                open,
            ),
        ] {
            let got = asked(&fields);
            assert!(
                got.contains(&format!("\r\nContent-Type: {content}")),
                "{fields:?}: {got}"
            );
            assert_eq!(got.ends_with("# EOF\n"), content == open, "{fields:?}");
        }
    }

    /// Serves the page in a separate thread.
    fn served() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        // Ends with the test process.
        thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            LocalSet::new().block_on(&runtime, serve(listener, page()))
        });
        address
    }

    fn connect(address: SocketAddr) -> std::net::TcpStream {
        let stream = std::net::TcpStream::connect(address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream
    }

    #[test]
    fn request_gets_the_page_and_the_connection_is_closed() {
        let mut stream = connect(served());
        for piece in ["GET /metr", "ics HTTP/1.1\r\n", OPEN_METRICS, "\r\n"] {
            stream.write_all(piece.as_bytes()).unwrap();
        }
        let mut got = String::new();
        stream.read_to_string(&mut got).unwrap();
        assert!(got.starts_with("HTTP/1.1 200 OK\r\n"), "{got}");
        assert!(got.ends_with("# EOF\n"), "{got}");
    }

    #[test]
    fn unfinished_request_is_closed_after_a_timeout() {
        let mut stream = connect(served());
        stream.write_all(b"GET /metrics HTTP/1.1\r\n").unwrap();
        assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
    }
}
