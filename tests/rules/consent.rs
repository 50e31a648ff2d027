//! Who may write, by the name in a client's certificate, and who may raise, by what a service says.

use crate::support::authority::Authority;
use crate::support::h2::H2;
use crate::support::{Config, Response};
use crate::upstream::{Script, Upstream};
use crate::world::World;
use std::fs;
use tempfile::TempDir;

/// A gateway that lets in clients of this authority.
fn named(authority: &Authority, change: impl FnOnce(Config) -> Config) -> (World, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    authority.renew(folder.path());
    fs::write(folder.path().join("ca.pem"), authority.pem()).unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (cert, key, ca) = (path("cert.pem"), path("key.pem"), path("ca.pem"));
    let tls = format!("{{ cert = '{cert}', key = '{key}', client_ca = '{ca}' }}");
    (World::with(|c| change(c.server("tls", &tls))), folder)
}

fn put(w: &World, authority: &Authority, name: &str, token: &str) -> Response {
    let config = authority.client(&[b"h2"], Some(authority.sign(&[name])));
    let h2 = H2::over_tls(w.gw.port, config).unwrap();
    let headers = [("fencing-token", token), ("x-tag", name)];
    h2.request("PUT", "/files/a", &headers, b"data")
}

#[test]
fn only_those_who_are_named_may_write() {
    let authority = Authority::new();
    let (w, _folder) = named(&authority, |c| {
        c.route("allow", "[\"writer.internal\", \"job-*\"]")
    });
    put(&w, &authority, "writer.internal", "5").answered(200);
    put(&w, &authority, "job-7.internal", "5").answered(200);
    for (name, token) in [
        ("writer.internal.evil", "9"),
        ("other", "9"),
        ("xjob-7", "5"),
    ] {
        put(&w, &authority, name, token).refused(403, "forbidden");
        w.stays_away(name);
    }
    // They left no trace in the fence, and may read.
    assert_eq!(w.fence("files/a").unwrap().0, "5");
    let config = authority.client(&[b"h2"], Some(authority.sign(&["other"])));
    let h2 = H2::over_tls(w.gw.port, config).unwrap();
    h2.request("GET", "/files/a", &[], b"").answered(200);
}

#[test]
fn names_hold_on_routes_that_are_off_too() {
    let authority = Authority::new();
    let (w, _folder) = named(&authority, |c| {
        c.route("mode", "\"off\"").route("allow", "[\"writer\"]")
    });
    put(&w, &authority, "writer", "5").answered(200);
    put(&w, &authority, "other", "5").refused(403, "forbidden");
}

/// A gateway that asks this service.
fn asking(change: impl FnOnce(Config) -> Config) -> (World, Upstream) {
    let auth = Upstream::start(crate::support::free_port());
    let url = format!("\"http://127.0.0.1:{}/may?who=1\"", auth.port);
    let w = World::with(|c| change(c.route("auth_request", &url)));
    (w, auth)
}

#[test]
fn a_service_is_asked_before_a_raise_and_before_no_other_write() {
    let (w, auth) = asking(|c| c);
    let ask = w.put(5).tag("first").header("Authorization", "Bearer x");
    ask.send().answered(200);
    let seen = auth.head("first");
    assert_eq!((&*seen.method, &*seen.target), ("GET", "/may?who=1"));
    assert_eq!(seen.header("authorization"), Some("Bearer x"));
    assert_eq!(seen.header("x-original-method"), Some("PUT"));
    assert_eq!(seen.header("x-original-uri"), Some("/files/a"));
    assert_eq!(seen.header("x-fencing-resource"), Some("files/a"));
    assert_eq!(seen.header("x-fencing-namespace"), Some("default"));
    assert_eq!(seen.header("x-fencing-token"), Some("5"));
    assert_eq!(seen.header("content-length"), None);
    let host = format!("127.0.0.1:{}", auth.port);
    assert_eq!(seen.header("host"), Some(&*host));
    w.put(5).tag("same").send().answered(200);
    w.put(4).tag("stale").send().refused(412, "stale");
    assert_eq!((auth.count("same"), auth.count("stale")), (0, 0));
}

#[test]
fn what_it_refuses_leaves_no_trace() {
    let (w, auth) = asking(|c| c);
    w.put(5).send().answered(200);
    auth.script("no", Script::status(403));
    w.put(u64::MAX).tag("no").send().refused(403, "unverified");
    w.stays_away("no");
    assert_eq!(w.fence("files/a").unwrap().0, "5");
    w.put(6).send().answered(200);
}

