//! Keeps the rules of the house: headers, floors, short files, no panics, a pure `fence`.
//!
//! Reads the sources as text, so it needs no more than the standard library. A rule that turns out
//! wrong is changed here, in a commit that says why.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

#[path = "support/source.rs"]
mod source;

use source::{Source, mentions, mentions_above, module_path, words};

/// The modules of the crate from the ground up. A module imports from lower floors only.
const FLOORS: &[&[&str]] = &[
    &["fence", "fetch", "clock", "socket", "stamp"],
    &["config", "event", "record"],
    &["route", "extract", "verify", "store", "tls"],
    &["sign"],
    &["admit"],
    &["replay", "guard", "forward"],
    &["journey", "refusal"],
    &["listen", "admin"],
    &["app", "lifecycle", "cli"],
];

/// Who may import from its own floor: importer, imported, reason.
const NEIGHBOURS: &[(&str, &str, &str)] = &[
    ("socket", "clock", "it says when it was closed"),
    ("extract", "route", "the route says where its token is"),
    ("forward", "guard", "a write's turn goes with it"),
    ("journey", "refusal", "a journey that fails ends in one"),
    (
        "app",
        "lifecycle",
        "what it composed ends when `Stop` says so",
    ),
    ("cli", "app", "`serve` and `demo` run it"),
    (
        "cli",
        "lifecycle",
        "`serve` makes the `Stop` that signals set",
    ),
];

/// A file has at most this many lines, tests not counted.
const LONGEST: usize = 400;

/// What ends the program where an answer was due.
const PANICS: &[&str] = &[
    ".unwrap()",
    ".unwrap_err()",
    ".expect(",
    ".expect_err(",
    "panic!",
    "todo!",
    "unimplemented!",
    "dbg!",
];

/// What the fence may not take from the standard library, and the words it may not say.
const IMPURE_STD: &[&str] = &["env", "fs", "io", "net", "os", "process", "thread"];
const IMPURE_WORDS: &[&str] = &["Instant", "SystemTime", "async", "await"];

/// What the tests of the fence may use beside the standard library.
const FENCE_TESTS: &[&str] = &["proptest", "stateright"];

#[test]
fn the_house_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let crates = dependencies(&manifest);
    assert!(crates.contains("tokio"), "no dependencies found");
    let product = read_all(&root.join("src"));
    assert!(product.len() > 3, "no sources found");
    let test_files: BTreeSet<PathBuf> = product
        .iter()
        .flat_map(|(path, source)| source.test_files(path))
        .collect();
    let mut faults = Vec::new();
    for (path, source) in &product {
        let all_test = source.is_all_test || test_files.contains(path);
        faults.extend(faults_of(path, source, all_test, &crates));
    }
    for (path, source) in read_all(&root.join("tests")) {
        let path = Path::new("tests").join(path);
        faults.extend(
            header(&source)
                .into_iter()
                .chain(ignored(&source))
                .map(|f| at(&path, &f)),
        );
    }
    faults.extend(unused(&product));
    assert!(
        faults.is_empty(),
        "{} faults:\n{}",
        faults.len(),
        faults.join("\n")
    );
}

/// Every fault of a file of the product; `path` is relative to `src`.
fn faults_of(
    path: &Path,
    source: &Source,
    all_test: bool,
    crates: &BTreeSet<String>,
) -> Vec<String> {
    let modules = module_path(path);
    let mut faults = header(source);
    faults.extend(ignored(source));
    if !all_test {
        faults.extend(too_long(source));
        faults.extend(panics(source));
        faults.extend(imports(&modules, source));
    }
    if modules.first().is_some_and(|top| top == "fence") {
        faults.extend(impure(source, all_test, crates));
    }
    let path = Path::new("src").join(path);
    faults.iter().map(|fault| at(&path, fault)).collect()
}

fn at(path: &Path, fault: &str) -> String {
    format!("{}: {fault}", path.display())
}

fn header(source: &Source) -> Vec<String> {
    let first = source
        .text
        .lines()
        .find(|line| !line.trim().is_empty())
        .unwrap_or_default();
    let said = first
        .strip_prefix("//!")
        .is_some_and(|rest| !rest.trim().is_empty());
    if said {
        vec![]
    } else {
        vec!["has no `//!` header that says what it is for".into()]
    }
}

