//! Guards: the condition by which the resource itself refuses a write that comes too late.

use crate::support::resource::{Resource, Validator};
use crate::support::{Client, Config, Gateway, Response, wait_until};
use crate::world::pause;
use rustix::process::{Signal, kill_process};
use std::io::Read;
use std::thread::{self, JoinHandle};

/// A gateway with a guard, and the resource behind it.
struct Guarded {
    gw: Gateway,
    store: Resource,
    path: &'static str,
}

/// Before a plain service.
fn plain(guard: &str, change: impl FnOnce(Config) -> Config) -> Guarded {
    let store = Resource::start();
    let config = Config::new(store.port).route("guard", &format!("\"{guard}\""));
    let config = config.upstream("conditions", "\"trusted\"");
    Guarded {
        gw: Gateway::start(change(config)),
        store,
        path: "/files/a",
    }
}

/// Before an object store.
fn objects(guard: &str, change: impl FnOnce(Config) -> Config) -> Guarded {
    let guarded = plain(guard, |c| {
        let c = c
            .upstream("kind", "\"s3\"")
            .upstream("region", "\"eu-west-3\"");
        let c = c.route("host", "\"127.0.0.1\"");
        let c = c.route("path", "\"/{bucket}/{*key}\"");
        change(c.route("resource", "\"{bucket}/{key}\""))
    });
    Guarded {
        path: "/b/a",
        ..guarded
    }
}

