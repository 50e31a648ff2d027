//! Making, locking, and the rules of the clean marker.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// One run with that settle; gives back what it was handed over.
fn run(path: &Path, settle: u32, close: Option<bool>) -> Handover {
    let (store, handover) = RocksStore::open(
        path,
        CACHE,
        InForce {
            settle: SECOND * settle,
            lax: false,
        },
        Arc::new(()),
    )
    .unwrap();
    if let Some(clean) = close {
        store.close(clean).unwrap();
    }
    handover
}

const CLEAN: Handover = Handover {
    clean: true,
    before: InForce {
        settle: Duration::ZERO,
        lax: false,
    },
};

fn unclean(settle: u32) -> Handover {
    Handover {
        clean: false,
        before: InForce {
            settle: SECOND * settle,
            lax: false,
        },
    }
}

#[test]
fn fresh_and_closed_clean_are_clean() {
    let (_folder, path) = made();
    assert_eq!(run(&path, 5, Some(true)), CLEAN);
    assert_eq!(run(&path, 5, Some(false)), CLEAN);
    assert_eq!(run(&path, 5, Some(true)), unclean(5));
    assert_eq!(run(&path, 5, None), CLEAN);
    assert_eq!(run(&path, 5, None), unclean(5));
}

#[test]
fn the_wait_is_the_largest_settle_since_the_last_clean_state() {
    let (_folder, path) = made();
    assert_eq!(run(&path, 5, None), CLEAN);
    assert_eq!(run(&path, 2, None), unclean(5));
    assert_eq!(run(&path, 9, None), unclean(5));
    assert_eq!(run(&path, 1, Some(true)), unclean(9));
    assert_eq!(run(&path, 3, None), CLEAN);
    assert_eq!(run(&path, 1, None), unclean(3));
}

#[test]
fn the_marker_counts_for_its_run_and_store_only() {
    let (folder, path) = made();
    let marker = fs::read(path.join("clean")).unwrap();
    assert_eq!(run(&path, 1, None), CLEAN);
    assert!(!path.join("clean").exists());
    fs::write(path.join("clean"), &marker).unwrap();
    assert_eq!(run(&path, 1, Some(true)), unclean(1));

    let other = folder.path().join("other");
    RocksStore::init(&other).unwrap();
    fs::write(path.join("clean"), fs::read(other.join("clean")).unwrap()).unwrap();
    assert_eq!(run(&path, 1, Some(true)), unclean(1));

    let backup = folder.path().join("backup");
    copy(&path, &backup);
    fs::remove_file(backup.join("clean")).unwrap();
    assert_eq!(run(&backup, 1, None), unclean(1));
    assert_eq!(run(&path, 1, None), CLEAN);
}

#[test]
fn a_copy_of_an_open_store_is_unclean() {
    let (folder, path) = made();
    let store = open(&path);
    raise(&store, "a", 5).unwrap();
    let crashed = folder.path().join("crashed");
    copy(&path, &crashed);
    store.close(true).unwrap();
    let (copied, handover) = try_open(&crashed).unwrap();
    assert!(!handover.clean);
    assert_eq!(stored(&copied, "a"), Some(5));
}

#[test]
fn looking_changes_neither_run_nor_marker() {
    let (_folder, path) = made();
    let store = open(&path);
    raise(&store, "a", 5).unwrap();
    store.close(true).unwrap();
    let look = RocksStore::open_to_look(&path, CACHE).unwrap();
    assert_eq!(stored(&look, "a"), Some(5));
    assert_eq!(look.list(b"", None, 9).unwrap().len(), 1);
    assert!(matches!(raise(&look, "a", 6), Err(Error::Down(_))));
    assert!(!look.is_ready() && look.trouble().is_some());
    assert!(matches!(try_open(&path), Err(OpenError::InUse { .. })));
    drop(look);
    assert_eq!(run(&path, 1, None), CLEAN);
}

#[test]
fn looking_sees_what_is_only_in_the_log() {
    let (_folder, path) = made();
    let store = open(&path);
    raise(&store, "a", 5).unwrap();
    drop(store);
    assert_eq!(
        stored(&RocksStore::open_to_look(&path, CACHE).unwrap(), "a"),
        Some(5)
    );
}

#[test]
fn a_second_opener_is_refused_and_the_first_goes_on() {
    let (_folder, path) = made();
    let store = open(&path);
    raise(&store, "a", 5).unwrap();
    let error = try_open(&path).map(drop).unwrap_err();
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    assert!(matches!(
        RocksStore::open_to_look(&path, CACHE),
        Err(OpenError::InUse { .. })
    ));
    assert_eq!(RocksStore::init(&path).unwrap(), Init::Existed);
    raise(&store, "a", 6).unwrap();
    store.close(true).unwrap();
    drop(store);
    let (store, handover) = try_open(&path).unwrap();
    assert_eq!((handover, stored(&store, "a")), (CLEAN, Some(6)));
}