fn too_long(source: &Source) -> Vec<String> {
    let lines = source.product_lines();
    if lines <= LONGEST {
        vec![]
    } else {
        vec![format!("has {lines} lines without its tests; split it")]
    }
}

fn panics(source: &Source) -> Vec<String> {
    let found = |needle: &&str| source.lines_of(&source.product, needle);
    PANICS
        .iter()
        .flat_map(|p| found(p).into_iter().map(move |l| format!("line {l}: {p}")))
        .collect()
}

fn ignored(source: &Source) -> Vec<String> {
    let lines = source.lines_of(&source.code, "#[ignore");
    lines
        .iter()
        .map(|l| format!("line {l}: an ignored test tests nothing"))
        .collect()
}

/// Imports that go up or sideways.
fn imports(modules: &[String], source: &Source) -> Vec<String> {
    let Some(own) = modules.first() else {
        return vec![];
    }; // lib.rs and main.rs see everything
    let Some(floor) = floor_of(own) else {
        return vec![format!("`{own}` has no place in FLOORS (tests/tidy.rs)")];
    };
    let mut found = mentions(&source.product, "crate");
    // `super` from an inline module means less than it says; a name that is no module is no import.
    found.extend(
        mentions_above(&source.product, modules.len())
            .into_iter()
            .filter(|(_, name)| floor_of(name).is_some()),
    );
    let judge = |(offset, other): &(usize, String)| {
        let what = match floor_of(other) {
            _ if other == own => return None,
            None => "which is no module of the crate: name the one that it comes from",
            Some(its) if its < floor => return None,
            Some(its) if its > floor => "which stands above it",
            Some(_) if NEIGHBOURS.iter().any(|(a, b, _)| a == own && b == other) => return None,
            Some(_) => "which stands beside it: pass the value, or give a reason in NEIGHBOURS",
        };
        let line = source.line(*offset);
        Some(format!("line {line}: `{own}` imports `{other}`, {what}"))
    };
    found.iter().filter_map(judge).collect()
}

/// Exceptions that no import needs any more.
fn unused(product: &[(PathBuf, Source)]) -> Vec<String> {
    let mut used = BTreeSet::new();
    for (path, source) in product {
        if let Some(own) = module_path(path).into_iter().next() {
            let others = mentions(&source.product, "crate").into_iter();
            used.extend(others.map(|(_, other)| (own.clone(), other)));
        }
    }
    let is_used = |a: &str, b: &str| used.contains(&(a.to_owned(), b.to_owned()));
    let stale = NEIGHBOURS.iter().filter(|(a, b, _)| !is_used(a, b));
    stale
        .map(|(a, b, _)| format!("NEIGHBOURS: `{a}` does not import `{b}`; take it off"))
        .collect()
}

fn floor_of(module: &str) -> Option<usize> {
    FLOORS.iter().position(|floor| floor.contains(&module))
}

/// What makes the rules depend on more than their input.
fn impure(source: &Source, all_test: bool, crates: &BTreeSet<String>) -> Vec<String> {
    let mut faults = Vec::new();
    let mut fault = |offset, what: &str| {
        faults.push(format!(
            "line {}: the fence uses {what}",
            source.line(offset)
        ));
    };
    let (product, tests) = if all_test {
        ("", &source.code)
    } else {
        (&*source.product, &source.tests)
    };
    for (offset, name) in mentions(product, "std") {
        if IMPURE_STD.contains(&&*name) {
            fault(offset, &format!("std::{name}"));
        }
    }
    for (offset, word) in words(product) {
        if IMPURE_WORDS.contains(&word) {
            fault(offset, word);
        }
        if crates.contains(word) && is_crate(product, offset, word) {
            fault(offset, &format!("the crate {word}"));
        }
    }
    for (offset, word) in words(tests) {
        if crates.contains(word) && is_crate(tests, offset, word) && !FENCE_TESTS.contains(&word) {
            fault(offset, &format!("the crate {word} in a test"));
        }
    }
    faults
}

/// Whether the word at that place names a crate: it begins a path, or is all of a `use`.
fn is_crate(code: &str, offset: usize, word: &str) -> bool {
    let before = code[..offset].trim_end();
    let begins = !before.ends_with("::") && !before.ends_with('.');
    begins && (code[offset + word.len()..].starts_with("::") || before.ends_with("use"))
}

