//! The ground of the black-box tests: the gateway as a process on its own store and config, and a
//! client that speaks HTTP over a plain socket. Knows nothing of any upstream.

#![allow(dead_code)] // each test uses its own part of this
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::disallowed_methods)] // tests wait in real time

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub mod authority;
pub mod client;
pub mod h2;
pub mod h2_upstream;
pub mod hashing;
pub mod holding;
pub mod resource;
pub mod stores;
pub mod upstream;

pub use client::{Client, Response};

/// A config under construction: one upstream `files`, one route `files` for `/files/{*key}`. Times
/// are short, so that tests are.
pub struct Config {
    sections: BTreeMap<&'static str, BTreeMap<String, String>>,
    more: String,
    env: Vec<(&'static str, String)>,
}

impl Config {
    /// The usual config before an upstream on this loopback port.
    pub fn new(upstream_port: u16) -> Self {
        let url = format!("\"http://127.0.0.1:{upstream_port}\"");
        let mut config = Self {
            sections: BTreeMap::new(),
            more: String::new(),
            // Of no use but where an object store is asked by the gateway itself.
            env: vec![
                ("AWS_ACCESS_KEY_ID", "key".into()),
                ("AWS_SECRET_ACCESS_KEY", "secret".into()),
                ("AWS_EC2_METADATA_DISABLED", "true".into()),
            ],
        };
        for (section, key, value) in [
            ("[server]", "reload_on_change", "false"),
            ("[store]", "engine", "\"rocksdb\""),
            ("[store]", "cache", "\"8MiB\""),
            ("[upstreams.files]", "url", &*url),
            ("[upstreams.files]", "connect_timeout", "\"2s\""),
            ("[upstreams.files]", "response_timeout", "\"8s\""),
            ("[upstreams.files]", "body_idle_timeout", "\"8s\""),
            ("[upstreams.files]", "settle", "\"300ms\""),
            ("[[routes]]", "name", "\"files\""),
            ("[[routes]]", "path", "\"/files/{*key}\""),
            ("[[routes]]", "upstream", "\"files\""),
            ("[[routes]]", "resource", "\"files/{key}\""),
            ("[[routes]]", "drain_timeout", "\"8s\""),
        ] {
            config.set(section, key, value);
        }
        config
    }

    /// Sets a key of `[server]`; the value is TOML.
    pub fn server(mut self, key: &str, value: &str) -> Self {
        self.set("[server]", key, value);
        self
    }

    /// Sets a key of the upstream; the value is TOML.
    pub fn upstream(mut self, key: &str, value: &str) -> Self {
        self.set("[upstreams.files]", key, value);
        self
    }

    /// Sets a key of the route; the value is TOML.
    pub fn route(mut self, key: &str, value: &str) -> Self {
        self.set("[[routes]]", key, value);
        self
    }

    /// Takes a key of the upstream out.
    pub fn upstream_without(mut self, key: &str) -> Self {
        if let Some(upstream) = self.sections.get_mut("[upstreams.files]") {
            upstream.remove(key);
        }
        self
    }

    /// Adds further routes or upstreams, as TOML.
    pub fn more(mut self, toml: &str) -> Self {
        self.more.push_str(toml);
        self.more.push('\n');
        self
    }

    /// Sets a variable of its environment.
    pub fn env(mut self, name: &'static str, value: &str) -> Self {
        self.env.push((name, value.to_owned()));
        self
    }

