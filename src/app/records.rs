//! Who is told of each request: opened once, at the start.

use super::Error;
use crate::config::{OpenTelemetry, Settings};
use crate::event::{Bounds, Events, Keep};
use crate::record::access::{AccessLog, Target};
use crate::record::collector::Collector;
use crate::record::spans::{Spans, Wanted};
use crate::record::{Metrics, Recorders};
use crate::tls::client;
use std::path::PathBuf;
use std::sync::Arc;

/// Opens what the settings ask for.
///
/// # Errors
/// Where a file cannot be opened or read, or the system refuses a thread.
pub(super) fn open(settings: &Settings, metrics: &Metrics) -> Result<Recorders, Error> {
    let log = settings.access_log.as_ref().map(|wanted| {
        let target = wanted.path.clone().map_or(Target::Stdout, Target::File);
        let dropped = metrics.access_log_dropped.clone();
        AccessLog::open(target, wanted.names, wanted.queue, dropped)
    });
    let spans = settings.opentelemetry.as_ref();
    let spans = spans.map(|wanted| traces(wanted, metrics)).transpose()?;
    Ok(Recorders {
        log: log.transpose().map_err(Error::AccessLog)?,
        spans: spans.map(Arc::new),
    })
}

/// Opens the events beside the store. Where they cannot be kept the gateway serves all the same, and says so.
///
/// # Errors
/// [`Error::System`]
pub(super) fn events(settings: &Settings, metrics: &Metrics) -> Result<Arc<Events>, Error> {
    let keep = Keep::open(&place(settings));
    let keep = keep.inspect_err(|error| tracing::error!("{error}; they are not kept in this run"));
    let bounds = Bounds {
        age: settings.events.max_age,
        size: settings.events.max_size,
    };
    let dropped = metrics.events_dropped.clone();
    Events::start(keep.ok(), bounds, dropped).map_err(|e| Error::System(e.to_string()))
}

/// Where the events are.
#[must_use]
pub fn place(settings: &Settings) -> PathBuf {
    settings.store.path.join("events")
}

fn traces(wanted: &OpenTelemetry, metrics: &Metrics) -> Result<Spans, Error> {
    let tls = wanted.tls.clone().map(|files| {
        let name = files.server_name.clone();
        client::open(files, false).map(|tls| (tls.config(), name))
    });
    let key = || "opentelemetry.ca".into();
    let tls = tls.transpose();
    let tls = tls.map_err(|why| Error::Tls { key: key(), why })?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let wants = Wanted {
        url: format!("{scheme}://{}{}/v1/traces", wanted.authority, wanted.path),
        service: wanted.service.clone(),
        share: wanted.share,
        names: wanted.names,
        queue: wanted.queue,
    };
    let collector = Collector {
        authority: wanted.authority.clone(),
        tls,
    };
    let opened = Spans::open(wants, collector, metrics.spans_dropped.clone());
    opened.map_err(Error::Traces)
}
