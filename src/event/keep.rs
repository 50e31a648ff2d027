//! Where events are kept: a small database beside that of the fences, bounded by number, size and age.

use super::sighting::{Event, Kind};
use parking_lot::Mutex;
use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, Direction, ErrorKind, IteratorMode, LogLevel,
    Options, WriteBatch,
};
use std::collections::BTreeMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How many are written over at once where there is no room: a tenth.
const SHARE: usize = 10;

/// What is kept at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// For how long.
    pub age: Duration,
    /// How many bytes, about.
    pub size: usize,
}

/// Why events cannot be kept.
#[derive(Debug, thiserror::Error)]
#[error("events cannot be kept in {}: {why}", path.display())]
pub struct OpenError {
    path: PathBuf,
    why: String,
}

/// Which events are wanted.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Those with lower places.
    pub before: Option<u64>,
    /// Of this kind.
    pub kind: Option<Kind>,
    /// Of this route.
    pub route: Option<String>,
    /// Of resources whose names begin so.
    pub resource: Option<String>,
    /// Of this holder.
    pub holder: Option<String>,
}

impl Wanted {
    /// Whether it is one of those, its number aside.
    #[must_use]
    pub fn takes(&self, event: &Event) -> bool {
        let is = |wanted: &Option<String>, found: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| found == Some(wanted))
        };
        let below = |prefix: &String| {
            event
                .resource
                .as_ref()
                .is_some_and(|r| r.starts_with(prefix))
        };
        self.kind.is_none_or(|kind| kind == event.kind)
            && is(&self.route, Some(&event.route))
            && is(&self.holder, event.holder.as_deref())
            && self.resource.as_ref().is_none_or(below)
    }
}

/// The database. Many may read while one writes. Its keys are the events' places, so that what was seen last stands
/// last.
pub struct Keep {
    db: DB,
    held: Mutex<Held>,
}

/// What it holds: places and sizes.
#[derive(Default)]
struct Held {
    events: BTreeMap<u64, usize>,
    bytes: usize,
    /// The highest number of an event.
    last_id: u64,
}

