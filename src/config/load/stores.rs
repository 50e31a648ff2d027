//! What a route to an object store may say: its keys are bytes, and its requests may be signed.
//!
//! Works on routes that are right each by itself.

use super::route::Placed;
use crate::config::file::Source;
use crate::config::settings::{Kind, Mode, Server, TokenPlace};

/// A store may take a Host that it does not know for the name of a bucket: then the first segment of the path is
/// none. So clients name one host, or it is rewritten to the store's own.
pub fn one_host(source: &Source<'_>, routes: &[Placed]) {
    for placed in routes {
        let (route, store) = (&placed.route, &placed.route.upstream);
        if store.kind != Kind::S3 || store.rewrite_host {
            continue;
        }
        let mut all = routes
            .iter()
            .filter(|other| other.route.upstream.index == store.index);
        let fenced = all.clone().any(|other| other.route.mode != Mode::Off);
        let first = all.next().and_then(|first| first.route.host.as_ref());
        if fenced && (route.host.is_none() || route.host.as_ref() != first) {
            source.fault(
                placed.line,
                &format!("routes.{}.host", route.name),
                format!(
                    "must be the one host by which clients call the store, the same in each route to upstream {}: under another, the store may take the host for the name of a bucket; write host = \"s3.example\", or host_header = \"upstream\" there",
                    store.name
                ),
            );
        }
    }
}

pub fn check(source: &Source<'_>, server: &Server, placed: &Placed) {
    let route = &placed.route;
    if route.upstream.kind != Kind::S3 {
        return;
    }
    let fault = |key: &str, what: &str| {
        source.fault(placed.line, &format!("routes.{}.{key}", route.name), what);
    };
    let fenced = route.mode != Mode::Off;
    if fenced && !route.path.names_objects() {
        let what = "must be a bucket and a key, such as \"/{bucket}/{*key}\" or \"/backups/wal/{*key}\": the upstream is an object store";
        fault("path", what);
    }
    let signed = "is for services of kind \"http\": requests to an object store may be signed, path and all; remove it";
    if route.strip_prefix.is_some() {
        fault("strip_prefix", signed);
    }
    if fenced && !matches!(route.token, TokenPlace::Header(_)) {
        fault(
            "token",
            "must be in a header: requests to an object store may be signed, path and query and all",
        );
    }
    let calls =
        "is for services of kind \"http\": what a call to an object store does is known; remove it";
    for (key, given) in [
        ("reads", !route.reads.is_empty()),
        ("writes", !route.writes.is_empty()),
        ("websocket", route.websocket),
        ("collections", route.allow_collections),
    ] {
        if given {
            fault(key, calls);
        }
    }
    if server.fold_case {
        source.fault(
            placed.line,
            "server.fold_case",
            format!("is for services to which /a and /A are one file, and route {} leads to an object store: give one of them a gateway of its own", route.name),
        );
    }
    if route.upstream.rewrite_host {
        source.warn(
            placed.line,
            &format!("upstreams.{}.host_header", route.upstream.name),
            "\"upstream\" changes the Host that clients sign: only unsigned requests, and those signed for the store's own host, will do",
        );
    }
}
