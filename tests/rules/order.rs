//! Seal, drain and cut: who waits for whom, and for how long.

use crate::upstream::{End, Script};
use crate::world::{World, pause};
use std::time::{Duration, Instant};

#[test]
fn whole_is_when_the_last_byte_was_handed_over() {
    let w = World::new();
    for (token, chunked) in [(5, false), (7, true)] {
        let (older, newer) = (format!("t{token}"), format!("t{}", token + 1));
        // The upstream reads none of the body: all of it lies in buffers on the way.
        let script = Script {
            hold_body: true,
            ..Script::default()
        };
        w.up.script(&older, script);
        let ask = w.put(token);
        let mut client = if chunked {
            let mut client = ask.header("Transfer-Encoding", "chunked").open();
            client.send_chunk(&[b'x'; 10_000]);
            client.send_chunk(&[b'x'; 10_000]);
            client.send_chunk(b"");
            client
        } else {
            let mut client = ask.header("Content-Length", "20000").open();
            client.send(&[b'x'; 10_000]);
            client.send(&[b'x'; 10_000]);
            client
        };
        w.up.head(&older);
        pause(100); // the body may still be on its way to the gateway
        let raise = w.put(token + 1).start();
        w.waiting(1);
        w.stays_away(&newer);
        assert!(w.up.head(&older).closed_at.is_none(), "{older} was cut");
        w.up.release(&older);
        client.response("PUT").answered(200);
        raise.result().answered(200);
        let whole = w.up.whole_of(&older).whole_at.unwrap();
        assert!(whole <= w.up.head(&newer).head_at);
    }
    assert!(w.rejections("superseded") < 0.1);
}

#[test]
fn not_whole_by_one_byte_is_cut() {
    let w = World::new();
    let mut client = w.put(5).header("Content-Length", "100").open();
    client.send(&[b'x'; 99]);
    w.up.body("t5", 99);
    let raise = w.put(6).start();
    let answer = client.response("PUT");
    answer.refused(412, "superseded");
    let said = String::from_utf8(answer.body).unwrap();
    assert!(said.contains("Whether it took effect is unknown"), "{said}");
    raise.result().answered(200);
    assert!(w.up.closed("t5").whole_at.is_none());
    assert_eq!(w.up.whole(), ["t6"]);
}

#[test]
fn settle_incomplete_is_for_what_was_not_whole() {
    let w = World::with(|c| {
        c.upstream("settle", "\"20s\"")
            .upstream("settle_incomplete", "\"300ms\"")
            .route("drain_timeout", "\"3s\"")
    });
    let mut client = w.put(5).half();
    w.up.body("t5", 50);
    let start = Instant::now();
    let raise = w.put(6).start();
    client.response("PUT").refused(412, "superseded");
    // Within the drain_timeout of 3 s, so without the long settle.
    raise.result().answered(200);
    let gap = w.up.head("t6").head_at - start;
    assert!(gap >= Duration::from_millis(300), "{gap:?}");
    w.up.script("t6", Script::end(End::Reset));
    w.put(6).send().refused(502, "outcome-unknown");
    w.gauge("fencegate_unsettled_writes", 1);
    w.put(7).send().refused(503, "draining");
}

#[test]
fn a_client_that_leaves_while_its_write_waits_is_not_forwarded() {
    let w = World::new();
    w.up.script("t5", Script::hold());
    let older = w.put(5).start();
    w.up.whole_of("t5");
    let mut client = w.put(6).header("Content-Length", "4").open();
    client.send(b"data");
    w.waiting(1);
    drop(client);
    w.waiting(0);
    w.up.release("t5");
    older.result().answered(200);
    w.put(5).tag("late").send().refused(412, "stale");
    w.stays_away("t6");
    w.put(6).tag("again").send().answered(200);
    assert_eq!(w.up.count("late"), 0);
    assert_eq!(w.fence("files/a").unwrap().0, "6");
}

#[test]
fn an_early_answer_counts_as_not_whole() {
    let w = World::with(|c| {
        c.upstream("settle", "\"20s\"")
            .upstream("settle_incomplete", "\"400ms\"")
    });
    let script = Script {
        early: true,
        hold_body: true,
        body: b"too big".to_vec(),
        ..Script::status(413)
    };
    w.up.script("t5", script);
    let mut client = w.put(5).half();
    let answer = client.response("PUT");
    answer.answered(413);
    assert_eq!(answer.body, b"too big");
    assert_eq!(answer.header("Fencing-Status"), Some("raised"));
    w.gauge("fencegate_unsettled_writes", 1);
    w.put(6).send().answered(200);
    let gap = w.up.head("t6").head_at - w.up.head("t5").answered_at.unwrap();
    assert!(gap >= Duration::from_millis(400), "{gap:?}");
    w.up.release("t5");
    assert!(w.up.closed("t5").whole_at.is_none());
}

#[test]
fn a_token_above_every_waiter_is_never_refused_busy() {
    let w = World::with(|c| c.route("max_waiting", "2"));
    w.up.script("t5", Script::hold());
    let older = w.put(5).start();
    w.up.whole_of("t5");
    let waiters: Vec<_> = (0..2).map(|_| w.put(6).start()).collect();
    w.waiting(2);
    w.put(6).tag("more").send().refused(503, "busy");
    let newest = w.put(7).start();
    for waiter in waiters {
        waiter.result().refused(412, "superseded");
    }
    w.waiting(1);
    w.up.release("t5");
    older.result().answered(200);
    newest.result().answered(200);
    assert_eq!(w.up.whole(), ["t5", "t7"]);
}

#[test]
fn zero_max_waiting_still_lets_a_raise_in() {
    let w = World::with(|c| c.route("max_waiting", "0"));
    w.put(5).send().answered(200);
    w.put(5).send().answered(200);
    w.put(6).send().answered(200);
}

