//! Whole config files through [`load`]: one test a rule.

use super::*;
use crate::config::{Accept, Missing, Mode, SettledAt, Strength, TokenPlace};
use crate::fence::Format;
use http::Method;
use proptest::prelude::*;

const HEAD: &str = "[store]\npath = \"data\"\n[upstreams.files]\nurl = \"http://127.0.0.1:9000\"\nsettle = \"1s\"\n";
const ROUTE: &str = "[[routes]]\nname = \"files\"\npath = \"/files/{*key}\"\nupstream = \"files\"\nresource = \"files/{key}\"\n";

fn loaded(text: &str) -> Loaded {
    load(text).unwrap_or_else(|faults| panic!("{faults:#?}\n{text}"))
}

fn faults(text: &str) -> Vec<Note> {
    load(text)
        .map(|loaded| panic!("no fault: {loaded:#?}\n{text}"))
        .unwrap_err()
}

/// The only fault of the usual config with `route` in its route.
fn fault_of(route: &str) -> String {
    let found = faults(&format!("{HEAD}{ROUTE}{route}\n"));
    assert_eq!(found.len(), 1, "{found:#?}");
    found[0].to_string()
}

fn lines(notes: &[Note]) -> String {
    notes
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

fn warnings(text: &str) -> String {
    lines(&loaded(text).warnings)
}

fn route(name: &str, path: &str, rest: &str) -> String {
    format!("[[routes]]\nname = \"{name}\"\npath = \"{path}\"\nupstream = \"files\"\n{rest}\n")
}

#[test]
fn the_sample_loads_and_every_key_in_it() {
    let sample = include_str!("../../../config/fencegate.toml");
    let plain = loaded(sample);
    assert_eq!(plain.warnings, []);
    assert!(plain.settings.routes[0].raise_on_read);
    // Each key that is commented out is right as well, and so is the route at the end.
    let (body, last) = sample.split_once("# [[routes]]\n").unwrap();
    let is_key = |line: &str| {
        let key = line
            .strip_prefix("# ")
            .and_then(|rest| rest.split_once(" = "));
        key.is_some_and(|(key, _)| !key.contains(' '))
    };
    let keys: Vec<&str> = body.lines().filter(|line| is_key(line)).collect();
    assert!(keys.len() >= 10, "{keys:?}");
    for key in keys {
        let mut with = body.replace(key, &key[2..]);
        if key.starts_with("# tls = { ca") {
            with = with.replace("http://", "https://"); // what it is for
        }
        let of_stores = [
            "# sign",
            "# client_keys",
            "# virtual_hosts",
            "# empty_segments",
        ];
        if of_stores.iter().any(|begin| key.starts_with(begin)) {
            continue; // `stores.rs` has their tests: nothing else here is for an object store
        }
        if key.starts_with("# guard_") {
            with = with.replace("# guard = ", "guard = "); // what it is for
            with = with.replace("# conditions = ", "conditions = ");
        }
        if key.starts_with("# allow") {
            with = with.replace("# tls = { cert", "tls = { cert"); // or nobody shows a name
        }
        loaded(&with);
    }
    let with_last = loaded(&format!("{body}[[routes]]\n{}", last.replace("# ", "")));
    assert_eq!(with_last.settings.routes.len(), 2);
}

#[test]
fn defaults_are_those_of_the_interface() {
    let Loaded { settings, warnings } = loaded(&format!("{HEAD}{ROUTE}"));
    assert_eq!(warnings, []);
    assert_eq!(settings.server.listen, ["127.0.0.1:8080".parse().unwrap()]);
    assert!(settings.server.workers >= 1);
    assert_eq!(settings.server.max_header_bytes, 65536);
    assert_eq!(settings.server.max_headers, 100);
    assert_eq!(settings.server.problem_base, "urn:fencegate:problem:");
    assert_eq!(settings.admin.listen, "127.0.0.1:9901".parse().unwrap());
    assert_eq!(settings.store.cache, 256 << 20);
    let upstream = &settings.upstreams[0];
    assert_eq!(upstream.authority, "127.0.0.1:9000");
    assert_eq!(upstream.min_body_rate, None);
    assert_eq!(upstream.unsettled_status, [202, 408, 502, 503, 504]);
    assert_eq!(upstream.settle_incomplete, Some(Duration::from_secs(1)));
    assert_eq!(settings.largest_settle(), Duration::from_secs(1));
    let route = &settings.routes[0];
    assert_eq!(
        (route.mode, route.accept, route.missing),
        (Mode::Enforce, Accept::SameOrNewer, Missing::Reject)
    );
    assert_eq!(
        (route.preempt, route.settled_at, route.format),
        (true, SettledAt::ResponseHead, Format::U64)
    );
    assert_eq!(route.drain_timeout, Duration::from_secs(36));
    assert_eq!(
        route.token,
        TokenPlace::Header(vec!["fencing-token".parse().unwrap()])
    );
    assert_eq!(route.strength(false), Strength::Drained);
    assert!(!route.raise_on_read && !route.allow_collections && !route.disclose_fence);
}

#[test]
fn preempt_is_off_where_each_write_needs_a_newer_token() {
    assert!(
        !loaded(&format!("{HEAD}{ROUTE}accept = \"newer\""))
            .settings
            .routes[0]
            .preempt
    );
    let both = format!("{HEAD}{ROUTE}accept = \"newer\"\npreempt = true");
    assert!(loaded(&both).settings.routes[0].preempt);
}

#[test]
fn an_unknown_key_is_named_with_its_line() {
    let found = fault_of("drain_timeoutt = \"1s\"");
    assert!(
        found.starts_with("11: routes.files.drain_timeoutt: ") && found.contains("drain_timeout?"),
        "{found}"
    );
    assert!(
        faults(&format!("{HEAD}{ROUTE}[sever]\n"))[0]
            .what
            .contains("server")
    );
    let far = fault_of("colour = 1");
    assert!(far.contains("remove it"), "{far}");
    assert!(fault_of("token = { heder = \"X\" }").contains("header?"));
}

#[test]
fn all_faults_are_reported_together() {
    let text = "[server]\nlisten = [\"nowhere\"]\nheader_timeout = \"0s\"\nmax_header_bytes = \"1KiB\"\n[store]\nengine = \"sqlite\"\n\
        [upstreams.a]\nurl = \"ftp://x\"\nmax_connections = 0\nsettle = 5\n\
        [[routes]]\nname = \"r\"\npath = \"files\"\nupstream = \"b\"\nmode = \"on\"\nmax_waiting = \"many\"\ncache = 1\n\
        [[routes]]\nname = \"r\"\n";
    let found = faults(text);
    let all = lines(&found);
    for part in [
        "2: server.listen[0]: ",
        "3: server.header_timeout: ",
        "4: server.max_header_bytes: ",
        "5: store.path: is missing",
        "6: store.engine: ",
        "8: upstreams.a.url: ",
        "9: upstreams.a.max_connections: ",
        "10: upstreams.a.settle: ",
        "13: routes.r.path: ",
        "14: routes.r.upstream: ",
        "15: routes.r.mode: ",
        "16: routes.r.max_waiting: ",
        "17: routes.r.cache: ",
        "19: routes.r.name: ",
        "18: routes.r.path: is missing",
        "18: routes.r.resource: is missing",
    ] {
        assert!(all.contains(part), "{part} is not in\n{all}");
    }
    assert!(found.is_sorted_by_key(|note| note.line));
}

#[test]
fn a_syntax_error_has_its_line() {
    let found = faults("[server]\nworkers = 1\nlisten = [\n[store]\npath = =\n");
    assert!(
        found
            .iter()
            .any(|note| note.line >= 3 && note.what.contains("TOML")),
        "{found:?}"
    );
    assert_eq!(faults("a = 1\na = 2\n")[0].line, 2);
    assert_eq!(found[0].in_file("x.toml").split(':').next(), Some("x.toml"));
}

#[test]
fn wrong_values_say_what_to_write() {
    for (line, part) in [
        ("drain_timeout = 5", "\"30s\""),
        ("drain_timeout = \"5\"", "\"30s\""),
        ("drain_timeout = \"0s\"", "is 0"),
        ("drain_timeout = \"99999d\"", "too long"),
        ("preempt = \"yes\"", "true or false"),
        ("max_waiting = -1", "out of range"),
        ("max_waiting = 1.5", "whole number"),
        ("accept = \"newest\"", "\"newer\""),
        ("namespace = \"\"", "1 to 255"),
        ("namespace = \"a\\nb\"", "control"),
        ("methods = [\"put\"]", "capitals"),
        ("methods = []", "empty"),
        ("methods = [\"CONNECT\"]", "never served"),
        ("methods = \"PUT\"", "list"),
        ("host = \"a:80\"", "port"),
        ("host = \"a.\"", "host"),
        ("strip_prefix = \"/fil\"", "whole segments"),
        ("collections = true", "string"),
        ("raise = \"nobody\"", "\"anyone\""),
        ("max_advance = 0", "out of range"),
        ("token = \"X\"", "table"),
        (
            "token = { header = \"X\", query = \"y\" }",
            "more than one place",
        ),
        ("token = { path_prefix = false }", "remove"),
        ("token = { query = \"a b\" }", "letters"),
        ("token = { query = \"a\", aliases = [\"X\"] }", "header"),
        ("token = { header = \"Host\" }", "another meaning"),
        ("token = { header = \"A\", aliases = [\"a\"] }", "twice"),
        ("token = { header = \"a b\" }", "no header name"),
        ("reads = [\"POST\"]\nwrites = [\"POST\"]", "once"),
        ("replay = true", "not supported in this version"),
        ("guard = \"tag\"", "etag"),
        ("issuer = \"x\"", "not supported"),
        ("guard_required = true", "is for a route with a guard"),
        ("guard_retry = \"1KiB\"", "is for a route with a guard"),
    ] {
        let found = fault_of(line);
        assert!(found.contains(part), "{line}: {found}");
    }
    let long = fault_of(&format!("namespace = \"{}\"", "n".repeat(256)));
    assert!(long.contains("255"), "{long}");
}

#[test]
fn a_template_uses_captures_of_the_path() {
    let text = format!("{HEAD}{}", route("r", "/a/{id}", "resource = \"a/{key}\""));
    assert!(faults(&text)[0].what.contains("{id}"));
}

#[test]
fn an_upstream_is_a_host_and_a_port() {
    let with = |url: &str| format!("{}{ROUTE}", HEAD.replace("http://127.0.0.1:9000", url));
    for (url, authority) in [
        ("http://a", "a:80"),
        ("http://a:9000/", "a:9000"),
        ("http://[::1]", "[::1]:80"),
        ("http://[::1]:1", "[::1]:1"),
        ("https://a", "a:443"),
        ("https://[::1]", "[::1]:443"),
    ] {
        assert_eq!(
            loaded(&with(url)).settings.upstreams[0].authority,
            authority
        );
    }
    for url in [
        "ftp://a",
        "a:80",
        "http://a/x",
        "http://a?x",
        "http://a#x",
        "http://u@a",
        "http://a:0",
        "http://a:99999",
        "http://a:",
        "/x",
        "http://",
    ] {
        assert!(load(&with(url)).is_err(), "{url}");
    }
}

#[test]
fn an_encrypted_upstream_has_a_name_that_a_certificate_can_have() {
    for host in ["minio.1", "a-", "10.1"] {
        let url = format!("https://{host}:9000");
        let text = format!("{}{ROUTE}", HEAD.replace("http://127.0.0.1:9000", &url));
        let said = lines(&faults(&text));
        assert!(said.contains("upstreams.files.url: "), "{said}");
        let named = format!("{url}\"\ntls = {{ server_name = \"files.internal\" }}\n#\"");
        let text = format!("{}{ROUTE}", HEAD.replace("http://127.0.0.1:9000", &named));
        assert!(loaded(&text).settings.upstreams[0].tls.is_some(), "{host}");
    }
    let clear = "http://a\"\ntls = { ca = \"ca.pem\" }\n#\"";
    let text = format!("{}{ROUTE}", HEAD.replace("http://127.0.0.1:9000", clear));
    assert!(lines(&faults(&text)).contains("upstreams.files.tls: "));
}

#[test]
fn who_may_raise_is_said_by_name_by_a_service_or_not_at_all() {
    let open = "[server]\nlisten = [\"0.0.0.0:80\"]\n";
    let tls = "tls = { cert = \"c\", key = \"k\", client_ca = \"a\" }\n";
    let with = |server: &str, route: &str| format!("{server}{HEAD}{ROUTE}{route}\n");
    assert!(lines(&faults(&with(open, ""))).contains("who may raise"));
    let asks = "auth_request = \"https://auth.internal/may?x=1\"";
    let asked = loaded(&with(open, asks)).settings;
    let auth = asked.routes[0].auth_request.as_ref().unwrap();
    assert_eq!(auth.target, "/may?x=1");
    assert_eq!(
        asked.upstreams[auth.upstream.index].authority,
        "auth.internal:443"
    );
    let shown = format!("{open}{tls}");
    let names = "allow = [\"spiffe://prod/writer\", \"job-*\"]";
    assert!(
        loaded(&with(&shown, names)).settings.routes[0]
            .allow
            .is_some()
    );
    assert!(lines(&faults(&with(open, names))).contains("routes.files.allow: needs server.tls"));
    for wrong in [
        "allow = []",
        "allow = [\"\"]",
        "allow = [\"a*b\"]",
        "allow = [\"a**\"]",
        "allow = [\"a b\"]",
    ] {
        assert!(load(&with(&shown, wrong)).is_err(), "{wrong}");
    }
    for wrong in ["ftp://a/", "http://", "auth", "http://u@a/x"] {
        let route = format!("auth_request = \"{wrong}\"");
        assert!(load(&with(open, &route)).is_err(), "{wrong}");
    }
}

#[test]
fn where_case_does_not_matter_routes_are_in_small_letters() {
    let text = format!("[server]\nfold_case = true\n{HEAD}{ROUTE}");
    assert!(loaded(&text).settings.server.fold_case);
    let named = text.replace("{*key}", "{*Key}").replace("{key}", "{Key}");
    loaded(&named);
    let capitals = text.replace("/files/{", "/Files/{");
    assert!(lines(&faults(&capitals)).contains("routes.files.path: "));
}

#[test]
fn one_address_is_listened_on_once() {
    for listen in [
        "[\"127.0.0.1:1\", \"127.0.0.1:1\"]",
        "[\"127.0.0.1:9901\"]",
        "[]",
    ] {
        let found = faults(&format!("{HEAD}{ROUTE}[server]\nlisten = {listen}\n"));
        assert_eq!(found.len(), 1, "{found:?}");
    }
    let found = faults(&format!(
        "{HEAD}{ROUTE}raise = \"anyone\"\n[server]\nlisten = [\"0.0.0.0:5\"]\n[admin]\nlisten = \"127.0.0.1:5\"\n"
    ));
    assert!(found[0].key == "admin.listen", "{found:?}");
    assert_eq!(
        faults(&format!(
            "{HEAD}{ROUTE}[admin]\nlisten = \"127.0.0.1:8080\"\n"
        ))
        .len(),
        1
    );
}

#[test]
fn poison_beyond_loopback_is_refused() {
    let open = "[server]\nlisten = [\"0.0.0.0:8080\"]\n";
    let found = faults(&format!("{HEAD}{ROUTE}{open}"));
    assert_eq!((found.len(), found[0].line), (1, 6), "{found:?}");
    assert!(found[0].key == "routes.files" && found[0].what.contains("raise = \"anyone\""));
    assert_eq!(
        faults(&format!("{HEAD}{ROUTE}mode = \"observe\"\n{open}")).len(),
        1
    );
    loaded(&format!("{HEAD}{ROUTE}raise = \"anyone\"\n{open}"));
    loaded(&format!("{HEAD}{ROUTE}mode = \"off\"\n{open}"));
}

#[test]
fn admin_beyond_loopback_is_a_warning() {
    let text = format!("{HEAD}{ROUTE}[admin]\nlisten = \"0.0.0.0:9901\"\n");
    assert!(warnings(&text).contains("loopback"));
}

#[test]
fn one_path_one_resource() {
    let put = "methods = [\"PUT\"]\nresource = \"files/{key}\"";
    let rest = |text: &str| format!("{HEAD}{}{text}", route("put", "/files/{*key}", put));
    for other in [
        route("rest", "/files/{*key}", "resource = \"other/{key}\""),
        route(
            "rest",
            "/files/{*key}",
            "resource = \"files/{key}\"\nnamespace = \"b\"",
        ),
        route(
            "rest",
            "/files/{*key}",
            "resource = \"files/{key}\"\nmode = \"observe\"",
        ),
        route(
            "rest",
            "/files/{*key}",
            "resource = \"files/{key}\"\ntoken = { query = \"t\" }",
        ),
        route(
            "rest",
            "/files/{*key}",
            "resource = \"files/{key}\"\ntoken = { path_prefix = true }",
        ),
        route(
            "rest",
            "/files/{*key}",
            "resource = \"files/{key}\"\ntoken = { format = \"hex\" }",
        ),
        route("rest", "/{*key}", "mode = \"off\""),
        route(
            "rest",
            "/files/{a}",
            "resource = \"file/{a}\"\nmethods = [\"DELETE\"]",
        ),
        route("rest", "/files/{a}/{b}", "resource = \"files/{b}/{a}\""),
        route(
            "rest",
            "/files/{*key}",
            "resource = \"files/{key}\"\nhost = \"a\"\nmode = \"off\"",
        ),
        route(
            "rest",
            "/files/{*key}",
            "resource = \"x\"\nmethods = [\"GET\"]\nwrites = [\"GET\"]",
        ),
        route(
            "rest",
            "/files/{*key}",
            "resource = \"x\"\nmethods = [\"GET\"]\nraise_on_read = true",
        ),
    ] {
        let found = faults(&rest(&other));
        assert!(
            found.len() == 1 && found[0].line == 12 && found[0].what.contains("one path"),
            "{found:#?}\n{other}"
        );
    }
    for other in [
        route("rest", "/files/{*name}", "resource = \"files/{name}\""),
        route("rest", "/files/{a}/{b}", "resource = \"files/{a}/{b}\""),
        route("rest", "/files/readme", "resource = \"files/readme\""),
        route(
            "rest",
            "/files/{*key}",
            "mode = \"off\"\nmethods = [\"GET\", \"HEAD\"]",
        ),
        route(
            "rest",
            "/files/{*key}",
            "resource = \"x\"\nmethods = [\"PUT\"]",
        ),
        route("rest", "/other/{*key}", "resource = \"x\""),
    ] {
        loaded(&rest(&other));
    }
}

#[test]
fn an_earlier_route_may_take_a_path_whole() {
    loaded(&format!(
        "{HEAD}{ROUTE}{}",
        route("rest", "/{*rest}", "mode = \"off\"")
    ));
}

#[test]
fn one_object_one_resource_behind_a_stripped_prefix() {
    let alias = route(
        "alias",
        "/f/{*key}",
        "resource = \"f/{key}\"\nstrip_prefix = \"/f\"",
    );
    let found = faults(&format!("{HEAD}{ROUTE}{alias}"));
    assert!(
        found.len() == 1 && found[0].what.contains("one object"),
        "{found:#?}"
    );
    let open = route("open", "/{*rest}", "mode = \"off\"");
    let found = faults(&format!("{HEAD}{ROUTE}strip_prefix = \"/files\"\n{open}"));
    assert!(found[0].what.contains("one object"), "{found:#?}");
    let same = route(
        "alias",
        "/f/files/{*key}",
        "resource = \"files/{key}\"\nstrip_prefix = \"/f\"",
    );
    loaded(&format!("{HEAD}{ROUTE}{same}"));
}

#[test]
fn another_host_on_one_upstream_is_a_warning() {
    let a = format!("{HEAD}{ROUTE}host = \"a\"\n");
    let other = route("b", "/files/{*key}", "host = \"b\"\nresource = \"b/{key}\"");
    assert!(warnings(&format!("{a}{other}")).contains("by the host"));
    let hidden = a.replace("settle", "host_header = \"upstream\"\nsettle");
    let found = faults(&format!("{hidden}{other}"));
    assert!(found[0].what.contains("hides the host"), "{found:#?}");
    let first = format!("{HEAD}{ROUTE}{other}");
    assert!(!warnings(&first).contains("by the host"));
    let same = route(
        "b",
        "/files/{*key}",
        "host = \"b\"\nresource = \"files/{key}\"",
    );
    assert_eq!(warnings(&format!("{a}{same}")), "");
}

#[test]
fn tokens_of_one_namespace_compare() {
    let pair = route(
        "b",
        "/b/{*key}",
        "resource = \"b/{key}\"\ntoken = { format = \"pair\" }",
    );
    assert!(
        faults(&format!("{HEAD}{ROUTE}{pair}"))[0]
            .what
            .contains("do not compare")
    );
    loaded(&format!("{HEAD}{ROUTE}{pair}namespace = \"b\"\n"));
}

#[test]
fn warns_of_what_is_unsafe() {
    for (resource, part) in [
        (
            "t/{header:X-Tenant}/{key}",
            "{header:x-tenant} is chosen by the client",
        ),
        ("t/{query:id}", "{query:id} is chosen"),
        ("{host}/{key}", "{host} is chosen"),
        ("t/{header:X-Tenant}/{key}", "run into each other"),
        ("{host}{key}", "run into each other"),
    ] {
        let text = format!("{HEAD}{ROUTE}").replace("files/{key}\"", &format!("{resource}\""));
        let found = warnings(&text);
        assert!(found.contains(part), "{resource}: {found}");
    }
    assert!(warnings(&format!("{HEAD}{ROUTE}missing = \"allow\"\n")).contains("promises nothing"));
    assert!(warnings(&format!("{HEAD}{ROUTE}drain_timeout = \"30s\"\n")).contains("36s"));
    let no_settle = HEAD.replace("settle = \"1s\"\n", "");
    assert!(warnings(&format!("{no_settle}{ROUTE}")).contains("best-effort"));
    let shadowed = route("late", "/files/a/{b}", "resource = \"x/{b}\"");
    assert!(warnings(&format!("{HEAD}{ROUTE}{shadowed}")).contains("never reached"));
}

#[test]
fn methods_can_be_used_otherwise() {
    let text = format!("{HEAD}{ROUTE}reads = [\"POST\"]\nwrites = [\"GET\"]\n");
    let loaded = loaded(&text);
    let route = &loaded.settings.routes[0];
    assert!(
        route.is_write(&Method::GET)
            && !route.is_write(&Method::POST)
            && !route.is_write(&Method::HEAD)
    );
    assert!(
        route.is_write(&Method::from_bytes(b"FOO").unwrap())
            && route.is_write(&Method::from_bytes(b"get").unwrap())
    );
}

#[test]
fn a_route_that_is_off_needs_no_resource() {
    let text = format!("{HEAD}{}", route("rest", "/{*rest}", "mode = \"off\""));
    assert!(loaded(&text).settings.routes[0].path.matches("/").is_some());
    assert!(
        faults(&text.replace("off", "enforce"))[0]
            .key
            .contains("resource")
    );
}

#[test]
fn nothing_at_all_names_what_is_missing() {
    let all = lines(&faults(""));
    for key in ["store.path", "upstreams", "routes"] {
        assert!(all.contains(key), "{all}");
    }
}

#[test]
fn wrong_tables_do_not_panic() {
    for text in [
        "server = 1",
        "routes = 1",
        "routes = [1]",
        "[routes]",
        "upstreams = []",
        "[upstreams]\na = 1",
        "store = \"x\"",
    ] {
        assert!(!faults(text).is_empty());
    }
}

proptest! {
    #[test]
    fn no_text_panics(text: String, at in 0usize..300) {
        let _ = load(&text);
        let mut mixed = format!("{HEAD}{ROUTE}");
        let at = (0..=at.min(mixed.len())).rev().find(|&i| mixed.is_char_boundary(i)).unwrap_or(0);
        mixed.insert_str(at, &text);
        let _ = load(&mixed);
    }
}

#[test]
fn traces_have_a_collector_and_a_share() {
    let with = |keys: &str| format!("opentelemetry = {{ {keys} }}\n{HEAD}{ROUTE}");
    let found = loaded(&with(
        "endpoint = \"https://otel.example/in/\", sample = 0.25",
    ));
    let traces = found.settings.opentelemetry.unwrap();
    assert_eq!(
        (traces.authority.as_str(), &*traces.path),
        ("otel.example:443", "/in")
    );
    assert!(traces.tls.is_some() && (traces.share - 0.25).abs() < 1e-9);
    assert_eq!((&*traces.service, traces.queue), ("fencegate", 8192));
    assert!(
        loaded(&format!("{HEAD}{ROUTE}"))
            .settings
            .opentelemetry
            .is_none()
    );
    for (keys, fault) in [
        ("sample = 1", "opentelemetry.endpoint: is missing"),
        ("endpoint = \"otel:4318\"", "opentelemetry.endpoint"),
        (
            "endpoint = \"http://otel:4318/?a\"",
            "opentelemetry.endpoint",
        ),
        ("endpoint = \"http://otel:4318/v1/traces\"", "is appended"),
        (
            "endpoint = \"http://otel:4318\", sample = 1.5",
            "out of range",
        ),
        (
            "endpoint = \"http://otel:4318\", sample = nan",
            "out of range",
        ),
        (
            "endpoint = \"http://otel:4318\", sample = \"all\"",
            "0 to 1",
        ),
        (
            "endpoint = \"http://otel:4318\", ca = \"a.pem\"",
            "https://",
        ),
        (
            "endpoint = \"http://otel:4318\", header = \"a\"",
            "opentelemetry.header",
        ),
    ] {
        let found = lines(&faults(&with(keys)));
        assert!(found.contains(fault), "{keys}: {found}");
    }
}

#[test]
fn a_route_to_an_object_store_is_of_its_kind() {
    let store = HEAD.replace("url", "kind = \"s3\"\nurl");
    let objects = "[[routes]]\nname = \"o\"\nhost = \"s3.example\"\npath = \"/{bucket}/{*key}\"\nupstream = \"files\"\nresource = \"{bucket}/{key}\"\n";
    let found = loaded(&format!("{store}{objects}"));
    let path = &found.settings.routes[0].path;
    assert!(path.matches("/bucket").is_some() && path.matches("/bucket/a//b/").is_some());
    let host = loaded(&format!(
        "{}{objects}",
        store.replace("url", "host_header = \"upstream\"\nurl")
    ));
    assert!(lines(&host.warnings).contains("clients sign"));
    for (key, fault) in [
        ("strip_prefix = \"/a\"", "strip_prefix"),
        ("reads = [\"POST\"]", "reads"),
        ("writes = [\"GET\"]", "writes"),
        ("websocket = true", "websocket"),
        ("collections = \"allow\"", "collections"),
        ("token = { query = \"fence\" }", "token"),
        ("token = { path_prefix = true }", "token"),
    ] {
        let found = lines(&faults(&format!("{store}{objects}{key}\n")));
        assert!(
            found.contains(&format!("routes.o.{fault}")),
            "{key}: {found}"
        );
    }
    let all = objects
        .replace("/{bucket}/{*key}", "/{*all}")
        .replace("{bucket}/{key}", "{all}");
    assert!(lines(&faults(&format!("{store}{all}"))).contains("routes.o.path"));
    // Clients name one host, or it is rewritten.
    let nameless = objects.replace("host = \"s3.example\"\n", "");
    assert!(lines(&faults(&format!("{store}{nameless}"))).contains("routes.o.host"));
    let rest = "[[routes]]\nname = \"r\"\nhost = \"b.s3.example\"\npath = \"/{*all}\"\nupstream = \"files\"\nmode = \"off\"\n";
    assert!(lines(&faults(&format!("{store}{objects}{rest}"))).contains("routes.r.host"));
    loaded(&format!(
        "{store}{objects}{}",
        rest.replace("b.s3.example", "s3.example")
    ));
    loaded(&format!("{store}{rest}")); // nothing is fenced
    let rewritten = store.replace("url", "host_header = \"upstream\"\nurl");
    loaded(&format!("{rewritten}{nameless}"));
    let folded = format!("[server]\nfold_case = true\n{store}{objects}");
    assert!(lines(&faults(&folded)).contains("server.fold_case"));
}

#[test]
fn two_upstreams_that_are_one_server_are_warned_of() {
    let twin = "[upstreams.twin]\nurl = \"http://127.0.0.1:9000\"\nsettle = \"1s\"\n";
    let through = "[[routes]]\nname = \"other\"\npath = \"/other/{*key}\"\nupstream = \"twin\"\nmode = \"off\"\n";
    let found = warnings(&format!("{HEAD}{twin}{ROUTE}{through}"));
    assert!(
        found.contains("upstreams.twin.url: is also that of upstream files"),
        "{found}"
    );
    // Nobody goes there.
    assert!(!warnings(&format!("{HEAD}{twin}{ROUTE}")).contains("is also that of"));
}

#[test]
fn a_settle_that_no_stop_waits_for_is_warned_of() {
    let long = format!(
        "{}{ROUTE}",
        HEAD.replace("settle = \"1s\"", "settle = \"10m\"")
    );
    assert!(warnings(&long).contains("longer than server.shutdown_timeout (30s)"));
    let enough = format!("[server]\nshutdown_timeout = \"11m\"\n{long}");
    assert!(!warnings(&enough).contains("shutdown_timeout"));
}

#[test]
fn two_routes_with_one_resource_of_which_one_asks_are_warned_of() {
    let asks = "resource = \"files/{key}\"\nmethods = [\"PATCH\"]\nauth_request = \"http://127.0.0.1:9009/\"";
    let found = warnings(&format!(
        "{HEAD}{}{ROUTE}",
        route("asks", "/files/{*key}", asks)
    ));
    assert!(found.contains("only asks has auth_request"), "{found}");
    let other = asks.replace("files/{key}", "others/{key}");
    let apart = route("asks", "/others/{*key}", &other);
    assert!(!warnings(&format!("{HEAD}{apart}{ROUTE}")).contains("only asks"));
}

#[test]
fn who_signs_knows_its_clients_and_a_bucket_in_the_host_needs_one() {
    let with = |keys: &str, route: &str| {
        let store = HEAD.replace("url", &format!("kind = \"s3\"\n{keys}\nurl"));
        format!(
            "{store}[[routes]]\nname = \"o\"\npath = \"/{{bucket}}/{{*key}}\"\nupstream = \"files\"\n{route}\n"
        )
    };
    let resource = "resource = \"{bucket}/{key}\"";
    let hosted = format!("host = \"s3.example\"\n{resource}");
    let signs = loaded(&with("sign = true\nclient_keys = \"k\"", resource));
    let upstream = &signs.settings.upstreams[0];
    assert!(upstream.sign && upstream.rewrite_host && signs.warnings.is_empty());
    let keep = "sign = true\nclient_keys = \"k\"\nhost_header = \"keep\"";
    assert!(lines(&faults(&with(keep, resource))).contains("routes.o.host"));
    let open = with("sign = true", resource);
    assert!(warnings(&open).contains("gateway's own credentials"));
    let beyond = open.replace("[store]", "[server]\nlisten = [\"0.0.0.0:1\"]\n[store]");
    assert!(lines(&faults(&beyond)).contains("upstreams.files.sign"));
    let keys = with("client_keys = \"k\"", &hosted);
    assert!(lines(&faults(&keys)).contains("upstreams.files.client_keys"));
    let allow = format!("{resource}\nallow = [\"a\"]");
    loaded(&with("sign = true\nclient_keys = \"k\"", &allow));
    loaded(&with("virtual_hosts = true", &hosted));
    for (keys, route, fault) in [
        ("virtual_hosts = true", resource, "routes.o.host"),
        (
            "virtual_hosts = true\nhost_header = \"upstream\"",
            &*hosted,
            "upstreams.files.host_header",
        ),
        (
            "virtual_hosts = true",
            "host = \"s3.example\"\nresource = \"{host}/{bucket}/{key}\"",
            "routes.o.resource",
        ),
    ] {
        let found = lines(&faults(&with(keys, route)));
        assert!(found.contains(fault), "{keys}: {found}");
    }
    let plain = format!("{}{ROUTE}", HEAD.replace("url", "sign = true\nurl"));
    assert!(lines(&faults(&plain)).contains("is for an object store"));
    let plain = plain.replace("sign = true", "empty_segments = \"refuse\"");
    assert!(lines(&faults(&plain)).contains("is for an object store"));
    loaded(&with("empty_segments = \"refuse\"", &hosted));
    let slow = format!("{allow}\nguard = \"etag\"\ndrain_timeout = \"15m\"");
    let slow = with("sign = true\nclient_keys = \"k\"", &slow);
    assert!(warnings(&slow).contains("as long as a signature is good for"));
    assert!(!warnings(&slow.replace("15m", "14m")).contains("signature"));
}

/// A configuration with these routes before an upstream that says this of conditions.
fn guarded(of_upstream: &str, routes: &[String]) -> String {
    let head = HEAD.replace("settle = ", &format!("{of_upstream}\nsettle = "));
    assert!(head.contains(of_upstream));
    format!("{head}{}", routes.concat())
}

const TRUSTED: &str = "conditions = \"trusted\"";
const ETAG: &str = "resource = \"files/{key}\"\nguard = \"etag\"";

#[test]
fn a_guard_is_as_strong_as_what_its_upstream_and_the_routes_beside_it_let() {
    let own = || route("own", "/files/{*key}", ETAG);
    let strength = |text: &str| {
        let loaded = loaded(text);
        let route = &loaded.settings.routes[loaded.settings.routes.len() - 1];
        (route.strength(true), lines(&loaded.warnings))
    };
    let (strong, said) = strength(&guarded(TRUSTED, &[own()]));
    assert_eq!((strong, said.as_str()), (Strength::Guarded, ""));
    let (_, said) = strength(&guarded("", &[own()]));
    assert!(said.contains("is not known to be honoured"), "{said}");
    let many = route(
        "own",
        "/files/{*key}",
        "resource = \"files\"\nguard = \"etag\"",
    );
    let (weak, said) = strength(&guarded(TRUSTED, &[many]));
    assert!(
        weak == Strength::Drained && said.contains("stands for many objects"),
        "{said}"
    );
    let plain = "resource = \"files/{key}\"\nmethods = [\"DELETE\"]";
    let before = route("prune", "/files/{*key}", plain);
    let (weak, said) = strength(&guarded(TRUSTED, &[before, own()]));
    assert!(
        weak == Strength::Drained && said.contains("route prune"),
        "{said}"
    );
    let reads = route(
        "reads",
        "/files/{*key}",
        "resource = \"files/{key}\"\nmethods = [\"GET\"]",
    );
    let elsewhere = route("logs", "/logs/{*key}", "resource = \"logs/{key}\"");
    let (strong, said) = strength(&guarded(TRUSTED, &[reads, elsewhere, own()]));
    assert_eq!((strong, said.as_str()), (Strength::Guarded, ""));
    // What it leaves to others by its methods.
    let puts = route(
        "own",
        "/files/{*key}",
        &format!("{ETAG}\nmethods = [\"PUT\"]"),
    );
    let rest = route("rest", "/files/{*key}", "resource = \"files/{key}\"");
    let loaded = loaded(&guarded(TRUSTED, &[puts, rest]));
    assert_eq!(
        loaded.settings.routes[0].guard_hole.as_deref(),
        Some("rest")
    );
    // What stands between takes all that they have in common.
    let puts = route(
        "own",
        "/files/{*key}",
        &format!("{ETAG}\nmethods = [\"PUT\"]"),
    );
    let others = route("others", "/files/{*key}", ETAG);
    let rest = route("rest", "/{*rest}", "resource = \"{rest}\"");
    let (strong, said) =
        strength_of_first(&guarded(TRUSTED, &[puts.clone(), others, rest.clone()]));
    assert_eq!((strong, said.as_str()), (Strength::Guarded, ""));
    let some = route(
        "some",
        "/files/a/{*key}",
        &ETAG.replace("files/", "files/a/"),
    );
    let (weak, said) = strength_of_first(&guarded(TRUSTED, &[puts, some, rest]));
    assert!(
        weak == Strength::Drained && said.contains("route rest"),
        "{said}"
    );
}

#[test]
fn a_route_that_goes_round_a_guard_is_found_behind_what_takes_a_part() {
    let own = |more: &str| {
        let keys = format!("{ETAG}\nmethods = [\"PUT\"]\n{more}");
        route("own", "/files/{*key}", &keys)
    };
    let plain = "resource = \"files/{key}\"";
    let rest = |keys: &str| route("rest", "/files/{*key}", keys);
    let part = |name: &str, path: &str, key: &str| route(name, path, &ETAG.replace("{key}", key));
    for (own, between, rest) in [
        // By depth: what is deeper is left.
        (
            own(""),
            part("one", "/files/{a}", "{a}") + &part("two", "/files/{a}/{b}", "{a}/{b}"),
            rest(plain),
        ),
        // By the beginning of a name.
        (
            own(""),
            part("users", "/files/~{a}/{*b}", "~{a}/{b}"),
            rest(plain),
        ),
        // It has a guard, but not for all that it forwards.
        (
            own(""),
            String::new(),
            rest(&format!("{ETAG}\nmissing = \"allow\"")),
        ),
        (own("guard_required = true"), String::new(), rest(ETAG)),
    ] {
        let text = guarded(TRUSTED, &[own, between, rest]);
        let found = match crate::config::load(&text) {
            Ok(loaded) => {
                let own = &loaded.settings.routes[0];
                assert_eq!(own.strength(true), Strength::Drained, "{text}");
                lines(&loaded.warnings)
            }
            Err(faults) => lines(&faults),
        };
        assert!(
            found.contains("route rest too, without this guard"),
            "{text}{found}"
        );
    }
    let required = format!("{ETAG}\nguard_required = true");
    let same = guarded(TRUSTED, &[own("guard_required = true"), rest(&required)]);
    assert_eq!(strength_of_first(&same).0, Strength::Guarded);
}

fn strength_of_first(text: &str) -> (Strength, String) {
    let loaded = loaded(text);
    let strength = loaded.settings.routes[0].strength(true);
    (strength, lines(&loaded.warnings))
}

#[test]
fn a_guard_that_is_required_and_cannot_be_had_is_a_fault() {
    let required = |resource: &str| {
        let keys = format!("resource = \"{resource}\"\nguard = \"etag\"\nguard_required = true");
        route("own", "/files/{*key}", &keys)
    };
    loaded(&guarded(TRUSTED, &[required("files/{key}")]));
    loaded(&guarded(
        "probe = \"/files/probe\"",
        &[required("files/{key}")],
    ));
    for (upstream, resource) in [("", "files/{key}"), (TRUSTED, "files")] {
        let found = faults(&guarded(upstream, &[required(resource)]));
        assert_eq!(found[0].key, "routes.own.guard_required", "{found:?}");
    }
    for lax in ["mode = \"observe\"", "missing = \"allow\""] {
        let text = required("files/{key}") + lax + "\n";
        let found = faults(&guarded(TRUSTED, &[text]));
        assert_eq!(found[0].key, "routes.own.guard_required", "{found:?}");
    }
    let retry = route(
        "own",
        "/files/{*key}",
        "resource = \"files/{key}\"\nguard = \"create-only\"\nguard_retry = \"1KiB\"",
    );
    assert_eq!(
        faults(&guarded(TRUSTED, &[retry]))[0].key,
        "routes.own.guard_retry"
    );
}

#[test]
fn a_probe_has_a_path_beyond_doubt() {
    let with = |keys: &str| guarded(keys, &[route("own", "/files/{*key}", ETAG)]);
    loaded(&with("probe = \"/files/a-b_c.d/probe\""));
    for path in ["files", "/", "//a", "/a/../b", "/a b", "/a%2Fb", "/a/.b"] {
        let found = faults(&with(&format!("probe = \"{path}\"")));
        assert!(found[0].key.ends_with("probe"), "{path}: {found:?}");
    }
    let both = faults(&with(&format!("probe = \"/files/p\"\n{TRUSTED}")));
    assert!(both[0].what.contains("exclude each other"), "{both:?}");
    // A bucket alone is no object.
    assert!(!faults(&with("kind = \"s3\"\nprobe = \"/bucket\"")).is_empty());
}
