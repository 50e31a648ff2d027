//! A real client of object stores before the gateway, and a store behind it: boto3 and moto.
//!
//! `tools/moto.sh` installs both, the first time from the network.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use support::{Config, Gateway, free_port, wait_until};

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
        wait_until("the store", || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
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

#[test]
fn boto3_writes_with_its_token_and_a_zombie_is_told_once() {
    let python = python();
    let store = Store::start(&python);
    let config = Config::new(store.port)
        .upstream("kind", "\"s3\"")
        .route("host", "\"127.0.0.1\"")
        .route("path", "\"/{bucket}/{*key}\"")
        .route("resource", "\"{bucket}/{key}\"");
    let gateway = Gateway::start(config);
    let url = |port| format!("http://127.0.0.1:{port}");
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
