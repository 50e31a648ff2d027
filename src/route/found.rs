//! What routing finds out about a request, or why it goes no further: values for the later stages.
//!
//! Knows nothing of how they are found.

use super::class::Class;
use super::marks::Marks;
use super::tree::Tree;
use crate::config::Route;
use crate::fence::ResourceKey;
use http::Method;
use http::uri::PathAndQuery;
use std::borrow::Cow;

/// What a request is, by its head.
#[derive(Debug)]
pub struct Match<'a> {
    /// The route that serves it.
    pub route: &'a Route,
    /// Read or write.
    pub class: Class,
    /// It asks to become a WebSocket, and its route lets it.
    pub upgrade: bool,
    /// Its result is known at the response's end alone.
    pub answered_at_end: bool,
    /// Its body names the objects that it changes: they are still to be found ([`Routes::named`]).
    ///
    /// [`Routes::named`]: super::Routes::named
    pub lists_objects: bool,
    /// The method that it is judged by: its own, or what overrides that.
    pub method: Method,
    /// What it needs passes for; `None` where it needs none (reads, routes that are off).
    pub keys: Option<Keys>,
    /// What it does to the object that its path names.
    pub effect: Effect,
    /// The metadata of that object come with it.
    pub brings_metadata: bool,
    /// That object's name within its upstream, where its route has a guard.
    pub object: Option<Box<str>>,
    /// The objects that it changes beside that one, where their route has a guard.
    pub others: Vec<Box<str>>,
    /// The path and query to forward.
    pub target: PathAndQuery,
    /// The token's text, where it stands in the path or the query.
    pub token: Option<String>,
    /// Where it goes, for a write with a `Destination`.
    pub destination: Option<Destination<'a>>,
    /// What stands out among its headers.
    pub marks: Marks,
    /// Whether the path ends in a slash.
    pub trailing_slash: bool,
}

/// What a request does to the object in its path, as far as a conditional request can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing that the object's validator shows: it reads, or adds a part to an upload, or changes its tags.
    Beside,
    /// It puts another content there.
    Replaces,
    /// It takes the object away.
    Removes,
    /// It changes the object, and takes no condition that holds for it.
    Unconditional,
}

/// The resources of a request, each once.
#[derive(Debug, PartialEq, Eq)]
pub struct Keys {
    /// The first: of the path, or of the `Destination` for a COPY.
    pub first: Key,
    /// The `Destination`'s, for a MOVE to another resource.
    pub second: Option<Key>,
    /// Those of a request that names many objects.
    pub more: Vec<Key>,
}

/// One resource of a request.
#[derive(Debug, PartialEq, Eq)]
pub struct Key {
    /// The resource.
    pub resource: ResourceKey,
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
pub struct Destination<'a> {
    /// The route that covers it. Same upstream, mode and token format as the request's.
    pub route: &'a Route,
    /// Its path as it is to be forwarded, less the token and the route's prefix.
    pub target: PathAndQuery,
    /// Whether its token stands in [`DESTINATION_TOKEN`](super::DESTINATION_TOKEN).
    pub own_token: bool,
}

/// Why a request is refused by its head alone.
#[derive(Clone, Debug)]
pub enum Reject<'a> {
    /// No route matches: 404.
    Unrouted,
    /// 400.
    Malformed {
        /// Why, for the sender.
        why: &'static str,
        /// The route, where it is known.
        route: Option<&'a Route>,
    },
    /// 403.
    Forbidden {
        /// Why, for the sender.
        why: Cow<'static, str>,
        /// The route of the request's own path.
        route: &'a Route,
    },
    /// 405: CONNECT.
    MethodNotAllowed,
}

impl From<&'static str> for Reject<'_> {
    fn from(why: &'static str) -> Self {
        Self::Malformed { why, route: None }
    }
}

impl<'a> Reject<'a> {
    /// The same for a request that is on a route already.
    pub(super) fn on(self, route: &'a Route) -> Self {
        match self {
            Self::Malformed { why, route: None } => Self::Malformed {
                why,
                route: Some(route),
            },
            other => other,
        }
    }
}

impl<'a> Match<'a> {
    /// A request of which no more is known yet: a read, it seems, that needs no pass.
    pub(super) const fn of(
        route: &'a Route,
        method: Method,
        target: PathAndQuery,
        marks: Marks,
    ) -> Self {
        Self {
            route,
            class: Class::Read,
            upgrade: false,
            answered_at_end: false,
            lists_objects: false,
            method,
            effect: Effect::Beside,
            brings_metadata: false,
            object: None,
            others: Vec::new(),
            keys: None,
            target,
            token: None,
            destination: None,
            marks,
            trailing_slash: false,
        }
    }

    /// The route that covers an end of the request.
    #[must_use]
    pub const fn route_of(&self, end: End) -> &'a Route {
        match (end, &self.destination) {
            (End::Destination, Some(destination)) => destination.route,
            _ => self.route,
        }
    }
}

impl Keys {
    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Key> {
        let first = std::iter::once(&self.first);
        first.chain(&self.second).chain(&self.more)
    }

    /// One resource.
    pub(super) const fn one(first: Key) -> Self {
        Self {
            first,
            second: None,
            more: Vec::new(),
        }
    }

    /// Many resources, each once; `None` where there are none.
    pub(super) fn many(resources: impl IntoIterator<Item = ResourceKey>) -> Option<Self> {
        let alone = |resource| Key::alone(resource, End::Request);
        let mut keys = resources.into_iter().map(alone);
        let first = keys.next()?;
        Some(Self {
            more: keys.collect(),
            ..Self::one(first)
        })
    }

    /// A MOVE of a resource onto itself has one key.
    pub(super) fn both(first: Key, second: Key) -> Self {
        if first.resource != second.resource {
            return Self {
                second: Some(second),
                ..Self::one(first)
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
    pub(super) const fn alone(resource: ResourceKey, end: End) -> Self {
        Self {
            resource,
            end,
            tree: Tree::No,
        }
    }
}
