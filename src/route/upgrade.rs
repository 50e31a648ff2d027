//! Whether a request asks to become a WebSocket (RFC 6455 section 4.1).

use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, Method, Version};

/// Whether the request asks for it, and for nothing else.
#[must_use]
pub fn asks(parts: &Parts) -> bool {
    parts.method == Method::GET
        && parts.version == Version::HTTP_11
        && is_websocket(&parts.headers)
        && names_upgrade(&parts.headers)
        && !has_body(&parts.headers)
}

/// Whether `Upgrade` names that protocol alone.
#[must_use]
pub fn is_websocket(headers: &HeaderMap) -> bool {
    let mut all = headers.get_all(UPGRADE).iter();
    let only = all.next().filter(|_| all.next().is_none());
    only.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

/// What is sent of a body, its upstream could take for messages.
fn has_body(headers: &HeaderMap) -> bool {
    let length = headers.get(CONTENT_LENGTH);
    headers.contains_key(TRANSFER_ENCODING) || length.is_some_and(|length| length != "0")
}

fn names_upgrade(headers: &HeaderMap) -> bool {
    let all = headers.get_all(CONNECTION).iter();
    let mut options = all.flat_map(|value| value.as_bytes().split(|&b| b == b','));
    options.any(|option| option.trim_ascii().eq_ignore_ascii_case(b"upgrade"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn asked(headers: &[(&str, &str)]) -> bool {
        let mut request = Request::get("/a");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        asks(&request.body(()).unwrap().into_parts().0)
    }

    #[test]
    fn it_is_asked_for_by_both_headers() {
        assert!(asked(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "WebSocket")
        ]));
        for headers in [
            &[("upgrade", "websocket")][..],
            &[("connection", "upgrade")],
            &[
                ("connection", "upgrade"),
                ("upgrade", "websocket"),
                ("content-length", "3"),
            ],
            &[("connection", "upgrade"), ("upgrade", "h2c")],
            &[("connection", "upgrade"), ("upgrade", "websocket, h2c")],
            &[
                ("connection", "upgrade"),
                ("upgrade", "websocket"),
                ("upgrade", "h2c"),
            ],
        ] {
            assert!(!asked(headers), "{headers:?}");
        }
    }
}
