//! What would become of a request, in words: for `check --explain`.
//!
//! Pure: reads settings, answers text.

use super::{Class, Effect, Match, Reject, Routes, Tree};
use crate::config::{
    Accept, Conditions, Guard, Missing, Mode, Route, Settings, Strength, TokenPlace,
};
use crate::fence::Format;
use http::{Request, Uri, header};
use std::fmt;

/// What would become of a request.
#[derive(Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The route's name; `None` where no route takes the request.
    pub route: Option<String>,
    /// What is to be said, as labels and texts.
    pub lines: Vec<(&'static str, String)>,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (label, text)) in self.lines.iter().enumerate() {
            let end = if i == 0 { "" } else { "\n" };
            write!(f, "{end}{label:<10} {text}")?;
        }
        Ok(())
    }
}

/// Explains a request such as `PUT /files/a` or `PUT http://files.example/files/a`.
///
/// # Errors
/// Where the text is no request.
pub fn explain(settings: &Settings, request: &str) -> Result<Explanation, String> {
    let mut words = request.split_whitespace();
    let (Some(method), Some(target), None) = (words.next(), words.next(), words.next()) else {
        return Err(format!(
            "\"{request}\" is no request: write one such as \"PUT /files/a\""
        ));
    };
    let uri: Uri = target
        .parse()
        .map_err(|e| format!("\"{target}\" is no target: {e}"))?;
    let host = uri
        .authority()
        .map_or("localhost", |authority| authority.as_str())
        .to_owned();
    let built = Request::builder()
        .method(method)
        .uri(uri)
        .header(header::HOST, host)
        .body(());
    let (parts, ()) = built
        .map_err(|e| format!("\"{request}\" is no request: {e}"))?
        .into_parts();
    let routes = Routes::new(settings);
    Ok(match routes.classify(&parts) {
        Ok(found) => matched(&found),
        Err(reject) => rejected(&reject),
    })
}

fn rejected(reject: &Reject<'_>) -> Explanation {
    let (route, answer) = match reject {
        Reject::Unrouted => (None, "404 unrouted: no route matches; a host is given as in \"PUT http://files.example/files/a\"".to_owned()),
        Reject::Malformed { why, route } => (*route, format!("400 malformed: {why}")),
        Reject::Forbidden { why, route } => (Some(*route), format!("403 forbidden: {why}")),
        Reject::MethodNotAllowed => (None, "405: CONNECT is never served".to_owned()),
    };
    let route = route.map(|route| route.name.to_string());
    let mut lines = Vec::new();
    if let Some(route) = &route {
        lines.push(("route", route.clone()));
    }
    lines.push(("answer", answer));
    Explanation { route, lines }
}

fn matched(found: &Match<'_>) -> Explanation {
    let route = found.route;
    let mut lines = vec![
        ("route", route.name.to_string()),
        (
            "class",
            format!("{} ({})", found.class.word(), found.method),
        ),
        (
            "upstream",
            format!(
                "{} ({}://{})",
                route.upstream.name,
                route.upstream.scheme(),
                route.upstream.authority
            ),
        ),
        ("target", found.target.to_string()),
    ];
    match &found.keys {
        Some(keys) => {
            for key in std::iter::once(&keys.first).chain(&keys.second) {
                lines.push(("resource", key.resource.to_string()));
                match key.tree {
                    Tree::Ask => lines.push((
                        "below",
                        "403 forbidden while anything below it is fenced or under way".into(),
                    )),
                    Tree::Refuse if route.mode == Mode::Enforce => lines.push((
                        "answer",
                        "403 forbidden: it changes what others are fenced for, such as a whole folder".into(),
                    )),
                    Tree::No | Tree::Refuse => {}
                }
            }
            lines.push(("token", token(route)));
        }
        None if found.lists_objects => {
            lines.push(("resource", "those that the body names".into()));
            lines.push(("token", token(route)));
        }
        None if route.mode == Mode::Off => lines.push(("resource", "none: mode is off".into())),
        None => lines.push(("resource", "none: reads pass without a token".into())),
    }
    lines.push(("rule", rule(route)));
    match route.guard {
        Guard::None => {}
        Guard::CreateOnly => lines.push(("guard", "create-only: If-None-Match: *".into())),
        Guard::Etag => lines.push((
            "guard",
            "etag: If-Match, or If-None-Match: * where there is none".into(),
        )),
    }
    if let Some(names) = &route.allow {
        lines.push(("writers", names.join(", ")));
    }
    if let Some(auth) = &route.auth_request {
        let (scheme, authority) = (auth.upstream.scheme(), &auth.upstream.authority);
        lines.push(("asks", format!("{scheme}://{authority}{}", auth.target)));
    }
    lines.push(("strength", promise(found)));
    Explanation {
        route: Some(route.name.to_string()),
        lines,
    }
}

