//! What a route to an object store may say: its keys are bytes, and its requests may be signed.
//!
//! Works on routes that are right each by itself.

use super::route::Placed;
use crate::config::file::Source;
use crate::config::settings::{Kind, Mode, Server, TokenPlace};
use crate::config::template::Part;
use std::time::Duration;

/// How long a write may wait between its signature and its way out: stores take one for 15 minutes.
const SIGNED: Duration = Duration::from_mins(14);

/// A store may take a Host that it does not know for the name of a bucket: then the first segment of the path is
/// none. So clients name one host, or it is rewritten to the store's own.
pub fn one_host(source: &Source<'_>, routes: &[Placed]) {
    for placed in routes {
        let (route, store) = (&placed.route, &placed.route.upstream);
        if store.kind != Kind::S3 || store.rewrite_host && !store.virtual_hosts {
            continue;
        }
        let mut all = routes
            .iter()
            .filter(|other| other.route.upstream.index == store.index);
        let fenced = all.clone().any(|other| other.route.mode != Mode::Off);
        let first = all.next().and_then(|first| first.route.host.as_ref());
        if (fenced || store.virtual_hosts) && (route.host.is_none() || route.host.as_ref() != first)
        {
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
    let by_host = |part: &Part| matches!(part, Part::Host);
    if fenced && route.upstream.virtual_hosts && route.resource.parts().iter().any(by_host) {
        fault(
            "resource",
            "has {host}, which names one object in two ways where the upstream has virtual_hosts: write {bucket}",
        );
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
    let upstream = |key: &str| format!("upstreams.{}.{key}", route.upstream.name);
    if route.upstream.virtual_hosts && route.upstream.rewrite_host && !route.upstream.sign {
        let what = "takes the bucket's name off the host, where virtual_hosts has it: remove one of them, or write sign = true";
        source.fault(placed.line, &upstream("host_header"), what);
    }
    if route.upstream.sign && route.upstream.client_keys.is_none() {
        let shown = server
            .tls
            .as_ref()
            .is_some_and(|tls| tls.client_ca.is_some());
        let beyond = server
            .listen
            .iter()
            .any(|address| !address.ip().is_loopback());
        let what = "lets all who reach the listener use the gateway's own credentials: name the clients with client_keys, or let only those in that server.tls.client_ca has signed";
        if beyond && !shown {
            source.fault(placed.line, &upstream("sign"), what);
        } else if !shown {
            source.warn(placed.line, &upstream("sign"), what);
        }
    }
    if route.upstream.sign && route.is_guarded() && route.drain_timeout > SIGNED {
        let key = format!("routes.{}.drain_timeout", route.name);
        let what = "is as long as a signature is good for (15 minutes): the store refuses a guarded write that waits for its turn so long; make it shorter";
        source.warn(placed.line, &key, what);
    }
    if route.upstream.rewrite_host && !route.upstream.sign {
        source.warn(
            placed.line,
            &format!("upstreams.{}.host_header", route.upstream.name),
            "\"upstream\" changes the Host that clients sign: only unsigned requests, and those signed for the store's own host, will do",
        );
    }
}
