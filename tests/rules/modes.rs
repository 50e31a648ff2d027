//! What a route may ask for otherwise: `accept`, `mode`, and an upstream that declares no settle.

use crate::support::wait_until;
use crate::upstream::{End, Script};
use crate::world::World;

#[test]
fn accept_newer_admits_an_equal_token_only_after_unsent() {
    let mut w = World::with(|c| c.route("accept", "\"newer\""));
    w.up.stop();
    w.put(5).send().refused(502, "unsent");
    w.up.start_again();
    w.put(5).send().answered(200);
    w.put(5).tag("late").send().refused(412, "replayed");
    w.up.script("t6", Script::end(End::Close));
    w.put(6).send().refused(502, "outcome-unknown");
    w.put(6).tag("late").send().refused(412, "replayed");
    w.put(7).send().answered(200);
    assert_eq!(w.up.count("late"), 0);
    // What was used before a restart counts as used.
    assert!(w.gw.stop().success());
    w.gw.start_again();
    w.put(7).tag("late").send().refused(412, "replayed");
    w.put(8).send().answered(200);
    assert_eq!(w.up.count("late"), 0);
}

#[test]
fn accept_newer_does_not_cut() {
    let w = World::with(|c| c.route("accept", "\"newer\""));
    let mut client = w.put(5).half();
    w.up.body("t5", 50);
    let newer = w.put(6).start();
    w.waiting(1);
    w.put(6).tag("late").send().refused(412, "replayed");
    w.stays_away("t6");
    client.send(&[b'x'; 50]);
    client.response("PUT").answered(200);
    newer.result().answered(200);
    assert_eq!(w.up.whole(), ["t5", "t6"]);
}

#[test]
fn best_effort_does_not_wait_and_says_so() {
    let w = World::with(|c| c.upstream_without("settle"));
    let count = || w.metric("fencegate_best_effort_total", &["route=\"files\""]);
    assert!(count() < 0.1);
    w.up.script("t5", Script::end(End::Reset));
    w.put(5).send().refused(502, "outcome-unknown");
    w.put(6).send().answered(200);
    w.up.script("t7", Script::status(503));
    w.put(7).send().answered(503);
    w.put(8).send().answered(200);
    assert!((count() - 2.0).abs() < 0.1, "{}", count());
    let (code, said) = w.gw.command(&["check", "--explain", "PUT /files/a"]);
    assert!(code == Some(0) && said.contains("best-effort"), "{said}");
    let (_, said) = w.gw.command(&["check"]);
    assert!(said.contains("upstreams.files.settle"), "{said}");
}

#[test]
fn best_effort_waits_for_what_is_in_flight_all_the_same() {
    let w = World::with(|c| c.upstream_without("settle"));
    w.up.script("t5", Script::hold());
    let older = w.put(5).start();
    w.up.whole_of("t5");
    let newer = w.put(6).start();
    w.waiting(1);
    w.stays_away("t6");
    w.up.release("t5");
    older.result().answered(200);
    newer.result().answered(200);
}

#[test]
fn observe_says_what_would_have_been() {
    let w = World::with(|c| c.route("mode", "\"observe\"").route("max_advance", "100"));
    let said = |ask: crate::world::Ask, word: &str| {
        let answer = ask.send();
        answer.answered(200);
        assert_eq!(
            answer.header("Fencing-Status"),
            Some(&*format!("{word};observed"))
        );
    };
    said(w.put(5), "raised");
    said(w.put(5), "admitted");
    said(w.put(4), "stale");
    said(w.ask("PUT", "/files/a").tag("none"), "missing");
    said(w.ask("PUT", "/files/a").token("x").tag("odd"), "malformed");
    said(w.put(1000), "forbidden");
    said(w.put(6), "raised");
    let read = w.ask("GET", "/files/a").send();
    read.answered(200);
    assert_eq!(read.header("Fencing-Status"), None);
    for reason in ["stale", "missing", "malformed", "forbidden"] {
        assert!((w.rejections(reason) - 1.0).abs() < 0.1, "{reason}");
    }
    // Nothing waits for the commit, but it comes.
    wait_until("the commit", || {
        w.fence("files/a").is_some_and(|(token, _)| token == "6")
    });
    assert_eq!(w.up.whole().len(), 8, "seven writes and a read");
}

#[test]
fn observe_never_waits_or_cuts() {
    let w = World::with(|c| c.route("mode", "\"observe\"").upstream("settle", "\"20s\""));
    w.up.script("t5", Script::hold());
    let held = w.put(5).start();
    w.up.whole_of("t5");
    let mut half = w.put(5).tag("half").half();
    w.up.body("half", 50);
    w.put(6).send().answered(200);
    w.gauge("fencegate_inflight_writes", 2);
    half.send(&[b'x'; 50]);
    half.response("PUT").answered(200);
    w.up.release("t5");
    held.result().answered(200);
    w.up.script("t6-broken", Script::end(End::Reset));
    w.put(6)
        .tag("t6-broken")
        .send()
        .refused(502, "outcome-unknown");
    w.put(7).send().answered(200);
}

#[test]
fn tokenless_writes_take_part_in_the_drain() {
    let w = World::with(|c| c.route("missing", "\"allow\""));
    let mut client = w.ask("PUT", "/files/a").tag("bare").half();
    w.up.body("bare", 50);
    let raise = w.put(5).start();
    client.response("PUT").refused(412, "superseded");
    raise.result().answered(200);
    w.ask("PUT", "/files/a").tag("after").send().answered(200);
    assert_eq!(w.up.whole(), ["t5", "after"]);
    let (_, said) = w.gw.command(&["check", "--explain", "PUT /files/a"]);
    assert!(said.contains("none"), "{said}");
}

#[test]
fn accept_newer_leaves_the_token_of_a_read_to_one_write() {
    let w = World::with(|c| {
        c.route("accept", "\"newer\"")
            .route("raise_on_read", "true")
    });
    let read = || w.ask("GET", "/files/a").token(5).send();
    read().answered(200);
    read().answered(200);
    w.up.script("t5", Script::hold());
    let write = w.put(5).start();
    w.up.whole_of("t5");
    w.put(5).tag("late").send().refused(412, "replayed");
    w.up.release("t5");
    write.result().answered(200);
    w.put(5).tag("late").send().refused(412, "replayed");
    read().answered(200);
    assert_eq!(w.up.count("late"), 0);
}

#[test]
fn a_tokenless_move_needs_a_token_where_one_end_is_fenced() {
    let w = World::with(|c| c.route("missing", "\"allow-until-fenced\""));
    let relocate = |from: &str, to: &str| {
        let destination = format!("http://127.0.0.1:{}{to}", w.gw.port);
        w.ask("MOVE", from)
            .header("Destination", &destination)
            .tag("bare")
            .send()
    };
    relocate("/files/a", "/files/b").answered(200);
    w.put_to("/files/b", 5).send().answered(200);
    relocate("/files/a", "/files/b").refused(428, "missing");
    relocate("/files/b", "/files/a").refused(428, "missing");
    assert_eq!(w.up.count("bare"), 1);
    assert_eq!(w.fence("files/a"), None);
}
