//! The access log: one JSON object a line, one line a request, written by a thread of its own.
//!
//! No request waits for it: what the thread has not written when its queue is full is dropped and counted.

use super::entry::{Entry, Fate};
use parking_lot::Mutex;
use prometheus::IntCounter;
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// How long a line may wait in the buffer.
const FLUSH: Duration = Duration::from_millis(200);
/// How long the end waits for what is still to be written.
const GOODBYE: Duration = Duration::from_secs(2);
/// How long nothing is tried after a write failed.
const PAUSE: Duration = Duration::from_secs(1);

/// Where the lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Standard output.
    Stdout,
    /// A file, which is opened anew when that is asked for.
    File(PathBuf),
}

/// The log. Dropping it writes what waits, if that can be done soon.
pub struct AccessLog {
    queue: Option<SyncSender<Vec<u8>>>,
    ended: Mutex<Receiver<()>>,
    reopen: Arc<AtomicBool>,
    dropped: IntCounter,
    /// Whether resources are named, else their hash is.
    names: bool,
}

impl AccessLog {
    /// Opens the target and starts the thread. `queue`: how many lines may wait. `dropped` counts those that
    /// are not written.
    ///
    /// # Errors
    /// Where the file cannot be opened, or the system refuses the thread.
    pub fn open(
        target: Target,
        names: bool,
        queue: usize,
        dropped: IntCounter,
    ) -> io::Result<Arc<Self>> {
        let first = open(&target)?;
        let (sender, lines) = sync_channel(queue);
        let reopen = Arc::new(AtomicBool::new(false));
        let writer = Writer {
            target,
            to: Some(first),
            reopen: Arc::clone(&reopen),
            dropped: dropped.clone(),
        };
        let (tell, ended) = sync_channel(1);
        thread::Builder::new()
            .name("access-log".into())
            .spawn(move || {
                writer.run(&lines);
                let _ = tell.send(());
            })?;
        Ok(Arc::new(Self {
            queue: Some(sender),
            ended: Mutex::new(ended),
            reopen,
            dropped,
            names,
        }))
    }

    /// Opens the file anew before the next line: it may have been moved away.
    pub fn reopen(&self) {
        self.reopen.store(true, Ordering::Release);
    }

    pub(super) fn record(&self, entry: &Entry) {
        // It fails for nothing that an entry has.
        let Ok(mut line) = serde_json::to_vec(&Line::of(entry, self.names)) else {
            return;
        };
        line.push(b'\n');
        let sent = self.queue.as_ref().map(|queue| queue.try_send(line));
        if !matches!(sent, Some(Ok(()))) {
            self.dropped.inc();
        }
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.queue = None;
        let _ = self.ended.lock().recv_timeout(GOODBYE);
    }
}

type Sink = BufWriter<Box<dyn Write + Send>>;

fn open(target: &Target) -> io::Result<Sink> {
    Ok(BufWriter::with_capacity(
        64 << 10,
        match target {
            Target::Stdout => Box::new(io::stdout()),
            Target::File(path) => Box::new(append(path)?),
        },
    ))
}

fn append(path: &PathBuf) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).open(path)
}

/// The thread's side.
struct Writer {
    target: Target,
    to: Option<Sink>,
    reopen: Arc<AtomicBool>,
    dropped: IntCounter,
}

impl Writer {
    fn run(mut self, lines: &Receiver<Vec<u8>>) {
        loop {
            match lines.recv_timeout(FLUSH) {
                Ok(line) => self.line(&line),
                Err(RecvTimeoutError::Timeout) => self.flush(),
                Err(RecvTimeoutError::Disconnected) => return self.flush(),
            }
        }
    }

    fn line(&mut self, line: &[u8]) {
        let asked = self.reopen.swap(false, Ordering::AcqRel);
        if asked && matches!(self.target, Target::File(_)) {
            self.flush();
            self.to = None;
        }
        let to = match self.to.take() {
            Some(to) => Ok(to),
            None => open(&self.target),
        };
        let written = to.and_then(|mut to| to.write_all(line).map(|()| to));
        match written {
            Ok(to) => self.to = Some(to),
            Err(error) => self.failed(&error),
        }
    }

    fn flush(&mut self) {
        let flushed = self.to.as_mut().map(Write::flush);
        if let Some(Err(error)) = flushed {
            self.to = None;
            self.failed(&error);
        }
    }

    /// What comes during the pause fills the queue, and is dropped beyond that.
    fn failed(&self, error: &io::Error) {
        tracing::warn!(%error, "the access log cannot be written");
        self.dropped.inc();
        thread::sleep(PAUSE);
    }
}

/// A line, as it is written.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    client: &'a str,
    protocol: &'a str,
    method: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a str>,
    route: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resources: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<&'a str>,
    decision: &'static str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    observed: bool,
    outcome: Fate,
    status: u16,
    bytes: u64,
    complete: bool,
    total_ms: f64,
    wait_ms: f64,
    upstream_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    span_id: Option<String>,
}

impl<'a> Line<'a> {
    fn of(entry: &'a Entry, names: bool) -> Self {
        let begun = entry.trace.map(|trace| trace.trace);
        let trace = begun.or_else(|| entry.parent.map(|parent| parent.trace));
        Self {
            time: humantime::format_rfc3339_millis(entry.time).to_string(),
            client: &entry.client,
            protocol: &entry.protocol,
            method: &entry.method,
            path: names.then_some(&*entry.path),
            route: &entry.route,
            resources: entry.resources(names),
            token: entry.token.as_deref(),
            holder: entry.holder.as_deref(),
            decision: entry.decision.word(),
            observed: entry.observed,
            outcome: entry.outcome,
            status: entry.status,
            bytes: entry.bytes,
            complete: entry.complete,
            total_ms: millis(entry.total),
            wait_ms: millis(entry.wait),
            upstream_ms: millis(entry.away),
            trace_id: trace.map(|id| id.to_string()),
            span_id: entry.trace.map(|trace| trace.own.to_string()),
        }
    }
}

/// To the microsecond.
fn millis(time: Duration) -> f64 {
    let micros = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
    f64::from(micros) / 1e3
}
