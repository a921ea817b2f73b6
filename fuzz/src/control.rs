//! Checks that hold for any line from the control socket. The fuzz target `control` and the test
//! that replays its corpus use them.

use dns64_wire::name::NameBuf;
use dns64d::control::{Answer, REQUEST_LEN_MAX, Request};

/// Parses the line and panics if a property is violated.
pub(crate) fn check(bytes: &[u8]) {
    match Request::parse(&String::from_utf8_lossy(bytes)) {
        Ok(request) => {
            let line = serde_json::to_string(&request).expect("a request can be written");
            assert_eq!(Request::parse(&line), Ok(request.clone()));
            check_len(request);
        }
        Err(message) => {
            let answer = Answer::Refused { message };
            let line = serde_json::to_string(&answer).expect("an answer can be written");
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(serde_json::from_str::<Answer>(&line).ok(), Some(answer));
        }
    }
}

/// Checks that every name fits, whatever its escapes.
fn check_len(request: Request) {
    if let Request::Flush {
        name: Some(name), ..
    } = request
        && let Ok(name) = name.parse::<NameBuf>()
    {
        let name = Some(name.to_string());
        let line = serde_json::to_string(&Request::Flush { name, rtype: None });
        let len = line.expect("a request can be written").len() as u64;
        assert!(len < REQUEST_LEN_MAX, "{len} octets");
    }
}
