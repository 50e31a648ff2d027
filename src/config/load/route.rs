//! `[[routes]]`: one route at a time, every key with its default.
//!
//! What two routes or a route and a listener do to each other is in `rules`.

use super::upstream::Placed as PlacedUpstream;
use super::{guards, token};
use crate::config::file::{Source, Table};
use crate::config::pattern::PathPattern;
use crate::config::settings::{Accept, Kind, Missing, Mode, Route, SettledAt, Upstream};
use crate::config::template::Template;
use crate::config::value::Value;
use crate::fence::resource::MAX_NAMESPACE;
use http::Method;
use std::sync::Arc;
use std::time::Duration;

/// A route and where it stands in the file.
pub struct Placed {
    pub route: Arc<Route>,
    pub line: usize,
}

const MISSING: [(&str, Missing); 3] = [
    ("reject", Missing::Reject),
    ("allow", Missing::Allow),
    ("allow-until-fenced", Missing::AllowUntilFenced),
];

/// What this version knows of and does not do.
const UNSUPPORTED: [&str; 2] = ["issuer", "replay"];

pub fn read(
    source: &Source<'_>,
    tables: Vec<Table<'_, '_>>,
    upstreams: &mut Vec<PlacedUpstream>,
) -> Vec<Placed> {
    let mut all: Vec<Placed> = Vec::new();
    let mut names: Vec<(String, usize)> = Vec::new();
    for (index, mut table) in tables.into_iter().enumerate() {
        let line = table.line();
        let name = table
            .need("name", "\"files\"", |v| v.label(100))
            .map(str::to_owned);
        if let Some(name) = &name {
            let at = table.line_of("name");
            table.rename(&format!("routes.{name}"));
            match names.iter().find(|(other, _)| other == name) {
                Some((_, first)) => source.fault(
                    at,
                    &table.path_of("name"),
                    format!("\"{name}\" is also the route of line {first}: give each its own name"),
                ),
                None => names.push((name.clone(), line)),
            }
        }
        if let Some(route) = one(source, table, index, name.as_deref(), upstreams) {
            all.push(Placed {
                route: Arc::new(route),
                line,
            });
        }
    }
    all
}

fn one(
    source: &Source<'_>,
    mut table: Table<'_, '_>,
    index: usize,
    name: Option<&str>,
    upstreams: &mut Vec<PlacedUpstream>,
) -> Option<Route> {
    let modes = [
        ("enforce", Mode::Enforce),
        ("observe", Mode::Observe),
        ("off", Mode::Off),
    ];
    let mode = table.read_or("mode", Mode::Enforce, |v| v.choice(&modes));
    let path = table.need("path", "\"/files/{*key}\"", |v| {
        let pattern = PathPattern::parse(v.text()?);
        v.check(if mode == Mode::Off {
            pattern.and_then(PathPattern::with_empty_rest)
        } else {
            pattern
        })
    });
    let upstream = upstream(&mut table, upstreams);
    let path = match &upstream {
        // Requests to a bucket, which has no key, are those of its route.
        Some(upstream) if upstream.kind == Kind::S3 => path.map(PathPattern::with_buckets),
        _ => path,
    };
    let resource = resource(&mut table, mode, path.as_ref());
    let accepts = [
        ("same-or-newer", Accept::SameOrNewer),
        ("newer", Accept::Newer),
    ];
    let accept = table.read_or("accept", Accept::SameOrNewer, |v| v.choice(&accepts));
    let ends = [
        ("response-head", SettledAt::ResponseHead),
        ("response-end", SettledAt::ResponseEnd),
    ];
    let (place, format) = table
        .read("token", token::read)
        .unwrap_or_else(token::default);
    let (reads, writes) = used_otherwise(source, &mut table);
    let (guard, guard_required, guard_retry) = guards::read(&mut table);
    let number = |v: &Value<'_, '_>| v.number(1, u64::MAX);
    let drain_timeout = table.read("drain_timeout", Value::timeout);
    let strip = table.get("strip_prefix");
    let route = Route {
        name: name.unwrap_or_default().into(),
        index,
        host: table.read("host", host),
        methods: table.read("methods", |v| {
            let list = methods(v)?;
            if list.is_empty() {
                v.fault("is empty: name at least one method, or remove the key");
            }
            Some(list)
        }),
        namespace: table.read_or("namespace", "default".into(), |v| {
            v.label(MAX_NAMESPACE).map(Into::into)
        }),
        mode,
        accept,
        missing: table.read_or("missing", Missing::Reject, |v| v.choice(&MISSING)),
        // Writes of one holder would cut each other where each needs a newer token.
        preempt: table.read_or("preempt", accept == Accept::SameOrNewer, Value::flag),
        settled_at: table.read_or("settled_at", SettledAt::ResponseHead, |v| v.choice(&ends)),
        drain_timeout: Duration::ZERO,
        max_waiting: table.read_or("max_waiting", 1024, |v| v.count(0, 1_000_000)),
        raise_on_read: table.read_or("raise_on_read", false, Value::flag),
        allow_collections: table.read_or("collections", false, |v| {
            v.choice(&[("allow", true), ("refuse", false)])
        }),
        allow: table.read("allow", allow),
        auth_request: table.read("auth_request", |v| super::upstream::asked(v, upstreams)),
        anyone_may_raise: table.read_or("raise", false, |v| v.choice(&[("anyone", true)])),
        reads,
        writes,
        strip_prefix: strip
            .as_ref()
            .zip(path.as_ref())
            .and_then(|(v, path)| strip_prefix(v, path)),
        token: place,
        format,
        websocket: table.read_or("websocket", false, Value::flag),
        disclose_fence: table.read_or("disclose_fence", false, Value::flag),
        guard,
        guard_required,
        guard_retry,
        guard_hole: None,
        max_body: table.read("max_body", |v| Some(v.size(1)? as u64)),
        max_advance: table.read("max_advance", number),
        first_max: table.read("first_max", number),
        max_new_resources: table.read("max_new_resources", number),
        // What the route cannot be without comes last, so that all other faults are found first.
        path: match path {
            Some(path) => path,
            None => return end(table),
        },
        upstream: match upstream {
            Some(upstream) => upstream,
            None => return end(table),
        },
        resource: match resource {
            Some(resource) => resource,
            None => return end(table),
        },
    };
    let route = with_drain_timeout(source, &table, route, drain_timeout);
    end::<()>(table);
    name.map(|_| route)
}

