//! Who may raise the fences that two routes share: a bound on one of them is none if the other has it not.
//!
//! Works on routes that are right each by itself.

use super::route::Placed;
use crate::config::file::Source;
use crate::config::settings::{Mode, Route};

pub fn check(source: &Source<'_>, earlier: &Placed, later: &Placed) {
    let (a, b) = (&*earlier.route, &*later.route);
    let fenced = a.mode != Mode::Off && b.mode != Mode::Off;
    let shared = a.namespace == b.namespace && a.resource.as_str() == b.resource.as_str();
    if !fenced || !shared {
        return;
    }
    for (key, bound) in [
        (
            "allow",
            (|route| route.allow.is_some()) as fn(&Route) -> bool,
        ),
        ("auth_request", |route| route.auth_request.is_some()),
    ] {
        if bound(a) == bound(b) {
            continue;
        }
        let (bounded, open) = if bound(a) { (a, b) } else { (b, a) };
        source.warn(
            later.line,
            &format!("routes.{}.{key}", b.name),
            format!(
                "routes {} and {} fence the same resources, and only {} has {key}: whoever that turns away can raise through {}; give it to both",
                a.name, b.name, bounded.name, open.name
            ),
        );
    }
}
