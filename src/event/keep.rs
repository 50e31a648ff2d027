//! Where events are kept: a small database beside that of the fences, bounded by number, size and age.

use super::sighting::{Event, Kind};
use parking_lot::Mutex;
use rocksdb::{DB, DBCompressionType, Direction, IteratorMode, LogLevel, Options, WriteBatch};
use std::collections::VecDeque;
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
    /// Those with lower numbers.
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

/// The database. Many may read while one writes.
pub struct Keep {
    db: DB,
    /// What it holds: numbers and sizes, in order. What was there at the start stands for one of that size.
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    events: VecDeque<(u64, usize)>,
    bytes: usize,
}

impl Keep {
    /// Opens it, or makes one. One that is damaged is put aside, under the same name with `.damaged`, and begun anew.
    ///
    /// # Errors
    /// [`OpenError`]
    pub fn open(path: &Path) -> Result<Self, OpenError> {
        let failed = |why: String| OpenError {
            path: path.into(),
            why,
        };
        let opened = DB::open(&options(true), path).map_err(rocksdb::Error::into_string);
        let read = opened.and_then(|db| Ok((held(&db)?, db)));
        let (held, db) = match read {
            Ok(read) => read,
            Err(why) if path.join("CURRENT").exists() => {
                tracing::warn!(path = %path.display(), why, "the events cannot be read: they are put aside");
                let aside = path.with_extension("damaged");
                let _ = std::fs::remove_dir_all(&aside);
                std::fs::rename(path, &aside).map_err(|e| failed(e.to_string()))?;
                let db = DB::open(&options(true), path).map_err(|e| failed(e.into_string()))?;
                (Held::default(), db)
            }
            Err(why) => return Err(failed(why)),
        };
        Ok(Self {
            db,
            held: Mutex::new(held),
        })
    }

    /// Opens it to look at it, while no gateway runs.
    ///
    /// # Errors
    /// [`OpenError`]
    pub fn look(path: &Path) -> Result<Self, OpenError> {
        let db = DB::open_for_read_only(&options(false), path, false);
        let db = db.map_err(|e| OpenError {
            path: path.into(),
            why: e.into_string(),
        })?;
        Ok(Self {
            db,
            held: Mutex::default(),
        })
    }

    /// The highest number that is in use; 0 where none is.
    pub(super) fn last(&self) -> u64 {
        self.held.lock().events.back().map_or(0, |(id, _)| *id)
    }

    /// Writes events, and takes away what there is too much of. Gives the highest number that went.
    ///
    /// # Errors
    /// What went wrong.
    pub(super) fn keep(
        &self,
        events: &[Event],
        bounds: Bounds,
        now: SystemTime,
    ) -> Result<Option<u64>, String> {
        if !events.is_empty() {
            self.write(events)?;
        }
        self.trim(bounds, now)
    }

    /// Writes events, in order, in place of those with the same numbers. Without a sync: what the system loses with
    /// its power is lost.
    ///
    /// # Errors
    /// What went wrong; then none is written.
    fn write(&self, events: &[Event]) -> Result<(), String> {
        let mut batch = WriteBatch::default();
        let mut sizes = Vec::with_capacity(events.len());
        for event in events {
            let value = serde_json::to_vec(event).map_err(|e| e.to_string())?;
            sizes.push((event.id, value.len()));
            batch.put(event.id.to_be_bytes(), value);
        }
        self.db.write(batch).map_err(rocksdb::Error::into_string)?;
        let mut held = self.held.lock();
        for (id, size) in sizes {
            if held.events.back().is_none_or(|(last, _)| *last < id) {
                held.events.push_back((id, size));
                held.bytes += size;
            }
        }
        Ok(())
    }

