//! The resource key of a request: a route's template, filled with the request's parts.
//!
//! Knows nothing of what is fenced.

use super::host::Host;
use super::marks::Marks;
use super::{header, path, query};
use crate::config::{Captures, Part, Route};
use crate::fence::ResourceKey;
use http::HeaderMap;

/// What a template may need of a request.
#[derive(Clone, Copy)]
pub struct Facts<'a> {
    /// The canonical path.
    pub path: &'a str,
    /// The host, where there is one.
    pub host: Option<Host<'a>>,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// What stands out among them.
    pub marks: Marks,
    /// The raw query.
    pub query: Option<&'a str>,
}

/// The key of a request on a route.
///
/// # Errors
/// Where a placeholder's value is absent, empty, repeated or ambiguous.
pub fn of(
    route: &Route,
    captures: &Captures<'_>,
    facts: Facts<'_>,
) -> Result<ResourceKey, &'static str> {
    let namespace = route.namespace.as_bytes();
    let template = &route.resource;
    let mut key =
        Vec::with_capacity(1 + namespace.len() + template.as_str().len() + facts.path.len());
    key.push(u8::try_from(namespace.len()).unwrap_or(u8::MAX));
    key.extend_from_slice(namespace);
    template.render(&mut key, |part, key| {
        let before = key.len();
        append(part, captures, facts, key)?;
        if key.len() == before {
            Err("a part of the resource is empty")
        } else {
            Ok(())
        }
    })?;
    ResourceKey::from_bytes(&key).ok_or("the resource has no key")
}

fn append(
    part: &Part,
    captures: &Captures<'_>,
    facts: Facts<'_>,
    key: &mut Vec<u8>,
) -> Result<(), &'static str> {
    match part {
        Part::Literal(text) => key.extend_from_slice(text.as_bytes()),
        Part::Capture(name) => path::decode(captures.get(name).unwrap_or_default(), key),
        Part::Prefix(name, most) => {
            let before = key.len();
            path::decode(captures.get(name).unwrap_or_default(), key);
            let mut slashes = (before..key.len()).filter(|&at| key[at] == b'/');
            if let Some(end) = slashes.nth(most - 1) {
                key.truncate(end);
            }
        }
        Part::Path => path::decode(facts.path, key),
        Part::Host => {
            let host = facts.host.ok_or("the resource needs a host")?;
            key.extend(host.name.bytes().map(|b| b.to_ascii_lowercase()));
        }
        Part::Header(name) => {
            let value = header::only(facts.headers, std::slice::from_ref(name), facts.marks);
            let value = value.map_err(|_| "a header that names the resource is ambiguous")?;
            let value = value
                .map(|value| value.as_bytes().trim_ascii())
                .unwrap_or_default();
            if !value.iter().all(|b| matches!(b, b' '..=b'~')) {
                return Err("a header that names the resource has odd bytes");
            }
            key.extend_from_slice(value);
        }
        Part::Query(name) => {
            let raw = query::lookup(facts.query, name)?;
            key.extend(query::value(raw.unwrap_or_default())?);
        }
    }
    Ok(())
}
