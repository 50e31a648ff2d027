//! Routes to object stores: keys are bytes, what goes upstream is untouched, and no call that may change another
//! object than the fenced one passes.

use crate::support::{Config, wait_until};
use crate::upstream::Script;
use crate::world::{Ask, World, pause};
use rustix::process::{Signal, kill_process};

/// A gateway before an object store, whose buckets are all fenced.
fn store(change: impl FnOnce(Config) -> Config) -> World {
    World::with(|c| {
        let c = c.upstream("kind", "\"s3\"");
        let c = c.route("host", "\"127.0.0.1\"");
        let c = c.route("path", "\"/{bucket}/{*key}\"");
        change(c.route("resource", "\"{bucket}/{key}\""))
    })
}

#[test]
fn a_key_has_one_fence_in_each_spelling_and_two_keys_have_two() {
    let w = store(|c| c);
    w.put_to("/b/a%2Fb", 9).send().answered(200);
    for same in ["/b/a/b", "/b/%61/b", "/b/a%2fb", "/b/a/b?x-id=PutObject"] {
        w.put_to(same, 8).send().refused(412, "stale");
    }
    for other in [
        "/b/a%252Fb",
        "/b/a//b",
        "/b/a/b/",
        "/b//a/b",
        "/b/a%20b",
        "/b/a%2Bb",
        "/b/%C3%BC",
        "/c/a/b",
        "/b/A/b",
    ] {
        let tag = other.replace('/', "_");
        w.put_to(other, 8).tag(&tag).send().answered(200);
        assert_eq!(w.up.head(&tag).target, other, "it goes on as it came");
    }
    assert_eq!(w.fence("b/a//b"), Some(("8".into(), true)));
}

#[test]
fn who_finds_no_route_among_object_stores_reads_so_in_their_words() {
    let w = store(|c| c);
    let told = w.put_to("/b", 5).header("Host", "elsewhere").send();
    told.refused(404, "unrouted");
    let body = String::from_utf8(told.body).unwrap();
    for part in [
        "<Code>NoSuchRoute</Code>",
        "<Type>urn:fencegate:problem:no-route</Type>",
    ] {
        assert!(body.contains(part), "{body}");
    }
    let plain = World::new().put_to("/nowhere", 5).send();
    assert_eq!(
        plain.header("Content-Type"),
        Some("application/problem+json")
    );
}

#[test]
fn empty_segments_are_refused_before_a_store_that_drops_them() {
    let w = store(|c| c.upstream("empty_segments", "\"refuse\""));
    w.put_to("/b/a", 9).send().answered(200);
    w.put_to("/b/a/", 9).send().answered(200);
    for alias in ["/b//a", "/b/%2Fa", "/b/a//", "/b/c//d", "/b///a"] {
        w.put_to(alias, 9).send().refused(400, "malformed");
        let read = w.ask("GET", alias).send();
        read.refused(400, "malformed");
    }
    let listed = |key| delete(&w, "/b?delete", &list(&[key])).token(9).send();
    listed("/a").refused(400, "malformed");
    listed("a").answered(200);
}

#[test]
fn what_stores_read_in_different_ways_is_refused() {
    let w = store(|c| c);
    for path in [
        "/b/a+b",
        "/b/a;b",
        "/b/../a",
        "/b/a/%2e%2e/c",
        "/b/./a",
        "/b%2Fa",
        "/b/a%00",
        "/b/%FF",
        "/b/a%0Ab",
        "/b/%zz",
        "//b/k",
        "/t:b/k",
        "/b/k?a;uploads",
    ] {
        w.put_to(path, 5).send().refused(400, "malformed");
        w.ask("GET", path).send().refused(400, "malformed");
    }
    let with = |name, value| w.put_to("/b/k", 5).header(name, value).send();
    with("X-HTTP-Method-Override", "DELETE").refused(400, "malformed");
    with("Destination", "/b/other").refused(400, "malformed");
    w.stays_away("t5");
}

#[test]
fn calls_that_may_change_other_objects_are_refused() {
    let w = store(|c| c);
    for (method, target) in [
        ("POST", "/b"),
        ("POST", "/b?delete&uploads"),
        ("PUT", "/b"),
        ("PUT", "/b?policy"),
        ("DELETE", "/b"),
        ("POST", "/b/k"),
        ("PUT", "/b/k?renameObject"),
        ("DELETE", "/b/k?delete"),
        ("MOVE", "/b/k"),
        ("PROPPATCH", "/b/k"),
    ] {
        w.ask(method, target)
            .token(5)
            .tag("no")
            .send()
            .refused(403, "forbidden");
    }
    let renamed = w
        .put_to("/b/k", 5)
        .tag("no")
        .header("x-amz-rename-source", "b/j");
    renamed.send().refused(403, "forbidden");
    w.stays_away("no");
    // Not through a route that is off either, if it leads to the same store.
    let open = "[[routes]]\nname = 'rest'\nhost = '127.0.0.1'\npath = '/{*all}'\nupstream = 'files'\nmode = 'off'";
    let w = store(|c| {
        c.route("path", "\"/wal/{*key}\"")
            .route("resource", "\"wal/{key}\"")
            .more(open)
    });
    for target in ["/wal?policy", "/other?policy", "/other"] {
        let ask = w.ask("POST", target).tag("no");
        ask.send().refused(403, "forbidden");
    }
    w.stays_away("no");
    w.ask("PUT", "/other/k").tag("free").send().answered(200);
    w.ask("GET", "/").tag("list").send().answered(200);
}

