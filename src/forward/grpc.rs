//! What a gRPC call says of itself: its status comes in the trailers, and 200 stands before them all.
//!
//! The names are those of gRPC over HTTP/2 (`PROTOCOL-HTTP2.md` of the gRPC project).

use http::HeaderMap;
use http::header::CONTENT_TYPE;

const GRPC: &[u8] = b"application/grpc";
const STATUS: &str = "grpc-status";

/// `CANCELLED`, `DEADLINE_EXCEEDED` and `UNAVAILABLE`: what a balancer says for a service that it does not hear.
const UNSETTLED: [&[u8]; 3] = [b"1", b"4", b"14"];

/// Whether these are a call's headers, whose answer is at the end of the response. gRPC-Web is one too.
pub(super) fn is_call(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE);
    kind.is_some_and(|kind| {
        let kind = kind.as_bytes();
        kind.get(..GRPC.len())
            .is_some_and(|begin| begin.eq_ignore_ascii_case(GRPC))
    })
}

/// Whether the headers of a response promise that its trailers name a status.
pub(super) fn promises_status(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE);
    let rest = kind.and_then(|kind| kind.as_bytes().get(GRPC.len()..));
    is_call(headers) && rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

/// Whether a status says what became of the call. `None` where there is none.
pub(super) fn says_something(trailers: &HeaderMap) -> Option<bool> {
    let status = trailers.get(STATUS)?;
    Some(!UNSETTLED.contains(&status.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn headers(name: &'static str, value: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_static(value));
        headers
    }

    #[test]
    fn calls_are_known_by_their_type() {
        for (kind, call, status) in [
            ("application/grpc", true, true),
            ("Application/GRPC+proto", true, true),
            ("application/grpc;x=y", true, true),
            ("application/grpc-web+proto", true, false),
            ("application/json", false, false),
            ("application/grp", false, false),
        ] {
            let headers = headers("content-type", kind);
            assert_eq!(is_call(&headers), call, "{kind}");
            assert_eq!(promises_status(&headers), status, "{kind}");
        }
    }

    #[test]
    fn a_balancers_status_says_nothing() {
        for (status, says) in [
            ("0", true),
            ("5", true),
            ("1", false),
            ("4", false),
            ("14", false),
        ] {
            assert_eq!(
                says_something(&headers("grpc-status", status)),
                Some(says),
                "{status}"
            );
        }
        assert_eq!(says_something(&HeaderMap::new()), None);
    }
}
