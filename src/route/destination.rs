//! The `Destination` of a MOVE or COPY: the other end of a request.
//!
//! Reads the header; whether a route covers it is for the caller to find.

use super::header;
use super::host::{self, Host};
use super::marks::Marks;
use super::target::{self, Split};
use http::{HeaderMap, HeaderName};

const DESTINATION: HeaderName = HeaderName::from_static("destination");

/// Why a destination cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// It is no destination.
    Malformed(&'static str),
    /// It is one on another host.
    Elsewhere,
}

/// The raw path that the header names, with the token's prefix taken off where `tokens` is set.
/// `None` where there is no such header.
///
/// # Errors
/// [`Bad`]
pub fn of<'a>(
    headers: &'a HeaderMap,
    marks: Marks,
    here: Option<Host<'_>>,
    tokens: bool,
) -> Result<Option<Split<'a>>, Bad> {
    if !marks.destination() {
        return Ok(None); // its name has no hyphen, and so no twin
    }
    let value = header::only(headers, &[DESTINATION], marks);
    let value = value.map_err(|_| Bad::Malformed("an ambiguous Destination"))?;
    let Some(value) = value else { return Ok(None) };
    let text = value
        .to_str()
        .map_err(|_| Bad::Malformed("a Destination with odd bytes"))?
        .trim();
    let (authority, path) = parts(text)?;
    if path.contains(['?', '#']) {
        return Err(Bad::Malformed("a Destination with a query or fragment"));
    }
    if let Some(authority) = authority {
        let there = host::parse(authority).map_err(Bad::Malformed)?;
        if !here.is_some_and(|here| here.is_same_place(&there)) {
            return Err(Bad::Elsewhere);
        }
    }
    let split = if tokens {
        target::split_token(path)
    } else {
        Split { path, token: None }
    };
    Ok(Some(split))
}

fn parts(text: &str) -> Result<(Option<&str>, &str), Bad> {
    if text.starts_with('/') {
        return Ok((None, text));
    }
    let after = ["http://", "https://"].iter().find_map(|scheme| {
        let head = text.get(..scheme.len())?;
        head.eq_ignore_ascii_case(scheme)
            .then(|| text.get(scheme.len()..).unwrap_or_default())
    });
    let Some(after) = after else {
        return Err(Bad::Malformed(
            "a Destination that is neither an http URL nor a path",
        ));
    };
    let end = after.find(['/', '?', '#', '\\']).unwrap_or(after.len());
    let (authority, path) = after.split_at(end);
    Ok((Some(authority), if path.is_empty() { "/" } else { path }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn read(value: &str) -> Result<Option<String>, Bad> {
        let mut headers = HeaderMap::new();
        headers.insert(DESTINATION, HeaderValue::from_str(value).unwrap());
        let here = host::parse("a.example:8080").unwrap();
        of(&headers, Marks::of(&headers), Some(here), true)
            .map(|found| found.map(|split| split.path.to_owned()))
    }

    #[test]
    fn reads_urls_and_paths_of_this_host() {
        for (value, path) in [
            ("http://A.example:8080/files/b", "/files/b"),
            ("HTTPS://a.example:8080/files/b", "/files/b"),
            ("/files/b", "/files/b"),
            ("/~fence/5/files/b", "/files/b"),
            ("http://a.example:8080", "/"),
        ] {
            assert_eq!(read(value), Ok(Some(path.into())), "{value}");
        }
        assert_eq!(
            of(&HeaderMap::new(), Marks::default(), None, false),
            Ok(None)
        );
    }

    #[test]
    fn another_host_is_elsewhere() {
        for value in [
            "http://b.example:8080/x",
            "http://a.example:81/x",
            "http://a.example/x",
        ] {
            assert!(
                matches!(read(value), Ok(None) | Err(Bad::Elsewhere)),
                "{value}"
            );
        }
    }

    #[test]
    fn odd_destinations_are_malformed() {
        for value in [
            "",
            "files/b",
            "ftp://a.example:8080/x",
            "http://u@a.example:8080/x",
            "/x?y",
            "/x#y",
            "http:/x",
            "http:///x",
            "http://a.example:8080\\x@b/",
            "http://a.example:8080?x",
        ] {
            assert!(
                matches!(read(value), Err(Bad::Malformed(_)) | Ok(Some(_))),
                "{value}"
            );
            assert!(
                !matches!(read(value), Ok(Some(path)) if super::super::path::canonical(&path).is_ok()),
                "{value}"
            );
        }
    }
}
