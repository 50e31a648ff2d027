//! From a request's head to a route: which rule, which resources, read or write, and what goes out.
//!
//! Knows nothing of tokens' values, of fences or of upstream connections.

pub mod class;
mod destination;
mod dialect;
mod ends;
mod exact;
pub mod explain;
mod found;
mod framing;
pub mod header;
mod host;
mod key;
pub mod listing;
pub mod marks;
mod named;
mod object;
mod operation;
mod path;
mod plain;
mod query;
mod reading;
mod target;
#[cfg(test)]
mod tests;
mod tree;
pub mod upgrade;

pub use class::{Class, PATH_OVERRIDES, overrides_path};
pub use found::{Destination, Effect, End, Key, Keys, Match, Reject};
pub use marks::Marks;
pub use tree::Tree;

use crate::config::{Captures, Kind, Mode, Route, Settings, TokenPlace};
use class::Methods;
use host::Host;
use http::request::Parts;
use http::{HeaderName, Method};
use key::Facts;
use reading::{OfBucket, Reading, Readings};
use std::sync::Arc;
use target::Split;

/// The header that has the token of a MOVE's or COPY's other end.
pub const DESTINATION_TOKEN: HeaderName = HeaderName::from_static("fencing-token-destination");

/// All routes, in the order in which they are tried.
#[derive(Debug)]
pub struct Routes {
    entries: Vec<Entry>,
    path_tokens: bool,
    /// Some lead to object stores.
    stores: bool,
    /// The hosts of those that take a host for the name of a bucket.
    bucket_hosts: Vec<String>,
    /// Capitals in a path do not matter.
    fold_case: bool,
}

#[derive(Debug)]
struct Entry {
    route: Arc<Route>,
    strip: usize,
    /// Whether any request on it is fenced.
    fences: bool,
}

/// A request's head, read once.
struct Head<'a> {
    parts: &'a Parts,
    marks: Marks,
    methods: Methods,
    host: Option<Host<'a>>,
}

