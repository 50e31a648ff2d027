//! `[access_log]`, `[opentelemetry]` and `[events]`: who is told of requests.

use super::upstream;
use crate::config::file::Table;
use crate::config::settings::{AccessLog, Events, OpenTelemetry, UpstreamTls};
use crate::config::value::Value;
use http::Uri;
use http::uri::Scheme;
use std::path::PathBuf;
use std::time::Duration;

/// Whether resources are named.
const NAMES: [(&str, bool); 2] = [("hash", false), ("name", true)];

pub fn access_log(mut table: Table<'_, '_>) -> AccessLog {
    let path = table.need(
        "path",
        "\"access.log\", or \"-\" for standard output",
        |v| v.label(4096),
    );
    let names = table.read_or("resource", false, |v| v.choice(&NAMES));
    let queue = table.read_or("queue", 8192, |v| v.count(1, 1 << 20));
    table.finish();
    AccessLog {
        path: path.filter(|path| *path != "-").map(PathBuf::from),
        names,
        queue,
    }
}

pub fn events(mut table: Table<'_, '_>) -> Events {
    let events = Events {
        max_age: table.read_or("max_age", Duration::from_hours(30 * 24), Value::timeout),
        max_size: table.read_or("max_size", 64 << 20, |v| v.size(1 << 20)),
    };
    table.finish();
    events
}

/// `None` where there are faults, which are kept.
pub fn traces(mut table: Table<'_, '_>) -> Option<OpenTelemetry> {
    let endpoint = table.need("endpoint", "\"http://127.0.0.1:4318\"", endpoint);
    let encrypted = endpoint
        .as_ref()
        .is_some_and(|(scheme, ..)| *scheme == Scheme::HTTPS);
    let ca = table.read("ca", |value| {
        if endpoint.is_some() && !encrypted {
            value.fault("is for an https:// endpoint: write one, or remove it");
        }
        super::tls::path(value)
    });
    let host = endpoint
        .as_ref()
        .map(|(_, authority, _)| authority.host().to_owned());
    let shown = super::tls::upstream(None, &host.unwrap_or_default());
    if let (true, None, Some(value)) = (encrypted, &shown, table.get("endpoint")) {
        value.fault("has a host that no certificate can name: write another");
    }
    let tls = shown
        .filter(|_| encrypted)
        .map(|shown| UpstreamTls { ca, ..shown });
    let service = table.read_or("service_name", "fencegate".into(), |v| {
        v.label(255).map(str::to_owned)
    });
    let share = table.read_or("sample", 1.0, Value::share);
    let names = table.read_or("resource", false, |v| v.choice(&NAMES));
    let queue = table.read_or("queue", 8192, |v| v.count(1, 1 << 20));
    table.finish();
    let (_, authority, path) = endpoint?;
    Some(OpenTelemetry {
        authority,
        path,
        tls,
        service,
        share,
        names,
        queue,
    })
}

/// Scheme, host and port of a URL, and its path without a slash at the end.
fn endpoint(value: &Value<'_, '_>) -> Option<(Scheme, http::uri::Authority, String)> {
    let text = value.text()?;
    let path = text.parse::<Uri>().ok().map(|uri| uri.path().to_owned());
    let path = path.unwrap_or_default();
    let base = text.strip_suffix(&path).unwrap_or(text);
    let (scheme, authority) = upstream::base_url(value, base)?;
    let path = path.trim_end_matches('/');
    if path.ends_with("/v1/traces") {
        value.fault("ends in /v1/traces, which is appended: leave it out");
        return None;
    }
    Some((scheme, authority, path.to_owned()))
}
