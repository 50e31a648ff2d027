//! What the config's parts do to each other: one path, one resource; who may raise; what is unsafe.
//!
//! Works on routes that are right each by itself.

use super::raisers;
use super::route::Placed;
use super::stores;
use super::upstream::Placed as PlacedUpstream;
use crate::config::file::Source;
use crate::config::settings::{Missing, Mode, Route, Server};
use crate::config::template::Part;
use crate::fence::Format;
use http::Method;
use std::net::SocketAddr;

pub fn check(
    source: &Source<'_>,
    server: &Server,
    routes: &[Placed],
    upstreams: &[PlacedUpstream],
) {
    for (j, later) in routes.iter().enumerate() {
        poison(source, &server.listen, later);
        strangers(source, server, later);
        tunnels(source, later);
        capitals(source, server, later);
        advice(source, later);
        stores::check(source, server, later);
        for earlier in &routes[..j] {
            one_path_one_resource(source, earlier, later);
            one_order(source, earlier, later);
            raisers::check(source, earlier, later);
            shadow(source, earlier, later);
        }
    }
    one_server_one_upstream(source, routes, upstreams);
    stops(source, server, upstreams);
    stores::one_host(source, routes);
    for placed in upstreams {
        let Some(upstream) = &placed.upstream else {
            continue;
        };
        let fenced =
            |r: &Placed| r.route.upstream.index == upstream.index && r.route.mode != Mode::Off;
        if upstream.settle.is_none() && routes.iter().any(fenced) {
            source.warn(
                placed.line,
                &format!("upstreams.{}.settle", placed.name),
                "is not given: a write of unknown outcome is not waited for, and its routes are best-effort",
            );
        }
    }
}

/// A stop inside a settle is not clean: the next start waits for the whole of it.
fn stops(source: &Source<'_>, server: &Server, upstreams: &[PlacedUpstream]) {
    let settles = upstreams.iter().filter_map(|placed| {
        let settle = placed.upstream.as_ref()?.settle?;
        (settle > server.shutdown_timeout).then_some((placed, settle))
    });
    for (placed, settle) in settles {
        let what = format!(
            "is longer than server.shutdown_timeout ({}): a stop after a write of unknown outcome is not clean, and the next start lets no new holder write for {}; make shutdown_timeout longer",
            humantime::format_duration(server.shutdown_timeout),
            humantime::format_duration(settle)
        );
        source.warn(
            placed.line,
            &format!("upstreams.{}.settle", placed.name),
            what,
        );
    }
}

/// Fences are compared by the upstream: a server that is two of them is fenced against neither.
fn one_server_one_upstream(source: &Source<'_>, routes: &[Placed], upstreams: &[PlacedUpstream]) {
    let used = |index| move |placed: &&Placed| placed.route.upstream.index == index;
    for (j, later) in upstreams.iter().enumerate() {
        let Some(b) = &later.upstream else { continue };
        let same = upstreams[..j].iter().find(|earlier| {
            let a = earlier
                .upstream
                .as_ref()
                .filter(|a| a.authority == b.authority);
            a.is_some_and(|a| {
                let both = || {
                    routes
                        .iter()
                        .filter(used(a.index))
                        .chain(routes.iter().filter(used(b.index)))
                };
                let each = routes.iter().any(|r| used(a.index)(&r))
                    && routes.iter().any(|r| used(b.index)(&r));
                each && both().any(|placed| placed.route.mode != Mode::Off)
            })
        });
        if let Some(earlier) = same {
            source.warn(
                later.line,
                &format!("upstreams.{}.url", later.name),
                format!("is also that of upstream {}: whether one object has two resources is not seen across upstreams; use one of them for both", earlier.name),
            );
        }
    }
}

fn key_of(placed: &Placed) -> String {
    format!("routes.{}", placed.route.name)
}

fn poison(source: &Source<'_>, listen: &[SocketAddr], placed: &Placed) {
    let route = &placed.route;
    let Some(open) = listen.iter().find(|address| !address.ip().is_loopback()) else {
        return;
    };
    let bounded = route.anyone_may_raise || route.allow.is_some() || route.auth_request.is_some();
    if route.mode != Mode::Off && !bounded && acts(route, route.methods.as_deref()) {
        source.fault(
            placed.line,
            &key_of(placed),
            format!(
                "{open} is beyond loopback, and nothing says who may raise this route's fences, so one request with a huge token could lock its holders out: name them with allow, or a service that decides with auth_request; write raise = \"anyone\" if all who reach it are trusted, or listen on loopback"
            ),
        );
    }
}

