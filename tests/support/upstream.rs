//! A recording upstream: an HTTP/1.1 server that does with each request what a plan says, and keeps
//! what it saw and what took effect, all in one order.
//!
//! It keeps its settle by construction, on a machine that is as slow as it likes. It knows when it last
//! found a connection open for sure, so the other side let go of it later than that; and a request
//! takes effect only within the settle after that moment, decided under the lock that makes the order.

mod connection;

use connection::Connection;
use parking_lot::{Mutex, MutexGuard};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// What the upstream does with one request. Times run from the moment at which it acts: when the
/// request is whole, or at its head where it is `early`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Acts as soon as the head is there, the body unread.
    pub early: bool,
    /// When the request takes effect; never where `None`. Not after an answer that settles it.
    pub apply: Option<Duration>,
    /// When it ends.
    pub hold: Duration,
    /// How it ends.
    pub end: End,
}

/// How a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With a response.
    Answer(u16),
    /// With a response whose end comes so much later than its head, and settles it only then.
    Trickle(u16, Duration),
    /// With FIN.
    Close,
    /// With RST.
    Reset,
}

impl Plan {
    /// Applies the request once it is whole, and answers.
    pub const fn answer(status: u16) -> Self {
        Self {
            early: false,
            apply: Some(Duration::ZERO),
            hold: Duration::ZERO,
            end: End::Answer(status),
        }
    }
}

/// How long a request may take effect after the other side let go of it.
#[derive(Clone, Copy, Debug)]
pub struct Settles {
    /// One that was read whole.
    pub whole: Duration,
    /// One that was not.
    pub incomplete: Duration,
}

impl Default for Settles {
    /// What the usual config declares.
    fn default() -> Self {
        let settle = Duration::from_millis(300);
        Self {
            whole: settle,
            incomplete: settle,
        }
    }
}

/// Answers that do not settle a request.
pub const UNSETTLED: [u16; 5] = [202, 408, 502, 503, 504];

/// A request as the upstream saw it. Times are microseconds of [`Upstream::now`].
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The place of its head among all heads and effects.
    pub order: u64,
    /// The method.
    pub method: String,
    /// The target.
    pub target: String,
    /// The headers as they came.
    pub headers: Vec<(String, String)>,
    /// When the head was there.
    pub head_at: u64,
    /// When the last byte of the body was there.
    pub whole_at: Option<u64>,
    /// When the connection was last found open before the upstream itself let go of the request. The
    /// other side let go later than that.
    pub open_at: Option<u64>,
    /// When its answer went out (the end of it, where it trickles), and the status.
    pub answered: Option<(u64, u16)>,
    /// The place of its effect among all heads and effects.
    pub applied: Option<u64>,
    /// Whether it had let go of the request by the time that it took effect, or the other side had.
    pub late: bool,
    /// The settles of the upstream, in microseconds: whole, and not.
    pub settles: (u64, u64),
}

impl Seen {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self
            .headers
            .iter()
            .filter(|(n, _)| n.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value.as_str())
    }
}

/// All that was seen.
#[derive(Default)]
pub struct Log {
    /// The requests, in the order of their heads.
    pub seen: Vec<Seen>,
    next: u64,
}

impl Log {
    fn stamp(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

type Planner = dyn Fn(&Seen) -> Plan + Send + Sync;

struct Shared {
    log: Mutex<Log>,
    started: Instant,
    plan: Box<Planner>,
    busy: AtomicUsize,
    ended: AtomicBool,
}

/// An upstream that runs until it is dropped.
pub struct Upstream(Arc<Shared>);

impl Upstream {
    /// An upstream that asks `plan` what to do with each request, at its head.
    pub fn new(plan: impl Fn(&Seen) -> Plan + Send + Sync + 'static) -> Self {
        Self(Arc::new(Shared {
            log: Mutex::default(),
            started: Instant::now(),
            plan: Box::new(plan),
            busy: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
        }))
    }

    /// Listens on a port of its own, with these settles.
    pub fn listen(&self, settles: Settles) -> u16 {
        let listener = TcpListener::bind(("127.0.0.1", super::free_port())).unwrap();
        let port = listener.local_addr().unwrap().port();
        listener.set_nonblocking(true).unwrap();
        let shared = Arc::clone(&self.0);
        thread::spawn(move || {
            while !shared.ended.load(Ordering::Relaxed) {
                let Ok((stream, _)) = listener.accept() else {
                    thread::sleep(Duration::from_millis(2));
                    continue;
                };
                let shared = Arc::clone(&shared);
                thread::spawn(move || Connection::new(shared, stream, settles).serve());
            }
        });
        port
    }

    /// Microseconds since it was made.
    pub fn now(&self) -> u64 {
        self.0.now()
    }

    /// What it saw so far.
    pub fn log(&self) -> MutexGuard<'_, Log> {
        self.0.log.lock()
    }

    /// Waits until no request is under way, nor to take effect later.
    #[track_caller]
    pub fn wait_quiet(&self) {
        super::wait_until("the upstream to fall quiet", || {
            self.0.busy.load(Ordering::Relaxed) == 0
        });
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap()
    }
}
