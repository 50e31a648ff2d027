//! The window that no proxy can close, a hundred times over, before an object store that other people wrote (where
//! there is a Go that can build it; else before one of our own): the
//! gateway is killed with a PUT of the old holder under way, a new gateway admits the newer holder, which writes, and
//! then the old one's lands. With a guard it fails at the store. Without one it takes effect: so the test can see it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::io::Read;
use std::thread;
use support::holding::Holding;
use support::resource::Resource;
use support::stores::{KEY, SECRET, Store};
use support::{Client, Config, Gateway};

const RUNS: usize = 100;
/// Side by side: what takes time is waiting.
const AT_ONCE: usize = 4;

/// A gateway before the store, which the store takes for a holder of its key. Its settle is not kept: the way to the
/// store holds a request back for as long as it likes.
fn gateway(way: &Holding, guard: &str) -> Gateway {
    let config = Config::new(way.port)
        .upstream("kind", "\"s3\"")
        .upstream("settle", "\"10ms\"")
        .route("host", "\"127.0.0.1\"")
        .route("path", "\"/{bucket}/{*key}\"")
        .route("resource", "\"{bucket}/{key}\"")
        .route("guard", &format!("\"{guard}\""))
        .env("AWS_ACCESS_KEY_ID", KEY)
        .env("AWS_SECRET_ACCESS_KEY", SECRET);
    Gateway::start(if guard == "none" {
        config
    } else {
        let config = config.upstream("probe", &format!("\"/bucket/probe-{}\"", way.port));
        config.route("guard_required", "true")
    })
}

fn put(port: u16, path: &str, token: u64, tag: &str, body: &str) -> support::Response {
    let headers = [("Fencing-Token", &*token.to_string()), ("X-Tag", tag)];
    Client::connect(port).request("PUT", path, &headers, body.as_bytes())
}

/// One run: whether the newer holder's object is what there is at the end, and what the late write was answered with.
fn run(gateway: &mut Gateway, way: &Holding, store: u16, path: &str) -> (bool, u16) {
    // There is an object in every other run.
    if path.ends_with(['0', '2', '4', '6', '8']) {
        put(gateway.port, path, 33, "", "first").answered(200);
    }
    let tag = path.replace('/', "-");
    way.hold(&tag);
    let (port, target, name) = (gateway.port, path.to_owned(), tag.clone());
    let zombie = thread::spawn(move || {
        let mut client = Client::connect(port);
        let headers = [
            ("Fencing-Token", "33"),
            ("X-Tag", &*name),
            ("Content-Length", "6"),
        ];
        client.send_head("PUT", &target, &headers);
        client.send(b"zombie");
        let _ = client.stream().read(&mut [0; 1]); // the gateway is killed
    });
    way.awaits(&tag);
    gateway.kill();
    gateway.start_again();
    put(gateway.port, path, 34, "", "newer").answered(200);
    let status = way.release(&tag);
    zombie.join().unwrap();
    let kept = Client::connect(store).request("GET", path, &[], b"");
    assert_eq!(kept.status, 200, "{kept}");
    (kept.body == b"newer", status)
}

/// How many of so many runs the newer holder's object survives.
fn survived(store: u16, guard: &str, runs: usize) -> usize {
    thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE.min(runs))
            .map(|worker| {
                scope.spawn(move || {
                    let way = Holding::before(store);
                    let mut gateway = gateway(&way, guard);
                    let mine = (worker..runs).step_by(AT_ONCE);
                    mine.filter(|number| {
                        let path = format!("/bucket/{guard}/{number}");
                        let (kept, status) = run(&mut gateway, &way, store, &path);
                        assert_eq!(kept, status == 412, "{path}: {status}");
                        kept
                    })
                    .count()
                })
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .sum()
    })
}

#[test]
fn a_late_write_fails_at_the_store_a_hundred_times_and_without_a_guard_it_does_not() {
    let (store, own) = (Store::minio(), Resource::start());
    let port = store.as_ref().map_or(own.port, |store| {
        store.open_bucket("bucket");
        store.port
    });
    assert_eq!(survived(port, "etag", RUNS), RUNS);
    assert_eq!(survived(port, "none", 4), 0, "the test would see a loss");
}