#[test]
fn reads_pass_and_those_of_a_bucket_too() {
    let w = store(|c| c);
    for target in ["/b?list-type=2&prefix=a%2F", "/b/", "/b/k?versionId=1"] {
        w.ask("GET", target).tag("read").send().answered(200);
    }
    assert_eq!(w.up.count("read"), 3);
}

#[test]
fn each_part_of_an_upload_is_fenced_by_its_own_token() {
    let w = store(|c| c);
    let call = |method: &str, target: &str, token: u64| w.ask(method, target).token(token).send();
    call("POST", "/b/k?uploads", 5).answered(200);
    call("PUT", "/b/k?partNumber=1&uploadId=u", 5).answered(200);
    w.put_to("/b/k", 6).send().answered(200);
    call("PUT", "/b/k?partNumber=2&uploadId=u", 5).refused(412, "stale");
    call("POST", "/b/k?uploadId=u", 5).refused(412, "stale");
    call("DELETE", "/b/k?uploadId=u", 5).refused(412, "stale");
}

/// Such a call sends its head at once and its result much later: only then has it taken effect.
#[test]
fn a_call_that_reports_in_its_body_is_answered_at_its_end() {
    let w = store(|c| c.route("preempt", "false"));
    let held = Script {
        hold_end: true,
        ..Script::default()
    };
    w.up.script("copy", held);
    let copy = w.put_to("/b/k", 5).tag("copy").body(b"");
    let copy = copy.header("x-amz-copy-source", "b/other").start();
    w.up.wait("copy", "the head of the answer", |seen| {
        seen.answered_at.is_some()
    });
    let newer = w.put_to("/b/k", 6).start();
    w.waiting(1);
    w.stays_away("t6");
    w.up.release("copy");
    newer.result().answered(200);
    copy.result().answered(200);
}

#[test]
fn on_a_route_that_was_off_such_a_call_holds_up_the_configuration_after_it() {
    let w = store(|c| c.route("mode", "\"off\""));
    let held = Script {
        hold_end: true,
        ..Script::default()
    };
    w.up.script("copy", held);
    let copy = w.ask("PUT", "/b/k").tag("copy").body(b"");
    let copy = copy.header("x-amz-copy-source", "b/other").start();
    w.up.wait("copy", "the head of the answer", |seen| {
        seen.answered_at.is_some()
    });
    w.gw.edit("mode = \"off\"", "mode = \"enforce\"");
    kill_process(w.gw.pid(), Signal::HUP).unwrap();
    let reloaded = || w.metric("fencegate_config_reloads_total", &["ok"]) > 0.5;
    wait_until("the reload", reloaded);
    pause(50); // each serving thread takes it up by itself
    let newer = w.put_to("/b/k", 6).start();
    w.waiting(1);
    w.stays_away("t6");
    w.up.release("copy");
    newer.result().answered(200);
    copy.result().answered(200);
}

#[test]
fn a_refusal_is_an_error_that_its_client_shows() {
    let w = store(|c| c.route("disclose_fence", "true"));
    w.put_to("/b/k", 5).send().answered(200);
    let stale = w.put_to("/b/k", 4).send();
    stale.refused(412, "stale");
    assert_eq!(stale.header("Content-Type"), Some("application/xml"));
    let body = String::from_utf8(stale.body.clone()).unwrap();
    for part in [
        "<Code>PreconditionFailed</Code>",
        "<Type>urn:fencegate:problem:stale-token</Type>",
        "<Token>4</Token><Fence>5</Fence></Error>",
    ] {
        assert!(body.contains(part), "{body}");
    }
    let missing = w.ask("PUT", "/b/k").send();
    missing.refused(428, "missing");
    assert!(missing.body.starts_with(b"<?xml"));
}

#[test]
fn what_is_only_observed_is_noted_and_passes() {
    let w = store(|c| c.route("mode", "\"observe\""));
    let unknown = w.ask("PUT", "/b/k?renameObject").token(5).send();
    unknown.answered(200);
    assert_eq!(unknown.header("Fencing-Status"), Some("forbidden;observed"));
    w.ask("POST", "/b?policy").send().answered(200);
    delete(&w, "/b?delete", "no list")
        .token(5)
        .send()
        .answered(200);
    let listed = delete(&w, "/b?delete", &list(&["k"])).token(4).send();
    listed.answered(200);
    assert_eq!(listed.header("Fencing-Status"), Some("stale;observed"));
}

