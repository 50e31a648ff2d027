//! A lost or damaged file stops the start, or is one that holds no fence.

use super::*;

const FENCES: usize = 60;

fn name(index: usize) -> String {
    format!(
        "{}-{index}",
        "a-rather-long-name-of-a-resource".repeat(1 + index % 3)
    )
}

/// A store with fences in tables and in the live log.
fn filled(path: &Path) -> RocksStore {
    for run in 0..2 {
        let store = open(path);
        (0..FENCES).for_each(|index| raise(&store, &name(index), run + 1).unwrap());
        store.close(true).unwrap();
    }
    let store = open(path);
    (0..FENCES).for_each(|index| raise(&store, &name(index), 3).unwrap());
    store
}

/// The two scenes: left by a crash, and left by a clean stop.
fn scenes() -> (tempfile::TempDir, [PathBuf; 2]) {
    let (folder, path) = made();
    let crashed = folder.path().join("crashed");
    let store = filled(&path);
    copy(&path, &crashed);
    store.close(true).unwrap();
    (folder, [crashed, path])
}

/// Damages a copy of the store. Either it is refused, or every fence is there. Gives back the refusal.
fn try_with(scene: &Path, damage: impl FnOnce(&Path)) -> Option<OpenError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    copy(scene, &path);
    damage(&path);
    let before = contents(&path);
    match try_open(&path) {
        Ok((store, _)) => {
            for index in 0..FENCES {
                assert_eq!(stored(&store, &name(index)), Some(3), "a fence was lost");
            }
            raise(&store, &name(0), 4).unwrap();
            None
        }
        Err(error) => {
            // What there is must stay as it is, for whoever looks into it. (The engine's own log of
            // events is no part of it.)
            for (file, bytes) in before {
                if !file
                    .file_name()
                    .unwrap()
                    .to_string_lossy()
                    .starts_with("LOG")
                {
                    assert!(
                        fs::read(&file).unwrap() == bytes,
                        "{} was changed",
                        file.display()
                    );
                }
            }
            Some(error)
        }
    }
}

fn files(scene: &Path) -> Vec<PathBuf> {
    contents(scene)
        .keys()
        .map(|file| file.strip_prefix(scene).unwrap().to_owned())
        .collect()
}

/// What may be lost without losing a fence.
fn is_harmless(file: &Path) -> bool {
    let name = file.file_name().unwrap().to_string_lossy();
    name == "clean"
        || name == "LOCK"
        || name == "IDENTITY"
        || name.starts_with("LOG")
        || name.starts_with("OPTIONS")
}

#[test]
fn every_lost_file_stops_the_start_or_is_harmless() {
    let (_folder, scenes) = scenes();
    for scene in scenes {
        for file in files(&scene) {
            let refused = try_with(&scene, |path| fs::remove_file(path.join(&file)).unwrap());
            assert_eq!(
                refused.is_none(),
                is_harmless(&file),
                "{}: {refused:?}",
                file.display()
            );
        }
        let refused = try_with(&scene, |path| fs::remove_dir_all(path.join("db")).unwrap());
        assert!(
            matches!(refused, Some(OpenError::Damaged { .. })),
            "{refused:?}"
        );
    }
}

#[test]
fn every_emptied_file_stops_the_start_or_is_harmless() {
    let (_folder, [crashed, _]) = scenes();
    for file in files(&crashed) {
        let refused = try_with(&crashed, |path| fs::write(path.join(&file), "").unwrap());
        assert_eq!(
            refused.is_none(),
            is_harmless(&file),
            "{}: {refused:?}",
            file.display()
        );
    }
}

/// Some places in a file, its first and last bytes among them.
fn places(length: usize, count: usize) -> Vec<usize> {
    let mut places: Vec<_> = (0..count.min(length))
        .map(|i| i * length / count.min(length))
        .chain(length.checked_sub(1))
        .collect();
    places.extend((1..12).filter(|&i| i < length));
    places.sort_unstable();
    places.dedup();
    places
}

#[test]
fn no_flipped_bit_loses_a_fence() {
    let (_folder, scenes) = scenes();
    for scene in scenes {
        for file in files(&scene) {
            if is_harmless(&file) && !file.ends_with("clean") {
                continue;
            }
            let length = fs::metadata(scene.join(&file)).unwrap().len();
            for place in places(usize::try_from(length).unwrap(), 24) {
                try_with(&scene, |path| {
                    let mut bytes = fs::read(path.join(&file)).unwrap();
                    bytes[place] ^= 1 << (place % 8);
                    fs::write(path.join(&file), bytes).unwrap();
                });
            }
        }
    }
}

fn live_log(scene: &Path) -> PathBuf {
    let logs = files(scene)
        .into_iter()
        .filter(|file| file.extension().is_some_and(|e| e == "log"));
    logs.max_by_key(|file| fs::metadata(scene.join(file)).unwrap().len())
        .unwrap()
}

#[test]
fn a_live_log_cut_short_of_the_ledger_is_refused() {
    let (_folder, [crashed, _]) = scenes();
    let log = live_log(&crashed);
    let length = fs::metadata(crashed.join(&log)).unwrap().len();
    for cut in places(usize::try_from(length).unwrap(), 40) {
        let refused = try_with(&crashed, |path| {
            fs::File::options()
                .write(true)
                .open(path.join(&log))
                .unwrap()
                .set_len(cut as u64)
                .unwrap();
        });
        assert!(
            matches!(refused, Some(OpenError::Damaged { .. })),
            "cut at {cut}: {refused:?}"
        );
    }
}

