//! HTTP/2 from clients: each stream is judged by itself, and what becomes of it is what would become
//! of a request on a connection of its own.

use crate::support::Client;
use crate::support::h2::H2;
use crate::upstream::Script;
use crate::world::{World, pause};
use http::HeaderMap;
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

fn world() -> World {
    World::with(|c| c.server("h2c", "true").server("workers", "1"))
}

#[test]
fn each_stream_is_judged_by_itself() {
    let w = world();
    let h2 = H2::connect(w.gw.port);
    let put =
        |token: &str, path: &str| h2.request("PUT", path, &[("Fencing-Token", token)], b"data");
    let raised = put("5", "/files/a");
    assert_eq!(
        raised.answered(200).header("Fencing-Status"),
        Some("raised")
    );
    put("4", "/files/a").refused(412, "stale");
    put("4", "/files/b").answered(200);
    let again = put("5", "/files/a");
    assert_eq!(
        again.answered(200).header("Fencing-Status"),
        Some("admitted")
    );
    h2.request("PUT", "/files/a", &[], b"data")
        .refused(428, "missing");
    h2.request("GET", "/files/a", &[], b"").answered(200);
    h2.request("GET", "/elsewhere", &[], b"")
        .refused(404, "unrouted");
    // The same port speaks HTTP/1.1 too.
    w.put(4).send().refused(412, "stale");
}

#[test]
fn a_raise_cuts_a_stream_of_the_same_connection() {
    let w = world();
    let h2 = H2::connect(w.gw.port);
    let mut half = h2.start(
        "PUT",
        "/files/a",
        &[("Fencing-Token", "5"), ("X-Tag", "half")],
    );
    half.feed(b"first half");
    w.up.body("half", 10);
    let newer = h2.request("PUT", "/files/a", &[("Fencing-Token", "6")], b"data");
    newer.answered(200);
    half.answer().refused(412, "superseded");
    assert!(w.up.closed("half").whole_at.is_none());
}

#[test]
fn what_goes_upstream_is_a_plain_request() {
    let w = world();
    let h2 = H2::connect(w.gw.port);
    let headers = [
        ("Fencing-Token", "5"),
        ("X-Tag", "t"),
        ("Cookie", "a=1"),
        ("Cookie", "b=2"),
    ];
    h2.request("PUT", "/files/a%20b?x=1", &headers, b"data")
        .answered(200);
    let seen = w.up.head("t");
    let host = format!("localhost:{}", w.gw.port);
    assert_eq!(seen.all("Host"), [host.as_str()]);
    assert_eq!(seen.all("Cookie"), ["a=1; b=2"]);
    assert_eq!(seen.all("Via"), ["2 fencegate"]);
    assert_eq!(seen.all("X-Forwarded-Proto"), ["http"]);
    assert_eq!(seen.target, "/files/a%20b?x=1");
    assert!(seen.headers.iter().all(|(name, _)| !name.starts_with(':')));
}

#[test]
fn a_stream_that_is_reset_in_its_body_never_ends_upstream() {
    let w = World::with(|c| {
        c.server("h2c", "true")
            .upstream("settle_incomplete", "\"0s\"")
    });
    let h2 = H2::connect(w.gw.port);
    let mut half = h2.start(
        "PUT",
        "/files/a",
        &[("Fencing-Token", "5"), ("X-Tag", "half")],
    );
    half.feed(b"first half");
    w.up.body("half", 10);
    half.reset();
    assert!(w.up.closed("half").whole_at.is_none());
    h2.request("PUT", "/files/a", &[("Fencing-Token", "6")], b"data")
        .answered(200);
}

#[test]
fn a_stream_that_is_reset_while_it_waits_is_not_forwarded_and_its_fence_stays() {
    let w = world();
    let h2 = H2::connect(w.gw.port);
    w.up.script("held", Script::hold());
    let held = w.put(5).tag("held").start();
    w.up.whole_of("held");
    let waits = [
        ("Fencing-Token", "6"),
        ("X-Tag", "waits"),
        ("Content-Length", "0"),
    ];
    let mut waiting = h2.start("PUT", "/files/a", &waits);
    waiting.end();
    w.waiting(1);
    waiting.reset();
    w.waiting(0);
    w.up.release("held");
    held.result().answered(200);
    w.stays_away("waits");
    w.put(5).tag("late").send().refused(412, "stale");
}

#[test]
fn a_stream_that_is_reset_once_it_was_sent_runs_on() {
    let w = world();
    let h2 = H2::connect(w.gw.port);
    w.up.script("sent", Script::hold());
    let headers = [
        ("Fencing-Token", "5"),
        ("X-Tag", "sent"),
        ("Content-Length", "4"),
    ];
    let mut sent = h2.start("PUT", "/files/a", &headers);
    sent.feed(b"data");
    sent.end();
    w.up.whole_of("sent");
    sent.reset();
    let newer = w.put(6).start();
    w.waiting(1);
    pause(500); // longer than the settle: the exchange still runs
    assert!(!newer.is_done());
    w.up.release("sent");
    newer.result().answered(200);
}

