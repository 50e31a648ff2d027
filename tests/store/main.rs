//! The fence store, from outside: what was reported as durable stays, whatever happens to the files,
//! the process or the disk.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod basics;
mod damage;
mod marker;
mod trouble;

use fencegate::clock;
use fencegate::fence::{ResourceKey, Token};
use fencegate::store::{
    Error, FenceStore, Handover, InForce, Init, OpenError, Raise, Record, RocksStore,
};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

const CACHE: usize = 8 << 20;

/// A store that was just made, and the folder that goes away with it.
fn made() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    assert_eq!(RocksStore::init(&path).unwrap(), Init::Created);
    (folder, path)
}

fn try_open(path: &Path) -> Result<(RocksStore, Handover), OpenError> {
    RocksStore::open(path, CACHE, InForce::default(), Arc::new(()))
}

fn open(path: &Path) -> RocksStore {
    try_open(path).unwrap().0
}

fn key(name: &str) -> ResourceKey {
    ResourceKey::new("default", name.as_bytes()).unwrap()
}

fn fence(sequence: u64) -> Record {
    Record {
        token: Token::new(0, sequence),
        drained: false,
    }
}

/// Raises fences together and waits for the outcome.
fn raise_for(store: &RocksStore, fences: &[(&str, u64)], route: Option<&str>) -> Result<(), Error> {
    let (answer, outcome) = sync_channel(1);
    store.commit(Raise {
        fences: fences
            .iter()
            .map(|(name, token)| (key(name), fence(*token)))
            .collect(),
        counted_for: route.map(Arc::from),
        done: Box::new(move |result| answer.send(result).unwrap()),
    });
    outcome.recv().unwrap()
}

fn raise(store: &RocksStore, name: &str, token: u64) -> Result<(), Error> {
    raise_for(store, &[(name, token)], None)
}

fn stored(store: &RocksStore, name: &str) -> Option<u64> {
    store
        .read(key(name).as_bytes())
        .unwrap()
        .map(|record| record.token.sequence())
}

/// Copies a folder, as a crash or a backup tool would leave it.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// All files below a folder and what they hold.
fn contents(path: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(contents(&path));
        } else {
            found.insert(path.clone(), fs::read(path).unwrap());
        }
    }
    found
}

/// Waits for something that must come to pass.
fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let start = clock::now();
    while !is() {
        assert!(
            clock::now().since(start) < Duration::from_mins(1),
            "{what} did not come to pass"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}
