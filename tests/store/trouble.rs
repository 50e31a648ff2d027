//! Crashes and failing disks. Each plays in a child process: this test program, started anew to run
//! one of the tests named `child_…`, which do nothing otherwise.

use super::*;
use fencegate::store::Observer;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

const PLACE: &str = "FENCEGATE_TEST_STORE";

/// The folder that a child works on; `None` in an ordinary run.
fn place() -> Option<PathBuf> {
    std::env::var_os(PLACE).map(PathBuf::from)
}

/// A shell script that sees the store's folder as `$1` and the child's command as the rest.
fn child(role: &str, script: &str, path: &Path) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", script, "sh"])
        .arg(path)
        .arg(std::env::current_exe().unwrap());
    command
        .args(["--exact", role, "--nocapture"])
        .env(PLACE, path);
    command
}

/// Counts failures by what failed.
#[derive(Default)]
struct Failures {
    reopen: AtomicUsize,
    other: AtomicUsize,
}

impl Observer for Failures {
    fn failed(&self, op: &'static str) {
        let count = if op == "reopen" {
            &self.reopen
        } else {
            &self.other
        };
        count.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn kill_loses_nothing_that_was_reported() {
    let (_folder, path) = made();
    let mut highest = 0;
    for round in 0..5 {
        let mut child = child("trouble::child_commits", "shift; exec \"$@\"", &path);
        let mut child = child.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let tokens =
            lines.filter_map(|line| line.unwrap().strip_prefix("durable ")?.parse::<u64>().ok());
        for token in tokens.take(40) {
            highest = highest.max(token);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(highest >= (round + 1) * 10);
        let (store, handover) = try_open(&path).unwrap();
        assert!(!handover.clean);
        assert!(stored(&store, "a") >= Some(highest) && stored(&store, "b") >= Some(highest));
    }
}

#[test]
fn child_commits() {
    let Some(path) = place() else { return };
    let store = open(&path);
    let start = stored(&store, "a").unwrap_or(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for step in 0.. {
                    let token = start + 1 + step * 4 + thread;
                    raise_for(store, &[("a", token), ("b", token)], None).unwrap();
                    println!("durable {token}");
                }
            });
        }
    });
}

#[test]
fn writes_that_are_forbidden_and_allowed_again() {
    let (_folder, path) = made();
    let status = child(
        "trouble::child_without_writes",
        "trap '' XFSZ; shift; exec \"$@\"",
        &path,
    )
    .status();
    assert!(status.unwrap().success());
    let (store, handover) = try_open(&path).unwrap();
    assert!(handover.clean);
    assert_eq!(
        (stored(&store, "a"), stored(&store, "b")),
        (Some(7), Some(1))
    );
}

#[test]
fn child_without_writes() {
    let Some(path) = place() else { return };
    let failures = Arc::new(Failures::default());
    let (store, _) = RocksStore::open(&path, CACHE, InForce::default(), failures.clone()).unwrap();
    raise_for(&store, &[("a", 5)], Some("files")).unwrap();
    let free = getrlimit(Resource::Fsize);
    for token in [6, 7] {
        setrlimit(
            Resource::Fsize,
            Rlimit {
                current: Some(0),
                maximum: free.maximum,
            },
        )
        .unwrap();
        assert!(matches!(raise(&store, "a", token), Err(Error::Down(_))));
        refuses(&store);
        waits_without_garbage(&path, &store, &failures);
        setrlimit(Resource::Fsize, free).unwrap();
        recovers(&store);
        assert!(stored(&store, "a") >= Some(token - 1));
        raise(&store, "a", token).unwrap();
        raise(&store, "a", token - 1).unwrap();
        assert_eq!(
            (stored(&store, "a"), store.created_by("files")),
            (Some(token), 1)
        );
    }
    raise(&store, "b", 1).unwrap();
    store.close(true).unwrap();
}