/// The names of the dependencies as code spells them.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut within = false;
    for line in manifest.lines() {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            within = section.ends_with("dependencies");
            if let Some((_, name)) = section.split_once("dependencies.") {
                names.insert(name.replace('-', "_"));
            }
        } else if let (true, Some((name, _))) = (within, line.split_once('=')) {
            names.insert(name.trim().trim_end_matches(".workspace").replace('-', "_"));
        }
    }
    names
}

/// All Rust files below a folder, with their paths relative to it.
fn read_all(folder: &Path) -> Vec<(PathBuf, Source)> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                files.push((
                    path.strip_prefix(folder).unwrap().to_path_buf(),
                    Source::new(&text),
                ));
            }
        }
    }
    files.sort_by(|a, b| a.0.cmp(&b.0));
    files
}

// --- the rules can fail ---

/// The faults of a sample, joined. A header is put before it.
fn judged(path: &str, code: &str) -> String {
    let source = Source::new(&format!("//! A sample.\n{code}"));
    let crates = ["tokio", "proptest", "http"].map(String::from).into();
    faults_of(Path::new(path), &source, source.is_all_test, &crates).join("\n")
}

#[track_caller]
fn good(path: &str, code: &str) {
    assert_eq!(judged(path, code), "", "{path}: {code}");
}

#[track_caller]
fn bad(path: &str, code: &str, fault: &str) {
    let faults = judged(path, code);
    assert!(
        faults.contains(fault),
        "{path}:\n{code}\nwanted {fault:?}, got {faults:?}"
    );
}

#[test]
fn a_file_without_a_header_is_a_fault() {
    let crates = BTreeSet::new();
    for text in ["", "use std::fmt;\n", "// plain\n", "//!\n//! late\n"] {
        let faults = faults_of(
            Path::new("cli/check.rs"),
            &Source::new(text),
            false,
            &crates,
        );
        assert!(faults.concat().contains("header"), "{text:?}: {faults:?}");
    }
}

#[test]
fn imports_go_down() {
    good(
        "admit/mod.rs",
        "use crate::fence::Token;\nuse crate::{config, store::{self, Fence}};",
    );
    good(
        "admit/shell.rs",
        "use super::super::store; use super::journey;",
    );
    good("journey.rs", "use crate::refusal::Refusal;");
    good("lib.rs", "pub mod cli; use crate::anything;");
    good(
        "store/mod.rs",
        "// crate::cli\nconst TEXT: &str = \"crate::cli\";",
    );
    good(
        "store/mod.rs",
        "#[cfg(test)]\nmod tests { use crate::cli; }",
    );
    bad("fence/gate.rs", "use crate::clock::Clock;", "beside it");
    bad(
        "store/mod.rs",
        "use crate::fence::Token;\nuse crate::admit;",
        "line 3: `store` imports `admit`",
    );
    bad(
        "store/mod.rs",
        "use crate::{fence::{Token, Format}, journey};",
        "imports `journey`",
    );
    bad(
        "store/mod.rs",
        "use crate::{\n    fence::Token,\n    admit::{Pass},\n};",
        "line 4: `store`",
    );
    bad(
        "store/mod.rs",
        "fn f() { crate::cli::run() }",
        "imports `cli`",
    );
    bad("store/mod.rs", "use super::admit;", "imports `admit`");
    bad(
        "store/rocks/mod.rs",
        "use super::super::admit;",
        "imports `admit`",
    );
    bad("store/mod.rs", "use crate::route::Route;", "beside it");
    bad("route/mod.rs", "use crate::extract;", "beside it");
    bad(
        "store/mod.rs",
        "use crate::Token;",
        "no module of the crate",
    );
    bad("utils.rs", "", "no place in FLOORS");
}

#[test]
fn an_exception_that_is_not_needed_is_a_fault() {
    let one = |code: &str| vec![(PathBuf::from("extract.rs"), Source::new(code))];
    let count = |code: &str| unused(&one(code)).len();
    assert_eq!(count(""), NEIGHBOURS.len());
    assert_eq!(count("use crate::route::Route;"), NEIGHBOURS.len() - 1);
}

