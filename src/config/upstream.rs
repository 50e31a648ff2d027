//! What the program knows of an upstream: values that cannot be wrong. Made only by `load`.
//!
//! Knows nothing of TOML, files or lines.

use super::settings::Identity;
use http::StatusCode;
use http::uri::{Authority, PathAndQuery, Scheme};
use rustls::pki_types::ServerName;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// `[upstreams.NAME]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Its name in the config.
    pub name: Arc<str>,
    /// Its place among the upstreams of the settings.
    pub index: usize,
    /// Host and port of `url`; the port is explicit.
    pub authority: Authority,
    /// `kind`
    pub kind: Kind,
    /// It is spoken to over TLS (`https`).
    pub tls: Option<UpstreamTls>,
    /// `protocol = "http2"`
    pub http2: bool,
    /// `max_streams`: requests that one HTTP/2 connection may have under way.
    pub max_streams: usize,
    /// `host_header = "upstream"`: rewrite Host and Destination to the upstream's own.
    pub rewrite_host: bool,
    /// `connect_timeout`
    pub connect_timeout: Duration,
    /// `idle_timeout`: how long an unused connection is kept.
    pub idle_timeout: Duration,
    /// `max_connections`, over all workers.
    pub max_connections: usize,
    /// `unsettled_status`: answers that say nothing of whether the write took effect.
    pub unsettled_status: Vec<StatusCode>,
    /// `response_timeout`: request sent whole -> final response head.
    pub response_timeout: Duration,
    /// `response_body_timeout`: the longest that the rest of a detached response is read for.
    pub response_body_timeout: Duration,
    /// `body_idle_timeout`: the longest pause within a body, either way.
    pub body_idle_timeout: Duration,
    /// `min_body_rate`: the least that a request's body must bring while the gateway waits for it, in bytes a
    /// second.
    pub min_body_rate: Option<NonZeroU64>,
    /// `sign`: the gateway signs for its clients.
    pub sign: bool,
    /// `client_keys`: who they are; `None`: whoever is let in.
    pub client_keys: Option<PathBuf>,
    /// `virtual_hosts`: a host below that of its routes names a bucket.
    pub virtual_hosts: bool,
    /// `empty_segments = "refuse"`: the store takes `a//b`, or `/a`, for another key's name.
    pub refuses_empty_segments: bool,
    /// `region`, in which requests to an object store are signed.
    pub region: String,
    /// `conditions` and `probe`: how it is known whether it honours conditional requests.
    pub conditions: Conditions,
    /// `settle`; `None`: no bound is declared, and its routes are best-effort.
    pub settle: Option<Duration>,
    /// `settle_incomplete`, or `settle` where it is not given.
    pub settle_incomplete: Option<Duration>,
}

/// `kind`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Its paths are read as a file server would, and what could be read in two ways is refused.
    Http,
    /// An object store that speaks S3: its keys are bytes.
    S3,
}

/// How it is known whether an upstream honours `If-Match` and `If-None-Match` of writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conditions {
    /// It is not.
    Unknown,
    /// `conditions = "trusted"`: the operator says that it does.
    Trusted,
    /// `probe`: the gateway tries, with objects whose paths begin so.
    Probe(String),
}

impl Upstream {
    /// The scheme of its URL.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        if self.tls.is_some() {
            Scheme::HTTPS
        } else {
            Scheme::HTTP
        }
    }
}

/// `tls` of an upstream whose URL is https.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamTls {
    /// `ca`: who may have signed its certificate; `None`: whom the system trusts.
    pub ca: Option<PathBuf>,
    /// `cert` and `key`: what it is shown.
    pub identity: Option<Identity>,
    /// `server_name`: whom its certificate must name; its host's name where nothing is said.
    pub server_name: ServerName<'static>,
}

/// A service that is asked before a fence is raised.
#[derive(Clone, Debug)]
pub struct AuthRequest {
    /// Where it is. One of the upstreams of the settings, named after its URL.
    pub upstream: Arc<Upstream>,
    /// The path and query that are asked for.
    pub target: PathAndQuery,
}