#[test]
fn first_read_of_the_new_holder_fences() {
    let w = World::with(|c| c.route("raise_on_read", "true"));
    let read = |token: u64, tag: &str| w.ask("GET", "/files/a").token(token).tag(tag);
    w.put(33).send().answered(200);
    let answer = read(34, "r34").send();
    answer.answered(200);
    assert_eq!(answer.header("Fencing-Status"), None);
    w.put(33).tag("late").send().refused(412, "stale");
    read(33, "late").send().refused(412, "stale");
    w.ask("GET", "/files/a").tag("bare").send().answered(200);
    w.ask("GET", "/files/a")
        .tag("late")
        .token("x")
        .send()
        .refused(400, "malformed");
    assert_eq!(w.fence("files/a").unwrap().0, "34");
    // A read that raises drains, and an equal one waits with it.
    w.up.script("t34", Script::hold());
    let write = w.put(34).start();
    w.up.whole_of("t34");
    let reads = [read(35, "r35").start(), read(35, "r35").start()];
    w.waiting(2);
    w.stays_away("r35");
    w.ask("GET", "/files/a").tag("bare").send().answered(200);
    w.up.release("t34");
    write.result().answered(200);
    for read in reads {
        read.result().answered(200);
    }
    // Nothing waits for a read: a raise goes past one that is under way.
    w.up.script("r35-long", Script::hold());
    let long = read(35, "r35-long").start();
    w.up.whole_of("r35-long");
    w.put(36).send().answered(200);
    w.up.release("r35-long");
    long.result().answered(200);
    assert_eq!(w.up.count("late"), 0);
}

#[test]
fn unsettled_answers() {
    let w = World::new();
    for (token, status) in (10..).step_by(2).zip([202, 408, 502, 503, 504]) {
        let (tag, next) = (format!("t{token}"), format!("t{}", token + 1));
        w.up.script(&tag, Script::status(status));
        let answer = w.put(token).send();
        answer.answered(status);
        assert_eq!(answer.header("Fencing-Status"), Some("raised"));
        w.put(token).tag("same").send().answered(200);
        w.put(token + 1).send().answered(200);
        let gap = w.up.head(&next).head_at - w.up.head(&tag).answered_at.unwrap();
        assert!(gap >= Duration::from_millis(300), "{status}: {gap:?}");
    }
    // What settles at once: any other status, 5xx too, and all of them where the list is empty.
    let w = World::with(|c| {
        c.upstream("settle", "\"20s\"")
            .upstream("unsettled_status", "[503]")
    });
    w.up.script("t5", Script::status(500));
    w.up.script("t6", Script::status(504));
    w.put(5).send().answered(500);
    w.put(6).send().answered(504);
    w.put(7).send().answered(200);
}

#[test]
fn superseded_write_at_response_end_is_detached() {
    let w = World::with(|c| {
        c.route("settled_at", "\"response-end\"")
            .upstream("response_body_timeout", "\"700ms\"")
            .upstream("settle", "\"200ms\"")
    });
    let long = Script {
        hold_end: true,
        body: vec![b'x'; 1000],
        ..Script::default()
    };
    let headed = |token: u64| {
        w.up.script(&format!("t{token}"), long.clone());
        let mut client = w.put(token).header("Content-Length", "4").open();
        client.send(b"data");
        assert_eq!(client.head().0, 200);
        client.skip(1);
        client
    };
    // Detached: the older client is cut off, the newer write waits for the end of the response.
    let mut older = headed(5);
    let newer = w.put(6).start();
    assert!(older.rest().len() < 999, "the older client got all");
    w.stays_away("t6");
    assert!(w.up.head("t5").closed_at.is_none(), "the response was cut");
    w.up.release("t5");
    newer.result().answered(200);
    // The rest is read for so long only; then the outcome is unknown, and settles.
    let mut older = headed(7);
    let raised = Instant::now();
    let newer = w.put(8).start();
    assert!(older.rest().len() < 999, "the older client got all");
    newer.result().answered(200);
    let gap = w.up.head("t8").head_at - raised;
    assert!(gap >= Duration::from_millis(900), "{gap:?}");
    w.up.closed("t7");
    // Not superseded: the response passes whole.
    w.up.script("t9", Script::default());
    assert_eq!(w.put(9).send().answered(200).body, b"ok");
}

#[test]
fn a_client_that_leaves_at_response_end_leaves_its_write_in_flight() {
    let w = World::with(|c| c.route("settled_at", "\"response-end\""));
    let long = Script {
        hold_end: true,
        body: vec![b'x'; 1000],
        ..Script::default()
    };
    w.up.script("t5", long);
    let mut older = w.put(5).header("Content-Length", "4").open();
    older.send(b"data");
    older.head();
    drop(older);
    let newer = w.put(6).start();
    w.waiting(1);
    w.stays_away("t6");
    w.up.release("t5");
    newer.result().answered(200);
}

#[test]
fn a_client_that_leaves_with_its_body_unread_is_not_forwarded() {
    let w = World::new();
    w.up.script("t5", Script::hold());
    let older = w.put(5).start();
    w.up.whole_of("t5");
    let mut client = w.put(6).header("Content-Length", "2000000").open();
    // More than is read before its turn, and less than the kernel takes: its end arrives.
    client.send(&vec![b'x'; 40_000]);
    w.waiting(1);
    drop(client);
    pause(100); // its end may still be on its way
    w.up.release("t5");
    older.result().answered(200);
    w.gauge("fencegate_waiting_writes", 0);
    w.stays_away("t6");
    w.put(5).tag("late").send().refused(412, "stale");
}
