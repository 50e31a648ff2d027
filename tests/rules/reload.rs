//! A configuration that changes while the gateway runs: taken up whole or not at all, and no write slips
//! between the old one and the new one.

use crate::support::{Client, free_port, wait_until};
use crate::upstream::{Script, Upstream};
use crate::world::{World, pause};
use rustix::process::{Signal, kill_process};
use std::time::{Duration, Instant};

impl World {
    fn hang_up(&self) {
        kill_process(self.gw.pid(), Signal::HUP).unwrap();
    }

    fn reloads(&self, result: &str) -> f64 {
        let label = format!("result=\"{result}\"");
        self.metric("fencegate_config_reloads_total", &[&label])
    }

    /// Changes the file and waits until that is in force.
    #[track_caller]
    fn change(&self, from: &str, to: &str) {
        let before = self.reloads("ok");
        self.gw.edit(from, to);
        self.hang_up();
        wait_until("the reload", || self.reloads("ok") > before);
        pause(50); // each serving thread takes it up by itself
    }

    /// Changes the file and waits until that was refused. Gives the log.
    #[track_caller]
    fn fail(&self, from: &str, to: &str) -> String {
        let before = self.reloads("failed");
        self.gw.edit(from, to);
        self.hang_up();
        wait_until("the refusal", || self.reloads("failed") > before);
        self.gw.log()
    }
}

const PATH: &str = "path = \"/files/{*key}\"";
const RESOURCE: &str = "resource = \"files/{key}\"";

#[test]
fn a_new_route_is_served_and_open_connections_stay() {
    let w = World::new();
    let mut open = w.gw.client();
    let put = |client: &mut Client, path: &str, tag: &str| {
        let headers = [("Fencing-Token", "5"), ("X-Tag", tag)];
        client.request("PUT", path, &headers, b"data")
    };
    put(&mut open, "/files/a", "before").answered(200);
    put(&mut open, "/more/a", "unrouted").refused(404, "unrouted");
    w.change(PATH, "path = \"/more/{*key}\"");
    put(&mut open, "/more/a", "after").answered(200);
    put(&mut open, "/files/a", "gone").refused(404, "unrouted");
    // The connection upstream is another's no more than the client's is.
    assert_eq!(w.up.head("before").from, w.up.head("after").from);
}

#[test]
fn a_file_that_changes_is_read_without_a_signal() {
    let w = World::with(|c| c.server("reload_on_change", "true"));
    w.gw.edit(PATH, "path = \"/more/{*key}\"");
    wait_until("the new route", || {
        w.put_to("/more/a", 5).send().status == 200
    });
    // Unless that is not wanted.
    let w = World::new();
    w.gw.edit(PATH, "path = \"/more/{*key}\"");
    pause(3_000);
    w.put_to("/more/a", 5).send().refused(404, "unrouted");
    w.hang_up();
    wait_until("the new route", || {
        w.put_to("/more/a", 5).send().status == 200
    });
}

#[test]
fn a_file_with_faults_changes_nothing_and_says_each() {
    let w = World::new();
    let said = w.fail(PATH, "path = \"more/{*key}\"\nmodus = \"off\"");
    assert!(said.contains("routes.files.path"), "{said}");
    assert!(said.contains("did you mean mode?"), "{said}");
    w.put(5).send().answered(200);
}

#[test]
fn what_cannot_change_is_named_and_nothing_else_changes_with_it() {
    let w = World::with(|c| c.server("max_streams", "7"));
    w.gw.edit(PATH, "path = \"/more/{*key}\"");
    let said = w.fail("max_streams = 7", "max_streams = 8\nworkers = 3");
    assert!(
        said.contains("server.workers, server.max_streams cannot change"),
        "{said}"
    );
    w.put_to("/more/a", 5).send().refused(404, "unrouted");
    w.put(5).send().answered(200);
}

#[test]
fn a_route_that_changed_waits_for_what_was_forwarded_before() {
    let w = World::new();
    w.up.script("old", Script::hold());
    let old = w.put(5).tag("old").start();
    w.up.whole_of("old");
    // The same object has another fence now, which knows nothing of the write that is under way.
    w.change(RESOURCE, "resource = \"other/{key}\"");
    let new = w.put(6).tag("new").start();
    w.stays_away("new");
    assert!(!new.is_done());
    w.up.release("old");
    old.result().answered(200);
    new.result().answered(200);
    // What that means is said.
    let log = w.gw.log();
    assert!(log.contains("begin without a fence"), "{log}");
}