impl Guarded {
    fn send(
        &self,
        method: &str,
        path: &str,
        token: u64,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Response {
        let (token, tag) = (token.to_string(), format!("t{token}"));
        let own = [("Fencing-Token", token.as_str()), ("X-Tag", tag.as_str())];
        // The last of two names counts.
        let named = headers.iter().any(|(name, _)| *name == "X-Tag");
        let own = &own[..if named { 1 } else { 2 }];
        Client::connect(self.gw.port).request(
            method,
            path,
            &[own, headers].concat(),
            body.as_bytes(),
        )
    }

    fn put(&self, token: u64, body: &str) -> Response {
        self.send("PUT", self.path, token, &[], body)
    }

    /// A PUT that is under way.
    fn putting(&self, token: u64, tag: &str, body: &str) -> JoinHandle<()> {
        let (port, path) = (self.gw.port, self.path);
        let (token, tag, body) = (token.to_string(), tag.to_owned(), body.to_owned());
        thread::spawn(move || {
            let headers = [("Fencing-Token", token.as_str()), ("X-Tag", tag.as_str())];
            let mut client = Client::connect(port);
            client.send_head(
                "PUT",
                path,
                &[&headers[..], &[("Content-Length", &body.len().to_string())]].concat(),
            );
            client.send(body.as_bytes());
            let _ = client.stream().read(&mut [0; 1]); // the gateway may be gone
        })
    }

    fn content(&self) -> Option<String> {
        self.store.content(self.path)
    }

    fn metric(&self, name: &str) -> u64 {
        let page = Client::connect(self.gw.admin_port).request("GET", "/metrics", &[], b"");
        let page = String::from_utf8(page.body).unwrap();
        let line = format!("{name}{{route=\"files\"}} ");
        let found = page.lines().find_map(|found| found.strip_prefix(&line));
        found.unwrap().parse().unwrap()
    }

    fn conflicts(&self) -> u64 {
        self.metric("fencegate_guard_conflicts_total")
    }

    fn gaps(&self) -> u64 {
        self.metric("fencegate_guard_gaps_total")
    }

    fn questions(&self) -> usize {
        self.store.came(Some("HEAD")).len()
    }
}

fn text(response: &Response) -> String {
    String::from_utf8(response.body.clone()).unwrap()
}

/// The window that no proxy can close: the gateway is killed with a write under way, and that lands late, after
/// the settle that the upstream declares and does not keep.
fn late_write(g: &mut Guarded) -> u16 {
    g.store.put(g.path, "first");
    g.store.hold("t33");
    let zombie = g.putting(33, "t33", "zombie");
    g.store.awaits("t33");
    g.gw.kill();
    g.gw.start_again();
    g.put(34, "newer").answered(200);
    let status = g.store.release("t33");
    let _ = zombie.join();
    status
}

#[test]
fn a_late_write_fails_at_the_resource() {
    for mut g in [plain("etag", |c| c), objects("etag", |c| c)] {
        assert_eq!(late_write(&mut g), 412);
        assert_eq!(g.content().as_deref(), Some("newer"));
    }
}

#[test]
fn without_a_guard_it_takes_effect() {
    let mut g = plain("none", |c| c);
    assert_eq!(late_write(&mut g), 200);
    assert_eq!(
        g.content().as_deref(),
        Some("zombie"),
        "what the test above is there for"
    );
}

#[test]
fn a_late_creation_fails_at_the_resource() {
    for mut g in [
        plain("create-only", |c| c),
        objects("create-only", |c| c),
        plain("etag", |c| c),
    ] {
        g.store.hold("t33");
        let zombie = g.putting(33, "t33", "zombie");
        g.store.awaits("t33");
        g.gw.kill();
        g.gw.start_again();
        g.put(34, "newer").answered(200);
        assert_eq!(g.store.release("t33"), 412);
        assert_eq!(g.content().as_deref(), Some("newer"));
        let _ = zombie.join();
    }
}

#[test]
fn a_holder_asks_once_and_each_answer_moves_the_pin() {
    for g in [plain("etag", |c| c), objects("etag", |c| c)] {
        g.store.put(g.path, "first");
        for number in 0..3 {
            let before = g.store.etag(g.path);
            g.put(5, &number.to_string()).answered(200);
            assert_eq!(g.store.last("t5").header("if-match"), before.as_deref());
        }
        assert_eq!(g.questions(), 1, "the pin is warm");
        g.put(6, "next").answered(200);
        assert_eq!(g.questions(), 2, "another holder learns it anew");
        assert_eq!((g.conflicts(), g.gaps()), (0, 0));
    }
}

#[test]
fn the_question_is_entitled_as_the_write_is_and_signed_where_it_cannot_be() {
    let g = plain("etag", |c| c);
    g.send(
        "PUT",
        g.path,
        5,
        &[("Authorization", "Bearer b"), ("Cookie", "c=d")],
        "a",
    )
    .answered(200);
    let asked = g.store.came(Some("HEAD")).remove(0);
    assert_eq!(asked.header("authorization"), Some("Bearer b"));
    assert_eq!(asked.header("cookie"), Some("c=d"));
    assert_eq!(asked.header("fencing-token"), None);
    let g = objects("etag", |c| c);
    g.send(
        "PUT",
        "/b/a%20b?x-id=PutObject",
        5,
        &[("Authorization", "AWS4 mine")],
        "a",
    )
    .answered(200);
    let asked = g.store.came(Some("HEAD")).remove(0);
    assert_eq!(asked.target, "/b/a%20b");
    let signed = asked.header("authorization").unwrap();
    assert!(
        signed.starts_with("AWS4-HMAC-SHA256 Credential=key/"),
        "{signed}"
    );
    assert!(
        signed.contains("/eu-west-3/s3/aws4_request, SignedHeaders=host;"),
        "{signed}"
    );
    let host = format!("127.0.0.1:{}", g.gw.port);
    assert_eq!(
        asked.header("host"),
        Some(host.as_str()),
        "as the write has it"
    );
    assert_eq!(
        g.store.last("t5").header("authorization"),
        Some("AWS4 mine"),
        "the client's own is left whole"
    );
}

#[test]
fn a_write_past_the_gateway_is_told_counted_and_learned() {
    for g in [plain("etag", |c| c), objects("etag", |c| c)] {
        g.put(5, "a").answered(200);
        g.store.put(g.path, "past");
        let told = g.put(5, "b");
        told.refused(503, "conflict");
        assert!(told.header("retry-after").is_some());
        assert!(text(&told).contains("guard-conflict"), "{}", text(&told));
        assert_eq!(g.content().as_deref(), Some("past"));
        assert_eq!(g.conflicts(), 1);
        let object = match g.path {
            "/files/a" => "object=\"127.0.0.1/files/a\"",
            _ => "object=\"b/a\"",
        };
        let told = g.gw.log();
        let told = told.lines().find(|line| line.contains("past the gateway"));
        assert!(told.unwrap().contains(object), "{told:?}");
        g.put(5, "b").answered(200);
        assert_eq!(g.content().as_deref(), Some("b"));
        assert_eq!(g.conflicts(), 1);
    }
}

#[test]
fn a_small_body_is_sent_again_where_its_route_says_so() {
    let g = plain("etag", |c| c.route("guard_retry", "\"1KiB\""));
    g.put(5, "a").answered(200);
    g.store.put(g.path, "past");
    g.put(5, "b").answered(200);
    assert_eq!(g.content().as_deref(), Some("b"));
    assert_eq!(g.conflicts(), 1);
    g.store.put(g.path, "past");
    let large = "x".repeat(1025);
    g.put(5, &large).refused(503, "conflict");
    assert_eq!(g.content().as_deref(), Some("past"));
    g.put(5, &large).answered(200);
    assert_eq!(g.content(), Some(large));
}

#[test]
fn the_clients_own_condition_is_kept() {
    let g = plain("etag", |c| c);
    let with = |name, value, body| g.send("PUT", g.path, 5, &[(name, value)], body);
    with("If-None-Match", "*", "created").answered(200);
    assert_eq!(g.store.last("t5").header("if-match"), None);
    // It is the client's condition that does not hold: it is told so by the resource itself.
    with("If-None-Match", "*", "again").answered(412);
    let etag = g.store.etag(g.path).unwrap();
    with("If-Match", &etag, "mine").answered(200);
    with("If-Match", &etag, "lost").answered(412);
    assert_eq!(g.content().as_deref(), Some("mine"));
    assert_eq!(g.conflicts(), 0, "nobody wrote past the gateway");
    let now = g.store.etag(g.path).unwrap();
    with("If-Match", "*", "any").answered(200);
    assert_eq!(
        g.store.last("t5").header("if-match"),
        Some(now.as_str()),
        "ours is stronger"
    );
    let told = with("If-Unmodified-Since", "Sat, 29 Oct 2094 19:43:31 GMT", "no");
    told.refused(409, "conflict");
    assert!(text(&told).contains("condition-clash"), "{}", text(&told));
    assert_eq!(g.content().as_deref(), Some("any"));
    // A client that names what the gateway believes finds that somebody wrote past it.
    let now = g.store.etag(g.path).unwrap();
    g.store.put(g.path, "past");
    with("If-Match", &now, "no").answered(412);
    assert_eq!(g.conflicts(), 1);
}

#[test]
fn what_the_state_of_cannot_be_learned_is_not_written() {
    let g = plain("etag", |c| c);
    for status in [403, 405, 500] {
        g.store.behaves(|m| m.head = Some(status));
        let told = g.put(5, "a");
        told.refused(503, "unguarded");
        assert!(text(&told).contains(&status.to_string()), "{}", text(&told));
    }
    assert!(g.store.came(Some("PUT")).is_empty());
    g.store.behaves(|m| m.head = None);
    g.put(5, "a").answered(200);
}

#[test]
fn writes_of_one_object_go_one_at_a_time_and_of_others_beside_it() {
    let g = plain("etag", |c| c);
    g.put(5, "a").answered(200);
    g.store.hold("one");
    let one = g.putting(5, "one", "one");
    g.store.awaits("one");
    let two = g.putting(5, "two", "two");
    g.send("PUT", "/files/other", 5, &[], "b").answered(200);
    pause(150);
    assert!(!g.store.came(None).iter().any(|came| came.tag == "two"));
    assert_eq!(g.store.release("one"), 200);
    assert_eq!(g.store.answered("two"), 200);
    for under_way in [one, two] {
        under_way.join().unwrap();
    }
    assert_eq!(g.content().as_deref(), Some("two"));
    assert_eq!(g.conflicts(), 0);
}

#[test]
fn a_write_that_waits_for_its_turn_is_not_sent_after_the_seal() {
    for preempt in [true, false] {
        let g = plain("etag", |c| c.route("preempt", &preempt.to_string()));
        g.put(5, "a").answered(200);
        g.store.hold("one");
        let one = g.putting(5, "one", "one");
        g.store.awaits("one");
        let (port, path) = (g.gw.port, g.path);
        let put = |token: &'static str, tag: &'static str| {
            thread::spawn(move || {
                let headers = [("Fencing-Token", token), ("X-Tag", tag)];
                Client::connect(port).request("PUT", path, &headers, tag.as_bytes())
            })
        };
        let two = put("5", "two");
        pause(150);
        let newer = put("6", "newer");
        wait_until("the seal", || g.metric("fencegate_fence_raises_total") == 2);
        if preempt {
            // At once, and not when its turn comes.
            two.join().unwrap().refused(412, "superseded");
            assert_eq!(g.store.release("one"), 200);
        } else {
            assert_eq!(g.store.release("one"), 200);
            two.join().unwrap().refused(412, "superseded");
        }
        newer.join().unwrap().answered(200);
        one.join().unwrap();
        assert!(!g.store.came(None).iter().any(|came| came.tag == "two"));
        assert_eq!(g.content().as_deref(), Some("newer"));
    }
}

#[test]
fn a_read_that_raises_learns_what_the_write_after_it_is_to_change() {
    let g = plain("etag", |c| c.route("raise_on_read", "true"));
    g.store.put(g.path, "v1");
    g.send("GET", g.path, 34, &[], "").answered(200);
    assert_eq!(g.questions(), 1);
    g.store.put(g.path, "zombie");
    g.put(34, "v1+1").refused(503, "conflict");
    assert_eq!(
        g.content().as_deref(),
        Some("zombie"),
        "no update is lost unseen"
    );
    // A read without a token asks nothing.
    Client::connect(g.gw.port)
        .request("GET", g.path, &[], b"")
        .answered(200);
    assert_eq!(g.questions(), 1);
}

#[test]
fn an_unknown_outcome_is_read_back_and_never_sent_again() {
    let g = plain("etag", |c| c);
    g.put(5, "a").answered(200);
    g.store.behaves(|m| {
        m.lost.insert("lost".into());
    });
    let lost = |body| g.send("PUT", g.path, 5, &[("X-Tag", "lost")], body);
    lost("bb").refused(502, "outcome-unknown");
    assert_eq!(g.content().as_deref(), Some("bb"));
    assert_eq!(g.store.came(Some("PUT")).len(), 2);
    g.put(5, "cc").answered(200);
    assert_eq!((g.questions(), g.conflicts()), (2, 0));
}

#[test]
fn a_retry_that_meets_its_own_success_is_told_so() {
    for guard in ["create-only", "etag"] {
        let g = plain(guard, |c| c);
        g.store.behaves(|m| {
            m.lost.insert("lost".into());
        });
        let condition = [("If-None-Match", "*"), ("X-Tag", "lost")];
        g.send("PUT", g.path, 5, &condition, "mine")
            .refused(502, "outcome-unknown");
        let told = g.send("PUT", g.path, 5, &condition[..1], "mine");
        told.refused(412, "written");
        assert!(text(&told).contains("already-written"), "{}", text(&told));
        // Of another size it is another's.
        g.send("PUT", g.path, 5, &condition[..1], "another")
            .answered(412);
        // Another holder's is a conflict as any other.
        let other = g.send("PUT", g.path, 6, &condition[..1], "mine");
        other.answered(412);
        assert!(other.header("fencing-status").is_some());
    }
}

#[test]
fn what_is_only_created_is_neither_changed_nor_taken_away() {
    let g = objects("create-only", |c| c);
    g.put(5, "a").answered(200);
    assert_eq!(g.store.last("t5").header("if-none-match"), Some("*"));
    g.put(5, "b").answered(412); // in the store's own words
    assert_eq!(g.conflicts(), 0);
    g.send("DELETE", g.path, 5, &[], "")
        .refused(403, "forbidden");
    g.send("DELETE", "/b/a?versionId=v", 5, &[], "")
        .refused(403, "forbidden");
    let list = "<Delete><Object><Key>a</Key></Object></Delete>";
    g.send("POST", "/b?delete", 5, &[], list)
        .refused(403, "forbidden");
    g.send("PUT", "/b/a?tagging", 5, &[], "<Tagging/>")
        .answered(200);
    let h = plain("create-only", |c| c);
    for method in ["DELETE", "MOVE", "COPY", "LOCK", "PROPPATCH"] {
        let to = format!("http://127.0.0.1:{}/files/b", h.gw.port);
        h.send(method, h.path, 5, &[("Destination", &to)], "")
            .refused(403, "forbidden");
    }
    assert_eq!(h.questions() + g.questions(), 0, "nothing has to be asked");
    assert_eq!(g.content().as_deref(), Some("a"));
}

#[test]
fn deletes_carry_the_condition_and_what_comes_after_is_drained() {
    let g = objects("etag", |c| c);
    g.put(5, "a").answered(200);
    let etag = g.store.etag(g.path).unwrap();
    g.send("DELETE", g.path, 5, &[], "").answered(204);
    assert_eq!(g.store.last("t5").header("if-match"), Some(etag.as_str()));
    assert_eq!(g.gaps(), 1, "a creation from before may be on its way");
    g.put(5, "b").answered(200);
    assert_eq!(g.store.last("t5").header("if-none-match"), Some("*"));
    assert_eq!(g.questions(), 1);
    g.store.put(g.path, "past");
    g.send("DELETE", g.path, 5, &[], "")
        .refused(503, "conflict");
    assert_eq!(g.content().as_deref(), Some("past"));
}

#[test]
fn a_validator_that_comes_back_is_told_once() {
    let g = plain("etag", |c| c);
    g.store.behaves(|m| m.validator = Validator::Content);
    for body in ["a", "b", "a", "b", "a"] {
        g.put(5, body).answered(200);
    }
    assert_eq!(g.gaps(), 1);
    assert!(
        g.gw.log()
            .contains("a validator of the object has come back")
    );
}

#[test]
fn a_write_without_a_token_is_not_guarded_unseen() {
    let g = plain("etag", |c| c.route("missing", "\"allow\""));
    g.put(5, "a").answered(200);
    let told = Client::connect(g.gw.port).request("PUT", g.path, &[("X-Tag", "none")], b"b");
    told.answered(200);
    assert_eq!(g.store.last("none").header("if-match"), None);
    assert_eq!(g.gaps(), 1);
}

#[test]
fn without_a_strong_validator_the_route_is_drained_or_refuses() {
    for validator in [Validator::Weak, Validator::Absent] {
        let g = plain("etag", |c| c);
        g.store.behaves(|m| m.validator = validator);
        g.store.put(g.path, "first");
        g.put(5, "a").answered(200);
        assert_eq!(g.store.last("t5").header("if-match"), None);
        assert_eq!(g.gaps(), 1);
        let g = plain("etag", |c| c.route("guard_required", "true"));
        g.store.behaves(|m| m.validator = validator);
        g.store.put(g.path, "first");
        g.put(5, "a").refused(503, "unguarded");
        assert_eq!(g.content().as_deref(), Some("first"));
    }
}

#[test]
fn an_answer_without_a_validator_costs_a_question() {
    let g = plain("etag", |c| c);
    g.store.behaves(|m| m.silent = true);
    for body in ["a", "b", "c"] {
        g.put(5, body).answered(200);
    }
    assert_eq!((g.questions(), g.conflicts(), g.gaps()), (3, 0, 0));
}

#[test]
fn an_upload_carries_the_condition_where_it_is_completed() {
    let g = objects("etag", |c| c);
    g.put(5, "a").answered(200);
    let etag = g.store.etag(g.path).unwrap();
    g.send("POST", "/b/a?uploads", 5, &[], "").answered(200);
    for part in 1..3 {
        let target = format!("/b/a?partNumber={part}&uploadId=u1");
        g.send("PUT", &target, 5, &[], "part").answered(200);
        assert_eq!(g.store.last("t5").header("if-match"), None);
    }
    g.send(
        "POST",
        "/b/a?uploadId=u1",
        5,
        &[],
        "<CompleteMultipartUpload/>",
    )
    .answered(200);
    assert_eq!(g.store.last("t5").header("if-match"), Some(etag.as_str()));
    let etag = g.store.etag(g.path).unwrap();
    g.put(5, "b").answered(200);
    assert_eq!(
        g.store.last("t5").header("if-match"),
        Some(etag.as_str()),
        "read out of the body"
    );
    assert_eq!(g.questions(), 1);
    g.send("PUT", "/b/a", 5, &[("x-amz-copy-source", "/b/c")], "")
        .answered(200);
    assert!(g.store.last("t5").header("if-match").is_some());
    // The answer to a copy has its validator in the body; here it has none.
    g.put(5, "c").answered(200);
    assert_eq!((g.questions(), g.conflicts()), (2, 0));
}

#[test]
fn objects_that_a_list_deletes_are_asked_for_again() {
    let g = objects("etag", |c| c);
    g.put(5, "a").answered(200);
    let list = "<Delete><Object><Key>a</Key></Object></Delete>";
    g.send("POST", "/b?delete", 5, &[], list).answered(200);
    assert_eq!(g.gaps(), 1, "it takes no condition");
    g.store.put(g.path, "as if it were another");
    g.put(5, "b").answered(200);
    assert_eq!((g.questions(), g.conflicts()), (2, 0));
}

#[test]
fn conflict_answers_of_the_store_are_passed_on_and_had_no_effect() {
    let g = objects("etag", |c| c.route("accept", "\"newer\""));
    g.store.behaves(|m| {
        m.answers.insert("busy".into(), 409);
    });
    g.send("PUT", g.path, 5, &[("X-Tag", "busy")], "a")
        .answered(409);
    g.put(5, "a").answered(200); // the token was not used up
    g.put(5, "b").refused(412, "replayed");
}

#[test]
fn a_conflict_does_not_use_the_token_up() {
    let g = objects("etag", |c| c.route("accept", "\"newer\""));
    g.put(4, "a").answered(200);
    g.store.behaves(|m| {
        m.answers.insert("past".into(), 412);
    });
    g.send("PUT", g.path, 5, &[("X-Tag", "past")], "b")
        .refused(503, "conflict");
    g.put(5, "b").answered(200);
}

/// What the metrics say of the route's strength.
fn strength(g: &Guarded) -> String {
    let page = Client::connect(g.gw.admin_port).request("GET", "/metrics", &[], b"");
    let page = String::from_utf8(page.body).unwrap();
    let mut lines = page.lines();
    let line =
        lines.find(|line| line.starts_with("fencegate_route_strength") && line.ends_with(" 1"));
    let line = line.unwrap();
    let (_, word) = line.split_once("strength=\"").unwrap();
    word.split('"').next().unwrap().to_owned()
}

fn probed(guard: &str, change: impl FnOnce(Config) -> Config) -> Guarded {
    objects(guard, |c| {
        change(
            c.upstream_without("conditions")
                .upstream("probe", "\"/b/probes/p\""),
        )
    })
}

#[test]
fn the_probe_finds_what_the_store_honours_and_leaves_nothing_behind() {
    for guard in ["etag", "create-only"] {
        let g = probed(guard, |c| c);
        assert_eq!(strength(&g), "guarded");
        let came = g.store.came(None);
        assert!(
            came.iter()
                .all(|came| came.target.starts_with("/b/probes/p-"))
        );
        assert!(
            came.iter()
                .all(|came| came.header("authorization").is_some())
        );
        for came in came {
            let path = came.target.split('?').next().unwrap();
            assert_eq!(g.store.content(path), None);
        }
    }
    let g = plain("etag", |c| {
        c.upstream_without("conditions")
            .upstream("probe", "\"/files/probe\"")
    });
    assert_eq!(strength(&g), "guarded");
}

#[test]
fn a_store_that_ignores_conditions_makes_the_route_drained_or_the_start_fail() {
    for method in ["PUT", "POST"] {
        let mut g = probed("etag", |c| c);
        g.gw.stop();
        g.store.behaves(|m| {
            m.deaf.insert(method);
        });
        g.gw.start_again();
        assert_eq!(strength(&g), "drained");
        g.put(5, "a").answered(200);
        assert_eq!(g.gaps() == 1, method == "PUT", "{method}");
        g.gw.stop();
        g.gw.edit(
            "guard = \"etag\"",
            "guard = \"etag\"\nguard_required = true",
        );
        g.gw.begin_again();
        assert_eq!(g.gw.ended().code(), Some(1));
        assert!(
            g.gw.log()
                .contains("routes.files.guard_required: upstream files"),
            "{}",
            g.gw.log()
        );
    }
}

#[test]
fn a_call_whose_condition_is_ignored_is_drained_or_refused() {
    let mut g = probed("etag", |c| c);
    g.gw.stop();
    g.store.behaves(|m| {
        m.deaf.insert("DELETE");
    });
    g.gw.start_again();
    assert_eq!(strength(&g), "drained", "a late DELETE would do harm");
    g.put(5, "a").answered(200);
    assert_eq!(g.gaps(), 0);
    g.send("DELETE", g.path, 5, &[], "").answered(204);
    assert_eq!(g.store.last("t5").header("if-match"), None);
    assert!(g.gaps() > 0);
    g.gw.stop();
    g.gw.edit(
        "guard = \"etag\"",
        "guard = \"etag\"\nguard_required = true",
    );
    g.gw.start_again();
    assert_eq!(strength(&g), "guarded", "none goes out");
    g.put(5, "b").answered(200);
    g.send("DELETE", g.path, 5, &[], "")
        .refused(403, "forbidden");
    g.send("DELETE", "/b/a?versionId=v", 5, &[], "")
        .refused(403, "forbidden");
    let list = "<Delete><Object><Key>a</Key></Object></Delete>";
    g.send("POST", "/b?delete", 6, &[], list)
        .refused(403, "forbidden");
    assert_eq!(g.content().as_deref(), Some("b"));
}

#[test]
fn a_store_that_does_not_answer_is_tried_again() {
    let mut g = probed("etag", |c| c);
    g.gw.stop();
    g.store.behaves(|m| {
        m.answers.insert(String::new(), 503);
    });
    g.gw.start_again();
    assert_eq!(strength(&g), "drained");
    assert!(g.gw.log().contains("the probe has failed"));
    g.store.behaves(|m| m.answers.clear());
    wait_until("the probe", || strength(&g) == "guarded");
}

#[test]
fn the_check_says_what_a_guard_depends_on() {
    let g = probed("etag", |c| c);
    let said = |request: &str| {
        let url = format!("{request} http://127.0.0.1/b/a");
        let request = match request.split_once('?') {
            None => url,
            Some((method, query)) => format!("{method} http://127.0.0.1/b/a?{query}"),
        };
        g.gw.command(&["check", "--explain", &request]).1
    };
    assert!(
        said("PUT").contains("guarded, if the probe finds"),
        "{}",
        said("PUT")
    );
    assert!(said("PUT?tagging").contains("drained: the guard is of the object's content"));
    assert!(said("DELETE?versionId=v").contains("drained: the call takes no condition"));
    let (_, all) = g.gw.command(&["check", "--probe"]);
    assert!(
        all.contains("probe of route files: guarded: every condition"),
        "{all}"
    );
    g.store.behaves(|m| {
        m.deaf.insert("DELETE");
    });
    let (_, all) =
        g.gw.command(&["check", "--probe", "--explain", "PUT http://127.0.0.1/b/a"]);
    assert!(
        all.contains("drained: the conditions of DELETE are ignored"),
        "{all}"
    );
    let (code, all) = g.gw.command(&["check"]);
    assert!(
        code == Some(0) && all.contains("route files: guarded, if the probe"),
        "{all}"
    );
}

#[test]
fn another_condition_of_the_clients_that_does_not_hold_is_its_own_affair() {
    let g = objects("etag", |c| c);
    g.put(5, "a").answered(200);
    g.store.behaves(|m| {
        m.answers.insert("copy".into(), 412);
    });
    let headers = [
        ("x-amz-copy-source", "/b/c"),
        ("x-amz-copy-source-if-match", "\"x\""),
        ("X-Tag", "copy"),
    ];
    g.send("PUT", g.path, 5, &headers, "").answered(412);
    assert_eq!(g.conflicts(), 0);
    g.put(5, "b").answered(200);
}

#[test]
fn what_is_not_there_is_taken_away_without_a_condition() {
    for g in [plain("etag", |c| c), objects("etag", |c| c)] {
        g.send("DELETE", g.path, 5, &[], "").answered(204);
        let sent = g.store.last("t5");
        assert_eq!(
            (sent.header("if-match"), sent.header("if-none-match")),
            (None, None)
        );
        assert_eq!(g.gaps(), 1);
    }
}

#[test]
fn what_the_probe_cannot_try_is_not_claimed() {
    let g = plain("etag", |c| {
        c.upstream_without("conditions")
            .upstream("probe", "\"/files/probe\"")
    });
    g.put(5, "a").answered(200);
    let etag = g.store.etag(g.path).unwrap();
    g.send("PATCH", g.path, 5, &[], "b").answered(200);
    assert_eq!(
        g.store.last("t5").header("if-match"),
        Some(etag.as_str()),
        "it may be looked at"
    );
    assert_eq!(g.gaps(), 1);
    // Where it must not go without, it is not to be tried again either.
    let g = plain("etag", |c| {
        let c = c
            .upstream_without("conditions")
            .upstream("probe", "\"/files/probe\"");
        c.route("guard_required", "true")
    });
    g.put(5, "a").answered(200);
    let told = g.send("PATCH", g.path, 5, &[], "b");
    told.refused(403, "forbidden");
    assert!(text(&told).contains("guard_required"), "{}", text(&told));
    assert_eq!(g.content().as_deref(), Some("a"));
}

#[test]
fn a_read_does_not_wait_for_a_write_of_its_holder() {
    let g = plain("etag", |c| c.route("raise_on_read", "true"));
    g.put(5, "a").answered(200);
    g.store.hold("long");
    let long = g.putting(5, "long", "b");
    g.store.awaits("long");
    g.send("GET", g.path, 5, &[], "").answered(200);
    assert_eq!(g.store.release("long"), 200);
    long.join().unwrap();
}

#[test]
fn a_clean_stop_leaves_what_is_known_of_an_object() {
    for mut g in [plain("etag", |c| c), objects("etag", |c| c)] {
        g.put(5, "a").answered(200);
        let pinned = g.store.etag(g.path);
        assert!(g.gw.stop().success());
        g.gw.start_again();
        g.put(5, "b").answered(200);
        assert_eq!(g.store.last("t5").header("if-match"), pinned.as_deref());
        assert_eq!(g.questions(), 1, "before the first write alone");
        // What is written past the gateway while it is down is noticed.
        assert!(g.gw.stop().success());
        g.store.put(g.path, "past");
        g.gw.start_again();
        g.put(5, "c").refused(503, "conflict");
        assert_eq!(g.conflicts(), 1);
        assert_eq!(g.content().as_deref(), Some("past"));
        // It is left for the holder that knew it.
        g.put(5, "d").answered(200);
        assert!(g.gw.stop().success());
        let asked = g.questions();
        g.gw.start_again();
        g.put(6, "e").answered(200);
        assert_eq!(g.questions(), asked + 1);
    }
}

#[test]
fn after_a_crash_nothing_is_believed_of_an_object() {
    let mut g = plain("etag", |c| c);
    g.put(5, "a").answered(200);
    assert!(g.gw.stop().success());
    g.gw.start_again();
    // What a clean stop had left is used up by this start: the run after it ends in a crash.
    g.put(5, "b").answered(200);
    g.gw.kill();
    g.gw.start_again();
    let pinned = g.store.etag(g.path);
    g.put(5, "c").answered(200);
    assert_eq!(g.questions(), 2);
    assert_eq!(g.store.last("t5").header("if-match"), pinned.as_deref());
    assert_eq!(g.conflicts(), 0);
}

#[test]
fn what_was_known_under_other_rules_is_asked_for_again() {
    let mut g = plain("etag", |c| c);
    g.put(5, "a").answered(200);
    let guards = ["guard = \"etag\"", "guard = \"none\""];
    for (from, to, body) in [(0, 1, "b"), (1, 0, "c")] {
        assert!(g.gw.stop().success());
        g.gw.edit(guards[from], guards[to]);
        g.gw.start_again();
        g.put(5, body).answered(200);
    }
    assert_eq!((g.conflicts(), g.questions()), (0, 2));
}

#[test]
fn a_reload_to_other_rules_forgets_what_was_known() {
    let g = plain("etag", |c| {
        c.server("workers", "1").route("disclose_fence", "false")
    });
    g.put(5, "a").answered(200);
    let rules = [
        "guard = \"etag\"\ndisclose_fence = false",
        "guard = \"none\"\ndisclose_fence = true",
    ];
    for (from, to, body) in [(0, 1, "b"), (1, 0, "c")] {
        for (from, to) in rules[from].lines().zip(rules[to].lines()) {
            g.gw.edit(from, to);
        }
        kill_process(g.gw.pid(), Signal::HUP).unwrap();
        let discloses = || text(&g.put(4, "stale")).contains("\"fence\"");
        wait_until("the reload", || discloses() == (to == 1));
        g.put(5, body).answered(200);
    }
    assert_eq!((g.conflicts(), g.questions(), g.gaps()), (0, 2, 0));
}

#[test]
fn a_reload_that_changes_nothing_of_an_object_is_no_alarm() {
    let g = plain("etag", |c| {
        c.server("workers", "1").route("disclose_fence", "false")
    });
    g.put(5, "a").answered(200);
    g.gw.edit("disclose_fence = false", "disclose_fence = true");
    kill_process(g.gw.pid(), Signal::HUP).unwrap();
    wait_until("the reload", || {
        text(&g.put(4, "stale")).contains("\"fence\"")
    });
    g.put(5, "b").answered(200);
    assert_eq!((g.conflicts(), g.gaps(), g.questions()), (0, 0, 2));
}

#[test]
fn a_clients_condition_that_fails_after_a_lost_write_is_no_alarm() {
    let g = plain("etag", |c| c);
    g.put(5, "a").answered(200);
    g.store.behaves(|m| {
        m.lost.insert("lost".into());
    });
    let with = |tag: &str, body: &str| {
        let headers = [("X-Tag", tag), ("If-Match", "\"none of ours\"")];
        g.send("PUT", g.path, 5, &headers, body)
    };
    g.send("PUT", g.path, 5, &[("X-Tag", "lost")], "bb")
        .refused(502, "outcome-unknown");
    for _ in 0..2 {
        with("own", "ccc").answered(412);
    }
    assert_eq!(g.conflicts(), 0);
}
