//! Keeps the pages true: every key, metric, problem type and decision is described, the example
//! configurations have no faults, and links lead somewhere.
//!
//! Reads the sources as text for what they do not offer as values.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use fencegate::config;
use fencegate::record::Decision;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

fn read(path: &str) -> String {
    let full = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&full).unwrap_or_else(|e| panic!("{}: {e}", full.display()))
}

/// A source without its tests.
fn code(path: &str) -> String {
    let text = read(path);
    let end = text.find("#[cfg(test)]").unwrap_or(text.len());
    text[..end].to_owned()
}

/// The texts in quotes that are made of these characters only.
fn quoted(text: &str, fits: impl Fn(char) -> bool + Copy) -> BTreeSet<String> {
    let texts = text.split('"').skip(1).step_by(2);
    let fitting = texts.filter(|t| !t.is_empty() && t.chars().all(fits));
    fitting.map(str::to_owned).collect()
}

/// The keys of the sample, commented ones too, as configuration.md calls them.
fn keys_of_the_sample() -> BTreeSet<String> {
    let (mut table, mut keys) = (String::new(), BTreeSet::new());
    for line in read("config/fencegate.toml").lines() {
        let line = line.trim_start_matches("# ").trim();
        if let Some(name) = line.strip_prefix('[') {
            let name = name.trim_matches(|c| c == '[' || c == ']');
            let first = name.split('.').next().unwrap_or_default();
            table = match first {
                "upstreams" => "upstreams.NAME".to_owned(),
                first => first.to_owned(),
            };
        } else if let Some((key, value)) = line.split_once(" = ")
            && is_key(key)
        {
            let table = if table.is_empty() {
                String::new()
            } else {
                format!("{table}.")
            };
            keys.insert(format!("{table}{key}"));
            for (inner, _) in value.match_indices(" = ") {
                let name = value[..inner].rsplit([' ', '{']).next().unwrap_or_default();
                if is_key(name) && value.starts_with('{') {
                    keys.insert(format!("{table}{key}.{name}"));
                }
            }
        }
    }
    // These stand in a sentence of the sample.
    keys.extend(["query", "path_prefix"].map(|key| format!("routes.token.{key}")));
    keys
}

fn is_key(text: &str) -> bool {
    !text.is_empty()
        && text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// The keys that configuration.md has an entry for.
fn keys_of_the_page() -> BTreeSet<String> {
    let page = read("docs/configuration.md");
    let entries = page
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("- `"));
    let mut keys = BTreeSet::new();
    for entry in entries {
        let (names, _) = entry.split_once(" (").unwrap_or((entry, ""));
        for name in names.split("`, `") {
            keys.insert(name.trim_end_matches('`').to_owned());
        }
    }
    keys
}

#[test]
fn every_key_of_the_sample_is_described() {
    let sample = keys_of_the_sample();
    assert!(sample.len() > 45, "the sample is read wrongly: {sample:#?}");
    let page = keys_of_the_page();
    let missing: Vec<_> = sample.difference(&page).collect();
    assert!(
        missing.is_empty(),
        "not in docs/configuration.md: {missing:#?}"
    );
    let extra: Vec<_> = page.difference(&sample).collect();
    assert!(
        extra.is_empty(),
        "in docs/configuration.md, but not in the sample: {extra:#?}"
    );
}

#[test]
fn every_metric_is_described() {
    let source = code("src/record/metrics.rs");
    let mut metrics = quoted(&source, |c| c.is_ascii_lowercase() || c == '_');
    metrics.retain(|name| name.starts_with("fencegate_"));
    assert!(
        metrics.len() > 10,
        "metrics.rs is read wrongly: {metrics:#?}"
    );
    let page = read("docs/operations.md");
    for name in metrics {
        assert!(
            page.contains(&format!("| `{name}` |")),
            "{name} has no row in docs/operations.md"
        );
    }
    for op in fencegate::record::metrics::STORE_OPS {
        assert!(
            page.contains(&format!("`{op}`")),
            "{op} is not in docs/operations.md"
        );
    }
}

