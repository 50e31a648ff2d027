//! What a proxy changes in the headers it passes on (RFC 9110 section 7.6, RFC 7239).

use crate::route::overrides_path;
use http::header::{
    CONNECTION, CONTENT_LENGTH, FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue, TE,
    TRANSFER_ENCODING, VIA,
};
use smallvec::SmallVec;
use std::net::IpAddr;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const VIA_US: HeaderValue = HeaderValue::from_static("1.1 fencegate");
const TRAILERS: HeaderValue = HeaderValue::from_static("trailers");
const TE_NAME: HeaderValue = HeaderValue::from_static("te");
const HTTP: HeaderValue = HeaderValue::from_static("http");

/// What is said upstream about a client connection, made once for each.
pub struct Peer {
    address: HeaderValue,
    forwarded: HeaderValue,
}

impl Peer {
    /// The client at this address, over plain HTTP.
    #[must_use]
    pub fn new(ip: IpAddr) -> Self {
        let forwarded = match ip {
            IpAddr::V4(ip) => format!("for={ip};proto=http"),
            IpAddr::V6(ip) => format!("for=\"[{ip}]\";proto=http"),
        };
        let value = |text: &str| {
            HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static("unknown"))
        };
        Self {
            address: value(&ip.to_string()),
            forwarded: value(&forwarded),
        }
    }
}

/// Turns a client's headers into those that go upstream. `Expect` is answered here; `TE: trailers`
/// is ours to say anew; headers by which some servers take another path than the request's are dropped.
pub fn outbound(headers: &mut HeaderMap, peer: &Peer) {
    if headers
        .keys()
        .any(|name| stays_here(name) || overrides_path(name))
    {
        strip_outbound(headers);
    }
    headers.append(VIA, VIA_US);
    headers.append(FORWARDED, peer.forwarded.clone());
    headers.append(X_FORWARDED_FOR, peer.address.clone());
    // Whoever ended TLS before us knows better.
    headers.entry(X_FORWARDED_PROTO).or_insert(HTTP);
}

fn strip_outbound(headers: &mut HeaderMap) {
    let wants_trailers = headers
        .get_all(TE)
        .iter()
        .any(|v| v.as_bytes() == b"trailers");
    strip(headers, |name| stays_here(name) || overrides_path(name));
    if wants_trailers {
        headers.insert(TE, TRAILERS);
        headers.insert(CONNECTION, TE_NAME);
    }
}

/// Replaces the Host, and keeps the client's in `X-Forwarded-Host`.
pub fn rewrite_host(headers: &mut HeaderMap, host: HeaderValue) {
    if let Some(theirs) = headers.insert(HOST, host) {
        headers.insert(X_FORWARDED_HOST, theirs);
    }
}

/// Turns an upstream's headers into those that go to the client.
pub fn inbound(headers: &mut HeaderMap) {
    let mut connection = headers.get_all(CONNECTION).iter();
    let plain = connection
        .next()
        .is_some_and(|value| is_plain(value.as_bytes()));
    if plain && connection.next().is_none() {
        headers.remove(CONNECTION); // all that most upstreams say for this hop
    }
    if headers.keys().any(stays_here) {
        if headers.contains_key(TRANSFER_ENCODING) {
            headers.remove(CONTENT_LENGTH); // RFC 9112 section 6.3: it says nothing beside the coding
        }
        strip(headers, stays_here);
    }
    headers.append(VIA, VIA_US);
}

/// Whether an option of `Connection` names no header.
fn is_plain(option: &[u8]) -> bool {
    option.eq_ignore_ascii_case(b"keep-alive") || option.eq_ignore_ascii_case(b"close")
}

/// Whether a header goes no further than to this proxy, or changes what does. One look at each name:
/// most messages have none of them.
fn stays_here(name: &HeaderName) -> bool {
    matches!(
        name.as_str(),
        "connection"
            | "te"
            | "upgrade"
            | "expect"
            | "keep-alive"
            | "proxy-connection"
            | "transfer-encoding"
            | "proxy-authorization"
            | "proxy-authenticate"
            | "fencing-status"
    )
}

/// Removes what is to be dropped, and what `Connection` names.
fn strip(headers: &mut HeaderMap, drop: impl Fn(&HeaderName) -> bool) {
    let mut dropped: SmallVec<[HeaderName; 8]> =
        headers.keys().filter(|name| drop(name)).cloned().collect();
    for value in headers.get_all(CONNECTION) {
        for option in value.as_bytes().split(|&b| b == b',') {
            let option = option.trim_ascii();
            if is_plain(option) {
                continue;
            }
            // What a message cannot do without is not its sender's to take away.
            if let Ok(name) = HeaderName::from_bytes(option)
                && name != HOST
                && name != CONTENT_LENGTH
            {
                dropped.push(name);
            }
        }
    }
    for name in dropped {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            );
        }
        map
    }

    #[test]
    fn hop_by_hop_headers_stay_here() {
        let mut headers = map(&[
            ("connection", "close, X-Secret"),
            ("x-secret", "1"),
            ("keep-alive", "timeout=5"),
            ("te", "gzip"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "websocket"),
            ("expect", "100-continue"),
            ("proxy-authorization", "Basic x"),
            ("x-kept", "2"),
        ]);
        outbound(&mut headers, &Peer::new("192.0.2.1".parse().unwrap()));
        let left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(left.len(), 5, "{left:?}");
        assert_eq!(headers["x-kept"], "2");
        assert_eq!(headers["via"], "1.1 fencegate");
        assert_eq!(headers["forwarded"], "for=192.0.2.1;proto=http");
        assert_eq!(headers["x-forwarded-for"], "192.0.2.1");
        assert_eq!(headers["x-forwarded-proto"], "http");
    }

    #[test]
    fn a_second_connection_header_counts_too() {
        let mut headers = map(&[
            ("connection", "keep-alive"),
            ("connection", "x-secret"),
            ("x-secret", "1"),
        ]);
        inbound(&mut headers);
        assert_eq!(
            headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(),
            ["via"]
        );
    }

    #[test]
    fn a_length_beside_a_coding_says_nothing() {
        let mut headers = map(&[("content-length", "3"), ("transfer-encoding", "chunked")]);
        inbound(&mut headers);
        assert!(!headers.contains_key("content-length"));
    }

    #[test]
    fn what_was_matched_cannot_be_named_away() {
        let mut headers = map(&[
            ("connection", "host, content-length"),
            ("host", "a"),
            ("content-length", "3"),
        ]);
        outbound(&mut headers, &Peer::new("192.0.2.1".parse().unwrap()));
        assert_eq!(
            (
                headers["host"].as_bytes(),
                headers["content-length"].as_bytes()
            ),
            (&b"a"[..], &b"3"[..])
        );
    }

    #[test]
    fn what_came_before_us_is_kept() {
        let mut headers = map(&[
            ("via", "1.0 edge"),
            ("x-forwarded-for", "203.0.113.9"),
            ("te", "trailers"),
        ]);
        outbound(&mut headers, &Peer::new("2001:db8::1".parse().unwrap()));
        let all = |name: &str| -> Vec<_> { headers.get_all(name).iter().cloned().collect() };
        assert_eq!(all("via"), ["1.0 edge", "1.1 fencegate"]);
        assert_eq!(all("x-forwarded-for"), ["203.0.113.9", "2001:db8::1"]);
        assert_eq!(all("forwarded"), ["for=\"[2001:db8::1]\";proto=http"]);
        assert_eq!(all("te"), ["trailers"]);
    }
}