/// It changes nothing, however long its answer takes.
#[test]
fn a_read_under_way_holds_no_route_up_that_changed() {
    let w = World::new();
    w.up.script("poll", Script::hold());
    let poll = w.ask("GET", "/files/a").tag("poll").start();
    w.up.head("poll");
    w.change(RESOURCE, "resource = \"other/{key}\"");
    w.put(6).tag("new").send().answered(200);
    assert!(!poll.is_done());
    w.up.release("poll");
    poll.result().answered(200);
}

/// Its route takes it for a read; the next configuration does not.
#[test]
fn a_read_by_a_method_that_writes_elsewhere_is_waited_for() {
    let w = World::with(|c| {
        let c = c.route("reads", "[\"POST\"]");
        c.route("raise_on_read", "true")
    });
    w.up.script("query", Script::hold());
    let query = w.ask("POST", "/files/a").token(5).tag("query").start();
    w.up.whole_of("query");
    w.change("reads = [\"POST\"]", "");
    let new = w.ask("POST", "/files/a").token(6).tag("new").start();
    w.stays_away("new");
    w.up.release("query");
    query.result().answered(200);
    new.result().answered(200);
}

/// Both ends of what no gate knows of: one may be another route's by then.
#[test]
fn the_destination_of_a_move_on_routes_that_are_off_is_waited_for() {
    let w = World::with(|c| {
        let c = c.route("path", "\"/s/{*key}\"").route("mode", "\"off\"");
        c.more("[[routes]]\nname = 'd'\npath = '/d/b'\nupstream = 'files'\nmode = 'off'\ncollections = 'allow'")
            .more("[[routes]]\nname = 'e'\npath = '/d/{name}'\nupstream = 'files'\nresource = '{name}'")
    });
    w.up.script("move", Script::hold());
    let moved = w.relocate("MOVE", "/s/a", "/d/b", 1).tag("move").start();
    w.up.head("move");
    w.change("path = '/d/b'", "path = '/gone/b'");
    let new = w.put_to("/d/b", 5).tag("new").start();
    w.stays_away("new");
    w.up.release("move");
    moved.result().answered(200);
    new.result().answered(200);
}

#[test]
fn it_still_waits_after_another_reload() {
    let w = World::with(|c| {
        c.more("[[routes]]\nname = \"other\"\npath = \"/other/{k}\"\nupstream = \"files\"\nresource = \"{k}\"")
    });
    w.up.script("old", Script::hold());
    let old = w.put(5).tag("old").start();
    w.up.whole_of("old");
    w.change(RESOURCE, "resource = \"another/{key}\"");
    w.change("path = \"/other/{k}\"", "path = \"/others/{k}\"");
    let new = w.put(6).tag("new").start();
    w.stays_away("new");
    w.up.release("old");
    old.result().answered(200);
    new.result().answered(200);
}

#[test]
fn a_route_that_stays_waits_only_for_those_that_are_gone() {
    let other = "[[routes]]\nname = \"other\"\npath = \"/other/{k}\"\nupstream = \"files\"\nresource = \"{k}\"";
    let w = World::with(|c| c.more(other));
    w.up.script("old", Script::hold());
    let old = w.put(5).tag("old").start();
    w.up.whole_of("old");
    // One comes: nothing of it was ever served by those that are there.
    w.change(
        other,
        &format!("{other}\n{}", other.replace("other", "third")),
    );
    w.put_to("/other/a", 5).tag("other").send().answered(200);
    // One goes: its paths may be another's now.
    w.change("name = \"files\"", "name = \"renamed\"");
    let new = w.put_to("/other/a", 5).tag("later").start();
    w.stays_away("later");
    w.up.release("old");
    old.result().answered(200);
    new.result().answered(200);
}

#[test]
fn what_a_route_that_was_off_forwarded_is_waited_for_with_its_settle() {
    let w = World::with(|c| c.route("mode", "\"off\"").upstream("settle", "\"1s\""));
    let mut old = w.put(5).tag("old").half();
    w.up.head("old");
    w.change("mode = \"off\"", "mode = \"enforce\"");
    let new = w.put(6).tag("new").start();
    w.stays_away("new");
    let gone = Instant::now();
    old.send(b"");
    drop(old);
    new.result().answered(200);
    assert!(gone.elapsed() >= Duration::from_secs(1));
}

