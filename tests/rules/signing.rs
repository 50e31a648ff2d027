//! Object stores for which the gateway signs: who its clients are, what goes out in their stead, and the stamp that it
//! leaves; and buckets that are named by the host.

use crate::support::resource::Resource;
use crate::support::{Client, Config, Gateway, Response, wait_until};
use std::fs;

const SECRET: &str = "sesame-of-the-writer";

/// A gateway that signs, and the store behind it.
struct Signed {
    gw: Gateway,
    store: Resource,
}

fn signed(change: impl FnOnce(Config) -> Config) -> Signed {
    let store = Resource::start();
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.keep().join("keys.toml");
    fs::write(&keys, format!("writer = \"{SECRET}\"\n")).unwrap();
    let config = Config::new(store.port)
        .upstream("kind", "\"s3\"")
        .upstream("sign", "true")
        .upstream("client_keys", &format!("'{}'", keys.display()))
        .route("path", "\"/{bucket}/{*key}\"")
        .route("resource", "\"{bucket}/{key}\"");
    Signed {
        gw: Gateway::start(change(config)),
        store,
    }
}

impl Signed {
    fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
        Client::connect(self.gw.port).request(method, path, headers, body.as_bytes())
    }

    /// What the gateway's store has.
    fn fence(&self) -> Option<String> {
        let page = Client::connect(self.gw.admin_port).request("GET", "/api/v1/fences", &[], b"");
        let page: serde_json::Value = serde_json::from_slice(&page.body).unwrap();
        page["fences"].get(0).map(ToString::to_string)
    }

    fn put(&self, path: &str, token: u64, headers: &[(&str, &str)]) -> Response {
        let (token, bearer) = (token.to_string(), format!("Bearer {SECRET}"));
        let own = [
            ("Fencing-Token", &*token),
            ("Authorization", &bearer),
            ("X-Tag", "t"),
        ];
        self.send("PUT", path, &[&own, headers].concat(), "data")
    }
}

#[test]
fn only_its_clients_may_come_for_reads_and_on_routes_that_are_off_too() {
    let s = signed(|c| {
        c.more("[[routes]]\nname = \"rest\"\npath = \"/{*rest}\"\nupstream = \"files\"\nmode = \"off\"")
    });
    let wrong = [
        ("Authorization", "Bearer not-the-secret-of-any"),
        ("Fencing-Token", "5"),
    ];
    for headers in [&wrong[1..], &wrong] {
        for (method, path) in [("PUT", "/b/a"), ("GET", "/b/a"), ("GET", "/")] {
            let refused = s.send(method, path, headers, "");
            refused.refused(403, "forbidden");
            let text = String::from_utf8_lossy(&refused.body).into_owned();
            assert!(
                text.contains("unauthenticated") && !text.contains("sesame"),
                "{text}"
            );
        }
    }
    assert!(s.store.came(None).is_empty());
    s.put("/b/a", 5, &[]).answered(200);
    let bearer = format!("Bearer {SECRET}");
    s.send("GET", "/b/a", &[("Authorization", &bearer)], "")
        .answered(200);
    s.send("GET", "/", &[("Authorization", &bearer)], "")
        .answered(404);
    assert!(!s.gw.log().contains("sesame"));
}

#[test]
fn what_goes_out_is_the_gateways_own() {
    let s = signed(|c| c);
    let more = [
        ("x-amz-date", "20130524T000000Z"),
        ("x-amz-security-token", "mine"),
        ("x-amz-meta-owner", "me"),
        ("x-amz-meta-fencing-token", "99"),
    ];
    s.put("/b/a%20b?X-Amz-Expires=5&x-id=PutObject", 5, &more)
        .answered(200);
    let came = s.store.last("t");
    assert_eq!(came.target, "/b/a%20b?x-id=PutObject");
    let said = came.header("authorization").unwrap();
    assert!(
        said.starts_with("AWS4-HMAC-SHA256 Credential=key/"),
        "{said}"
    );
    assert!(said.contains("host;x-amz-content-sha256;x-amz-date;x-amz-meta-fencing-token;x-amz-meta-fencing-write;x-amz-meta-owner,"), "{said}");
    assert_eq!(came.header("x-amz-security-token"), None);
    assert_ne!(came.header("x-amz-date"), Some("20130524T000000Z"));
    assert_eq!(came.header("x-amz-meta-fencing-token"), Some("5"));
    assert_eq!(
        came.header("x-amz-content-sha256"),
        Some("UNSIGNED-PAYLOAD")
    );
    let host = format!("127.0.0.1:{}", s.store.port);
    assert_eq!(came.header("host"), Some(&*host));
    let first = came.header("x-amz-meta-fencing-write").unwrap().to_owned();
    s.put("/b/a%20b", 5, &[]).answered(200);
    assert_ne!(
        s.store.last("t").header("x-amz-meta-fencing-write"),
        Some(&*first)
    );
    // Where no metadata belong, there is no stamp.
    s.put("/b/a?tagging", 5, &[]).answered(200);
    assert_eq!(s.store.last("t").header("x-amz-meta-fencing-token"), None);
}