/// A list of objects to delete.
fn list(keys: &[&str]) -> String {
    let object = |key: &&str| format!("<Object><Key>{key}</Key></Object>");
    let objects: String = keys.iter().map(object).collect();
    format!("<?xml version=\"1.0\"?>\n<Delete>{objects}<Quiet>true</Quiet></Delete>")
}

fn delete(w: &World, target: &str, body: &str) -> Ask {
    w.ask("POST", target).body(body.as_bytes())
}

#[test]
fn objects_that_a_body_names_are_fenced_all_or_none() {
    let w = store(|c| c);
    w.put_to("/b/new%20one", 9).send().answered(200);
    let both = list(&["other", "new one"]);
    let stale = delete(&w, "/b?delete", &both).token(8).tag("no");
    stale.send().refused(412, "stale");
    assert_eq!(w.fence("b/other"), None, "the other was raised");
    delete(&w, "/b?delete", &both)
        .tag("no")
        .send()
        .refused(428, "missing");
    w.stays_away("no");
    let newer = delete(&w, "/b/?delete", &both).token(10).tag("yes");
    newer.send().answered(200);
    assert_eq!(w.up.whole_of("yes").body, both.as_bytes(), "as it came");
    for key in ["/b/other", "/b/new%20one"] {
        w.put_to(key, 9).send().refused(412, "stale");
    }
    // It goes on as it came in chunks too, and each object is deleted once.
    let twice = list(&["other", "other"]);
    let chunks = format!(
        "5\r\n{}\r\n{:x}\r\n{}\r\n0\r\n\r\n",
        &twice[..5],
        twice.len() - 5,
        &twice[5..]
    );
    let chunked = w.ask("POST", "/b?delete").token(11).tag("chunks");
    let mut client = chunked.header("Transfer-Encoding", "chunked").open();
    client.send(chunks.as_bytes());
    client.response("POST").answered(200);
    assert_eq!(w.up.whole_of("chunks").body, twice.as_bytes());
}

#[test]
fn a_list_that_can_be_read_in_two_ways_is_refused() {
    let w = store(|c| c);
    for body in [
        String::new(),
        "{}".into(),
        list(&[]),
        list(&[" k"]),
        list(&["a/../k"]),
        list(&["k<!-- -->k"]),
        list(&["k"]).replace("</Key>", "</Key><Key>l</Key>"),
        list(&["k"]).replace("<Delete>", "<!DOCTYPE Delete [<!ENTITY k 'k'>]><Delete>"),
    ] {
        let ask = delete(&w, "/b?delete", &body).token(5).tag("no");
        ask.send().refused(400, "malformed");
    }
    let large = list(&["k"; 1000]).replace("<Quiet>", &format!("<Quiet>{}", " ".repeat(2 << 20)));
    let ask = delete(&w, "/b?delete", &large).token(5).tag("no");
    ask.send().refused(413, "forbidden");
    w.stays_away("no");
}

#[test]
fn a_list_is_judged_by_the_route_of_its_objects() {
    let open = "[[routes]]\nname = 'rest'\nhost = '127.0.0.1'\npath = '/{*all}'\nupstream = 'files'\nmode = 'off'";
    let w = store(|c| {
        let c = c.route("path", "\"/b/wal/{*key}\"");
        c.route("resource", "\"wal/{key}\"").more(open)
    });
    w.put_to("/b/wal/1", 9).send().answered(200);
    let fenced = delete(&w, "/b?delete", &list(&["wal/1", "wal/2"]));
    fenced.clone().tag("no").send().refused(428, "missing");
    fenced
        .clone()
        .token(8)
        .tag("no")
        .send()
        .refused(412, "stale");
    let mixed = delete(&w, "/b?delete", &list(&["wal/1", "other"]));
    mixed.token(9).tag("no").send().refused(403, "forbidden");
    w.stays_away("no");
    fenced.token(9).tag("yes").send().answered(200);
    delete(&w, "/b?delete", &list(&["other"]))
        .tag("free")
        .send()
        .answered(200);
    assert_eq!((w.up.count("yes"), w.up.count("free")), (1, 1));
}

/// Another host may be the name of a bucket to the store.
#[test]
fn another_host_is_not_served() {
    let w = store(|c| c);
    let request = "PUT /b/k HTTP/1.1\r\nHost: wal.127.0.0.1\r\nX-Tag: no\r\nFencing-Token: 5\r\nContent-Length: 0\r\n\r\n";
    let mut client = w.gw.client();
    client.send(request.as_bytes());
    client.response("PUT").refused(404, "unrouted");
    w.stays_away("no");
}
