//! One object, one resource: what the routes of a configuration make of paths that they share.
//!
//! The paths are made from the routes' patterns as text, each with the literals of the others put where it
//! captures something.

use crate::config::{Mode, Part, Route, Settings, TokenPlace};
use crate::fence::{Format, ResourceKey};
use crate::route::explain::explain;
use crate::route::{Class, Routes};
use http::request::Parts;
use http::{HeaderValue, Method, Request};
use std::collections::{BTreeMap, BTreeSet};

/// How many routes and methods are tried.
const ROUTES: usize = 6;
const METHODS: usize = 10;

/// What decides which fence a request meets.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fence {
    mode: Mode,
    key: Option<ResourceKey>,
}

/// What is changed: an upstream, a path there and, where the upstream can tell, the host.
type Object = (usize, String, Option<String>);

/// What became of a request that may change something.
#[derive(Clone)]
struct Seen {
    fence: Fence,
    /// `None` where the route is off.
    token: Option<(TokenPlace, Format)>,
    object: Object,
    said: String,
}

pub fn check(settings: &Settings) {
    if settings.routes.len() > ROUTES {
        return;
    }
    let routes = Routes::new(settings);
    let (paths, methods, query) = (paths(settings), methods(settings), query(settings));
    let mut objects: BTreeMap<Object, Seen> = BTreeMap::new();
    for host in hosts(settings) {
        for path in &paths {
            let mut first: Option<Seen> = None;
            for method in &methods {
                let target = format!("{path}{query}");
                let request = request(settings, method, &host, &target);
                let Some(seen) = request.and_then(|parts| ask(settings, &routes, &parts)) else {
                    continue;
                };
                let other = first.get_or_insert_with(|| seen.clone());
                assert_eq!(other.fence, seen.fence, "{} and {}", other.said, seen.said);
                assert_eq!(other.token, seen.token, "{} and {}", other.said, seen.said);
                let other = objects
                    .entry(seen.object.clone())
                    .or_insert_with(|| seen.clone());
                assert_eq!(
                    other.fence, seen.fence,
                    "one at the upstream: {} and {}",
                    other.said, seen.said
                );
            }
        }
    }
    explained(settings, &routes, &paths);
}

/// `None` where the request is refused, or is a read that no gate has to pass.
fn ask(settings: &Settings, routes: &Routes, parts: &Parts) -> Option<Seen> {
    let found = routes.classify(parts).ok()?;
    if found.class == Class::Read && found.keys.is_none() {
        return None;
    }
    let route = found.route;
    let host = parts.headers["host"].to_str().unwrap();
    let mut all_parts = settings.routes.iter().flat_map(|r| r.resource.parts());
    // Of a key that the client's host makes, only a warning is said.
    let hidden = route.upstream.rewrite_host && !all_parts.any(|part| *part == Part::Host);
    let host_there = (!hidden).then(|| host.to_owned());
    Some(Seen {
        fence: Fence {
            mode: route.mode,
            key: found.keys.as_ref().map(|keys| keys.first.resource.clone()),
        },
        token: (route.mode != Mode::Off).then(|| (route.token.clone(), route.format)),
        object: (
            route.upstream.index,
            found.target.path().to_owned(),
            host_there,
        ),
        said: format!("{} {} of {host} on {}", parts.method, parts.uri, route.name),
    })
}

/// `check --explain` finds the route that serves the request.
fn explained(settings: &Settings, routes: &Routes, paths: &BTreeSet<String>) {
    for path in paths.iter().take(ROUTES) {
        let Ok(explanation) = explain(settings, &format!("PUT {path}")) else {
            continue;
        };
        let text = explanation.to_string();
        assert!(!text.is_empty());
        let uri = path.parse::<http::Uri>().unwrap();
        let request = Request::builder().method("PUT").uri(uri);
        let request = request.header("host", "localhost").body(()).unwrap();
        if let Ok(found) = routes.classify(&request.into_parts().0) {
            assert_eq!(explanation.route.as_deref(), Some(&*found.route.name));
        }
    }
}

/// Paths that each route matches, those that it may share with each other one, and those that may be one
/// at the upstream.
fn paths(settings: &Settings) -> BTreeSet<String> {
    let patterns: Vec<Pattern<'_>> = settings.routes.iter().map(|r| Pattern::of(r)).collect();
    let mut paths = BTreeSet::new();
    for own in &patterns {
        for other in &patterns {
            for depth in 0..=2 {
                paths.insert(own.path(0, &[], depth));
                paths.insert(own.path(0, &other.segments, depth));
                paths.insert(own.path(own.prefix, &other.segments[other.prefix..], depth));
            }
        }
    }
    paths
}

