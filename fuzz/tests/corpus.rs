//! The properties hold for every input of the corpus, and for every beginning of each: without a fuzzer,
//! and so at each run of the tests.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use fencegate_fuzz::targets;
use libfuzzer_sys as _; // what the counters call, where this is compiled with them
use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

/// What the corpus is kept to.
const MOST_FILES: usize = 60;
const LONGEST: usize = 1024;

fn check(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target);
    let entries = fs::read_dir(&folder).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(
        (5..=MOST_FILES).contains(&files.len()),
        "{} files",
        files.len()
    );
    for file in files {
        let input = fs::read(&file).unwrap();
        assert!(input.len() < LONGEST, "{} is long", file.display());
        for length in 0..=input.len() {
            let beginning = &input[..length];
            assert!(
                catch_unwind(|| check(beginning)).is_ok(),
                "the first {length} bytes of {}: {}",
                file.display(),
                beginning.escape_ascii()
            );
        }
    }
}

#[test]
fn heads() {
    check("head", targets::head::check);
}

#[test]
fn paths() {
    check("path", targets::path::check);
}

#[test]
fn tokens() {
    check("token", targets::token::check);
}

#[test]
fn configs() {
    check("config", targets::config::check);
}

#[test]
fn signatures() {
    check("signature", targets::signature::check);
}