#[test]
fn a_full_disk_and_space_again() {
    let (_folder, path) = made();
    let script = "mount -t tmpfs -o size=12m none \"$1\" || exit 77; shift; exec \"$@\"";
    let script = format!("unshare -m true || exit 77; exec unshare -m sh -c '{script}' sh \"$@\"");
    let status = child("trouble::child_on_a_small_disk", &script, &path)
        .status()
        .unwrap();
    if status.code() != Some(77) {
        assert!(status.success());
    }
}

#[test]
fn child_on_a_small_disk() {
    let Some(path) = place() else { return };
    assert_eq!(RocksStore::init(&path).unwrap(), Init::Created);
    let failures = Arc::new(Failures::default());
    let (store, _) = RocksStore::open(&path, CACHE, InForce::default(), failures.clone()).unwrap();
    let long = "k".repeat(1500);
    let mut highest = 1;
    raise(&store, &long, highest).unwrap();
    for _ in 0..2 {
        let filler = path.join("db").join("filler");
        let mut file = fs::File::create(&filler).unwrap();
        while std::io::Write::write(&mut file, &[0; 8192]).is_ok_and(|written| written == 8192) {}
        let failed = (1..5000)
            .map(|step| highest + step)
            .find(|&token| raise(&store, &long, token).is_err());
        let failed = failed.expect("the disk is not full");
        refuses(&store);
        waits_without_garbage(&path, &store, &failures);
        fs::remove_file(&filler).unwrap();
        drop(file);
        recovers(&store);
        let found = stored(&store, &long);
        assert!(
            found >= Some(failed - 1),
            "{found:?}, and {failed} was refused"
        );
        highest = failed + 1;
        raise(&store, &long, highest).unwrap();
    }
    drop(store);
    assert_eq!(stored(&open(&path), &long), Some(highest));
}

#[test]
fn damage_found_when_it_comes_back_is_final() {
    let (_folder, path) = made();
    let status = child(
        "trouble::child_loses_a_file",
        "trap '' XFSZ; shift; exec \"$@\"",
        &path,
    )
    .status();
    assert!(status.unwrap().success());
}

#[test]
fn child_loses_a_file() {
    let Some(path) = place() else { return };
    let store = open(&path);
    raise(&store, "a", 5).unwrap();
    let free = getrlimit(Resource::Fsize);
    setrlimit(
        Resource::Fsize,
        Rlimit {
            current: Some(0),
            maximum: free.maximum,
        },
    )
    .unwrap();
    raise(&store, "a", 6).unwrap_err();
    fs::remove_file(path.join("db").join("CURRENT")).unwrap();
    setrlimit(Resource::Fsize, free).unwrap();
    eventually("the damage", || {
        matches!(raise(&store, "a", 7), Err(Error::Damaged(_)))
    });
    assert!(!store.is_ready() && store.trouble().unwrap().contains("CURRENT"));
    assert!(store.read(key("a").as_bytes()).is_err());
    assert!(store.close(true).is_err());
    assert!(!path.join("clean").exists());
}

fn refuses(store: &RocksStore) {
    assert!(!store.is_ready() && store.trouble().is_some());
    assert!(store.peek(key("a").as_bytes()).is_err() && store.read(key("a").as_bytes()).is_err());
    assert!(raise(store, "a", 1).is_err());
}

/// Some attempts to come back fail, and leave nothing more behind than the first.
fn waits_without_garbage(path: &Path, store: &RocksStore, failures: &Failures) {
    let attempts = |more: usize| {
        let start = failures.reopen.load(Ordering::SeqCst);
        eventually("an attempt", || {
            failures.reopen.load(Ordering::SeqCst) >= start + more
        });
    };
    attempts(1);
    let files = contents(path).len();
    attempts(3);
    assert_eq!(
        contents(path).len(),
        files,
        "failed attempts leave files behind"
    );
    assert!(!store.is_ready());
}

fn recovers(store: &RocksStore) {
    let start = clock::now();
    eventually("the recovery", || store.is_ready());
    println!("recovered after {:?}", clock::now().since(start));
    assert!(store.trouble().is_none());
}
