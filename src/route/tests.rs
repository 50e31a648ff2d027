//! Whole requests through [`Routes::classify`]: one test a rule.

use super::*;
use crate::config::load;
use crate::fence::ResourceKey;
use http::Request;
use proptest::prelude::*;

const HEAD: &str = "[store]\npath = \"data\"\n[upstreams.files]\nurl = \"http://127.0.0.1:9000\"\nsettle = \"1s\"\n\
    [upstreams.other]\nurl = \"http://127.0.0.1:9001\"\nsettle = \"1s\"\n";

/// Leaked, so that what is found may outlive the line that finds it.
fn routes(list: &[(&str, &str, &str)]) -> &'static Routes {
    let mut text = HEAD.to_owned();
    for (name, path, rest) in list {
        let upstream = if rest.contains("upstream") {
            ""
        } else {
            "\nupstream = \"files\""
        };
        let table = format!("[[routes]]\nname = \"{name}\"\npath = \"{path}\"{upstream}\n{rest}\n");
        text.push_str(&table);
    }
    let loaded = load(&text).unwrap_or_else(|faults| panic!("{faults:#?}"));
    Box::leak(Box::new(Routes::new(&loaded.settings)))
}

fn files(rest: &str) -> &'static Routes {
    routes(&[(
        "files",
        "/files/{*key}",
        &format!("resource = \"files/{{key}}\"\n{rest}"),
    )])
}

fn parts(method: &str, target: &str, headers: &[(&str, &str)]) -> Parts {
    let mut request = Request::builder().method(method).uri(target);
    if !headers.iter().any(|(name, _)| *name == "Host") {
        request = request.header("Host", "gate:8080");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

fn ask<'a>(
    routes: &'a Routes,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
) -> Result<Match<'a>, Reject<'a>> {
    routes.classify(&parts(method, target, headers))
}

fn put<'a>(routes: &'a Routes, target: &str) -> Match<'a> {
    ask(routes, "PUT", target, &[]).unwrap_or_else(|reject| panic!("{target}: {reject:?}"))
}

fn text(key: &Key) -> String {
    key.resource.to_string()
}

fn key(found: &Match<'_>) -> String {
    text(&found.keys.as_ref().unwrap().first)
}

fn word(result: &Result<Match<'_>, Reject<'_>>) -> &'static str {
    match result {
        Ok(_) => "ok",
        Err(Reject::Unrouted) => "unrouted",
        Err(Reject::Malformed { .. }) => "malformed",
        Err(Reject::Forbidden { .. }) => "forbidden",
        Err(Reject::MethodNotAllowed) => "405",
    }
}

fn to(destination: &str) -> [(&str, &str); 1] {
    [("Destination", destination)]
}

#[test]
fn a_write_has_its_resource() {
    let found = put(files(""), "/files/a/b?x=1");
    assert_eq!(
        (&*found.route.name, found.class, key(&found).as_str()),
        ("files", Class::Write, "default:files/a/b")
    );
    assert_eq!(
        found.keys.unwrap().first.resource,
        ResourceKey::new("default", b"files/a/b").unwrap()
    );
    assert_eq!(found.target.as_str(), "/files/a/b?x=1");
}

#[test]
fn a_read_has_none_unless_it_raises() {
    for method in [
        "GET", "HEAD", "OPTIONS", "TRACE", "PROPFIND", "REPORT", "SEARCH", "QUERY",
    ] {
        let found = ask(files(""), method, "/files/a", &[]).unwrap();
        assert!(
            found.class == Class::Read && found.keys.is_none(),
            "{method}"
        );
    }
    let found = ask(files("raise_on_read = true"), "GET", "/files/a", &[]).unwrap();
    assert_eq!(
        (found.class, key(&found).as_str()),
        (Class::Read, "default:files/a")
    );
}

