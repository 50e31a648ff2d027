//! A resource that honours conditional requests: an HTTP/1.1 server that keeps objects by their paths, and applies
//! a write when a test lets it, whether or not anybody waits for the answer. Of an object store it knows uploads.

use parking_lot::{Condvar, Mutex};
use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// What names an object's state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Validator {
    /// A new one with each write.
    #[default]
    Version,
    /// The same for the same content.
    Content,
    /// One that does not tell two states apart for sure.
    Weak,
    /// None.
    Absent,
}

/// How the resource behaves. May change while it serves.
#[derive(Clone, Default)]
pub struct Manners {
    pub validator: Validator,
    /// It does what is asked by these methods whatever the condition.
    pub deaf: HashSet<&'static str>,
    /// Writes of these tags are read, and applied when they are let go.
    pub held: HashSet<String>,
    /// Writes of these tags are applied, and the connection is closed without an answer.
    pub lost: HashSet<String>,
    /// What HEAD is answered with, in place of the truth.
    pub head: Option<u16>,
    /// Writes are answered with their validator.
    pub silent: bool,
    /// What writes of a tag are answered with, and not applied.
    pub answers: HashMap<String, u16>,
}

/// A request that came whole.
#[derive(Clone, Debug)]
pub struct Came {
    pub tag: String,
    pub method: String,
    pub target: String,
    pub headers: Vec<(String, String)>,
    /// What it was answered with; `None` while it is held.
    pub status: Option<u16>,
}

impl Came {
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter();
        let found = found.find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

#[derive(Default)]
struct State {
    manners: Manners,
    objects: HashMap<String, (String, Vec<u8>)>,
    /// What HEAD says besides.
    metadata: HashMap<String, String>,
    came: Vec<Came>,
    version: u64,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// The resource. Its thread ends with the test's process.
pub struct Resource {
    pub port: u16,
    shared: Arc<Shared>,
}

impl Resource {
    pub fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::<Shared>::default();
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&serving);
                thread::spawn(move || serve(&shared, stream));
            }
        });
        Self { port, shared }
    }

    /// Changes how it behaves.
    pub fn behaves(&self, change: impl FnOnce(&mut Manners)) {
        change(&mut self.shared.state.lock().manners);
        self.shared.changed.notify_all();
    }

    /// Holds writes of a tag back.
    pub fn hold(&self, tag: &str) {
        self.behaves(|manners| {
            manners.held.insert(tag.into());
        });
    }

    /// Lets go of a write that was held back, and waits until it is done. Gives its status.
    pub fn release(&self, tag: &str) -> u16 {
        self.behaves(|manners| {
            manners.held.remove(tag);
        });
        self.answered(tag)
    }

    /// Waits until a write of that tag has come whole.
    pub fn awaits(&self, tag: &str) {
        self.until(tag, |came| Some(came.tag.clone()));
    }

    /// Waits for the status of the last request of that tag.
    pub fn answered(&self, tag: &str) -> u16 {
        self.until(tag, |came| came.status)
    }

    fn until<T>(&self, tag: &str, what: impl Fn(&Came) -> Option<T>) -> T {
        let mut state = self.shared.state.lock();
        loop {
            let last = state.came.iter().rev().find(|came| came.tag == tag);
            if let Some(found) = last.and_then(&what) {
                return found;
            }
            let late = self
                .shared
                .changed
                .wait_for(&mut state, Duration::from_secs(15));
            assert!(!late.timed_out(), "{tag} did not come");
        }
    }

    /// What is kept under a path.
    pub fn content(&self, path: &str) -> Option<String> {
        let state = self.shared.state.lock();
        let (_, body) = state.objects.get(path)?;
        Some(String::from_utf8(body.clone()).unwrap())
    }

    /// The validator of what is kept under a path.
    pub fn etag(&self, path: &str) -> Option<String> {
        let state = self.shared.state.lock();
        state.objects.get(path).map(|(etag, _)| etag.clone())
    }

    /// Puts something under a path, past the gateway.
    pub fn put(&self, path: &str, body: &str) {
        let mut state = self.shared.state.lock();
        state.store(path, body.as_bytes());
        state.metadata.remove(path);
    }

    /// The requests that came, of that method where one is given.
    pub fn came(&self, method: Option<&str>) -> Vec<Came> {
        let state = self.shared.state.lock();
        let all = state.came.iter();
        all.filter(|came| method.is_none_or(|m| came.method == m))
            .cloned()
            .collect()
    }

    /// The last request of a tag.
    pub fn last(&self, tag: &str) -> Came {
        let state = self.shared.state.lock();
        let last = state.came.iter().rev().find(|came| came.tag == tag);
        last.unwrap_or_else(|| panic!("{tag} did not come")).clone()
    }
}

impl State {
    fn store(&mut self, path: &str, body: &[u8]) {
        self.version += 1;
        let etag = match self.manners.validator {
            Validator::Version => format!("\"v{}\"", self.version),
            Validator::Weak => format!("W/\"v{}\"", self.version),
            Validator::Content => format!(
                "\"c{:x}\"",
                body.iter().fold(7u64, |all, b| all
                    .wrapping_mul(31)
                    .wrapping_add(u64::from(*b)))
            ),
            Validator::Absent => String::new(),
        };
        self.objects.insert(path.into(), (etag, body.to_vec()));
    }

