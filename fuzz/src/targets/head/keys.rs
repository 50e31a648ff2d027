//! The key that each route of `routes.toml` should give, made from what the upstream gets alone: so that
//! what is fenced is what the upstream changes.

use crate::config::Route;
use crate::models::{names, plain};
use http::HeaderMap;
use http::uri::PathAndQuery;

/// The namespace and the key of a request that reaches the upstream with this target and these headers.
pub fn expected(route: &Route, target: &PathAndQuery, headers: &HeaderMap) -> (String, Vec<u8>) {
    let file = plain::file(target.path().as_bytes()).unwrap();
    let below = |first: usize| file[first..].join(&b'/');
    let under = |name: &[u8], rest: Vec<u8>| [name, b"/", &rest].concat();
    let key = match &*route.name {
        "tenant" => under(&host(headers), below(1)),
        "files" | "notes" | "watched" | "above" | "deep" | "ws" | "some" | "rest-of-some" => {
            below(0)
        }
        "jobs" => {
            let number = file[2].strip_prefix(b"v").unwrap();
            let number = number.strip_suffix(b".log").unwrap();
            [&file[1], &b":"[..], number].concat()
        }
        "flat" => [&b"flat-"[..], &file[1]].concat(),
        "log" => [&b"log-"[..], &file[1]].concat(),
        "batch" => file[..2].join(&b'/'),
        "by-header" => under(b"h", under(&tenant(headers), below(1))),
        "by-query" => under(b"q", id(target.query().unwrap())),
        "odd" => under(b"odd", below(0)),
        "dav" | "web" => under(b"dav", below(0)),
        other => panic!("{other} makes no keys"),
    };
    (route.namespace.clone(), key)
}

fn host(headers: &HeaderMap) -> Vec<u8> {
    let host = headers["host"].to_str().unwrap().to_ascii_lowercase();
    let name = host.split(':').next().unwrap();
    name.as_bytes().to_vec()
}

/// What any server takes for the tenant's header.
fn tenant(headers: &HeaderMap) -> Vec<u8> {
    let found = names::headers(headers, &["x-tenant"]);
    let [(_, value)] = &found[..] else {
        panic!("tenants: {found:?}");
    };
    value.trim_ascii().to_vec()
}

/// What any server takes for the parameter `id`.
fn id(query: &str) -> Vec<u8> {
    let parameters = names::parameters(query);
    let like = |(name, _): &&(String, &str)| names::is_like(name, "id");
    let found: Vec<_> = parameters.iter().filter(like).collect();
    let [(_, value)] = &found[..] else {
        panic!("ids: {found:?}");
    };
    names::value(value)
}
