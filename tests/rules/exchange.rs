//! The way to the upstream and back: what it costs, what breaks, and what that means.

use crate::support::Client;
use crate::upstream::{End, Script};
use crate::world::World;
use std::time::{Duration, Instant};

const MIB: u64 = 1024 * 1024;

#[test]
fn a_response_larger_than_memory_streams() {
    let w = World::new();
    let script = Script {
        body: vec![b'x'; 1024 * 1024],
        times: 256,
        ..Script::default()
    };
    w.up.script("read", script.clone());
    w.up.script("t5", script);
    let before = w.gw.peak_memory();
    for ask in [
        w.ask("GET", "/files/a").tag("read"),
        w.put(5).header("Content-Length", "0"),
    ] {
        let mut client = ask.open();
        assert_eq!(client.head().0, 200);
        client.skip(256 * MIB);
    }
    let grown = (w.gw.peak_memory() - before) / MIB;
    assert!(grown < 48, "memory grew by {grown} MiB");
}

#[test]
fn a_slow_reader_does_not_pile_up_the_response() {
    let w = World::new();
    let script = Script {
        body: vec![b'x'; 1024 * 1024],
        times: 128,
        ..Script::default()
    };
    w.up.script("read", script);
    let before = w.gw.peak_memory();
    let mut client = w.ask("GET", "/files/a").tag("read").open();
    client.head();
    crate::world::pause(500);
    let grown = (w.gw.peak_memory() - before) / MIB;
    assert!(grown < 32, "memory grew by {grown} MiB");
    client.skip(128 * MIB);
}

#[test]
fn a_response_that_breaks_off_is_not_completed() {
    let mut w = World::new();
    let script = Script {
        hold_end: true,
        body: vec![b'x'; 1000],
        ..Script::default()
    };
    w.up.script("t5", script);
    let mut client = w.put(5).header("Content-Length", "0").open();
    assert_eq!(client.head().0, 200);
    client.skip(1);
    w.up.stop();
    assert!(client.rest().len() < 999);
    w.up.start_again();
    w.put(6).send().answered(200);
}

#[test]
fn connect_refused_is_unsent_and_counted() {
    let mut w = World::with(|c| c.upstream("settle", "\"20s\""));
    w.up.stop();
    let answer = w.put(5).send();
    answer.refused(502, "unsent");
    assert_eq!(
        answer.header("Proxy-Status"),
        Some("fencegate; error=connection_refused")
    );
    let read = w.ask("GET", "/files/a").send();
    read.refused(502, "unsent");
    let unsent = w.metric(
        "fencegate_requests_total",
        &["route=\"files\"", "decision=\"unsent\""],
    );
    assert!((unsent - 2.0).abs() < 0.1, "{unsent}");
    w.gauge("fencegate_inflight_writes", 0);
    w.gauge("fencegate_unsettled_writes", 0);
    w.up.start_again();
    w.put(6).send().answered(200); // waits for no settle
    assert_eq!(w.fence("files/a").unwrap().0, "6");
}

#[test]
fn max_connections_bounds_what_is_open() {
    let w = World::with(|c| {
        c.server("workers", "1")
            .upstream("max_connections", "1")
            .upstream("connect_timeout", "\"1500ms\"")
            .upstream("settle", "\"20s\"")
    });
    w.up.script("t5", Script::hold());
    let held = w.put(5).start();
    w.up.whole_of("t5");
    let start = Instant::now();
    let answer = w.put_to("/files/b", 5).tag("late").send();
    answer.refused(503, "busy");
    assert!(answer.header("Retry-After").is_some());
    assert!(start.elapsed() >= Duration::from_millis(1500));
    // One that becomes free within that time is taken.
    let waiting = w.put_to("/files/c", 5).tag("next").start();
    crate::world::pause(100);
    w.up.release("t5");
    held.result().answered(200);
    waiting.result().answered(200);
    assert_eq!(w.up.count("late"), 0);
    assert!((w.rejections("busy") - 1.0).abs() < 0.1);
    w.put_to("/files/b", 6).send().answered(200); // what was refused was unsent
}

