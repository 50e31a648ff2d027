//! What routing finds out about a request, or why it goes no further: values for the later stages.
//!
//! Knows nothing of how they are found.

use super::class::Class;
use super::tree::Tree;
use crate::config::Route;
use http::Method;
use http::uri::PathAndQuery;
use std::sync::Arc;

/// What a request is, by its head.
#[derive(Debug)]
pub struct Match {
    /// The route that serves it.
    pub route: Arc<Route>,
    /// Read or write.
    pub class: Class,
    /// The method that it is judged by: its own, or what overrides that.
    pub method: Method,
    /// What it needs passes for; `None` where it needs none (reads, routes that are off).
    pub keys: Option<Keys>,
    /// The path and query to forward.
    pub target: PathAndQuery,
    /// The token's text, where it stands in the path or the query.
    pub token: Option<String>,
    /// Where it goes, for a write with a `Destination`.
    pub destination: Option<Destination>,
    /// Whether the path ends in a slash.
    pub trailing_slash: bool,
}

/// The resources of a request, each once.
#[derive(Debug, PartialEq, Eq)]
pub struct Keys {
    /// The first: of the path, or of the `Destination` for a COPY.
    pub first: Key,
    /// The `Destination`'s, for a MOVE to another resource.
    pub second: Option<Key>,
}

/// One resource of a request.
#[derive(Debug, PartialEq, Eq)]
pub struct Key {
    /// The bytes of a [`ResourceKey`](crate::fence::ResourceKey).
    pub bytes: Vec<u8>,
    /// Which end of the request it is: its rules are those of that end's route.
    pub end: End,
    /// What the request may change below it.
    pub tree: Tree,
}

/// An end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its path.
    Request,
    /// Its `Destination`.
    Destination,
}

/// The other end of a MOVE or COPY.
#[derive(Debug)]
pub struct Destination {
    /// The route that covers it. Same upstream, mode and token format as the request's.
    pub route: Arc<Route>,
    /// Its path as it is to be forwarded, less the token and the route's prefix.
    pub target: PathAndQuery,
    /// Whether its token stands in [`DESTINATION_TOKEN`](super::DESTINATION_TOKEN).
    pub own_token: bool,
}

/// Why a request is refused by its head alone.
#[derive(Debug)]
pub enum Reject {
    /// No route matches: 404.
    Unrouted,
    /// 400.
    Malformed {
        /// Why, for the sender.
        why: &'static str,
        /// The route, where it is known.
        route: Option<Arc<Route>>,
    },
    /// 403.
    Forbidden {
        /// Why, for the sender.
        why: &'static str,
        /// The route of the request's own path.
        route: Arc<Route>,
    },
    /// 405: CONNECT.
    MethodNotAllowed,
}

impl From<&'static str> for Reject {
    fn from(why: &'static str) -> Self {
        Self::Malformed { why, route: None }
    }
}

impl Match {
    /// The route that covers an end of the request.
    #[must_use]
    pub fn route_of(&self, end: End) -> &Arc<Route> {
        match (end, &self.destination) {
            (End::Destination, Some(destination)) => &destination.route,
            _ => &self.route,
        }
    }
}

impl Keys {
    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Key> {
        std::iter::once(&self.first).chain(&self.second)
    }

    /// One resource.
    pub(super) fn one(first: Key) -> Self {
        Self {
            first,
            second: None,
        }
    }

    /// A MOVE of a resource onto itself has one key.
    pub(super) fn both(first: Key, second: Key) -> Self {
        if first.bytes != second.bytes {
            return Self {
                first,
                second: Some(second),
            };
        }
        let tree = if second.tree == Tree::No || first.tree == Tree::Refuse {
            first.tree
        } else {
            second.tree
        };
        Self::one(Key { tree, ..first })
    }
}

impl Key {
    /// A resource below which nothing changes.
    pub(super) fn alone(bytes: Vec<u8>, end: End) -> Self {
        Self {
            bytes,
            end,
            tree: Tree::No,
        }
    }
}
