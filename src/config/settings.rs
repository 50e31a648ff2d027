//! What the program runs on: values that cannot be wrong. Made only by `load`.
//!
//! Knows nothing of TOML, files or lines.

use super::pattern::PathPattern;
pub use super::strength::Strength;
use super::template::Template;
pub use super::upstream::{AuthRequest, Conditions, Kind, Upstream, UpstreamTls};
pub use crate::fence::{Accept, Missing};

use crate::fence::Format;
use http::uri::Authority;
use http::{HeaderName, Method};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The whole configuration.
#[derive(Debug)]
pub struct Settings {
    /// The data plane's own limits and addresses.
    pub server: Server,
    /// The admin listener.
    pub admin: Admin,
    /// The fence store.
    pub store: Store,
    /// The access log, where there is one.
    pub access_log: Option<AccessLog>,
    /// Where traces go, where they do.
    pub opentelemetry: Option<OpenTelemetry>,
    /// How much is kept of what somebody on call should hear of.
    pub events: Events,
    /// The upstreams, in the order of their names.
    pub upstreams: Vec<Arc<Upstream>>,
    /// The routes, in file order: the first that matches serves a request.
    pub routes: Vec<Arc<Route>>,
}

impl Settings {
    /// Whether a write below a fence may be forwarded on some route, so that a fence which was drained
    /// once need not stay so.
    #[must_use]
    pub fn is_lax(&self) -> bool {
        self.routes.iter().any(|route| {
            let observes = route.mode == Mode::Observe;
            let fences = route.mode == Mode::Enforce;
            observes
                || fences && (route.missing == Missing::Allow || route.upstream.settle.is_none())
        })
    }

    /// The largest settle that any upstream declares: what was in flight at a crash may take effect
    /// for that long.
    #[must_use]
    pub fn largest_settle(&self) -> Duration {
        self.upstreams
            .iter()
            .filter_map(|u| u.settle)
            .max()
            .unwrap_or_default()
    }
}

/// `[server]`
#[derive(Debug)]
pub struct Server {
    /// `listen`
    pub listen: Vec<SocketAddr>,
    /// `workers`: serving threads; at least 1 (0 in the file: one per core).
    pub workers: usize,
    /// `header_timeout`
    pub header_timeout: Duration,
    /// `max_header_bytes`
    pub max_header_bytes: usize,
    /// `max_headers`: how many header fields a request may have.
    pub max_headers: usize,
    /// `shutdown_timeout`: how long requests under way may take to end after SIGTERM.
    pub shutdown_timeout: Duration,
    /// `reload_on_change`: the file is read again when it changes.
    pub reload_on_change: bool,
    /// `problem_base`: what a problem type begins with.
    pub problem_base: String,
    /// `fold_case`: paths that differ only in capitals are one.
    pub fold_case: bool,
    /// `max_connections`: of clients, over all listeners and workers.
    pub max_connections: usize,
    /// `max_connections_per_client`
    pub max_connections_per_client: usize,
    /// `h2c`: clients without TLS may speak HTTP/2 from the first byte.
    pub h2c: bool,
    /// `max_streams`: requests that one HTTP/2 connection may have under way.
    pub max_streams: u32,
    /// `[server.tls]`: every listener is encrypted.
    pub tls: Option<ServerTls>,
}

/// A certificate and its key, in PEM files that are read again when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// `cert`: the certificate, and those between it and its root.
    pub cert: PathBuf,
    /// `key`
    pub key: PathBuf,
}

/// `[server.tls]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTls {
    /// What clients are shown.
    pub identity: Identity,
    /// `client_ca`: only clients whose certificate one of these has signed are served.
    pub client_ca: Option<PathBuf>,
}

/// `[admin]`
#[derive(Debug, PartialEq, Eq)]
pub struct Admin {
    /// `listen`
    pub listen: SocketAddr,
}

/// `[events]`
#[derive(Debug, PartialEq, Eq)]
pub struct Events {
    /// `max_age`: for how long.
    pub max_age: Duration,
    /// `max_size`: how many bytes, about.
    pub max_size: usize,
}

/// `[access_log]`
#[derive(Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// `path`; `None`: standard output.
    pub path: Option<PathBuf>,
    /// `resource = "name"`: resources are named, else their hash is.
    pub names: bool,
    /// `queue`: how many lines may wait to be written.
    pub queue: usize,
}

/// `[opentelemetry]`
#[derive(Debug, PartialEq)]
pub struct OpenTelemetry {
    /// Host and port of `endpoint`; the port is explicit.
    pub authority: Authority,
    /// What of `endpoint` comes after them, without a slash at the end.
    pub path: String,
    /// It is spoken to over TLS (`https`).
    pub tls: Option<UpstreamTls>,
    /// `service_name`
    pub service: String,
    /// `sample`: of the requests that come without a trace, the share that is recorded.
    pub share: f64,
    /// `resource = "name"`: resources and paths are named, else there is a hash.
    pub names: bool,
    /// `queue`: how many requests may wait to be sent.
    pub queue: usize,
}