impl Keep {
    /// Opens it, or makes one. One that is damaged is put aside, under the same name with `.damaged-1` and so on, and
    /// begun anew.
    ///
    /// # Errors
    /// [`OpenError`]
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let failed = |why: String| OpenError {
            path: path.into(),
            why,
        };
        let read = DB::open(&options(true), path).and_then(|db| Ok((held(&db)?, db)));
        let (held, db) = match read {
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Corruption => {
                let aside = (1..).map(|n| path.with_extension(format!("damaged-{n}")));
                let aside = aside.into_iter().find(|aside| !aside.exists());
                let aside = aside.unwrap_or_else(|| path.with_extension("damaged"));
                tracing::warn!(
                    %error,
                    aside = %aside.display(),
                    "the events cannot be read: they are put aside, and begun anew"
                );
                std::fs::rename(path, &aside).map_err(|e| failed(e.to_string()))?;
                let db = DB::open(&options(true), path);
                let db = db.map_err(|e| failed(e.into_string()))?;
                (Held::default(), db)
            }
            Err(error) => return Err(failed(error.into_string())),
        };
        // They name resources and clients.
        let _ = std::fs::set_permissions(path, Permissions::from_mode(0o700));
        Ok(Self {
            db,
            held: Mutex::new(held),
        })
    }

    /// Opens it to look at it, while no gateway runs.
    ///
    /// # Errors
    /// [`OpenError`]; then nothing is made.
    pub fn look(path: &Path) -> Result<Self, OpenError> {
        let failed = |why: String| OpenError {
            path: path.into(),
            why,
        };
        if !path.join("CURRENT").exists() {
            return Err(failed(
                "there are none: no gateway has served with this store yet".into(),
            ));
        }
        let db = DB::open_for_read_only(&options(false), path, false);
        Ok(Self {
            db: db.map_err(|e| failed(e.into_string()))?,
            held: Mutex::default(),
        })
    }

    /// The highest number that an event has; 0 where there is none.
    pub(super) fn last(&self) -> u64 {
        self.held.lock().last_id
    }

    /// Writes events after all others, gives them their places, and takes away what there is too much of: what was
    /// last seen longer ago than `bounds` say, and the tenth seen longest ago where they are too large. Gives the
    /// highest place that went. Without a sync: what the system loses with its power is lost.
    ///
    /// # Errors
    /// What went wrong; then nothing is written.
    pub(super) fn keep(
        &self,
        events: &mut [Event],
        bounds: Bounds,
        now: SystemTime,
    ) -> Result<Option<u64>, String> {
        if !events.is_empty() {
            self.write(events)?;
        }
        self.trim(bounds, now)
    }

    fn write(&self, events: &mut [Event]) -> Result<(), String> {
        let mut held = self.held.lock();
        let mut batch = WriteBatch::default();
        let mut next = held.events.last_key_value().map_or(0, |(place, _)| *place);
        let mut written = Vec::with_capacity(events.len());
        for event in events.iter() {
            next += 1;
            let placed = Event {
                place: next,
                ..event.clone()
            };
            let value = serde_json::to_vec(&placed).map_err(|e| e.to_string())?;
            if event.place > 0 {
                batch.delete(event.place.to_be_bytes());
            }
            written.push((event.place, next, value.len()));
            batch.put(next.to_be_bytes(), value);
        }
        self.db.write(batch).map_err(rocksdb::Error::into_string)?;
        for (event, (before, place, size)) in events.iter_mut().zip(written) {
            held.remove(before);
            held.events.insert(place, size);
            held.bytes += size;
            held.last_id = held.last_id.max(event.id);
            event.place = place;
        }
        Ok(())
    }

    fn trim(&self, bounds: Bounds, now: SystemTime) -> Result<Option<u64>, String> {
        let mut held = self.held.lock();
        let mut gone = None;
        if held.bytes > bounds.size {
            for _ in 0..(held.events.len() / SHARE).max(1) {
                gone = held.pop().or(gone);
            }
        }
        while let Some((&place, _)) = held.events.first_key_value() {
            let found = self.db.get(place.to_be_bytes());
            let found = found.map_err(rocksdb::Error::into_string)?;
            let last = found.and_then(|value| time(&value));
            let is_old = |last| now.duration_since(last).is_ok_and(|age| age > bounds.age);
            if !last.is_none_or(is_old) {
                break;
            }
            gone = held.pop().or(gone);
        }
        drop(held);
        let Some(last) = gone else { return Ok(None) };
        let mut batch = WriteBatch::default();
        batch.delete_range(0_u64.to_be_bytes(), (last + 1).to_be_bytes());
        self.db.write(batch).map_err(rocksdb::Error::into_string)?;
        Ok(gone)
    }

    /// Up to `limit` events, those seen last first. May block on the disk.
    ///
    /// # Errors
    /// What went wrong.
    pub fn list(&self, wanted: &Wanted, limit: usize) -> Result<Vec<Event>, String> {
        let start = wanted.before.unwrap_or(u64::MAX).saturating_sub(1);
        let start = start.to_be_bytes();
        let mode = IteratorMode::From(&start, Direction::Reverse);
        let mut found = Vec::new();
        for entry in self.db.iterator(mode) {
            if found.len() >= limit {
                break;
            }
            let (_, value) = entry.map_err(rocksdb::Error::into_string)?;
            // What another version has written may not be known here.
            let event = serde_json::from_slice::<Event>(&value);
            found.extend(event.ok().filter(|event| wanted.takes(event)));
        }
        Ok(found)
    }
}

impl Held {
    /// Lets go of the one seen longest ago. Gives its place.
    fn pop(&mut self) -> Option<u64> {
        let (&place, _) = self.events.first_key_value()?;
        self.remove(place);
        Some(place)
    }

    fn remove(&mut self, place: u64) {
        if let Some(size) = self.events.remove(&place) {
            self.bytes -= size;
        }
    }
}

fn held(db: &DB) -> Result<Held, rocksdb::Error> {
    let mut held = Held::default();
    for entry in db.iterator(IteratorMode::Start) {
        let (key, value) = entry?;
        let Ok(place) = key.as_ref().try_into().map(u64::from_be_bytes) else {
            continue;
        };
        let id = serde_json::from_slice::<Event>(&value).map_or(0, |event| event.id);
        held.last_id = held.last_id.max(id);
        held.events.insert(place, value.len());
        held.bytes += value.len();
    }
    Ok(held)
}

fn time(value: &[u8]) -> Option<SystemTime> {
    let event: Event = serde_json::from_slice(value).ok()?;
    humantime::parse_rfc3339(&event.last).ok()
}