#[test]
fn a_guard_and_the_signature_go_together() {
    let s = signed(|c| {
        c.route("guard", "\"etag\"")
            .upstream("conditions", "\"trusted\"")
    });
    for _ in 0..2 {
        s.put("/b/a", 5, &[]).answered(200);
    }
    let came = s.store.last("t");
    assert!(came.header("if-match").is_some());
    let asked = s.store.came(Some("HEAD"));
    assert_eq!(asked.len(), 1);
    assert!(
        asked[0]
            .header("authorization")
            .unwrap()
            .starts_with("AWS4-HMAC-SHA256")
    );
}

#[test]
fn a_lost_write_is_known_by_its_stamp() {
    let s = signed(|c| {
        c.route("guard", "\"create-only\"")
            .upstream("conditions", "\"trusted\"")
    });
    s.store.behaves(|m| {
        m.lost.insert("t".into());
    });
    s.put("/b/a", 5, &[]).refused(502, "outcome-unknown");
    s.store.behaves(|m| m.lost.clear());
    s.put("/b/a", 5, &[]).refused(412, "written");
    // Of the same size, and another's.
    s.store.put("/b/a", "past");
    s.put("/b/a", 5, &[]).answered(412);
}

#[test]
fn who_may_write_is_told_by_the_key_too() {
    let s = signed(|c| c.route("allow", "[\"writer\"]"));
    s.put("/b/a", 5, &[]).answered(200);
    let s = signed(|c| c.route("allow", "[\"another\"]"));
    s.put("/b/a", 5, &[]).refused(403, "forbidden");
    assert!(s.store.came(None).is_empty());
}

#[test]
fn keys_are_read_again_when_they_change() {
    let s = signed(|c| c);
    s.put("/b/a", 5, &[]).answered(200);
    let text = fs::read_to_string(s.gw.path("fencegate.toml")).unwrap();
    let line = text
        .lines()
        .find(|line| line.starts_with("client_keys"))
        .unwrap();
    let path = line.split('\'').nth(1).unwrap();
    fs::write(path, "other = \"another-secret-of-another\"\n").unwrap();
    wait_until("the keys", || s.put("/b/a", 5, &[]).status == 403);
}

