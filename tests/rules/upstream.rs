//! A recording upstream: a threaded HTTP/1.1 server that does what a script says with each request,
//! told apart by its `X-Tag`, and remembers all it saw and when.

use parking_lot::{Condvar, Mutex};
use std::collections::{HashMap, HashSet};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

#[path = "connection.rs"]
mod connection;

use connection::Exchange;

/// How long a test waits for something that must come.
const PATIENCE: Duration = Duration::from_secs(15);

/// What is done with one request, from top to bottom.
#[derive(Clone)]
#[allow(clippy::struct_excessive_bools)] // each is a step of its own
pub struct Script {
    /// Leave the body unread until the tag is released.
    pub hold_body: bool,
    /// Answer before the body is read.
    pub early: bool,
    /// No answer until the tag is released.
    pub hold: bool,
    /// No part of the response body after the first byte until the tag is released.
    pub hold_end: bool,
    /// How it ends.
    pub end: End,
    pub status: u16,
    pub headers: Vec<(&'static str, &'static str)>,
    pub body: Vec<u8>,
    /// The body is sent so many times over.
    pub times: usize,
    /// Sent after the body, which is chunked then.
    pub trailers: Vec<(&'static str, &'static str)>,
    /// In place of all that, the answer as it is: one part, and another once the body was read.
    pub raw: Option<(&'static str, &'static str)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    Respond,
    /// The connection is closed without an answer.
    Close,
    /// The connection is reset without an answer.
    Reset,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            hold_body: false,
            early: false,
            hold: false,
            hold_end: false,
            end: End::Respond,
            status: 200,
            headers: Vec::new(),
            body: b"ok".to_vec(),
            times: 1,
            trailers: Vec::new(),
            raw: None,
        }
    }
}

impl Script {
    /// No answer before it is released.
    pub fn hold() -> Self {
        Self {
            hold: true,
            ..Self::default()
        }
    }

    pub fn status(status: u16) -> Self {
        Self {
            status,
            ..Self::default()
        }
    }

    pub fn raw(answer: &'static str) -> Self {
        Self {
            raw: Some((answer, "")),
            ..Self::default()
        }
    }

    pub fn end(end: End) -> Self {
        Self {
            end,
            ..Self::default()
        }
    }
}

/// A request as far as it came.
#[derive(Clone)]
pub struct Seen {
    pub tag: String,
    /// The port at the other end of its connection.
    pub from: u16,
    pub method: String,
    pub target: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub trailers: Vec<(String, String)>,
    pub head_at: Instant,
    /// When its last byte was read.
    pub whole_at: Option<Instant>,
    /// When the answer was about to be sent.
    pub answered_at: Option<Instant>,
    /// When its connection was seen to end within the exchange, whoever ended it.
    pub closed_at: Option<Instant>,
}

impl Seen {
    /// All values of a header, in the order in which they came.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let named = |(n, _): &&(String, String)| n.eq_ignore_ascii_case(name);
        let found = self.headers.iter().filter(named);
        found.map(|(_, value)| value.as_str()).collect()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }
}

#[derive(Default)]
struct State {
    seen: Vec<Seen>,
    scripts: HashMap<String, Script>,
    released: HashSet<String>,
    open: HashMap<u64, TcpStream>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    stopping: AtomicBool,
}

/// The server. Ends when dropped.
pub struct Upstream {
    pub port: u16,
    shared: Arc<Shared>,
    accepter: Option<JoinHandle<()>>,
}

impl Upstream {
    pub fn start(port: u16) -> Self {
        let mut upstream = Self {
            port,
            shared: Arc::default(),
            accepter: None,
        };
        upstream.start_again();
        upstream
    }

    /// What to do with every request of that tag; without one, it is answered with 200.
    pub fn script(&self, tag: &str, script: Script) {
        self.shared.state.lock().scripts.insert(tag.into(), script);
    }

    /// Lets go what is held of that tag.
    pub fn release(&self, tag: &str) {
        self.shared.state.lock().released.insert(tag.into());
    }

    /// How many requests of that tag have come.
    pub fn count(&self, tag: &str) -> usize {
        let state = self.shared.state.lock();
        state.seen.iter().filter(|seen| seen.tag == tag).count()
    }

    /// The requests of that tag, as far as they came.
    pub fn all_of(&self, tag: &str) -> Vec<Seen> {
        let state = self.shared.state.lock();
        let seen = state.seen.iter().filter(|seen| seen.tag == tag);
        seen.cloned().collect()
    }

    /// The tags of all requests that came whole, in the order of their last bytes.
    pub fn whole(&self) -> Vec<String> {
        let state = self.shared.state.lock();
        let mut whole: Vec<_> = state
            .seen
            .iter()
            .filter_map(|seen| Some((seen.whole_at?, seen.tag.clone())))
            .collect();
        whole.sort();
        whole.into_iter().map(|(_, tag)| tag).collect()
    }

    /// Waits until a request of that tag has come this far.
    #[track_caller]
    pub fn wait(&self, tag: &str, what: &str, there: impl Fn(&Seen) -> bool) -> Seen {
        let end = Instant::now() + PATIENCE;
        let mut state = self.shared.state.lock();
        loop {
            if let Some(seen) = state.seen.iter().find(|s| s.tag == tag && there(s)) {
                return seen.clone();
            }
            let late = self.shared.changed.wait_until(&mut state, end).timed_out();
            assert!(!late, "the upstream did not see {what} of {tag}");
        }
    }

    #[track_caller]
    pub fn head(&self, tag: &str) -> Seen {
        self.wait(tag, "the head", |_| true)
    }

    #[track_caller]
    pub fn body(&self, tag: &str, bytes: usize) -> Seen {
        self.wait(tag, "a part of the body", |seen| seen.body.len() >= bytes)
    }

    #[track_caller]
    pub fn whole_of(&self, tag: &str) -> Seen {
        self.wait(tag, "the end", |seen| seen.whole_at.is_some())
    }

    #[track_caller]
    pub fn closed(&self, tag: &str) -> Seen {
        self.wait(tag, "the close", |seen| seen.closed_at.is_some())
    }

    /// Refuses connections, and closes those that are open.
    pub fn stop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        // Wakes the accepter; it may be gone already.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(accepter) = self.accepter.take() {
            accepter.join().unwrap();
        }
        for (_, stream) in self.shared.state.lock().open.drain() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Listens again, on the same port.
    pub fn start_again(&mut self) {
        let listener = TcpListener::bind(("127.0.0.1", self.port)).unwrap();
        self.shared.stopping.store(false, Ordering::SeqCst);
        let shared = Arc::clone(&self.shared);
        self.accepter = Some(thread::spawn(move || {
            for (id, stream) in (0..).zip(listener.incoming()) {
                if shared.stopping.load(Ordering::SeqCst) {
                    return;
                }
                let stream = stream.unwrap();
                let _ = stream.set_nodelay(true);
                let other = stream.try_clone().unwrap();
                shared.state.lock().open.insert(id, other);
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let stream = Exchange::serve(&shared, stream);
                    // The last handle: a reset goes out as such.
                    shared.state.lock().open.remove(&id);
                    drop(stream);
                });
            }
        }));
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.stop();
    }
}