#[test]
fn a_refusal_comes_before_the_body_and_the_connection_goes_on() {
    static PART: [u8; 16 * 1024] = [b'x'; 16 * 1024];
    let w = world();
    w.put(5).send().answered(200);
    let h2 = H2::connect(w.gw.port);
    let headers = [("Fencing-Token", "4"), ("Content-Length", "500000000")];
    let mut stale = h2.start("PUT", "/files/a", &headers);
    stale.feed(&PART);
    stale.answer().refused(412, "stale");
    h2.request("PUT", "/files/a", &[("Fencing-Token", "5")], b"data")
        .answered(200);
}

#[test]
fn trailers_go_upstream_without_the_token() {
    let w = world();
    let h2 = H2::connect(w.gw.port);
    let mut put = h2.start(
        "PUT",
        "/files/a",
        &[("Fencing-Token", "5"), ("X-Tag", "t"), ("Trailer", "X-Sum")],
    );
    put.feed(b"data");
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "1".parse().unwrap());
    trailers.insert("fencing-token", "9".parse().unwrap());
    put.trailers(trailers);
    put.answer().answered(200);
    let seen = w.up.whole_of("t");
    assert!(
        seen.trailers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case("x-sum")),
        "{:?}",
        seen.trailers
    );
    assert!(
        !seen
            .trailers
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case("fencing-token"))
    );
}

#[test]
fn a_connection_that_is_quiet_is_told_to_go() {
    let w = World::with(|c| c.server("h2c", "true").server("header_timeout", "\"1s\""));
    let h2 = H2::connect(w.gw.port);
    h2.request("PUT", "/files/a", &[("Fencing-Token", "5")], b"data")
        .answered(200);
    assert_eq!(h2.ended(), Ok(()));
}

#[test]
fn a_whole_body_without_a_length_counts_as_whole() {
    let w = World::with(|c| {
        c.server("h2c", "true")
            .upstream("settle_incomplete", "\"0s\"")
            .upstream("settle", "\"8s\"")
    });
    for (path, parts) in [("/files/a", &["data"][..]), ("/files/b", &["da", "ta"])] {
        let h2 = H2::connect(w.gw.port);
        let tag = format!("older{path}");
        w.up.script(&tag, Script::hold());
        let mut older = h2.start("PUT", path, &[("Fencing-Token", "5"), ("X-Tag", &tag)]);
        for part in parts {
            older.feed(part.as_bytes());
        }
        older.end();
        w.up.whole_of(&tag);
        let newer = w.put_to(path, 6).tag("newer").start();
        w.waiting(1);
        pause(300); // were it taken for one that was not whole, it would be cut, and this one go
        assert!(!newer.is_done());
        w.up.release(&tag);
        older.answer().answered(200);
        newer.result().answered(200);
    }
}

#[test]
fn a_stream_that_is_reset_without_an_error_never_ends_upstream() {
    let w = world();
    let mut raw = Raw::connect(w.gw.port, &[]);
    raw.head(1, "PUT", &[("fencing-token", "5"), ("x-tag", "half")]);
    raw.frame(0, 0, 1, b"first half");
    w.up.body("half", 10);
    raw.frame(3, 0, 1, &[0, 0, 0, 0]); // RST_STREAM, NO_ERROR
    assert!(w.up.closed("half").whole_at.is_none());
}

#[test]
fn a_stream_whose_client_takes_nothing_is_let_go_alone() {
    let w = World::with(|c| {
        c.server("h2c", "true")
            .server("workers", "1")
            .server("header_timeout", "\"1s\"")
            .upstream("max_connections", "1")
            .upstream("connect_timeout", "\"20s\"")
    });
    let script = Script {
        body: vec![b'x'; 1024 * 1024],
        times: 8,
        ..Script::default()
    };
    w.up.script("large", script);
    let mut raw = Raw::connect(w.gw.port, &[0, 4, 0, 0, 0, 0]); // no window for responses
    raw.head(1, "GET", &[("x-tag", "large")]);
    raw.frame(0, 1, 1, b"");
    w.up.head("large");
    // It holds the only connection to the upstream.
    w.ask("GET", "/files/b").send().answered(200);
}