/// How strong the promise is for this request.
fn promise(found: &Match<'_>) -> String {
    let route = found.route;
    let without = route.strength(false).word();
    if !route.is_guarded() || found.class == Class::Read {
        return of_route(route);
    }
    match found.effect {
        Effect::Beside => format!(
            "{without}: the guard is of the object's content, which the call does not change"
        ),
        Effect::Unconditional => format!("{without}: the call takes no condition"),
        Effect::Replaces | Effect::Removes => of_route(route),
    }
}

/// How strong the promise of a route is, and what that depends on.
#[must_use]
pub fn of_route(route: &Route) -> String {
    let without = route.strength(false).word();
    if !route.is_guarded() || route.strength(true) == Strength::None {
        return without.into();
    }
    let upstream = &route.upstream.name;
    match (route.unguarded(), &route.upstream.conditions) {
        (Some(why), _) => format!("{without}: {why}"),
        (None, Conditions::Trusted) => Strength::Guarded.word().into(),
        (None, Conditions::Probe(_)) if route.guard_required => format!(
            "guarded: the gateway does not start unless the probe finds that upstream {upstream} honours conditions"
        ),
        (None, Conditions::Probe(_)) => format!(
            "guarded, if the probe finds that upstream {upstream} honours conditions; else {without}"
        ),
        (None, Conditions::Unknown) => format!(
            "{without}: upstream {upstream} has neither a probe nor conditions = \"trusted\""
        ),
    }
}

fn token(route: &Route) -> String {
    let format = match route.format {
        Format::U64 => "u64",
        Format::Hex => "hex",
        Format::Pair => "pair",
    };
    match &route.token {
        TokenPlace::Header(names) => {
            let names: Vec<&str> = names.iter().map(http::HeaderName::as_str).collect();
            format!("header {} ({format})", names.join(" or "))
        }
        TokenPlace::Query(name) => format!("query parameter {name} ({format})"),
        TokenPlace::PathPrefix => format!("path prefix /~fence/<token>/ ({format})"),
    }
}

fn rule(route: &Route) -> String {
    let mode = match route.mode {
        Mode::Enforce => "enforce",
        Mode::Observe => "observe",
        Mode::Off => return "mode off".into(),
    };
    let accept = match route.accept {
        Accept::SameOrNewer => "same-or-newer",
        Accept::Newer => "newer",
    };
    let missing = match route.missing {
        Missing::Reject => "reject",
        Missing::Allow => "allow",
        Missing::AllowUntilFenced => "allow-until-fenced",
    };
    let reads = if route.raise_on_read {
        ", reads raise"
    } else {
        ""
    };
    format!("mode {mode}, accept {accept}, missing {missing}{reads}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::load;

    fn explained(request: &str) -> Result<Explanation, String> {
        let sample = include_str!("../../config/fencegate.toml");
        let loaded = load(sample).unwrap_or_else(|faults| panic!("{faults:#?}"));
        explain(&loaded.settings, request)
    }

    #[test]
    fn names_the_route_the_resource_the_rule_and_the_strength() {
        let text = explained("PUT /files/a").unwrap().to_string();
        for part in [
            "route      files",
            "write (PUT)",
            "default:files/a",
            "fencing-token",
            "accept same-or-newer",
            "drained",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert_eq!(
            explained("PUT http://files.example/files/a")
                .unwrap()
                .route
                .as_deref(),
            Some("files")
        );
    }

    #[test]
    fn says_what_a_folder_is_refused_for() {
        let said = |request| explained(request).unwrap().to_string();
        assert!(said("DELETE /files/dir/").contains("403 forbidden: it changes"));
        assert!(said("DELETE /files/dir").contains("403 forbidden while anything below"));
        assert!(!said("PUT /files/dir").contains("403"));
    }

    #[test]
    fn says_where_nothing_matches() {
        let found = explained("PUT /elsewhere").unwrap();
        assert!(
            found.route.is_none() && found.to_string().contains("no route"),
            "{found}"
        );
        assert!(
            explained("PUT /files//a")
                .unwrap()
                .to_string()
                .contains("400 malformed")
        );
        assert!(
            explained("MOVE /files/a")
                .unwrap()
                .to_string()
                .contains("Destination")
        );
    }

    #[test]
    fn what_is_no_request_is_an_error() {
        for request in ["", "PUT", "PUT /a b", "P@T /a", "PUT http://"] {
            assert!(explained(request).is_err(), "{request}");
        }
    }
}
