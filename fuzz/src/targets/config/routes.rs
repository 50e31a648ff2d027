//! One object, one resource: what the routes of a configuration make of paths that they share.
//!
//! The paths are made from the routes' patterns as text, each with the literals of the others put where it
//! captures something.

use crate::config::{Mode, Part, Route, Settings, TokenPlace};
use crate::fence::{Format, ResourceKey};
use crate::route::explain::explain;
use crate::route::{Class, Match, Routes};
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

pub fn check(settings: &Settings) {
    if settings.routes.len() > ROUTES {
        return;
    }
    let routes = Routes::new(settings);
    let methods = methods(settings);
    let query = query(settings);
    for host in hosts(settings) {
        // By upstream and path there: what is changed.
        let mut objects: BTreeMap<(usize, String), (Fence, String)> = BTreeMap::new();
        for path in paths(settings) {
            let mut tokens: Option<(TokenPlace, Format)> = None;
            let mut fence: Option<(Fence, String)> = None;
            for method in &methods {
                let Some(parts) = request(settings, method, &host, &format!("{path}{query}"))
                else {
                    continue;
                };
                let Ok(found) = routes.classify(&parts) else {
                    continue;
                };
                if found.class == Class::Read && found.keys.is_none() {
                    continue;
                }
                let said = format!("{method} {path} on {} of {host}", found.route.name);
                let own = fence_of(&found);
                let (first, by) = fence.get_or_insert_with(|| (own.clone(), said.clone()));
                assert_eq!(*first, own, "{by} and {said}");
                let object = (found.route.upstream.index, found.target.path().to_owned());
                let (first, by) = objects
                    .entry(object)
                    .or_insert_with(|| (own.clone(), said.clone()));
                assert_eq!(*first, own, "at the upstream {by} and {said}");
                if own.mode != Mode::Off {
                    let token = (found.route.token.clone(), found.route.format);
                    let first = tokens.get_or_insert_with(|| token.clone());
                    assert_eq!(*first, token, "{said}: its token");
                }
            }
        }
    }
    explained(settings, &routes);
}

fn fence_of(found: &Match<'_>) -> Fence {
    Fence {
        mode: found.route.mode,
        key: found.keys.as_ref().map(|keys| keys.first.resource.clone()),
    }
}

/// `check --explain` finds the route that serves the request.
fn explained(settings: &Settings, routes: &Routes) {
    for path in paths(settings).into_iter().take(ROUTES) {
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

    /// A path that matches: behind the first `skip` segments it has those of `other` where this captures
    /// and that does not. A catch-all becomes `depth` segments.
    fn path(&self, skip: usize, other: &[&str], depth: usize) -> String {
        let filling = |at: usize| {
            let place = at.checked_sub(skip);
            let literal = place.and_then(|place| other.get(place));
            let literal = literal.filter(|name| !name.contains('{'));
            literal.map_or(format!("v{}", place.unwrap_or(at)), |name| {
                (*name).to_owned()
            })
        };
        let mut path = String::new();
        for (at, segment) in self.segments.iter().enumerate() {
            let names = match segment.split_once('{') {
                None => vec![(*segment).to_owned()],
                Some((_, name)) if name.starts_with('*') => (at..at + depth).map(filling).collect(),
                Some((before, rest)) => {
                    let after = rest.split_once('}').map_or("", |(_, after)| after);
                    vec![format!("{before}{}{after}", filling(at))]
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
