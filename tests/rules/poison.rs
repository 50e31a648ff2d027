//! What one request may do to a fence, or to how many: the bounds on raises.

use crate::world::World;

#[test]
fn a_listener_beyond_loopback_needs_to_know_who_may_raise() {
    let mut w = World::new();
    assert!(w.gw.stop().success());
    let local = format!("127.0.0.1:{}", w.gw.port);
    let (code, said) = w.gw.command(&["check"]);
    assert_eq!(code, Some(0), "{said}");
    let open = format!("0.0.0.0:{}", w.gw.port);
    w.gw.edit(&local, &open);
    for command in ["check", "serve"] {
        let (code, said) = w.gw.command(&[command]);
        assert_eq!(code, Some(2), "{command}: {said}");
        assert!(
            said.contains("routes.files") && said.contains(&open),
            "{said}"
        );
        assert!(said.contains("raise = \"anyone\""), "{said}");
    }
    w.gw.edit("drain_timeout", "raise = \"anyone\"\ndrain_timeout");
    let (code, said) = w.gw.command(&["check"]);
    assert_eq!(code, Some(0), "{said}");
    w.gw.start_again();
    w.put(5).send().answered(200);
}

#[test]
fn the_first_token_and_each_raise_are_bounded() {
    let w = World::with(|c| c.route("first_max", "100").route("max_advance", "10"));
    w.put(101).tag("late").send().refused(403, "forbidden");
    assert_eq!(w.fence("files/a"), None);
    w.put(100).send().answered(200);
    w.put(111).tag("late").send().refused(403, "forbidden");
    w.put(u64::MAX).tag("late").send().refused(403, "forbidden");
    w.put(100).send().answered(200);
    w.put(110).send().answered(200);
    assert_eq!(w.up.count("late"), 0);
    assert!((w.metric("fencegate_fence_raises_total", &[]) - 2.0).abs() < 0.1);
}

#[test]
fn a_bound_on_pairs_counts_epochs() {
    let w = World::with(|c| {
        c.route("token", "{ header = \"Fencing-Token\", format = \"pair\" }")
            .route("max_advance", "1")
    });
    let put = |token: &str, tag: &str| w.ask("PUT", "/files/a").token(token).tag(tag).send();
    put("1:5", "fine").answered(200);
    put("1:18446744073709551615", "fine").answered(200);
    put("3:1", "late").refused(403, "forbidden");
    put("2:9", "fine").answered(200);
    assert_eq!(w.up.count("late"), 0);
}

#[test]
fn a_refused_raise_leaves_no_trace_in_any_gate() {
    let w = World::with(|c| c.route("max_advance", "10").route("first_max", "100"));
    w.put_to("/files/b", 50).send().answered(200);
    let ask = w.relocate("MOVE", "/files/a", "/files/b", 99).tag("late");
    ask.send().refused(403, "forbidden");
    assert_eq!(w.fence("files/a"), None);
    w.put_to("/files/a", 1).send().answered(200);
    w.put_to("/files/b", 50).send().answered(200);
    assert_eq!(w.up.count("late"), 0);
}

#[test]
fn max_new_resources_survives_a_restart() {
    let mut w = World::with(|c| c.route("max_new_resources", "3"));
    w.put_to("/files/a", 5).send().answered(200);
    w.put_to("/files/b", 5).send().answered(200);
    w.crash();
    // Raises of what is there do not count.
    w.put_to("/files/a", 6).send().answered(200);
    let both = w.relocate("MOVE", "/files/c", "/files/d", 5).tag("late");
    both.send().refused(403, "forbidden");
    w.put_to("/files/c", 5).send().answered(200);
    w.put_to("/files/d", 5)
        .tag("late")
        .send()
        .refused(403, "forbidden");
    assert!(w.gw.stop().success());
    w.gw.start_again();
    w.put_to("/files/d", 5)
        .tag("late")
        .send()
        .refused(403, "forbidden");
    w.put_to("/files/c", 6).send().answered(200);
    assert_eq!(w.up.count("late"), 0);
}