/// The methods that are reads here, and those that are writes.
fn used_otherwise(source: &Source<'_>, table: &mut Table<'_, '_>) -> (Vec<Method>, Vec<Method>) {
    let (reads, writes) = (
        table.read_or("reads", Vec::new(), methods),
        table.read_or("writes", Vec::new(), methods),
    );
    if let Some(both) = reads.iter().find(|method| writes.contains(method)) {
        let what = format!("{both} is also in writes: name it once");
        source.fault(table.line_of("reads"), &table.path_of("reads"), what);
    }
    (reads, writes)
}

fn end<T>(mut table: Table<'_, '_>) -> Option<T> {
    table.unsupported(&UNSUPPORTED);
    table.finish();
    None
}

fn with_drain_timeout(
    source: &Source<'_>,
    table: &Table<'_, '_>,
    route: Route,
    given: Option<Duration>,
) -> Route {
    let settle = route.upstream.settle.unwrap_or_default();
    let enough = route.upstream.response_timeout + settle + Duration::from_secs(5);
    if let Some(given) = given.filter(|given| *given < enough && route.mode != Mode::Off) {
        source.warn(
            table.line_of("drain_timeout"),
            &table.path_of("drain_timeout"),
            format!(
                "{} is below response_timeout + settle + 5s = {}: a raise may be answered 503 while an older write is still within its time",
                humantime::format_duration(given),
                humantime::format_duration(enough)
            ),
        );
    }
    Route {
        drain_timeout: given.unwrap_or(enough),
        ..route
    }
}

fn upstream(table: &mut Table<'_, '_>, upstreams: &[PlacedUpstream]) -> Option<Arc<Upstream>> {
    table.need("upstream", "the NAME of an [upstreams.NAME]", |v| {
        let name = v.text()?;
        let found = upstreams.iter().find(|placed| &*placed.name == name);
        if found.is_none() {
            let names: Vec<&str> = upstreams.iter().map(|placed| &*placed.name).collect();
            let there = if names.is_empty() {
                format!("there is none: write a table [upstreams.{name}]")
            } else {
                format!("there are {}", names.join(", "))
            };
            v.fault(format!("\"{name}\" is no upstream: {there}"));
        }
        found.and_then(|placed| placed.upstream.clone())
    })
}

fn resource(table: &mut Table<'_, '_>, mode: Mode, path: Option<&PathPattern>) -> Option<Template> {
    let given = table.get("resource");
    let (Some(value), Some(path)) = (&given, path) else {
        if given.is_none() && mode != Mode::Off {
            table.missing(
                "resource",
                "what one lock protects, such as \"files/{key}\"",
            );
        }
        // A route that is off makes no keys.
        return path
            .filter(|_| mode == Mode::Off)
            .and_then(|path| Template::parse("off", path).ok());
    };
    value.check(Template::parse(value.text()?, path))
}

fn host(value: &Value<'_, '_>) -> Option<String> {
    let text = value.text()?;
    let name = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    let address = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    let is_host = match address {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !text.is_empty() && text.bytes().all(name) && !text.ends_with('.'),
    };
    if !is_host {
        value.fault(format!(
            "\"{text}\" is no host name: write one such as \"files.example\", without a port"
        ));
        return None;
    }
    Some(text.to_ascii_lowercase())
}

fn strip_prefix(value: &Value<'_, '_>, path: &PathPattern) -> Option<String> {
    let text = value.text()?;
    match path.segments_of_prefix(text) {
        Some(count) if count > 0 => Some(text.trim_end_matches('/').into()),
        _ => {
            value.fault(format!(
                "\"{text}\" is no leading part of the path {}: write whole segments without captures",
                path.as_str()
            ));
            None
        }
    }
}

/// Names in certificates, `*` for how they go on.
fn allow(value: &Value<'_, '_>) -> Option<Vec<String>> {
    let rules = value.list(|item| {
        let text = item.text()?;
        let sound = !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic());
        if !sound || text.trim_end_matches('*').contains('*') || text.ends_with("**") {
            item.fault(format!(
                "\"{text}\" is no name in a certificate: write one such as \"spiffe://prod/writer\", or with one * at its end"
            ));
            return None;
        }
        Some(text.to_owned())
    })?;
    if rules.is_empty() {
        value.fault("is empty: nobody could write; name somebody, or set mode = \"off\"");
    }
    Some(rules)
}

fn methods(value: &Value<'_, '_>) -> Option<Vec<Method>> {
    value.list(|item| {
        let text = item.text()?;
        let upper = text.bytes().all(|b| b.is_ascii_uppercase() || b == b'-');
        match Method::from_bytes(text.as_bytes()) {
            Ok(Method::CONNECT) => {
                item.fault("CONNECT is never served: remove it");
                None
            }
            Ok(method) if upper => Some(method),
            _ => {
                item.fault(format!(
                    "\"{text}\" is no method: write one such as \"PUT\", in capitals"
                ));
                None
            }
        }
    })
}
