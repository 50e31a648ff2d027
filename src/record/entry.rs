//! A request, as far as it is known: what the access log and the traces say of it when it is over.

use super::Decision;
use super::access::AccessLog;
use super::spans::Spans;
use super::trace::{Parent, Trace};
use crate::clock::{self, Time};
use crate::fence::ResourceKey;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// How many letters of a text from a request are recorded.
const LONGEST: usize = 1024;

/// Who is told of each request.
#[derive(Clone, Default)]
pub struct Recorders {
    /// The access log, where there is one.
    pub log: Option<Arc<AccessLog>>,
    /// The traces, where they go anywhere.
    pub spans: Option<Arc<Spans>>,
}

impl Recorders {
    /// Whether anybody is.
    #[must_use]
    pub const fn any(&self) -> bool {
        self.log.is_some() || self.spans.is_some()
    }
}

/// What became of a request at its upstream.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// Nothing of it was sent.
    NotForwarded,
    /// It was answered, with a status that says something.
    Answered,
    /// No byte of it reached the upstream.
    Unsent,
    /// Anything else.
    Unknown,
}

impl Fate {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::NotForwarded => "not-forwarded",
            Self::Answered => "answered",
            Self::Unsent => "unsent",
            Self::Unknown => "unknown",
        }
    }
}

/// A request, as far as it is known. Recorded when it is dropped.
pub struct Entry {
    to: Recorders,
    began: Time,
    /// When that was.
    pub time: SystemTime,
    /// The client's address.
    pub client: String,
    /// `HTTP/1.1` and so on.
    pub protocol: String,
    /// The request's method.
    pub method: String,
    /// Its path, without the query.
    pub path: String,
    /// The route's name; empty where there is none.
    pub route: Arc<str>,
    /// What it was judged by.
    pub resources: Vec<ResourceKey>,
    /// The token, as the route spells it.
    pub token: Option<String>,
    /// Who the client is: by its certificate, else as it says.
    pub holder: Option<String>,
    /// What the gateway decided.
    pub decision: Decision,
    /// That was not enforced.
    pub observed: bool,
    /// The upstream's name, once the request was on its way there.
    pub upstream: Option<Arc<str>>,
    /// What became of it at the upstream.
    pub outcome: Fate,
    /// The response's status; 0 where the client left before it.
    pub status: u16,
    /// Bytes of the response's body that were handed on.
    pub bytes: u64,
    /// Whether the response was handed on to its end.
    pub complete: bool,
    /// From its head to its response's end.
    pub total: Duration,
    /// From its head until its gates let it through.
    pub wait: Duration,
    /// From there to the head of the response.
    pub away: Duration,
    /// The trace that it came with.
    pub parent: Option<Parent>,
    /// Its spans, where traces go anywhere.
    pub trace: Option<Trace>,
}

impl Entry {
    /// A request that begins now, and the trace that it came with.
    #[must_use]
    pub fn begin(to: &Recorders, client: &str, path: &str, parent: Option<Parent>) -> Self {
        Self {
            to: to.clone(),
            began: clock::now(),
            time: clock::time_of_day(),
            client: client.to_owned(),
            protocol: String::new(),
            method: String::new(),
            path: short(path),
            route: Arc::from(""),
            resources: Vec::new(),
            token: None,
            holder: None,
            decision: Decision::Unsent,
            observed: false,
            upstream: None,
            outcome: Fate::NotForwarded,
            status: 0,
            bytes: 0,
            complete: false,
            total: Duration::ZERO,
            wait: Duration::ZERO,
            away: Duration::ZERO,
            parent,
            trace: to.spans.as_ref().map(|spans| spans.trace(parent)),
        }
    }

    /// Its gates have let it through, and it goes to this upstream.
    pub fn judged(&mut self, upstream: &Arc<str>) {
        self.wait = clock::now().since(self.began);
        self.upstream = Some(Arc::clone(upstream));
        self.outcome = Fate::Unknown; // unless it is heard of
    }

    /// The head of the response has come, or will not.
    pub fn answered(&mut self, outcome: Fate) {
        self.outcome = outcome;
        self.away = clock::now().since(self.began).saturating_sub(self.wait);
    }

    /// Its resources: by name, else by hash.
    #[must_use]
    pub fn resources(&self, names: bool) -> Vec<String> {
        let spelt = |resource: &ResourceKey| {
            if !names {
                return hash(resource);
            }
            let key = String::from_utf8_lossy(resource.key());
            short(&format!("{}:{key}", resource.namespace()))
        };
        self.resources.iter().map(spelt).collect()
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.total = clock::now().since(self.began);
        if let Some(log) = &self.to.log {
            log.record(self);
        }
        if let Some(spans) = &self.to.spans {
            spans.record(self);
        }
    }
}

/// A text from a request, cut where it is long: records are bounded, so that their queues are.
#[must_use]
pub fn short(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}

/// The first 16 hexadecimal digits of the SHA-256 of the namespace, a zero byte and the key.
#[must_use]
pub fn hash(resource: &ResourceKey) -> String {
    let digest = Sha256::new()
        .chain_update(resource.namespace())
        .chain_update([0])
        .chain_update(resource.key())
        .finalize();
    digest.iter().take(8).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_tells_the_namespace_from_the_key() {
        let hash = |namespace, key| hash(&ResourceKey::new(namespace, key).unwrap());
        assert_eq!(hash("a", b"b").len(), 16);
        assert_ne!(hash("ab", b"c"), hash("a", b"bc"));
    }
}
