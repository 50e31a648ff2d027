//! Traces: the spans of each request, sent to an OpenTelemetry collector by a thread of its own.
//!
//! No request waits for it: what the thread has not delivered when its queue is full is dropped and counted.
//! The encoding is the OpenTelemetry library's; the queue is ours, so that what it drops can be counted.

use super::collector::Collector;
use super::entry::{Entry, short};
use super::trace::{Parent, Trace};
use crate::clock;
use opentelemetry::trace::{SpanContext, SpanKind, Status, TraceState};
use opentelemetry::{
    Array, InstrumentationScope, KeyValue, SpanId, StringValue, TraceFlags, TraceId, Value,
};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks};
use parking_lot::Mutex;
use prometheus::IntCounter;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, SystemTime};
use tokio::runtime::{Builder, Runtime};

/// How long spans are gathered, and how many at most, before they are sent.
const GATHER: Duration = Duration::from_secs(1);
const BATCH: usize = 512;
/// How long a collector may take for a batch, all attempts included.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the end waits for what is still to be sent.
const GOODBYE: Duration = Duration::from_secs(2);

/// What a `fencegate.` attribute of a span begins with, and the name of who made it.
const SCOPE: &str = "fencegate";

/// What is sent, and under which name.
pub struct Wanted {
    /// Where traces go, `/v1/traces` included.
    pub url: String,
    /// The name of this gateway.
    pub service: String,
    /// Of the requests that come without a trace, the share that is recorded: 0 to 1.
    pub share: f64,
    /// Whether resources and paths are named.
    pub names: bool,
    /// How many requests may wait to be sent.
    pub queue: usize,
}

/// The traces. Dropping it sends what waits, if that can be done soon.
pub struct Spans {
    queue: Option<SyncSender<Vec<SpanData>>>,
    ended: Mutex<Receiver<()>>,
    dropped: IntCounter,
    scope: InstrumentationScope,
    share: f64,
    names: bool,
}

impl Spans {
    /// Starts the thread. `dropped` counts the spans that are not delivered.
    ///
    /// # Errors
    /// Where the exporter cannot be made of this, or the system refuses the thread.
    pub fn open(wanted: Wanted, collector: Collector, dropped: IntCounter) -> io::Result<Self> {
        let mut exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(collector)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(&wanted.url)
            .with_timeout(PATIENCE)
            .build()
            .map_err(io::Error::other)?;
        let version = env!("CARGO_PKG_VERSION");
        let resource = Resource::builder()
            .with_service_name(wanted.service)
            .with_attribute(KeyValue::new("service.version", version));
        exporter.set_resource(&resource.build());
        let (sender, spans) = sync_channel(wanted.queue);
        let exporter = Exporter {
            to: wanted.url.clone(),
            exporter,
            runtime: Builder::new_current_thread().enable_all().build()?,
            dropped: dropped.clone(),
            failing: false,
        };
        let (tell, ended) = sync_channel(1);
        thread::Builder::new()
            .name("traces".into())
            .spawn(move || {
                exporter.run(&spans);
                let _ = tell.send(());
            })?;
        Ok(Self {
            queue: Some(sender),
            ended: Mutex::new(ended),
            dropped,
            scope: InstrumentationScope::builder(SCOPE)
                .with_version(version)
                .build(),
            share: wanted.share,
            names: wanted.names,
        })
    }

    /// The spans of a request that came with this trace, or with none.
    #[must_use]
    pub fn trace(&self, parent: Option<Parent>) -> Trace {
        Trace::begin(parent, |id| chosen(id, self.share))
    }

    pub(super) fn record(&self, entry: &Entry) {
        let Some(trace) = entry.trace.filter(|trace| trace.sampled) else {
            return;
        };
        let mut spans = vec![self.own(entry, &trace)];
        if let Some(upstream) = &entry.upstream {
            spans.push(self.onward(entry, upstream, &trace));
        }
        let count = spans.len() as u64;
        let sent = self.queue.as_ref().map(|queue| queue.try_send(spans));
        if !matches!(sent, Some(Ok(()))) {
            self.dropped.inc_by(count);
        }
    }

    /// The request's own: what the client sees.
    fn own(&self, entry: &Entry, trace: &Trace) -> SpanData {
        let mut facts = vec![
            KeyValue::new("http.request.method", entry.method.clone()),
            KeyValue::new("client.address", entry.client.clone()),
            KeyValue::new("network.protocol.version", version(&entry.protocol)),
            KeyValue::new("fencegate.decision", entry.decision.word()),
            KeyValue::new("fencegate.outcome", entry.outcome.word()),
            KeyValue::new("fencegate.observed", entry.observed),
            KeyValue::new("fencegate.wait_ms", entry.wait.as_secs_f64() * 1e3),
        ];
        let mut tell = |name: &'static str, value: Value| facts.push(KeyValue::new(name, value));
        if entry.status != 0 {
            tell("http.response.status_code", i64::from(entry.status).into());
        }
        if !entry.route.is_empty() {
            tell("fencegate.route", entry.route.to_string().into());
        }
        if let Some(token) = &entry.token {
            tell("fencegate.token", token.clone().into());
        }
        if let Some(holder) = &entry.holder {
            tell("fencegate.holder", holder.clone().into());
        }
        if self.names {
            tell("url.path", entry.path.clone().into());
        }
        let resources = entry.resources(self.names);
        if !resources.is_empty() {
            let list = resources.into_iter().map(StringValue::from).collect();
            tell("fencegate.resources", Value::Array(Array::String(list)));
        }
        SpanData {
            parent_span_id: trace.parent.unwrap_or(SpanId::INVALID),
            parent_span_is_remote: trace.parent.is_some(),
            span_kind: SpanKind::Server,
            name: format!("{} {}", known(&entry.method), entry.route)
                .trim_end()
                .to_owned()
                .into(),
            status: if entry.status >= 500 || entry.status == 0 {
                Status::error(entry.decision.word())
            } else {
                Status::Unset
            },
            ..self.span(trace, trace.own, entry.time, entry.total, facts)
        }
    }

