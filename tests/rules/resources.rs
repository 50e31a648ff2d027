//! Writes that touch several resources, and writes that reach below their own.

use crate::support::{Config, wait_until};
use crate::upstream::Script;
use crate::world::{Call, World};

const OTHER: &str = "[[routes]]\nname = \"other\"\npath = \"/other/{*key}\"\nupstream = \"files\"\nresource = \"other/{key}\"\nnamespace = \"second\"\n";

#[test]
fn several_resources_wait_until_every_gate_agrees() {
    let w = World::new();
    w.up.script("t5", Script::hold());
    let older = w.put_to("/files/b", 5).start();
    w.up.whole_of("t5");
    let ask = w.relocate("MOVE", "/files/a", "/files/b", 6).tag("move");
    let call = ask.start();
    w.waiting(1);
    w.stays_away("move");
    // Both ends are sealed already, the one where nothing is under way too.
    w.put_to("/files/a", 5)
        .tag("late")
        .send()
        .refused(412, "stale");
    w.put_to("/files/b", 5)
        .tag("late")
        .send()
        .refused(412, "stale");
    assert!(!call.is_done());
    w.up.release("t5");
    older.result().answered(200);
    let answer = call.result();
    answer.answered(200);
    assert_eq!(answer.header("Fencing-Status"), Some("raised"));
    assert_eq!(w.up.count("late"), 0);
}

#[test]
fn an_overtake_in_one_gate_abandons_all() {
    let w = World::new();
    w.up.script("t5", Script::hold());
    let older = w.put_to("/files/b", 5).start();
    w.up.whole_of("t5");
    let call = w
        .relocate("MOVE", "/files/a", "/files/b", 6)
        .tag("move")
        .start();
    w.waiting(1);
    let newest = w.put_to("/files/b", 7).start();
    call.result().refused(412, "superseded");
    // The other resource goes on, under the token that the MOVE has raised it to and above.
    w.put_to("/files/a", 5)
        .tag("late")
        .send()
        .refused(412, "stale");
    w.put_to("/files/a", 6).send().answered(200);
    w.put_to("/files/a", 8).send().answered(200);
    w.up.release("t5");
    older.result().answered(200);
    newest.result().answered(200);
    assert_eq!(w.up.count("move") + w.up.count("late"), 0);
    w.gauge("fencegate_waiting_writes", 0);
    w.gauge("fencegate_inflight_writes", 0);
}

#[test]
fn all_are_checked_before_any_is_sealed() {
    let w = World::new();
    w.put_to("/files/b", 9).send().answered(200);
    w.relocate("MOVE", "/files/a", "/files/b", 8)
        .tag("late")
        .send()
        .refused(412, "stale");
    w.relocate("MOVE", "/files/b", "/files/a", 8)
        .tag("late")
        .send()
        .refused(412, "stale");
    assert_eq!(w.fence("files/a"), None);
    w.put_to("/files/a", 1).send().answered(200);
    assert_eq!(w.up.count("late"), 0);
}

#[test]
fn a_move_raises_both_ends_durably() {
    let mut w = World::with(|c| c.upstream("settle", "\"50ms\""));
    w.relocate("MOVE", "/files/a", "/files/b", 9)
        .send()
        .answered(200);
    w.crash();
    for path in ["/files/a", "/files/b"] {
        w.put_to(path, 8).tag("late").send().refused(412, "stale");
        w.put_to(path, 9).send().answered(200);
    }
    assert_eq!(w.up.count("late"), 0);
}

#[test]
fn a_copy_fences_its_destination_only() {
    let w = World::new();
    w.relocate("COPY", "/files/a", "/files/b", 9)
        .send()
        .answered(200);
    w.put_to("/files/a", 1).send().answered(200);
    w.put_to("/files/b", 8)
        .tag("late")
        .send()
        .refused(412, "stale");
    assert_eq!(w.up.count("late"), 0);
}

#[test]
fn a_move_is_drained_like_any_write() {
    let w = World::new();
    w.up.script("move", Script::hold());
    let call = w
        .relocate("MOVE", "/files/a", "/files/b", 5)
        .tag("move")
        .start();
    w.up.whole_of("move");
    let newer = w.put_to("/files/b", 6).start();
    w.waiting(1);
    w.stays_away("t6");
    w.up.release("move");
    call.result().answered(200);
    newer.result().answered(200);
}

#[test]
fn a_move_onto_itself_is_one_resource() {
    let w = World::new();
    w.relocate("MOVE", "/files/a", "/files/a", 5)
        .send()
        .answered(200);
    w.relocate("MOVE", "/files/a", "/files/%61", 6)
        .send()
        .answered(200);
    w.put(5).tag("late").send().refused(412, "stale");
    assert_eq!(w.up.count("late"), 0);
}

