//! Heads of requests: what the gateway makes of one is what the upstream will make of it.
//!
//! The input is a head as in HTTP/1.1 (see [`request`]), asked of the routes in `routes.toml`. What is
//! accepted is judged by what goes upstream: that, asked again, is the same request; its methods, its
//! token and its resources are those that any server could read in it; and nothing that another route
//! fences lies below what it deletes or moves.

mod keys;
pub(super) mod request;
mod token;
mod upstream;

use crate::config::{Mode, load};
use crate::fence::ResourceKey;
use crate::models::names;
use crate::route::{Class, End, Key, Keys, Match, Routes, Tree, overrides_path};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Uri, Version};
use std::sync::LazyLock;

static ROUTES: LazyLock<Routes> = LazyLock::new(|| {
    let loaded = load(include_str!("routes.toml"));
    Routes::new(
        &loaded
            .unwrap_or_else(|faults| panic!("{faults:#?}"))
            .settings,
    )
});

/// Methods that change nothing, where their service says nothing else.
const SAFE: [&str; 8] = [
    "GET", "HEAD", "OPTIONS", "TRACE", "PROPFIND", "REPORT", "SEARCH", "QUERY",
];

/// Methods that may change what lies below their path.
const REACH_BELOW: [&str; 4] = ["DELETE", "MOVE", "COPY", "LOCK"];

/// What is tried below a path.
const BELOW: [&str; 7] = [
    "x",
    "log",
    "x/y",
    "files/x",
    "jobs/x/v1.log",
    "watched/x",
    "x/v1.log",
];

/// Checks a request's head.
///
/// # Panics
/// Where a property does not hold.
pub fn check(data: &[u8]) {
    let Some(parts) = request::read(data) else {
        return;
    };
    let Ok(found) = ROUTES.classify(&parts) else {
        return;
    };
    let query = parts.uri.query().unwrap_or_default();
    let methods = names::methods(parts.method.as_str(), &parts.headers, query);
    one_reading(&parts);
    class(&parts, &found, &methods);
    let fenced = found.keys.is_some();
    let shown = token::check(&parts, &found);
    let other = token::check_destination(&parts.headers, &found);
    if fenced && found.route.mode == Mode::Enforce && (shown.is_err() || other.is_err()) {
        return; // refused after all
    }
    let again = upstream::asked_again(&parts, &found);
    nothing_else_goes_upstream(&found, &again.headers);
    resources(&found, &methods, &again.headers);
    is_the_same_upstream(&found, &parts, &again);
    if !found.upgrade {
        let in_http2 = upstream::asked_in_http2(&again, &found);
        is_the_same_upstream(&found, &parts, &in_http2);
    }
    if found.class == Class::Write {
        destination(&parts, &found, &again);
        for end in [End::Request, End::Destination] {
            below(&found, end, &methods, &again);
        }
    }
}

/// One host, and one framing.
fn one_reading(parts: &Parts) {
    let headers = &parts.headers;
    let hosts = names::headers(headers, &["host"]);
    assert!(hosts.len() <= 1, "{hosts:?}");
    if let (Some((_, header)), Some(target)) = (hosts.first(), parts.uri.authority()) {
        assert!(
            header
                .trim_ascii()
                .eq_ignore_ascii_case(target.as_str().as_bytes()),
            "{hosts:?} and {target}"
        );
    }
    let codings = names::headers(headers, &["transfer-encoding"]);
    let chunked = |(name, value): &(&str, &[u8])| {
        *name == "transfer-encoding" && value.eq_ignore_ascii_case(b"chunked")
    };
    assert!(
        codings.len() <= 1 && codings.iter().all(chunked),
        "{codings:?}"
    );
    let lengths = names::headers(headers, &["content-length"]);
    assert!(lengths.iter().all(|(name, _)| *name == "content-length"));
}

/// A request is a read only where no server could write by it, and has keys where it is fenced.
fn class(parts: &Parts, found: &Match<'_>, methods: &[String]) {
    let route = &*found.route.name;
    let writes = |method: &String| match (route, method.as_str()) {
        ("odd", "GET" | "REPORT") => true,
        ("odd", "POST") => false,
        (_, method) => !SAFE.contains(&method),
    };
    let upgrade = route == "ws" && becomes_websocket(parts);
    assert_eq!(found.upgrade, upgrade, "{:?}", parts.headers);
    let expected = if upgrade || methods.iter().any(writes) {
        Class::Write
    } else {
        Class::Read
    };
    assert_eq!(found.class, expected, "{methods:?} on {route}");
    assert!(methods.iter().all(|m| m != "CONNECT"), "{methods:?}");
    assert!(methods.iter().any(|m| *m == found.method.as_str()));

    let reads = matches!(route, "files" | "rest-of-some");
    let fenced = found.route.mode != Mode::Off && (expected == Class::Write || reads);
    assert_eq!(found.keys.is_some(), fenced, "{methods:?} on {route}");
    if found.class == Class::Read {
        assert!(found.destination.is_none());
        assert!(
            found
                .keys
                .iter()
                .flat_map(Keys::iter)
                .all(|key| key.tree == Tree::No)
        );
    }
}