#[test]
fn every_other_method_is_a_write() {
    for method in [
        "PUT",
        "POST",
        "PATCH",
        "DELETE",
        "PROPPATCH",
        "MKCOL",
        "LOCK",
        "UNLOCK",
        "FOO",
        "get",
    ] {
        assert_eq!(
            ask(files(""), method, "/files/a", &[]).unwrap().class,
            Class::Write,
            "{method}"
        );
    }
    assert_eq!(word(&ask(files(""), "CONNECT", "/files/a", &[])), "405");
    assert_eq!(word(&ask(files(""), "CONNECT", "gate:8080", &[])), "405");
}

#[test]
fn an_override_is_judged_as_what_it_overrides_to() {
    let found = ask(files(""), "GET", "/files/a?_method=delete", &[]).unwrap();
    assert_eq!(
        (found.class, found.method.as_str()),
        (Class::Write, "DELETE")
    );
    assert_eq!(found.keys.unwrap().first.tree, Tree::Ask);
    let found = ask(
        files(""),
        "POST",
        "/files/a",
        &[("X-HTTP-Method-Override", "GET")],
    )
    .unwrap();
    assert_eq!((found.class, found.method.as_str()), (Class::Write, "POST"));
    let two = [
        ("X-HTTP-Method-Override", "PUT"),
        ("X-HTTP-Method", "PATCH"),
    ];
    assert_eq!(word(&ask(files(""), "POST", "/files/a", &two)), "malformed");
}

#[test]
fn ambiguous_paths_are_malformed_for_reads_too() {
    let all = routes(&[
        ("files", "/files/{*key}", "resource = \"files/{key}\""),
        ("rest", "/{*rest}", "mode = \"off\""),
    ]);
    for target in [
        "/files//a",
        "/files/./a",
        "/files/x/../a",
        "/files/a%2Fb",
        "/files/a%00",
        "//files/a",
        "/x;/files/a",
        "/files/a%5cb",
        "/files/%2541",
    ] {
        for method in ["PUT", "GET"] {
            assert_eq!(
                word(&ask(all, method, target, &[])),
                "malformed",
                "{method} {target}"
            );
        }
    }
}

#[test]
fn no_spelling_gets_past_a_route() {
    let all = routes(&[
        ("files", "/files/{*key}", "resource = \"files/{key}\""),
        ("rest", "/{*rest}", "mode = \"off\""),
    ]);
    for target in ["/%66iles/a", "/files/%61", "/files/a/", "/files/a?x"] {
        let found = put(all, target);
        assert_eq!(
            (key(&found).as_str(), found.target.as_str()),
            ("default:files/a", target)
        );
    }
    assert!(put(all, "/").keys.is_none() && put(all, "/other").keys.is_none());
}

#[test]
fn what_was_matched_is_forwarded() {
    for target in [
        "/files/a%20b?x=1&y=%2F",
        "/files/caf%C3%A9",
        "/files/caf%c3%a9",
        "/files/a?",
        "/files/a/b/c?q=a+b",
        "/files/a/",
    ] {
        assert_eq!(put(files(""), target).target.as_str(), target);
    }
}

#[test]
fn a_prefix_is_stripped_as_it_was_spelt() {
    let all = files("strip_prefix = \"/files\"");
    for (target, forwarded) in [
        ("/files/a%20b?x", "/a%20b?x"),
        ("/%66iles/a/", "/a/"),
        ("/files/a?", "/a?"),
    ] {
        let found = put(all, target);
        assert_eq!(found.target.as_str(), forwarded);
    }
    assert_eq!(key(&put(all, "/files/a")), "default:files/a");
}

#[test]
fn absolute_and_asterisk_targets() {
    let found = ask(files(""), "PUT", "http://gate:8080/files/a?x", &[]).unwrap();
    assert_eq!(found.target.as_str(), "/files/a?x");
    assert_eq!(
        word(&ask(files(""), "PUT", "http://evil/files/a", &[])),
        "malformed"
    );
    assert_eq!(word(&ask(files(""), "OPTIONS", "*", &[])), "unrouted");
    assert_eq!(word(&ask(files(""), "PUT", "*", &[])), "malformed");
    assert_eq!(word(&ask(files(""), "PUT", "gate:8080", &[])), "malformed");
    let all = routes(&[("rest", "/{*rest}", "mode = \"off\"")]);
    assert_eq!(
        ask(all, "PUT", "http://gate:8080?x=1", &[])
            .unwrap()
            .target
            .as_str(),
        "/?x=1"
    );
}

