//! What stands out among the headers of a request, found in one look at each name.
//!
//! Most requests have none of it, and so each later stage asks here before it looks closer.

use super::class;
use http::{HeaderMap, HeaderName};

/// What stands out among the headers of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks(u8);

/// The headers that concern this hop alone (RFC 9110 section 7.6.1), and the gateway's own.
const HOP_BY_HOP: u8 = 1;
const CONNECTION: u8 = 1 << 1;
const METHOD_OVERRIDE: u8 = 1 << 2;
const PATH_OVERRIDE: u8 = 1 << 3;
const DESTINATION: u8 = 1 << 4;
const FORWARDED: u8 = 1 << 5;
const CODED: u8 = 1 << 6;
const FRAMING_TWIN: u8 = 1 << 7;

impl Marks {
    /// Looks at each name.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        Self(headers.keys().fold(0, |marks, name| marks | mark(name)))
    }

    /// There is a header that goes no further than to this proxy, `Connection` among them.
    #[must_use]
    pub const fn hop_by_hop(self) -> bool {
        self.0 & HOP_BY_HOP != 0
    }

    /// There is a `Connection` header.
    #[must_use]
    pub const fn connection(self) -> bool {
        self.0 & CONNECTION != 0
    }

    /// There is a header by which some servers take another method, in any spelling.
    #[must_use]
    pub const fn overrides_method(self) -> bool {
        self.0 & METHOD_OVERRIDE != 0
    }

    /// There is a header by which some servers take another path, in any spelling.
    #[must_use]
    pub const fn overrides_path(self) -> bool {
        self.0 & PATH_OVERRIDE != 0
    }

    /// There is a `Destination`, in any spelling.
    #[must_use]
    pub const fn destination(self) -> bool {
        self.0 & DESTINATION != 0
    }

    /// There is a `Transfer-Encoding`.
    #[must_use]
    pub const fn coded(self) -> bool {
        self.0 & CODED != 0
    }

    /// A header that says how long the message is, is spelt with an underscore: many servers take it for
    /// the real one.
    #[must_use]
    pub const fn framing_twin(self) -> bool {
        self.0 & FRAMING_TWIN != 0
    }

    /// There is a `Forwarded`.
    #[must_use]
    pub const fn forwarded(self) -> bool {
        self.0 & FORWARDED != 0
    }
}

/// Whether a header goes no further than to this proxy, or is the gateway's own to say.
#[must_use]
pub fn is_hop_by_hop(name: &HeaderName) -> bool {
    mark(name) & HOP_BY_HOP != 0
}

fn mark(name: &HeaderName) -> u8 {
    let text = name.as_str().as_bytes();
    // Most names are done with after one look at the first letter and the length.
    match (text.first(), text.len()) {
        (Some(b'c'), 10) if text == b"connection" => HOP_BY_HOP | CONNECTION,
        (Some(b'c'), 14) if text == b"content_length" => FRAMING_TWIN,
        (Some(b'd'), 11) if text == b"destination" => DESTINATION,
        (Some(b'e'), 6) if text == b"expect" => HOP_BY_HOP,
        (Some(b'f'), 9) if text == b"forwarded" => FORWARDED,
        (Some(b'f'), 14) if text == b"fencing-status" => HOP_BY_HOP,
        (Some(b'k'), 10) if text == b"keep-alive" => HOP_BY_HOP,
        (Some(b'p'), 16) if text == b"proxy-connection" => HOP_BY_HOP,
        (Some(b'p'), 18) if text == b"proxy-authenticate" => HOP_BY_HOP,
        (Some(b'p'), 19) if text == b"proxy-authorization" => HOP_BY_HOP,
        (Some(b't'), 2) if text == b"te" => HOP_BY_HOP,
        (Some(b't'), 17) if text == b"transfer-encoding" => HOP_BY_HOP | CODED,
        (Some(b't'), 17) if text == b"transfer_encoding" => FRAMING_TWIN,
        (Some(b'u'), 7) if text == b"upgrade" => HOP_BY_HOP,
        (Some(b'x'), _) => overrides(name),
        _ => 0,
    }
}

fn overrides(name: &HeaderName) -> u8 {
    let mut marks = 0;
    if class::overrides_method(name) {
        marks |= METHOD_OVERRIDE;
    }
    if class::overrides_path(name) {
        marks |= PATH_OVERRIDE;
    }
    marks
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn marks(names: &[&'static str]) -> Marks {
        let value = || HeaderValue::from_static("1");
        let pairs = names
            .iter()
            .map(|name| (HeaderName::from_static(name), value()));
        Marks::of(&pairs.collect())
    }

    #[test]
    fn a_plain_request_has_none() {
        let plain = [
            "host",
            "fencing-token",
            "content-type",
            "content-length",
            "user-agent",
            "x-request-id",
            "x-forwarded-for",
        ];
        assert_eq!(marks(&plain), Marks::default());
    }

    #[test]
    fn each_kind_is_seen() {
        assert!(marks(&["host", "connection"]).connection());
        for name in [
            "connection",
            "te",
            "expect",
            "transfer-encoding",
            "fencing-status",
        ] {
            assert!(marks(&[name]).hop_by_hop(), "{name}");
        }
        for name in [
            "x-http-method",
            "x_http_method_override",
            "x-method_override",
        ] {
            assert!(marks(&[name]).overrides_method(), "{name}");
        }
        for name in class::PATH_OVERRIDES {
            assert!(marks(&[name]).overrides_path(), "{name}");
        }
        assert!(marks(&["x_original_url"]).overrides_path());
        assert!(marks(&["transfer-encoding"]).coded());
        for name in ["transfer_encoding", "content_length"] {
            assert!(marks(&[name]).framing_twin(), "{name}");
        }
        assert!(marks(&["destination"]).destination() && marks(&["forwarded"]).forwarded());
    }
}
