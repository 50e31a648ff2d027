//! What must survive restarts and crashes: fences, whether they were drained, and whether the last run
//! ended clean.

use crate::support::{Client, wait_until};
use crate::upstream::{End, Script};
use crate::world::World;
use std::fs;
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

/// Checks that the first request of that tag came so long after a moment before the start.
#[track_caller]
fn waited(w: &World, tag: &str, start: Instant, settle: u64) {
    let gap = w.up.head(tag).head_at - start;
    assert!(gap >= Duration::from_millis(settle), "{tag}: {gap:?}");
}

#[test]
fn an_overtaken_raise_does_not_lower_the_record() {
    let mut w = World::with(|c| c.upstream("settle", "\"50ms\""));
    let writers: Vec<_> = (0..8_u64)
        .map(|writer| {
            // Each key sees every token once, in an order of its own.
            let asks: Vec<_> = (1..=25_u64)
                .map(|n| {
                    w.put_to(
                        &format!("/files/{}", n % 2),
                        1 + (n * 7 + writer * 31) % 200,
                    )
                })
                .collect();
            thread::spawn(move || {
                let answers = asks.iter().map(|ask| ask.send().status);
                answers.collect::<Vec<_>>()
            })
        })
        .collect();
    let mut highest = [0; 2];
    for writer in 0..8_u64 {
        for n in 1..=25_u64 {
            let key = usize::try_from(n % 2).unwrap();
            highest[key] = highest[key].max(1 + (n * 7 + writer * 31) % 200);
        }
    }
    for writer in writers {
        let answers = writer.join().unwrap();
        assert!(
            answers.iter().all(|status| matches!(status, 200 | 412)),
            "{answers:?}"
        );
    }
    w.crash();
    for (key, highest) in highest.iter().enumerate() {
        let found = w.fence(&format!("files/{key}")).unwrap().0;
        assert_eq!(found, highest.to_string());
        let path = format!("/files/{key}");
        w.put_to(&path, highest - 1)
            .tag("late")
            .send()
            .refused(412, "stale");
        w.put_to(&path, *highest).send().answered(200);
    }
    assert_eq!(w.up.count("late"), 0);
}

#[test]
fn unclean_start_holds_the_same_token_unless_it_was_drained() {
    let mut w = World::with(|c| c.upstream("settle", "\"900ms\""));
    w.up.script("t5", Script::hold());
    let older = w.put(5).header("Content-Length", "4").open();
    let mut older = older;
    older.send(b"data");
    w.up.whole_of("t5");
    let mut raise = w.put(6).header("Content-Length", "4").open();
    raise.send(b"data");
    wait_until("the commit", || {
        w.fence("files/a") == Some(("6".into(), false))
    });
    let start = w.crash();
    let same = w.put(6).tag("same").start();
    let fresh = w.put_to("/files/new", 1).tag("fresh").start();
    w.put(5).tag("late").send().refused(412, "stale");
    same.result().answered(200);
    fresh.result().answered(200);
    waited(&w, "same", start, 900);
    waited(&w, "fresh", start, 900);
    assert_eq!(w.up.count("late"), 0);
}

#[test]
fn unclean_start_answers_readyz_and_reads_during_the_wait() {
    let mut w = World::with(|c| {
        c.upstream("settle", "\"20s\"")
            .route("drain_timeout", "\"300ms\"")
    });
    w.put(5).send().answered(200);
    wait_until("the mark", || w.fence("files/a").unwrap().1);
    let wait = |w: &World| {
        let page = Client::connect(w.gw.admin_port).request("GET", "/readyz", &[], b"");
        let page: serde_json::Value = serde_json::from_slice(&page.body).unwrap();
        page["raises_wait_seconds"].as_u64()
    };
    assert_eq!(wait(&w), None);
    w.crash(); // returns only once /readyz is 200
    assert!((1..=20).contains(&wait(&w).unwrap()));
    w.ask("GET", "/files/a").send().answered(200);
    let answer = w.put(6).send();
    answer.refused(503, "draining");
    assert!(answer.header("Retry-After").is_some());
    w.put(5).tag("late").send().refused(412, "stale");
    w.put_to("/files/b", 1).send().refused(503, "draining");
    w.gauge("fencegate_waiting_writes", 0);
}

#[test]
fn unclean_start_lets_a_drained_token_pass() {
    let mut w = World::with(|c| c.upstream("settle", "\"20s\""));
    w.put(5).send().answered(200);
    wait_until("the mark", || w.fence("files/a").unwrap().1);
    w.crash();
    w.put(5).send().answered(200);
}