#[test]
fn a_hole_in_a_file_is_refused() {
    let (_folder, [crashed, _]) = scenes();
    let tables = files(&crashed)
        .into_iter()
        .filter(|file| file.extension().is_some_and(|e| e == "sst"));
    for file in tables.chain([live_log(&crashed)]) {
        let length = usize::try_from(fs::metadata(crashed.join(&file)).unwrap().len()).unwrap();
        for start in places(length, 20) {
            let refused = try_with(&crashed, |path| {
                let mut bytes = fs::read(path.join(&file)).unwrap();
                bytes[start..(start + 512).min(length)].fill(0);
                fs::write(path.join(&file), bytes).unwrap();
            });
            let tail = start + 512 > length;
            assert!(
                tail || refused.is_some(),
                "{} at {start} of {length}",
                file.display()
            );
        }
    }
}

/// The engine reads on over such a gap; the tally of the entries does not fit.
#[test]
fn a_batch_cut_out_of_the_log_is_refused() {
    let (_folder, [crashed, _]) = scenes();
    let log = live_log(&crashed);
    let bytes = fs::read(crashed.join(&log)).unwrap();
    // A whole record: checksum (4), length (2), type (1, whole), content. All in the first block.
    let mut start = 0;
    let mut cuts = 0;
    while start + 7 < bytes.len().min(32_000) && bytes[start + 6] == 1 {
        let length = usize::from(u16::from_le_bytes([bytes[start + 4], bytes[start + 5]]));
        let end = start + 7 + length;
        let refused = try_with(&crashed, |path| {
            fs::write(path.join(&log), [&bytes[..start], &bytes[end..]].concat()).unwrap();
        });
        assert!(
            matches!(refused, Some(OpenError::Damaged { .. })),
            "cut at {start}: {refused:?}"
        );
        (start, cuts) = (end, cuts + 1);
    }
    assert!(cuts > 30, "the log is not as expected");
}

#[test]
fn a_torn_end_of_the_log_is_let_through() {
    let (_folder, [crashed, _]) = scenes();
    let log = live_log(&crashed);
    let refused = try_with(&crashed, |path| {
        let mut bytes = fs::read(path.join(&log)).unwrap();
        // The head of a record of 200 bytes, and 9 bytes of it: what a crash amid a write leaves.
        bytes.extend([1, 2, 3, 4, 200, 0, 1, 9, 9, 9, 9, 9, 9, 9, 9, 9]);
        fs::write(path.join(&log), bytes).unwrap();
    });
    assert!(refused.is_none(), "{refused:?}");
}

#[test]
fn parts_of_another_day_or_store_are_refused() {
    let (folder, path) = made();
    let yesterday = folder.path().join("yesterday");
    let store = open(&path);
    raise(&store, "a", 1).unwrap();
    store.close(true).unwrap();
    drop(store);
    copy(&path, &yesterday);
    let store = open(&path);
    raise(&store, "a", 2).unwrap();
    store.close(true).unwrap();
    drop(store);
    let other = folder.path().join("other");
    RocksStore::init(&other).unwrap();

    for (part, donor) in [
        ("db", &yesterday),
        ("state", &yesterday),
        ("db", &other),
        ("state", &other),
        ("ledger", &other),
        ("identity", &other),
    ] {
        let mixed = tempfile::tempdir().unwrap();
        let mixed = mixed.path().join("data");
        copy(&path, &mixed);
        if part == "db" {
            fs::remove_dir_all(mixed.join("db")).unwrap();
            copy(&donor.join("db"), &mixed.join("db"));
        } else {
            fs::copy(donor.join(part), mixed.join(part)).unwrap();
        }
        let error = try_open(&mixed).map(drop).unwrap_err();
        assert!(
            matches!(error, OpenError::Damaged { .. }),
            "{part} of {}: {error}",
            donor.display()
        );
        assert!(error.to_string().contains("backup"), "{error}");
    }
    assert_eq!(stored(&open(&path), "a"), Some(2));
}

#[test]
fn a_lost_mark_is_no_damage() {
    let (folder, path) = made();
    let store = open(&path);
    raise(&store, "a", 5).unwrap();
    let log = live_log(&path);
    let length = fs::metadata(path.join(&log)).unwrap().len();
    store.mark_drained(key("a"), Token::new(0, 5));
    let drained = |store: &RocksStore| store.read(key("a").as_bytes()).unwrap().unwrap().drained;
    eventually("the mark", || drained(&store));
    // Long enough for the ledger, were it to name the mark's batch, which no sync covers.
    std::thread::sleep(Duration::from_millis(400));
    let crashed = folder.path().join("crashed");
    copy(&path, &crashed);
    fs::File::options()
        .write(true)
        .open(crashed.join(&log))
        .unwrap()
        .set_len(length)
        .unwrap();
    let store = open(&crashed);
    assert_eq!((stored(&store, "a"), drained(&store)), (Some(5), false));
}
