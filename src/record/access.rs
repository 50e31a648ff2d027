//! The access log: one JSON object a line, one line a request, written by a thread of its own.
//!
//! No request waits for it: what the thread has not written when its queue is full is dropped and counted.

use super::Decision;
use crate::clock::{self, Time};
use parking_lot::Mutex;
use prometheus::IntCounter;
use serde::{Serialize, Serializer};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
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

/// How many letters of a text from a request are logged.
const LONGEST: usize = 1024;

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

    fn write(&self, line: Vec<u8>) {
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

/// A request, as far as it is known. Written when it is dropped.
#[derive(Serialize)]
pub struct Entry {
    #[serde(skip)]
    log: Arc<AccessLog>,
    #[serde(skip)]
    began: Time,
    time: String,
    /// The client's address.
    client: String,
    /// `HTTP/1.1` and so on.
    pub protocol: String,
    /// The request's method.
    pub method: String,
    /// Its path, without the query; where resources are named.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// The route's name; empty where there is none.
    #[serde(serialize_with = "text")]
    pub route: Arc<str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resources: Vec<String>,
    /// The token, as the route spells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Who the client is: by its certificate, else as it says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// What the gateway decided.
    #[serde(serialize_with = "word")]
    pub decision: Decision,
    /// That was not enforced.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub observed: bool,
    /// What became of it at the upstream.
    pub outcome: Fate,
    /// The response's status; 0 where the client left before it.
    pub status: u16,
    /// Bytes of the response's body that were handed on.
    pub bytes: u64,
    /// Whether the response was handed on to its end.
    pub complete: bool,
    #[serde(serialize_with = "millis")]
    total_ms: Duration,
    #[serde(serialize_with = "millis")]
    wait_ms: Duration,
    #[serde(serialize_with = "millis")]
    upstream_ms: Duration,
    /// The trace that it belongs to (W3C Trace Context).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
}

impl Entry {
    /// A request that begins now.
    #[must_use]
    pub fn begin(log: &Arc<AccessLog>, client: &str, path: &str) -> Self {
        let time = humantime::format_rfc3339_millis(clock::time_of_day());
        Self {
            log: Arc::clone(log),
            began: clock::now(),
            time: time.to_string(),
            client: client.to_owned(),
            protocol: String::new(),
            method: String::new(),
            path: log.names.then(|| short(path)),
            route: Arc::from(""),
            resources: Vec::new(),
            token: None,
            holder: None,
            decision: Decision::Unsent,
            observed: false,
            outcome: Fate::NotForwarded,
            status: 0,
            bytes: 0,
            complete: false,
            total_ms: Duration::ZERO,
            wait_ms: Duration::ZERO,
            upstream_ms: Duration::ZERO,
            trace_id: None,
        }
    }

    /// Names a resource that the request was judged by.
    pub fn resource(&mut self, namespace: &str, key: &[u8]) {
        self.resources.push(if self.log.names {
            short(&format!("{namespace}:{}", String::from_utf8_lossy(key)))
        } else {
            hash(namespace, key)
        });
    }

    /// Its gates have let it through, or not.
    pub fn judged(&mut self) {
        self.wait_ms = clock::now().since(self.began);
    }

    /// The head of the response has come, or will not.
    pub fn answered(&mut self, outcome: Fate) {
        self.outcome = outcome;
        self.upstream_ms = clock::now().since(self.began).saturating_sub(self.wait_ms);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.total_ms = clock::now().since(self.began);
        // It fails for nothing that an entry has.
        if let Ok(mut line) = serde_json::to_vec(&*self) {
            line.push(b'\n');
            self.log.write(line);
        }
    }
}

/// A text from a request, cut where it is long: lines are bounded, so that the queue is.
#[must_use]
pub fn short(text: &str) -> String {
    text.chars().take(LONGEST).collect()
}

/// The first 16 hexadecimal digits of the SHA-256 of the namespace, a zero byte and the key.
fn hash(namespace: &str, key: &[u8]) -> String {
    let digest = Sha256::new()
        .chain_update(namespace)
        .chain_update([0])
        .chain_update(key)
        .finalize();
    digest.iter().take(8).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The trace that a `traceparent` names (W3C Trace Context, version 00 and those that extend it).
#[must_use]
pub fn trace_id(traceparent: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(traceparent).ok()?;
    let mut parts = text.split('-');
    let (version, trace, parent) = (parts.next()?, parts.next()?, parts.next()?);
    let hex = |text: &str, length| {
        text.len() == length && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let sound = hex(version, 2) && version != "ff" && hex(trace, 32) && hex(parent, 16);
    let some = |text: &str| text.bytes().any(|b| b != b'0');
    (sound && some(trace) && some(parent)).then(|| trace.to_owned())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "so serde calls it")]
fn word<S: Serializer>(decision: &Decision, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(decision.word())
}

fn text<S: Serializer>(text: &Arc<str>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(text)
}

fn millis<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    let micros = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
    to.serialize_f64(f64::from(micros) / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_known_by_its_form() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        let right = format!("00-{trace}-00f067aa0ba902b7-01");
        assert_eq!(trace_id(right.as_bytes()).as_deref(), Some(trace));
        for wrong in [
            String::new(),
            format!("ff-{trace}-00f067aa0ba902b7-01"),
            format!("00-{trace}-00f067aa0ba902b-01"),
            format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            format!("00-{trace}-{}-01", "0".repeat(16)),
            format!("00-{}-00f067aa0ba902b7-01", trace.to_uppercase()),
        ] {
            assert_eq!(trace_id(wrong.as_bytes()), None, "{wrong}");
        }
    }

    #[test]
    fn a_hash_tells_the_namespace_from_the_key() {
        assert_eq!(hash("a", b"b").len(), 16);
        assert_ne!(hash("ab", b"c"), hash("a", b"bc"));
    }
}
