//! Real clients of object stores before the gateway, and a store behind it: boto3, rclone and moto.
//!
//! `tools/moto.sh` installs the Python ones, the first time from the network; `tools/need.sh test` the other.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;
use support::{Client, Config, Gateway, free_port};

/// Seconds after which the client has failed.
const PATIENCE: &str = "180";

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// A Python that has both.
fn python() -> impl Fn(&[&str]) -> Command {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("moto");
    let script = Command::new(path("tools/moto.sh")).arg(&folder).output();
    let script = script.unwrap();
    assert!(
        script.status.success(),
        "cannot install moto\n{}",
        String::from_utf8_lossy(&script.stderr)
    );
    let python = String::from_utf8(script.stdout).unwrap().trim().to_owned();
    move |args| {
        let mut command = Command::new("timeout");
        command.args([PATIENCE, &python, "-B"]).args(args);
        command.env("PYTHONPATH", &folder).env("NO_PROXY", "*");
        command
    }
}

/// A store, ended when dropped.
struct Store {
    port: u16,
    child: Child,
}

impl Store {
    fn start(python: &impl Fn(&[&str]) -> Command) -> Self {
        let port = free_port();
        let child = python(&["-m", "moto.server", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // It takes its time to begin.
        let serves = || TcpStream::connect(("127.0.0.1", port)).is_ok();
        let begins = (0..600).any(|_| {
            thread::sleep(Duration::from_millis(100));
            serves()
        });
        assert!(begins, "the store did not begin within a minute");
        Self { port, child }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // `timeout` passes the signal on.
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.child.wait();
    }
}

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
    let python = python();
    let store = Store::start(&python);
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

#[test]
fn boto3_writes_with_its_token_and_a_zombie_is_told_once() {
    let python = python();
    let store = Store::start(&python);
    let gateway = before(&store);
    let script = path("tests/interop/s3.py");
    let client = python(&[
        script.to_str().unwrap(),
        &url(gateway.port),
        &url(store.port),
    ])
    .output()
    .unwrap();
    assert!(
        client.status.success(),
        "{}{}\nthe gateway said: {}",
        String::from_utf8_lossy(&client.stdout),
        String::from_utf8_lossy(&client.stderr),
        gateway.log()
    );
}
