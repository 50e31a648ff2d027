//! From the file's text to settings: every key, its default and its bounds; all faults together.
//!
//! Knows the file format. Knows nothing of how the settings are used, and reads no file itself.

mod guards;
mod raisers;
mod records;
mod route;
mod rules;
mod stores;
mod tls;
mod token;
mod upstream;

use super::file::{Note, Source, Table};
use super::settings::{Admin, Server, Settings, Store};
use super::value::Value;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// A configuration that has no faults.
#[derive(Debug)]
pub struct Loaded {
    /// What the program runs on.
    pub settings: Settings,
    /// What its author should know.
    pub warnings: Vec<Note>,
}

/// Reads a configuration.
///
/// # Errors
/// Every fault in it, in the order of their lines. Never empty.
pub fn load(text: &str) -> Result<Loaded, Vec<Note>> {
    let source = Source::new(text);
    let settings = read(&source);
    let (mut faults, warnings) = source.into_notes();
    match settings {
        Some(settings) if faults.is_empty() => Ok(Loaded { settings, warnings }),
        _ => {
            if faults.is_empty() {
                let what = "cannot be read".into();
                faults.push(Note {
                    line: 1,
                    key: String::new(),
                    what,
                });
            }
            Err(faults)
        }
    }
}

fn read(source: &Source<'_>) -> Option<Settings> {
    let document = source.parse()?;
    let mut root = source.root(document.get_ref());
    let mut taken = Vec::new();
    let server = server(root.table("server"), &mut taken);
    let admin = admin(root.table("admin"), source, &mut taken);
    let store = store(root.table("store"));
    let access_log = root.read("access_log", |value| value.table().map(records::access_log));
    let opentelemetry = root.read("opentelemetry", |value| records::traces(value.table()?));
    let events = records::events(root.table("events"));
    let mut upstreams = upstream::read(root.table("upstreams"));
    let line = root.line_of("upstreams");
    if upstreams.is_empty() {
        source.fault(
            line,
            "upstreams",
            "none is given: write [upstreams.NAME] with a url",
        );
    }
    let routes = root.read("routes", |value| value.list(|item| Some(item.table())));
    let tables: Vec<Table<'_, '_>> = routes.into_iter().flatten().flatten().collect();
    if tables.is_empty() {
        source.fault(
            line,
            "routes",
            "none is given: write [[routes]] with name, path and upstream",
        );
    }
    root.unsupported(&["issuers", "alarms", "auth"]);
    root.finish();
    let expected = tables.len();
    let mut routes = route::read(source, tables, &mut upstreams);
    guards::check(source, &mut routes);
    rules::check(source, &server, &routes, &upstreams);
    let complete = routes.len() == expected;
    let upstreams: Option<Vec<_>> = upstreams
        .into_iter()
        .map(|placed| placed.upstream)
        .collect();
    let routes = routes.into_iter().map(|placed| placed.route).collect();
    let settings = Settings {
        server,
        admin,
        store,
        access_log,
        opentelemetry,
        events,
        upstreams: upstreams?,
        routes,
    };
    complete.then_some(settings)
}

/// Reads an address that nothing else listens on.
fn address(value: &Value<'_, '_>, taken: &mut Vec<SocketAddr>) -> Option<SocketAddr> {
    let text = value.text()?;
    let Ok(address) = text.parse::<SocketAddr>() else {
        value.fault(format!(
            "\"{text}\" is no address: write one such as \"127.0.0.1:8080\""
        ));
        return None;
    };
    value.check(take(address, taken))
}

fn take(address: SocketAddr, taken: &mut Vec<SocketAddr>) -> Result<SocketAddr, String> {
    let clash = |other: &&SocketAddr| {
        other.port() == address.port()
            && address.port() != 0
            && (other.ip() == address.ip()
                || other.ip().is_unspecified()
                || address.ip().is_unspecified())
    };
    if let Some(other) = taken.iter().find(clash) {
        return Err(format!(
            "{address} is listened on twice, also as {other}: give another port"
        ));
    }
    taken.push(address);
    Ok(address)
}

