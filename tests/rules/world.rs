//! A gateway before a recording upstream, and requests to it that a test writes in one line.

use crate::support::{Client, Config, Gateway, Response, free_port, wait_until};
use crate::upstream::Upstream;
use std::fmt::Display;
use std::panic::resume_unwind;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A gateway and its upstream.
pub struct World {
    pub gw: Gateway,
    pub up: Upstream,
}

impl World {
    /// With the usual configuration.
    pub fn new() -> Self {
        Self::with(|config| config)
    }

    pub fn with(change: impl FnOnce(Config) -> Config) -> Self {
        let up = Upstream::start(free_port());
        let gw = Gateway::start(change(Config::new(up.port)));
        Self { gw, up }
    }

    pub fn ask(&self, method: &str, path: &str) -> Ask {
        Ask {
            port: self.gw.port,
            method: method.into(),
            path: path.into(),
            headers: Vec::new(),
            body: if matches!(method, "GET" | "HEAD") {
                Vec::new()
            } else {
                b"data".to_vec()
            },
        }
    }

    /// A PUT of /files/a with this token and the tag `t` and the token.
    pub fn put(&self, token: u64) -> Ask {
        self.put_to("/files/a", token)
    }

    pub fn put_to(&self, path: &str, token: u64) -> Ask {
        self.ask("PUT", path).token(token).tag(&format!("t{token}"))
    }

    /// A request with a Destination on this gateway.
    pub fn relocate(&self, method: &str, from: &str, to: &str, token: u64) -> Ask {
        let destination = format!("http://127.0.0.1:{}{to}", self.gw.port);
        let ask = self.ask(method, from).token(token).body(b"");
        ask.header("Destination", &destination)
    }

    /// A metric: the sum of the samples whose line has all of these parts.
    pub fn metric(&self, name: &str, parts: &[&str]) -> f64 {
        let page = Client::connect(self.gw.admin_port).request("GET", "/metrics", &[], b"");
        let page = String::from_utf8(page.body).unwrap();
        let samples = page.lines().filter(|line| {
            let end = line.find(['{', ' ']).unwrap_or_default();
            line[..end] == *name && parts.iter().all(|part| line.contains(part))
        });
        samples
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum()
    }

    /// How many requests the gateway has refused for that reason.
    pub fn rejections(&self, reason: &str) -> f64 {
        let reason = format!("reason=\"{reason}\"");
        self.metric("fencegate_fence_rejections_total", &[&reason])
    }

    /// Waits until exactly so many writes wait at the gates.
    #[track_caller]
    pub fn waiting(&self, count: u32) {
        self.gauge("fencegate_waiting_writes", count);
    }

    #[track_caller]
    pub fn gauge(&self, name: &str, count: u32) {
        let wanted = f64::from(count);
        wait_until(&format!("{name} to be {count}"), || {
            (self.metric(name, &[]) - wanted).abs() < 0.1
        });
    }

    /// The fence of a key of the default namespace, as the admin API has it.
    pub fn fence(&self, key: &str) -> Option<(String, bool)> {
        let target = format!("/api/v1/fences?limit=1&prefix={}", key.replace('/', "%2F"));
        let page = Client::connect(self.gw.admin_port).request("GET", &target, &[], b"");
        let page: serde_json::Value = serde_json::from_slice(&page.body).unwrap();
        let fence = page["fences"].get(0).filter(|fence| fence["key"] == key)?;
        let token = fence["token"].as_str().unwrap().to_owned();
        Some((token, fence["drained"].as_bool().unwrap()))
    }

    /// Kills the gateway as a crash would, and starts it again. Gives a moment before it started.
    pub fn crash(&mut self) -> Instant {
        self.gw.kill();
        let before = Instant::now();
        self.gw.start_again();
        before
    }

    /// Checks that nothing of that tag reaches the upstream within a short while.
    #[track_caller]
    pub fn stays_away(&self, tag: &str) {
        pause(150);
        assert_eq!(self.up.count(tag), 0, "{tag} was forwarded");
    }
}

pub fn pause(millis: u64) {
    thread::sleep(Duration::from_millis(millis));
}

/// A request that is being written.
#[derive(Clone)]
#[must_use]
pub struct Ask {
    port: u16,
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Ask {
    pub fn token(self, token: impl Display) -> Self {
        self.header("Fencing-Token", &token.to_string())
    }

    /// Names the request for the upstream; the last name counts.
    pub fn tag(mut self, tag: &str) -> Self {
        self.headers.retain(|(name, _)| name != "X-Tag");
        self.header("X-Tag", tag)
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub fn body(mut self, body: &[u8]) -> Self {
        self.body = body.to_vec();
        self
    }

    fn headers(&self) -> Vec<(&str, &str)> {
        let pairs = self.headers.iter();
        pairs.map(|(name, value)| (&**name, &**value)).collect()
    }

    /// Sends it and reads the answer.
    #[track_caller]
    pub fn send(&self) -> Response {
        let mut client = Client::connect(self.port);
        client.request(&self.method, &self.path, &self.headers(), &self.body)
    }

    /// Sends it from a thread of its own.
    pub fn start(self) -> Call {
        Call(thread::spawn(move || self.send()))
    }

    /// Sends the head alone, as it is.
    pub fn open(&self) -> Client {
        let mut client = Client::connect(self.port);
        client.send_head(&self.method, &self.path, &self.headers());
        client
    }

    /// Sends the head and half of a body of 100 bytes.
    pub fn half(self) -> Client {
        let mut client = self.header("Content-Length", "100").open();
        client.send(&[b'x'; 50]);
        client
    }
}

/// A request under way.
pub struct Call(JoinHandle<Response>);

impl Call {
    pub fn is_done(&self) -> bool {
        self.0.is_finished()
    }

    #[track_caller]
    pub fn result(self) -> Response {
        self.0.join().unwrap_or_else(|panic| resume_unwind(panic))
    }
}