    /// Its way to the upstream and back, which begins when its gates have let it through.
    fn onward(&self, entry: &Entry, upstream: &str, trace: &Trace) -> SpanData {
        let facts = vec![
            KeyValue::new("http.request.method", entry.method.clone()),
            KeyValue::new("fencegate.upstream", short(upstream)),
            KeyValue::new("fencegate.outcome", entry.outcome.word()),
        ];
        let away = if entry.away.is_zero() {
            entry.total.saturating_sub(entry.wait) // nothing came back
        } else {
            entry.away
        };
        SpanData {
            parent_span_id: trace.own,
            span_kind: SpanKind::Client,
            name: format!("{} {upstream}", known(&entry.method)).into(),
            ..self.span(trace, trace.onward, entry.time + entry.wait, away, facts)
        }
    }

    fn span(
        &self,
        trace: &Trace,
        own: SpanId,
        start: SystemTime,
        took: Duration,
        attributes: Vec<KeyValue>,
    ) -> SpanData {
        let state = TraceState::NONE;
        SpanData {
            span_context: SpanContext::new(trace.trace, own, TraceFlags::SAMPLED, false, state),
            parent_span_id: SpanId::INVALID,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: "".into(),
            start_time: start,
            end_time: start + took,
            attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: self.scope.clone(),
        }
    }
}

impl Drop for Spans {
    fn drop(&mut self) {
        self.queue = None;
        let _ = self.ended.lock().recv_timeout(GOODBYE);
    }
}

/// The same share of all traces wherever the same share is asked for: by the trace's id alone.
fn chosen(id: TraceId, share: f64) -> bool {
    let [.., a, b, c, d] = id.to_bytes();
    f64::from(u32::from_be_bytes([a, b, c, d])) < share * (f64::from(u32::MAX) + 1.0)
}

/// A method in a span's name: there are few, whatever clients send.
fn known(method: &str) -> &str {
    const KNOWN: [&str; 14] = [
        "GET",
        "HEAD",
        "POST",
        "PUT",
        "DELETE",
        "OPTIONS",
        "TRACE",
        "PATCH",
        "PROPFIND",
        "PROPPATCH",
        "MKCOL",
        "MOVE",
        "COPY",
        "LOCK",
    ];
    if KNOWN.contains(&method) {
        method
    } else {
        "HTTP"
    }
}

fn version(protocol: &str) -> String {
    let version = protocol.strip_prefix("HTTP/").unwrap_or(protocol);
    version.strip_suffix(".0").unwrap_or(version).to_owned()
}

/// The thread's side.
struct Exporter {
    to: String,
    exporter: SpanExporter,
    runtime: Runtime,
    dropped: IntCounter,
    failing: bool,
}

impl Exporter {
    fn run(mut self, spans: &Receiver<Vec<SpanData>>) {
        while let Ok(mut batch) = spans.recv() {
            let end = clock::now().after(GATHER);
            while batch.len() < BATCH {
                match spans.recv_timeout(end.left()) {
                    Ok(more) => batch.extend(more),
                    Err(_) => break,
                }
            }
            self.deliver(batch);
        }
    }

    fn deliver(&mut self, batch: Vec<SpanData>) {
        let count = batch.len() as u64;
        let delivered = self.runtime.block_on(self.exporter.export(batch));
        if delivered.is_err() {
            self.dropped.inc_by(count);
        }
        match delivered {
            Err(error) if !self.failing => {
                tracing::warn!(to = self.to, %error, "traces cannot be delivered: until they can be, they are dropped");
                self.failing = true;
            }
            Ok(()) if self.failing => {
                tracing::info!("traces are delivered again");
                self.failing = false;
            }
            Ok(()) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_traces_is_chosen_by_their_ids() {
        let id = |last: u32| TraceId::from(u128::from(last) | (1 << 64));
        assert!(chosen(id(u32::MAX), 1.0) && chosen(id(0), 1.0));
        assert!(!chosen(id(0), 0.0));
        assert!(chosen(id(u32::MAX / 4), 0.5) && !chosen(id(u32::MAX / 4 * 3), 0.5));
    }

    #[test]
    fn names_of_spans_are_few() {
        assert_eq!((known("PUT"), known("X-ANYTHING")), ("PUT", "HTTP"));
        assert_eq!((&*version("HTTP/1.1"), &*version("HTTP/2.0")), ("1.1", "2"));
    }
}