#[test]
fn no_route_is_unrouted() {
    for target in ["/elsewhere", "/files", "/files/", "/filesx/a", "/"] {
        assert_eq!(
            word(&ask(files(""), "PUT", target, &[])),
            "unrouted",
            "{target}"
        );
    }
}

#[test]
fn routes_are_tried_in_file_order() {
    let all = routes(&[
        (
            "one",
            "/files/{*key}",
            "resource = \"files/{key}\"\nmethods = [\"PUT\"]",
        ),
        ("two", "/files/special", "resource = \"files/special\""),
        ("three", "/files/{*key}", "resource = \"files/{key}\""),
    ]);
    let name = |method| {
        ask(all, method, "/files/special", &[])
            .unwrap()
            .route
            .name
            .to_string()
    };
    assert_eq!((name("PUT"), name("DELETE")), ("one".into(), "two".into()));
    assert_eq!(
        &*ask(all, "DELETE", "/files/x", &[]).unwrap().route.name,
        "three"
    );
}

#[test]
fn hosts_match_in_any_case_and_with_any_port() {
    let all = files("host = \"Gate.example\"");
    let by = |host| word(&ask(all, "PUT", "/files/a", &[("Host", host)]));
    assert_eq!(
        (by("GATE.example"), by("gate.example:99"), by("gate")),
        ("ok", "ok", "unrouted")
    );
    assert_eq!((by("gate.example."), by("")), ("malformed", "malformed"));
    assert_eq!(
        word(&ask(
            all,
            "PUT",
            "/files/a",
            &[("Host", "gate.example"), ("Host", "x")]
        )),
        "malformed"
    );
}

#[test]
fn a_placeholder_needs_exactly_one_value() {
    let all = files("").entries[0].route.name.clone();
    assert_eq!(&*all, "files");
    let by_header = routes(&[("t", "/t/{*key}", "resource = \"t/{header:X-Tenant}/{key}\"")]);
    let found = ask(by_header, "PUT", "/t/a", &[("X-Tenant", " acme ")]).unwrap();
    assert_eq!(key(&found), "default:t/acme/a");
    for headers in [
        &[][..],
        &[("X-Tenant", "")],
        &[("X-Tenant", "a"), ("X-Tenant", "a")],
        &[("X-Tenant", "a"), ("X_Tenant", "b")],
        &[("X-Tenant", "a"), ("Connection", "close, x-tenant")],
        &[("X-Tenant", "caf\u{e9}")],
    ] {
        assert_eq!(
            word(&ask(by_header, "PUT", "/t/a", headers)),
            "malformed",
            "{headers:?}"
        );
    }
    let by_query = routes(&[("t", "/t", "resource = \"t/{query:id}\"")]);
    assert_eq!(key(&put(by_query, "/t?x=1&id=%61b")), "default:t/ab");
    for query in [
        "",
        "?id=",
        "?id",
        "?id=a&id=a",
        "?i%64=a",
        "?id=a&%69d=b",
        "?ID=a",
        "?id=a+b",
        "?id=%2541",
        "?id=a;id=b",
    ] {
        assert_eq!(
            word(&ask(by_query, "PUT", &format!("/t{query}"), &[])),
            "malformed",
            "{query}"
        );
    }
    let by_host = routes(&[("t", "/t/{*key}", "resource = \"{host}{path}\"")]);
    assert_eq!(
        key(&ask(by_host, "PUT", "/t/%61", &[("Host", "Gate:80")]).unwrap()),
        "default:gate/t/a"
    );
}

#[test]
fn escapes_become_bytes_of_the_key() {
    let found = put(files(""), "/files/a%20b%FF");
    assert_eq!(
        found.keys.unwrap().first.resource.as_bytes(),
        b"\x07defaultfiles/a b\xff"
    );
}

