//! Which requests are writes, whatever they call themselves, and which are not served at all.

use crate::upstream::Upstream;
use crate::world::World;

#[test]
fn safe_methods_are_reads() {
    let w = World::new();
    w.put(5).send().answered(200);
    let reads = [
        "GET", "HEAD", "OPTIONS", "TRACE", "PROPFIND", "REPORT", "SEARCH", "QUERY",
    ];
    for method in reads {
        let read = w.ask(method, "/files/a").body(b"").tag("read");
        let answer = read.send();
        answer.answered(200);
        assert_eq!(answer.header("Fencing-Status"), None, "{method}");
        read.token(4).send().answered(200);
    }
    assert_eq!(w.up.count("read"), 2 * reads.len());
    let passed = w.metric(
        "fencegate_requests_total",
        &["route=\"files\"", "decision=\"passed\""],
    );
    assert!((passed - 16.0).abs() < 0.1, "{passed}");
}

#[test]
fn a_service_may_use_methods_otherwise() {
    let w = World::with(|c| c.route("reads", "[\"POST\"]").route("writes", "[\"GET\"]"));
    w.ask("POST", "/files/a").send().answered(200);
    w.ask("GET", "/files/a")
        .tag("late")
        .send()
        .refused(428, "missing");
    w.ask("GET", "/files/a").token(5).send().answered(200);
    w.put(4).tag("late").send().refused(412, "stale");
    assert_eq!(w.up.count("late"), 0);
}

#[test]
fn an_override_makes_a_write_of_a_read() {
    let w = World::new();
    w.put(5).send().answered(200);
    for name in [
        "X-HTTP-Method-Override",
        "X-HTTP-Method",
        "X-Method-Override",
        "X_HTTP_Method_Override",
    ] {
        let ask = w.ask("GET", "/files/a").header(name, "delete").tag("late");
        ask.send().refused(428, "missing");
        ask.clone().token(4).send().refused(412, "stale");
        ask.token(5).tag("fine").send().answered(200);
    }
    for query in ["_method=PUT", "%5Fmethod=put", "x=1&_method=PUT"] {
        let ask = w.ask("GET", &format!("/files/a?{query}")).tag("late");
        ask.send().refused(428, "missing");
    }
    // The other way round it stays a write.
    let ask = w
        .ask("POST", "/files/a")
        .header("X-HTTP-Method-Override", "GET");
    ask.tag("late").send().refused(428, "missing");
    // Two that differ are refused, two that agree are not.
    let two = |second: &str| {
        let ask = w
            .ask("POST", "/files/a")
            .token(5)
            .header("X-HTTP-Method-Override", "PUT");
        ask.header("X-HTTP-Method", second).tag("late").send()
    };
    two("DELETE").refused(400, "malformed");
    assert_eq!(w.up.count("late"), 0);
    two("put").answered(200);
}

#[test]
fn an_override_is_judged_as_what_it_overrides_to() {
    let w = World::new();
    w.put_to("/files/d/x", 5).send().answered(200);
    let delete = w
        .ask("POST", "/files/d")
        .token(9)
        .header("X-HTTP-Method-Override", "DELETE");
    delete.tag("late").send().refused(403, "forbidden");
    let bare = w
        .ask("POST", "/files/a")
        .token(9)
        .header("X-HTTP-Method-Override", "MOVE");
    bare.tag("late").send().refused(400, "malformed");
    assert_eq!(w.up.count("late"), 0);
}

#[test]
fn path_overrides_are_stripped() {
    let w = World::new();
    let names = ["X-Original-URL", "X-Rewrite-URL", "X-Original-URI"];
    let mut ask = w.put(5);
    for name in names {
        ask = ask.header(name, "/files/secret");
    }
    ask.send().answered(200);
    let mut read = w.ask("GET", "/files/a").tag("read");
    for name in names {
        read = read.header(name, "/files/secret");
    }
    read.send().answered(200);
    for tag in ["t5", "read"] {
        let seen = w.up.head(tag);
        assert!(
            names.iter().all(|name| seen.header(name).is_none()),
            "{:?}",
            seen.headers
        );
        assert_eq!(seen.target, "/files/a");
    }
}

