//! One connection of the recording upstream: it reads requests, and does what their plans say.

use super::{End, Plan, Seen, Settles, Shared, UNSETTLED};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use socket2::SockRef;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

/// How often a connection is looked at.
const LOOK: Duration = Duration::from_millis(3);

pub(super) struct Connection {
    shared: Arc<Shared>,
    stream: Option<TcpStream>,
    settles: Settles,
    buffer: Vec<u8>,
    /// When it was last found open: nothing left to read, and no end.
    open_at: Option<u64>,
}

type Ended = io::Error;

fn ended() -> Ended {
    io::ErrorKind::UnexpectedEof.into()
}

impl Connection {
    pub(super) fn new(shared: Arc<Shared>, stream: TcpStream, settles: Settles) -> Self {
        stream.set_nonblocking(false).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_millis(10)))
            .unwrap();
        stream
            .set_write_timeout(Some(Duration::from_secs(2)))
            .unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            shared,
            stream: Some(stream),
            settles,
            buffer: Vec::new(),
            open_at: None,
        }
    }

    pub(super) fn serve(mut self) {
        loop {
            let Ok(head) = self.line(b"\r\n\r\n") else {
                return;
            };
            self.shared.busy.fetch_add(1, Ordering::Relaxed);
            let goes_on = self.request(&head);
            self.shared.busy.fetch_sub(1, Ordering::Relaxed);
            if goes_on.is_err() || self.stream.is_none() {
                return;
            }
        }
    }

    fn request(&mut self, head: &str) -> Result<(), Ended> {
        let (number, seen) = self.record(head);
        let plan = (self.shared.plan)(&seen);
        if plan.early {
            self.act(number, plan);
            return self.body(number, &seen);
        }
        self.body(number, &seen)?;
        self.act(number, plan);
        Ok(())
    }

    fn record(&mut self, head: &str) -> (usize, Seen) {
        let mut lines = head.split("\r\n");
        let mut words = lines.next().unwrap().split(' ').map(str::to_owned);
        let pair = |line: &str| {
            let (name, value) = line.split_once(':').unwrap();
            (name.to_owned(), value.trim().to_owned())
        };
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap();
        let mut seen = Seen {
            method: words.next().unwrap(),
            target: words.next().unwrap(),
            headers: lines.map(pair).collect(),
            open_at: self.open_at,
            settles: (micros(self.settles.whole), micros(self.settles.incomplete)),
            ..Seen::default()
        };
        let mut log = self.shared.log.lock();
        seen.order = log.stamp();
        seen.head_at = self.shared.now();
        log.seen.push(seen.clone());
        (log.seen.len() - 1, seen)
    }

    /// Reads the body.
    fn body(&mut self, number: usize, seen: &Seen) -> Result<(), Ended> {
        if seen.header("Transfer-Encoding").is_some() {
            loop {
                let size = usize::from_str_radix(self.line(b"\r\n")?.trim(), 16).unwrap();
                if size == 0 {
                    while !self.line(b"\r\n")?.is_empty() {}
                    break;
                }
                self.take(size + 2)?;
            }
        } else if let Some(length) = seen.header("Content-Length") {
            self.take(length.parse().unwrap())?;
        }
        self.look();
        let mut log = self.shared.log.lock();
        let now = self.shared.now();
        let seen = &mut log.seen[number];
        seen.whole_at = Some(now);
        if seen.answered.is_none() {
            seen.open_at = self.open_at;
        }
        Ok(())
    }

    /// Does what the plan says, in the order of its times.
    fn act(&mut self, number: usize, plan: Plan) {
        let start = Instant::now();
        let settles_at = match plan.end {
            End::Answer(status) if UNSETTLED.contains(&status) => None,
            End::Answer(_) => Some(plan.hold),
            End::Trickle(_, rest) => Some(plan.hold + rest),
            End::Close | End::Reset => None,
        };
        let mut apply = plan
            .apply
            .map(|at| settles_at.map_or(at, |settles| at.min(settles)));
        let mut open = true;
        let mut applied = true;
        if let Some(at) = apply.filter(|at| *at <= plan.hold) {
            open = self.wait(number, start + at, open);
            applied = self.apply(number, !open);
            apply = None;
        }
        open = self.wait(number, start + plan.hold, open);
        if !open {
            self.stream = None;
        } else if let End::Trickle(status, rest) = plan.end {
            self.send(&head(status, "\r\no"));
            let end = plan.hold + rest;
            if let Some(at) = apply.take() {
                open = self.wait(number, start + at, open);
                open &= self.apply(number, !open);
            }
            open = self.wait(number, start + end, open);
            if open {
                self.note_answer(number, status);
                self.send("k");
            } else {
                self.stream = None;
            }
        } else {
            self.end(number, plan.end, applied);
        }
        if let Some(at) = apply {
            thread::sleep((start + at).saturating_duration_since(Instant::now()));
            self.apply(number, true);
        }
    }

    fn end(&mut self, number: usize, end: End, applied: bool) {
        match end {
            End::Answer(status) | End::Trickle(status, _) => {
                // What was asked for and did not take effect is not to be called done.
                let status = if applied || status >= 300 {
                    status
                } else {
                    500
                };
                self.note_answer(number, status);
                self.send(&head(status, "\r\nok"));
            }
            End::Reset => {
                if let Some(stream) = &self.stream {
                    SockRef::from(stream)
                        .set_linger(Some(Duration::ZERO))
                        .unwrap();
                }
                self.stream = None;
            }
            End::Close => self.stream = None,
        }
    }

    fn note_answer(&self, number: usize, status: u16) {
        let mut log = self.shared.log.lock();
        log.seen[number].answered = Some((self.shared.now(), status));
    }

    /// Lets the request take effect, if its settle still allows it. Says whether it did.
    fn apply(&self, number: usize, late: bool) -> bool {
        let mut log = self.shared.log.lock();
        let seen = &log.seen[number];
        let (whole, incomplete) = seen.settles;
        let settle = if seen.whole_at.is_some() {
            whole
        } else {
            incomplete
        };
        let allowed = seen
            .open_at
            .is_some_and(|open| self.shared.now() < open + settle);
        if allowed {
            let order = log.stamp();
            log.seen[number].applied = Some(order);
            log.seen[number].late = late;
        }
        allowed
    }

    /// Waits, and looks at the connection meanwhile and at last. Says whether it is open.
    fn wait(&mut self, number: usize, until: Instant, mut open: bool) -> bool {
        loop {
            if open {
                open = self.look();
                self.shared.log.lock().seen[number].open_at = self.open_at;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return open;
            }
            thread::sleep(if open { left.min(LOOK) } else { left });
        }
    }

    /// Whether the connection is open as far as can be told: what has not been read yet may hide its
    /// end.
    fn look(&mut self) -> bool {
        let Some(stream) = &self.stream else {
            return false;
        };
        let now = self.shared.now();
        let mut byte = [0_u8; 1];
        match recv(stream, &mut byte[..], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN) => {
                self.open_at = Some(now);
                true
            }
            Ok((0, _)) | Err(_) => false,
            Ok(_) => true,
        }
    }

    fn send(&mut self, text: &str) {
        let sent = self
            .stream
            .as_mut()
            .map(|stream| stream.write_all(text.as_bytes()));
        if !matches!(sent, Some(Ok(()))) {
            self.stream = None;
        }
    }

    fn line(&mut self, mark: &[u8]) -> Result<String, Ended> {
        loop {
            let found = self.buffer.windows(mark.len()).position(|w| w == mark);
            if let Some(at) = found {
                let line = String::from_utf8_lossy(&self.buffer[..at]).into_owned();
                self.buffer.drain(..at + mark.len());
                return Ok(line);
            }
            self.fill()?;
        }
    }

    fn take(&mut self, mut count: usize) -> Result<(), Ended> {
        loop {
            let step = count.min(self.buffer.len());
            self.buffer.drain(..step);
            count -= step;
            if count == 0 {
                return Ok(());
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> Result<(), Ended> {
        let mut block = vec![0; 64 * 1024];
        loop {
            if self.shared.ended.load(Ordering::Relaxed) {
                return Err(ended());
            }
            let now = self.shared.now();
            let stream = self.stream.as_mut().ok_or_else(ended)?;
            match stream.read(&mut block) {
                Ok(0) => return Err(ended()),
                Ok(length) => {
                    self.buffer.extend_from_slice(&block[..length]);
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.open_at = Some(now);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn head(status: u16, rest: &str) -> String {
    format!("HTTP/1.1 {status} Planned\r\nContent-Length: 2\r\n{rest}")
}
