//! What a proxy adds to, keeps of and takes from the headers and trailers, both ways.

use crate::upstream::Script;
use crate::world::World;

#[test]
fn hop_by_hop_headers_are_stripped_both_ways() {
    let w = World::new();
    let script = Script {
        headers: vec![
            ("Connection", "X-Theirs, keep-alive"),
            ("X-Theirs", "1"),
            ("Keep-Alive", "timeout=5"),
            ("Proxy-Authenticate", "Basic"),
            ("X-Kept", "2"),
            ("Set-Cookie", "a=1"),
            ("Set-Cookie", "b=2"),
        ],
        ..Script::default()
    };
    w.up.script("t5", script);
    let ask = w
        .put(5)
        .header("Connection", "X-Ours")
        .header("X-Ours", "1");
    let ask = ask
        .header("Keep-Alive", "timeout=5")
        .header("Proxy-Authorization", "Basic x");
    let ask = ask
        .header("Proxy-Connection", "keep-alive")
        .header("Upgrade", "websocket");
    let answer = ask
        .header("X-Kept", "2")
        .header("Authorization", "Basic y")
        .send();
    answer.answered(200);
    for name in ["X-Theirs", "Keep-Alive", "Proxy-Authenticate"] {
        assert_eq!(answer.header(name), None, "{name}");
    }
    assert_eq!(answer.header("X-Kept"), Some("2"));
    let cookies = answer
        .headers
        .iter()
        .filter(|(n, _)| n.eq_ignore_ascii_case("set-cookie"));
    assert_eq!(cookies.count(), 2);
    let seen = w.up.whole_of("t5");
    for name in [
        "X-Ours",
        "Keep-Alive",
        "Proxy-Authorization",
        "Proxy-Connection",
        "Upgrade",
        "Connection",
    ] {
        assert_eq!(seen.header(name), None, "{name}");
    }
    assert_eq!(seen.header("X-Kept"), Some("2"));
    assert_eq!(seen.header("Authorization"), Some("Basic y"));
}

#[test]
fn who_asked_is_said_without_beginning_a_forwarded() {
    let w = World::new();
    w.put(5).send().answered(200);
    let seen = w.up.head("t5");
    assert_eq!(seen.all("X-Forwarded-For"), ["127.0.0.1"]);
    assert_eq!(seen.all("X-Forwarded-Proto"), ["http"]);
    assert!(seen.all("Forwarded").is_empty());
}

#[test]
fn who_asked_is_appended() {
    let w = World::new();
    let ask = w
        .put(5)
        .header("Via", "1.0 edge")
        .header("X-Forwarded-For", "203.0.113.9");
    let answer = ask
        .header("Forwarded", "for=203.0.113.9")
        .header("X-Forwarded-Proto", "https")
        .send();
    assert_eq!(answer.header("Via"), Some("1.1 fencegate"));
    let seen = w.up.head("t5");
    assert_eq!(seen.all("Via"), ["1.0 edge", "1.1 fencegate"]);
    assert_eq!(seen.all("X-Forwarded-For"), ["203.0.113.9", "127.0.0.1"]);
    assert_eq!(
        seen.all("Forwarded"),
        ["for=203.0.113.9", "for=127.0.0.1;proto=http"]
    );
    assert_eq!(
        seen.all("X-Forwarded-Proto"),
        ["https"],
        "whoever ended TLS knows better"
    );
    assert_eq!(seen.all("Fencing-Token"), ["5"]);
}