    /// RFC 9110, section 13.2.2, for what comes here.
    fn holds(&self, path: &str, came: &Came) -> bool {
        let etag = self.objects.get(path).map(|(etag, _)| etag.as_str());
        let named = |list: &str| list == "*" || list.split(',').any(|one| Some(one.trim()) == etag);
        self.manners.deaf.contains(came.method.as_str())
            || came
                .header("if-match")
                .is_none_or(|list| etag.is_some() && named(list))
                && came
                    .header("if-none-match")
                    .is_none_or(|list| etag.is_none() || !named(list))
    }
}

fn serve(shared: &Shared, stream: TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    let mut closes = false;
    while !closes && let Some((came, body)) = read(&mut reader) {
        let (tag, method) = (came.tag.clone(), came.method.clone());
        let at = {
            let mut state = shared.state.lock();
            let at = state.came.len();
            closes = came.header("connection") == Some("close");
            state.came.push(came);
            shared.changed.notify_all();
            let writes = !matches!(method.as_str(), "GET" | "HEAD");
            while writes && state.manners.held.contains(&tag) {
                shared.changed.wait(&mut state);
            }
            at
        };
        let (status, headers, body) = act(shared, at, &body);
        let (lost, silent) = {
            let state = shared.state.lock();
            (state.manners.lost.contains(&tag), method == "HEAD")
        };
        if lost {
            return;
        }
        let mut head = format!("HTTP/1.1 {status} X\r\n");
        for (name, value) in headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        if closes {
            head.push_str("Connection: close\r\n");
        }
        let length = body.len();
        let _ = write!(head, "Content-Length: {length}\r\n\r\n");
        let body = if silent { Vec::new() } else { body };
        if stream
            .write_all(&[head.into_bytes(), body].concat())
            .is_err()
        {
            return;
        }
    }
}

type Answer = (u16, Vec<(&'static str, String)>, Vec<u8>);

/// Does what a request asks, at once.
fn act(shared: &Shared, at: usize, body: &[u8]) -> Answer {
    let mut state = shared.state.lock();
    let came = state.came[at].clone();
    let answer = answer(&mut state, &came, body);
    state.came[at].status = Some(answer.0);
    shared.changed.notify_all();
    answer
}

fn answer(state: &mut State, came: &Came, body: &[u8]) -> Answer {
    let (path, query) = came.target.split_once('?').unwrap_or((&came.target, ""));
    let plain = |status| (status, Vec::new(), Vec::new());
    let named = |state: &State| {
        let etag = state.objects.get(path).map(|(etag, _)| etag.clone());
        let etag = etag.filter(|etag| !etag.is_empty());
        etag.map(|etag| ("ETag", etag))
            .into_iter()
            .collect::<Vec<_>>()
    };
    if let Some(status) = state.manners.answers.get(&came.tag) {
        return plain(*status);
    }
    match came.method.as_str() {
        "HEAD" | "GET" => match (state.manners.head, state.objects.get(path)) {
            (Some(status), _) if came.method == "HEAD" => plain(status),
            (_, None) => plain(404),
            (_, Some((_, body))) => {
                let write = state.metadata.get(path).cloned();
                let write = write.map(|write| ("x-amz-meta-fencing-write", write));
                (
                    200,
                    named(state).into_iter().chain(write).collect(),
                    body.clone(),
                )
            }
        },
        "POST" if query == "uploads" => {
            let body = "<InitiateMultipartUploadResult><UploadId>u1</UploadId></InitiateMultipartUploadResult>";
            (200, Vec::new(), body.into())
        }
        "PUT" if query.contains("partNumber=") => (200, vec![("ETag", "\"p\"".into())], Vec::new()),
        "PUT" if query == "tagging" => plain(200),
        _ if !state.holds(path, came) => plain(412),
        "POST" if query.starts_with("uploadId=") => {
            state.store(path, body);
            let etag = named(state).pop().map_or(String::new(), |(_, etag)| etag);
            let body = format!(
                "<?xml version=\"1.0\"?><CompleteMultipartUploadResult><ETag>{}</ETag></CompleteMultipartUploadResult>",
                etag.replace('"', "&quot;")
            );
            (200, Vec::new(), body.into())
        }
        "PUT" | "PATCH" => {
            state.store(path, body);
            if let Some(write) = came.header("x-amz-meta-fencing-write") {
                state.metadata.insert(path.into(), write.into());
            }
            let headers = if state.manners.silent {
                Vec::new()
            } else {
                named(state)
            };
            (200, headers, Vec::new())
        }
        "DELETE" if query.contains("uploadId=") => plain(204),
        "DELETE" => {
            state.objects.remove(path);
            plain(204)
        }
        _ => plain(200),
    }
}

fn read(reader: &mut BufReader<TcpStream>) -> Option<(Came, Vec<u8>)> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        lines.push(line.to_owned());
    }
    let mut first = lines.first()?.split(' ');
    let (method, target) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers = lines[1..].iter().filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
    let mut came = Came {
        tag: String::new(),
        method,
        target,
        headers,
        status: None,
    };
    came.tag = came.header("x-tag").unwrap_or_default().to_owned();
    let length = came.header("content-length");
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    reader.read_exact(&mut body).ok()?;
    Some((came, body))
}
