//! Real clients before the gateway: each puts a fenced body, a stale one, a stale one of 100 MB and a
//! fenced one of 100 MB, over HTTP/1.1 and HTTP/2, with and without TLS.
//!
//! The programs are in `tests/interop/`; each speaks every protocol that its library can. What a library
//! cannot do stands where it would be tested. A client that is missing is a failure, and no skip:
//! `tools/need.sh test` installs them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::authority::Authority;
use support::hashing::{Hashing, hex};
use support::{Config, Gateway};
use tempfile::TempDir;

const SMALL: usize = 4;
const LARGE: usize = 100_000_000;

/// What each client does, one after the other: token and size.
const JOURNEY: [(u64, usize); 4] = [(2, SMALL), (1, SMALL), (1, LARGE), (2, LARGE)];

/// How much a gateway may grow by that.
const GROWTH: u64 = 64 << 20;

/// Seconds after which a program has failed.
const PATIENCE: &str = "120";

/// A gateway without TLS, where HTTP/2 from the first byte is allowed, one with TLS, and the upstream of
/// both.
struct Ground {
    clear: Gateway,
    encrypted: Gateway,
    upstream: Hashing,
    folder: TempDir,
}

/// How a client reaches the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    Tcp,
    Tls,
}

/// What a client says of one PUT.
#[derive(Debug, Deserialize)]
struct Answer {
    /// Where its library says it.
    protocol: Option<String>,
    status: u16,
    headers: HashMap<String, String>,
    body: String,
    /// The SHA-256 of the body that it was to send, as far as it got.
    sent: String,
}

impl Ground {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new();
        authority.renew(folder.path());
        let path = |name: &str| folder.path().join(name);
        fs::write(path("ca.pem"), authority.pem()).unwrap();
        let tls = format!(
            "{{ cert = '{}', key = '{}' }}",
            path("cert.pem").display(),
            path("key.pem").display()
        );
        let upstream = Hashing::start();
        let config = || Config::new(upstream.port);
        Self {
            clear: Gateway::start(config().server("h2c", "true")),
            encrypted: Gateway::start(config().server("tls", &tls)),
            upstream,
            folder,
        }
    }

    fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Sends a client on its journey, and looks at what came of each step. `protocol`: what it is to speak,
    /// as `Via` has it. `client` gets a URL, and gives what its program said.
    #[track_caller]
    fn journey(
        &self,
        name: &str,
        over: Over,
        protocol: &str,
        client: impl FnOnce(&str) -> Vec<Answer>,
    ) {
        let (gateway, scheme) = match over {
            Over::Tcp => (&self.clear, "http"),
            Over::Tls => (&self.encrypted, "https"),
        };
        let target = format!("/files/{name}-{protocol}-{scheme}");
        let before = gateway.peak_memory();
        let answers = client(&format!("{scheme}://127.0.0.1:{}{target}", gateway.port));
        let case = format!("{name}, HTTP/{protocol}, {over:?}");
        let [raised, stale, stale_large, large] = answers.as_slice() else {
            panic!("{case}: not an answer for each request: {answers:#?}");
        };
        raised.admitted(&case, "raised");
        stale.refused(&case);
        stale_large.refused(&case);
        large.admitted(&case, "admitted");
        for answer in &answers {
            let spoken = answer.protocol.as_deref();
            assert!(spoken.is_none_or(|p| p == protocol), "{case}: {answer:#?}");
        }
        // The upstream has seen the two that were admitted, and by which protocol they came.
        let asked = self.upstream.asked(&target);
        let wanted = ("2".to_owned(), format!("{protocol} fencegate"));
        let seen: Vec<_> = asked.into_iter().map(|a| (a.token, a.via)).collect();
        assert_eq!(seen, [wanted.clone(), wanted], "{case}");
        let growth = gateway.peak_memory().saturating_sub(before);
        assert!(growth < GROWTH, "{case}: the gateway grew by {growth}");
    }
}

