//! Events: what somebody on call hears of, folded where it repeats, and kept over a restart.

use crate::support::wait_until;
use crate::upstream::{End, Script};
use crate::world::World;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

impl World {
    /// What is kept, the newest first.
    fn events(&self, query: &str) -> Vec<Value> {
        let target = format!("/api/v1/events?{query}");
        let mut admin = crate::support::Client::connect(self.gw.admin_port);
        let page = admin.request("GET", &target, &[], b"");
        let page: Value = serde_json::from_slice(&page.answered(200).body).unwrap();
        page["events"].as_array().unwrap().clone()
    }

    /// Waits until there are so many. Gives them.
    #[track_caller]
    fn wait_events(&self, query: &str, count: usize) -> Vec<Value> {
        wait_until(&format!("{count} events"), || {
            self.events(query).len() >= count
        });
        let found = self.events(query);
        assert_eq!(found.len(), count, "{found:#?}");
        found
    }
}

#[test]
fn a_zombie_is_one_event_however_often_it_writes() {
    let mut w = World::new();
    w.put(33).send().answered(200);
    w.put(34).send().answered(200);
    let write = || {
        let ask = w.put(33).header("Fencing-Holder", "worker-a");
        let ask = ask.header("User-Agent", "legacy/1.0");
        let ask = ask.header("X-Request-Id", "r-1").header(
            "traceparent",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        );
        ask.send().refused(412, "stale");
    };
    for _ in 0..600 {
        write();
    }
    let count = |w: &World| w.events("kind=stale").first().map(|e| e["count"].as_u64());
    wait_until("all of them", || count(&w) == Some(Some(600)));
    let events = w.events("");
    assert_eq!(events.len(), 1, "{events:#?}");
    for (key, value) in [
        ("kind", "stale"),
        ("route", "files"),
        ("resource", "default:files/a"),
        ("token", "33"),
        ("fence", "34"),
        ("holder", "worker-a"),
        ("client", "127.0.0.1"),
        ("agent", "legacy/1.0"),
        ("request_id", "r-1"),
        ("trace_id", "4bf92f3577b34da6a3ce929d0e0e4736"),
    ] {
        assert_eq!(events[0][key], value, "{:#}", events[0]);
    }
    assert!(events[0]["superseded_ms"].is_u64(), "{:#}", events[0]);
    let first = events[0]["first"].clone();
    // The same one, after a crash.
    let id = events[0]["id"].clone();
    w.gw.kill();
    w.gw.start_again();
    w.put(33)
        .header("Fencing-Holder", "worker-a")
        .send()
        .refused(412, "stale");
    wait_until("one more", || count(&w) == Some(Some(601)));
    let event = &w.events("")[0];
    assert_eq!((&event["id"], &event["first"]), (&id, &first));
}

#[test]
fn each_kind_is_told_apart_and_can_be_asked_for() {
    let w = World::with(|c| c.route("first_max", "100").route("max_advance", "100"));
    w.put(34).send().answered(200);
    w.put(33).send().refused(412, "stale");
    w.put(32).send().refused(412, "stale");
    w.put(500).send().refused(403, "forbidden");
    w.up.script("lost", Script::end(End::Close));
    w.put(34).tag("lost").send().refused(502, "outcome-unknown");
    w.up.script("unsure", Script::status(504));
    w.put_to("/files/b", 34).tag("unsure").send().answered(504);
    // Of these nobody has to hear.
    w.ask("PUT", "/files/a").send().refused(428, "missing");
    w.up.script("gone", Script::end(End::Close));
    w.ask("GET", "/files/a").tag("gone").send();
    let all = w.wait_events("", 5);
    let kinds: Vec<_> = all.iter().map(|e| e["kind"].as_str().unwrap()).collect();
    assert_eq!(
        kinds,
        [
            "unknown-outcome",
            "unknown-outcome",
            "jump",
            "stale",
            "stale"
        ],
        "the newest first"
    );
    assert_eq!(w.events("kind=stale").len(), 2);
    assert_eq!(w.events("resource=default%3Afiles/b").len(), 1);
    assert_eq!(w.events("route=elsewhere").len(), 0);
    let page = w.events("limit=2");
    let next = page[1]["place"].as_u64().unwrap();
    let rest = w.events(&format!("before={next}"));
    assert_eq!([&page[..], &rest[..]].concat(), all);
    let mut admin = crate::support::Client::connect(w.gw.admin_port);
    let wrong = admin.request("GET", "/api/v1/events?kind=x", &[], b"");
    assert_eq!(wrong.status, 400);
}

