//! The access log: one line a request, with what became of it, and never in a request's way.

use crate::support::{Client, wait_until};
use crate::upstream::{End, Script};
use crate::world::World;
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// A gateway that writes an access log, and where that is.
fn logged(more: &str, route: &[(&str, &str)]) -> (World, PathBuf, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let table = format!("[access_log]\npath = '{}'\n{more}", path.display());
    let w = World::with(|c| {
        route
            .iter()
            .fold(c.more(&table), |c, (key, value)| c.route(key, value))
    });
    (w, path, folder)
}

fn lines(path: &PathBuf) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    // The last one may be on its way.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[track_caller]
fn wait_lines(path: &PathBuf, count: usize) -> Vec<Value> {
    wait_until(&format!("{count} lines"), || lines(path).len() >= count);
    let found = lines(path);
    assert_eq!(found.len(), count, "{found:#?}");
    found
}

#[test]
fn each_request_has_a_line_that_says_what_became_of_it() {
    let (w, path, _folder) = logged("resource = \"name\"", &[]);
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let ask = w.put(5).header("Fencing-Holder", "worker-1");
    let ask = ask.header("traceparent", &format!("00-{trace}-00f067aa0ba902b7-01"));
    ask.send().answered(200);
    let lines = wait_lines(&path, 1);
    let line = &lines[0];
    for (key, value) in [
        ("client", "127.0.0.1"),
        ("protocol", "HTTP/1.1"),
        ("method", "PUT"),
        ("path", "/files/a"),
        ("route", "files"),
        ("token", "5"),
        ("holder", "worker-1"),
        ("decision", "raised"),
        ("outcome", "answered"),
        ("trace_id", trace),
    ] {
        assert_eq!(line[key], value, "{line:#}");
    }
    assert_eq!(line["resources"], serde_json::json!(["default:files/a"]));
    assert_eq!((&line["status"], &line["bytes"]), (&200.into(), &2.into()));
    assert_eq!(line["complete"], true);
    let ms = |key: &str| line[key].as_f64().unwrap();
    assert!(ms("total_ms") >= ms("upstream_ms") && ms("total_ms") >= ms("wait_ms"));
    // What was passed on is as it came.
    let seen = w.up.head("t5");
    assert!(seen.header("traceparent").unwrap().contains(trace));
}

#[test]
fn an_answer_that_is_waited_for_to_its_end_is_complete_with_its_last_byte() {
    let at_end = [("settled_at", "\"response-end\"")];
    let (w, path, _folder) = logged("", &at_end);
    w.put(5).send().answered(200);
    let line = &wait_lines(&path, 1)[0];
    assert_eq!(
        (&line["bytes"], &line["complete"]),
        (&2.into(), &true.into())
    );
}

#[test]
fn refusals_and_failures_have_theirs() {
    let (w, path, _folder) = logged("", &[]);
    w.put(5).send().answered(200);
    w.put(4).send().refused(412, "stale");
    w.put_to("/nowhere", 4).send().refused(404, "unrouted");
    w.up.script("lost", Script::end(End::Close));
    w.put(5).tag("lost").send().refused(502, "outcome-unknown");
    w.up.script("unsure", Script::status(504));
    w.put(5).tag("unsure").send().answered(504);
    w.ask("GET", "/files/a").send().answered(200);
    let mut gone = w.put(5).tag("gone").half();
    w.up.head("gone");
    gone.send(b"");
    drop(gone);
    let lines = wait_lines(&path, 7);
    let said: Vec<_> = lines
        .iter()
        .map(|line| {
            let word = |key: &str| line[key].as_str().unwrap().to_owned();
            (
                word("decision"),
                word("outcome"),
                line["status"].as_u64().unwrap(),
            )
        })
        .collect();
    let expected = [
        ("raised", "answered", 200),
        ("stale", "not-forwarded", 412),
        ("unrouted", "not-forwarded", 404),
        ("outcome-unknown", "unknown", 502),
        ("admitted", "unknown", 504),
        ("passed", "answered", 200),
    ];
    for (said, (decision, outcome, status)) in said.iter().zip(expected) {
        assert_eq!((&*said.0, &*said.1, said.2), (decision, outcome, status));
    }
    assert_eq!(
        (&lines[6]["status"], &lines[6]["outcome"]),
        (&408.into(), &"unknown".into())
    );
}

#[test]
fn resources_are_hashed_unless_they_are_to_be_named() {
    let (w, path, _folder) = logged("", &[]);
    let secret = "/files/secret?sig=secret";
    w.put_to(secret, 5)
        .header("Authorization", "secret")
        .send()
        .answered(200);
    let line = wait_lines(&path, 1).remove(0);
    assert!(!line.to_string().contains("secret"), "{line:#}");
    let hash = line["resources"][0].as_str().unwrap();
    let sum = Command::new("sh")
        .args(["-c", "printf 'default\\0files/secret' | sha256sum"])
        .output()
        .unwrap();
    assert!(
        String::from_utf8(sum.stdout).unwrap().starts_with(hash),
        "{hash}"
    );
}

#[test]
fn a_file_that_was_moved_away_is_made_anew_at_a_signal() {
    let (w, path, folder) = logged("", &[]);
    w.put(5).send().answered(200);
    wait_lines(&path, 1);
    let moved = folder.path().join("moved.log");
    fs::rename(&path, &moved).unwrap();
    kill_process(w.gw.pid(), Signal::HUP).unwrap();
    wait_until("the new file", || {
        w.put(5).send().answered(200);
        !lines(&path).is_empty()
    });
    assert!(!lines(&moved).is_empty());
}

#[test]
fn a_log_that_takes_nothing_holds_nobody_up() {
    // A pipe that nobody reads until the end.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    let reader = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let table = format!("[access_log]\npath = '{}'\nqueue = 16\n", path.display());
    let mut w = World::with(|c| c.more(&table));
    let mut client = Client::connect(w.gw.port);
    let headers = [("Fencing-Token", "5")];
    for _ in 0..2_000 {
        client
            .request("PUT", "/files/a", &headers, b"")
            .answered(200);
    }
    assert!(w.metric("fencegate_access_log_dropped_total", &[]) > 0.0);
    // Nor is the stop.
    assert!(w.gw.stop().success());
    drop(reader);
}