#[test]
fn move_changes_both_ends_and_copy_its_destination() {
    let both = ask(
        files(""),
        "MOVE",
        "/files/a",
        &to("http://gate:8080/files/%62"),
    )
    .unwrap();
    let keys = both.keys.unwrap();
    assert_eq!(
        (text(&keys.first), keys.first.end),
        ("default:files/a".into(), End::Request)
    );
    let second = keys.second.unwrap();
    assert_eq!(
        (text(&second), second.end),
        ("default:files/b".into(), End::Destination)
    );
    assert_eq!(both.destination.unwrap().target.as_str(), "/files/%62");
    let one = ask(files(""), "COPY", "/files/a", &to("/files/b")).unwrap();
    assert_eq!(key(&one), "default:files/b");
    assert!(one.keys.unwrap().second.is_none());
}

#[test]
fn a_move_onto_itself_has_one_key() {
    let found = ask(files(""), "MOVE", "/files/a", &to("/files/%61/")).unwrap();
    let keys = found.keys.unwrap();
    assert!(keys.second.is_none());
    assert_eq!(
        (text(&keys.first), keys.first.tree),
        ("default:files/a".into(), Tree::Refuse)
    );
}

#[test]
fn any_write_with_a_destination_is_a_move() {
    for (method, headers) in [
        ("PUT", &to("/files/b")[..]),
        ("POST", &to("/files/b")),
        ("FOO", &to("/files/b")),
        (
            "POST",
            &[
                ("Destination", "/files/b"),
                ("X-HTTP-Method-Override", "COPY"),
            ],
        ),
        (
            "GET",
            &[
                ("Destination", "/files/b"),
                ("X-HTTP-Method-Override", "MOVE"),
            ],
        ),
    ] {
        let keys = ask(files(""), method, "/files/a", headers)
            .unwrap()
            .keys
            .unwrap();
        assert!(
            keys.second.is_some() && keys.first.end == End::Request,
            "{method}"
        );
        assert_eq!(keys.first.tree, Tree::Ask, "{method}");
    }
    assert!(
        ask(files(""), "GET", "/files/a", &to("/files/b"))
            .unwrap()
            .keys
            .is_none()
    );
    assert_eq!(word(&ask(files(""), "MOVE", "/files/a", &[])), "malformed");
}

#[test]
fn destination_is_refused_as_a_request_to_it_would_be() {
    let all = files("methods = [\"MOVE\", \"COPY\", \"PUT\"]");
    for (destination, expected) in [
        ("/elsewhere/b", "unrouted"),
        ("/files", "unrouted"),
        ("/files//b", "malformed"),
        ("/files/../b", "malformed"),
        ("/files/b%2Fc", "malformed"),
        ("/files/b?x", "malformed"),
        ("/files/b#x", "malformed"),
        ("", "malformed"),
        ("files/b", "malformed"),
        ("http://u@gate:8080/files/b", "malformed"),
        ("http://other/files/b", "forbidden"),
        ("ftp://gate:8080/files/b", "malformed"),
        ("//gate/files/b", "malformed"),
        ("http://gate:8080/files/b", "ok"),
        ("https://GATE:8080/files/b", "ok"),
        ("http://gate:81/files/b", "forbidden"),
    ] {
        for method in ["MOVE", "COPY", "PUT"] {
            assert_eq!(
                word(&ask(all, method, "/files/a", &to(destination))),
                expected,
                "{method} {destination}"
            );
        }
    }
    let twice = [("Destination", "/files/b"), ("Destination", "/files/b")];
    assert_eq!(word(&ask(all, "MOVE", "/files/a", &twice)), "malformed");
}

#[test]
fn destination_in_another_upstream_is_refused() {
    let all = routes(&[
        ("a", "/a/{*key}", "resource = \"a/{key}\""),
        (
            "b",
            "/b/{*key}",
            "resource = \"b/{key}\"\nupstream = \"other\"",
        ),
    ]);
    assert_eq!(word(&ask(all, "MOVE", "/a/x", &to("/b/x"))), "forbidden");
    assert_eq!(word(&ask(all, "COPY", "/a/x", &to("/b/x"))), "forbidden");
}

