//! I7: each refusal is counted once, under its own word, and so is every other request.

use crate::upstream::{End, Script};
use crate::world::World;

#[test]
fn each_request_is_counted_once() {
    const OTHERS: [&str; 4] = ["raised", "admitted", "passed", "outcome-unknown"];
    let w = World::with(|c| {
        c.route("max_waiting", "1")
            .route("drain_timeout", "\"2500ms\"")
            .route("max_advance", "1000")
            .upstream("settle", "\"10ms\"")
    });
    let mut wanted = vec![
        ("stale", 1.0),
        ("superseded", 2.0),
        ("missing", 1.0),
        ("malformed", 3.0),
        ("forbidden", 2.0),
        ("busy", 1.0),
        ("draining", 1.0),
        ("replayed", 0.0),
        ("store", 0.0),
        ("unverified", 0.0),
    ];
    let mut total = 0.0;
    w.put(5).send().answered(200); // raised
    w.put(5).send().answered(200); // admitted
    w.ask("GET", "/files/a").send().answered(200); // passed
    w.put(4).send().refused(412, "stale");
    w.ask("PUT", "/files/a").send().refused(428, "missing");
    w.put(5).token(5).send().refused(400, "malformed");
    w.ask("PUT", "/files/a")
        .token("x")
        .send()
        .refused(400, "malformed");
    w.ask("MOVE", "/files/a")
        .token(5)
        .send()
        .refused(400, "malformed");
    w.put(5000).send().refused(403, "forbidden");
    w.ask("DELETE", "/files/a/")
        .token(5)
        .send()
        .refused(403, "forbidden");
    w.up.script("broken", Script::end(End::Reset));
    w.put(5)
        .tag("broken")
        .send()
        .refused(502, "outcome-unknown");
    total += 11.0;
    // Cut.
    let mut half = w.put(5).tag("half").half();
    w.up.body("half", 50);
    w.put(6).send().answered(200);
    half.response("PUT").refused(412, "superseded");
    // Overtaken in line, too many in line, and too long in line.
    w.up.script("held", Script::hold());
    let held = w.put(6).tag("held").start();
    w.up.whole_of("held");
    let middle = w.put(7).start();
    w.waiting(1);
    w.put(7).send().refused(503, "busy");
    let newest = w.put(8).start();
    middle.result().refused(412, "superseded");
    newest.result().refused(503, "draining");
    w.up.release("held");
    held.result().answered(200);
    total += 6.0;
    // Of no route.
    w.put_to("/x", 5).send().refused(404, "unrouted");
    w.ask("CONNECT", "a:80")
        .body(b"")
        .send()
        .refused(405, "malformed");
    let unrouted = |word: &str| {
        w.metric(
            "fencegate_requests_total",
            &["route=\"\"", &format!("\"{word}\"")],
        )
    };
    assert!((unrouted("unrouted") - 1.0).abs() < 0.1);
    assert!((unrouted("malformed") - 1.0).abs() < 0.1);

    let of = |name: &str, word: &str| w.metric(name, &["route=\"files\"", &format!("\"{word}\"")]);
    for (reason, count) in &wanted {
        let rejections = of("fencegate_fence_rejections_total", reason);
        assert!((rejections - count).abs() < 0.1, "{reason}: {rejections}");
        let requests = of("fencegate_requests_total", reason);
        assert!((requests - count).abs() < 0.1, "{reason}: {requests}");
    }
    wanted.extend(OTHERS.map(|word| (word, of("fencegate_requests_total", word))));
    let all: f64 = wanted.iter().map(|(_, count)| count).sum();
    assert!((all - total).abs() < 0.1, "{all} of {total}: {wanted:?}");
    let whole = w.metric("fencegate_requests_total", &["route=\"files\""]);
    assert!((whole - total).abs() < 0.1, "{whole} of {total}");
}

#[test]
fn a_client_that_leaves_is_counted_once_too() {
    let w = World::new();
    w.up.script("t5", Script::hold());
    let mut client = w.put(5).header("Content-Length", "4").open();
    client.send(b"data");
    w.up.whole_of("t5");
    let mut waiting = w.put(6).header("Content-Length", "4").open();
    waiting.send(b"data");
    w.waiting(1);
    drop(waiting);
    w.waiting(0);
    drop(client);
    let count = |word: &str| {
        w.metric(
            "fencegate_requests_total",
            &[&format!("decision=\"{word}\"")],
        )
    };
    crate::support::wait_until("both to be counted", || {
        count("outcome-unknown") + count("unsent") > 1.5
    });
    w.up.release("t5");
    w.put(7).send().answered(200);
    let all = w.metric("fencegate_requests_total", &[]);
    assert!((all - 3.0).abs() < 0.1, "{all}");
}

#[test]
fn problems_have_what_the_interface_says() {
    let w = World::with(|c| c.server("problem_base", "\"https://example.com/problems/\""));
    w.put(5).send().answered(200);
    let answer = w.put(4).send();
    assert_eq!(
        answer.header("Content-Type"),
        Some("application/problem+json")
    );
    let problem: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    assert_eq!(problem["type"], "https://example.com/problems/stale-token");
    assert_eq!(problem["status"], 412);
    assert_eq!(problem["token"], "4");
    assert!(problem.get("fence").is_none());
    // A refused HEAD has no body to mistake for the next answer.
    let mut client = crate::support::Client::connect(w.gw.port);
    let head = client.request("HEAD", "/elsewhere", &[], b"");
    assert_eq!((head.status, head.body.len()), (404, 0));
    client.request("GET", "/files/a", &[], b"").answered(200);
}
