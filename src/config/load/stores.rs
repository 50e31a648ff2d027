//! What a route to an object store may say: its keys are bytes, and its requests may be signed.
//!
//! Works on routes that are right each by itself.

use super::route::Placed;
use crate::config::file::Source;
use crate::config::settings::{Kind, Mode, Server, TokenPlace};

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
