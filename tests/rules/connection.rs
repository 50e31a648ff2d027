//! One connection of the recording upstream: reads requests, and does with them what their scripts say.

use super::{End, PATIENCE, Script, Seen, Shared};
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

/// How often a held request looks whether it was released or its connection closed.
const STEP: Duration = Duration::from_millis(3);

/// One request on its connection.
pub(super) struct Exchange<'a> {
    shared: &'a Shared,
    stream: &'a mut BufReader<TcpStream>,
    index: usize,
    tag: String,
}

impl Exchange<'_> {
    /// Serves a connection until it ends, and gives it back to be closed.
    pub(super) fn serve(shared: &Shared, stream: TcpStream) -> TcpStream {
        let mut stream = BufReader::new(stream);
        while let Ok(Some(index)) = read_head(shared, &mut stream) {
            let tag = shared.state.lock().seen[index].tag.clone();
            let mut exchange = Exchange {
                shared,
                stream: &mut stream,
                index,
                tag,
            };
            let goes_on = exchange.run();
            if !matches!(goes_on, Ok(true)) {
                exchange.note(|seen| seen.closed_at = Some(Instant::now()));
                break;
            }
        }
        stream.into_inner()
    }

    fn run(&mut self) -> io::Result<bool> {
        let script = self.shared.state.lock().scripts.get(&self.tag).cloned();
        let script = script.unwrap_or_default();
        if script.early {
            self.answer(&script)?;
        }
        if script.hold_body {
            self.hold(false)?;
        }
        self.read_body()?;
        self.note(|seen| seen.whole_at = Some(Instant::now()));
        if script.hold {
            self.hold(true)?;
        }
        match script.end {
            End::Respond => {
                if !script.early {
                    self.answer(&script)?;
                }
                if let Some((_, end)) = script.raw {
                    self.send(end.as_bytes())?;
                }
                return Ok(!script.early);
            }
            End::Close => {}
            End::Reset => {
                let socket = socket2::SockRef::from(self.stream.get_ref());
                socket.set_linger(Some(Duration::ZERO))?;
            }
        }
        Ok(false)
    }

    fn note(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.shared.state.lock().seen[self.index]);
        self.shared.changed.notify_all();
    }

    /// Waits for the release of the tag. `watch`: notices that the other side closes.
    fn hold(&self, watch: bool) -> io::Result<()> {
        let end = Instant::now() + 2 * PATIENCE;
        while !self.shared.state.lock().released.contains(&self.tag) {
            let over = self.shared.stopping.load(Ordering::SeqCst) || Instant::now() > end;
            if over || (watch && has_ended(self.stream.get_ref())) {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            thread::sleep(STEP);
        }
        Ok(())
    }

    fn read_body(&mut self) -> io::Result<()> {
        let seen = self.shared.state.lock().seen[self.index].clone();
        if seen.header("Transfer-Encoding").is_none() {
            let length = seen.header("Content-Length").map_or("0", |length| length);
            return self.take(length.parse().map_err(invalid)?);
        }
        loop {
            let size = line(self.stream)?;
            let size = usize::from_str_radix(&size, 16).map_err(invalid)?;
            if size == 0 {
                break;
            }
            self.take(size)?;
            line(self.stream)?;
        }
        let trailers = headers(self.stream)?;
        self.note(|seen| seen.trailers = trailers);
        Ok(())
    }

    fn take(&mut self, mut left: usize) -> io::Result<()> {
        let mut buffer = [0; 16 * 1024];
        while left > 0 {
            let most = left.min(buffer.len());
            let length = self.stream.read(&mut buffer[..most])?;
            if length == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            left -= length;
            self.note(|seen| seen.body.extend_from_slice(&buffer[..length]));
        }
        Ok(())
    }

    fn answer(&mut self, script: &Script) -> io::Result<()> {
        if let Some((raw, _)) = script.raw {
            self.note(|seen| seen.answered_at = Some(Instant::now()));
            return self.send(raw.as_bytes());
        }
        let chunked = !script.trailers.is_empty();
        let mut head = format!("HTTP/1.1 {} Scripted\r\n", script.status);
        for (name, value) in &script.headers {
            head.extend([name, ": ", value, "\r\n"]);
        }
        if chunked {
            head.push_str("Transfer-Encoding: chunked\r\n\r\n");
        } else {
            let length = script.body.len() * script.times;
            let _ = write!(head, "Content-Length: {length}\r\n\r\n");
        }
        self.note(|seen| seen.answered_at = Some(Instant::now()));
        let is_head = self.shared.state.lock().seen[self.index].method == "HEAD";
        self.send(head.as_bytes())?;
        if is_head {
            return Ok(());
        }
        if chunked {
            self.send(format!("{:x}\r\n", script.body.len()).as_bytes())?;
            self.send(&script.body)?;
            self.send(b"\r\n0\r\n")?;
            for (name, value) in &script.trailers {
                self.send(format!("{name}: {value}\r\n").as_bytes())?;
            }
            return self.send(b"\r\n");
        }
        if script.hold_end {
            self.send(&script.body[..1])?;
            self.hold(true)?;
            return self.send(&script.body[1..]);
        }
        for _ in 0..script.times {
            self.send(&script.body)?;
        }
        Ok(())
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }
}

fn read_head(shared: &Shared, stream: &mut BufReader<TcpStream>) -> io::Result<Option<usize>> {
    let Ok(first) = line(stream) else {
        return Ok(None);
    };
    let mut words = first.split(' ').map(str::to_owned);
    let (method, target) = (words.next(), words.next());
    let mut seen = Seen {
        tag: String::new(),
        from: stream.get_ref().peer_addr()?.port(),
        method: method.unwrap_or_default(),
        target: target.unwrap_or_default(),
        headers: headers(stream)?,
        body: Vec::new(),
        trailers: Vec::new(),
        head_at: Instant::now(),
        whole_at: None,
        answered_at: None,
        closed_at: None,
    };
    if let Some(tag) = seen.header("X-Tag").map(str::to_owned) {
        seen.tag = tag;
    }
    let mut state = shared.state.lock();
    state.seen.push(seen);
    let index = state.seen.len() - 1;
    drop(state);
    shared.changed.notify_all();
    Ok(Some(index))
}

fn headers(stream: &mut BufReader<TcpStream>) -> io::Result<Vec<(String, String)>> {
    let mut headers = Vec::new();
    loop {
        let line = line(stream)?;
        let Some((name, value)) = line.split_once(':') else {
            return Ok(headers);
        };
        headers.push((name.to_owned(), value.trim().to_owned()));
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

/// Whether the other side has closed or reset. Reads nothing.
fn has_ended(stream: &TcpStream) -> bool {
    let mut byte = [0];
    if stream.set_nonblocking(true).is_err() {
        return true;
    }
    let peeked = stream.peek(&mut byte);
    let _ = stream.set_nonblocking(false);
    match peeked {
        Ok(length) => length == 0,
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    }
}

fn invalid(error: std::num::ParseIntError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
