//! The commands, and the start and the end of `serve`.

use crate::support::{Client, free_port};
use crate::world::World;

const CONFIG: &str = "default:";

#[test]
fn fences_are_listed_with_and_without_a_gateway() {
    let mut w = World::new();
    for (path, token) in [
        ("/files/a", 5),
        ("/files/b%20c", 18_446_744_073_709_551_615),
        ("/files/d/e", 7),
    ] {
        w.put_to(path, token).send().answered(200);
    }
    let mut listed = Vec::new();
    for runs in [true, false] {
        let (code, said) = w.gw.command(&["fences", "list"]);
        assert_eq!(code, Some(0), "{said}");
        let lines: Vec<_> = said
            .lines()
            .filter(|line| line.starts_with(CONFIG))
            .collect();
        assert_eq!(lines.len(), 3, "{said}");
        for (line, part) in lines.iter().zip([
            "files/a\t5\t",
            "files/b c\t18446744073709551615\t",
            "files/d/e\t7\t",
        ]) {
            assert!(line.starts_with(&format!("{CONFIG}{part}")), "{line}");
        }
        let (_, few) =
            w.gw.command(&["fences", "list", "--prefix", "files/d", "--limit", "1"]);
        assert_eq!(
            few.lines().filter(|line| line.starts_with(CONFIG)).count(),
            1,
            "{few}"
        );
        let (_, none) = w.gw.command(&["fences", "list", "--namespace", "other"]);
        assert!(!none.contains(CONFIG), "{none}");
        for key in ["files/a", "default:files/a"] {
            let (code, said) = w.gw.command(&["fences", "show", key]);
            assert!(
                code == Some(0) && said.contains("default:files/a\t5"),
                "{key}: {said}"
            );
        }
        let (code, said) = w.gw.command(&["fences", "show", "files/none"]);
        assert!(code == Some(1) && said.contains("no fence"), "{said}");
        listed.push(lines.join("\n"));
        if runs {
            assert!(w.gw.stop().success());
        }
    }
    assert_eq!(listed[0], listed[1]);
    // Looking changed nothing: the next start is clean still, and the fences hold.
    w.gw.edit("\"300ms\"", "\"20s\"");
    w.gw.start_again();
    w.put(6).send().answered(200);
}

#[test]
fn a_long_list_comes_in_pages() {
    let w = World::new();
    for n in 0..25 {
        w.put_to(&format!("/files/{n:02}"), 5).send().answered(200);
    }
    let get = |target: &str| {
        let page = Client::connect(w.gw.admin_port).request("GET", target, &[], b"");
        serde_json::from_slice::<serde_json::Value>(&page.body).unwrap()
    };
    let (mut after, mut keys) = (String::new(), Vec::new());
    loop {
        let page = get(&format!("/api/v1/fences?limit=10{after}"));
        let fences = page["fences"].as_array().unwrap();
        keys.extend(
            fences
                .iter()
                .map(|fence| fence["key"].as_str().unwrap().to_owned()),
        );
        let Some(next) = page["next"].as_str() else {
            break;
        };
        after = format!("&after={}", next.replace('/', "%2F"));
    }
    assert_eq!(keys.len(), 25);
    assert!(keys.is_sorted());
}

#[test]
fn a_store_in_use_is_named() {
    let w = World::new();
    let (code, said) = {
        w.gw.edit(
            &format!("127.0.0.1:{}", w.gw.port),
            &format!("127.0.0.1:{}", free_port()),
        );
        w.gw.edit(
            &format!("127.0.0.1:{}", w.gw.admin_port),
            &format!("127.0.0.1:{}", free_port()),
        );
        w.gw.command(&["serve"])
    };
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("in use") && said.contains("data"), "{said}");
    w.put(5).send().answered(200);
}

#[test]
fn an_upstream_that_is_down_does_not_stop_the_start() {
    let mut w = World::new();
    w.up.stop();
    assert!(w.gw.stop().success());
    w.gw.start_again();
    w.put(5).send().refused(502, "unsent");
    w.up.start_again();
    w.put(5).send().answered(200);
}

#[test]
fn usage_and_configuration_errors_end_with_2() {
    let w = World::new();
    for args in [
        &["nonsense"][..],
        &["fences"],
        &["check", "--explain", "PUT"],
        &["serve", "--nonsense"],
    ] {
        let (code, said) = w.gw.command(args);
        assert_eq!(code, Some(2), "{args:?}: {said}");
    }
    w.gw.edit("[[routes]]", "[[roots]]");
    let (code, said) = w.gw.command(&["check"]);
    assert!(code == Some(2) && said.contains("roots"), "{said}");
}

#[test]
fn explain_names_what_becomes_of_a_request() {
    let more =
        "[[routes]]\nname = \"rest\"\npath = \"/{*rest}\"\nupstream = \"files\"\nmode = \"off\"\n";
    let w = World::with(|c| c.more(more));
    for (request, parts) in [
        (
            "PUT /files/a",
            &["files", "default:files/a", "write", "drained", "enforce"][..],
        ),
        ("GET /files/a", &["files", "read"]),
        ("PUT /files/%61/", &["default:files/a"]),
        ("PUT /x", &["rest", "off", "none"]),
        ("PUT /files/./a", &["400", "malformed"]),
        ("DELETE /files/a/", &["files"]),
        ("CONNECT a:80", &["405"]),
    ] {
        let (code, said) = w.gw.command(&["check", "--explain", request]);
        assert_eq!(code, Some(0), "{request}: {said}");
        for part in parts {
            assert!(said.contains(part), "{request}: no {part} in {said}");
        }
    }
}

#[test]
fn a_stopping_gateway_ends_what_is_under_way() {
    let mut w = World::new();
    w.up.script("t5", crate::upstream::Script::hold());
    let held = w.put(5).start();
    w.up.whole_of("t5");
    let up = &w.up;
    let gw = &mut w.gw;
    std::thread::scope(|scope| {
        let stop = scope.spawn(|| gw.stop());
        crate::world::pause(300);
        assert!(!stop.is_finished(), "it did not wait for the write");
        up.release("t5");
        assert!(stop.join().unwrap().success());
    });
    held.result().answered(200);
    w.gw.start_again();
    w.put(6).send().answered(200);
}
