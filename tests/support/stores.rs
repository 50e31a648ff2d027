//! Object stores that other people wrote, each started by a test and ended with it: moto, which is quick, and MinIO,
//! which is real. And Python with boto3, a client of both.

use super::{Client, free_port};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

/// Seconds after which a client has failed.
pub const PATIENCE: &str = "240";

/// What every store here knows its clients by.
pub const KEY: &str = "key-of-tests";
pub const SECRET: &str = "secret-of-tests";

pub fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn built(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

/// A Python that has both.
pub fn python(args: &[&str]) -> Command {
    with_packages("moto", &[], args)
}

/// A Python that has these packages, from a folder of that name; where none is named, moto and boto3.
pub fn with_packages(name: &str, packages: &[&str], args: &[&str]) -> Command {
    let folder = built(name);
    let mut script = Command::new(path("tools/moto.sh"));
    let script = script.arg(&folder).args(packages).output().unwrap();
    assert!(
        script.status.success(),
        "cannot install {name}\n{}",
        String::from_utf8_lossy(&script.stderr)
    );
    let python = String::from_utf8(script.stdout).unwrap().trim().to_owned();
    let mut command = Command::new("timeout");
    command.args([PATIENCE, &python, "-B"]).args(args);
    command.env("PYTHONPATH", &folder).env("NO_PROXY", "*");
    command
        .env("AWS_ACCESS_KEY_ID", KEY)
        .env("AWS_SECRET_ACCESS_KEY", SECRET);
    command
}

/// A store, ended when dropped.
pub struct Store {
    pub port: u16,
    pub name: &'static str,
    child: Child,
    _folder: TempDir,
}

impl Store {
    pub fn moto() -> Self {
        Self::start("moto", |port, _| {
            python(&["-m", "moto.server", "-p", &port.to_string()])
        })
    }

    /// MinIO; `None` where there is no Go that is new enough to build it.
    pub fn minio() -> Option<Self> {
        let program = built("minio");
        let script = Command::new(path("tools/minio.sh"))
            .arg(&program)
            .output()
            .unwrap();
        if script.status.code() == Some(3) {
            eprintln!("{}", String::from_utf8_lossy(&script.stderr));
            return None;
        }
        assert!(
            script.status.success(),
            "cannot build MinIO\n{}",
            String::from_utf8_lossy(&script.stderr)
        );
        Some(Self::start("MinIO", |port, folder| {
            let mut command = Command::new(program);
            command.args([
                "server",
                "--quiet",
                "--address",
                &format!("127.0.0.1:{port}"),
            ]);
            command.args(["--console-address", &format!("127.0.0.1:{}", free_port())]);
            command.arg(folder.join("data"));
            command
                .env("MINIO_ROOT_USER", KEY)
                .env("MINIO_ROOT_PASSWORD", SECRET);
            command.env("MINIO_UPDATE", "off").env("HOME", folder);
            command
        }))
    }

    fn start(name: &'static str, command: impl FnOnce(u16, &Path) -> Command) -> Self {
        let (port, folder) = (free_port(), tempfile::tempdir().unwrap());
        let child = command(port, folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let store = Self {
            port,
            name,
            child,
            _folder: folder,
        };
        // It takes its time to begin. What it answers to a stranger does not matter.
        let serves = || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
                && Client::connect(port).request("GET", "/", &[], b"").status < 500
        };
        let begins = (0..600).any(|_| {
            thread::sleep(Duration::from_millis(100));
            serves()
        });
        assert!(begins, "{name} did not begin within a minute");
        store
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Makes a bucket in which anybody may do anything.
    pub fn open_bucket(&self, name: &str) {
        let script = path("tests/interop/open_bucket.py");
        let made = python(&[script.to_str().unwrap(), &self.url(), name])
            .output()
            .unwrap();
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
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