fn server(mut table: Table<'_, '_>, taken: &mut Vec<SocketAddr>) -> Server {
    let listen = table.get("listen");
    let listen = match listen {
        None => {
            let default = SocketAddr::from(([127, 0, 0, 1], 8080));
            taken.push(default);
            vec![default]
        }
        Some(value) => {
            let list = value
                .list(|item| Some(address(item, taken)))
                .unwrap_or_default();
            if list.is_empty() {
                value.fault("is empty: write at least one address, such as \"127.0.0.1:8080\"");
            }
            list.into_iter().flatten().collect()
        }
    };
    let workers = table.read_or("workers", 0, |v| v.count(0, 1024));
    let max_connections = table.read_or("max_connections", 20_000, |v| v.count(1, 1 << 20));
    let cores = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let server = Server {
        listen,
        workers: if workers == 0 { cores() } else { workers },
        header_timeout: table.read_or("header_timeout", Duration::from_secs(30), Value::timeout),
        // The HTTP library refuses to work with less than 8 KiB.
        max_header_bytes: table.read_or("max_header_bytes", 64 << 10, |v| v.size(8 << 10)),
        max_headers: table.read_or("max_headers", 100, |v| v.count(1, 1000)),
        shutdown_timeout: table.read_or(
            "shutdown_timeout",
            Duration::from_secs(30),
            Value::timeout,
        ),
        problem_base: table.read_or(
            "problem_base",
            "urn:fencegate:problem:".into(),
            problem_base,
        ),
        max_connections,
        max_connections_per_client: table.read_or(
            "max_connections_per_client",
            max_connections,
            |v| v.count(1, 1 << 20),
        ),
        reload_on_change: table.read_or("reload_on_change", true, Value::flag),
        fold_case: table.read_or("fold_case", false, Value::flag),
        h2c: table.read_or("h2c", false, Value::flag),
        max_streams: table.read_or("max_streams", 128, |v| {
            v.number(1, 65_536).and_then(|n| u32::try_from(n).ok())
        }),
        tls: table.read("tls", |value| tls::server(value.table()?)),
    };
    table.finish();
    server
}

fn problem_base(value: &Value<'_, '_>) -> Option<String> {
    let text = value.text()?;
    let graphic = !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic() && b != b'"');
    if !graphic || !text.contains(':') || !text.ends_with(['/', ':']) {
        value.fault(format!(
            "\"{text}\" is no prefix of a URI: write one that ends in /, such as \"https://example.com/problems/\""
        ));
        return None;
    }
    Some(text.into())
}

fn admin(mut table: Table<'_, '_>, source: &Source<'_>, taken: &mut Vec<SocketAddr>) -> Admin {
    let default = SocketAddr::from(([127, 0, 0, 1], 9901));
    let listen = match table.get("listen") {
        Some(value) => address(&value, taken).unwrap_or(default),
        None => take(default, taken).unwrap_or_else(|what| {
            source.fault(table.line(), &table.path_of("listen"), what);
            default
        }),
    };
    if !listen.ip().is_loopback() {
        source.warn(
            table.line_of("listen"),
            &table.path_of("listen"),
            "is beyond loopback: who reaches it can read metrics and health; the API serves loopback peers only",
        );
    }
    table.unsupported(&["tokens_file", "tls"]);
    table.finish();
    Admin { listen }
}

fn store(mut table: Table<'_, '_>) -> Store {
    table.read("engine", |value| match value.text()? {
        "rocksdb" => Some(()),
        "etcd" => {
            value.fault("\"etcd\" is not supported in this version: write \"rocksdb\"");
            None
        }
        other => {
            value.fault(format!("\"{other}\" is no store: write \"rocksdb\""));
            None
        }
    });
    let path = table.need("path", "\"data\"", |v| v.label(4096));
    let cache = table.read_or("cache", 256 << 20, |v| v.size(1 << 20));
    table.unsupported(&["endpoints"]);
    table.finish();
    Store {
        path: PathBuf::from(path.unwrap_or("data")),
        cache,
    }
}

#[cfg(test)]
mod tests;