#[test]
fn streams_that_wait_do_not_hold_up_the_others() {
    static PART: [u8; 16 * 1024] = [b'x'; 16 * 1024];
    let w = world();
    let h2 = H2::connect(w.gw.port);
    w.up.script("held", Script::hold());
    let held = w.put(5).tag("held").start();
    w.up.whole_of("held");
    let waits = |_| {
        let mut stream = h2.start("PUT", "/files/a", &[("Fencing-Token", "6")]);
        for _ in 0..16 {
            stream.feed(&PART);
        }
        stream
    };
    let waiting: Vec<_> = (0..6).map(waits).collect();
    w.waiting(6);
    let other = h2.request("PUT", "/files/b", &[("Fencing-Token", "5")], &PART);
    other.answered(200);
    w.up.release("held");
    held.result().answered(200);
    for mut stream in waiting {
        stream.end();
        stream.answer().answered(200);
    }
}

#[test]
fn a_refused_head_has_no_body() {
    let w = world();
    let h2 = H2::connect(w.gw.port);
    let refused = h2.request("HEAD", "/elsewhere", &[], b"");
    assert!(refused.refused(404, "unrouted").body.is_empty());
    h2.request("GET", "/files/a", &[], b"").answered(200);
}

#[test]
fn a_length_that_comes_twice_goes_on_once() {
    let w = world();
    let headers = [
        ("Fencing-Token", "5"),
        ("X-Tag", "t"),
        ("Content-Length", "4"),
        ("Content-Length", "4"),
    ];
    let h2 = H2::connect(w.gw.port);
    h2.request("PUT", "/files/a", &headers, b"data")
        .answered(200);
    assert_eq!(w.up.head("t").all("Content-Length"), ["4"]);
}

#[test]
fn a_stop_does_not_wait_for_clients_that_say_nothing() {
    let mut w = world();
    let silent = TcpStream::connect(("127.0.0.1", w.gw.port)).unwrap();
    let mut half = Client::connect(w.gw.port);
    half.send(b"PUT /files/a HTTP/1.1\r\nHo");
    let deaf = Raw::connect(w.gw.port, &[]); // it will not answer the PING behind GOAWAY
    w.put(5).send().answered(200);
    let start = Instant::now();
    assert!(w.gw.stop().success());
    let took = start.elapsed();
    assert!(took < Duration::from_secs(8), "{took:?}"); // the header_timeout is 30 s
    drop((silent, half, deaf));
}

#[test]
fn a_flood_of_resets_ends_its_connection_alone() {
    const CALM: [u8; 4] = [0, 0, 0, 11]; // ENHANCE_YOUR_CALM
    let w = world();
    let mut flood = Raw::connect(w.gw.port, &[]);
    flood.hold = Some(Vec::new());
    for stream in (1..2000).step_by(2) {
        flood.head(stream, "GET", &[]);
        flood.frame(3, 0, stream, &[0, 0, 0, 8]); // RST_STREAM, CANCEL
    }
    let answer = flood.rest();
    let goaway = answer
        .windows(17)
        .any(|frame| frame[3] == 7 && frame[13..] == CALM);
    assert!(goaway, "{answer:?}");
    let other = H2::connect(w.gw.port);
    let put = other.request("PUT", "/files/a", &[("Fencing-Token", "5")], b"data");
    put.answered(200);
}

/// An HTTP/2 connection as bytes.
struct Raw {
    stream: TcpStream,
    /// What is sent at once, at the end.
    hold: Option<Vec<u8>>,
}

impl Raw {
    fn connect(port: u16, settings: &[u8]) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let mut raw = Self { stream, hold: None };
        raw.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        raw.frame(4, 0, 0, settings);
        raw
    }

    fn send(&mut self, bytes: &[u8]) {
        match &mut self.hold {
            Some(held) => held.extend_from_slice(bytes),
            None => self.stream.write_all(bytes).unwrap(),
        }
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
        let head = [0, length[0], length[1], kind, flags];
        self.send(&[&head[..], &stream.to_be_bytes(), payload].concat());
    }

    /// HEADERS that do not end the stream, for /files/a at localhost.
    fn head(&mut self, stream: u32, method: &str, headers: &[(&str, &str)]) {
        let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
        let mut block = [&[0x42][..], &text(method), &[0x86, 0x44], &text("/files/a")].concat();
        block.extend([&[0x41][..], &text("localhost")].concat());
        for (name, value) in headers {
            block.extend([&[0x40][..], &text(name), &text(value)].concat());
        }
        self.frame(1, 4, stream, &block);
    }

    /// Sends what was held, and reads to the end.
    fn rest(mut self) -> Vec<u8> {
        if let Some(held) = self.hold.take() {
            let _ = self.stream.write_all(&held); // it may be cut off in the middle
        }
        Client::from(self.stream).rest()
    }
}

#[test]
fn http2_from_the_first_byte_must_be_allowed() {
    let w = World::new();
    let mut stream = TcpStream::connect(("127.0.0.1", w.gw.port)).unwrap();
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        .unwrap();
    let mut client = Client::from(stream);
    let answer = client.rest();
    assert!(!answer.starts_with(&[0, 0]), "{answer:?}"); // no frame
    w.put(5).send().answered(200);
}
