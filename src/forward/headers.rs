//! What a proxy changes in the headers it passes on (RFC 9110 section 7.6, RFC 7239).

use crate::config::settings::Upstream;
use crate::route::marks::is_hop_by_hop;
use crate::route::{Marks, overrides_path};
use bytes::Bytes;
use http::header::{
    CONNECTION, CONTENT_LENGTH, COOKIE, FORWARDED, HOST, HeaderMap, HeaderName, HeaderValue, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::request::Parts;
use http::uri::Authority;
use http::{Request, Uri, Version};
use smallvec::SmallVec;
use std::mem;
use std::net::IpAddr;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const VIA_US: HeaderValue = HeaderValue::from_static("1.1 fencegate");
const VIA_1_0: HeaderValue = HeaderValue::from_static("1.0 fencegate");
const VIA_2: HeaderValue = HeaderValue::from_static("2 fencegate");
const TRAILERS: HeaderValue = HeaderValue::from_static("trailers");
const TE_NAME: HeaderValue = HeaderValue::from_static("te");
const HTTP: HeaderValue = HeaderValue::from_static("http");
const HTTPS: HeaderValue = HeaderValue::from_static("https");

/// What is said upstream about a client connection, made once for each.
pub struct Peer {
    address: HeaderValue,
    forwarded: HeaderValue,
    scheme: HeaderValue,
}

impl Peer {
    /// Its address, as text.
    #[must_use]
    pub fn address(&self) -> &str {
        self.address.to_str().unwrap_or_default()
    }

    /// The client at this address; `encrypted`: it came over TLS.
    #[must_use]
    pub fn new(ip: IpAddr, encrypted: bool) -> Self {
        let scheme = if encrypted { "https" } else { "http" };
        let forwarded = match ip {
            IpAddr::V4(ip) => format!("for={ip};proto={scheme}"),
            IpAddr::V6(ip) => format!("for=\"[{ip}]\";proto={scheme}"),
        };
        let value = |text: &str| {
            HeaderValue::from_str(text).unwrap_or_else(|_| HeaderValue::from_static("unknown"))
        };
        Self {
            address: value(&ip.to_string()),
            forwarded: value(&forwarded),
            scheme: if encrypted { HTTPS } else { HTTP },
        }
    }
}

/// Turns a client's headers into those that go upstream. `Expect` is answered here; `TE: trailers`
/// is ours to say anew; headers by which some servers take another path than the request's are dropped.
///
/// `Forwarded` (RFC 7239) is continued where the request has one, and not begun: what is behind a proxy
/// reads `X-Forwarded-For`.
pub fn outbound(headers: &mut HeaderMap, marks: Marks, peer: &Peer, came_as: Version) {
    if marks.hop_by_hop() || marks.overrides_path() {
        strip_outbound(headers);
    }
    let via = match came_as {
        Version::HTTP_10 => VIA_1_0,
        Version::HTTP_2 => VIA_2,
        _ => VIA_US,
    };
    headers.append(VIA, via);
    if marks.forwarded() {
        headers.append(FORWARDED, peer.forwarded.clone());
    }
    headers.append(X_FORWARDED_FOR, peer.address.clone());
    // Whoever ended TLS before us knows better.
    headers
        .entry(X_FORWARDED_PROTO)
        .or_insert_with(|| peer.scheme.clone());
}

fn strip_outbound(headers: &mut HeaderMap) {
    let wants_trailers = headers
        .get_all(TE)
        .iter()
        .any(|v| v.as_bytes() == b"trailers");
    strip(headers, |name| is_hop_by_hop(name) || overrides_path(name));
    if wants_trailers {
        headers.insert(TE, TRAILERS);
        headers.insert(CONNECTION, TE_NAME);
    }
}

/// Asks for a WebSocket, or grants one: what was taken off for this hop is said anew (RFC 6455 section 4).
pub fn upgrade(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
}

/// Joins what an HTTP/2 client may split (RFC 9113 section 8.2.3): HTTP/1.1 has one `Cookie`.
pub fn join_cookies(headers: &mut HeaderMap) {
    let mut crumbs = headers.get_all(COOKIE).iter();
    if crumbs.nth(1).is_none() {
        return;
    }
    let all: Vec<&[u8]> = headers
        .get_all(COOKIE)
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    if let Ok(joined) = HeaderValue::from_bytes(&all.join(&b"; "[..])) {
        headers.insert(COOKIE, joined);
    }
}

/// Replaces the Host, and keeps the client's in `X-Forwarded-Host`.
pub fn rewrite_host(headers: &mut HeaderMap, host: HeaderValue) {
    if let Some(theirs) = headers.insert(HOST, host) {
        headers.insert(X_FORWARDED_HOST, theirs);
    }
}

/// The head of a request as HTTP/2 has it (RFC 9113 section 8.2.2 and 8.3.1): nothing speaks of the
/// connection, and the Host is the authority.
#[must_use]
pub fn http2(mut head: Parts, upstream: &Upstream) -> Request<()> {
    for name in [CONNECTION, TRANSFER_ENCODING] {
        head.headers.remove(name);
    }
    let host = head.headers.remove(HOST);
    let host = host.and_then(|host| Authority::from_maybe_shared(Bytes::from_owner(host)).ok());
    let mut target = mem::take(&mut head.uri).into_parts();
    target.scheme = Some(upstream.scheme());
    target.authority = Some(host.unwrap_or_else(|| upstream.authority.clone()));
    head.uri = Uri::from_parts(target).unwrap_or_default();
    head.version = Version::HTTP_2;
    Request::from_parts(head, ())
}

/// Turns an upstream's headers into those that go to the client. `came_as`: in which protocol they came.
pub fn inbound(headers: &mut HeaderMap, came_as: Version) {
    let (mut connection, mut others) = (false, false);
    for name in headers.keys().filter(|name| is_hop_by_hop(name)) {
        let known = name == CONNECTION;
        connection |= known;
        others |= !known;
    }
    if connection && !others && says_nothing_more(headers) {
        headers.remove(CONNECTION); // all that most upstreams say for this hop
    } else if connection || others {
        if headers.contains_key(TRANSFER_ENCODING) {
            headers.remove(CONTENT_LENGTH); // RFC 9112 section 6.3: it says nothing beside the coding
        }
        strip(headers, is_hop_by_hop);
    }
    let via = if came_as == Version::HTTP_2 {
        VIA_2
    } else {
        VIA_US
    };
    headers.append(VIA, via);
}

/// Takes off what says nothing in a trailer (RFC 9110 section 6.5.1): what speaks of a connection.
pub fn trailers(trailers: &mut HeaderMap) {
    strip(trailers, |name| is_hop_by_hop(name) || name == TRAILER);
}

/// Whether `Connection` names no header.
fn says_nothing_more(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(CONNECTION).iter();
    values.all(|value| is_plain(value.as_bytes()))
}

/// Whether an option of `Connection` names no header.
fn is_plain(option: &[u8]) -> bool {
    option.eq_ignore_ascii_case(b"keep-alive") || option.eq_ignore_ascii_case(b"close")
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

    fn plain(headers: &mut HeaderMap) {
        let peer = Peer::new("192.0.2.1".parse().unwrap(), false);
        let marks = Marks::of(headers);
        outbound(headers, marks, &peer, Version::HTTP_11);
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
        plain(&mut headers);
        let left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        assert_eq!(left.len(), 4, "{left:?}");
        assert_eq!(headers["x-kept"], "2");
        assert_eq!(headers["via"], "1.1 fencegate");
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
        inbound(&mut headers, Version::HTTP_11);
        assert_eq!(
            headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(),
            ["via"]
        );
    }

    #[test]
    fn a_length_beside_a_coding_says_nothing() {
        let mut headers = map(&[("content-length", "3"), ("transfer-encoding", "chunked")]);
        inbound(&mut headers, Version::HTTP_11);
        assert!(!headers.contains_key("content-length"));
    }

    #[test]
    fn what_was_matched_cannot_be_named_away() {
        let mut headers = map(&[
            ("connection", "host, content-length"),
            ("host", "a"),
            ("content-length", "3"),
        ]);
        plain(&mut headers);
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
            ("forwarded", "for=203.0.113.9"),
            ("te", "trailers"),
        ]);
        let marks = Marks::of(&headers);
        let peer = Peer::new("2001:db8::1".parse().unwrap(), true);
        outbound(&mut headers, marks, &peer, Version::HTTP_2);
        let all = |name: &str| -> Vec<_> { headers.get_all(name).iter().cloned().collect() };
        assert_eq!(all("via"), ["1.0 edge", "2 fencegate"]);
        assert_eq!(all("x-forwarded-proto"), ["https"]);
        assert_eq!(all("x-forwarded-for"), ["203.0.113.9", "2001:db8::1"]);
        assert_eq!(
            all("forwarded"),
            ["for=203.0.113.9", "for=\"[2001:db8::1]\";proto=https"]
        );
        assert_eq!(all("te"), ["trailers"]);
    }

    #[test]
    fn split_cookies_are_joined() {
        let mut headers = map(&[("cookie", "a=1"), ("x", "y"), ("cookie", "b=2; c=3")]);
        join_cookies(&mut headers);
        let all: Vec<_> = headers.get_all("cookie").iter().collect();
        assert_eq!(all, ["a=1; b=2; c=3"]);
    }
}
