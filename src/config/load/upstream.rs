//! `[upstreams.NAME]`: where requests go, and what is known of how long a write may take there.
//!
//! Knows nothing of routes.

use crate::config::file::Table;
use crate::config::settings::{AuthRequest, Conditions, Kind, Upstream};
use crate::config::value::Value;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{StatusCode, Uri};
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Where nothing else is said, as Amazon's tools have it.
const DEFAULT_REGION: &str = "us-east-1";

/// An upstream and where it stands in the file.
pub struct Placed {
    pub name: Arc<str>,
    /// `None` where it has faults.
    pub upstream: Option<Arc<Upstream>>,
    pub line: usize,
}

pub fn read(table: Table<'_, '_>) -> Vec<Placed> {
    let mut all = Vec::new();
    for (name, value) in table.into_entries() {
        let Some(table) = value.table() else { continue };
        let line = table.line();
        let name: Arc<str> = name.into();
        let upstream = one(table, name.clone(), all.len()).map(Arc::new);
        all.push(Placed {
            name,
            upstream,
            line,
        });
    }
    all
}

fn one(mut table: Table<'_, '_>, name: Arc<str>, index: usize) -> Option<Upstream> {
    let seconds = Duration::from_secs;
    let kinds = [("http", Kind::Http), ("s3", Kind::S3)];
    let kind = table.read_or("kind", Kind::Http, |v| v.choice(&kinds));
    let url = table.need("url", "\"http://127.0.0.1:9000\"", url);
    let (scheme, authority) = url.unzip();
    let encrypted = scheme == Some(Scheme::HTTPS);
    let tls = table.get("tls");
    if let Some(tls) = tls.as_ref().filter(|_| !encrypted && scheme.is_some()) {
        tls.fault("is for an https:// url: write one, or remove it");
    }
    let host = authority.as_ref().map_or("", Authority::host);
    let tls = encrypted.then(|| super::tls::upstream(tls.as_ref(), host));
    if let (Some(None), Some(url)) = (&tls, table.get("url")) {
        let what = "has a host that no certificate can name: write tls = { server_name = \"…\" }";
        url.fault(what);
    }
    let hosts = [("keep", false), ("upstream", true)];
    let settle = table.read("settle", Value::span);
    let sign = table.read_or("sign", false, |v| of_stores(v, kind));
    let client_keys = table.read("client_keys", |value| {
        if !sign {
            value.fault("is for sign = true: without it the store itself checks who a client is");
        }
        value.label(4096).map(PathBuf::from)
    });
    let upstream = Upstream {
        name,
        index,
        authority: authority
            .clone()
            .unwrap_or_else(|| Authority::from_static("localhost:80")),
        kind,
        tls: tls.flatten(),
        http2: table.read_or("protocol", false, |v| {
            v.choice(&[("http1", false), ("http2", true)])
        }),
        max_streams: table.read_or("max_streams", 100, |v| v.count(1, 65_536)),
        // Who signs can name the store as it is.
        rewrite_host: table.read_or("host_header", sign, |v| v.choice(&hosts)),
        connect_timeout: table.read_or("connect_timeout", seconds(2), Value::timeout),
        idle_timeout: table.read_or("idle_timeout", seconds(4), Value::timeout),
        max_connections: table.read_or("max_connections", 512, |v| v.count(1, 1_000_000)),
        unsettled_status: table.read_or("unsettled_status", unsettled(), |v| v.list(status)),
        response_timeout: table.read_or("response_timeout", seconds(30), Value::timeout),
        response_body_timeout: table.read_or("response_body_timeout", seconds(30), Value::timeout),
        body_idle_timeout: table.read_or("body_idle_timeout", seconds(30), Value::timeout),
        min_body_rate: NonZeroU64::new(
            table.read_or("min_body_rate", 0, |v| v.size(0).map(|size| size as u64)),
        ),
        sign,
        client_keys,
        virtual_hosts: table.read_or("virtual_hosts", false, |v| of_stores(v, kind)),
        refuses_empty_segments: table.read_or("empty_segments", false, |v| {
            let given = v.choice(&[("keep", false), ("refuse", true)]);
            for_stores(v, kind, given)
        }),
        region: table.read_or("region", DEFAULT_REGION.into(), |v| {
            v.label(64).map(Into::into)
        }),
        conditions: conditions(&mut table, kind),
        settle,
        settle_incomplete: table
            .read("settle_incomplete", |v| incomplete(v, settle))
            .or(settle),
    };
    table.finish();
    authority.map(|_| upstream)
}