#[test]
fn editing_the_settle_does_not_shorten_the_wait() {
    let mut w = World::with(|c| c.upstream("settle", "\"1500ms\""));
    w.put(5).send().answered(200);
    w.gw.kill();
    w.gw.edit("\"1500ms\"", "\"10ms\"");
    w.gw.start_again();
    // Killed again within the wait: what the first run left may still be under way.
    let start = w.crash();
    w.put(6).send().answered(200);
    waited(&w, "t6", start, 1500);
    // A clean state ends it.
    assert!(w.gw.stop().success());
    w.gw.start_again();
    w.put(7).send().answered(200);
    let gap = w.crash();
    w.put(8).send().answered(200);
    waited(&w, "t8", gap, 10);
}

#[test]
fn clean_marker_is_not_written_inside_a_settle() {
    let mut w = World::with(|c| {
        c.upstream("settle", "\"1200ms\"")
            .server("shutdown_timeout", "\"100ms\"")
    });
    w.up.script("t5", Script::end(End::Reset));
    w.put(5).send().refused(502, "outcome-unknown");
    w.gauge("fencegate_unsettled_writes", 1);
    assert!(w.gw.stop().success());
    let start = Instant::now();
    w.gw.start_again();
    w.put(6).send().answered(200);
    waited(&w, "t6", start, 1200);
}

#[test]
fn clean_marker_is_not_written_within_the_wait_of_an_unclean_start() {
    let mut w = World::with(|c| c.upstream("settle", "\"1200ms\""));
    w.put(5).send().answered(200);
    w.crash();
    assert!(w.gw.stop().success());
    let start = Instant::now();
    w.gw.start_again();
    w.put(6).send().answered(200);
    waited(&w, "t6", start, 1200);
}

#[test]
fn a_stop_waits_for_the_settle_where_it_has_the_time() {
    let mut w = World::with(|c| c.upstream("settle", "\"700ms\""));
    w.up.script("t5", Script::end(End::Reset));
    w.put(5).send().refused(502, "outcome-unknown");
    let reset = w.up.closed("t5").closed_at.unwrap();
    assert!(w.gw.stop().success());
    assert!(
        reset.elapsed() >= Duration::from_millis(700),
        "{:?}",
        reset.elapsed()
    );
    // So that the next start need not.
    w.gw.edit("\"700ms\"", "\"20s\"");
    w.gw.start_again();
    w.put(6).send().answered(200);
}

#[test]
fn a_start_with_a_port_in_use_leaves_a_clean_store_clean() {
    let mut w = World::with(|c| c.upstream("settle", "\"20s\""));
    w.put(5).send().answered(200);
    assert!(w.gw.stop().success());
    for port in [w.gw.port, w.gw.admin_port] {
        let taken = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let (code, said) = w.gw.command(&["serve"]);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(&format!("127.0.0.1:{port}")), "{said}");
        drop(taken);
    }
    w.gw.start_again();
    w.put(6).send().answered(200);
}

#[test]
fn a_marker_of_another_run_counts_for_nothing() {
    let mut w = World::with(|c| c.upstream("settle", "\"900ms\""));
    w.put(5).send().answered(200);
    assert!(w.gw.stop().success());
    let marker = w.gw.path("data/clean");
    let kept = fs::read(&marker).unwrap();
    w.gw.start_again();
    assert!(!marker.exists(), "the marker outlived the start");
    w.gw.kill();
    fs::write(&marker, kept).unwrap();
    let start = Instant::now();
    w.gw.start_again();
    w.put(6).send().answered(200);
    waited(&w, "t6", start, 900);
}

#[test]
fn init_changes_nothing_on_a_store_that_exists() {
    let mut w = World::new();
    w.put(5).send().answered(200);
    assert!(w.gw.stop().success());
    let (code, said) = w.gw.command(&["init"]);
    assert_eq!(code, Some(0), "{said}");
    w.gw.start_again();
    w.put(4).tag("late").send().refused(412, "stale");
    assert_eq!(w.up.count("late"), 0);
}

#[test]
fn a_lost_file_stops_the_start_rather_than_forget_a_fence() {
    let mut w = World::new();
    w.put(5).send().answered(200);
    assert!(w.gw.stop().success());
    for name in ["identity", "state", "ledger", "db"] {
        let (path, aside) = (w.gw.path(&format!("data/{name}")), w.gw.path("aside"));
        fs::rename(&path, &aside).unwrap();
        for command in ["serve", "init"] {
            let (code, said) = w.gw.command(&[command]);
            let refuses = code == Some(1) || (command == "init" && name != "identity");
            assert!(refuses, "{command} without {name}: {code:?} {said}");
        }
        fs::rename(&aside, &path).unwrap();
    }
    w.gw.start_again();
    w.put(4).tag("late").send().refused(412, "stale");
}
