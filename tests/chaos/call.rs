//! A client that bears everything: it sends a request as far as it gets, and says what came of it.

use crate::plan::{Body, Leaves, Task};
use socket2::SockRef;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

/// A request that was sent, and what its client knows of it.
#[derive(Clone, Debug)]
pub struct Call {
    /// The request's name.
    pub tag: String,
    /// Whether it is a read.
    pub read: bool,
    /// The token that it showed.
    pub token: Option<u64>,
    /// What came of it.
    pub end: Ended,
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// An answer.
    Answer {
        /// The status.
        status: u16,
        /// The gateway's own word for it: `Fencing-Status`; empty where there is none.
        word: String,
        /// Whether the gateway made the answer.
        own: bool,
        /// Whether its end came too.
        whole: bool,
    },
    /// The client left.
    Left,
    /// The connection broke.
    Lost,
    /// There was no connection: nothing was sent.
    Unsent,
}

/// A client with a connection that it keeps as long as it holds.
pub struct Caller {
    port: u16,
    stream: Option<BufReader<TcpStream>>,
}

impl Caller {
    /// A client of the gateway at that port.
    pub const fn new(port: u16) -> Self {
        Self { port, stream: None }
    }

    /// Sends a request and waits for what comes of it.
    pub fn call(&mut self, task: &Task) -> Call {
        let (end, last) = if self.connect() {
            self.exchange(task).unwrap_or((Ended::Lost, true))
        } else {
            (Ended::Unsent, true)
        };
        if last {
            self.stream = None;
        }
        Call {
            tag: task.tag.clone(),
            read: task.method == "GET",
            token: task.token,
            end,
        }
    }

    fn connect(&mut self) -> bool {
        if self.stream.is_none() {
            let stream = TcpStream::connect(("127.0.0.1", self.port)).ok();
            self.stream = stream.map(|stream| {
                let patience = Some(Duration::from_secs(5));
                stream.set_read_timeout(patience).unwrap();
                stream.set_write_timeout(patience).unwrap();
                stream.set_nodelay(true).unwrap();
                BufReader::new(stream)
            });
        }
        self.stream.is_some()
    }

    /// What came of it, and whether the connection is of no use any more.
    fn exchange(&mut self, task: &Task) -> io::Result<(Ended, bool)> {
        let stream = self.stream.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        stream.get_mut().write_all(task.headers().as_bytes())?;
        if task.leaves == Some(Leaves::AtHead) {
            return Ok((self.leave(), true));
        }
        // A refusal may come before the body was taken: the answer counts then.
        let halfway = task.leaves == Some(Leaves::Halfway);
        if send_body(stream.get_mut(), task.body, halfway).is_ok() && halfway {
            return Ok((self.leave(), true));
        }
        if let Some(Leaves::Waiting(time)) = task.leaves {
            thread::sleep(time);
            return Ok((self.leave(), true));
        }
        let (answer, last) = read_answer(stream)?;
        // A refusal that came before the body was taken ends the connection, and may not say so.
        let refused = matches!(answer, Ended::Answer { own: true, .. });
        Ok((answer, last || (refused && task.body != Body::None)))
    }

    /// Ends the connection with RST.
    fn leave(&mut self) -> Ended {
        if let Some(stream) = self.stream.take() {
            let _ = SockRef::from(stream.get_ref()).set_linger(Some(Duration::ZERO));
        }
        Ended::Left
    }
}

fn send_body(stream: &mut TcpStream, body: Body, halfway: bool) -> io::Result<()> {
    let part = |whole: usize| if halfway { whole / 2 } else { whole };
    match body {
        Body::None => Ok(()),
        Body::Sized(size) => stream.write_all(&vec![b'x'; part(size)]),
        Body::Chunked(count, pause) => {
            let chunk = format!("3e8\r\n{}\r\n", "x".repeat(1000));
            for _ in 0..part(count as usize) {
                stream.write_all(chunk.as_bytes())?;
                thread::sleep(pause);
            }
            if halfway {
                stream.write_all(&chunk.as_bytes()[..500])
            } else {
                stream.write_all(b"0\r\n\r\n")
            }
        }
    }
}

fn read_answer(stream: &mut BufReader<TcpStream>) -> io::Result<(Ended, bool)> {
    let first = line(stream)?;
    let status = first.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.ok_or(io::ErrorKind::InvalidData)?;
    let (mut word, mut own, mut length, mut last) = (String::new(), false, 0, false);
    loop {
        let line = line(stream)?;
        let Some((name, value)) = line.split_once(':') else {
            break;
        };
        match &*name.to_ascii_lowercase() {
            "fencing-status" => value.trim().clone_into(&mut word),
            "proxy-status" => own = true,
            "content-length" => length = value.trim().parse().unwrap(),
            "connection" => last = value.trim() == "close",
            _ => {}
        }
    }
    let mut body = vec![0; length];
    let whole = stream.read_exact(&mut body).is_ok();
    let answer = Ended::Answer {
        status,
        word,
        own,
        whole,
    };
    Ok((answer, last || !whole))
}

fn line(stream: &mut BufReader<TcpStream>) -> io::Result<String> {
    let mut line = String::new();
    if stream.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    line.truncate(line.trim_end().len());
    Ok(line)
}