#[test]
fn a_host_may_name_the_bucket_where_its_upstream_says_so() {
    let with = |sign: bool| {
        signed(|c| {
            let c = c
                .route("host", "\"s3.example\"")
                .upstream("virtual_hosts", "true");
            if sign {
                c
            } else {
                c.upstream("sign", "false").upstream_without("client_keys")
            }
        })
    };
    let s = with(false);
    let put = |s: &Signed, host: &str, path: &str, token| s.put(path, token, &[("Host", host)]);
    put(&s, "wal.s3.example", "/a/b", 9).answered(200);
    let came = s.store.last("t");
    assert_eq!(
        (&*came.target, came.header("host")),
        ("/a/b", Some("wal.s3.example")),
        "as it came"
    );
    // One object, one fence, whichever way it is named.
    put(&s, "s3.example", "/wal/a/b", 8).refused(412, "stale");
    put(&s, "wal.S3.example:80", "/a%2Fb", 8).refused(412, "stale");
    put(&s, "other.s3.example", "/a/b", 8).answered(200);
    put(&s, "a.b.s3.example", "/a", 8).answered(200);
    put(&s, "s3.example", "/a.b/a", 7).refused(412, "stale");
    for (host, path) in [
        ("WAL.s3.example", "/a/b"),
        ("xs3.example", "/a/b"),
        (".s3.example", "/a/b"),
        ("a.b", "/a"),
    ] {
        assert!(put(&s, host, path, 9).status >= 400, "{host}");
    }
    // To the bucket itself.
    put(&s, "wal.s3.example", "/", 9).refused(403, "forbidden");
    let list = "<Delete><Object><Key>a/b</Key></Object></Delete>";
    let headers = [("Host", "wal.s3.example"), ("Fencing-Token", "8")];
    s.send("POST", "/?delete", &headers, list)
        .refused(412, "stale");
    // Who signs names the bucket in the path.
    let s = with(true);
    put(&s, "wal.s3.example", "/a?x-id=PutObject", 9).answered(200);
    assert_eq!(s.store.last("t").target, "/wal/a?x-id=PutObject");
    put(&s, "s3.example", "/wal/a", 8).refused(412, "stale");
    let bearer = format!("Bearer {SECRET}");
    let headers = [
        ("Host", "wal.s3.example"),
        ("Fencing-Token", "8"),
        ("Authorization", &*bearer),
    ];
    let list = "<Delete><Object><Key>a</Key></Object></Delete>";
    s.send("POST", "/?delete", &headers, list)
        .refused(412, "stale");
    let headers = [
        &headers[..1],
        &headers[2..],
        &[("Fencing-Token", "9"), ("X-Tag", "list")],
    ]
    .concat();
    s.send("POST", "/?delete", &headers, list).answered(200);
    assert_eq!(s.store.last("list").target, "/wal/?delete");
}

#[test]
fn a_copy_is_made_of_what_could_be_read_alone() {
    let s = signed(|c| {
        c.route("path", "\"/mine/{*key}\"")
            .route("resource", "\"mine/{key}\"")
    });
    for source in [
        "/payroll/2024",
        "payroll%2F2024",
        "/mine/../payroll/a",
        "arn:aws:s3:::mine/a",
        "mine",
    ] {
        let refused = s.put("/mine/x", 5, &[("x-amz-copy-source", source)]);
        assert!(refused.status >= 400, "{source}: {refused}");
    }
    let twice = [
        ("x-amz-copy-source", "/mine/a"),
        ("x-amz-copy-source", "/payroll/a"),
    ];
    s.put("/mine/x", 5, &twice).refused(400, "malformed");
    assert!(s.store.came(None).is_empty());
    for source in ["/mine/a", "mine/a%20b", "mine/a?versionId=v"] {
        s.put("/mine/x", 5, &[("x-amz-copy-source", source)])
            .answered(200);
    }
}

#[test]
fn nobody_forges_a_stamp() {
    let s = signed(|c| {
        c.more("[[routes]]\nname = \"rest\"\npath = \"/{*rest}\"\nupstream = \"files\"\nmode = \"off\"")
    });
    let stamp = [
        ("x-amz-meta-fencing-token", "99"),
        ("x-amz-meta-fencing-write", "0000000000000000-x"),
    ];
    let copy = [
        ("x-amz-copy-source", "/b/c"),
        ("x-amz-metadata-directive", "COPY"),
    ];
    s.put("/b/a", 5, &[&stamp[..], &copy].concat())
        .answered(200);
    assert_eq!(s.store.last("t").header("x-amz-meta-fencing-token"), None);
    let copy = [
        ("x-amz-copy-source", "/b/c"),
        ("x-amz-metadata-directive", "REPLACE"),
    ];
    s.put("/b/a", 5, &[&stamp[..], &copy].concat())
        .answered(200);
    assert_eq!(
        s.store.last("t").header("x-amz-meta-fencing-token"),
        Some("5")
    );
    for moved in [
        "X-Amz-Copy-Source=b%2Fc",
        "x-amz-meta-fencing-token=99",
        "AWSAccessKeyId=a&Signature=b&Expires=1",
    ] {
        s.put(&format!("/b/a?{moved}"), 5, &[])
            .refused(400, "malformed");
    }
}

#[test]
fn what_a_connection_takes_off_was_not_signed_for_nothing() {
    let s = signed(|c| c);
    for name in ["if-none-match", "x-amz-content-sha256", "x-amz-copy-source"] {
        s.put("/b/a", 5, &[("Connection", name)])
            .refused(400, "malformed");
    }
    assert_eq!(s.fence(), None, "nothing was raised");
    s.put("/b/a", 5, &[("Connection", "keep-alive, TE")])
        .answered(200);
}
