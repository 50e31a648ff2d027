//! What else a request may change: everything below its path.
//!
//! A DELETE of a folder deletes what other fences, or other routes, protect. Knows which routes have
//! paths below; only the store and the gates know whether anything there is fenced.

use super::key::{self, Facts};
use super::{End, Entry, target};
use crate::config::Mode;
use crate::fence::ResourceKey;

/// Whether a request that reaches below its path may go ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tree {
    /// It changes its own resource only.
    No,
    /// It is refused if anything is fenced or in flight whose key begins with this key and a slash.
    Ask,
    /// It is refused: what lies below cannot be known from the key.
    Refuse,
}

/// One end of a request, and its key where its route makes keys.
pub struct Place<'r, 'h> {
    pub entry: &'r Entry,
    pub facts: Facts<'h>,
    pub trailing_slash: bool,
    pub key: Option<&'h ResourceKey>,
    pub end: End,
}

/// What a request that reaches below its path changes there. `Err` where that is fenced by a route
/// that enforces and this route does not, so that the request is refused whatever its own mode says.
pub fn below(routes: &[Entry], place: &Place<'_, '_>) -> Result<Tree, &'static str> {
    let own = &place.entry.route;
    if own.allow_collections {
        return Ok(Tree::No);
    }
    let mut tree = Tree::No;
    if place.key.is_some() && place.trailing_slash && !own.resource.covers_prefix() {
        tree = Tree::Refuse;
    }
    // As the upstream sees it: another route may lead there from elsewhere.
    let path = target::strip(place.facts.path, place.entry.strip);
    for other in routes.iter().filter(|entry| entry.fences) {
        let route = &other.route;
        let here = |name: &String| place.facts.host.is_some_and(|host| host.is(name));
        if route.upstream.index != own.upstream.index || !route.host.as_ref().is_none_or(here) {
            continue;
        }
        let Some(path) = route.path.path_below(other.strip, path) else {
            continue;
        };
        let found = place
            .key
            .map_or(Tree::Refuse, |key| relation(other, &path, place.facts, key));
        match found {
            Tree::No => {}
            // To be asked is no answer on a route that only observes.
            _ if route.mode == Mode::Enforce && own.mode != Mode::Enforce => {
                return Err(match place.end {
                    End::Request => "the path lies above what another route fences",
                    End::Destination => "the Destination lies above what another route fences",
                });
            }
            Tree::Ask if tree == Tree::Refuse => {}
            Tree::Refuse if place.key.is_none() => {}
            found => tree = found,
        }
    }
    Ok(tree)
}

/// How the key of a path below relates to the key of the path itself.
fn relation(other: &Entry, path: &str, facts: Facts<'_>, key: &ResourceKey) -> Tree {
    let Some(captures) = other.route.path.matches(path) else {
        return Tree::Refuse;
    };
    let Ok(below) = key::of(&other.route, &captures, Facts { path, ..facts }) else {
        return Tree::Refuse;
    };
    match below.as_bytes().strip_prefix(key.as_bytes()) {
        Some([]) => Tree::No,
        Some([b'/', ..]) => Tree::Ask,
        _ => Tree::Refuse,
    }
}