#[test]
fn destination_of_another_mode_is_refused() {
    let all = routes(&[
        ("a", "/a/{*key}", "resource = \"a/{key}\""),
        (
            "b",
            "/b/{*key}",
            "resource = \"b/{key}\"\nmode = \"observe\"",
        ),
        ("rest", "/{*rest}", "mode = \"off\""),
    ]);
    for (from, destination) in [
        ("/a/x", "/b/x"),
        ("/b/x", "/a/x"),
        ("/a/x", "/c"),
        ("/c", "/a/x"),
    ] {
        for method in ["MOVE", "COPY", "POST"] {
            assert_eq!(
                word(&ask(all, method, from, &to(destination))),
                "forbidden",
                "{method} {from} {destination}"
            );
        }
    }
    assert_eq!(word(&ask(all, "MOVE", "/c", &to("/d"))), "ok");
}

#[test]
fn destination_in_another_namespace_needs_its_own_token() {
    let all = routes(&[
        ("a", "/a/{*key}", "resource = \"{key}\"\nnamespace = \"a\""),
        ("b", "/b/{*key}", "resource = \"{key}\"\nnamespace = \"b\""),
    ]);
    assert_eq!(word(&ask(all, "MOVE", "/a/x", &to("/b/x"))), "forbidden");
    assert_eq!(word(&ask(all, "COPY", "/a/x", &to("/b/x"))), "forbidden");
    let headers = [("Destination", "/b/x"), ("Fencing-Token-Destination", "7")];
    let found = ask(all, "MOVE", "/a/x", &headers).unwrap();
    let keys = found.keys.unwrap();
    assert_eq!(
        (text(&keys.first), text(&keys.second.unwrap())),
        ("a:x".into(), "b:x".into())
    );
    let destination = found.destination.unwrap();
    assert!(destination.own_token && &*destination.route.name == "b");
}

#[test]
fn destination_is_stripped_as_the_path_is() {
    let all = files("strip_prefix = \"/files\"\ntoken = { path_prefix = true }");
    let found = ask(
        all,
        "MOVE",
        "/~fence/5/files/a",
        &to("http://gate:8080/~fence/5/files/b%20c"),
    )
    .unwrap();
    assert_eq!(
        (found.target.as_str(), found.token.as_deref()),
        ("/a", Some("5"))
    );
    assert_eq!(found.destination.unwrap().target.as_str(), "/b%20c");
    assert_eq!(
        word(&ask(
            all,
            "MOVE",
            "/~fence/5/files/a",
            &to("/~fence/6/files/b")
        )),
        "malformed"
    );
    assert_eq!(
        word(&ask(all, "MOVE", "/~fence/5/files/a", &to("/files/b"))),
        "ok"
    );
}

#[test]
fn a_token_in_the_path_is_taken_off() {
    let all = routes(&[
        (
            "files",
            "/files/{*key}",
            "resource = \"files/{key}\"\ntoken = { path_prefix = true }",
        ),
        ("rest", "/{*rest}", "mode = \"off\""),
    ]);
    let found = put(all, "/~fence/5/files/a?x");
    assert_eq!(
        (
            found.target.as_str(),
            found.token.as_deref(),
            key(&found).as_str()
        ),
        ("/files/a?x", Some("5"), "default:files/a")
    );
    assert_eq!(put(all, "/files/a").token, None);
    for target in [
        "/%7Efence/5/files/a",
        "/~fence/5/~fence/6/files/a",
        "/~fence/5/other",
        "/~%66ence/5/files/a",
        "/~fence",
    ] {
        assert_eq!(word(&ask(all, "PUT", target, &[])), "malformed", "{target}");
    }
    assert_eq!(
        word(&ask(files(""), "PUT", "/~fence/5/files/a", &[])),
        "unrouted"
    );
}