    /// Takes away what is older than `bounds`, and a tenth where there is too much. Gives the highest number that went.
    ///
    /// # Errors
    /// What went wrong.
    fn trim(&self, bounds: Bounds, now: SystemTime) -> Result<Option<u64>, String> {
        let mut held = self.held.lock();
        let before = held.events.len();
        let mut gone = None;
        if held.bytes > bounds.size {
            for _ in 0..(before / SHARE).max(1) {
                gone = held.pop().or(gone);
            }
        }
        while let Some(&(id, _)) = held.events.front() {
            let found = self
                .db
                .get(id.to_be_bytes())
                .map_err(rocksdb::Error::into_string)?;
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

    /// Up to `limit` events, the newest first. May block on the disk.
    ///
    /// # Errors
    /// What went wrong.
    pub fn list(&self, wanted: &Wanted, limit: usize) -> Result<Vec<Event>, String> {
        let start = wanted
            .before
            .map_or(u64::MAX, |before| before.saturating_sub(1));
        let start = start.to_be_bytes();
        let mode = IteratorMode::From(&start, Direction::Reverse);
        let mut found = Vec::new();
        for entry in self.db.iterator(mode) {
            if found.len() >= limit {
                break;
            }
            let (_, value) = entry.map_err(rocksdb::Error::into_string)?;
            let event: Event = serde_json::from_slice(&value).map_err(|e| e.to_string())?;
            if wanted.takes(&event) {
                found.push(event);
            }
        }
        Ok(found)
    }
}

impl Held {
    /// Lets go of the oldest. Gives its number.
    fn pop(&mut self) -> Option<u64> {
        let (id, size) = self.events.pop_front()?;
        self.bytes -= size;
        Some(id)
    }
}

fn held(db: &DB) -> Result<Held, String> {
    let mut held = Held::default();
    for entry in db.iterator(IteratorMode::Start) {
        let (key, value) = entry.map_err(rocksdb::Error::into_string)?;
        let id = key.as_ref().try_into().map(u64::from_be_bytes);
        let id = id.map_err(|_| "a key is not readable".to_owned())?;
        serde_json::from_slice::<Event>(&value).map_err(|e| e.to_string())?;
        held.events.push_back((id, value.len()));
        held.bytes += value.len();
    }
    Ok(held)
}

fn time(value: &[u8]) -> Option<SystemTime> {
    let event: Event = serde_json::from_slice(value).ok()?;
    humantime::parse_rfc3339(&event.last).ok()
}

fn options(make: bool) -> Options {
    let mut options = Options::default();
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
        let events: Vec<_> = (1..=9).map(|id| event(id, 1)).collect();
        keep.keep(&events, BOUNDS, at(1)).unwrap();
        let again = Event {
            count: 7,
            ..event(3, 2)
        };
        keep.keep(std::slice::from_ref(&again), BOUNDS, at(2))
            .unwrap();
        drop(keep);
        let keep = Keep::open(&path).unwrap();
        assert_eq!(keep.last(), 9);
        assert_eq!(ids(&keep, &Wanted::default(), 3), [9, 8, 7]);
        let wanted = Wanted {
            before: Some(7),
            kind: Some(Kind::Jump),
            ..Wanted::default()
        };
        assert_eq!(ids(&keep, &wanted, 9), [5, 3, 1]);
        let wanted = Wanted {
            holder: Some("holder-3".into()),
            ..Wanted::default()
        };
        assert_eq!(keep.list(&wanted, 9).unwrap(), [again]);
    }

    #[test]
    fn what_is_too_old_or_too_much_goes_and_the_oldest_first() {
        let folder = tempfile::tempdir().unwrap();
        let keep = Keep::open(&folder.path().join("events")).unwrap();
        let events: Vec<_> = (1..=9).map(|id| event(id, id)).collect();
        assert_eq!(keep.keep(&events, BOUNDS, at(9)), Ok(None));
        assert_eq!(keep.keep(&[], BOUNDS, at(27)), Ok(Some(2)));
        assert_eq!(ids(&keep, &Wanted::default(), 99), [9, 8, 7, 6, 5, 4, 3]);
        let (mut most, mut last) = (0, 9);
        for _ in 0..40 {
            let many: Vec<_> = (last + 1..=last + 500).map(|id| event(id, 27)).collect();
            last += 500;
            keep.keep(&many, BOUNDS, at(27)).unwrap();
            most = most.max(keep.held.lock().bytes);
        }
        assert!(most <= BOUNDS.size + 500 * 300, "{most}");
        let left = ids(&keep, &Wanted::default(), usize::MAX);
        let held: Vec<u64> = keep
            .held
            .lock()
            .events
            .iter()
            .rev()
            .map(|(id, _)| *id)
            .collect();
        assert_eq!(left, held);
        assert_eq!(left[0], last, "the newest is there");
    }

    #[test]
    fn one_that_is_damaged_is_put_aside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("events");
        let keep = Keep::open(&path).unwrap();
        keep.keep(&[event(1, 1)], BOUNDS, at(1)).unwrap();
        drop(keep);
        for entry in std::fs::read_dir(&path).unwrap() {
            std::fs::write(entry.unwrap().path(), "nonsense").unwrap();
        }
        let keep = Keep::open(&path).unwrap();
        assert_eq!(keep.last(), 0);
        assert!(folder.path().join("events.damaged").exists());
        assert!(Keep::look(&folder.path().join("none")).is_err());
    }
}