/// A pattern with capitals would match nothing where they are folded.
fn capitals(source: &Source<'_>, server: &Server, placed: &Placed) {
    let mut inside = false;
    let literal = placed.route.path.as_str().chars().filter(|&letter| {
        inside = letter == '{' || inside && letter != '}';
        !inside
    });
    if server.fold_case
        && literal
            .into_iter()
            .any(|l| l.is_ascii_uppercase() || !l.is_ascii())
    {
        let what = "must be in small ASCII letters, captures aside, since server.fold_case = true";
        source.fault(placed.line, &format!("{}.path", key_of(placed)), what);
    }
}

/// A WebSocket begins as HTTP/1.1.
fn tunnels(source: &Source<'_>, placed: &Placed) {
    if placed.route.websocket && placed.route.upstream.http2 {
        let what = "is for an upstream with protocol = \"http1\": name one, or remove it";
        source.fault(placed.line, &format!("{}.websocket", key_of(placed)), what);
    }
}

/// Who is allowed by name must show it.
fn strangers(source: &Source<'_>, server: &Server, placed: &Placed) {
    let named = server
        .tls
        .as_ref()
        .is_some_and(|tls| tls.client_ca.is_some());
    let signs = placed.route.upstream.client_keys.is_some();
    if placed.route.allow.is_some() && !named && !signs {
        let what = "needs server.tls with client_ca, or an upstream with client_keys: without them no client shows who it is";
        source.fault(placed.line, &format!("{}.allow", key_of(placed)), what);
    }
}

fn advice(source: &Source<'_>, placed: &Placed) {
    let route = &placed.route;
    if route.mode == Mode::Off {
        return;
    }
    let (line, key) = (placed.line, key_of(placed));
    if route.missing == Missing::Allow {
        source.warn(line, &format!("{key}.missing"), "\"allow\" lets writes without a token through at any time: this route promises nothing");
    }
    let parts = route.resource.parts();
    for part in parts {
        if matches!(part, Part::Header(_) | Part::Query(_) | Part::Host) {
            source.warn(
                line,
                &format!("{key}.resource"),
                format!("{part} is chosen by the client: it is safe only if the upstream itself selects the object by it"),
            );
        }
    }
    let mut free: Option<&Part> = None;
    for part in parts {
        match part {
            Part::Literal(text) if text.contains('/') && !free.is_some_and(may_hold_slash) => {
                free = None;
            }
            Part::Literal(_) => {}
            placeholder => {
                if let Some(before) = free {
                    source.warn(
                        line,
                        &format!("{key}.resource"),
                        format!("{before} and {placeholder} can run into each other, so that two objects share one fence: put a \"/\" between, and those that may hold one last"),
                    );
                }
                free = Some(placeholder);
            }
        }
    }
}

fn may_hold_slash(part: &Part) -> bool {
    matches!(part, Part::Header(_) | Part::Query(_) | Part::Path)
}

/// Says where an earlier route takes all that a later one is written for.
fn shadow(source: &Source<'_>, earlier: &Placed, later: &Placed) {
    let (a, b) = (&earlier.route, &later.route);
    let takes_methods = match (&a.methods, &b.methods) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(taken), Some(wanted)) => wanted.iter().all(|method| taken.contains(method)),
    };
    if takes_methods && takes_host(a, b) && a.path.covers(&b.path) {
        source.warn(
            later.line,
            &key_of(later),
            format!("is never reached: route {} stands before it and takes all its requests; put this one first", a.name),
        );
    }
}

/// Whether a route takes requests by whatever host another one takes them.
pub(super) fn takes_host(a: &Route, b: &Route) -> bool {
    let named = a.host.is_none() || a.host == b.host;
    // The hosts below that one name buckets.
    named && (!b.upstream.virtual_hosts || a.upstream.virtual_hosts && a.host == b.host)
}

/// Tokens of one namespace are compared with each other: they must be of one kind.
fn one_order(source: &Source<'_>, earlier: &Placed, later: &Placed) {
    let (a, b) = (&earlier.route, &later.route);
    let fenced = a.mode != Mode::Off && b.mode != Mode::Off && a.namespace == b.namespace;
    if fenced && (a.format == Format::Pair) != (b.format == Format::Pair) {
        source.fault(
            later.line,
            &format!("{}.token", key_of(later)),
            format!("pairs and single numbers do not compare, and route {} has the other in namespace \"{}\": give one of them its own namespace", a.name, a.namespace),
        );
    }
}

