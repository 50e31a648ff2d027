//! What a request does to a file of a plain service, as far as a conditional request can tell (RFC 9110, section
//! 13.1; RFC 4918 for those of WebDAV).

use super::class::Class;
use super::{Effect, Head, Match, Reject};
use crate::config::{Guard, Route};
use http::Method;

/// Completes what is known of a request, for a route that has a guard. `path`: less what the upstream does not see.
pub(super) fn effect(head: &Head<'_>, path: &str, found: &mut Match<'_>) {
    if !found.route.is_guarded() {
        return;
    }
    let query = found.target.query(); // less the token
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    found.object = Some(format!("{}{query}", name(head, path)).into());
    found.effect = match found.method {
        _ if found.class == Class::Read => Effect::Beside,
        // Who overrides a method may look at conditions by either.
        _ if head.methods.overridden() || found.upgrade => Effect::Unconditional,
        Method::PUT | Method::PATCH | Method::POST => Effect::Replaces,
        Method::DELETE => Effect::Removes,
        // A folder, where nothing is.
        _ if found.method.as_str() == "MKCOL" => Effect::Beside,
        _ => Effect::Unconditional,
    };
}

/// Notes that the request has another end, whose object it changes too.
pub(super) fn two_ends(head: &Head<'_>, path: &str, other: &Route, found: &mut Match<'_>) {
    found.effect = Effect::Unconditional;
    if other.is_guarded() {
        found.others.push(name(head, path).into());
    }
}

/// Refuses what would change an object that is only created, or take it away, and what takes no condition where the
/// guard is required.
///
/// # Errors
/// [`Reject::Forbidden`]
pub(super) fn conditional<'r>(found: &Match<'r>) -> Result<(), Reject<'r>> {
    let other = found.destination.as_ref().map(|end| end.route);
    let ends = [Some(found.route), other].into_iter().flatten();
    let mut guarded = ends.filter(|route| route.is_guarded());
    let without = found.effect == Effect::Unconditional;
    if without && guarded.clone().any(|route| route.guard_required) {
        return Err(Reject::Forbidden {
            why: "the route requires that the resource itself refuses late writes (guard_required), and the call takes no condition".into(),
            route: found.route,
        });
    }
    let changes = without || found.effect == Effect::Removes;
    if changes && guarded.any(|route| route.guard == Guard::CreateOnly) {
        return Err(Reject::Forbidden {
            why: "objects of this route are only created (guard = \"create-only\"), and the request would change one that is there, or take it away".into(),
            route: found.route,
        });
    }
    Ok(())
}

fn name(head: &Head<'_>, path: &str) -> String {
    let host = head.host.map(|host| host.name.to_ascii_lowercase());
    format!("/{}{path}", host.unwrap_or_default())
}