fn options(make: bool) -> Options {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&Cache::new_lru_cache(1 << 20));
    let mut options = Options::default();
    options.set_block_based_table_factory(&table);
    options.create_if_missing(make);
    options.set_compression_type(DBCompressionType::Lz4);
    options.set_write_buffer_size(2 << 20);
    options.set_max_total_wal_size(4 << 20);
    options.set_manifest_preallocation_size(64 << 10);
    options.set_max_open_files(32);
    options.set_max_background_jobs(1);
    options.set_log_level(LogLevel::Warn);
    options.set_keep_log_file_num(2);
    options.set_max_log_file_size(1 << 20);
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Sighting;
    use std::sync::Arc;

    const BOUNDS: Bounds = Bounds {
        age: Duration::from_hours(24),
        size: 1 << 20,
    };

    fn event(id: u64, hour: u64) -> Event {
        Event::of(
            id,
            &Sighting {
                kind: if id.is_multiple_of(2) {
                    Kind::Stale
                } else {
                    Kind::Jump
                },
                time: SystemTime::UNIX_EPOCH + Duration::from_hours(hour),
                route: Arc::from("files"),
                resource: None,
                token: Some("33".into()),
                fence: None,
                superseded: None,
                holder: Some(format!("holder-{id}")),
                proved: false,
                client: "10.0.0.1".into(),
                agent: None,
                request: None,
                trace: None,
                observed: false,
            },
        )
    }

    fn at(hour: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_hours(hour)
    }

    fn ids(keep: &Keep, wanted: &Wanted, limit: usize) -> Vec<u64> {
        let found = keep.list(wanted, limit).unwrap();
        found.iter().map(|event| event.id).collect()
    }

    #[test]
    fn keeps_and_finds_them_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events");
        let keep = Keep::open(&path).unwrap();
        let mut events: Vec<_> = (1..=9).map(|id| event(id, 1)).collect();
        keep.keep(&mut events, BOUNDS, at(1)).unwrap();
        let mut again = [Event {
            count: 7,
            ..events[2].clone()
        }];
        keep.keep(&mut again, BOUNDS, at(2)).unwrap();
        drop(keep);
        let keep = Keep::open(&path).unwrap();
        assert_eq!(keep.last(), 9);
        assert_eq!(
            ids(&keep, &Wanted::default(), 3),
            [3, 9, 8],
            "by when it was seen last"
        );
        let wanted = Wanted {
            before: Some(7),
            kind: Some(Kind::Jump),
            ..Wanted::default()
        };
        assert_eq!(ids(&keep, &wanted, 9), [5, 1]);
        let wanted = Wanted {
            holder: Some("holder-3".into()),
            ..Wanted::default()
        };
        assert_eq!(keep.list(&wanted, 9).unwrap(), again);
    }

    #[test]
    fn what_is_too_old_or_too_much_goes_and_the_oldest_first() {
        let folder = tempfile::tempdir().unwrap();
        let keep = Keep::open(&folder.path().join("events")).unwrap();
        let mut events: Vec<_> = (1..=9).map(|id| event(id, id)).collect();
        assert_eq!(keep.keep(&mut events, BOUNDS, at(9)), Ok(None));
        assert_eq!(keep.keep(&mut [], BOUNDS, at(27)), Ok(Some(2)));
        assert_eq!(ids(&keep, &Wanted::default(), 99), [9, 8, 7, 6, 5, 4, 3]);
        let (mut most, mut last) = (0, 9);
        for _ in 0..40 {
            let mut many: Vec<_> = (last + 1..=last + 500).map(|id| event(id, 27)).collect();
            last += 500;
            keep.keep(&mut many, BOUNDS, at(27)).unwrap();
            most = most.max(keep.held.lock().bytes);
        }
        assert!(most <= BOUNDS.size + 500 * 300, "{most}");
        let left = ids(&keep, &Wanted::default(), usize::MAX);
        assert_eq!(left.len(), keep.held.lock().events.len());
        assert_eq!(left[0], last, "the newest is there");
    }

    #[test]
    fn one_that_is_damaged_is_put_aside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events");
        let keep = Keep::open(&path).unwrap();
        keep.keep(&mut [event(1, 1)], BOUNDS, at(1)).unwrap();
        drop(keep);
        for entry in std::fs::read_dir(&path).unwrap() {
            std::fs::write(entry.unwrap().path(), "nonsense").unwrap();
        }
        let keep = Keep::open(&path).unwrap();
        assert_eq!(keep.last(), 0);
        assert!(folder.path().join("events.damaged-1").exists());
        assert!(Keep::look(&folder.path().join("none")).is_err());
        assert!(!folder.path().join("none").exists());
    }
}