fn one_path_one_resource(source: &Source<'_>, earlier: &Placed, later: &Placed) {
    let (a, b) = (&*earlier.route, &*later.route);
    if a.mode == Mode::Off && b.mode == Mode::Off {
        return;
    }
    let hosts_meet = a.host == b.host || a.host.is_none() || b.host.is_none();
    if hosts_meet && acts(a, a.methods.as_deref()) && acts_on_leftover(a, b) {
        for path in a.path.meetings(0, &b.path, 0) {
            if let Some(difference) = tokens_differ(a, b).or_else(|| difference(a, &path, b, &path))
            {
                return source.fault(
                    later.line,
                    &key_of(later),
                    format!("{path} is served by route {} for some methods and by this one for others, and their {difference}: one path must have one resource for all its methods", a.name),
                );
            }
        }
    }
    if a.upstream.index != b.upstream.index
        || !acts(a, a.methods.as_deref())
        || !acts(b, b.methods.as_deref())
    {
        return;
    }
    let (skip_a, skip_b) = (skipped(a), skipped(b));
    for path in a.path.meetings(skip_a, &b.path, skip_b) {
        let (of_a, of_b) = (before(a, &path), before(b, &path));
        let Some(difference) = difference(a, &of_a, b, &of_b) else {
            continue;
        };
        if of_a == of_b && (a.host == b.host || a.host.is_none()) {
            continue; // Judged above: what reaches the later route is what the earlier leaves over.
        }
        let (name, upstream) = (&a.name, &b.upstream);
        if hosts_meet && of_a != of_b {
            let what = format!(
                "{of_b} reaches the upstream as {path}, as does {of_a} of route {name}, and their {difference}: one object must have one resource"
            );
            return source.fault(later.line, &key_of(later), what);
        }
        if upstream.rewrite_host {
            let what = format!(
                "{path} reaches the upstream from this route and, under another host, from route {name}; host_header = \"upstream\" hides the host, and their {difference}: one object must have one resource"
            );
            return source.fault(later.line, &key_of(later), what);
        }
        let what = format!(
            "upstream {} gets {path} from this route and from route {name} under another host, and their {difference}: this is safe only if the upstream itself selects the object by the host",
            upstream.name
        );
        return source.warn(later.line, &key_of(later), what);
    }
}

/// How many leading segments the route takes off.
pub(super) fn skipped(route: &Route) -> usize {
    route
        .strip_prefix
        .as_ref()
        .and_then(|p| route.path.segments_of_prefix(p))
        .unwrap_or_default()
}

/// The client's path for what the upstream gets.
fn before(route: &Route, path: &str) -> String {
    let prefix: String = route
        .path
        .as_str()
        .split('/')
        .skip(1)
        .take(skipped(route))
        .fold(String::new(), |mut all, segment| {
            all.push('/');
            all.push_str(segment);
            all
        });
    if path == "/" && !prefix.is_empty() {
        prefix
    } else {
        prefix + path
    }
}

/// Whether the route fences, or lets through as a write, any of these methods (`None`: of all).
fn acts(route: &Route, methods: Option<&[Method]>) -> bool {
    methods.is_none_or(|list| {
        list.iter()
            .any(|m| route.is_write(m) || (route.raise_on_read && route.mode != Mode::Off))
    })
}

/// Whether the methods that `a` leaves over make `b` act.
fn acts_on_leftover(a: &Route, b: &Route) -> bool {
    let Some(taken) = &a.methods else {
        return false;
    };
    match &b.methods {
        None => true,
        Some(list) => {
            let left: Vec<Method> = list
                .iter()
                .filter(|m| !taken.contains(m))
                .cloned()
                .collect();
            acts(b, Some(&left))
        }
    }
}

fn tokens_differ(a: &Route, b: &Route) -> Option<String> {
    let differ = a.mode == b.mode && (a.token != b.token || a.format != b.format);
    differ.then(|| "tokens differ".into())
}

/// In what two routes differ for paths that lead to one object.
fn difference(a: &Route, path_a: &str, b: &Route, path_b: &str) -> Option<String> {
    if a.mode != b.mode {
        return Some("modes differ".into());
    }
    if a.namespace != b.namespace {
        return Some("namespaces differ".into());
    }
    let (key_a, key_b) = (symbolic(a, path_a), symbolic(b, path_b));
    (key_a != key_b).then(|| {
        format!(
            "resources differ ({} and {})",
            a.resource.as_str(),
            b.resource.as_str()
        )
    })
}

/// The key of a path, with placeholders that are not of the path standing for themselves.
fn symbolic(route: &Route, path: &str) -> Option<Vec<u8>> {
    let captures = route.path.matches(path)?;
    let mut key = Vec::new();
    let rendered = route.resource.render(&mut key, |part, out| {
        let text = match part {
            Part::Capture(name) => captures.get(name).ok_or(())?.to_owned(),
            Part::Prefix(name, most) => {
                let segments = captures.get(name).ok_or(())?.split('/');
                segments.take(*most).collect::<Vec<_>>().join("/")
            }
            Part::Path => path.to_owned(),
            other => other.to_string(),
        };
        out.extend_from_slice(text.as_bytes());
        Ok::<(), ()>(())
    });
    rendered.ok().map(|()| key)
}
