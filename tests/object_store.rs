//! Real clients of object stores before the gateway, and a store behind it: boto3 and rclone; moto and MinIO.
//!
//! `tools/moto.sh` installs the Python ones, the first time from the network, `tools/minio.sh` builds the last,
//! and `tools/need.sh test` installs what they need and rclone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::process::Command;
use support::stores::{KEY, PATIENCE, SECRET, Store, path, python};
use support::{Client, Config, Gateway};

/// A gateway before that store, whose objects are all fenced.
fn before(store: &Store) -> Gateway {
    let config = Config::new(store.port)
        .upstream("kind", "\"s3\"")
        .route("host", "\"127.0.0.1\"")
        .route("path", "\"/{bucket}/{*key}\"")
        .route("resource", "\"{bucket}/{key}\"");
    Gateway::start(config)
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

/// How many stale writes the gateway has refused.
fn refused(gateway: &Gateway) -> u64 {
    let page = Client::connect(gateway.admin_port).request("GET", "/metrics", &[], b"");
    let page = String::from_utf8(page.body).unwrap();
    let name = "fencegate_fence_rejections_total{reason=\"stale\",route=\"files\"} ";
    let line = page.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap().parse().unwrap()
}

/// Its tokens are given by an option that adds a header to all that it sends.
#[test]
fn rclone_writes_with_its_token_and_a_zombie_is_told_once() {
    let store = Store::moto();
    let gateway = before(&store);
    let folder = tempfile::tempdir().unwrap();
    let rclone = |token: u64, args: &[&str]| {
        let mut command = Command::new("timeout");
        command.args([PATIENCE, "rclone", "--config", "/dev/null"]);
        command.args(["--header", &format!("Fencing-Token: {token}")]);
        command.args([
            "--retries",
            "1",
            "--s3-chunk-size",
            "5M",
            "--s3-upload-cutoff",
            "6M",
        ]);
        command.args(args).current_dir(folder.path());
        for (key, value) in [
            ("TYPE", "s3"),
            ("PROVIDER", "Other"),
            ("ENDPOINT", &*url(gateway.port)),
            ("ACCESS_KEY_ID", "key"),
            ("SECRET_ACCESS_KEY", "secret"),
            ("FORCE_PATH_STYLE", "true"),
            ("NO_CHECK_BUCKET", "true"),
            ("NO_HEAD", "true"),
        ] {
            command.env(format!("RCLONE_CONFIG_G_{key}"), value);
        }
        // Its library takes no authorities of the environment together with this program's own transport.
        let command = command.env("NO_PROXY", "*").env_remove("AWS_CA_BUNDLE");
        let output = command
            .output()
            .expect("no rclone; to install it: tools/need.sh test");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        (output.status.success(), said)
    };
    let done = |token, args: &[&str]| {
        let (well, said) = rclone(token, args);
        assert!(well, "{args:?}: {said}");
    };
    let made = Client::connect(store.port).request("PUT", "/bucket", &[], b"");
    assert_eq!(made.status, 200, "{made}");
    std::fs::write(folder.path().join("small"), b"of the holder").unwrap();
    std::fs::write(folder.path().join("large"), vec![7; 12_000_000]).unwrap();
    let target = "g:bucket/a b/\u{fc}+f";
    done(5, &["copyto", "small", target]);
    done(5, &["copyto", "large", "g:bucket/large"]);
    std::fs::write(folder.path().join("small"), b"of the zombie").unwrap();
    for stale in [
        &["copyto", "--ignore-times", "small", target][..],
        &["deletefile", target],
    ] {
        let before = refused(&gateway);
        let (well, said) = rclone(4, stale);
        assert!(
            !well && said.contains("The fencing token is stale"),
            "{said}"
        );
        assert_eq!(refused(&gateway), before + 1, "{stale:?}");
    }
    let (_, kept) = rclone(4, &["cat", target]);
    assert_eq!(kept, "of the holder");
    done(6, &["deletefile", target]);
}

/// Runs a script of boto3's before the gateway, with these variables.
fn runs(script: &str, gateway: &Gateway, store: &Store, env: &[(&str, &str)]) {
    let script = path(script);
    let args = [script.to_str().unwrap(), &url(gateway.port), &store.url()];
    let client = python(&args).envs(env.iter().copied()).output().unwrap();
    assert!(
        client.status.success(),
        "{}: {}{}\nthe gateway said: {}",
        store.name,
        String::from_utf8_lossy(&client.stdout),
        String::from_utf8_lossy(&client.stderr),
        gateway.log()
    );
}

#[test]
fn boto3_writes_with_its_token_and_a_zombie_is_told_once() {
    for store in [Some(Store::moto()), Store::minio()].into_iter().flatten() {
        runs("tests/interop/s3.py", &before(&store), &store, &[]);
    }
}

/// The probe needs a bucket that is there.
#[test]
fn boto3_writes_through_a_guard() {
    let Some(store) = Store::minio() else {
        return; // moto ignores conditions; rules/guard.rs has the rest
    };
    store.open_bucket("bucket");
    let config = Config::new(store.port)
        .upstream("kind", "\"s3\"")
        .upstream("probe", "\"/bucket/probe\"")
        .route("host", "\"127.0.0.1\"")
        .route("path", "\"/{bucket}/{*key}\"")
        .route("resource", "\"{bucket}/{key}\"")
        .route("guard", "\"etag\"")
        .env("AWS_ACCESS_KEY_ID", KEY)
        .env("AWS_SECRET_ACCESS_KEY", SECRET);
    let gateway = Gateway::start(config);
    // What the page of guards says of it.
    let found = "strength=\"drained\" ignored=\"CopyObject, DELETE\"";
    assert!(gateway.log().contains(found), "{}", gateway.log());
    runs("tests/interop/guards.py", &gateway, &store, &[]);
}

/// Its clients have keys of their own, which the store does not know.
#[test]
fn boto3_and_chunks_through_a_gateway_that_signs() {
    const CLIENT: [(&str, &str); 2] = [
        ("GATEWAY_KEY", "client-of-tests"),
        ("GATEWAY_SECRET", "secret-of-the-client"),
    ];
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys.toml");
    let [(_, key), (_, secret)] = CLIENT;
    std::fs::write(&keys, format!("{key} = \"{secret}\"\n")).unwrap();
    for store in [Some(Store::moto()), Store::minio()].into_iter().flatten() {
        let config = Config::new(store.port)
            .upstream("kind", "\"s3\"")
            .upstream("sign", "true")
            .upstream("client_keys", &format!("'{}'", keys.display()))
            .route("path", "\"/{bucket}/{*key}\"")
            .route("resource", "\"{bucket}/{key}\"")
            .env("AWS_ACCESS_KEY_ID", KEY)
            .env("AWS_SECRET_ACCESS_KEY", SECRET);
        let gateway = Gateway::start(config);
        runs("tests/interop/s3.py", &gateway, &store, &CLIENT);
        runs("tests/interop/chunks.py", &gateway, &store, &CLIENT);
    }
}