/// A service that is asked, by its URL: one of the upstreams from here on, with the usual limits.
pub fn asked(value: &Value<'_, '_>, all: &mut Vec<Placed>) -> Option<AuthRequest> {
    let text = value.text()?;
    let target = text
        .parse::<Uri>()
        .ok()
        .and_then(|uri| uri.path_and_query().cloned());
    let target = target.unwrap_or_else(|| PathAndQuery::from_static("/"));
    let base = text.strip_suffix(target.as_str()).unwrap_or(text);
    let (scheme, authority) = base_url(value, base)?;
    let name: Arc<str> = format!("{scheme}://{authority}").into();
    let known = all.iter().find(|placed| placed.name == name);
    if let Some(upstream) = known.and_then(|placed| placed.upstream.clone()) {
        return Some(AuthRequest { upstream, target });
    }
    let tls = (scheme == Scheme::HTTPS).then(|| super::tls::upstream(None, authority.host()));
    if matches!(tls, Some(None)) {
        value.fault("has a host that no certificate can name: write another");
        return None;
    }
    let upstream = Arc::new(Upstream {
        name: Arc::clone(&name),
        index: all.len(),
        authority,
        kind: Kind::Http,
        tls: tls.flatten(),
        http2: false,
        max_streams: 1,
        rewrite_host: true,
        connect_timeout: Duration::from_secs(2),
        idle_timeout: Duration::from_secs(4),
        max_connections: 512,
        unsettled_status: Vec::new(),
        response_timeout: Duration::from_secs(5),
        response_body_timeout: Duration::from_secs(5),
        body_idle_timeout: Duration::from_secs(5),
        min_body_rate: None,
        sign: false,
        client_keys: None,
        virtual_hosts: false,
        refuses_empty_segments: false,
        region: DEFAULT_REGION.into(),
        conditions: Conditions::Unknown,
        settle: None,
        settle_incomplete: None,
    });
    all.push(Placed {
        name,
        upstream: Some(Arc::clone(&upstream)),
        line: value.line,
    });
    Some(AuthRequest { upstream, target })
}

/// A flag that only object stores know.
fn of_stores(value: &Value<'_, '_>, kind: Kind) -> Option<bool> {
    for_stores(value, kind, value.flag())
}

fn for_stores(value: &Value<'_, '_>, kind: Kind, given: Option<bool>) -> Option<bool> {
    if given == Some(true) && kind != Kind::S3 {
        value.fault("is for an object store: write kind = \"s3\", or remove it");
    }
    given
}

/// `conditions` and `probe`: of the two, one.
fn conditions(table: &mut Table<'_, '_>, kind: Kind) -> Conditions {
    let trusted = table.read("conditions", |v| v.choice(&[("trusted", true)]));
    let probed = table.read("probe", |value| {
        let path = probe(value, kind)?;
        if trusted.is_some() {
            value.fault("and conditions = \"trusted\" exclude each other: remove one");
        }
        Some(Conditions::Probe(path))
    });
    let trusted = trusted.map(|_| Conditions::Trusted);
    trusted.or(probed).unwrap_or(Conditions::Unknown)
}

/// A path whose spelling is beyond doubt.
fn probe(value: &Value<'_, '_>, kind: Kind) -> Option<String> {
    let text = value.text()?;
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._/".contains(&b);
    let segments = || text.split('/').skip(1);
    let sound = text.starts_with('/')
        && text.bytes().all(plain)
        && segments().all(|segment| !segment.is_empty() && !segment.starts_with('.'))
        && (kind == Kind::Http || segments().count() > 1);
    if !sound {
        value.fault(match kind {
            Kind::S3 => "must be a bucket and a prefix of keys that the gateway may write and delete, such as \"/backups/fencegate-probe\"",
            Kind::Http => "must be the beginning of paths that the gateway may write and delete, such as \"/files/fencegate-probe\"",
        });
    }
    sound.then(|| text.into())
}

/// A request that was not sent whole cannot take effect for longer than one that was.
fn incomplete(value: &Value<'_, '_>, settle: Option<Duration>) -> Option<Duration> {
    let incomplete = value.span()?;
    if settle.is_none_or(|settle| incomplete > settle) {
        value.fault("is longer than `settle`: declare a `settle` that covers it");
        return None;
    }
    Some(incomplete)
}

/// Scheme, host and port of a URL that has nothing else.
fn url(value: &Value<'_, '_>) -> Option<(Scheme, Authority)> {
    base_url(value, value.text()?)
}

pub fn base_url(value: &Value<'_, '_>, text: &str) -> Option<(Scheme, Authority)> {
    let parsed = text
        .parse::<Uri>()
        .map_err(|e| format!("\"{text}\" is no URL: {e}"));
    let uri = value.check(parsed)?;
    let bare = |authority: &&Authority| {
        let port_is_right = match authority.port() {
            Some(_) => authority.port_u16().is_some_and(|port| port > 0),
            None => !authority.as_str().ends_with(':'),
        };
        !authority.as_str().contains('@') && !authority.host().is_empty() && port_is_right
    };
    let authority = uri.authority().filter(bare);
    let scheme = uri
        .scheme()
        .filter(|scheme| [Scheme::HTTP, Scheme::HTTPS].contains(scheme));
    let authority = authority
        .filter(|_| matches!(uri.path(), "" | "/") && uri.query().is_none() && !text.contains('#'));
    let Some((scheme, authority)) = scheme.zip(authority) else {
        value.fault(format!(
            "\"{text}\" must be http or https, a host and a port, and nothing else: write one such as \"http://127.0.0.1:9000\""
        ));
        return None;
    };
    if authority.port().is_some() {
        return Some((scheme.clone(), authority.clone()));
    }
    let port = if *scheme == Scheme::HTTPS { 443 } else { 80 };
    let full = format!("{authority}:{port}").parse::<Authority>();
    let full = value.check(full.map_err(|e| e.to_string()))?;
    Some((scheme.clone(), full))
}

fn status(value: &Value<'_, '_>) -> Option<StatusCode> {
    let number = value.number(200, 599)?;
    u16::try_from(number)
        .ok()
        .and_then(|number| StatusCode::from_u16(number).ok())
}

fn unsettled() -> Vec<StatusCode> {
    vec![
        StatusCode::ACCEPTED,
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::BAD_GATEWAY,
        StatusCode::SERVICE_UNAVAILABLE,
        StatusCode::GATEWAY_TIMEOUT,
    ]
}