/// What is said then is for nobody to read: it is a write.
fn becomes_websocket(parts: &Parts) -> bool {
    let upgrades = names::headers(&parts.headers, &["upgrade"]);
    let one = upgrades
        .iter()
        .all(|(_, value)| value.eq_ignore_ascii_case(b"websocket"));
    let named = names::dropped(&parts.headers).contains(&"upgrade".to_owned());
    let plain = parts.method == Method::GET && parts.version == Version::HTTP_11;
    let lengths = names::headers(&parts.headers, &["content-length", "transfer-encoding"]);
    let no_body = lengths
        .iter()
        .all(|(name, value)| *name == "content-length" && *value == b"0");
    plain && no_body && named && one && upgrades.len() == 1
}

/// No other path, and no second token in the path.
fn nothing_else_goes_upstream(found: &Match<'_>, headers: &HeaderMap) {
    assert!(!headers.keys().any(overrides_path), "{headers:?}");
    let others = ["x-original-url", "x-rewrite-url", "x-original-uri"];
    assert!(names::headers(headers, &others).is_empty(), "{headers:?}");
    let own = (found.route, &found.target);
    let other = found.destination.iter().map(|end| (end.route, &end.target));
    for (route, target) in std::iter::once(own).chain(other) {
        if route.strip_prefix.is_some() {
            continue; // its files may be called as they like
        }
        let file = crate::models::plain::file(target.path().as_bytes()).unwrap();
        assert!(
            file.first().is_none_or(|name| name != b"~fence"),
            "{target}"
        );
    }
}

/// The keys are those of what the upstream changes, and no others.
fn resources(found: &Match<'_>, methods: &[String], headers: &HeaderMap) {
    let Some(keys) = &found.keys else { return };
    let copies = found.destination.is_some() && methods.iter().all(|m| m == "COPY");
    let mut expected = Vec::new();
    if !copies {
        expected.push(keys::expected(found.route, &found.target, headers));
    }
    if let Some(end) = &found.destination {
        // The parameters that name its resource are the request's.
        let target = with_query(&end.target, found.target.query());
        expected.push(keys::expected(end.route, &target, headers));
    }
    expected.dedup();
    let made: Vec<(String, Vec<u8>)> = keys
        .iter()
        .map(|key| {
            (
                key.resource.namespace().to_owned(),
                key.resource.key().to_vec(),
            )
        })
        .collect();
    assert_eq!(made, expected, "{methods:?} {}", found.target);
}

/// What goes upstream, asked again, is the same request, less the tokens in its target.
fn is_the_same_upstream(found: &Match<'_>, parts: &Parts, head: &Parts) {
    let again = ROUTES.classify(head);
    let dropped = names::dropped(&parts.headers);
    if dropped.iter().any(|name| names::overrides_method(name)) {
        // `Connection` took an override off: the upstream may see less than was judged, never more.
        if let Ok(again) = &again {
            assert!(found.class == Class::Write || again.class == Class::Read);
            let judged = bare(found.keys.as_ref());
            assert!(
                bare(again.keys.as_ref())
                    .iter()
                    .all(|key| judged.contains(key))
            );
        }
        return;
    }
    let again = again.unwrap_or_else(|why| panic!("{} {}: {why:?}", head.method, head.uri));
    assert_eq!(again.token, None, "{}", head.uri);
    assert_eq!(again.target, found.target);
    assert_eq!(
        (&again.route.name, again.class, &again.method),
        (&found.route.name, found.class, &found.method)
    );
    let ends = |found: &Match<'_>| {
        let end = found.destination.as_ref();
        end.map(|end| (end.route.name.clone(), end.target.clone()))
    };
    assert_eq!(ends(&again), ends(found));
    let ends = found.destination.iter().map(|end| &end.target);
    if std::iter::once(&found.target)
        .chain(ends)
        .any(|target| target.path() == "/")
    {
        // A prefix alone has got a slash.
        assert_eq!(
            bare(again.keys.as_ref()),
            bare(found.keys.as_ref()),
            "{}",
            head.uri
        );
    } else {
        assert_eq!(again.keys, found.keys, "{}", head.uri);
    }
}

