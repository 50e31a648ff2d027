//! Real clients of object stores before the gateway, and a store behind it: boto3, rclone, the AWS command line and
//! the `object_store` crate; moto and MinIO.
//!
//! `tools/moto.sh` installs the Python ones, the first time from the network, `tools/minio.sh` builds the last,
//! and `tools/need.sh test` installs what they need and rclone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::path::Path;
use std::process::Command;
use support::stores::{KEY, PATIENCE, SECRET, Store, path, python, with_packages};
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

/// A route to a store for which the gateway signs. `keys`: its clients'.
fn signing(store: &Store, keys: &Path) -> Config {
    Config::new(store.port)
        .upstream("kind", "\"s3\"")
        .upstream("sign", "true")
        .upstream("client_keys", &format!("'{}'", keys.display()))
        .route("path", "\"/{bucket}/{*key}\"")
        .route("resource", "\"{bucket}/{key}\"")
        .env("AWS_ACCESS_KEY_ID", KEY)
        .env("AWS_SECRET_ACCESS_KEY", SECRET)
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
        let gateway = Gateway::start(signing(&store, &keys));
        runs("tests/interop/s3.py", &gateway, &store, &CLIENT);
        runs("tests/interop/chunks.py", &gateway, &store, &CLIENT);
    }
}

/// Each line of the fences that a gateway's store has.
fn fences(gateway: &Gateway) -> Vec<String> {
    let (code, said) = gateway.command(&["fences", "list"]);
    assert_eq!(code, Some(0), "{said}");
    said.lines().map(str::to_owned).collect()
}

#[test]
fn fences_are_found_again_after_the_store_was_lost() {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys.toml");
    std::fs::write(&keys, "writer = \"secret-of-the-writer\"\n").unwrap();
    for store in [Some(Store::moto()), Store::minio()].into_iter().flatten() {
        store.open_bucket("bucket");
        let mut gateway = Gateway::start(signing(&store, &keys));
        let put = |gateway: &Gateway, key: &str, token: &str, more: &[(&str, &str)]| {
            let own = [
                ("Fencing-Token", token),
                ("Authorization", "Bearer secret-of-the-writer"),
            ];
            let target = format!("/bucket/{key}");
            gateway
                .client()
                .request("PUT", &target, &[&own, more].concat(), b"data")
        };
        for (key, token) in [
            ("a", "33"),
            ("a", "34"),
            ("a%20b/%C3%BC", "7"),
            ("b%2Bc", "8"),
        ] {
            put(&gateway, key, token, &[]).answered(200);
        }
        // A copy carries the stamp of what it was made of, which says nothing of its own fence.
        let source = [("x-amz-copy-source", "/bucket/a")];
        put(&gateway, "copy", "2", &source).answered(200);
        let before = fences(&gateway);
        assert_eq!(before.len(), 4, "{before:?}");
        gateway.stop();
        std::fs::remove_dir_all(gateway.path("data")).unwrap();
        let (code, said) = gateway.command(&["init"]);
        assert_eq!(code, Some(0), "{said}");
        let (code, said) = gateway.command(&["rebuild", "--from", "s3://bucket"]);
        assert_eq!(code, Some(0), "{}: {said}", store.name);
        assert!(
            said.contains("4 objects, 3 with a stamp"),
            "{}: {said}",
            store.name
        );
        let after = fences(&gateway);
        let of = |lines: &[String]| -> Vec<String> {
            let named = lines.iter().filter(|line| !line.contains("copy"));
            named
                .map(|line| line.rsplit_once('\t').unwrap().0.to_owned())
                .collect()
        };
        assert_eq!(of(&after), of(&before), "{}", store.name);
        gateway.start_again();
        put(&gateway, "a", "33", &[]).refused(412, "stale");
        put(&gateway, "a", "34", &[]).answered(200);
    }
}

/// Its token is sent by a plugin of a few lines.
#[test]
fn the_aws_command_line_writes_with_its_token_and_a_zombie_is_told_once() {
    let store = Store::moto();
    store.open_bucket("bucket");
    let gateway = before(&store);
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config");
    let text = "[default]\nregion = us-east-1\ns3 =\n  addressing_style = path\n[plugins]\nfencing_token = fencing_token\n";
    std::fs::write(&config, text).unwrap();
    let aws = |token: u64, args: &[&str]| {
        let endpoint = url(gateway.port);
        let all = [&["-m", "awscli", "--endpoint-url", &endpoint][..], args].concat();
        let mut command = with_packages("awscli", &["awscli==1.46.3"], &all);
        let packages = command.get_envs().find(|(name, _)| *name == "PYTHONPATH");
        let packages = packages.and_then(|(_, value)| value).unwrap().to_owned();
        let plugin = path("tests/interop");
        let both = std::env::join_paths([packages.into(), plugin]).unwrap();
        command
            .env("PYTHONPATH", both)
            .env("AWS_CONFIG_FILE", &config);
        command
            .env("FENCING_TOKEN", token.to_string())
            .current_dir(folder.path());
        let output = command.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&said).into_owned(),
        )
    };
    let done = |token, args: &[&str]| {
        let (well, said) = aws(token, args);
        assert!(well, "{args:?}: {said}");
    };
    std::fs::write(folder.path().join("small"), b"of the holder").unwrap();
    std::fs::write(folder.path().join("large"), vec![7; 20_000_000]).unwrap();
    let put = [
        "s3api",
        "put-object",
        "--bucket",
        "bucket",
        "--key",
        "a b+\u{fc}",
        "--body",
        "small",
    ];
    done(5, &put);
    done(
        5,
        &["s3", "cp", "--no-progress", "large", "s3://bucket/large"],
    );
    let before = refused(&gateway);
    let (well, said) = aws(4, &put);
    assert!(
        !well && said.contains("The fencing token is stale"),
        "{said}"
    );
    assert_eq!(refused(&gateway), before + 1);
    done(6, &["s3", "rm", "s3://bucket/large"]);
}

/// A client of its own package, built here: what it depends on is not the gateway's.
#[test]
fn the_object_store_crate_writes_with_its_token_and_a_zombie_is_told_once() {
    let manifest = path("tests/interop/object_store/Cargo.toml");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("object_store");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--locked", "--quiet", "--manifest-path"]);
    let built = cargo
        .arg(&manifest)
        .env("CARGO_TARGET_DIR", &target)
        .output();
    let built = built.unwrap();
    assert!(
        built.status.success(),
        "cannot build it\n{}",
        String::from_utf8_lossy(&built.stderr)
    );
    for store in [Some(Store::moto()), Store::minio()].into_iter().flatten() {
        store.open_bucket("bucket");
        let gateway = before(&store);
        let mut client = Command::new("timeout");
        client.args([
            PATIENCE.as_ref(),
            target.join("debug/object-store-client").as_os_str(),
        ]);
        client.arg(url(gateway.port)).env("NO_PROXY", "*");
        client
            .env("AWS_ACCESS_KEY_ID", KEY)
            .env("AWS_SECRET_ACCESS_KEY", SECRET);
        let output = client.output().unwrap();
        assert!(
            output.status.success(),
            "{}: {}{}",
            store.name,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        assert_eq!(refused(&gateway), 4, "each stale write was sent once");
    }
}