#[test]
fn a_wait_that_takes_too_long_ends_with_503() {
    let w = World::with(|c| c.route("drain_timeout", "\"300ms\""));
    w.up.script("old", Script::hold());
    let old = w.put(5).tag("old").start();
    w.up.whole_of("old");
    w.change(RESOURCE, "resource = \"other/{key}\"");
    w.put(6).tag("new").send().refused(503, "draining");
    w.up.release("old");
    old.result().answered(200);
    w.put(6).tag("again").send().answered(200);
}

#[test]
fn a_longer_settle_is_noted_before_it_is_used() {
    let mut w = World::new();
    w.put(5).send().answered(200);
    w.change("settle = \"300ms\"", "settle = \"3s\"");
    let before = w.crash();
    w.gw.edit("settle = \"3s\"", "settle = \"1ms\""); // for the run after
    w.put(6).send().answered(200);
    assert!(before.elapsed() >= Duration::from_secs(3));
}

#[test]
fn an_exchange_with_an_upstream_that_is_gone_ends_as_it_began() {
    let w = World::with(|c| c.upstream("response_timeout", "\"1s\""));
    let next = Upstream::start(free_port());
    w.up.script("old", Script::hold());
    let old = w.put(5).tag("old").start();
    w.up.whole_of("old");
    let (from, to) = (format!(":{}\"", w.up.port), format!(":{}\"", next.port));
    w.change(&from, &to);
    // Its time limit holds though nothing else is left of that configuration.
    old.result().refused(504, "outcome-unknown");
    w.put(6).tag("new").send().answered(200);
    assert_eq!((w.up.count("new"), next.count("new")), (0, 1));
}

#[test]
fn routes_in_another_order_are_not_what_they_were() {
    // Which of two routes takes a path may depend on their order, and with it the fence.
    let one = "[[routes]]\nname = \"one\"\npath = \"/one/{k}\"\nupstream = \"files\"\nresource = \"1/{k}\"\n";
    let two = "[[routes]]\nname = \"two\"\npath = \"/two/{k}\"\nupstream = \"files\"\nresource = \"2/{k}\"\n";
    let w = World::with(|c| c.more(&format!("{one}{two}")));
    w.up.script("old", Script::hold());
    let old = w.put_to("/one/a", 5).tag("old").start();
    w.up.whole_of("old");
    w.change(&format!("{one}{two}"), &format!("{two}{one}"));
    let new = w.put_to("/two/a", 6).tag("new").start();
    w.stays_away("new");
    w.up.release("old");
    old.result().answered(200);
    new.result().answered(200);
}

#[test]
fn what_a_route_that_was_off_still_sends_after_its_answer_is_waited_for() {
    let w = World::with(|c| c.route("mode", "\"off\"").upstream("settle", "\"700ms\""));
    let early = Script {
        early: true,
        ..Script::default()
    };
    w.up.script("old", early);
    let mut old = w.put(5).tag("old").half();
    old.response("PUT").answered(200);
    w.change("mode = \"off\"", "mode = \"enforce\"");
    let start = Instant::now();
    w.put(6).tag("new").send().answered(200);
    assert!(start.elapsed() >= Duration::from_millis(400));
    drop(old);
}

#[test]
fn a_stop_is_not_clean_while_a_route_that_is_off_may_still_write() {
    let mut w = World::with(|c| {
        let c = c.route("mode", "\"off\"").upstream("settle", "\"3s\"");
        c.server("shutdown_timeout", "\"300ms\"")
    });
    let mut old = w.put(5).tag("old").half();
    w.up.head("old");
    old.send(b"");
    drop(old);
    w.up.closed("old");
    let gone = Instant::now();
    w.gw.stop();
    assert!(!w.gw.log().contains("stopped clean"));
    w.gw.edit("mode = \"off\"", "mode = \"enforce\"");
    w.gw.start_again();
    w.put(6).tag("new").send().answered(200);
    assert!(gone.elapsed() >= Duration::from_secs(3));
}

#[test]
fn a_client_that_left_while_its_route_waited_is_not_forwarded() {
    let w = World::new();
    w.up.script("old", Script::hold());
    let old = w.put(5).tag("old").start();
    w.up.whole_of("old");
    w.change(RESOURCE, "resource = \"other/{key}\"");
    let left = w.put(6).tag("left").header("Content-Length", "4").open();
    w.waiting(1);
    drop(left);
    pause(100);
    w.up.release("old");
    old.result().answered(200);
    w.put(6).tag("next").send().answered(200);
    assert_eq!(w.up.count("left"), 0);
}