impl Answer {
    #[track_caller]
    fn admitted(&self, case: &str, word: &str) {
        assert_eq!(self.status, 201, "{case}: {self:#?}");
        assert_eq!(self.headers["fencing-status"], word, "{case}: {self:#?}");
        assert_eq!(self.body, self.sent, "{case}: other bytes at the upstream");
    }

    #[track_caller]
    fn refused(&self, case: &str) {
        assert_eq!(self.status, 412, "{case}: {self:#?}");
        assert_eq!(self.headers["fencing-status"], "stale", "{case}: {self:#?}");
        let kind = &self.headers["content-type"];
        assert_eq!(kind, "application/problem+json", "{case}: {self:#?}");
        let problem: serde_json::Value = serde_json::from_str(&self.body)
            .unwrap_or_else(|e| panic!("{case}: {e}: the body was not read whole: {self:#?}"));
        assert_eq!(
            problem["type"], "urn:fencegate:problem:stale-token",
            "{case}"
        );
    }
}

/// Runs a program of `tests/interop/` with the journey as its last arguments. It says one line for each
/// answer.
#[track_caller]
fn run(program: &mut Command) -> Vec<Answer> {
    let steps = JOURNEY.map(|(token, size)| format!("{token}:{size}"));
    let said = output(program.args(steps));
    let answer = |line: &str| {
        let fault = |e| panic!("{program:?} got no answer ({e}): {line}");
        serde_json::from_str(line).unwrap_or_else(fault)
    };
    said.lines().map(answer).collect()
}

/// Runs a program to its end, and gives what it said.
#[track_caller]
fn output(program: &Command) -> String {
    let mut command = Command::new("timeout");
    command
        .arg(PATIENCE)
        .arg(program.get_program())
        .args(program.get_args());
    for (name, value) in program.get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    let output = command.stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{program:?} ended with {}; to install it: tools/need.sh test\n{said}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    said.into_owned()
}

fn source(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    folder.join("tests/interop").join(name)
}

/// A file of that size, no two blocks of which are equal, and its hash.
fn file(folder: &Path, size: usize) -> (PathBuf, String) {
    let path = folder.join(format!("{size}-bytes"));
    let mut bytes = vec![b'x'; size];
    for (number, block) in (0_u64..).zip(bytes.chunks_exact_mut(4096)) {
        block[..8].copy_from_slice(&number.to_le_bytes());
    }
    fs::write(&path, &bytes).unwrap();
    (path, hex(&Sha256::digest(&bytes)))
}

/// curl speaks all of them. With HTTP/1.1 it asks before it sends a large body (`Expect: 100-continue`),
/// unless it is told not to.
#[test]
fn curl() {
    let ground = Ground::new();
    let files = JOURNEY.map(|(token, size)| (token, file(ground.folder.path(), size)));
    for (name, over, protocol, option, header) in [
        ("curl", Over::Tcp, "1.1", "--http1.1", "Accept: */*"),
        ("curl", Over::Tls, "1.1", "--http1.1", "Accept: */*"),
        ("curl-unasked", Over::Tcp, "1.1", "--http1.1", "Expect:"),
        ("curl-unasked", Over::Tls, "1.1", "--http1.1", "Expect:"),
        ("curl", Over::Tcp, "2", "--http2-prior-knowledge", "Expect:"),
        ("curl", Over::Tls, "2", "--http2", "Expect:"),
    ] {
        ground.journey(name, over, protocol, |url| {
            let put = |(token, (file, hash)): &(u64, (PathBuf, String))| {
                let head = ground.folder.path().join("head");
                let mut curl = Command::new("curl");
                curl.args(["-q", "--silent", "--show-error", "--noproxy", "*"])
                    .args(["--max-time", "60", "--write-out", "\n%{http_version}"])
                    .args([option, "--header", header])
                    .args(["--header", &format!("Fencing-Token: {token}")])
                    .args([Path::new("--cacert"), &ground.ca()])
                    .args([Path::new("--dump-header"), &head])
                    .args([Path::new("--upload-file"), file])
                    .arg(url);
                answer_of_curl(&output(&curl), &fs::read_to_string(head).unwrap(), hash)
            };
            files.iter().map(put).collect()
        });
    }
}

