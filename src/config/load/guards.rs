//! What a route's guard asks of the route, and of those beside it.
//!
//! Works on routes that are right each by itself.

use super::route::Placed;
use super::rules::{skipped, takes_host};
use crate::config::file::{Source, Table};
use crate::config::settings::{Conditions, Guard, Missing, Mode, Route};
use crate::config::template::Part;
use crate::config::value::Value;
use std::sync::Arc;

/// `guard`, `guard_required` and `guard_retry`.
pub fn read(table: &mut Table<'_, '_>) -> (Guard, bool, Option<usize>) {
    let guards = [
        ("none", Guard::None),
        ("create-only", Guard::CreateOnly),
        ("etag", Guard::Etag),
    ];
    (
        table.read_or("guard", Guard::None, |v| v.choice(&guards)),
        table.read_or("guard_required", false, Value::flag),
        table.read("guard_retry", |v| v.size(1)),
    )
}

/// Checks each guard, and finds the routes that go round it.
pub fn check(source: &Source<'_>, routes: &mut [Placed]) {
    for at in 0..routes.len() {
        let hole = hole(routes, at);
        let Some(placed) = routes.get_mut(at) else {
            continue;
        };
        if let Some(route) = Arc::get_mut(&mut placed.route) {
            route.guard_hole = hole;
        }
        one(source, placed);
    }
}

fn one(source: &Source<'_>, placed: &Placed) {
    let route = &placed.route;
    let key = |name: &str| format!("routes.{}.{name}", route.name);
    let fault = |name: &str, what: &str| source.fault(placed.line, &key(name), what);
    let warn = |name: &str, what: &str| source.warn(placed.line, &key(name), what);
    if route.guard == Guard::None {
        if route.guard_required {
            fault(
                "guard_required",
                "is for a route with a guard: write guard = \"etag\" or \"create-only\", or remove it",
            );
        }
        if route.guard_retry.is_some() {
            fault(
                "guard_retry",
                "is for a route with a guard: write guard = \"etag\", or remove it",
            );
        }
        return;
    }
    if route.guard == Guard::CreateOnly && route.guard_retry.is_some() {
        fault(
            "guard_retry",
            "is for guard = \"etag\": an object that is there is not created by trying again",
        );
    }
    if route.guard_required && (route.mode != Mode::Enforce || route.missing == Missing::Allow) {
        fault(
            "guard_required",
            "is for a route that enforces, and lets nothing through without a token: with this mode, or missing = \"allow\", writes go out without the guard",
        );
    }
    if route.mode != Mode::Enforce {
        warn("guard", "has no effect, since the route does not enforce");
        return;
    }
    let selects = |part: &&Part| matches!(part, Part::Header(_));
    if let Some(part) = route.resource.parts().iter().find(selects) {
        let what = format!(
            "is for objects that host, path and query alone tell apart, and the resource has {part}: remove it, or the guard"
        );
        fault("guard", &what);
    }
    if route.upstream.conditions == Conditions::Unknown {
        let what = format!(
            "is not known to be honoured by upstream {}, so the route is {} and no more: write `probe` there, or conditions = \"trusted\"",
            route.upstream.name,
            route.strength(false).word()
        );
        if route.guard_required {
            fault("guard_required", &what);
        } else {
            warn("guard", &what);
        }
    }
    if let Some(why) = route.unguarded() {
        let what = format!(
            "cannot close the last window: {why}; the route is {} and no more",
            route.strength(false).word()
        );
        if route.guard_required {
            fault("guard_required", &what);
        } else {
            warn("guard", &what);
        }
    }
}

/// Another route that leads writes to objects of this one without its guard.
fn hole(routes: &[Placed], at: usize) -> Option<Arc<str>> {
    let own = &*routes.get(at)?.route;
    if own.guard == Guard::None || own.mode != Mode::Enforce {
        return None;
    }
    let beside = |(other_at, placed): (usize, &Placed)| {
        let other = &*placed.route;
        let (skip, other_skip) = (skipped(own), skipped(other));
        let meet = !own.path.meetings(skip, &other.path, other_skip).is_empty();
        let earlier = routes.get(..other_at).unwrap_or_default();
        let taken = || earlier.iter().any(|it| takes(&it.route, own, other));
        let round = other_at != at && goes_round(own, other) && meet && !taken();
        round.then(|| Arc::clone(&other.name))
    };
    routes.iter().enumerate().find_map(beside)
}

/// Whether the other one's writes, where they meet this one's paths, go out without its guard.
fn goes_round(own: &Route, other: &Route) -> bool {
    let mut methods = other.methods.iter().flatten();
    let writes = other.methods.is_none() || methods.any(|m| other.is_write(m));
    let guarded = other.guard == own.guard
        && other.mode == Mode::Enforce
        && other.missing != Missing::Allow
        && (other.guard_required || !own.guard_required);
    writes && !guarded && own.upstream.authority == other.upstream.authority
}

/// Whether a route that stands before another takes all its writes to the paths that it has in common with `own`.
fn takes(earlier: &Route, own: &Route, other: &Route) -> bool {
    let methods = match (&earlier.methods, &other.methods) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(taken), Some(wanted)) => {
            let mut writes = wanted.iter().filter(|m| other.is_write(m));
            writes.all(|method| taken.contains(method))
        }
    };
    let same_path = own.strip_prefix == other.strip_prefix;
    let path = earlier.path.covers(&other.path) || same_path && earlier.path.covers(&own.path);
    methods && takes_host(earlier, other) && path
}
