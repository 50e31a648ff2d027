//! HTTP/2 conformance: all that h2spec checks, its strict cases too, with and without TLS. The cases that
//! fail are to be those of `tests/h2spec-expected.txt`, no more and no less.
//!
//! `tools/h2spec.sh` builds the program with Go, the first time from the network.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;
use support::authority::Authority;
use support::hashing::Hashing;
use support::{Config, Gateway};

/// h2spec has some more today; a run of fewer was cut short.
const LEAST: usize = 140;

/// Some cases send frames that must come before the answer.
const PAUSE: Duration = Duration::from_millis(100);

#[test]
fn h2spec_fails_where_that_is_expected_alone() {
    let program = build();
    let folder = tempfile::tempdir().unwrap();
    Authority::new().renew(folder.path());
    let path = |name: &str| folder.path().join(name).display().to_string();
    let tls = format!(
        "{{ cert = '{}', key = '{}' }}",
        path("cert.pem"),
        path("key.pem")
    );
    let upstream = Hashing::slow(PAUSE);
    // Its requests have no token.
    let config = || Config::new(upstream.port).route("missing", "\"allow\"");
    let clear = Gateway::start(config().server("h2c", "true"));
    let encrypted = Gateway::start(config().server("tls", &tls));
    let failed = thread::scope(|scope| {
        let clear = scope.spawn(|| run(&program, "clear", clear.port, &[], &path("clear.xml")));
        let options = &["--tls", "--insecure"];
        let mut failed = run(&program, "tls", encrypted.port, options, &path("tls.xml"));
        failed.extend(clear.join().unwrap());
        failed
    });
    let expected = expected();
    let new: Vec<_> = failed.difference(&expected).collect();
    assert!(new.is_empty(), "failed: {new:#?}");
    let passed: Vec<_> = expected.difference(&failed).collect();
    assert!(
        passed.is_empty(),
        "passed, so take them off tests/h2spec-expected.txt: {passed:#?}"
    );
}

fn build() -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("h2spec");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/h2spec.sh");
    let output = Command::new(script).arg(&program).output().unwrap();
    assert!(
        output.status.success(),
        "cannot build h2spec; to install Go: tools/need.sh test\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    program
}

/// The cases that fail, as the list names them: `clear http2/3.5/2`.
fn run(
    program: &Path,
    listener: &str,
    port: u16,
    options: &[&str],
    report: &str,
) -> BTreeSet<String> {
    let output = Command::new(program)
        .args(["--host", "127.0.0.1", "--port", &port.to_string()])
        .args(["--path", "/files/a", "--strict", "--timeout", "10"])
        .args(["--junit-report", report])
        .args(options)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let report = fs::read_to_string(report)
        .unwrap_or_else(|e| panic!("no report of {listener} ({e}):\n{said}"));
    let (mut failed, mut count) = (BTreeSet::new(), 0);
    let (mut last, mut number) = ("", 0);
    for case in report.split("<testcase package=\"").skip(1) {
        let (section, result) = case.split_once('"').unwrap();
        let (result, _) = result.split_once("</testcase>").unwrap();
        number = if section == last { number + 1 } else { 1 };
        last = section;
        count += 1;
        let name = format!("{listener} {section}/{number}");
        assert!(!result.contains("<skipped"), "{name} was skipped");
        if result.contains("<failure") || result.contains("<error") {
            println!("{name}: {result}");
            failed.insert(name);
        }
    }
    println!("{listener}: {count} cases, {} failed", failed.len());
    assert!(count >= LEAST, "only {count} cases:\n{said}");
    failed
}

/// The cases that may fail. Each has its reason behind it.
fn expected() -> BTreeSet<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/h2spec-expected.txt");
    let text = fs::read_to_string(file).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let name = |line: &str| {
        let mut words = line.splitn(3, ' ');
        let name = [words.next().unwrap(), words.next().unwrap()].join(" ");
        let reason = words.next().unwrap_or_default().trim();
        assert!(!reason.is_empty(), "{name} has no reason");
        name
    };
    lines.filter(|line| !line.is_empty()).map(name).collect()
}
