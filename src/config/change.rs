//! From one configuration to the next: what cannot change while the program runs, and which routes are still
//! what they were.

use super::settings::{Mode, Route, Server, Settings, Upstream};
use std::sync::Arc;

impl Settings {
    /// The keys that differ from `next` and hold for as long as the program runs.
    #[must_use]
    pub fn fixed(&self, next: &Self) -> Vec<&'static str> {
        let (a, b) = (&self.server, &next.server);
        let Server {
            listen,
            workers,
            header_timeout,
            max_header_bytes,
            max_headers,
            max_connections,
            max_connections_per_client,
            h2c,
            max_streams,
            fold_case,
            tls,
            // These are looked at when they are needed.
            shutdown_timeout: _,
            problem_base: _,
            reload_on_change: _,
        } = a;
        let all = [
            ("server.listen", *listen == b.listen),
            ("server.workers", *workers == b.workers),
            ("server.header_timeout", *header_timeout == b.header_timeout),
            (
                "server.max_header_bytes",
                *max_header_bytes == b.max_header_bytes,
            ),
            ("server.max_headers", *max_headers == b.max_headers),
            (
                "server.max_connections",
                *max_connections == b.max_connections,
            ),
            (
                "server.max_connections_per_client",
                *max_connections_per_client == b.max_connections_per_client,
            ),
            ("server.h2c", *h2c == b.h2c),
            ("server.max_streams", *max_streams == b.max_streams),
            ("server.fold_case", *fold_case == b.fold_case),
            ("server.tls", *tls == b.tls),
            ("admin", self.admin == next.admin),
            ("store", self.store == next.store),
            ("access_log", self.access_log == next.access_log),
            ("opentelemetry", self.opentelemetry == next.opentelemetry),
            ("events", self.events == next.events),
        ];
        let changed = all.into_iter().filter(|(_, same)| !same);
        changed.map(|(key, _)| key).collect()
    }

    /// The routes that fence other keys under `next`: their resources begin without a fence there.
    #[must_use]
    pub fn fenced_anew(&self, next: &Self) -> Vec<String> {
        let fenced = |route: &&Arc<Route>| route.mode != Mode::Off;
        let anew = |new: &&Arc<Route>| {
            let old = self.routes.iter().find(|old| old.name == new.name);
            old.filter(fenced)
                .is_some_and(|old| old.namespace != new.namespace || old.resource != new.resource)
        };
        let routes = next.routes.iter().filter(fenced).filter(anew);
        routes.map(|route| route.name.to_string()).collect()
    }
}

impl Route {
    /// Whether the same requests meet the same fences under both, on their way to the same service.
    #[must_use]
    pub fn fences_like(&self, other: &Self) -> bool {
        let what = |route: &Self| {
            (
                route.host.clone(),
                route.path.as_str().to_owned(),
                (route.methods.clone(), route.strip_prefix.clone()),
                (route.reads.clone(), route.writes.clone()),
                route.namespace.clone(),
                route.resource.clone(),
                (route.mode, route.missing, route.websocket),
                (route.token.clone(), route.format),
                route.allow_collections,
                (
                    route.upstream.kind,
                    route.upstream.scheme(),
                    route.upstream.authority.clone(),
                    route.upstream.rewrite_host,
                ),
            )
        };
        self.name == other.name && what(self) == what(other)
    }
}

impl Upstream {
    /// Whether connections made for one serve the other: all but its place in the file is the same.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        let placed = Self {
            index: self.index,
            ..other.clone()
        };
        *self == placed
    }
}