/// `[store]`
#[derive(Debug, PartialEq, Eq)]
pub struct Store {
    /// `path`, made absolute against the config file's folder only if it is given on the command
    /// line; else relative to the working directory, as written.
    pub path: PathBuf,
    /// `cache`, in bytes.
    pub cache: usize,
}

/// `mode`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Refuse what the rules refuse.
    Enforce,
    /// Decide, record and count, but forward everything at once.
    Observe,
    /// No fencing at all.
    Off,
}

/// `settled_at`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettledAt {
    /// Answered when the final response head is there.
    ResponseHead,
    /// Answered when the response has ended.
    ResponseEnd,
}

/// `guard`: by which condition the resource itself refuses a late write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// None is added.
    None,
    /// An object is written once: `If-None-Match: *`.
    CreateOnly,
    /// An object is written as it was last seen: `If-Match`.
    Etag,
}

/// Where the token stands in a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenPlace {
    /// A header, and other names for it. At most one of them may be there.
    Header(Vec<HeaderName>),
    /// A query parameter, which is stripped before forwarding.
    Query(String),
    /// `/~fence/<token>/…`, stripped before matching and forwarding.
    PathPrefix,
}

/// `[[routes]]`
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a key of its own in the file"
)]
pub struct Route {
    /// `name`
    pub name: Arc<str>,
    /// Its place in [`Settings::routes`].
    pub index: usize,
    /// `host`, lower case, without a port. `None`: any.
    pub host: Option<String>,
    /// `path`; in a route that is off, its catch-all matches nothing too.
    pub path: PathPattern,
    /// `methods`. `None`: all.
    pub methods: Option<Vec<Method>>,
    /// `upstream`
    pub upstream: Arc<Upstream>,
    /// `resource`; of no use in a route that is off.
    pub resource: Template,
    /// `namespace`
    pub namespace: String,
    /// `mode`
    pub mode: Mode,
    /// `accept`
    pub accept: Accept,
    /// `missing`
    pub missing: Missing,
    /// `preempt`
    pub preempt: bool,
    /// `settled_at`
    pub settled_at: SettledAt,
    /// `drain_timeout`
    pub drain_timeout: Duration,
    /// `max_waiting`
    pub max_waiting: usize,
    /// `raise_on_read`
    pub raise_on_read: bool,
    /// `collections = "allow"`
    pub allow_collections: bool,
    /// `allow`: who may write, by a name in the client's certificate; one may end in `*`. `None`: anyone.
    pub allow: Option<Vec<String>>,
    /// `auth_request`
    pub auth_request: Option<AuthRequest>,
    /// `raise = "anyone"`
    pub anyone_may_raise: bool,
    /// `reads`: methods that this service uses as reads.
    pub reads: Vec<Method>,
    /// `writes`: safe methods that this service uses as writes.
    pub writes: Vec<Method>,
    /// `strip_prefix`: whole leading segments of `path`, literals all, without a slash at the end.
    pub strip_prefix: Option<String>,
    /// `token.header`, `token.query` or `token.path_prefix`.
    pub token: TokenPlace,
    /// `token.format`
    pub format: Format,
    /// `websocket`: a request may become a WebSocket, which is a write for as long as it lasts.
    pub websocket: bool,
    /// `disclose_fence`
    pub disclose_fence: bool,
    /// `guard`
    pub guard: Guard,
    /// `guard_required`: no write goes out without the guard, and no start where it cannot be had.
    pub guard_required: bool,
    /// `guard_retry`: bodies of at most so many bytes are kept, and sent again after a write past the gateway.
    pub guard_retry: Option<usize>,
    /// A route by which objects of this one are written without its guard, where there is one.
    pub guard_hole: Option<Arc<str>>,
    /// `max_body`, in bytes.
    pub max_body: Option<u64>,
    /// `max_advance`
    pub max_advance: Option<u64>,
    /// `first_max`
    pub first_max: Option<u64>,
    /// `max_new_resources`
    pub max_new_resources: Option<u64>,
}

/// Methods that change nothing (RFC 9110 and the registry): the reads of a plain service.
const SAFE: [&str; 8] = [
    "GET", "HEAD", "OPTIONS", "TRACE", "PROPFIND", "REPORT", "SEARCH", "QUERY",
];

/// Whether a method changes nothing where its service says nothing else.
#[must_use]
pub fn is_safe(method: &Method) -> bool {
    SAFE.contains(&method.as_str())
}

impl Route {
    /// Whether this service uses the method as a write. Methods that nobody knows are writes.
    #[must_use]
    pub fn is_write(&self, method: &Method) -> bool {
        self.writes.contains(method) || !(is_safe(method) || self.reads.contains(method))
    }

    /// Whether a client with these names in its certificate may write.
    #[must_use]
    pub fn allows(&self, names: &[String]) -> bool {
        let matches = |rule: &String, name: &String| match rule.strip_suffix('*') {
            Some(begin) => name.starts_with(begin),
            None => rule == name,
        };
        self.allow.as_ref().is_none_or(|rules| {
            let mut rules = rules.iter();
            rules.any(|rule| names.iter().any(|name| matches(rule, name)))
        })
    }
}
