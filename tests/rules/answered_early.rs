//! A client that was answered before its request was read: it gets to read its answer, and it is told
//! whether its connection goes on.

use crate::support::h2::{H2, Stream};
use crate::support::{Client, Response, wait_until};
use crate::upstream::Script;
use crate::world::{Ask, World, pause};
use std::time::{Duration, Instant};

static PART: [u8; 64 * 1024] = [b'x'; 64 * 1024];

/// Sends far more than a client may send ahead, and then the end, as one does that reads its answer only
/// after that.
#[track_caller]
fn goes_on(mut stream: Stream) {
    for _ in 0..32 {
        assert!(stream.feed(&PART), "the stream was reset");
    }
    stream.end();
}

#[test]
fn the_rest_of_a_refused_stream_is_read_and_dropped() {
    let w = World::with(|c| c.server("h2c", "true").server("workers", "1"));
    let h2 = H2::connect(w.gw.port);
    let start = |path, token, tag| {
        let headers = [("Fencing-Token", token), ("X-Tag", tag)];
        h2.start("PUT", path, &headers)
    };
    w.put(5).send().answered(200);
    let stale = start("/files/a", "4", "stale");
    stale.answer().refused(412, "stale");
    goes_on(stale);
    // Malformed: HTTP/2 leaves nothing behind that could be read in another way.
    let malformed = start("/files//a", "5", "malformed");
    malformed.answer().refused(400, "malformed");
    goes_on(malformed);
    // Cut.
    let mut half = start("/files/a", "5", "half");
    half.feed(b"first half");
    w.up.body("half", 10);
    w.put(6).send().answered(200);
    half.answer().refused(412, "superseded");
    goes_on(half);
    assert!(w.up.closed("half").whole_at.is_none());
    // Turned down by the upstream.
    let early = Script {
        early: true,
        ..Script::status(413)
    };
    w.up.script("early", early);
    let early = start("/files/b", "5", "early");
    early.answer().answered(413);
    goes_on(early);
    w.stays_away("stale");
    w.stays_away("malformed");
}

#[test]
fn what_a_refused_client_still_sends_is_read_for_a_while_only() {
    let w = World::with(|c| c.server("h2c", "true").server("workers", "1"));
    w.put(5).send().answered(200);
    let h2 = H2::connect(w.gw.port);
    let start = || {
        let stale = h2.start("PUT", "/files/a", &[("Fencing-Token", "4")]);
        stale.answer().refused(412, "stale");
        stale
    };
    let silent = start();
    wait_until("the silent stream to be reset", || silent.is_over());
    // Those that never end, in steps that are no pause.
    let mut stream = start();
    let (mut client, _) = answer(&w.put(4).header("Content-Length", "1000000000"));
    let end = Instant::now() + Duration::from_mins(1);
    let (mut stream_goes_on, mut client_goes_on) = (true, true);
    while stream_goes_on || client_goes_on {
        assert!(Instant::now() < end, "one is still read");
        stream_goes_on = stream_goes_on && stream.feed(b"more");
        client_goes_on = client_goes_on && client.try_send(b"more");
        pause(100);
    }
    let other = h2.request("PUT", "/files/a", &[("Fencing-Token", "5")], b"data");
    other.answered(200);
}

/// Sends a head alone, and reads the answer to it.
fn answer(ask: &Ask) -> (Client, Response) {
    let mut client = ask.open();
    let response = client.response("PUT");
    (client, response)
}

#[test]
fn a_small_body_that_comes_after_its_refusal_leaves_the_connection_as_it_is() {
    let w = World::new();
    w.put(5).send().answered(200);
    let (mut client, refused) = answer(&w.put(4).header("Content-Length", "4"));
    assert_eq!(refused.refused(412, "stale").header("Connection"), None);
    client.send(b"data");
    let again = client.request("PUT", "/files/a", &[("Fencing-Token", "5")], b"data");
    again.answered(200);
    // The same where it was cut.
    let mut half = w.put(5).tag("half").half();
    w.up.body("half", 50);
    w.put(6).send().answered(200);
    let refused = half.response("PUT");
    assert_eq!(
        refused.refused(412, "superseded").header("Connection"),
        None
    );
    half.send(&[b'x'; 50]);
    let again = half.request("PUT", "/files/a", &[("Fencing-Token", "6")], b"data");
    again.answered(200);
}

#[test]
fn a_client_is_told_that_its_connection_ends_with_its_refusal() {
    let w = World::new();
    w.put(5).send().answered(200);
    let early = Script {
        early: true,
        ..Script::status(413)
    };
    w.up.script("early", early);
    let large = |ask: Ask| ask.header("Content-Length", "1000000");
    let small = |ask: Ask| ask.header("Content-Length", "4");
    for (ask, status) in [
        (large(w.put(4)), 412),
        (w.put(4).header("Transfer-Encoding", "chunked"), 412),
        // It may send its body or not.
        (small(w.put(4)).header("Expect", "100-continue"), 412),
        (large(w.put(5).tag("early")), 413),
    ] {
        let (_, refused) = answer(&ask);
        assert_eq!(refused.status, status, "{refused}");
        assert_eq!(refused.header("Connection"), Some("close"), "{refused}");
    }
    // A request that was read to its end leaves the connection as it is.
    w.up.script("whole", Script::status(404));
    let mut client = Client::connect(w.gw.port);
    let headers = [("Fencing-Token", "5"), ("X-Tag", "whole")];
    let answered = client.request("PUT", "/files/a", &headers, &PART);
    assert_eq!(answered.answered(404).header("Connection"), None);
    client.request("GET", "/files/a", &[], b"").answered(200);
}