#[test]
fn of_two_ends_the_one_is_named_that_refused() {
    let w = World::new();
    w.put_to("/files/a", 10).send().answered(200);
    w.put_to("/files/b", 50).send().answered(200);
    w.relocate("MOVE", "/files/a", "/files/b", 40)
        .send()
        .refused(412, "stale");
    let event = &w.wait_events("", 1)[0];
    for (key, value) in [
        ("resource", "default:files/b"),
        ("token", "40"),
        ("fence", "50"),
    ] {
        assert_eq!(event[key], value, "{event:#}");
    }
}

#[test]
fn what_is_only_observed_is_an_event_that_says_so() {
    let w = World::with(|c| c.route("mode", "\"observe\""));
    w.put(34).send().answered(200);
    w.put(33).send().answered(200);
    // Whatever becomes of it at the upstream.
    w.up.script("unsure", Script::status(503));
    w.put(32).tag("unsure").send().answered(503);
    for event in w.wait_events("", 2) {
        let said = (&event["kind"], &event["observed"]);
        assert_eq!(said, (&"stale".into(), &true.into()));
    }
}

#[test]
fn the_command_shows_them_while_a_gateway_runs_and_while_none_does() {
    let mut w = World::new();
    w.put(34).send().answered(200);
    w.put(33).header("Fencing-Holder", "worker-a").send();
    w.wait_events("", 1);
    for running in [true, false] {
        if !running {
            assert!(w.gw.stop().success());
        }
        let (code, said) = w.gw.command(&["events", "--json", "--holder", "worker-a"]);
        assert_eq!(code, Some(0), "{said}");
        let event: Value = serde_json::from_str(said.trim()).unwrap();
        assert_eq!(
            (&event["token"], &event["count"]),
            (&"33".into(), &1.into())
        );
        let (code, said) = w.gw.command(&["events", "--kind", "stale"]);
        assert!(
            code == Some(0) && said.contains("\"worker-a\" at 127.0.0.1"),
            "{said}"
        );
    }
    let (code, said) = w.gw.command(&["events", "--follow"]);
    assert!(
        code == Some(1) && said.contains("no gateway answers"),
        "{said}"
    );
    let (code, said) = w.gw.command(&["events", "--kind", "zombie"]);
    assert!(code == Some(1) && said.contains("guard-conflict"), "{said}");
}

