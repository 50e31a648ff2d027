//! The alerts for Prometheus: its own tools accept them, they fire when they should, each has a page, and what they
//! ask for exists. And what the gateway shows is read by those tools, whatever its routes are called.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use support::{Client, Config, Gateway};

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