#[test]
fn without_an_answer_nothing_is_raised() {
    let (w, mut auth) = asking(|c| c.server("workers", "1"));
    w.put(5).send().answered(200);
    auth.script("broken", Script::status(500));
    w.put(6).tag("broken").send().refused(503, "unverified");
    auth.script("moved", Script::status(302));
    w.put(6).tag("moved").send().refused(503, "unverified");
    auth.stop();
    let answer = w.put(6).tag("gone").send();
    answer.refused(503, "unverified");
    assert!(answer.header("retry-after").is_some());
    let log = w.gw.log();
    let said = log.matches("raises are refused until it answers");
    assert_eq!(said.count(), 1, "{log}");
    // Writes of the holder do not need it.
    w.put(5).tag("holder").send().answered(200);
    assert_eq!(w.fence("files/a").unwrap().0, "5");
}

#[test]
fn a_client_cannot_put_words_into_the_question() {
    let (w, auth) = asking(|c| c);
    let ask = w.put(5).tag("liar").header("X-Fencing-Identity", "root");
    ask.header("X-Original-Method", "GET").send().answered(200);
    let ask = w.put(6).tag("sly").header("X_Fencing_Identity", "root");
    let ask = ask
        .header("X-Rewrite-URL", "/health")
        .header("X-HTTP-Method-Override", "PATCH");
    ask.send().answered(200);
    let seen = auth.head("sly");
    for name in [
        "x_fencing_identity",
        "x-rewrite-url",
        "x-http-method-override",
    ] {
        assert_eq!(seen.header(name), None, "{name}");
    }
    assert_eq!(seen.header("x-original-method"), Some("PATCH")); // what it is judged as
    let seen = auth.head("liar");
    assert_eq!(seen.all("x-fencing-identity"), [""]);
    assert_eq!(seen.all("x-original-method"), ["PUT"]);
}

#[test]
fn each_end_of_a_move_is_asked_for() {
    let (w, auth) = asking(|c| c);
    auth.script("move", Script::status(403));
    let ask = w.relocate("MOVE", "/files/a", "/files/b", 5).tag("move");
    ask.send().refused(403, "unverified");
    assert_eq!((w.fence("files/a"), w.fence("files/b")), (None, None));
    let ask = w.relocate("MOVE", "/files/a", "/files/b", 5).tag("moved");
    ask.send().answered(200);
    assert_eq!(auth.count("moved"), 2);
}

#[test]
fn where_the_route_observes_what_was_refused_raises_nothing_either() {
    let (w, auth) = asking(|c| c.route("mode", "\"observe\""));
    auth.script("no", Script::status(403));
    let answer = w.put(9).tag("no").send();
    answer.answered(200);
    assert_eq!(answer.header("fencing-status"), Some("unverified;observed"));
    assert_eq!(w.fence("files/a"), None);
}

#[test]
fn the_other_end_of_a_move_has_its_own_names() {
    for mode in ["enforce", "off"] {
        let authority = Authority::new();
        let locked = format!(
            "[[routes]]\nname = \"locked\"\npath = \"/locked/{{*key}}\"\nupstream = \"files\"\nresource = \"tree\"\nmode = \"{mode}\"\nallow = [\"keeper\"]\n"
        );
        let (w, _folder) = named(&authority, |c| {
            let c = c
                .route("mode", &format!("\"{mode}\""))
                .route("resource", "\"tree\"");
            c.more(&locked)
        });
        let go = |name: &str| {
            let config = authority.client(&[b"http/1.1"], Some(authority.sign(&[name])));
            let to = format!("https://localhost:{}/locked/b", w.gw.port);
            let head = format!(
                "MOVE /files/a HTTP/1.1\r\nHost: localhost:{}\r\nFencing-Token: 5\r\nX-Tag: {name}\r\nDestination: {to}\r\nContent-Length: 0\r\n\r\n",
                w.gw.port
            );
            crate::tls::exchange(w.gw.port, config, &head)
        };
        assert!(go("stranger").starts_with("HTTP/1.1 403 "), "{mode}");
        w.stays_away("stranger");
        assert!(go("keeper").starts_with("HTTP/1.1 200 "), "{mode}");
    }
}