#[test]
fn every_refusal_is_described() {
    let source = code("src/refusal.rs");
    let page = read("docs/refusals.md");
    // A problem type stands alone on its line in the table of answers.
    let lines = source.lines().map(str::trim).filter(|line| {
        line.strip_prefix('"')
            .and_then(|line| line.strip_suffix("\","))
            .is_some()
    });
    let alone = lines.collect::<String>();
    let kinds = quoted(&alone, |c| c.is_ascii_lowercase() || c == '-');
    assert!(kinds.len() > 10, "refusal.rs is read wrongly: {kinds:#?}");
    for kind in kinds {
        assert!(
            page.lines().any(|line| line == format!("### {kind}")),
            "{kind} has no entry in docs/refusals.md"
        );
    }
    let source = source + &code("src/refusal/why.rs");
    let words = quoted(&source, |c| c.is_ascii_lowercase() || c == '_');
    let errors: Vec<_> = words.iter().filter(|word| word.contains('_')).collect();
    assert!(errors.len() > 5, "refusal.rs is read wrongly: {errors:#?}");
    for error in errors {
        assert!(
            page.contains(&format!("| `{error}` |")),
            "{error} has no row in docs/refusals.md"
        );
    }
    for decision in Decision::ALL {
        let word = decision.word();
        assert!(
            page.contains(&format!("`{word}`")),
            "{word} is not in docs/refusals.md"
        );
    }
}

/// Every page of the project.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = [root.to_owned(), root.join("docs")];
    let entries = folders
        .iter()
        .flat_map(|folder| fs::read_dir(folder).unwrap());
    let paths = entries.map(|entry| entry.unwrap().path());
    let pages: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|e| e == "md"))
        .collect();
    assert!(pages.len() > 6, "pages are missing: {pages:#?}");
    pages
}

#[test]
fn example_configurations_have_no_faults() {
    let mut examples = vec![(
        "config/fencegate.toml".into(),
        read("config/fencegate.toml"),
    )];
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        let blocks = text.split("```").skip(1).step_by(2);
        for block in blocks.filter(|block| block.contains("[[routes]]")) {
            // It may stand in a shell command that writes it into a file.
            let start = block.find("\n[").map_or(0, |at| at + 1);
            let end = block.find("\nEND\n").unwrap_or(block.len());
            examples.push((page.display().to_string(), block[start..end].to_owned()));
        }
    }
    assert!(examples.len() > 3, "examples are missing");
    for (page, text) in examples {
        if let Err(faults) = config::load(&text) {
            panic!("{page}: {faults:#?}\n{text}");
        }
    }
}

/// The values of a key in a unit.
fn of_unit<'a>(unit: &'a str, key: &'a str) -> Vec<&'a str> {
    let pairs = unit.lines().filter_map(|line| line.split_once('='));
    let found = pairs.filter(|(name, _)| *name == key);
    found.map(|(_, value)| value).collect()
}

#[test]
fn the_units_fit_the_sample() {
    let sample = config::load(&read("config/fencegate.toml")).unwrap();
    let settings = sample.settings;
    let addresses = settings
        .server
        .listen
        .iter()
        .chain([&settings.admin.listen]);
    let addresses: Vec<String> = addresses.map(ToString::to_string).collect();
    let socket = read("config/fencegate.socket");
    assert_eq!(of_unit(&socket, "ListenStream"), addresses);
    let service = read("config/fencegate.service");
    let stop = of_unit(&service, "TimeoutStopSec")[0].parse().unwrap();
    assert!(Duration::from_secs(stop) > settings.server.shutdown_timeout);
    assert_eq!(of_unit(&service, "Type"), ["notify"]);
}

/// Where systemd is at hand it says what it thinks of the units.
#[test]
fn systemd_finds_no_fault_in_the_units() {
    let folder = tempfile::tempdir().unwrap();
    let mut paths = Vec::new();
    for name in ["fencegate.service", "fencegate.socket"] {
        // A program and a user that there are.
        let unit = read(&format!("config/{name}"));
        let unit = unit.replace("/usr/local/bin/fencegate", "/bin/true");
        let unit = unit.replace("=fencegate\nGroup=fencegate", "=root\nGroup=root");
        let path = folder.path().join(name);
        fs::write(&path, unit).unwrap();
        paths.push(path);
    }
    let verify = Command::new("systemd-analyze")
        .arg("verify")
        .args(paths)
        .output();
    let Ok(verify) = verify else { return };
    let said = String::from_utf8_lossy(&verify.stderr);
    let faults = said.lines().filter(|line| line.contains("fencegate"));
    let faults: Vec<_> = faults.collect();
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn links_lead_somewhere() {
    let mut broken = Vec::new();
    for page in pages() {
        let text = prose(&fs::read_to_string(&page).unwrap());
        for link in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            if link.contains("://") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() {
                page.clone()
            } else {
                page.with_file_name("").join(path)
            };
            let found = target.exists()
                && (anchor.is_empty()
                    || anchors(&fs::read_to_string(&target).unwrap()).contains(anchor));
            if !found {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// A page without its code blocks.
fn prose(text: &str) -> String {
    text.split("```").step_by(2).collect()
}

/// The anchors that a page's headings make.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = heading
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}
