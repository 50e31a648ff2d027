//! Where a token may stand, how it may be spelt, and what of it goes upstream.

use crate::world::World;

#[test]
fn ambiguous_tokens_are_malformed() {
    let w = World::new();
    let ask = || w.ask("PUT", "/files/a").tag("odd");
    for headers in [
        vec![("Fencing_Token", "5")],
        vec![("Fencing-Token", "5"), ("Fencing_Token", "5")],
        vec![("Fencing-Token", "5"), ("fencing_token", "9")],
        vec![("Fencing-Token", "5"), ("Connection", "Fencing-Token")],
        vec![
            ("Fencing-Token", "5"),
            ("Connection", "close, fencing-token"),
        ],
        vec![("Fencing-Token", "0")],
        vec![("Fencing-Token", "")],
        vec![("Fencing-Token", "+5")],
        vec![("Fencing-Token", "-5")],
        vec![("Fencing-Token", "5 5")],
        vec![("Fencing-Token", "0x5")],
        vec![("Fencing-Token", "18446744073709551616")],
        vec![("Fencing-Token", "000000000000000000005")],
    ] {
        let mut odd = ask();
        for (name, value) in &headers {
            odd = odd.header(name, value);
        }
        let answer = odd.send();
        assert_eq!(answer.status, 400, "{headers:?}: {answer}");
        answer.refused(400, "malformed");
    }
    assert_eq!(w.up.count("odd"), 0);
    assert_eq!(w.fence("files/a"), None);
    ask()
        .tag("padded")
        .token("  0000000005\t")
        .send()
        .answered(200);
    w.put(18_446_744_073_709_551_615).send().answered(200);
    assert_eq!(w.fence("files/a").unwrap().0, "18446744073709551615");
}

#[test]
fn the_token_goes_upstream_as_it_came() {
    let w = World::new();
    w.put(5).tag("odd").send().answered(200);
    w.ask("PUT", "/files/a")
        .token("0005")
        .tag("padded")
        .send()
        .answered(200);
    assert_eq!(w.up.head("padded").all("Fencing-Token"), ["0005"]);
}

#[test]
fn a_token_in_a_trailer_does_not_count() {
    let w = World::new();
    let chunked = || {
        w.ask("PUT", "/files/a")
            .header("Transfer-Encoding", "chunked")
            .header("Trailer", "Fencing-Token, Fencing-Token-Destination, X-Sum")
    };
    let trailers = b"0\r\nFencing-Token: 9\r\nFencing-Token-Destination: 9\r\nX-Sum: 1\r\n\r\n";
    let mut client = chunked().tag("late").open();
    client.send(b"4\r\ndata\r\n");
    client.send(trailers);
    client.response("PUT").refused(428, "missing");
    let mut client = chunked().token(5).tag("t5").open();
    client.send(b"4\r\ndata\r\n");
    client.send(trailers);
    client.response("PUT").answered(200);
    let seen = w.up.whole_of("t5");
    assert_eq!(seen.body, b"data");
    let sum = seen.trailers.iter().map(|(name, _)| name.to_lowercase());
    assert_eq!(sum.collect::<Vec<_>>(), ["x-sum"]);
    assert_eq!(w.fence("files/a").unwrap().0, "5");
    assert_eq!(w.up.count("late"), 0);
}

#[test]
fn a_token_in_the_query_is_stripped() {
    let w = World::with(|c| c.route("token", "{ query = \"fence\" }"));
    let put = |target: &str, tag: &str| w.ask("PUT", target).tag(tag).send();
    put("/files/a?x=%2F&fence=5&y", "t5").answered(200);
    assert_eq!(w.up.head("t5").target, "/files/a?x=%2F&y");
    put("/files/a?fence=6", "t6").answered(200);
    assert_eq!(w.up.head("t6").target, "/files/a");
    put("/files/a?fence=5", "late").refused(412, "stale");
    put("/files/a?x=1", "late").refused(428, "missing");
    for odd in [
        "fence=7&fence=7",
        "fence=",
        "fence",
        "FENCE=7&fence=8",
        "f%65nce=7",
        "fence[]=7",
        "fence=7;fence=8",
    ] {
        let answer = put(&format!("/files/a?{odd}"), "late");
        assert_eq!(answer.status, 400, "{odd}: {answer}");
    }
    // Another place is no place.
    w.put(9).tag("late").send().refused(428, "missing");
    assert_eq!(w.up.count("late"), 0);
}