/// A route's path, as the segments of its text.
struct Pattern<'a> {
    segments: Vec<&'a str>,
    /// How many of them do not go upstream.
    prefix: usize,
}

impl<'a> Pattern<'a> {
    fn of(route: &'a Route) -> Self {
        let split = |text: &'a str| text.split('/').filter(|name| !name.is_empty());
        let prefix = route.strip_prefix.as_deref().unwrap_or_default();
        Self {
            segments: split(route.path.as_str()).collect(),
            prefix: split(prefix).count(),
        }
    }

    /// A path that matches: behind the first `skip` segments it takes after `other` where this captures. A
    /// catch-all becomes `depth` segments.
    fn path(&self, skip: usize, other: &[&str], depth: usize) -> String {
        let like_other = |at: usize, around: (&str, &str)| {
            let place = at.checked_sub(skip);
            let other = place.and_then(|place| other.get(place)).copied();
            captured(place.unwrap_or(at), around, other)
        };
        let mut path = String::new();
        for (at, &segment) in self.segments.iter().enumerate() {
            let names = match around_capture(segment) {
                None => vec![segment.to_owned()],
                Some(around) if segment.starts_with("{*") => {
                    (at..at + depth).map(|at| like_other(at, around)).collect()
                }
                Some((before, after)) => {
                    vec![format!(
                        "{before}{}{after}",
                        like_other(at, (before, after))
                    )]
                }
            };
            for name in names {
                path.push('/');
                path.push_str(&name);
            }
        }
        if path.is_empty() {
            "/".to_owned()
        } else {
            path
        }
    }
}

/// What stands around the capture of a segment; `None` where it has none.
fn around_capture(segment: &str) -> Option<(&str, &str)> {
    let (before, rest) = segment.split_once('{')?;
    let (_, after) = rest.split_once('}')?;
    Some((before, after))
}

/// What a capture takes, so that with what stands around it the segment fits `other` too, if it can.
fn captured(place: usize, (before, after): (&str, &str), other: Option<&str>) -> String {
    let plain = format!("v{place}");
    let Some(other) = other else { return plain };
    let whole = match around_capture(other) {
        None => other.to_owned(),
        Some((start, end)) => format!("{start}{plain}{end}"),
    };
    let inner = whole.strip_prefix(before).unwrap_or(&whole);
    match inner.strip_suffix(after).unwrap_or(inner) {
        "" => plain,
        inner => inner.to_owned(),
    }
}

fn hosts(settings: &Settings) -> BTreeSet<String> {
    let named = settings
        .routes
        .iter()
        .filter_map(|route| route.host.clone());
    named.chain(["other.example".to_owned()]).collect()
}

fn methods(settings: &Settings) -> Vec<Method> {
    let mut all = vec![Method::PUT, Method::GET, Method::DELETE, Method::POST];
    for route in &settings.routes {
        let lists = [
            route.methods.as_ref(),
            Some(&route.reads),
            Some(&route.writes),
        ];
        all.extend(lists.into_iter().flatten().flatten().cloned());
    }
    let mut seen = BTreeSet::new();
    all.retain(|method| seen.insert(method.as_str().to_owned()));
    all.truncate(METHODS);
    all
}

fn query(settings: &Settings) -> String {
    let mut names = BTreeSet::new();
    for part in settings
        .routes
        .iter()
        .flat_map(|route| route.resource.parts())
    {
        if let Part::Query(name) = part {
            names.insert(format!("{name}=q"));
        }
    }
    let pairs: Vec<String> = names.into_iter().collect();
    if pairs.is_empty() {
        String::new()
    } else {
        format!("?{}", pairs.join("&"))
    }
}

/// A request that has what the templates ask for.
fn request(settings: &Settings, method: &Method, host: &str, target: &str) -> Option<Parts> {
    let request = Request::builder()
        .method(method)
        .uri(target)
        .header("host", host);
    let (mut parts, ()) = request.body(()).ok()?.into_parts();
    for part in settings
        .routes
        .iter()
        .flat_map(|route| route.resource.parts())
    {
        if let Part::Header(name) = part
            && name != "host"
        {
            parts.headers.insert(name, HeaderValue::from_static("h"));
        }
    }
    Some(parts)
}
