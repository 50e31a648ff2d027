//! A large upload in parts, several at once, through a guard to an object store: with flat memory.
//!
//! 1 GiB; `FENCEGATE_UPLOAD_GIB=5` makes it larger. The store keeps all of it on disk until the test has ended.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use support::stores::{KEY, SECRET, Store};
use support::{Client, Config, Gateway};

const PART: usize = 64 << 20;
const AT_ONCE: usize = 4;
const TOKEN: (&str, &str) = ("Fencing-Token", "5");

/// The content of a part: its number, over and over.
fn content(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(PART / 8)
}

fn element(body: &[u8], name: &str) -> String {
    let text = std::str::from_utf8(body).unwrap();
    let (_, rest) = text.split_once(&format!("<{name}>")).unwrap();
    rest.split_once('<').unwrap().0.to_owned()
}

#[test]
fn an_upload_in_parts_takes_no_memory() {
    let Some(store) = Store::minio() else {
        return; // nginx_dav.rs has large bodies too
    };
    store.open_bucket("bucket");
    let gib = std::env::var("FENCEGATE_UPLOAD_GIB").map_or(1, |text| text.parse().unwrap());
    let parts: u64 = gib * ((1 << 30) / PART as u64);
    let config = Config::new(store.port)
        .upstream("kind", "\"s3\"")
        .upstream("response_timeout", "\"60s\"")
        .upstream("conditions", "\"trusted\"")
        .route("host", "\"127.0.0.1\"")
        .route("path", "\"/{bucket}/{*key}\"")
        .route("resource", "\"{bucket}/{key}\"")
        .route("guard", "\"etag\"")
        .env("AWS_ACCESS_KEY_ID", KEY)
        .env("AWS_SECRET_ACCESS_KEY", SECRET);
    let gateway = Gateway::start(config);
    let ask = |method: &str, target: &str, body: &[u8]| {
        Client::connect(gateway.port).request(method, target, &[TOKEN], body)
    };
    ask("PUT", "/bucket/large", b"first").answered(200);
    let begun = ask("POST", "/bucket/large?uploads", b"");
    begun.answered(200);
    let upload = element(&begun.body, "UploadId");
    let (before, next) = (gateway.peak_memory(), AtomicU64::new(0));
    let tags: Vec<(u64, String)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                scope.spawn(|| {
                    let mut tags = Vec::new();
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed) + 1;
                        if number > parts {
                            return tags;
                        }
                        let target = format!("/bucket/large?partNumber={number}&uploadId={upload}");
                        let done = ask("PUT", &target, &content(number));
                        done.answered(200);
                        tags.push((number, done.header("etag").unwrap().to_owned()));
                    }
                })
            })
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap())
            .collect()
    });
    let mut tags = tags;
    tags.sort();
    let mut list = String::new();
    for (number, tag) in &tags {
        let _ = write!(
            list,
            "<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>"
        );
    }
    let list = format!("<CompleteMultipartUpload>{list}</CompleteMultipartUpload>");
    let done = ask(
        "POST",
        &format!("/bucket/large?uploadId={upload}"),
        list.as_bytes(),
    );
    done.answered(200);
    let grown = gateway.peak_memory().saturating_sub(before);
    println!(
        "{gib} GiB in {parts} parts: {} MiB more at the peak",
        grown >> 20
    );
    assert!(grown < 64 << 20, "it grew by {grown} bytes");
    // Each part lies where it belongs.
    for number in [1, parts / 2, parts] {
        let first = (number - 1) * PART as u64;
        let range = format!("bytes={first}-{}", first + 15);
        let headers = [("Range", &*range)];
        let read = Client::connect(store.port).request("GET", "/bucket/large", &headers, b"");
        assert_eq!(read.body, number.to_le_bytes().repeat(2), "{read}");
    }
    // The pin is that of the whole.
    ask("PUT", "/bucket/large", b"last").answered(200);
}
