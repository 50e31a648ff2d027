//! The host that a request names: exactly one, and the same wherever it is named.
//!
//! Knows nothing of routes.

use http::Version;
use http::header::HOST;
use http::request::Parts;

const NO_HOST: &str = "the host is not a plain name or address";

/// A host and, where it was given, a port, as the client spelt them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Host<'a> {
    /// The name or address, without the port. Never empty; no dot at its end.
    pub name: &'a str,
    /// The port.
    pub port: Option<&'a str>,
}

impl Host<'_> {
    /// Whether this names the same host as a name in lower case.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }

    /// What of it stands before another name, in lower case, and a dot: the name of a bucket.
    #[must_use]
    pub fn below(&self, name: &str) -> Option<&str> {
        let at = self.name.len().checked_sub(name.len() + 1)?;
        let (first, rest) = self.name.split_at_checked(at)?;
        let own = rest.strip_prefix('.')?.eq_ignore_ascii_case(name);
        (own && !first.is_empty()).then_some(first)
    }

    /// Whether both name one place. A port that is not given is the scheme's, and a proxy in front
    /// may have ended TLS, so that either scheme's will do.
    #[must_use]
    pub fn is_same_place(&self, other: &Self) -> bool {
        let default = |port: &str| matches!(port, "80" | "443");
        self.is(other.name)
            && match (self.port, other.port) {
                (Some(a), Some(b)) => a == b,
                (Some(port), None) | (None, Some(port)) => default(port),
                (None, None) => true,
            }
    }
}

/// The host of a request; `None` where it may be absent (HTTP/1.0).
///
/// # Errors
/// Why it is malformed or ambiguous.
pub fn of(parts: &Parts) -> Result<Option<Host<'_>>, &'static str> {
    let mut values = parts.headers.get_all(HOST).iter();
    let header = values.next();
    if values.next().is_some() {
        return Err("two Host headers");
    }
    let header = header
        .map(|value| value.to_str().unwrap_or_default())
        .map(parse)
        .transpose()?;
    let Some(authority) = parts.uri.authority() else {
        if header.is_none() && parts.version >= Version::HTTP_11 {
            return Err("no Host header");
        }
        return Ok(header);
    };
    let target = parse(authority.as_str())?;
    match header {
        Some(header) if header.is(target.name) && header.port == target.port => Ok(Some(header)),
        Some(_) => Err("the target names another host than the Host header"),
        None if parts.version == Version::HTTP_11 => Err("no Host header"),
        None => Ok(Some(target)),
    }
}

/// Reads a host and an optional port.
///
/// # Errors
/// Why it is no host.
pub fn parse(text: &str) -> Result<Host<'_>, &'static str> {
    let bytes = text.as_bytes();
    if bytes.first() == Some(&b'[') {
        return address(text);
    }
    let word = |b: &u8| matches!(b, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_');
    let end = bytes.iter().position(|b| !word(b)).unwrap_or(bytes.len());
    if end == 0 || bytes.get(end - 1) == Some(&b'.') {
        return Err(NO_HOST);
    }
    host(text, end)
}

/// The same for an IPv6 address in brackets.
fn address(text: &str) -> Result<Host<'_>, &'static str> {
    let (inner, _) = text
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'))
        .ok_or(NO_HOST)?;
    inner.parse::<std::net::Ipv6Addr>().map_err(|_| NO_HOST)?;
    host(text, inner.len() + 2)
}

/// A name that ends there, and the port behind it.
fn host(text: &str, end: usize) -> Result<Host<'_>, &'static str> {
    let name = text.get(..end).unwrap_or_default();
    let port = match text.as_bytes().get(end) {
        None => None,
        Some(b':') => text.get(end + 1..),
        Some(_) => return Err(NO_HOST),
    };
    if port.is_some_and(|port| !is_port(port.as_bytes())) {
        return Err("the port is no number");
    }
    Ok(Host { name, port })
}

fn is_port(digits: &[u8]) -> bool {
    let number = || {
        let digit = |sum: u32, b: &u8| sum * 10 + u32::from(b - b'0');
        digits.iter().fold(0, digit)
    };
    matches!(digits.first(), Some(b'1'..=b'9'))
        && digits.len() <= 5
        && digits.iter().all(u8::is_ascii_digit)
        && number() <= 65_535
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn host(uri: &str, headers: &[&str], version: Version) -> Result<Option<String>, &'static str> {
        let mut request = Request::builder().uri(uri).version(version);
        for value in headers {
            request = request.header("Host", *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        of(&parts).map(|host| host.map(|h| h.name.to_owned()))
    }

    #[test]
    fn exactly_one_host() {
        let v11 = Version::HTTP_11;
        assert_eq!(
            host("/a", &["A.example:80"], v11),
            Ok(Some("A.example".into()))
        );
        assert_eq!(host("/a", &["[::1]:80"], v11), Ok(Some("[::1]".into())));
        assert_eq!(host("http://a/x", &["A"], v11), Ok(Some("A".into())));
        assert!(host("/a", &[], v11).is_err());
        assert!(host("/a", &["a", "a"], v11).is_err());
        assert!(host("http://a/x", &["b"], v11).is_err());
        assert!(host("http://a:1/x", &["a:2"], v11).is_err());
        assert!(host("http://a/x", &[], v11).is_err());
        assert_eq!(host("/a", &[], Version::HTTP_10), Ok(None));
        assert_eq!(
            host("http://a/x", &[], Version::HTTP_2),
            Ok(Some("a".into()))
        );
    }

    #[test]
    fn odd_hosts_are_refused() {
        for text in [
            "", "a.", "a.:80", "a b", "u@a", "a:", "a:x", "a:+1", "a:080", "a:65536", "a:80:80",
            "[::1", "[x]", "[::1]x", "a/b", "a,b",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_port_may_be_left_out_where_it_is_the_schemes() {
        let same = |a, b| parse(a).unwrap().is_same_place(&parse(b).unwrap());
        assert!(same("a", "A:443") && same("a:80", "a") && same("a:8080", "a:8080"));
        assert!(!same("a", "a:8080") && !same("a", "b") && !same("a:1", "a:2"));
    }
}