#[test]
fn the_host_is_kept_or_rewritten_with_the_destination() {
    let to = |w: &World| format!("http://127.0.0.1:{}/files/b", w.gw.port);
    let w = World::new();
    let host = format!("127.0.0.1:{}", w.gw.port);
    w.relocate("MOVE", "/files/a", "/files/b", 5)
        .tag("move")
        .send()
        .answered(200);
    let seen = w.up.head("move");
    assert_eq!(seen.all("Host"), [&*host]);
    assert_eq!(seen.all("Destination"), [&*to(&w)]);

    let w = World::with(|c| c.upstream("host_header", "\"upstream\""));
    let theirs = format!("127.0.0.1:{}", w.up.port);
    let host = format!("127.0.0.1:{}", w.gw.port);
    w.relocate("MOVE", "/files/a", "/files/b", 5)
        .tag("move")
        .send()
        .answered(200);
    let seen = w.up.head("move");
    assert_eq!(seen.all("Host"), [&*theirs]);
    assert_eq!(seen.all("X-Forwarded-Host"), [&*host]);
    assert_eq!(
        seen.all("Destination"),
        [&*format!("http://{theirs}/files/b")]
    );
}

#[test]
fn a_prefix_is_stripped_from_both_ends() {
    let w = World::with(|c| c.route("strip_prefix", "\"/files\""));
    w.put_to("/files/a%20b?x=1", 5).send().answered(200);
    assert_eq!(w.up.head("t5").target, "/a%20b?x=1");
    w.relocate("MOVE", "/files/a%20b", "/files/c", 6)
        .tag("move")
        .send()
        .answered(200);
    let seen = w.up.head("move");
    assert_eq!(seen.target, "/a%20b");
    assert!(
        seen.header("Destination").unwrap().ends_with("/c"),
        "{:?}",
        seen.headers
    );
    assert!(!seen.header("Destination").unwrap().contains("/files"));
    w.put_to("/files/c", 5)
        .tag("late")
        .send()
        .refused(412, "stale");
    assert_eq!(w.up.count("late"), 0);
}

#[test]
fn request_trailers_pass() {
    let w = World::new();
    let ask = w
        .put(5)
        .header("Transfer-Encoding", "chunked")
        .header("Trailer", "X-Sum");
    let mut client = ask.open();
    client.send(b"4\r\ndata\r\n0\r\nX-Sum: 1\r\n\r\n");
    client.response("PUT").answered(200);
    let seen = w.up.whole_of("t5");
    assert_eq!(seen.body, b"data");
    let trailers: Vec<_> = seen
        .trailers
        .iter()
        .map(|(n, v)| (n.to_lowercase(), &**v))
        .collect();
    assert_eq!(trailers, [("x-sum".to_owned(), "1")]);
}

#[test]
fn response_trailers_pass_where_they_are_asked_for() {
    let w = World::new();
    let script = Script {
        headers: vec![("Trailer", "X-Sum")],
        trailers: vec![("X-Sum", "1")],
        ..Script::default()
    };
    for (tag, te, wanted) in [("with", "trailers", true), ("without", "gzip", false)] {
        for method in ["GET", "PUT"] {
            let tag = format!("{tag}-{method}");
            w.up.script(&tag, script.clone());
            let ask = w
                .ask(method, "/files/a")
                .token(5)
                .tag(&tag)
                .header("TE", te);
            let ask = ask
                .header("Connection", "close, TE")
                .header("Content-Length", "0");
            let text = String::from_utf8(ask.open().rest()).unwrap();
            assert!(text.starts_with("HTTP/1.1 200"), "{text}");
            let (_, body) = text.split_once("\r\n\r\n").unwrap();
            let has = body.to_lowercase().contains("x-sum: 1");
            assert_eq!(has, wanted, "{tag}: {text}");
            assert!(body.ends_with("\r\n\r\n"), "{text}");
            let seen = w.up.head(&tag);
            assert_eq!(seen.header("TE"), wanted.then_some("trailers"));
        }
    }
}

#[test]
fn an_upstream_cannot_speak_for_the_gateway() {
    let w = World::new();
    let script = Script {
        headers: vec![("Fencing-Status", "stale")],
        ..Script::default()
    };
    w.up.script("t5", script);
    let answer = w.put(5).send();
    let said = answer
        .headers
        .iter()
        .filter(|(n, _)| n.eq_ignore_ascii_case("fencing-status"));
    assert_eq!(said.map(|(_, v)| &**v).collect::<Vec<_>>(), ["raised"]);
}
