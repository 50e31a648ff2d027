//! Configurations: every fault has its line, and what has none gives each path one resource.
//!
//! The input is the file's text.

mod routes;

use crate::config::{Loaded, Mode, Note, Route, Settings, load};
use crate::fence::Format;
use http::Method;
use std::collections::BTreeSet;

/// Checks a configuration.
///
/// # Panics
/// Where a property does not hold.
pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return; // the program refuses it before
    };
    let loaded = load(text);
    match &loaded {
        Ok(Loaded { settings, warnings }) => {
            notes(text, warnings);
            whole(settings);
            for route in &settings.routes {
                alone(settings, route);
            }
            routes::check(settings);
        }
        Err(faults) => {
            assert!(!faults.is_empty(), "refused without a fault");
            notes(text, faults);
        }
    }
    with_a_line_before(text, &loaded);
}

/// Notes name lines that there are, in their order, and say something.
fn notes(text: &str, notes: &[Note]) {
    let lines = text.split('\n').count();
    assert!(notes.is_sorted_by_key(|note| note.line), "{notes:#?}");
    for note in notes {
        assert!((1..=lines).contains(&note.line), "{note} of {lines} lines");
        assert!(!note.what.is_empty(), "{note}");
    }
}

/// A comment at the top changes nothing but the lines.
fn with_a_line_before(text: &str, loaded: &Result<Loaded, Vec<Note>>) {
    if text.starts_with('\u{feff}') {
        return; // is not at the top then
    }
    let moved = load(&format!("# a line\n{text}"));
    let lines = |loaded: &Result<Loaded, Vec<Note>>| {
        let notes = match loaded {
            Ok(loaded) => &loaded.warnings,
            Err(faults) => faults,
        };
        // Of a key with more than 80 parts the TOML parser does not say where it is.
        let placed = notes
            .iter()
            .filter(|note| !note.what.ends_with("recursion limit"));
        let lines = placed.map(|note| (note.key.clone(), note.line));
        let mut lines: Vec<_> = lines.collect();
        lines.sort();
        lines
    };
    if let (Ok(loaded), Ok(moved)) = (loaded, &moved) {
        is_the_same(&loaded.settings, &moved.settings);
    }
    assert_eq!(loaded.is_ok(), moved.is_ok(), "{moved:#?}");
    let (before, after) = (lines(loaded), lines(&moved));
    assert_eq!(before.len(), after.len(), "{loaded:#?}\n{moved:#?}");
    for ((key, line), (moved_key, moved)) in before.iter().zip(&after) {
        // What is missing at the top has no line of its own: it is said of the first. What is no TOML
        // has no key, and always a line.
        let of_the_top = (*line, *moved) == (1, 1) && !key.is_empty();
        let fits = *moved == line + 1 || of_the_top;
        assert!(key == moved_key && fits, "{before:?}\n{after:?}");
    }
}

/// Nothing would change at a reload.
fn is_the_same(a: &Settings, b: &Settings) {
    assert!(a.fixed(b).is_empty(), "{:?}", a.fixed(b));
    assert_eq!(
        (a.routes.len(), a.upstreams.len()),
        (b.routes.len(), b.upstreams.len())
    );
    for (a, b) in a.routes.iter().zip(&b.routes) {
        assert!(a.fences_like(b), "{a:#?}\n{b:#?}");
    }
    for (a, b) in a.upstreams.iter().zip(&b.upstreams) {
        assert!(a.is_like(b), "{a:#?}\n{b:#?}");
    }
}

/// What no single route shows.
fn whole(settings: &Settings) {
    let server = &settings.server;
    assert!(server.workers > 0 && !server.listen.is_empty() && !settings.routes.is_empty());
    let fixed = server.listen.iter().chain([&settings.admin.listen]);
    let fixed: Vec<_> = fixed.filter(|address| address.port() != 0).collect();
    let distinct: BTreeSet<_> = fixed.iter().collect();
    assert_eq!(fixed.len(), distinct.len(), "an address twice: {fixed:?}");
    for (index, upstream) in settings.upstreams.iter().enumerate() {
        assert_eq!(upstream.index, index);
        assert!(upstream.authority.port_u16().is_some_and(|port| port > 0));
        assert!(
            upstream.settle_incomplete <= upstream.settle,
            "{upstream:?}"
        );
        assert!(!upstream.connect_timeout.is_zero() && upstream.max_connections > 0);
    }
    let names: BTreeSet<_> = settings.routes.iter().map(|route| &route.name).collect();
    assert_eq!(
        names.len(),
        settings.routes.len(),
        "a name twice: {names:?}"
    );
    for a in settings
        .routes
        .iter()
        .filter(|route| route.mode != Mode::Off)
    {
        for b in settings
            .routes
            .iter()
            .filter(|route| route.mode != Mode::Off)
        {
            let pairs = |route: &Route| route.format == Format::Pair;
            let one_order = a.namespace != b.namespace || pairs(a) == pairs(b);
            assert!(one_order, "{} and {}", a.name, b.name);
        }
    }
}

/// What each route must be by itself.
fn alone(settings: &Settings, route: &Route) {
    assert_eq!(settings.routes[route.index].name, route.name);
    let upstream = &settings.upstreams[route.upstream.index];
    assert_eq!(upstream.name, route.upstream.name);
    assert!(!route.name.is_empty() && (1..=255).contains(&route.namespace.len()));
    assert!(!route.drain_timeout.is_zero());
    if let Some(methods) = &route.methods {
        assert!(!methods.is_empty() && !methods.contains(&Method::CONNECT));
    }
    assert!(
        !route
            .reads
            .iter()
            .any(|method| route.writes.contains(method))
    );
    if let Some(host) = &route.host {
        assert_eq!(*host, host.to_ascii_lowercase());
    }
    if let Some(prefix) = &route.strip_prefix {
        assert!(!prefix.is_empty() && route.path.as_str().starts_with(prefix.as_str()));
    }
    let open = settings.server.listen.iter().any(|a| !a.ip().is_loopback());
    let writes = match &route.methods {
        None => true,
        Some(methods) => methods.iter().any(|method| route.is_write(method)),
    };
    if open && route.mode != Mode::Off && writes {
        let bounded = route.allow.is_some() || route.auth_request.is_some();
        assert!(
            bounded || route.anyone_may_raise,
            "{} is open to anyone",
            route.name
        );
    }
    let tls = settings.server.tls.as_ref();
    let named = tls.is_some_and(|tls| tls.client_ca.is_some());
    assert!(
        route.allow.is_none() || named,
        "{} allows nobody",
        route.name
    );
    assert!(!(route.websocket && route.upstream.http2), "{}", route.name);
}