#[test]
fn a_token_in_the_query_is_taken_off() {
    let all = files("token = { query = \"fence\" }");
    for (target, forwarded) in [
        ("/files/a?fence=5", "/files/a"),
        ("/files/a?x=%2F&fence=5&y", "/files/a?x=%2F&y"),
    ] {
        let found = put(all, target);
        assert_eq!(
            (found.target.as_str(), found.token.as_deref()),
            (forwarded, Some("5"))
        );
    }
    assert_eq!(put(all, "/files/a?x").token, None);
    assert_eq!(
        put(all, "/files/a?fence=2%3A10").token.as_deref(),
        Some("2:10")
    );
    for query in [
        "fence=5&fence=5",
        "f%65nce=5",
        "fence=5&Fence=6",
        "fence=",
        "fence=+5",
        "fence=5;fence=6",
    ] {
        assert_eq!(
            word(&ask(all, "PUT", &format!("/files/a?{query}"), &[])),
            "malformed",
            "{query}"
        );
    }
}

#[test]
fn collections_are_asked_about_or_refused() {
    let tree = |routes: &'static Routes, method: &str, target: &str| {
        ask(routes, method, target, &[]).map(|found| found.keys.map(|keys| keys.first.tree))
    };
    for method in ["DELETE", "LOCK", "delete"] {
        assert!(
            matches!(tree(files(""), method, "/files/a"), Ok(Some(Tree::Ask))),
            "{method}"
        );
        assert!(
            matches!(tree(files(""), method, "/files/a/"), Ok(Some(Tree::Refuse))),
            "{method}"
        );
        assert!(matches!(
            tree(files("collections = \"allow\""), method, "/files/a/"),
            Ok(Some(Tree::No))
        ));
    }
    assert!(matches!(
        tree(files(""), "PUT", "/files/a/"),
        Ok(Some(Tree::No))
    ));
    let whole = routes(&[("job", "/job/{*rest}", "resource = \"job\"")]);
    assert!(matches!(
        tree(whole, "DELETE", "/job/a/"),
        Ok(Some(Tree::No))
    ));
    let suffix = routes(&[("s", "/s/{*key}", "resource = \"{key}.lock\"")]);
    assert!(matches!(
        tree(suffix, "DELETE", "/s/a"),
        Ok(Some(Tree::Refuse))
    ));
    let leaf = routes(&[("s", "/s/{id}", "resource = \"s/{id}\"")]);
    assert!(matches!(tree(leaf, "DELETE", "/s/a"), Ok(Some(Tree::No))));
}

#[test]
fn collections_of_a_move_are_judged_at_both_ends() {
    let keys = ask(files(""), "MOVE", "/files/a", &to("/files/b/"))
        .unwrap()
        .keys
        .unwrap();
    assert_eq!(
        (keys.first.tree, keys.second.unwrap().tree),
        (Tree::Ask, Tree::Refuse)
    );
    let keys = ask(files(""), "COPY", "/files/a/", &to("/files/b"))
        .unwrap()
        .keys
        .unwrap();
    assert_eq!(keys.first.tree, Tree::Ask);
}

#[test]
fn a_folder_above_another_route_is_refused() {
    let all = routes(&[
        ("deep", "/a/{id}/b", "resource = \"deep/{id}\""),
        ("flat", "/a/{id}", "resource = \"flat/{id}\""),
        ("rest", "/{*rest}", "mode = \"off\""),
    ]);
    let found = ask(all, "DELETE", "/a/5", &[]).unwrap();
    assert_eq!(found.keys.unwrap().first.tree, Tree::Refuse);
    for target in ["/a", "/a/", "/"] {
        assert_eq!(
            word(&ask(all, "DELETE", target, &[])),
            "forbidden",
            "{target}"
        );
        assert_eq!(word(&ask(all, "PUT", target, &[])), "ok", "{target}");
        assert_eq!(
            word(&ask(all, "MOVE", target, &to("/c"))),
            "forbidden",
            "{target}"
        );
        assert_eq!(word(&ask(all, "COPY", target, &to("/c"))), "ok", "{target}");
        assert_eq!(
            word(&ask(all, "COPY", "/c", &to(target))),
            "forbidden",
            "{target}"
        );
    }
    assert_eq!(word(&ask(all, "DELETE", "/c", &[])), "ok");
    let family = routes(&[
        ("one", "/f/{a}", "resource = \"f/{a}\""),
        ("two", "/f/{a}/{b}", "resource = \"f/{a}/{b}\""),
    ]);
    assert_eq!(
        ask(family, "DELETE", "/f/x", &[])
            .unwrap()
            .keys
            .unwrap()
            .first
            .tree,
        Tree::Ask
    );
}