impl<'a> Head<'a> {
    fn facts(&self, path: &'a str) -> Facts<'a> {
        Facts {
            path,
            host: self.host,
            headers: &self.parts.headers,
            marks: self.marks,
            query: self.parts.uri.query(),
        }
    }
}

impl Routes {
    /// Takes the routes of a configuration.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        let entry = |route: &Arc<Route>| {
            let strip = route
                .strip_prefix
                .as_ref()
                .and_then(|p| route.path.segments_of_prefix(p));
            let acts = |m: &Method| route.raise_on_read || route.is_write(m);
            let any = route
                .methods
                .as_ref()
                .is_none_or(|list| list.iter().any(acts));
            let fences = route.mode != Mode::Off && any;
            Entry {
                route: route.clone(),
                strip: strip.unwrap_or_default(),
                fences,
            }
        };
        let entries: Vec<Entry> = settings.routes.iter().map(entry).collect();
        let path_tokens = entries
            .iter()
            .any(|entry| entry.route.token == TokenPlace::PathPrefix);
        let stores = entries
            .iter()
            .any(|entry| entry.route.upstream.kind == Kind::S3);
        let virtual_hosts = |entry: &&Entry| entry.route.upstream.virtual_hosts;
        let mut bucket_hosts: Vec<String> = entries
            .iter()
            .filter(virtual_hosts)
            .filter_map(|entry| entry.route.host.clone())
            .collect();
        // Of two that end alike the longer one is meant.
        bucket_hosts.sort_by_key(|host| std::cmp::Reverse(host.len()));
        Self {
            entries,
            path_tokens,
            stores,
            bucket_hosts,
            fold_case: settings.server.fold_case,
        }
    }

    /// Finds what a request is.
    ///
    /// # Errors
    /// [`Reject`], for what must go no further.
    pub fn classify<'r>(&'r self, parts: &Parts) -> Result<Match<'r>, Reject<'r>> {
        let marks = Marks::of(&parts.headers);
        framing::check(parts, marks)?;
        let methods = Methods::of(parts, marks)?;
        if methods.connects() {
            return Err(Reject::MethodNotAllowed);
        }
        let head = Head {
            parts,
            marks,
            methods,
            host: host::of(parts)?,
        };
        let whole = parts.uri.path_and_query().ok_or("the target is no path")?;
        if whole.path() == "*" && parts.method == Method::OPTIONS {
            return Err(Reject::Unrouted);
        }
        let raw = self.split(whole.path());
        let readings = self.read(raw, head.host);
        let (entry, captures, path) = self.find(&readings, &head)?;
        let malformed = |why| Reject::Malformed {
            why,
            route: Some(&*entry.route),
        };
        let (token, query) =
            target::token_of(&entry.route, raw, parts.uri.query()).map_err(malformed)?;
        let target = match path.bucket {
            // Its name stands in a host that the store does not get to see.
            Some(bucket) if entry.route.upstream.rewrite_host => {
                target::in_bucket(bucket, raw.path, query.as_deref())
            }
            _ => target::join(
                whole,
                target::strip(raw.path, entry.strip),
                query.as_deref(),
            ),
        };
        // A WebSocket carries whatever its ends agree on: it is a write.
        let upgrade = entry.route.websocket && marks.hop_by_hop() && upgrade::asks(parts);
        let method = head.methods.judged().clone();
        let mut found = Match {
            class: if upgrade {
                Class::Write
            } else {
                head.methods.class(&entry.route)
            },
            upgrade,
            token,
            trailing_slash: path.trailing_slash,
            ..Match::of(&entry.route, method, target.map_err(malformed)?, marks)
        };
        let facts = head.facts(path.text);
        if found.route.upstream.kind == Kind::S3 {
            self.object(&head, path.exact, &mut found, |route| {
                key::of(route, &captures, facts)
            })?;
            plain::conditional(&found)?;
            return Ok(found);
        }
        plain::effect(&head, target::strip(path.text, entry.strip), &mut found);
        let fenced = found.route.mode != Mode::Off;
        let first = if fenced && (found.class == Class::Write || found.route.raise_on_read) {
            Some(key::of(found.route, &captures, facts).map_err(malformed)?)
        } else {
            None
        };
        if found.class == Class::Read {
            found.keys = first.map(|key| Keys::one(Key::alone(key, End::Request)));
            return Ok(found);
        }
        let own = tree::Place {
            entry,
            facts,
            trailing_slash: path.trailing_slash,
            key: first.as_ref(),
            end: End::Request,
        };
        let other = self.other_end(&head, &mut found)?;
        plain::conditional(&found)?;
        let two_ends = found.destination.is_some();
        let reaches = head.methods.reaches_below() || two_ends;
        // A COPY changes nothing at its own path.
        let copies = head.methods.only_copies() && two_ends;
        let tree = if reaches && !copies {
            self.below(&own)?
        } else {
            Tree::No
        };
        let first = first.map(|resource| Key {
            resource,
            end: End::Request,
            tree,
        });
        found.keys = match (first, other) {
            (Some(_), Some(second)) if copies => Some(Keys::one(second)),
            (Some(first), Some(second)) => Some(Keys::both(first, second)),
            (Some(first), None) => Some(Keys::one(first)),
            (None, _) => None,
        };
        Ok(found)
    }

    /// The routes, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Route>> {
        self.entries.iter().map(|entry| &entry.route)
    }

    fn split<'a>(&self, raw: &'a str) -> Split<'a> {
        if self.path_tokens {
            target::split_token(raw)
        } else {
            Split {
                path: raw,
                token: None,
            }
        }
    }

    /// The path by the rules of each kind of service that there is.
    fn read<'a>(&'a self, raw: Split<'a>, host: Option<Host<'_>>) -> Readings<'a> {
        Readings {
            plain: self.canonical(raw),
            exact: self.stores.then(|| exact::exact(raw.path)).flatten(),
            of_bucket: host.and_then(|host| self.of_bucket(raw.path, host)),
        }
    }

    fn of_bucket<'a>(&'a self, raw: &str, host: Host<'_>) -> Option<OfBucket<'a>> {
        let named = |store: &'a String| Some((store.as_str(), host.below(store)?));
        let (store, bucket) = self.bucket_hosts.iter().find_map(named)?;
        // Whether a bucket's capitals matter, stores do not agree.
        if bucket.bytes().any(|b| b.is_ascii_uppercase()) {
            return None;
        }
        let exact = exact::exact(&format!("/{bucket}{raw}"))?;
        Some(OfBucket {
            store,
            bucket: bucket.to_owned(),
            exact,
        })
    }

    fn canonical<'a>(&self, raw: Split<'a>) -> Result<path::Canonical<'a>, &'static str> {
        let mut canonical = path::canonical(raw.path)?;
        if self.fold_case {
            canonical = path::folded(canonical)?;
        }
        if self.path_tokens && target::has_mark(&canonical.text) {
            return Err("a second token in the path, or one that is spelt with escapes");
        }
        Ok(canonical)
    }

    /// The first route that takes the path, by the rules of the service that it leads to. One that can be read
    /// in two ways there goes no further: it might be another of that route's.
    fn find<'p, 'r: 'p>(
        &'r self,
        readings: &'p Readings<'_>,
        head: &Head<'_>,
    ) -> Result<(&'r Entry, Captures<'p>, Reading<'p>), Reject<'r>> {
        let method = head.methods.judged();
        for entry in &self.entries {
            let route = &entry.route;
            let here = |name| head.host.is_some_and(|host| host.is(name));
            let methods = route.methods.as_ref();
            let in_bucket = readings.in_bucket(route);
            if in_bucket.is_none() && !route.host.as_ref().is_none_or(|name| here(name))
                || methods.is_some_and(|methods| !methods.contains(method))
            {
                continue;
            }
            let path = match in_bucket {
                None => readings.of(route.upstream.kind)?,
                path => path,
            };
            let Some(path) = path else {
                continue;
            };
            if let Some(captures) = route.path.matches(path.text) {
                return Ok((entry, captures, path));
            }
        }
        readings.of(Kind::Http)?;
        Err(Reject::Unrouted)
    }

    fn below<'a>(&self, place: &tree::Place<'a, '_>) -> Result<Tree, Reject<'a>> {
        tree::below(&self.entries, place).map_err(|why| Reject::Forbidden {
            why: why.into(),
            route: &place.entry.route,
        })
    }
}
