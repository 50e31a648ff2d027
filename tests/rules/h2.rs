//! HTTP/2 from clients: each stream is judged by itself, and what becomes of it is what would become
//! of a request on a connection of its own.

use crate::support::Client;
use crate::support::h2::H2;
use crate::upstream::Script;
use crate::world::{World, pause};
use http::HeaderMap;
use std::io::Write;
use std::net::TcpStream;

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
fn a_flood_of_resets_ends_its_connection_alone() {
    const CALM: [u8; 4] = [0, 0, 0, 11]; // ENHANCE_YOUR_CALM
    let w = world();
    let mut flood = TcpStream::connect(("127.0.0.1", w.gw.port)).unwrap();
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    for stream in (1..2000_u32).step_by(2) {
        let id = stream.to_be_bytes();
        // HEADERS of GET http://localhost/, and RST_STREAM.
        let head = [&b"\x82\x86\x84\x41\x09localhost"[..]].concat();
        bytes.extend([0, 0, u8::try_from(head.len()).unwrap(), 1, 5]);
        bytes.extend(id);
        bytes.extend(head);
        bytes.extend([0, 0, 4, 3, 0]);
        bytes.extend(id);
        bytes.extend([0, 0, 0, 8]);
    }
    let _ = flood.write_all(&bytes); // it may be cut off in the middle
    let answer = Client::from(flood).rest();
    let goaway = answer
        .windows(17)
        .any(|frame| frame[3] == 7 && frame[13..] == CALM);
    assert!(goaway, "{answer:?}");
    let other = H2::connect(w.gw.port);
    let put = other.request("PUT", "/files/a", &[("Fencing-Token", "5")], b"data");
    put.answered(200);
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
