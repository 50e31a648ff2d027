//! An HTTP/1.1 client over a plain socket: it sends exactly what a test says, and reads one response
//! at a time.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// One connection.
pub struct Client {
    stream: BufReader<TcpStream>,
    port: u16,
}

/// What came back.
#[derive(Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The headers as they came.
    pub headers: Vec<(String, String)>,
    /// The body, chunks joined.
    pub body: Vec<u8>,
}

impl From<TcpStream> for Client {
    fn from(stream: TcpStream) -> Self {
        let port = stream.peer_addr().unwrap().port();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        Self {
            stream: BufReader::new(stream),
            port,
        }
    }
}

impl Client {
    /// Connects to a loopback port.
    #[track_caller]
    pub fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let patience = Some(Duration::from_secs(30));
        stream.set_read_timeout(patience).unwrap();
        stream.set_write_timeout(patience).unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream: BufReader::new(stream),
            port,
        }
    }

    /// Reads as many bytes as fit.
    #[track_caller]
    pub fn read_exact(&mut self, bytes: &mut [u8]) {
        self.stream.read_exact(bytes).unwrap();
    }

    /// The socket, to send on from another thread.
    pub fn stream(&self) -> TcpStream {
        self.stream.get_ref().try_clone().unwrap()
    }

    /// Sends a whole request and reads its response. `Host` is added where the headers have none,
    /// and `Content-Length` where there is a body or the method wants one.
    #[track_caller]
    pub fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Response {
        let length = body.len().to_string();
        let mut headers = headers.to_vec();
        if !body.is_empty() || matches!(method, "PUT" | "POST" | "PATCH") {
            headers.push(("Content-Length", &length));
        }
        self.send_head(method, path, &headers);
        self.send(body);
        self.response(method)
    }

    /// Sends a request line and headers, `Host` added where there is none.
    #[track_caller]
    pub fn send_head(&mut self, method: &str, path: &str, headers: &[(&str, &str)]) {
        let mut head = format!("{method} {path} HTTP/1.1\r\n");
        if !headers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case("host"))
        {
            head.extend(["Host: 127.0.0.1:", &self.port.to_string(), "\r\n"]);
        }
        for (name, value) in headers {
            head.extend([name, ": ", value, "\r\n"]);
        }
        self.send((head + "\r\n").as_bytes());
    }

    /// Sends bytes as they are.
    #[track_caller]
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    /// The same where the connection may have been closed: false then.
    pub fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.stream.get_mut().write_all(bytes).is_ok()
    }

    /// Sends one chunk of a chunked body; an empty one ends it.
    #[track_caller]
    pub fn send_chunk(&mut self, bytes: &[u8]) {
        self.send(format!("{:x}\r\n", bytes.len()).as_bytes());
        self.send(bytes);
        self.send(b"\r\n");
    }

    /// Reads the final response to a request of that method; interim ones are skipped.
    #[track_caller]
    pub fn response(&mut self, method: &str) -> Response {
        loop {
            let (status, headers) = self.head();
            if status >= 200 {
                let mut response = Response {
                    status,
                    headers,
                    body: Vec::new(),
                };
                if method != "HEAD" && status != 204 && status != 304 {
                    response.body = self.body(&response);
                }
                return response;
            }
        }
    }

    /// Reads all that still comes until the connection ends, in order or not.
    pub fn rest(&mut self) -> Vec<u8> {
        let (mut all, mut buffer) = (Vec::new(), [0; 16 * 1024]);
        while let Ok(length @ 1..) = self.stream.read(&mut buffer) {
            all.extend_from_slice(&buffer[..length]);
        }
        all
    }

    /// Reads so many bytes and lets them go.
    #[track_caller]
    pub fn skip(&mut self, count: u64) {
        let skipped = std::io::copy(&mut (&mut self.stream).take(count), &mut std::io::sink());
        assert_eq!(skipped.unwrap(), count, "the connection ended early");
    }

    /// Reads the head of a response: its status and headers.
    #[track_caller]
    pub fn head(&mut self) -> (u16, Vec<(String, String)>) {
        let first = self.line();
        let status = first.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.unwrap_or_else(|| panic!("not a status line: {first:?}"));
        let mut headers = Vec::new();
        loop {
            let line = self.line();
            let Some((name, value)) = line.split_once(':') else {
                assert!(line.is_empty(), "not a header: {line:?}");
                return (status, headers);
            };
            headers.push((name.to_owned(), value.trim().to_owned()));
        }
    }

    #[track_caller]
    fn line(&mut self) -> String {
        let mut line = String::new();
        let length = self.stream.read_line(&mut line).unwrap();
        assert!(length > 0, "the connection was closed without a response");
        line.truncate(line.trim_end().len());
        line
    }

    #[track_caller]
    fn body(&mut self, response: &Response) -> Vec<u8> {
        let mut body = Vec::new();
        if response
            .header("Transfer-Encoding")
            .is_some_and(|coding| coding.contains("chunked"))
        {
            loop {
                let size = self.line();
                let size = usize::from_str_radix(size.split(';').next().unwrap_or_default(), 16);
                let start = body.len();
                body.resize(start + size.unwrap(), 0);
                self.stream.read_exact(&mut body[start..]).unwrap();
                assert_eq!(
                    self.line(),
                    "",
                    "a chunk did not end, or there was a trailer"
                );
                if body.len() == start {
                    return body;
                }
            }
        } else if let Some(length) = response.header("Content-Length") {
            body.resize(length.parse().unwrap(), 0);
            self.stream.read_exact(&mut body).unwrap();
        } else {
            self.stream.read_to_end(&mut body).unwrap();
        }
        body
    }
}

impl Response {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self
            .headers
            .iter()
            .filter(|(n, _)| n.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value.as_str())
    }

    /// Checks that the request was forwarded, and how the upstream answered.
    #[track_caller]
    pub fn answered(&self, status: u16) -> &Self {
        assert!(
            self.status == status,
            "wanted the upstream's {status}, got {self}"
        );
        assert!(
            self.header("Proxy-Status").is_none(),
            "wanted the upstream's {status}, got {self}"
        );
        self
    }

    /// Checks that the gateway refused, and with which `Fencing-Status`.
    #[track_caller]
    pub fn refused(&self, status: u16, word: &str) -> &Self {
        let said = self.header("Fencing-Status");
        assert!(
            (self.status, said) == (status, Some(word)),
            "wanted {status} {word}, got {self}"
        );
        assert!(
            self.header("Proxy-Status").is_some(),
            "a refusal without Proxy-Status: {self}"
        );
        self
    }
}

impl std::fmt::Display for Response {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}", self.status)?;
        for (name, value) in &self.headers {
            writeln!(f, "  {name}: {value}")?;
        }
        write!(
            f,
            "  {}",
            self.body[..self.body.len().min(300)].escape_ascii()
        )
    }
}