#[test]
fn a_token_in_the_path_is_stripped() {
    let w = World::with(|c| c.route("token", "{ path_prefix = true }"));
    let put = |target: &str, tag: &str| w.ask("PUT", target).tag(tag).send();
    put("/~fence/5/files/a?x=1", "t5").answered(200);
    assert_eq!(w.up.head("t5").target, "/files/a?x=1");
    put("/~fence/4/files/a", "late").refused(412, "stale");
    put("/files/a", "late").refused(428, "missing");
    for odd in [
        "/~fence//files/a",
        "/~fence/x/files/a",
        "/~fence/7/~fence/8/files/a",
        "/%7Efence/7/files/a",
    ] {
        let answer = put(odd, "late");
        assert!(matches!(answer.status, 400 | 404), "{odd}: {answer}");
    }
    let ask = w.ask("MOVE", "/~fence/6/files/a").tag("move").body(b"");
    let to = |path: &str| format!("http://127.0.0.1:{}{path}", w.gw.port);
    let move_to = |path: &str| ask.clone().header("Destination", &to(path));
    move_to("/~fence/9/files/b")
        .tag("late")
        .send()
        .refused(400, "malformed");
    move_to("/~fence/6/files/b").send().answered(200);
    assert_eq!(
        w.up.head("move").header("Destination"),
        Some(&*to("/files/b"))
    );
    put("/~fence/5/files/b", "late").refused(412, "stale");
    assert_eq!(w.up.count("late"), 0);
}

#[test]
fn one_of_several_names_may_carry_the_token() {
    let w = World::with(|c| {
        c.route(
            "token",
            "{ header = \"Fencing-Token\", aliases = [\"X-Fencing-Token\"] }",
        )
    });
    w.put(5).send().answered(200);
    let alias = |value: &str| {
        w.ask("PUT", "/files/a")
            .header("X-Fencing-Token", value)
            .tag("alias")
    };
    alias("6").send().answered(200);
    assert_eq!(w.up.head("alias").header("X-Fencing-Token"), Some("6"));
    alias("5").tag("late").send().refused(412, "stale");
    alias("7")
        .token(7)
        .tag("late")
        .send()
        .refused(400, "malformed");
    alias("7")
        .header("X_Fencing_Token", "7")
        .tag("late")
        .send()
        .refused(400, "malformed");
    alias("7")
        .header("Connection", "x-fencing-token")
        .tag("late")
        .send()
        .refused(400, "malformed");
    assert_eq!(w.up.count("late"), 0);
}

#[test]
fn each_route_spells_tokens_as_it_says() {
    let pair = "[[routes]]\nname = \"pair\"\npath = \"/pair/{*key}\"\nupstream = \"files\"\nresource = \"pair/{key}\"\nnamespace = \"pairs\"\ndisclose_fence = true\ntoken = { header = \"Fencing-Token\", format = \"pair\" }\n";
    let w = World::with(|c| {
        c.route("token", "{ header = \"Fencing-Token\", format = \"hex\" }")
            .route("disclose_fence", "true")
            .more(pair)
    });
    let put = |path: &str, token: &str| w.ask("PUT", path).token(token).send();
    put("/files/a", "0x00ff").answered(200);
    put("/pair/a", "2:10").answered(200);
    for (path, low, token, fence) in [
        ("/files/a", "fe", "0xfe", "0xff"),
        ("/pair/a", "1:99", "1:99", "2:10"),
    ] {
        let answer = put(path, low);
        answer.refused(412, "stale");
        let problem: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(
            (&problem["token"], &problem["fence"]),
            (&token.into(), &fence.into())
        );
    }
    for odd in ["0:0", "1:", ":1", "1:2:3", "18446744073709551616:1"] {
        put("/pair/a", odd).refused(400, "malformed");
    }
}
