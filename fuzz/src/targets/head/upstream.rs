//! What the upstream gets, as far as it decides what the request does there.

use crate::config::{Route, TokenPlace};
use crate::headers::{self, Peer};
use crate::route::Match;
use http::header::HOST;
use http::request::Parts;
use http::uri::{Authority, PathAndQuery};
use http::{HeaderValue, Uri, Version};
use std::net::{IpAddr, Ipv4Addr};

/// The head that goes upstream, as a request to the gateway once more: with the prefixes that were
/// taken off, and with the client's Host.
pub fn asked_again(parts: &Parts, found: &Match<'_>) -> Parts {
    let mut head = parts.clone();
    head.version = Version::HTTP_11;
    if !head.headers.contains_key(HOST) {
        let named = parts.uri.authority().map(Authority::as_str);
        let named = named.unwrap_or(found.route.upstream.authority.as_str());
        head.headers
            .insert(HOST, HeaderValue::from_str(named).unwrap());
    }
    let peer = Peer::new(IpAddr::V4(Ipv4Addr::LOCALHOST), false);
    headers::outbound(&mut head.headers, found.marks, &peer, parts.version);
    if found.upgrade {
        headers::upgrade(&mut head.headers);
    }
    head.uri = Uri::from(with_prefix(found.route, &found.target));
    if let Some(end) = &found.destination {
        let as_it_came =
            end.route.strip_prefix.is_none() && end.route.token != TokenPlace::PathPrefix;
        if !as_it_came {
            let target = with_prefix(end.route, &end.target);
            let value = HeaderValue::from_str(target.as_str()).unwrap();
            head.headers.insert("destination", value);
        }
    }
    head
}

/// The same for an upstream that is spoken to in HTTP/2.
pub fn asked_in_http2(head: &Parts, found: &Match<'_>) -> Parts {
    let (parts, ()) = headers::http2(head.clone(), &found.route.upstream).into_parts();
    parts
}

/// A target with the prefix that its route takes off.
pub fn with_prefix(route: &Route, target: &PathAndQuery) -> PathAndQuery {
    let Some(prefix) = &route.strip_prefix else {
        return target.clone();
    };
    PathAndQuery::try_from(format!("{prefix}{target}")).unwrap()
}