#[test]
fn namespaces_meet_only_with_a_token_each() {
    let w = World::with(|c| c.more(OTHER));
    w.put_to("/other/b", 70).send().answered(200);
    let ask = w.relocate("MOVE", "/files/a", "/other/b", 5);
    ask.clone().tag("late").send().refused(403, "forbidden");
    let with = |own: &str| ask.clone().header("Fencing-Token-Destination", own);
    with("69").tag("late").send().refused(412, "stale");
    with("x").tag("late").send().refused(400, "malformed");
    assert_eq!(w.fence("files/a"), None);
    with("71").tag("move").send().answered(200);
    assert_eq!(w.fence("files/a").unwrap().0, "5");
    w.put_to("/files/a", 5).send().answered(200);
    w.put_to("/files/a", 4)
        .tag("late")
        .send()
        .refused(412, "stale");
    w.put_to("/other/b", 70)
        .tag("late")
        .send()
        .refused(412, "stale");
    w.put_to("/other/b", 71).send().answered(200);
    assert_eq!((w.up.count("late"), w.up.count("move")), (0, 1));
}

#[test]
fn a_destination_is_refused_as_a_request_to_it_would_be() {
    let upstream = "[upstreams.far]\nurl = \"http://127.0.0.1:9\"\nsettle = \"1s\"\n[[routes]]\nname = \"far\"\npath = \"/far/{*key}\"\nupstream = \"far\"\nresource = \"far/{key}\"\n";
    let w = World::with(|c| c.more(upstream));
    for method in ["MOVE", "COPY"] {
        let to = |path: &str| w.relocate(method, "/files/a", path, 5).tag("late").send();
        to("/elsewhere").refused(404, "unrouted");
        to("/far/b").refused(403, "forbidden");
        for odd in ["/files/./b", "/files//b", "/files/b%2Fc", "/files/b?x"] {
            to(odd).refused(400, "malformed");
        }
        let bare = w.ask(method, "/files/a").token(5).tag("late");
        bare.send().refused(400, "malformed");
        bare.clone()
            .header("Destination", "http://elsewhere.example/files/b")
            .send()
            .refused(403, "forbidden");
    }
    // A write that carries a Destination is a MOVE, whatever it calls itself.
    w.put_to("/files/b", 9).send().answered(200);
    for method in ["PUT", "POST", "DELETE", "RENAME"] {
        let ask = w.relocate(method, "/files/a", "/files/b", 8).tag("late");
        ask.send().refused(412, "stale");
    }
    assert_eq!(w.fence("files/a"), None);
    assert_eq!(w.up.count("late"), 0);
}

#[test]
fn collections_with_something_fenced_below_are_forbidden() {
    let w = World::new();
    w.put_to("/files/d/x", 5).send().answered(200);
    w.put_to("/files/dd", 5).send().answered(200);
    for method in ["DELETE", "LOCK"] {
        let ask = w.ask(method, "/files/d").token(9).tag("late");
        ask.send().refused(403, "forbidden");
    }
    let relocate = |method: &str, from: &str, to: &str| {
        w.relocate(method, from, to, 9)
            .tag("late")
            .send()
            .refused(403, "forbidden");
    };
    relocate("MOVE", "/files/d", "/files/e");
    relocate("MOVE", "/files/e", "/files/d");
    relocate("COPY", "/files/e", "/files/d");
    assert_eq!(w.fence("files/d"), None, "a refusal left a trace");
    // A key that only begins alike is no collection of it; and a PUT reaches nothing below.
    w.ask("DELETE", "/files/d/")
        .token(9)
        .tag("late")
        .send()
        .refused(403, "forbidden");
    w.ask("DELETE", "/files/empty/")
        .token(9)
        .tag("late")
        .send()
        .refused(403, "forbidden");
    w.ask("DELETE", "/files/d/x").token(9).send().answered(200);
    w.put_to("/files/d", 9).send().answered(200);
    assert_eq!(w.up.count("late"), 0);
    assert!((w.rejections("forbidden") - 7.0).abs() < 0.1);
}

#[test]
fn collections_with_something_in_flight_below_are_forbidden() {
    let w = World::with(|c| c.route("missing", "\"allow-until-fenced\""));
    w.up.script("below", Script::hold());
    let below = w.ask("PUT", "/files/d/x").tag("below").start();
    w.up.whole_of("below");
    let delete = w.ask("DELETE", "/files/d").token(9);
    delete.clone().tag("late").send().refused(403, "forbidden");
    w.up.release("below");
    below.result().answered(200);
    w.gauge("fencegate_inflight_writes", 0);
    delete.send().answered(200);
    assert_eq!(w.up.count("late"), 0);
}

#[test]
fn collections_survive_a_restart() {
    let mut w = World::new();
    w.put_to("/files/d/x", 5).send().answered(200);
    assert!(w.gw.stop().success());
    w.gw.start_again();
    let ask = w.ask("DELETE", "/files/d").token(9).tag("late");
    ask.send().refused(403, "forbidden");
    assert_eq!(w.up.count("late"), 0);
}