fn bare(keys: Option<&Keys>) -> Vec<(&ResourceKey, End)> {
    keys.into_iter()
        .flat_map(Keys::iter)
        .map(|key| (&key.resource, key.end))
        .collect()
}

/// A `Destination` is judged as a request to it would be.
fn destination(parts: &Parts, found: &Match<'_>, again: &Parts) {
    let there = parts.headers.contains_key("destination");
    assert_eq!(found.destination.is_some(), there, "{}", parts.method);
    let Some(end) = &found.destination else {
        let needs = matches!(parts.method.as_str(), "MOVE" | "COPY");
        let overridden = found.method != parts.method;
        assert!(!needs || overridden || found.route.mode == Mode::Off);
        return;
    };
    assert_eq!(end.route.upstream.index, found.route.upstream.index);
    assert_eq!(end.route.mode, found.route.mode);
    let target = upstream::with_prefix(end.route, &end.target);
    let query = found.target.query().and_then(|query| {
        let mut pairs = query.split('&');
        pairs.find(|pair| pair.starts_with("id="))
    });
    let query = query.filter(|_| &*end.route.name == "by-query");
    let put = put(again, &with_query(&target, query));
    let asked = ROUTES
        .classify(&put)
        .unwrap_or_else(|why| panic!("PUT {target}: {why:?}"));
    assert_eq!(asked.target.path(), end.target.path());
    let key = |keys: &Option<Keys>, of: End| {
        let mut keys = keys.iter().flat_map(Keys::iter);
        keys.find(|key| key.end == of)
            .map(|key| key.resource.clone())
    };
    let own = key(&asked.keys, End::Request);
    assert_eq!(asked.route.mode == Mode::Off, own.is_none());
    // A MOVE of a resource onto itself has one key, that of the request's end.
    let made = key(&found.keys, End::Destination).or_else(|| key(&found.keys, End::Request));
    assert_eq!(made, own, "{target}");
}

/// Nothing that is fenced apart lies below what a request deletes or moves, unless the gates are asked.
fn below(found: &Match<'_>, end: End, methods: &[String], again: &Parts) {
    let two = found.destination.is_some();
    let copies = two && methods.iter().all(|m| m == "COPY");
    let any = methods
        .iter()
        .any(|m| REACH_BELOW.contains(&m.to_ascii_uppercase().as_str()));
    let (route, target) = match (end, &found.destination) {
        (End::Destination, Some(destination)) => (destination.route, &destination.target),
        (End::Destination, None) => return,
        (End::Request, _) => (found.route, &found.target),
    };
    if !(any || two) || (copies && end == End::Request) || route.allow_collections {
        return;
    }
    let key: Option<&Key> = match &found.keys {
        Some(keys) => Some(
            keys.iter()
                .find(|key| key.end == end)
                .unwrap_or(&keys.first),
        ),
        None => None,
    };
    for name in BELOW {
        let path = format!("{}/{name}", target.path().trim_end_matches('/'));
        let query = found.target.query();
        let Ok(path) = PathAndQuery::try_from(path) else {
            continue;
        };
        let put = put(again, &with_query(&path, query));
        let Ok(inner) = ROUTES.classify(&put) else {
            continue;
        };
        let fences = inner.route.mode == Mode::Enforce && inner.route.strip_prefix.is_none();
        if !fences || inner.route.upstream.index != route.upstream.index {
            continue;
        }
        let Some(keys) = &inner.keys else { continue };
        let inner = &keys.first.resource;
        let key = key.unwrap_or_else(|| panic!("{methods:?} {target} reaches {inner}"));
        assert!(
            route.mode == Mode::Enforce || key.resource == *inner,
            "{methods:?} {target} is only watched, and reaches {inner}"
        );
        let enough = if key.resource == *inner {
            true
        } else if inner
            .as_bytes()
            .starts_with(&[key.resource.as_bytes(), b"/"].concat())
        {
            key.tree != Tree::No
        } else {
            key.tree == Tree::Refuse
        };
        assert!(
            enough,
            "{methods:?} {target} reaches {inner}, and is {:?}",
            key.tree
        );
    }
}

/// A plain write to another path, with all else as it is.
fn put(head: &Parts, target: &PathAndQuery) -> Parts {
    let mut put = head.clone();
    put.method = Method::PUT;
    put.uri = Uri::from(target.clone());
    let names: Vec<_> = put.headers.keys().cloned().collect();
    for name in names {
        if name == "destination" || names::overrides_method(name.as_str()) {
            put.headers.remove(&name);
        }
    }
    put
}

fn with_query(target: &PathAndQuery, query: Option<&str>) -> PathAndQuery {
    match query {
        Some(query) => PathAndQuery::try_from(format!("{}?{query}", target.path())).unwrap(),
        None => target.clone(),
    }
}
