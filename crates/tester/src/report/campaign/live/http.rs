//! The part of HTTP/1.1 (RFC 9112) that a page for a few clients needs: each connection has one request and its
//! response.

/// Maximum octets of a request's head: browsers send about 1 KiB.
const HEAD_MAX: usize = 8 * 1024;

/// A request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request<'a> {
    pub(super) method: &'a str,
    /// Path without the query.
    pub(super) path: &'a str,
    /// The field `Host`.
    pub(super) host: Option<&'a str>,
    /// The fields `Accept`.
    pub(super) accept: String,
}

/// A response.
#[derive(Debug)]
pub(super) struct Answer {
    status: &'static str,
    content: &'static str,
    body: String,
}

impl Answer {
    /// A page.
    pub(super) fn page(content: &'static str, body: String) -> Self {
        Self {
            status: "200 OK",
            content,
            body,
        }
    }

    /// An error, with its status as the text.
    pub(super) fn fault(status: &'static str) -> Self {
        Self {
            status,
            content: "text/plain; charset=utf-8",
            body: format!("{status}\n"),
        }
    }

    fn into_octets(self, with_body: bool) -> Vec<u8> {
        let allow = match self.status.starts_with("405") {
            true => "Allow: GET, HEAD\r\n",
            false => "",
        };
        let head = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{allow}{FIELDS}\r\n",
            self.status,
            self.content,
            self.body.len(),
        );
        let body = if with_body { &self.body } else { "" };
        (head + body).into_bytes()
    }
}

/// The page includes its script and style and loads nothing else: these fields let the browser enforce that.
const FIELDS: &str = "Cache-Control: no-store\r\nConnection: close\r\n\
    Content-Security-Policy: default-src 'none'; script-src 'unsafe-inline'; \
    style-src 'unsafe-inline'; img-src data:; connect-src 'self'; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'\r\n\
    X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n";

/// The response to a request; `None` while its head is incomplete.
pub(super) fn reply(head: &[u8], respond: impl FnOnce(&Request<'_>) -> Answer) -> Option<Vec<u8>> {
    let is_whole = head.windows(4).any(|end| end == b"\r\n\r\n");
    if head.len() <= HEAD_MAX && !is_whole {
        return None;
    }
    let request = std::str::from_utf8(head).ok().and_then(parse);
    let answer = match &request {
        _ if head.len() > HEAD_MAX => Answer::fault("431 Request Header Fields Too Large"),
        Some(request) => respond(request),
        None => Answer::fault("400 Bad Request"),
    };
    let is_head = request.is_some_and(|request| request.method == "HEAD");
    Some(answer.into_octets(!is_head))
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
    use super::*;

    fn status_of(head: &[u8]) -> Option<String> {
        let octets = reply(head, |request| {
            Answer::page("text/plain", format!("{request:?}"))
        })?;
        let text = String::from_utf8(octets).unwrap();
        Some(text.lines().next().unwrap().to_owned())
    }

    #[test]
    fn requests_are_read() {
        assert_eq!(
            parse(
                "GET /metrics?x=1 HTTP/1.1\r\nAccept: a/b\r\nhost: [::1]:80\r\nACCEPT:*/*\r\n\r\n"
            ),
            Some(Request {
                method: "GET",
                path: "/metrics",
                host: Some("[::1]:80"),
                accept: "a/b,*/*".into(),
            })
        );
        assert_eq!(parse("GET / HTTP/1.0\r\n\r\n").unwrap().host, None);
        for bad in ["", "GET /", "GET / HTTP/2", "GET / HTTP/1.1 x", "\r\n\r\n"] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn head_has_a_maximum_length() {
        assert_eq!(status_of(b"GET / HTTP/1.1\r\nHost: a\r\n"), None);
        let whole = b"GET / HTTP/1.1\r\n\r\n";
        assert_eq!(status_of(whole).as_deref(), Some("HTTP/1.1 200 OK"));
        let endless = vec![b'a'; HEAD_MAX + 1];
        let refused = "HTTP/1.1 431 Request Header Fields Too Large";
        assert_eq!(status_of(&endless).as_deref(), Some(refused));
        let not_text = b"GET /\xff HTTP/1.1\r\n\r\n";
        assert_eq!(
            status_of(not_text).as_deref(),
            Some("HTTP/1.1 400 Bad Request")
        );
    }

    #[test]
    fn head_method_gets_the_length_without_the_body() {
        let page = || Answer::page("text/plain", "hello".into());
        let text = String::from_utf8(page().into_octets(false)).unwrap();
        assert!(text.contains("Content-Length: 5\r\n") && text.ends_with("\r\n\r\n"));
        assert!(
            String::from_utf8(page().into_octets(true))
                .unwrap()
                .ends_with("\r\n\r\nhello")
        );
    }
}