#[test]
fn collections_may_be_allowed() {
    let prefix = |c: Config| {
        c.route("path", "\"/job/{*rest}\"")
            .route("resource", "\"job\"")
    };
    let w = World::with(prefix);
    w.put_to("/job/1/x", 5).send().answered(200);
    w.ask("DELETE", "/job/1").token(5).send().answered(200);
    w.ask("DELETE", "/job/1/").token(5).send().answered(200);
    w.relocate("MOVE", "/job/1", "/job/2", 6)
        .send()
        .answered(200);
    w.ask("DELETE", "/job/1")
        .token(5)
        .tag("late")
        .send()
        .refused(412, "stale");
    let w = World::with(|c| c.route("collections", "\"allow\""));
    w.put_to("/files/d/x", 5).send().answered(200);
    w.ask("DELETE", "/files/d").token(9).send().answered(200);
    w.ask("DELETE", "/files/d/").token(9).send().answered(200);
}

#[test]
fn a_write_above_what_another_route_fences_is_forbidden() {
    let off =
        "[[routes]]\nname = \"rest\"\npath = \"/{*rest}\"\nupstream = \"files\"\nmode = \"off\"\n";
    let w = World::with(|c| c.more(off));
    for path in ["/files", "/"] {
        let ask = w.ask("DELETE", path).tag("late");
        ask.send().refused(403, "forbidden");
    }
    w.ask("DELETE", "/elsewhere/x").send().answered(200);
    w.ask("PUT", "/elsewhere").send().answered(200);
    assert_eq!(w.up.count("late"), 0);
}

#[test]
fn moves_that_cross_do_not_lock_each_other_out() {
    let w = World::new();
    let calls: Vec<_> = (1..=40_u64)
        .map(|token| {
            let (from, to) = if token % 2 == 0 {
                ("/files/a", "/files/b")
            } else {
                ("/files/b", "/files/a")
            };
            let tag = format!("t{token}");
            w.relocate("MOVE", from, to, token).tag(&tag).start()
        })
        .collect();
    let answers: Vec<_> = calls.into_iter().map(Call::result).collect();
    assert!(answers.iter().all(|a| matches!(a.status, 200 | 412)));
    assert_eq!(answers.last().unwrap().status, 200);
    let order: Vec<u64> =
        w.up.whole()
            .iter()
            .map(|tag| tag[1..].parse().unwrap())
            .collect();
    assert!(order.is_sorted(), "{order:?}");
    w.gauge("fencegate_waiting_writes", 0);
    w.gauge("fencegate_inflight_writes", 0);
    for key in ["files/a", "files/b"] {
        assert_eq!(w.fence(key).unwrap().0, "40");
    }
}

#[test]
fn a_move_that_waits_is_on_disk_at_both_ends() {
    let mut w = World::with(|c| c.upstream("settle", "\"50ms\""));
    w.up.script("t5", Script::hold());
    let mut older = w.put_to("/files/b", 5).header("Content-Length", "4").open();
    older.send(b"data");
    w.up.whole_of("t5");
    let mut waits = w
        .relocate("MOVE", "/files/a", "/files/b", 6)
        .tag("move")
        .open();
    waits.send(b"");
    w.waiting(1);
    for key in ["files/a", "files/b"] {
        wait_until("the commit", || {
            w.fence(key).is_some_and(|(token, _)| token == "6")
        });
    }
    w.crash();
    for path in ["/files/a", "/files/b"] {
        w.put_to(path, 5).tag("late").send().refused(412, "stale");
        w.put_to(path, 6).send().answered(200);
    }
    assert_eq!(w.up.count("late") + w.up.count("move"), 0);
}

#[test]
fn what_lies_below_a_collection_is_not_fenced_while_it_is_under_way() {
    let w = World::new();
    w.up.script("tree", Script::hold());
    let delete = w.ask("DELETE", "/files/d").token(5).tag("tree").start();
    w.up.whole_of("tree");
    w.put_to("/files/d/x", 5)
        .tag("late")
        .send()
        .refused(503, "busy");
    w.put_to("/files/dd", 5).send().answered(200);
    w.up.release("tree");
    delete.result().answered(200);
    w.gauge("fencegate_inflight_writes", 0);
    w.put_to("/files/d/x", 6).send().answered(200);
    assert_eq!(w.up.count("late"), 0);
}

#[test]
fn a_service_that_folds_case_has_one_fence_for_both_spellings() {
    let w = World::with(|c| c.server("fold_case", "true"));
    w.put_to("/files/ReadMe", 5)
        .tag("first")
        .send()
        .answered(200);
    assert_eq!(w.up.head("first").target, "/files/ReadMe"); // as it was spelt
    for spelling in [
        "/files/readme",
        "/FILES/README",
        "/files/%52EADME",
        "/Files/ReadMe/",
    ] {
        w.put_to(spelling, 4).send().refused(412, "stale");
    }
    w.put_to("/files/%C3%84", 9)
        .send()
        .refused(400, "malformed");
    let ask = w.relocate("MOVE", "/files/b", "/files/README", 4);
    ask.send().refused(412, "stale");
}
