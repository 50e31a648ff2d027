//! An upstream that answers each request with the SHA-256 of its body, and keeps no more of it.

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// A request whose head was read.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// The target.
    pub target: String,
    /// `Via`.
    pub via: String,
    /// `Fencing-Token`.
    pub token: String,
}

#[derive(Default)]
struct Shared {
    asked: Mutex<Vec<Asked>>,
    pause: Duration,
    ended: AtomicBool,
}

/// An upstream that runs until it is dropped.
pub struct Hashing {
    /// Where it listens.
    pub port: u16,
    shared: Arc<Shared>,
}

impl Hashing {
    /// Listens on a port of its own.
    pub fn start() -> Self {
        Self::slow(Duration::ZERO)
    }

    /// One that lets some time pass before it answers.
    pub fn slow(pause: Duration) -> Self {
        let port = super::free_port();
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let shared = Arc::new(Shared {
            pause,
            ..Shared::default()
        });
        let known = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if known.ended.load(Ordering::SeqCst) {
                    return;
                }
                let (known, stream) = (Arc::clone(&known), stream.unwrap());
                // A connection that breaks off is the other side's to explain.
                thread::spawn(move || serve(&known, BufReader::with_capacity(64 << 10, stream)));
            }
        });
        Self { port, shared }
    }

    /// The requests for that target, in the order of their heads.
    pub fn asked(&self, target: &str) -> Vec<Asked> {
        let asked = self.shared.asked.lock();
        let asked = asked.iter().filter(|asked| asked.target == target);
        asked.cloned().collect()
    }
}

impl Drop for Hashing {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port)); // wakes it
    }
}

fn serve(shared: &Shared, mut stream: BufReader<TcpStream>) -> io::Result<()> {
    stream.get_ref().set_nodelay(true)?;
    loop {
        let first = line(&mut stream)?;
        let mut asked = Asked {
            target: first.split(' ').nth(1).unwrap_or_default().to_owned(),
            ..Asked::default()
        };
        let (mut length, mut chunked) = (0, false);
        loop {
            let line = line(&mut stream)?;
            let Some((name, value)) = line.split_once(':') else {
                break;
            };
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().unwrap(),
                "transfer-encoding" => chunked = true,
                "via" => value.clone_into(&mut asked.via),
                "fencing-token" => value.clone_into(&mut asked.token),
                _ => {}
            }
        }
        shared.asked.lock().push(asked);
        let mut hash = Sha256::new();
        if chunked {
            loop {
                let size = u64::from_str_radix(&line(&mut stream)?, 16).unwrap();
                take(&mut stream, size, &mut hash)?;
                line(&mut stream)?; // the end of the chunk, or of a body without trailers
                if size == 0 {
                    break;
                }
            }
        } else {
            take(&mut stream, length, &mut hash)?;
        }
        thread::sleep(shared.pause);
        let body = hex(&hash.finalize());
        let head = format!(
            "HTTP/1.1 201 Created\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let bodiless = first.starts_with("HEAD ");
        let answer = if bodiless { head } else { head + &body };
        stream.get_mut().write_all(answer.as_bytes())?;
    }
}

fn line(stream: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    line.truncate(line.trim_end().len());
    Ok(line)
}

fn take(stream: &mut BufReader<TcpStream>, mut left: u64, hash: &mut Sha256) -> io::Result<()> {
    let mut block = vec![0; 64 << 10];
    while left > 0 {
        let most = usize::try_from(left).map_or(block.len(), |left| left.min(block.len()));
        let length = stream.read(&mut block[..most])?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        hash.update(&block[..length]);
        left -= length as u64;
    }
    Ok(())
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        write!(text, "{byte:02x}").unwrap();
    }
    text
}