#[test]
fn a_folder_above_a_route_that_enforces_is_refused_where_its_own_only_observes() {
    let all = routes(&[
        (
            "above",
            "/a/{id}",
            "resource = \"a/{id}\"\nmode = \"observe\"",
        ),
        ("deep", "/a/{id}/{*rest}", "resource = \"a/{id}/{rest}\""),
    ]);
    assert_eq!(word(&ask(all, "DELETE", "/a/5", &[])), "forbidden");
    assert_eq!(word(&ask(all, "PUT", "/a/5", &[])), "ok");
    let both = routes(&[
        (
            "above",
            "/a/{id}",
            "resource = \"a/{id}\"\nmode = \"observe\"",
        ),
        (
            "deep",
            "/a/{id}/{*rest}",
            "resource = \"a/{id}/{rest}\"\nmode = \"observe\"",
        ),
    ]);
    let found = ask(both, "DELETE", "/a/5", &[]).unwrap();
    assert_eq!(found.keys.unwrap().first.tree, Tree::Ask);
}

#[test]
fn a_folder_above_a_route_behind_another_prefix_is_refused() {
    let all = routes(&[
        (
            "api",
            "/api/{id}",
            "mode = \"off\"\nstrip_prefix = \"/api\"",
        ),
        ("files", "/files/{*key}", "resource = \"files/{key}\""),
    ]);
    assert_eq!(word(&ask(all, "DELETE", "/api/files", &[])), "forbidden");
    assert_eq!(word(&ask(all, "DELETE", "/api/other", &[])), "ok");
}

fn token_characters() -> impl Strategy<Value = String> {
    prop::collection::vec(
        prop_oneof![
            "[ab./;%~?&=#\\\\]",
            "%2[0-9a-fA-F]",
            Just("files".to_owned()),
            Just("~fence/5".to_owned())
        ],
        0..9,
    )
    .prop_map(|pieces| format!("/{}", pieces.concat()))
}

proptest! {
    #[test]
    fn no_target_panics_and_none_is_respelt(target in token_characters(), destination in token_characters()) {
        let all = routes(&[
            ("files", "/files/{*key}", "resource = \"files/{key}\""),
            ("rest", "/{*rest}", "mode = \"off\""),
        ]);
        let Ok(request) = Request::builder().method("MOVE").uri(&target).header("Host", "gate").header("Destination", &destination).body(()) else {
            return Ok(());
        };
        let (parts, ()) = request.into_parts();
        if let Ok(found) = all.classify(&parts) {
            prop_assert_eq!(found.target.as_str(), parts.uri.path_and_query().unwrap().as_str());
        }
    }
}

const STORE: &str =
    "[upstreams.store]\nkind = \"s3\"\nurl = \"http://127.0.0.1:9002\"\nsettle = \"1s\"\n";

fn with_store(list: &[(&str, &str, &str)]) -> &'static Routes {
    let mut text = format!("{HEAD}{STORE}");
    for (name, path, rest) in list {
        let table = format!("[[routes]]\nname = \"{name}\"\npath = \"{path}\"\n{rest}\n");
        text.push_str(&table);
    }
    let loaded = load(&text).unwrap_or_else(|faults| panic!("{faults:#?}"));
    Box::leak(Box::new(Routes::new(&loaded.settings)))
}