#[test]
fn a_write_that_waits_for_a_connection_is_superseded_at_once() {
    let w = World::with(|c| {
        c.server("workers", "1")
            .upstream("max_connections", "1")
            .upstream("connect_timeout", "\"20s\"")
            .upstream("settle", "\"20s\"")
    });
    w.up.script("held", Script::hold());
    let held = w.put_to("/files/b", 5).tag("held").start();
    w.up.whole_of("held");
    let older = w.put(5).start();
    w.gauge("fencegate_inflight_writes", 2);
    let newer = w.put(6).start();
    let answer = older.result();
    answer.refused(412, "superseded");
    let said = String::from_utf8(answer.body).unwrap();
    assert!(said.contains("it had no effect"), "{said}");
    w.up.release("held");
    held.result().answered(200);
    newer.result().answered(200); // within its drain_timeout: nothing was left to settle
    assert_eq!(w.up.whole(), ["held", "t6"]);
}

#[test]
fn a_connection_serves_one_request_after_the_other() {
    let w = World::with(|c| c.server("workers", "1").upstream("max_connections", "1"));
    let mut client = Client::connect(w.gw.port);
    for token in 1..=50_u64 {
        let headers = [("Fencing-Token", &*token.to_string()), ("X-Tag", "many")];
        client
            .request("PUT", "/files/a", &headers, b"data")
            .answered(200);
        client
            .request("GET", "/files/a", &[("X-Tag", "many")], b"")
            .answered(200);
    }
    client
        .request("DELETE", "/files/a", &[("Fencing-Token", "1")], b"")
        .refused(412, "stale");
    client.request("HEAD", "/files/a", &[], b"").answered(200);
    assert_eq!(w.up.count("many"), 100);
}

#[test]
fn a_stalled_body_is_answered_as_of_unknown_outcome() {
    let w = World::with(|c| c.upstream("body_idle_timeout", "\"300ms\""));
    let start = Instant::now();
    let mut client = w.put(5).half();
    let answer = client.response("PUT");
    answer.refused(408, "outcome-unknown");
    assert_eq!(
        answer.header("Proxy-Status"),
        Some("fencegate; error=http_request_error")
    );
    let seen = w.up.closed("t5");
    assert!(seen.whole_at.is_none());
    w.put(6).send().answered(200);
    let gap = w.up.head("t6").head_at - start;
    assert!(gap >= Duration::from_millis(600), "{gap:?}"); // the stall and the settle
}

#[test]
fn each_failure_names_its_error() {
    let w = World::with(|c| {
        c.upstream("response_timeout", "\"300ms\"")
            .upstream("settle", "\"10ms\"")
    });
    let error = |ask: crate::world::Ask, status: u16, word: &str, error: &str| {
        let answer = ask.send();
        answer.refused(status, word);
        let wanted = format!("fencegate; error={error}");
        assert_eq!(answer.header("Proxy-Status"), Some(&*wanted));
    };
    w.up.script("t5", Script::end(End::Close));
    w.up.script("t6", Script::end(End::Reset));
    w.up.script("t7", Script::hold());
    w.up.script("t9", Script::status(101)); // an upgrade that nobody asked for
    error(w.put(5), 502, "outcome-unknown", "connection_terminated");
    error(w.put(6), 502, "outcome-unknown", "connection_terminated");
    error(w.put(7), 504, "outcome-unknown", "http_response_timeout");
    error(w.put(9), 502, "outcome-unknown", "connection_terminated");
    w.up.script("read", Script::end(End::Reset));
    let read = w.ask("GET", "/files/a").tag("read");
    error(read, 502, "outcome-unknown", "connection_terminated");
    error(w.put(6), 412, "stale", "http_request_denied");
    error(
        w.ask("PUT", "/files/a"),
        428,
        "missing",
        "http_request_denied",
    );
    error(w.put(8).token(8), 400, "malformed", "http_request_error");
    error(w.ask("PUT", "/x"), 404, "unrouted", "http_request_denied");
}