#[test]
fn product_code_does_not_panic() {
    good(
        "store/mod.rs",
        "fn f() { a.unwrap_or(1); b.expected(); no_panic!(); 'x'; '\"'; } // .unwrap()",
    );
    good(
        "store/mod.rs",
        "/// ```\n/// f().unwrap();\n/// ```\nfn f<'a>(x: &'a str) {}",
    );
    good(
        "store/mod.rs",
        "#[cfg(test)]\n#[allow(x)]\nmod tests { fn f() { if a { b.unwrap() } } }",
    );
    good("store/mod.rs", "#![cfg(test)]\nfn f() { b.unwrap() }");
    bad(
        "store/mod.rs",
        "fn f() { a\n    .unwrap(); }",
        "line 3: .unwrap()",
    );
    bad("store/mod.rs", "fn f() { a.expect(\"b\"); }", ".expect(");
    bad("store/mod.rs", "fn f() { panic!() }", "panic!");
    bad("store/mod.rs", "fn f() { std::todo!() }", "todo!");
    bad(
        "store/mod.rs",
        "fn f() { unimplemented!(); dbg!(1); }",
        "dbg!",
    );
    bad(
        "store/mod.rs",
        "#[cfg(test)]\nuse x::{y};\nfn f() { a.unwrap() }",
        "line 4",
    );
    bad(
        "store/mod.rs",
        "#[cfg(test)]\nfn g(a: [u8; 2]) {}\nfn f() { r#\"\"\"#; a.unwrap() }",
        "line 4",
    );
}

#[test]
fn a_long_file_is_a_fault_and_its_tests_do_not_count() {
    let lines = |n| "// x\n".repeat(n);
    good("store/mod.rs", &lines(LONGEST - 1));
    good(
        "store/mod.rs",
        &format!("#[cfg(test)]\nmod tests {{\n{}}}\n", lines(LONGEST)),
    );
    bad("store/mod.rs", &lines(LONGEST), "401 lines");
}

#[test]
fn the_fence_is_pure() {
    good(
        "fence/gate.rs",
        "use std::{fmt, time::Duration};\nfn f(http: u8) { http; x.tokio(); a::http::b }",
    );
    good(
        "fence/gate.rs",
        "#[cfg(test)]\nmod tests { use proptest::prelude::*; use std::thread; }",
    );
    bad(
        "fence/gate.rs",
        "use tokio::sync::Notify;",
        "the crate tokio",
    );
    bad("fence/gate.rs", "use http;", "the crate http");
    bad(
        "fence/gate.rs",
        "fn f(m: &http::Method) {}",
        "the crate http",
    );
    bad(
        "fence/gate.rs",
        "use proptest::prelude::*;",
        "the crate proptest",
    );
    bad(
        "fence/gate.rs",
        "#[cfg(test)]\nmod tests { use tokio::sync; }",
        "the crate tokio in a test",
    );
    bad("fence/gate.rs", "use std::{fmt, fs};", "std::fs");
    bad("fence/gate.rs", "use std::time::Instant;", "Instant");
    bad("fence/gate.rs", "async fn f() {}", "async");
}

#[test]
fn an_ignored_test_is_a_fault() {
    good("store/mod.rs", "// #[ignore]\n");
    bad(
        "store/mod.rs",
        "#[cfg(test)]\nmod tests {\n#[test]\n#[ignore = \"slow\"]\nfn f() {} }",
        "line 5",
    );
}

#[test]
fn test_files_are_known_by_their_declaration() {
    let source = Source::new("#[cfg(test)]\nmod tests;\n#[cfg(test)]\nmod model;\nmod gate;");
    let mut text = String::new();
    for file in source.test_files(Path::new("fence/mod.rs")) {
        write!(text, "{} ", file.display()).unwrap();
    }
    assert_eq!(
        text,
        "fence/tests.rs fence/tests/mod.rs fence/model.rs fence/model/mod.rs "
    );
    assert_eq!(
        Source::new("#[cfg(test)]\nmod t;").test_files(Path::new("app.rs"))[0],
        Path::new("app/t.rs")
    );
    assert_eq!(
        Source::new("#[cfg(test)]\nmod t;").test_files(Path::new("lib.rs"))[0],
        Path::new("t.rs")
    );
}
