//! The alerts for Prometheus: its own tools accept them, they fire when they should, each has a page, and what they
//! ask for exists. And what the gateway shows is read by those tools, whatever its routes are called.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::disallowed_methods)] // tests wait in real time

mod support;

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};
use support::{Client, Config, Gateway, free_port};

const RULES: &str = "config/prometheus/rules.yml";

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn promtool(args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new("promtool")
        .args(args)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| {
            panic!("cannot start promtool ({e}); to install it: tools/need.sh test")
        });
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

#[track_caller]
fn accepts(args: &[&str], input: &[u8]) {
    let output = promtool(args, input);
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "promtool {args:?}: {said}");
}

#[test]
fn prometheus_accepts_the_rules_and_they_fire_when_they_should() {
    accepts(&["check", "rules", RULES], b"");
    accepts(&["test", "rules", "config/prometheus/tests.yml"], b"");
}

#[test]
fn each_alert_has_its_page_and_asks_for_what_exists() {
    let rules = fs::read_to_string(path(RULES)).unwrap();
    let after = |key: &str| -> Vec<&str> {
        let lines = rules
            .lines()
            .map(|line| line.trim().trim_start_matches("- "));
        lines.filter_map(|line| line.strip_prefix(key)).collect()
    };
    let (alerts, exprs) = (after("alert: "), after("expr: "));
    assert!(alerts.len() == exprs.len() && alerts.len() > 10);
    assert_eq!(after("runbook: ").len(), alerts.len());
    for (alert, expr) in alerts.iter().zip(&exprs) {
        let page = format!("docs/runbooks/{alert}.md");
        assert!(rules.contains(&format!("runbook: {page}\n")), "{alert}");
        let text = fs::read_to_string(path(&page)).unwrap();
        let expr: String = serde_json::from_str(expr).unwrap();
        assert!(text.contains(&expr), "{page} has another expression");
    }
    let pages = fs::read_dir(path("docs/runbooks")).unwrap();
    let pages = pages.map(|page| page.unwrap().file_name().into_string().unwrap());
    let pages: BTreeSet<_> = pages.map(|page| page.replace(".md", "")).collect();
    let named: BTreeSet<_> = alerts.iter().map(|alert| (*alert).to_owned()).collect();
    assert_eq!(pages, named);
    let metrics = fs::read_to_string(path("src/record/metrics.rs")).unwrap();
    let words = exprs.iter().flat_map(|expr| {
        expr.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .filter(|word| word.starts_with("fencegate_"))
    });
    for word in words {
        assert!(
            metrics.contains(&format!("\"{word}\"")),
            "{word} is no metric"
        );
    }
}

#[test]
fn the_metrics_are_read_by_prometheus_whatever_names_there_are() {
    let name = "a \\\"b\\\" c\\\\d \u{202e}e";
    let config = Config::new(1).route("name", &format!("\"{name}\""));
    let gateway = Gateway::start(config);
    gateway.put("/files/a\u{fc}\"{}", 5, b"a");
    let page = Client::connect(gateway.admin_port).request("GET", "/metrics", &[], b"");
    let text = String::from_utf8(page.body.clone()).unwrap();
    assert!(text.contains("\u{202e}e"), "{text}");
    accepts(&["check", "metrics"], &page.body);
}

/// A program of Prometheus's, ended when dropped.
struct Running(Child);

impl Running {
    fn start(program: &str, args: &[String]) -> Self {
        let child = Command::new(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(child.unwrap_or_else(|e| {
            panic!("cannot start {program} ({e}); to install it: tools/need.sh test")
        }))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already; there is nobody to tell.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whoever is paged: keeps what the alertmanager sends.
fn on_call() -> (u16, Receiver<Value>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let (send, pages) = channel();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut length, mut line) = (0, String::new());
            while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
                let header = line.to_ascii_lowercase();
                if let Some(value) = header.strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            let mut body = vec![0; length];
            if reader.read_exact(&mut body).is_err() {
                continue;
            }
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            let told: Value = serde_json::from_slice(&body).unwrap();
            if send.send(told).is_err() {
                return; // the test has ended
            }
        }
    });
    (port, pages)
}

/// Waits for a page that says so of an alert.
fn paged(pages: &Receiver<Value>, alert: &str, status: &str) -> Value {
    let end = Instant::now() + Duration::from_secs(90);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let told = pages
            .recv_timeout(left)
            .unwrap_or_else(|_| panic!("no page: {alert} {status}"));
        let alerts = told["alerts"].as_array().unwrap().clone();
        let found = alerts
            .into_iter()
            .find(|found| found["labels"]["alertname"] == alert && found["status"] == status);
        if let Some(found) = found {
            return found;
        }
    }
}

/// With the windows of the rules cut short, or this would take its time.
#[test]
fn a_zombie_pages_through_prometheus_and_its_alertmanager_and_the_page_is_taken_back() {
    let gateway = Gateway::start(Config::new(1));
    let (on_call, told) = on_call();
    let (prometheus, alertmanager) = (free_port(), free_port());
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        fs::write(&file, text).unwrap();
        file.display().to_string()
    };
    let rules = fs::read_to_string(path(RULES)).unwrap();
    let quick = rules.replace("[5m]", "[15s]");
    assert_ne!(quick, rules);
    let rules = write("rules.yml", &quick);
    let config = format!(
        "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}
rule_files: ['{rules}']
alerting: {{ alertmanagers: [ {{ static_configs: [ {{ targets: ['127.0.0.1:{alertmanager}'] }} ] }} ] }}
scrape_configs: [ {{ job_name: fencegate, static_configs: [ {{ targets: ['127.0.0.1:{}'] }} ] }} ]
",
        gateway.admin_port
    );
    let config = write("prometheus.yml", &config);
    let routes = format!(
        "route: {{ receiver: pager, group_wait: 0s, group_interval: 1s, group_by: [alertname, route] }}
receivers: [ {{ name: pager, webhook_configs: [ {{ url: 'http://127.0.0.1:{on_call}/' }} ] }} ]
"
    );
    let routes = write("alertmanager.yml", &routes);
    let data = |name: &str| folder.path().join(name).display().to_string();
    let _alertmanager = Running::start(
        "prometheus-alertmanager",
        &[
            format!("--config.file={routes}"),
            format!("--storage.path={}", data("alertmanager")),
            format!("--web.listen-address=127.0.0.1:{alertmanager}"),
            "--cluster.listen-address=".into(),
        ],
    );
    let _prometheus = Running::start(
        "prometheus",
        &[
            format!("--config.file={config}"),
            format!("--storage.tsdb.path={}", data("prometheus")),
            format!("--web.listen-address=127.0.0.1:{prometheus}"),
        ],
    );
    // A rate is seen between two looks: the zombie writes until it is.
    let seen = thread::spawn(move || (paged(&told, "FencegateZombie", "firing"), told));
    gateway.put("/files/a", 34, b"a");
    while !seen.is_finished() {
        for _ in 0..10 {
            gateway.put("/files/a", 33, b"a").refused(412, "stale");
        }
        thread::sleep(Duration::from_millis(100));
    }
    let (page, told) = seen.join().unwrap();
    assert_eq!(page["labels"]["severity"], "page");
    assert_eq!(page["labels"]["route"], "files");
    assert_eq!(
        page["annotations"]["runbook"],
        "docs/runbooks/FencegateZombie.md"
    );
    let over = paged(&told, "FencegateZombie", "resolved");
    assert_eq!(over["fingerprint"], page["fingerprint"]);
}