#[test]
fn connect_is_not_served() {
    let w = World::new();
    let target = format!("127.0.0.1:{}", w.up.port);
    let answer = w
        .ask("CONNECT", &target)
        .body(b"")
        .header("Host", &target)
        .send();
    answer.refused(405, "malformed");
    let hidden = w
        .ask("POST", "/files/a")
        .token(5)
        .header("X-HTTP-Method", "CONNECT");
    hidden.tag("late").send().refused(405, "malformed");
    assert_eq!(w.up.count("late"), 0);
}

#[test]
fn a_last_route_that_is_off_lets_the_rest_through() {
    let off =
        "[[routes]]\nname = \"rest\"\npath = \"/{*rest}\"\nupstream = \"files\"\nmode = \"off\"\n";
    let w = World::with(|c| c.more(off));
    for path in ["/", "/x", "/x/y/", "/files"] {
        let answer = w.ask("PUT", path).token("5, 6").tag("open").send();
        answer.answered(200);
        assert_eq!(answer.header("Fencing-Status"), None, "{path}");
    }
    assert_eq!(w.up.count("open"), 4);
    // It takes nothing from the routes before it, and ambiguous paths neither.
    w.ask("PUT", "/files/a")
        .tag("late")
        .send()
        .refused(428, "missing");
    for path in [
        "//files/a",
        "/x/../files/a",
        "/./files/a",
        "/files%2Fa",
        "/files;x/a",
    ] {
        let answer = w.ask("PUT", path).token(5).tag(path).send();
        assert_eq!(answer.status, 400, "{path}: {answer}");
        assert_eq!(w.up.count(path), 0, "{path}");
    }
}

#[test]
fn the_first_route_that_matches_serves() {
    let second = Upstream::start(crate::support::free_port());
    let more = format!(
        "[upstreams.second]\nurl = \"http://127.0.0.1:{}\"\nsettle = \"1s\"\n[[routes]]\nname = \"host\"\npath = \"/{{*key}}\"\nhost = \"second.example\"\nupstream = \"second\"\nresource = \"{{host}}/{{key}}\"\n",
        second.port
    );
    let w = World::with(|c| c.more(&more));
    let ask = |path: &str| {
        w.ask("PUT", path)
            .header("Host", "Second.Example")
            .tag("far")
    };
    ask("/x").token(5).send().answered(200);
    ask("/x").token(4).tag("late").send().refused(412, "stale");
    ask("/files/a").token(5).send().answered(200); // the first route has no host
    assert_eq!((second.count("far"), w.up.count("far")), (1, 1));
    w.ask("PUT", "/x").token(5).send().refused(404, "unrouted");
    assert_eq!(second.count("late") + w.up.count("late"), 0);
}

#[test]
fn ambiguous_paths_are_refused_in_all_spellings() {
    let w = World::new();
    for path in [
        "/files/a%5Cb",
        "/files/a;b",
        "/files/a%3Bb",
        "/files/a%252Fb",
        "/files/a.",
        "/files/a%20",
        "/files/a./b",
        "/files/%2e%2e/x",
        "/files/a%zz",
        "/files/..%2fx",
    ] {
        let ask = w.ask("PUT", path).token(5).tag("odd");
        let answer = ask.send();
        assert_eq!(answer.status, 400, "{path}: {answer}");
        let read = w.ask("GET", path).tag("odd").send();
        assert_eq!(read.status, 400, "{path}: {read}");
    }
    assert_eq!(w.up.count("odd"), 0);
}

#[test]
fn one_resource_whatever_its_spelling() {
    let w = World::new();
    w.put_to("/files/a~b", 5).send().answered(200);
    for path in [
        "/files/%61~b",
        "/files/a%7Eb",
        "/files/a%7eb",
        "/files/a~b/",
        "/%66iles/a~b",
        "/files/a~b?x=1",
    ] {
        w.put_to(path, 4).tag("late").send().refused(412, "stale");
    }
    let whole = format!("http://127.0.0.1:{}/files/a~b", w.gw.port);
    w.put_to(&whole, 4).tag("late").send().refused(412, "stale");
    assert_eq!(w.up.count("late"), 0);
}