#[test]
fn framing_has_one_reading_or_none() {
    let w = World::new();
    for headers in [
        [("Content-Length", "4"), ("Content-Length", "5")],
        [("Transfer-Encoding", "gzip"), ("X-Note", "no length")],
        [
            ("Transfer-Encoding", "chunked, gzip"),
            ("X-Note", "no length"),
        ],
        [("Content-Length", "+4"), ("X-Note", "no number")],
        [("Content-Length", "4"), ("Transfer-Encoding", "chunked")],
        [("Transfer-Encoding", "chunked"), ("Content-Length", "4")],
    ] {
        let mut ask = w.put(5).tag("odd");
        for (name, value) in headers {
            ask = ask.header(name, value);
        }
        let mut client = ask.open();
        client.send(b"4\r\ndata\r\n0\r\n\r\nGET /files/smuggled HTTP/1.1\r\nHost: a\r\n\r\n");
        let answer = client.response("PUT");
        if answer.status == 400 {
            assert_eq!(w.up.count("odd"), 0, "{headers:?}");
            continue;
        }
        // Both are there: the coding counts, the length goes, and nothing after it is served.
        assert_eq!(
            headers
                .iter()
                .filter(|(n, v)| *n == "Content-Length" || *v == "chunked")
                .count(),
            2,
            "{headers:?}: {answer}"
        );
        assert!(client.rest().is_empty(), "a second request was served");
    }
    for _ in 0..w.up.count("odd") {
        let seen = w.up.whole_of("odd");
        assert_eq!(seen.body, b"data");
        assert_eq!(seen.header("Content-Length"), None);
    }
}

#[test]
fn a_refusal_reaches_a_client_that_sends_its_body_first() {
    let w = World::new();
    w.put(5).send().answered(200);
    let body = vec![b'x'; 8 << 20];
    for _ in 0..3 {
        w.put(4)
            .tag("stale")
            .body(&body)
            .send()
            .refused(412, "stale");
        w.ask("PUT", "/x")
            .body(&body)
            .send()
            .refused(404, "unrouted");
    }
    assert_eq!(w.up.count("stale"), 0);
}

#[test]
fn a_cut_reaches_a_client_that_still_sends() {
    let w = World::new();
    let mut client = w.put(5).header("Content-Length", "8000000").open();
    let part = vec![b'x'; 1_000_000];
    client.send(&part);
    w.up.body("t5", part.len());
    w.put(6).send().answered(200);
    for _ in 0..7 {
        client.send(&part);
    }
    client.response("PUT").refused(412, "superseded");
    assert!(w.up.closed("t5").whole_at.is_none());
}

#[test]
fn no_100_continue_for_what_was_never_to_be_forwarded() {
    let mut w = World::new();
    w.put(5).send().answered(200);
    w.up.stop();
    for (token, status) in [(4, 412), (5, 502), (6, 502)] {
        let ask = w.put(token).header("Expect", "100-continue");
        let text = ask
            .header("Content-Length", "4")
            .header("Connection", "close");
        let text = String::from_utf8(text.open().rest()).unwrap();
        assert!(text.starts_with(&format!("HTTP/1.1 {status}")), "{text}");
    }
}

#[test]
fn a_body_that_is_too_large_is_refused_or_cut() {
    let w = World::with(|c| c.route("max_body", "\"100\"").server("h2c", "true"));
    w.put(5).body(&[b'x'; 100]).send().answered(200);
    // Said beforehand: nothing is raised.
    let large = w.put(9).body(&[b'x'; 101]);
    large.tag("large").send().refused(413, "forbidden");
    w.stays_away("large");
    w.put(5).send().answered(200);
    // Found on the way: the upstream does not see the end.
    let chunked = w
        .put(5)
        .tag("chunked")
        .header("Transfer-Encoding", "chunked");
    let mut client = chunked.open();
    client.send_chunk(&[b'x'; 60]);
    w.up.body("chunked", 60);
    client.send_chunk(&[b'x'; 60]);
    client.response("PUT").refused(413, "outcome-unknown");
    assert!(w.up.closed("chunked").whole_at.is_none());
    let h2 = crate::support::h2::H2::connect(w.gw.port);
    let mut stream = h2.start(
        "PUT",
        "/files/a",
        &[("Fencing-Token", "5"), ("X-Tag", "stream")],
    );
    stream.feed(&[b'x'; 60]);
    w.up.body("stream", 60);
    stream.feed(&[b'x'; 60]);
    stream.answer().refused(413, "outcome-unknown");
    assert!(w.up.closed("stream").whole_at.is_none());
}
