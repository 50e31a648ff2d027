//! The invariants that want a quieter place than a storm of crashes: a store that cannot write (I5),
//! and counters that agree with what the clients were told (I7).

use crate::call::{Call, Ended};
use crate::check::{History, Restart, check};
use crate::load::Load;
use crate::plan::Mix;
use crate::run::{Ground, fences};
use crate::support::{Client, Gateway, wait_until};
use rustix::process::{Resource, Rlimit, prlimit};
use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

/// Forbids the gateway to write to any file, or allows it again.
fn forbid_writes(gateway: &Gateway, forbid: bool) {
    let limit = Rlimit {
        current: forbid.then_some(0),
        maximum: None,
    };
    prlimit(Some(gateway.pid()), Resource::Fsize, limit).unwrap();
}

fn ready(gateway: &Gateway) -> bool {
    let answer = Client::connect(gateway.admin_port).request("GET", "/readyz", &[], b"");
    answer.status == 200
}

/// Waits until a write with that token passes; the store needs a moment to come back.
fn wait_admitted(gateway: &Gateway, path: &str, token: u64) {
    wait_until("the store to come back", || {
        gateway.put(path, token, b"x").status == 200
    });
}

#[test]
fn a_store_that_cannot_write_lets_no_raise_through() {
    let ground = Ground::new(1);
    let Ground {
        gateway, upstream, ..
    } = &ground;
    gateway.put("/files/a", 5, b"x").answered(200);
    let before = upstream.log().seen.len();
    forbid_writes(gateway, true);
    gateway.put("/files/b", 9, b"x").refused(503, "store");
    gateway.put("/files/a", 6, b"x").refused(503, "store");
    gateway.put("/files/a", 5, b"x").refused(503, "store");
    gateway.get("/files/a").answered(200);
    assert_eq!(
        upstream.log().seen.len(),
        before + 1,
        "only the read passes"
    );
    assert!(!ready(gateway), "ready without a store");
    forbid_writes(gateway, false);
    wait_admitted(gateway, "/files/b", 9);
    assert!(ready(gateway), "not ready with a store");
    gateway.put("/files/b", 8, b"x").refused(412, "stale");
    gateway.put("/files/a", 4, b"x").refused(412, "stale");
    gateway.put("/files/a", 6, b"x").answered(200);
    gateway.put("/files/a", 5, b"x").refused(412, "stale");
}

#[test]
fn a_store_that_fails_under_load_forgets_nothing() {
    let mut ground = Ground::new(1);
    let load = Load::start(ground.gateway.port, 77, 8, Mix::Answered);
    for _ in 0..5 {
        thread::sleep(Duration::from_millis(200));
        forbid_writes(&ground.gateway, true);
        thread::sleep(Duration::from_millis(150));
        forbid_writes(&ground.gateway, false);
        wait_until("/readyz", || ready(&ground.gateway));
    }
    thread::sleep(Duration::from_millis(100));
    forbid_writes(&ground.gateway, true);
    thread::sleep(Duration::from_millis(100));
    ground.gateway.kill();
    let seen = ground.highest_seen();
    ground.gateway.start_again();
    let fences = fences(ground.gateway.admin_port);
    let calls = load.stop();
    ground.upstream.wait_quiet();
    let by_store = by_decision(&calls).get("store").copied().unwrap_or(0);
    assert!(by_store >= 20, "only {by_store} refusals for the store");
    let history = History {
        seen: ground.upstream.log().seen.clone(),
        calls,
        restarts: vec![Restart { seen, fences }],
    };
    let violations: Vec<String> = check(&history).iter().map(ToString::to_string).collect();
    assert!(violations.is_empty(), "{}", violations.join("\n"));
    println!(
        "a failing store: {} requests, {by_store} refused for it",
        history.calls.len()
    );
}

#[test]
fn counters_agree_with_the_clients() {
    let ground = Ground::new(1);
    let load = Load::start(ground.gateway.port, 5, 10, Mix::Answered);
    thread::sleep(Duration::from_secs(4));
    let calls = load.stop();
    ground.upstream.wait_quiet();
    let told = by_decision(&calls);
    let page = Client::connect(ground.gateway.admin_port).request("GET", "/metrics", &[], b"");
    let page = String::from_utf8(page.body).unwrap();
    let counted = series(&page, "fencegate_requests_total", "decision");
    let refused = series(&page, "fencegate_fence_rejections_total", "reason");
    // A refusal may come while its client still sends, and be lost with the connection.
    let mut lost = calls.iter().filter(|call| call.end == Ended::Lost).count() as u64;
    println!("counters: {told:?}, lost {lost}");
    assert!(lost * 50 < calls.len() as u64, "{lost} answers were lost");
    for (decision, count) in &counted {
        let told = told.get(&**decision).copied().unwrap_or(0);
        let more = count.checked_sub(told);
        let more = more.unwrap_or_else(|| panic!("{decision}: {count}, and told {told} times"));
        lost = lost
            .checked_sub(more)
            .unwrap_or_else(|| panic!("{decision}: {count}, and told only {told} times"));
    }
    assert_eq!(lost, 0, "some were not counted");
    for (reason, count) in &refused {
        assert_eq!(counted.get(reason), Some(count), "{reason}");
    }
    for decision in ["admitted", "raised", "passed", "stale", "missing"] {
        assert!(told[decision] > 0, "no {decision}");
    }
}

/// How often the clients were told of each decision.
fn by_decision(calls: &[Call]) -> BTreeMap<&str, u64> {
    let mut told = BTreeMap::new();
    for call in calls {
        if let Ended::Answer { word, .. } = &call.end {
            let decision = if word.is_empty() { "passed" } else { word };
            *told.entry(decision).or_default() += 1;
        }
    }
    told
}

/// A metric's values by one of its labels, over all routes.
fn series(page: &str, name: &str, label: &str) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for line in page.lines().filter(|line| line.starts_with(name)) {
        let (_, rest) = line.split_once(&format!("{label}=\"")).unwrap();
        let (value, _) = rest.split_once('"').unwrap();
        let (_, count) = line.rsplit_once(' ').unwrap();
        *found.entry(value.to_owned()).or_default() += count.parse::<u64>().unwrap();
    }
    found
}