    fn set(&mut self, section: &'static str, key: &str, value: &str) {
        self.sections
            .entry(section)
            .or_default()
            .insert(key.to_owned(), value.to_owned());
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (section, keys) in &self.sections {
            writeln!(text, "{section}").unwrap();
            for (key, value) in keys {
                writeln!(text, "{key} = {value}").unwrap();
            }
        }
        text + &self.more
    }
}

/// A gateway that runs; killed when dropped.
pub struct Gateway {
    /// Where it listens.
    pub port: u16,
    /// Where its admin listener is.
    pub admin_port: u16,
    folder: TempDir,
    child: Child,
    env: Vec<(&'static str, String)>,
}

impl Gateway {
    /// Makes a store, starts a gateway on it and waits until it is ready.
    #[track_caller]
    pub fn start(mut config: Config) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("fencegate-test-")
            .tempdir()
            .unwrap();
        let (port, admin_port) = (free_port(), free_port());
        config.set("[server]", "listen", &format!("[\"127.0.0.1:{port}\"]"));
        config.set("[admin]", "listen", &format!("\"127.0.0.1:{admin_port}\""));
        config.set(
            "[store]",
            "path",
            &format!("'{}'", folder.path().join("data").display()),
        );
        fs::write(config_file(folder.path()), config.text()).unwrap();
        let init = command(folder.path(), "init").output().unwrap();
        assert!(
            init.status.success(),
            "`fencegate init` ended with {}: {}{}",
            init.status,
            String::from_utf8_lossy(&init.stdout),
            String::from_utf8_lossy(&init.stderr)
        );
        let env = config.env;
        let child = serve(folder.path(), log(folder.path()), &env);
        let mut gateway = Self {
            port,
            admin_port,
            folder,
            child,
            env,
        };
        gateway.wait_ready();
        gateway
    }

    /// A new connection to it.
    #[track_caller]
    pub fn client(&self) -> Client {
        Client::connect(self.port)
    }

    /// Sends one request with a token on a connection of its own.
    #[track_caller]
    pub fn send(&self, method: &str, path: &str, token: u64, body: &[u8]) -> Response {
        self.client()
            .request(method, path, &[("Fencing-Token", &token.to_string())], body)
    }

    /// Puts a file.
    #[track_caller]
    pub fn put(&self, path: &str, token: u64, body: &[u8]) -> Response {
        self.send("PUT", path, token, body)
    }

    /// Gets a file, without a token.
    #[track_caller]
    pub fn get(&self, path: &str) -> Response {
        self.client().request("GET", path, &[], b"")
    }

    /// The most memory that it has had resident so far, in bytes.
    pub fn peak_memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmHWM:"))
            .expect("no VmHWM");
        let digits: String = line.chars().filter(char::is_ascii_digit).collect();
        digits.parse::<u64>().unwrap() * 1024
    }

    /// Asks it to stop, and waits for its end.
    #[track_caller]
    pub fn stop(&mut self) -> ExitStatus {
        self.ask_to_stop();
        self.ended()
    }

    /// Asks it to stop.
    pub fn ask_to_stop(&self) {
        rustix::process::kill_process(self.pid(), rustix::process::Signal::TERM).unwrap();
    }

    /// Kills it as a crash would.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// As [`Gateway::start_again`], with a log that nobody reads: writing to it fails.
    #[track_caller]
    pub fn start_again_without_log(&mut self) {
        let (_, log) = std::io::pipe().unwrap();
        self.child = serve(self.folder.path(), log.into(), &self.env);
        self.wait_ready();
    }

    /// Starts it again on the same config and store, after [`Gateway::stop`] or [`Gateway::kill`].
    #[track_caller]
    pub fn start_again(&mut self) {
        self.begin_again();
        self.wait_ready();
    }

    /// As [`Gateway::start_again`], without waiting until it is ready.
    pub fn begin_again(&mut self) {
        self.child = serve(self.folder.path(), log(self.folder.path()), &self.env);
    }

    /// As [`Gateway::begin_again`], with these variables and this standard input. The process is a shell
    /// at first, which runs `first` and then becomes the gateway.
    pub fn begin_again_by(&mut self, first: &str, env: &[(&str, &str)], stdin: Stdio) {
        let folder = self.folder.path();
        let mut shell = shell(folder, log(folder), first);
        shell.envs(self.env.iter().map(|(name, value)| (name, value)));
        let child = shell.envs(env.iter().copied()).stdin(stdin).spawn();
        self.child = child.unwrap();
    }