/// Ended when dropped.
struct Child(std::process::Child);

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn who_follows_sees_each_as_it_comes() {
    let w = World::new();
    w.put(34).send().answered(200);
    let mut command = Command::new(env!("CARGO_BIN_EXE_fencegate"));
    let config = w.gw.path("fencegate.toml");
    let mut child = Child(
        command
            .args(["events", "--follow", "--json", "--limit", "0", "--config"])
            .arg(config)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    // It may not listen yet: the same zombie comes until it is seen.
    let seen = std::thread::spawn(move || lines.next().unwrap().unwrap());
    wait_until("the first", || {
        w.put(33).send().refused(412, "stale");
        seen.is_finished()
    });
    let event: Value = serde_json::from_str(&seen.join().unwrap()).unwrap();
    assert_eq!(
        (&event["kind"], &event["token"]),
        (&"stale".into(), &"33".into())
    );
}

#[test]
fn events_that_cannot_be_read_stop_no_start() {
    let mut w = World::new();
    w.put(34).send().answered(200);
    w.put(33).send().refused(412, "stale");
    w.wait_events("", 1);
    assert!(w.gw.stop().success());
    let place = w.gw.path("data/events");
    for entry in std::fs::read_dir(&place).unwrap() {
        std::fs::write(entry.unwrap().path(), "nonsense").unwrap();
    }
    w.gw.start_again();
    w.put(33).send().refused(412, "stale");
    w.wait_events("", 1);
    assert!(w.gw.log().contains("put aside"), "{}", w.gw.log());
}

/// Strangers cannot fill the memory, the store or the metrics with what they say of themselves.
#[test]
fn a_crowd_of_zombies_grows_nothing() {
    const CROWD: u32 = 30_000;
    let w = World::with(|c| {
        let c = c.route("resource", "\"files\"");
        c.more("[events]\nmax_size = \"1MiB\"\n")
    });
    w.put(34).send().answered(200);
    w.put(33).send().refused(412, "stale");
    let series = || {
        let mut admin = crate::support::Client::connect(w.gw.admin_port);
        let page = admin.request("GET", "/metrics", &[], b"").body;
        String::from_utf8(page).unwrap().lines().count()
    };
    let before = series();
    let mut client = w.gw.client();
    let mut memory = Vec::new();
    for round in 0..2 {
        for number in round * CROWD..(round + 1) * CROWD {
            let (path, holder) = (format!("/files/{number}"), format!("holder-{number}"));
            let headers = [
                ("Host", &*format!("host-{number}.example")),
                ("Fencing-Token", "33"),
                ("Fencing-Holder", &*holder),
            ];
            let told = client.request("PUT", &path, &headers, b"");
            assert_eq!(told.status, 412);
        }
        memory.push(w.gw.peak_memory());
    }
    assert_eq!(series(), before);
    let grown = memory[1] - memory[0];
    assert!(grown < 16 << 20, "{grown} bytes more in the second round");
    // What comes too fast may be dropped: it comes until it is seen.
    wait_until("one more", || {
        w.put(33).header("Fencing-Holder", "last").send();
        !w.events("holder=last").is_empty()
    });
    let size: u64 = std::fs::read_dir(w.gw.path("data/events"))
        .unwrap()
        .map(|entry| entry.unwrap().metadata().map_or(0, |file| file.len())) // one may just go
        .sum();
    assert!(size < 24 << 20, "{size} bytes of 1 MiB of events");
    let first = w.events("holder=holder-0");
    assert!(first.is_empty(), "the oldest go first: {first:#?}");
}

#[test]
fn a_look_before_there_is_a_store_makes_none() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("fencegate.toml");
    let data = folder.path().join("data");
    let text = format!(
        "[admin]\nlisten = \"127.0.0.1:1\"\n[store]\npath = '{}'\n[upstreams.u]\nurl = \"http://127.0.0.1:9\"\n\
         [[routes]]\nname = \"r\"\npath = \"/{{key}}\"\nupstream = \"u\"\nresource = \"{{key}}\"\n",
        data.display()
    );
    std::fs::write(&config, text).unwrap();
    let run = |command: &str| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_fencegate"));
        program.arg(command).arg("--config").arg(&config);
        program.output().unwrap().status.code()
    };
    std::fs::create_dir(&data).unwrap();
    assert_eq!(run("events"), Some(1));
    assert_eq!(run("init"), Some(0));
}

#[test]
fn what_goes_on_stands_last_and_what_an_unfenced_route_does_is_none() {
    let w = World::with(|c| {
        c.more("[[routes]]\nname = \"open\"\npath = \"/open/{*rest}\"\nupstream = \"files\"\nmode = \"off\"\n")
    });
    w.put(34).send().answered(200);
    for token in [33, 32, 33] {
        w.put(token).send().refused(412, "stale");
        let count = if token == 32 { 2 } else { 1 };
        wait_until("it", || w.events("").len() >= count);
    }
    w.up.script("queued", Script::status(202));
    w.put_to("/open/a", 1).tag("queued").send().answered(202);
    wait_until("the second", || w.events("")[0]["count"] == 2);
    let tokens: Vec<_> = w.events("").iter().map(|e| e["token"].clone()).collect();
    assert_eq!(tokens, ["33", "32"]);
}