/// `said`: the body, and the protocol on a last line. `heads`: those of the responses, with interim ones.
fn answer_of_curl(said: &str, heads: &str, hash: &str) -> Answer {
    let (body, protocol) = said.rsplit_once('\n').unwrap();
    let last = heads.trim_end().rsplit("\r\n\r\n").next().unwrap();
    let mut lines = last.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap();
    let pair = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.to_ascii_lowercase(), value.trim().to_owned()))
    };
    Answer {
        protocol: Some(protocol.to_owned()),
        status: status.parse().unwrap(),
        headers: lines.filter_map(pair).collect(),
        body: body.to_owned(),
        sent: hash.to_owned(),
    }
}

/// The first Python that has what is needed: one from elsewhere may come before the system's.
fn python() -> Command {
    let mut pythons = ["python3", "/usr/bin/python3"].into_iter();
    let found = pythons.find(|python| {
        let import = Command::new(python)
            .args(["-c", "import httpx, h2"])
            .stderr(Stdio::null())
            .status();
        import.is_ok_and(|status| status.success())
    });
    let found = found.expect("no python3 with httpx and h2; to install them: tools/need.sh test");
    let mut command = Command::new(found);
    command.arg("-B").arg(source("client.py"));
    command
}

/// Python's http.client speaks no HTTP/2.
#[test]
fn python_http_client() {
    let ground = Ground::new();
    for over in [Over::Tcp, Over::Tls] {
        ground.journey("http.client", over, "1.1", |url| {
            let mut client = python();
            run(client
                .args(["http.client", "1.1"])
                .arg(ground.ca())
                .arg(url))
        });
    }
}

#[test]
fn python_httpx() {
    let ground = Ground::new();
    for protocol in ["1.1", "2"] {
        for over in [Over::Tcp, Over::Tls] {
            ground.journey("httpx", over, protocol, |url| {
                let mut client = python();
                run(client.args(["httpx", protocol]).arg(ground.ca()).arg(url))
            });
        }
    }
}

/// Java's `HttpClient` speaks HTTP/2 without TLS only after an upgrade, which the gateway does not take: it
/// goes on with HTTP/1.1 then. Its heap is too small for a body that is held in memory.
#[test]
fn java_http_client() {
    let ground = Ground::new();
    for (name, over, asks, gets) in [
        ("java", Over::Tcp, "1.1", "1.1"),
        ("java", Over::Tls, "1.1", "1.1"),
        ("java", Over::Tls, "2", "2"),
        ("java-upgrade", Over::Tcp, "2", "1.1"),
    ] {
        ground.journey(name, over, gets, |url| {
            let mut client = Command::new("java");
            client.arg("-Xmx64m").arg(source("Client.java"));
            run(client.arg(asks).arg(ground.ca()).arg(url))
        });
    }
}

/// Node's fetch speaks no HTTP/2, and does not say what it speaks.
#[test]
fn node_fetch() {
    let ground = Ground::new();
    for over in [Over::Tcp, Over::Tls] {
        ground.journey("fetch", over, "1.1", |url| {
            let mut client = Command::new("node");
            client.env("NODE_EXTRA_CA_CERTS", ground.ca());
            client.arg(source("client.mjs")).arg("fetch");
            run(client.arg(ground.ca()).arg(url))
        });
    }
}

/// `node:http2` speaks nothing else.
#[test]
fn node_http2() {
    let ground = Ground::new();
    for over in [Over::Tcp, Over::Tls] {
        ground.journey("http2", over, "2", |url| {
            let mut client = Command::new("node");
            client.arg(source("client.mjs")).arg("http2");
            run(client.arg(ground.ca()).arg(url))
        });
    }
}