#[test]
fn a_path_is_read_as_the_first_route_that_serves_it_reads_paths() {
    let objects = (
        "objects",
        "/backups/{*key}",
        "host = \"gate\"\nupstream = \"store\"\nresource = \"{key}\"",
    );
    let files = (
        "files",
        "/files/{*key}",
        "upstream = \"files\"\nresource = \"{key}\"",
    );
    let first = with_store(&[objects, files]);
    assert_eq!(key(&put(first, "/backups/a//b")), "default:a//b");
    assert_eq!(key(&put(first, "/files/a")), "default:a");
    // For a store it would be sound, but it leads to none.
    assert_eq!(word(&ask(first, "PUT", "/files/a//b", &[])), "malformed");
    assert_eq!(
        word(&ask(first, "PUT", "/elsewhere/a//b", &[])),
        "malformed"
    );
    // It could be another spelling of what the first route fences.
    let second = with_store(&[files, objects]);
    assert_eq!(key(&put(second, "/backups/a")), "default:a");
    assert_eq!(word(&ask(second, "PUT", "/backups/a//b", &[])), "malformed");
    // That one is on another host.
    let elsewhere = (
        "files",
        "/files/{*key}",
        "host = \"a.example\"\nupstream = \"files\"\nresource = \"{key}\"",
    );
    let apart = with_store(&[elsewhere, objects]);
    assert_eq!(key(&put(apart, "/backups/a//b")), "default:a//b");
}

#[test]
fn a_copy_within_an_object_store_is_answered_at_its_end() {
    let objects = (
        "objects",
        "/{bucket}/{*key}",
        "host = \"gate\"\nupstream = \"store\"\nresource = \"{bucket}/{key}\"",
    );
    let routes = with_store(&[objects]);
    let copy = [("x-amz-copy-source", "b/other")];
    let found = ask(routes, "PUT", "/b/k", &copy).unwrap();
    assert!(found.answered_at_end && key(&found) == "default:b/k");
    assert!(!put(routes, "/b/k").answered_at_end);
}

#[test]
fn one_fence_for_all_below_so_many_segments() {
    let rest = "resource = \"f/{key:prefix(2)}\"";
    let plain = routes(&[("files", "/files/{*key}", rest)]);
    for (path, expected) in [
        ("/files/a", "default:f/a"),
        ("/files/a/b", "default:f/a/b"),
        ("/files/a/b/c", "default:f/a/b"),
        ("/files/a/%62/c/d/", "default:f/a/b"),
    ] {
        assert_eq!(key(&put(plain, path)), expected, "{path}");
    }
    // What lies below a path that is shorter has fences of its own.
    let tree = |path| {
        ask(plain, "DELETE", path, &[])
            .unwrap()
            .keys
            .unwrap()
            .first
            .tree
    };
    assert_eq!(
        (tree("/files/a"), tree("/files/a/b")),
        (Tree::Ask, Tree::No)
    );
    let objects = (
        "objects",
        "/{bucket}/{*key}",
        "host = \"gate\"\nupstream = \"store\"\nresource = \"{bucket}/{key:prefix(2)}\"",
    );
    let store = with_store(&[objects]);
    for (path, expected) in [
        ("/b/log/1/00.json", "default:b/log/1"),
        ("/b/log%2F1/01.json", "default:b/log/1"),
        ("/b/log//1", "default:b/log/"),
        ("/b/log", "default:b/log"),
    ] {
        assert_eq!(key(&put(store, path)), expected, "{path}");
    }
}

#[test]
fn a_listing_raises_where_the_bucket_is_the_resource() {
    let with = |resource: &str| {
        let rest = format!(
            "host = \"gate\"\nupstream = \"store\"\nresource = \"{resource}\"\nraise_on_read = true"
        );
        with_store(&[("objects", "/{bucket}/{*key}", &rest)])
    };
    let list = |routes| ask(routes, "GET", "/b?list-type=2", &[]).unwrap().keys;
    let bucket = list(with("of-{bucket}")).unwrap();
    assert_eq!(text(&bucket.first), "default:of-b");
    assert!(list(with("{bucket}/{key}")).is_none());
}
