//! A worker that holds a lock, and writes over a plain socket so that it can stop half-way.

use anyhow::{Context, anyhow};
use std::fmt;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

pub(super) struct Worker {
    address: SocketAddr,
    path: &'static str,
    token: u64,
}

/// An upload of which one half was sent.
pub(super) struct Upload {
    stream: TcpStream,
    rest: String,
}

/// What the worker was told.
pub(super) struct Answer {
    pub(super) status: u16,
    fencing: Option<String>,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.fencing {
            Some(word) => write!(f, "{} ({word})", self.status),
            None => write!(f, "{}", self.status),
        }
    }
}

impl Worker {
    pub(super) const fn new(address: SocketAddr, path: &'static str, token: u64) -> Self {
        Self {
            address,
            path,
            token,
        }
    }

    /// Writes the file, and reads the answer.
    pub(super) fn put(&self, text: &str) -> anyhow::Result<Answer> {
        self.send(text, text.len())?.finish()
    }

    /// Sends the head and one half of the text.
    pub(super) fn put_half(&self, text: &str) -> anyhow::Result<Upload> {
        self.send(text, text.len() / 2)
    }

    fn send(&self, text: &str, now: usize) -> anyhow::Result<Upload> {
        let Self {
            address,
            path,
            token,
        } = self;
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let (first, rest) = text.split_at(now);
        let length = text.len();
        write!(
            stream,
            "PUT {path} HTTP/1.1\r\nHost: {address}\r\nFencing-Token: {token}\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n{first}"
        )?;
        Ok(Upload {
            stream,
            rest: rest.to_owned(),
        })
    }
}

impl Upload {
    /// Sends the rest, and reads the answer.
    pub(super) fn finish(mut self) -> anyhow::Result<Answer> {
        // Refused where the upload was cut: the answer is there all the same.
        let _ = self.stream.write_all(self.rest.as_bytes());
        let mut bytes = Vec::new();
        let read = self.stream.read_to_end(&mut bytes);
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, _)) = text.split_once("\r\n\r\n") else {
            read.context("no answer")?;
            return Err(anyhow!("no answer"));
        };
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        let fencing = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("fencing-status")
                .then(|| value.trim().to_owned())
        });
        Ok(Answer {
            status: status.context("no status")?,
            fencing,
        })
    }
}
