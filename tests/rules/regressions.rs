//! Faults that were there once: what bodies and answers are, what is judged by which route, and what is
//! trusted after a start. Each test fails without its fix.

use crate::support::wait_until;
use crate::upstream::Script;
use crate::world::World;
use std::time::{Duration, Instant};

/// A token that would lock all others out.
const HIGHEST: u64 = u64::MAX;

#[test]
fn a_body_that_ends_in_trailers_is_whole() {
    let w = World::with(|c| c.upstream("settle_incomplete", "\"0s\""));
    w.up.script("t5", Script::hold());
    let ask = w.put(5).header("Transfer-Encoding", "chunked");
    let mut client = ask.header("Trailer", "X-Sum").open();
    client.send(b"4\r\ndata\r\n0\r\nX-Sum: 1\r\n\r\n");
    w.up.whole_of("t5");
    let raise = w.put(6).start();
    w.waiting(1);
    w.stays_away("t6");
    assert!(w.up.head("t5").closed_at.is_none(), "t5 was cut");
    w.up.release("t5");
    client.response("PUT").answered(200);
    raise.result().answered(200);
    assert_eq!(w.up.whole(), ["t5", "t6"]);
    let answered = w.up.head("t5").answered_at.unwrap();
    assert!(answered <= w.up.head("t6").head_at);
}

#[test]
fn several_resources_are_judged_each_by_its_own_route() {
    let strict = "[[routes]]\nname = \"strict\"\npath = \"/strict/{*key}\"\nupstream = \"files\"\nresource = \"strict/{key}\"\nmax_advance = 1000\n";
    let w = World::with(|c| c.route("missing", "\"allow\"").more(strict));
    w.put_to("/strict/y", 9).send().answered(200);
    let destination = format!("http://127.0.0.1:{}/strict/y", w.gw.port);
    for method in ["COPY", "MOVE"] {
        let bare = w.ask(method, "/files/x").body(b"").tag("late");
        let bare = bare.header("Destination", &destination);
        bare.send().refused(428, "missing");
        let high = w.relocate(method, "/files/x", "/strict/y", HIGHEST);
        high.tag("late").send().refused(403, "forbidden");
    }
    assert_eq!(w.fence("files/x"), None);
    assert_eq!(w.fence("strict/y").unwrap().0, "9");
    w.put_to("/strict/y", 10).send().answered(200);
    assert_eq!(w.up.count("late"), 0);
}

#[test]
fn a_connection_that_spoke_http_1_0_is_not_reused() {
    let w = World::with(|c| c.server("workers", "1"));
    let old = "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok";
    w.up.script("old", Script::raw(old));
    let ask = w.put(5).tag("old").header("Content-Length", "4");
    let mut client = ask.header("Connection", "close").open();
    client.send(b"data");
    let answer = String::from_utf8(client.rest()).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.ends_with("\r\n\r\nok"), "{answer}");
    let ask = w.put(5).header("Transfer-Encoding", "chunked");
    let mut client = ask.open();
    client.send_chunk(b"one ");
    client.send_chunk(b"two");
    client.send_chunk(b"");
    client.response("PUT").answered(200);
    let seen = w.up.whole_of("t5");
    assert_eq!(seen.body, b"one two");
    assert_ne!(seen.from, w.up.head("old").from, "the same connection");
}

#[test]
fn a_get_with_a_chunked_body_keeps_it() {
    let w = World::new();
    let ask = w.ask("GET", "/files/a").tag("read");
    let mut client = ask.header("Transfer-Encoding", "chunked").open();
    client.send_chunk(b"que");
    client.send_chunk(b"ry");
    client.send_chunk(b"");
    client.response("GET").answered(200);
    assert_eq!(w.up.whole_of("read").body, b"query");
}

#[test]
fn a_response_with_both_framings_is_read_by_its_coding() {
    const BODY: &str = "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";
    let w = World::new();
    for (tag, headers) in [
        (
            "first",
            "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        ),
        (
            "last",
            "Transfer-Encoding: chunked\r\nContent-Length: 3000\r\n",
        ),
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\n{headers}\r\n{BODY}");
        w.up.script(tag, Script::raw(answer.leak()));
        for ask in [w.ask("GET", "/files/a"), w.put(5)] {
            let answer = ask.tag(tag).send();
            answer.answered(200);
            assert_eq!(answer.body, b"hello world", "{tag}: {answer}");
            assert_eq!(answer.header("Content-Length"), None, "{tag}: {answer}");
        }
    }
    w.put(5).send().answered(200);
}

#[test]
fn settle_incomplete_above_settle_is_a_fault() {
    let w = World::with(|c| c.upstream("settle_incomplete", "\"300ms\""));
    let (code, said) = w.gw.command(&["check"]);
    assert_eq!(code, Some(0), "{said}");
    w.gw.edit(
        "settle_incomplete = \"300ms\"",
        "settle_incomplete = \"301ms\"",
    );
    let (code, said) = w.gw.command(&["check"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("upstreams.files.settle_incomplete"), "{said}");
}

#[test]
fn drained_is_not_trusted_after_an_observing_run() {
    let mut w = World::with(|c| {
        c.route("mode", "\"enforce\"")
            .upstream("settle", "\"3s\"")
            .route("drain_timeout", "\"20s\"")
    });
    w.put(9).send().answered(200);
    wait_until("the mark", || {
        w.fence("files/a") == Some(("9".into(), true))
    });
    assert!(w.gw.stop().success());
    w.gw.edit("mode = \"enforce\"", "mode = \"observe\"");
    w.gw.start_again();
    w.put(5).tag("low").send().answered(200);
    assert_eq!(w.up.count("low"), 1);
    w.gw.kill();
    w.gw.edit("mode = \"observe\"", "mode = \"enforce\"");
    let start = Instant::now();
    w.gw.start_again();
    w.put(9).tag("same").send().answered(200);
    let gap = w.up.head("same").head_at - start;
    assert!(gap >= Duration::from_secs(3), "{gap:?}");
    w.put(5).tag("late").send().refused(412, "stale");
    assert_eq!(w.up.count("late"), 0);
}

#[test]
fn a_move_to_below_itself_is_refused() {
    let w = World::new();
    w.relocate("MOVE", "/files/a", "/files/a/b", 5)
        .tag("late")
        .send()
        .refused(403, "forbidden");
    let (code, said) = w.gw.command(&["fences", "list"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("files/a"), "{said}");
    w.ask("DELETE", "/files/a").token(5).send().answered(200);
    assert_eq!(w.up.count("late"), 0);
}

#[test]
fn an_early_success_goes_on_beside_the_upload() {
    let w = World::with(|c| c.upstream("settle", "\"20s\""));
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nyes\r\n";
    let script = Script {
        early: true,
        raw: Some((head, "5\r\n, all\r\n0\r\n\r\n")),
        ..Script::default()
    };
    w.up.script("t5", script);
    let mut client = w.put(5).header("Connection", "close").half();
    assert_eq!(client.head().0, 200);
    client.send(&[b'x'; 50]);
    let rest = String::from_utf8(client.rest()).unwrap();
    assert!(rest.contains("yes") && rest.contains(", all"), "{rest}");
    assert!(rest.ends_with("0\r\n\r\n"), "{rest}");
    let seen = w.up.whole_of("t5");
    assert_eq!(seen.body, vec![b'x'; 100]);
    assert!(seen.answered_at.unwrap() <= seen.whole_at.unwrap());
    w.put(6).send().answered(200); // within its drain_timeout: it waits for no settle
}
