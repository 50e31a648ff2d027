//! Bounds on what a client may send: how many headers, and how slowly.

use crate::support::h2::H2;
use crate::support::{Client, wait_until};
use crate::upstream::Script;
use crate::world::{Ask, World, pause};
use std::time::{Duration, Instant};

const TOO_LARGE: &[&str] = &["reason=\"too-large\""];

/// That many headers.
fn headers(count: usize) -> Vec<(String, String)> {
    let names = (0..count).map(|n| format!("X-{n}"));
    names.map(|name| (name, "y".to_owned())).collect()
}

fn pairs(headers: &[(String, String)]) -> Vec<(&str, &str)> {
    let pairs = headers.iter();
    pairs.map(|(name, value)| (&**name, &**value)).collect()
}

/// Asks for that many headers to be read, `Host` among them.
fn ask(w: &World, count: usize) -> Ask {
    let ask = w.ask("GET", "/files/a").tag("h1");
    let more = headers(count - 2).into_iter();
    more.fold(ask, |ask, (name, value)| ask.header(&name, &value))
}

fn counted(w: &World) -> f64 {
    w.metric("fencegate_bad_requests_total", TOO_LARGE)
}

#[test]
fn more_headers_than_a_request_may_have_are_431() {
    for most in [20, 100, 1000] {
        let w = World::with(|c| {
            c.server("h2c", "true")
                .server("max_headers", &most.to_string())
        });
        ask(&w, most).send().answered(200);
        assert!(counted(&w) < 0.1);
        let mut client = ask(&w, most + 1).open();
        client.send(b"GET /files/next HTTP/1.1\r\nHost: gate\r\n\r\n");
        let said = String::from_utf8(client.rest()).unwrap();
        assert!(said.starts_with("HTTP/1.1 431 "), "{said}");
        assert_eq!(said.matches("HTTP/1.1").count(), 1, "{said}");
        // The client may have seen the end of its connection before that was counted.
        wait_until("a count", || (counted(&w) - 1.0).abs() < 0.1);
        assert_eq!(w.up.count("h1"), 1);

        let h2 = H2::connect(w.gw.port);
        let get = |count| {
            let mut all = pairs(&[]);
            let more = headers(count - 1);
            all.push(("X-Tag", "h2"));
            all.extend(pairs(&more));
            h2.request("GET", "/files/a", &all, b"")
        };
        get(most).answered(200);
        let refused = get(most + 1);
        refused.refused(431, "malformed");
        assert!((counted(&w) - 2.0).abs() < 0.1);
        get(most).answered(200); // the connection goes on
        assert_eq!(w.up.count("h2"), 2);
    }
}

/// Sends a byte each tenth of a second until there is an answer, or it has been too long.
#[track_caller]
fn trickle(client: &mut Client) {
    let stream = client.stream();
    stream
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    let start = Instant::now();
    while stream.peek(&mut [0]).is_err() {
        assert!(start.elapsed() < Duration::from_secs(20), "it may go on");
        client.send(b"x");
    }
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
}

#[test]
fn a_body_that_trickles_is_treated_as_one_that_stalls() {
    let w = World::with(|c| {
        c.upstream("min_body_rate", "\"1KiB\"")
            .upstream("body_idle_timeout", "\"60s\"")
            .route("drain_timeout", "\"30s\"")
    });
    let start = Instant::now();
    let put = w.put(5).header("Content-Length", "100000");
    let mut client = put.open();
    w.up.head("t5");
    trickle(&mut client);
    client.response("PUT").refused(408, "outcome-unknown");
    let took = start.elapsed();
    assert!(took >= Duration::from_secs(5), "{took:?}");
    assert!(w.up.closed("t5").whole_at.is_none());
    w.put(6).send().answered(200);
}

#[test]
fn a_stream_that_trickles_is_treated_as_one_that_stalls() {
    let w = World::with(|c| {
        c.server("h2c", "true")
            .upstream("min_body_rate", "\"1KiB\"")
            .upstream("body_idle_timeout", "\"60s\"")
    });
    let h2 = H2::connect(w.gw.port);
    let named = [("Fencing-Token", "5"), ("X-Tag", "stream")];
    let mut stream = h2.start("PUT", "/files/a", &named);
    let start = Instant::now();
    while w.up.all_of("stream").iter().all(|s| s.closed_at.is_none()) {
        assert!(start.elapsed() < Duration::from_secs(20), "it may go on");
        stream.feed(b"x");
        pause(100);
    }
    assert!(start.elapsed() >= Duration::from_secs(5));
    stream.answer().refused(408, "outcome-unknown");
}

#[test]
fn an_upstream_that_takes_nothing_makes_no_client_slow() {
    let w = World::with(|c| {
        c.upstream("min_body_rate", "\"20MiB\"")
            .upstream("body_idle_timeout", "\"60s\"")
            .upstream("response_timeout", "\"60s\"")
    });
    let script = Script {
        hold_body: true,
        ..Script::default()
    };
    w.up.script("t5", script);
    let body = vec![b'x'; 64 << 20];
    let upload = w.put(5).body(&body).start();
    w.up.head("t5");
    // Meanwhile no more of it goes on than what the buffers of two connections hold: a second's worth.
    pause(9000);
    assert!(!upload.is_done(), "{}", upload.result());
    w.up.release("t5");
    upload.result().answered(200);
    assert_eq!(w.up.whole_of("t5").body.len(), body.len());
}
