//! Fences in, fences out.

use super::*;
use fencegate::store::{Observer, Peek};
use parking_lot::Mutex;
use std::collections::HashMap;

#[test]
fn fences_stay_over_close_and_over_a_drop() {
    let (_folder, path) = made();
    let store = open(&path);
    raise(&store, "a", 5).unwrap();
    store.close(true).unwrap();
    drop(store);
    let store = open(&path);
    assert_eq!(stored(&store, "a"), Some(5));
    raise(&store, "a", 6).unwrap();
    raise_for(&store, &[("b", 7), ("c", 7)], None).unwrap();
    drop(store);
    let store = open(&path);
    assert_eq!(
        [
            stored(&store, "a"),
            stored(&store, "b"),
            stored(&store, "c")
        ],
        [Some(6), Some(7), Some(7)]
    );
    assert_eq!(stored(&store, "d"), None);
}

#[test]
fn a_lower_raise_never_lowers() {
    let (_folder, path) = made();
    let store = open(&path);
    for token in [
        9,
        10,
        255,
        256,
        65_536,
        1 << 31,
        1 << 32,
        (1 << 63) - 1,
        u64::MAX,
    ] {
        raise(&store, "a", token).unwrap();
        raise(&store, "a", token - 1).unwrap();
        assert_eq!(stored(&store, "a"), Some(token));
    }
    drop(store);
    assert_eq!(stored(&open(&path), "a"), Some(u64::MAX));
}

#[test]
fn peek_answers_from_memory_only() {
    let (_folder, path) = made();
    let store = open(&path);
    raise(&store, "a", 5).unwrap();
    assert_eq!(
        store.peek(key("a").as_bytes()).unwrap(),
        Peek::Known(Some(fence(5)))
    );
    store.close(true).unwrap();
    drop(store);
    let store = open(&path);
    // Cold, it may not know; after a read, it must.
    assert!(matches!(
        store.peek(key("a").as_bytes()).unwrap(),
        Peek::OnDisk | Peek::Known(Some(_))
    ));
    store.read(key("a").as_bytes()).unwrap();
    assert_eq!(
        store.peek(key("a").as_bytes()).unwrap(),
        Peek::Known(Some(fence(5)))
    );
}

#[test]
fn drained_belongs_to_its_token() {
    let (_folder, path) = made();
    let store = open(&path);
    let drained = |store: &RocksStore| store.read(key("a").as_bytes()).unwrap().unwrap().drained;
    raise(&store, "a", 5).unwrap();
    store.mark_drained(key("a"), Token::new(0, 4));
    raise(&store, "other", 1).unwrap();
    assert!(!drained(&store));
    store.mark_drained(key("a"), Token::new(0, 5));
    raise(&store, "other", 2).unwrap();
    assert!(drained(&store));
    raise(&store, "a", 5).unwrap();
    assert!(drained(&store), "an equal raise took the mark away");
    drop(store);
    let store = open(&path);
    assert!(drained(&store));
    raise(&store, "a", 6).unwrap();
    assert!(!drained(&store), "the mark stayed for a higher token");
}

#[test]
fn lists_by_prefix_in_pages() {
    let (_folder, path) = made();
    let store = open(&path);
    for name in ["a", "a/1", "a/2", "a/3", "b"] {
        raise_for(&store, &[(name, 1)], Some("route")).unwrap();
    }
    let prefix = key("a/");
    let names = |page: Vec<(ResourceKey, Record)>| -> Vec<String> {
        page.iter()
            .map(|(key, _)| String::from_utf8_lossy(key.key()).into_owned())
            .collect()
    };
    let first = store.list(prefix.as_bytes(), None, 2).unwrap();
    let last = first[1].0.clone();
    assert_eq!(names(first), ["a/1", "a/2"]);
    assert_eq!(
        names(
            store
                .list(prefix.as_bytes(), Some(last.as_bytes()), 9)
                .unwrap()
        ),
        ["a/3"]
    );
    assert_eq!(
        store.list(b"", None, 99).unwrap().len(),
        5,
        "the store's own notes are not listed"
    );
    assert!(store.list(b"", None, 0).unwrap().is_empty());
    assert!(store.any_under(prefix.as_bytes()).unwrap());
    assert!(!store.any_under(key("b/").as_bytes()).unwrap());
    assert!(!store.any_under(b"\xff").unwrap());
}