#[test]
fn only_init_makes_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    for _ in 0..2 {
        let error = try_open(&path).map(drop).unwrap_err();
        assert!(matches!(error, OpenError::Missing { .. }), "{error}");
        assert!(error.to_string().contains("fencegate init"));
        assert!(RocksStore::open_to_look(&path, CACHE).is_err());
        assert!(!path.exists());
    }
    // An empty mount.
    fs::create_dir(&path).unwrap();
    fs::create_dir(path.join("lost+found")).unwrap();
    assert!(matches!(try_open(&path), Err(OpenError::Missing { .. })));
    assert_eq!(RocksStore::init(&path).unwrap(), Init::Created);
    let before = contents(&path);
    assert_eq!(RocksStore::init(&path).unwrap(), Init::Existed);
    assert_eq!(contents(&path), before);
}

#[test]
fn init_does_not_touch_a_folder_of_others() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("thesis.txt"), "mine").unwrap();
    let error = RocksStore::init(folder.path()).unwrap_err();
    assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
    assert_eq!(contents(folder.path()).len(), 1);
}

#[test]
fn an_unfinished_init_is_taken_up() {
    let (_folder, path) = made();
    fs::rename(path.join("identity"), path.join("identity.new")).unwrap();
    fs::remove_file(path.join("ledger")).unwrap();
    assert!(matches!(try_open(&path), Err(OpenError::Missing { .. })));
    assert_eq!(RocksStore::init(&path).unwrap(), Init::Created);
    assert_eq!(run(&path, 1, None), CLEAN);
}

#[test]
fn that_a_run_was_lax_is_known_until_the_next_clean_state() {
    let (_folder, path) = made();
    let run = |lax: bool, clean: Option<bool>| {
        let now = InForce {
            settle: SECOND,
            lax,
        };
        let (store, handover) = RocksStore::open(&path, CACHE, now, Arc::new(())).unwrap();
        if let Some(clean) = clean {
            store.close(clean).unwrap();
        }
        handover.before.lax
    };
    assert!(!run(true, None));
    assert!(run(false, None), "the run before was lax");
    assert!(run(false, Some(true)), "nothing was clean in between");
    assert!(!run(false, Some(true)));
}

#[test]
fn what_a_clean_stop_leaves_counts_once_and_beside_its_marker() {
    let (folder, path) = made();
    let leaves = |text: &str| open(&path).close_leaving(text.into()).unwrap();
    let left = |path: &Path| try_open(path).unwrap().0.take_left();
    leaves("known {\"a\": 1}");
    let kept = folder.path().join("kept");
    copy(&path, &kept);
    let store = open(&path);
    assert_eq!(store.take_left().as_deref(), Some("known {\"a\": 1}"));
    assert_eq!(store.take_left(), None);
    store.close(true).unwrap();
    assert_eq!(left(&path), None, "it was used up");

    // The run that found nothing ended in a crash: what is put back is of another run.
    let text = fs::read(kept.join("left")).unwrap();
    fs::write(path.join("left"), &text).unwrap();
    assert_eq!(left(&path), None);
    // Without the marker, or damaged, it is not there.
    for damage in [
        |path: &Path| fs::remove_file(path.join("clean")).unwrap(),
        |path: &Path| {
            let mut text = fs::read(path.join("left")).unwrap();
            *text.last_mut().unwrap() ^= 1;
            fs::write(path.join("left"), text).unwrap();
        },
    ] {
        let scene = tempfile::tempdir().unwrap();
        let damaged = scene.path().join("data");
        copy(&kept, &damaged);
        damage(&damaged);
        assert_eq!(left(&damaged), None);
    }
    assert_eq!(left(&kept).as_deref(), Some("known {\"a\": 1}"));
}

#[test]
fn what_cannot_be_left_costs_no_clean_marker_and_no_start() {
    let (_folder, path) = made();
    let store = open(&path);
    raise(&store, "a", 5).unwrap();
    fs::create_dir(path.join("left.new")).unwrap();
    store.close_leaving("known".into()).unwrap();
    let (store, handover) = try_open(&path).unwrap();
    assert!(handover.clean);
    assert_eq!((store.take_left(), stored(&store, "a")), (None, Some(5)));
    drop(store);
    // What a stop had begun when it was cut off does not stay.
    fs::remove_dir(path.join("left.new")).unwrap();
    fs::write(path.join("left.new"), "half").unwrap();
    drop(open(&path));
    assert!(!path.join("left.new").exists());
}