    /// Waits for its end, whoever asked for it.
    #[track_caller]
    pub fn ended(&mut self) -> ExitStatus {
        let mut ended = None;
        wait_until("the gateway's end", || {
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        });
        ended.unwrap()
    }

    /// The process.
    pub fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    /// Waits until it is ready.
    #[track_caller]
    pub fn wait_ready(&mut self) {
        let admin_port = self.admin_port;
        wait_until("/readyz", || {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("`fencegate serve` ended with {status}:\n{}", self.log());
            }
            TcpStream::connect(("127.0.0.1", admin_port)).is_ok()
                && Client::connect(admin_port)
                    .request("GET", "/readyz", &[], b"")
                    .status
                    == 200
        });
    }

    /// Runs a command on its configuration, whether it runs or not. Gives the exit code and all that
    /// the command said.
    #[track_caller]
    pub fn command(&self, args: &[&str]) -> (Option<i32>, String) {
        let mut command = command(self.folder.path(), args[0]);
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        let output = command.args(&args[1..]).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        (output.status.code(), said)
    }

    /// Rewrites a part of its configuration, for the next start.
    #[track_caller]
    pub fn edit(&self, from: &str, to: &str) {
        let file = config_file(self.folder.path());
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains(from), "no {from:?} in the configuration");
        fs::write(file, text.replace(from, to)).unwrap();
    }

    /// A file in its folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What it has said so far.
    pub fn log(&self) -> String {
        fs::read_to_string(log_file(self.folder.path())).unwrap_or_default()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It may have ended already; there is nobody to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("the gateway said:\n{}", self.log());
        }
    }
}

fn config_file(folder: &Path) -> PathBuf {
    folder.join("fencegate.toml")
}

fn log_file(folder: &Path) -> PathBuf {
    folder.join("gateway.log")
}

fn log(folder: &Path) -> Stdio {
    let file = File::options()
        .create(true)
        .append(true)
        .open(log_file(folder));
    file.unwrap().into()
}

fn command(folder: &Path, name: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fencegate"));
    command.arg(name).arg("--config").arg(config_file(folder));
    command.current_dir(folder).stdin(Stdio::null());
    command
}

/// It inherits SIGXFSZ ignored, so that a write over a file size limit fails as one on a full disk
/// does.
fn serve(folder: &Path, log: Stdio, env: &[(&'static str, String)]) -> Child {
    let mut shell = shell(folder, log, "trap '' XFSZ");
    shell.envs(env.iter().map(|(name, value)| (name, value)));
    shell.spawn().unwrap()
}

/// A shell that runs `first`, and then becomes the gateway.
fn shell(folder: &Path, log: Stdio, first: &str) -> Command {
    let plain = command(folder, "serve");
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("{first}; exec \"$0\" \"$@\"")])
        .arg(plain.get_program())
        .args(plain.get_args())
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    command
}

/// A free loopback port below the range that the kernel gives to outgoing connections; each is given
/// once, since it is some time until its owner listens. Asked by connecting: a socket bound only to see
/// whether it can be would live on for a moment in every process that another test forks meanwhile.
pub fn free_port() -> u16 {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let state = RandomState::new();
    (0..1000_u32)
        .map(|n| 10_000 + u16::try_from(state.hash_one(n) % 22_000).unwrap())
        .find(|port| {
            TcpStream::connect(("127.0.0.1", *port)).is_err() && GIVEN.lock().insert(*port)
        })
        .expect("no free port")
}

/// Waits until the check holds; fails after ten seconds.
#[track_caller]
pub fn wait_until(what: &str, mut check: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !check() {
        assert!(Instant::now() < end, "waited ten seconds for {what}");
        thread::sleep(Duration::from_millis(20));
    }
}
