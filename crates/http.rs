//! The part of HTTP/1.1 (RFC 9112) that the pages of both programs need: each connection has one request without a
//! body, and its response. Part of both programs, which have no common crate for it.

use std::net::{IpAddr, SocketAddr};

/// Maximum octets of a request's head: browsers send about 1 KiB, scrapers a few hundred octets.
pub(crate) const HEAD_MAX: usize = 8 * 1024;

/// End of the head of a request.
pub(crate) const END: &[u8; 4] = b"\r\n\r\n";

/// A request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request<'a> {
    method: &'a str,
    /// Path without the query.
    pub(crate) path: &'a str,
    /// The field `Host`.
    host: Option<&'a str>,
    /// The fields `Accept`.
    pub(crate) accept: String,
}

impl Request<'_> {
    /// Whether it only reads.
    fn is_read(&self) -> bool {
        ["GET", "HEAD"].contains(&self.method)
    }

    /// Whether it is meant for a page that listens on `own`, and not for a name that a foreign page has pointed to this
    /// address (DNS rebinding). A page on a network address can have any name of that network, and everyone who reaches
    /// it may see it.
    fn is_meant_for(&self, own: IpAddr) -> bool {
        let Some(host) = self.host.filter(|_| own.is_loopback()) else {
            return true;
        };
        let inner = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let is_address = inner.unwrap_or(host).parse::<IpAddr>().is_ok();
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        is_address || host.parse::<SocketAddr>().is_ok() || name.eq_ignore_ascii_case("localhost")
    }
}

/// A response.
#[derive(Debug)]
pub(crate) struct Answer {
    status: &'static str,
    content: &'static str,
    body: String,
}

impl Answer {
    /// A page.
    pub(crate) fn page(content: &'static str, body: String) -> Self {
        Self {
            status: "200 OK",
            content,
            body,
        }
    }

    /// An error, with its status as the text.
    fn fault(status: &'static str) -> Self {
        Self {
            status,
            content: "text/plain; charset=utf-8",
            body: format!("{status}\n"),
        }
    }

    fn into_octets(self, fields: &str, with_body: bool) -> Vec<u8> {
        let allow = match self.status.starts_with("405") {
            true => "Allow: GET, HEAD\r\n",
            false => "",
        };
        let head = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n{allow}{fields}\r\n",
            self.status,
            self.content,
            self.body.len(),
        );
        let body = if with_body { &self.body } else { "" };
        (head + body).into_bytes()
    }
}

/// Whether the head of a request has ended.
pub(crate) fn is_whole(head: &[u8]) -> bool {
    head.windows(END.len()).any(|end| end == END)
}

/// The response to a whole head, or to one that is longer than [`HEAD_MAX`], of a server that listens on `own`. `page`
/// gets requests that read, and returns `None` for a path that does not exist. `fields` are further lines of the response.
pub(crate) fn reply(
    head: &[u8],
    own: IpAddr,
    fields: &str,
    page: impl FnOnce(&Request<'_>) -> Option<Answer>,
) -> Vec<u8> {
    let request = std::str::from_utf8(head).ok().and_then(parse);
    let answer = match &request {
        _ if head.len() > HEAD_MAX || !is_whole(head) => {
            Answer::fault("431 Request Header Fields Too Large")
        }
        None => Answer::fault("400 Bad Request"),
        Some(request) if !request.is_meant_for(own) => Answer::fault("421 Misdirected Request"),
        Some(request) if !request.is_read() => Answer::fault("405 Method Not Allowed"),
        Some(request) => page(request).unwrap_or_else(|| Answer::fault("404 Not Found")),
    };
    let is_head = request.is_some_and(|request| request.method == "HEAD");
    answer.into_octets(fields, !is_head)
}

fn parse(head: &str) -> Option<Request<'_>> {
    let mut lines = head.split("\r\n");
    let mut words = lines.next()?.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    if words.next().is_some() || !["HTTP/1.1", "HTTP/1.0"].contains(&version) {
        return None;
    }
    let fields: Vec<_> = lines.filter_map(|line| line.split_once(':')).collect();
    let values = |wanted: &'static str| {
        let fields = fields.iter();
        let named = fields.filter(move |(name, _)| name.eq_ignore_ascii_case(wanted));
        named.map(|(_, value)| value.trim())
    };
    Some(Request {
        method,
        path: target.split('?').next()?,
        host: values("host").next(),
        accept: values("accept").collect::<Vec<_>>().join(","),
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const OWN: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn replied(head: &[u8], own: IpAddr) -> String {
        let page = |request: &Request<'_>| {
            let body = request.accept.clone();
            (request.path == "/page").then(|| Answer::page("text/plain", body))
        };
        String::from_utf8(reply(head, own, "Vary: Accept\r\n", page)).unwrap()
    }

    fn status_of(head: &[u8]) -> String {
        let text = replied(head, OWN);
        text.lines().next().unwrap()["HTTP/1.1 ".len()..].to_owned()
    }

    #[test]
    fn request_gets_the_page_with_all_fields() {
        let request =
            "GET /page?x=1 HTTP/1.1\r\nAccept: a/b\r\nhost: [::1]:80\r\nACCEPT:*/*\r\n\r\n";
        let fields = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 7\r\nConnection: close\r\n\
            Vary: Accept\r\n\r\n";
        assert_eq!(
            replied(request.as_bytes(), OWN),
            fields.to_owned() + "a/b,*/*"
        );
        let head = request.replace("GET", "HEAD");
        assert_eq!(replied(head.as_bytes(), OWN), fields);
    }

    #[test]
    fn status_says_what_is_wrong_with_a_request() {
        for (request, status) in [
            ("GET /page HTTP/1.0\r\n\r\n", "200 OK"),
            ("GET / HTTP/1.1\r\n\r\n", "404 Not Found"),
            ("POST /page HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
            ("GET /page\r\n\r\n", "400 Bad Request"),
            ("GET /page HTTP/2\r\n\r\n", "400 Bad Request"),
            ("GET /page HTTP/1.1 x\r\n\r\n", "400 Bad Request"),
            ("\r\n\r\n", "400 Bad Request"),
            (
                "GET /page HTTP/1.1\r\nX: ",
                "431 Request Header Fields Too Large",
            ),
        ] {
            assert_eq!(status_of(request.as_bytes()), status, "{request:?}");
        }
        assert_eq!(status_of(b"GET /\xff HTTP/1.1\r\n\r\n"), "400 Bad Request");
        let endless = vec![b'a'; HEAD_MAX + 1];
        assert_eq!(status_of(&endless), "431 Request Header Fields Too Large");
    }

    #[test]
    fn foreign_names_of_a_loopback_address_are_refused() {
        let status = |host: &str, own| {
            let text = replied(
                format!("GET /page HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes(),
                own,
            );
            text["HTTP/1.1 ".len()..][..3].to_owned()
        };
        for host in [
            "localhost",
            "LocalHost:8080",
            "127.0.0.1",
            "127.0.0.1:1",
            "[::1]:1",
            "[::1]",
        ] {
            assert_eq!(status(host, OWN), "200", "{host}");
        }
        for host in [
            "rebind.example",
            "rebind.example:80",
            "localhost.example",
            "[::1",
            "",
        ] {
            assert_eq!(status(host, OWN), "421", "{host}");
        }
        assert_eq!(
            status("lab1.example:8080", "192.0.2.1".parse().unwrap()),
            "200"
        );
    }
}
