//! From bytes to a request's head, as the HTTP library makes it for the gateway.
//!
//! The input is a head as in HTTP/1.1, so that it can be read and written by hand. A first line that ends
//! in `HTTP/2.0` makes it one of HTTP/2: what stands there as a target is its scheme, authority and path.

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderName, HeaderValue, Method, Request, Uri, Version};

/// What HTTP/2 does not know.
const ONLY_IN_HTTP_1: [&str; 5] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "upgrade",
];

/// The head; `None` where the library would have answered by itself.
pub fn read(data: &[u8]) -> Option<Parts> {
    let line = data.split(|&b| b == b'\n').next().unwrap_or_default();
    let is_h2 = line.trim_ascii_end().ends_with(b" HTTP/2.0");
    let mut text = data.to_vec();
    if is_h2 {
        let end = line.trim_ascii_end().len();
        text[end - 3..end].copy_from_slice(b"1.1");
    }
    text.extend_from_slice(b"\r\n\r\n"); // an end that is missing is no fault worth finding

    let mut headers = [httparse::EMPTY_HEADER; 100];
    let mut parsed = httparse::Request::new(&mut headers);
    if !parsed.parse(&text).ok()?.is_complete() {
        return None;
    }
    let target = parsed.path?.as_bytes();
    let request = Request::builder()
        .method(Method::from_bytes(parsed.method?.as_bytes()).ok()?)
        .uri(if is_h2 { of_h2(target)? } else { uri(target)? })
        .version(match (is_h2, parsed.version?) {
            (true, _) => Version::HTTP_2,
            (false, 1) => Version::HTTP_11,
            (false, _) => Version::HTTP_10,
        });
    let (mut parts, ()) = request.body(()).ok()?.into_parts();
    for header in parsed.headers {
        let name = HeaderName::from_bytes(header.name.as_bytes()).ok()?;
        if is_h2 && ONLY_IN_HTTP_1.contains(&name.as_str()) {
            return None;
        }
        parts
            .headers
            .append(name, HeaderValue::from_bytes(header.value).ok()?);
    }
    let mut lengths = parts.headers.get_all(CONTENT_LENGTH).iter();
    let first = lengths.next();
    let one = lengths.all(|length| Some(length) == first);
    one.then_some(parts)
}

fn uri(target: &[u8]) -> Option<Uri> {
    Uri::from_maybe_shared(Bytes::copy_from_slice(target)).ok()
}

/// What the library makes of `:scheme`, `:authority` and `:path`, each read by itself.
fn of_h2(target: &[u8]) -> Option<Uri> {
    let target = std::str::from_utf8(target).ok()?;
    let mut parts = http::uri::Parts::default();
    let mut path = target;
    if let Some((scheme, rest)) = target.split_once("://") {
        let end = rest.find(['/', '?', '*']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at(end);
        parts.scheme = Some(Scheme::try_from(scheme).ok()?);
        parts.authority = Some(Authority::try_from(authority).ok()?);
        path = rest;
    }
    if path.is_empty() {
        return None;
    }
    parts.path_and_query = Some(PathAndQuery::try_from(path).ok()?);
    Uri::from_parts(parts).ok()
}
