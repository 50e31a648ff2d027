//! A way to an upstream on which requests can be held back: read whole, and sent on when a test lets them go, whether
//! or not anybody waits for the answer by then.

use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It is to be held when it comes.
    Hold,
    /// It has come whole, and waits.
    Held,
    /// It may go on.
    Go,
    /// It was answered with this.
    Answered(u16),
}

#[derive(Default)]
struct Shared {
    tags: Mutex<HashMap<String, Stage>>,
    changed: Condvar,
}

/// The way. Its thread ends with the test's process.
pub struct Holding {
    pub port: u16,
    shared: Arc<Shared>,
}

impl Holding {
    /// Before an upstream on that port.
    pub fn before(upstream: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::<Shared>::default();
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&serving);
                thread::spawn(move || drop(pass(&shared, stream, upstream)));
            }
        });
        Self { port, shared }
    }

    /// Holds the request of that tag (`X-Tag`) back.
    pub fn hold(&self, tag: &str) {
        self.set(tag, Stage::Hold);
    }

    /// Waits until it has come whole.
    pub fn awaits(&self, tag: &str) {
        self.wait(tag, |stage| (stage == Stage::Held).then_some(()));
    }

    /// Lets it go on, and gives the status with which it was answered.
    pub fn release(&self, tag: &str) -> u16 {
        self.set(tag, Stage::Go);
        self.wait(tag, |stage| match stage {
            Stage::Answered(status) => Some(status),
            _ => None,
        })
    }

    fn set(&self, tag: &str, stage: Stage) {
        self.shared.tags.lock().insert(tag.to_owned(), stage);
        self.shared.changed.notify_all();
    }

    fn wait<T>(&self, tag: &str, reached: impl Fn(Stage) -> Option<T>) -> T {
        let mut tags = self.shared.tags.lock();
        loop {
            if let Some(found) = tags.get(tag).copied().and_then(&reached) {
                return found;
            }
            let late = self
                .shared
                .changed
                .wait_for(&mut tags, Duration::from_secs(30));
            assert!(!late.timed_out(), "{tag} did not come so far");
        }
    }
}

/// One request on its way, and the connection closed after it.
fn pass(shared: &Shared, mut client: TcpStream, upstream: u16) -> std::io::Result<()> {
    let mut request = Vec::new();
    let mut part = vec![0; 64 << 10];
    let (head, length) = loop {
        let count = client.read(&mut part)?;
        if count == 0 {
            return Ok(());
        }
        request.extend_from_slice(&part[..count]);
        if let Some(end) = request.windows(4).position(|w| w == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&request[..end]).into_owned();
            let length: usize =
                value(&head, "content-length").map_or(0, |text| text.parse().unwrap());
            if request.len() >= end + 4 + length {
                break (head, length);
            }
        }
    };
    let _ = length;
    let tag = value(&head, "x-tag").unwrap_or_default();
    let mut tags = shared.tags.lock();
    if tags.get(&tag) == Some(&Stage::Hold) {
        tags.insert(tag.clone(), Stage::Held);
        shared.changed.notify_all();
        while tags.get(&tag) == Some(&Stage::Held) {
            shared.changed.wait(&mut tags);
        }
    }
    drop(tags);
    // The signature of a request, if it has one, is not of this header.
    let line = request.windows(2).position(|w| w == b"\r\n").unwrap() + 2;
    let mut store = TcpStream::connect(("127.0.0.1", upstream))?;
    store.write_all(&[&request[..line], b"Connection: close\r\n", &request[line..]].concat())?;
    let mut answer = Vec::new();
    store.read_to_end(&mut answer)?;
    let status = std::str::from_utf8(answer.get(9..12).unwrap_or_default());
    let status = status.ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut tags = shared.tags.lock();
    if tags.get(&tag) == Some(&Stage::Go) {
        tags.insert(tag, Stage::Answered(status));
        shared.changed.notify_all();
    }
    drop(tags);
    client.write_all(&answer)
}

fn value(head: &str, name: &str) -> Option<String> {
    let mut lines = head.lines().filter_map(|line| line.split_once(':'));
    let found = lines.find(|(n, _)| n.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.trim().to_owned())
}