#[test]
fn created_resources_are_counted_over_all_runs() {
    let (_folder, path) = made();
    let store = open(&path);
    raise_for(&store, &[("a", 1), ("b", 1)], Some("files")).unwrap();
    raise_for(&store, &[("a", 2)], Some("files")).unwrap();
    raise_for(&store, &[("c", 1)], None).unwrap();
    assert_eq!(store.created_by("files"), 2);
    drop(store);
    let store = open(&path);
    raise_for(&store, &[("d", 1)], Some("files")).unwrap();
    assert_eq!(
        (store.created_by("files"), store.created_by("else")),
        (3, 0)
    );
    store.close(true).unwrap();
    drop(store);
    assert_eq!(
        RocksStore::open_to_look(&path, CACHE)
            .unwrap()
            .created_by("files"),
        3
    );
}

#[test]
fn what_was_reported_is_there_and_the_highest_wins() {
    let (_folder, path) = made();
    let store = Arc::new(open(&path));
    let threads: Vec<_> = (0..8u64)
        .map(|thread| {
            let store = Arc::clone(&store);
            std::thread::spawn(move || {
                let mut highest = HashMap::<String, u64>::new();
                let mut random = thread + 1;
                for _ in 0..200 {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    let (name, token) = (
                        format!("k{}", (random >> 33) % 10),
                        (random >> 40) % 1000 + 1,
                    );
                    let other = format!("k{}", (random >> 50) % 10);
                    raise_for(&store, &[(&name, token), (&other, token)], None).unwrap();
                    for name in [name, other] {
                        assert!(
                            stored(&store, &name) >= Some(token),
                            "reported, and not there"
                        );
                        let top = highest.entry(name).or_default();
                        *top = (*top).max(token);
                    }
                }
                highest
            })
        })
        .collect();
    let mut highest = HashMap::<String, u64>::new();
    for (name, token) in threads
        .into_iter()
        .flat_map(|thread| thread.join().unwrap())
    {
        let top = highest.entry(name).or_default();
        *top = (*top).max(token);
    }
    drop(store);
    let store = open(&path);
    for (name, token) in highest {
        assert_eq!(stored(&store, &name), Some(token));
    }
}

/// Notes the sizes of batches.
#[derive(Default)]
struct Sizes(Mutex<Vec<usize>>);

impl Observer for Sizes {
    fn committed(&self, _: Duration, raises: usize) {
        self.0.lock().push(raises);
    }
}

/// Holds the committer up until what comes back is dropped.
fn held(store: &RocksStore) -> std::sync::mpsc::SyncSender<()> {
    let (release, wait) = sync_channel::<()>(0);
    let (answer, began) = sync_channel(1);
    store.commit(Raise {
        fences: vec![(key("held"), fence(1))],
        counted_for: None,
        done: Box::new(move |_| {
            answer.send(()).unwrap();
            let _ = wait.recv();
        }),
    });
    began.recv().unwrap();
    release
}

#[test]
fn what_waits_shares_one_sync() {
    let (_folder, path) = made();
    let sizes = Arc::new(Sizes::default());
    let (store, _) = RocksStore::open(&path, CACHE, InForce::default(), sizes.clone()).unwrap();
    let release = held(&store);
    let (answer, outcomes) = sync_channel(70_000);
    for token in 1..=500 {
        let answer = answer.clone();
        let fences = vec![(key(&format!("k{}", token % 7)), fence(token))];
        store.commit(Raise {
            fences,
            counted_for: None,
            done: Box::new(move |r| answer.send(r).unwrap()),
        });
    }
    drop((release, answer));
    assert_eq!(outcomes.iter().flatten().count(), 500);
    assert_eq!(*sizes.0.lock(), [1, 500]);
}

#[test]
fn a_full_queue_says_busy_and_every_raise_is_answered_once() {
    let (_folder, path) = made();
    let store = open(&path);
    let release = held(&store);
    let (answer, outcomes) = sync_channel(70_000);
    for _ in 0..65_536 + 3 {
        let answer = answer.clone();
        let done = Box::new(move |result| answer.send(result).unwrap());
        store.commit(Raise {
            fences: vec![(key("a"), fence(1))],
            counted_for: None,
            done,
        });
    }
    drop(answer);
    for _ in 0..3 {
        assert!(matches!(outcomes.recv().unwrap(), Err(Error::Busy)));
    }
    drop(release);
    drop(store);
    assert_eq!(outcomes.iter().count(), 65_536);
}

#[test]
fn after_close_all_is_refused() {
    let (_folder, path) = made();
    let store = open(&path);
    assert!(store.is_ready() && store.trouble().is_none());
    store.close(false).unwrap();
    assert!(!store.is_ready() && store.trouble().is_some());
    assert!(matches!(raise(&store, "a", 1), Err(Error::Down(_))));
    assert!(
        store.peek(b"").is_err() && store.read(b"").is_err() && store.list(b"", None, 1).is_err()
    );
    assert!(store.close(true).is_err());
    // The lock is free though the value lives on.
    open(&path);
}
