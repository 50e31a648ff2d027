//! The store's folder: who it is, which run it is in, whether it was left clean, and who holds it.
//!
//! Knows nothing of fences or of the engine, whose files it only gives a place to.
//!
//! ```text
//! identity   made by `init` alone, never written again; locked by whoever has the store open
//! state      the run's number, and what was in force since the last clean state
//! clean      the clean marker: there only between a clean stop and the next start
//! left       what a clean stop left for the next start to know, beside fences; nothing is lost with it
//! ledger     what the database must hold (ledger.rs)
//! db/        the engine
//! events/    what somebody on call should hear of, kept by others
//! ```

use super::InForce;
use super::ledger::{Entry, Ledger};
use super::refusal::OpenError;
use super::sealed::{self, Fields};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

const IDENTITY: &str = "identity";
const UNFINISHED: &str = "identity.new";
const STATE: &str = "state";
const CLEAN: &str = "clean";
const LEFT: &str = "left";
const LEDGER: &str = "ledger";
const DB: &str = "db";
const PROBE: &str = "probe.new";
/// What names of what others keep in its folder begin with: no part of the store.
const EVENTS: &str = "events";
/// What a store's folder may hold beside the identity.
const OURS: [&str; 9] = [
    STATE,
    "state.new",
    CLEAN,
    "clean.new",
    LEFT,
    "left.new",
    LEDGER,
    DB,
    PROBE,
];
/// What a fresh file system holds.
const NOT_COUNTED: &str = "lost+found";

/// What [`RocksStore::init`](super::RocksStore::init) found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Init {
    /// There was none: it was made.
    Created,
    /// There was one: it was left as it is.
    Existed,
}

/// The run and the wait that an unclean start must keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State {
    /// Raised at each start.
    pub run: u64,
    /// What was in force in any run since the last clean state.
    pub in_force: InForce,
}

/// An open folder. It is locked against every other opener until this is dropped.
#[derive(Debug)]
pub(super) struct Home {
    path: PathBuf,
    /// The identity.
    pub store: String,
    _lock: File,
}

impl Home {
    /// Makes a store in a folder that is empty or does not exist. `make_db` makes the database and says
    /// how many batches it holds. The identity gets its name last: without it there is no store, and
    /// a making that was cut off is started over.
    pub(super) fn create(
        path: &Path,
        make_db: impl FnOnce(&Path, &str) -> Result<u64, OpenError>,
    ) -> Result<Init, OpenError> {
        let io = |doing: &'static str| move |e: io::Error| OpenError::io(path, doing, &e);
        if exists(path, IDENTITY)? {
            identity(path)?;
            return Ok(Init::Existed);
        }
        fs::create_dir_all(path).map_err(io("making the folder"))?;
        let unfinished = exists(path, UNFINISHED)?;
        for entry in fs::read_dir(path).map_err(io("reading the folder"))? {
            let name = entry.map_err(io("reading the folder"))?.file_name();
            let found = name.to_string_lossy().into_owned();
            match found.as_str() {
                NOT_COUNTED | UNFINISHED | PROBE => {}
                name if name.starts_with(EVENTS) => {}
                name if !OURS.contains(&name) => {
                    return Err(OpenError::Foreign {
                        path: path.into(),
                        found,
                    });
                }
                _ if unfinished => {}
                _ => return Err(lost_identity(path)),
            }
        }
        let file = path.join(UNFINISHED);
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(file);
        let mut file = file.map_err(io("making the identity"))?;
        lock(path, &file)?;
        if exists(path, IDENTITY)? {
            // Another `init` ended meanwhile.
            let _ = fs::remove_file(path.join(UNFINISHED));
            return Ok(Init::Existed);
        }
        clear(path).map_err(io("removing what an unfinished init left"))?;

        let store = uuid::Uuid::new_v4().to_string();
        let text = sealed::seal(IDENTITY, &[("store", &store), ("format", "1")]);
        file.set_len(0)
            .and_then(|()| file.write_all(text.as_bytes()))
            .map_err(io("writing the identity"))?;
        file.sync_all().map_err(io("writing the identity"))?;
        sync_folder(path).map_err(io("writing the folder"))?;
        let batch = make_db(&path.join(DB), &store)?;
        Ledger::create(&path.join(LEDGER), &store, Entry { run: 0, batch })
            .map_err(io("writing the ledger"))?;
        let home = Self {
            path: path.into(),
            store,
            _lock: file,
        };
        home.write_state(State {
            run: 0,
            in_force: InForce::default(),
        })?;
        home.leave_clean(0)?;
        fs::rename(path.join(UNFINISHED), path.join(IDENTITY))
            .map_err(io("naming the identity"))?;
        sync_folder(path).map_err(io("writing the folder"))?;
        if let Some(parent) = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
        {
            // The folder may be a mount, or its parent not readable: it is there anyway.
            let _ = sync_folder(parent);
        }
        Ok(Init::Created)
    }

    /// Takes the lock of a store that exists. Writes nothing.
    pub(super) fn open(path: &Path) -> Result<Self, OpenError> {
        if !exists(path, IDENTITY)? {
            let remains = OURS.iter().filter(|name| **name != PROBE);
            for name in remains {
                if exists(path, name)? && !exists(path, UNFINISHED)? {
                    return Err(lost_identity(path));
                }
            }
            return Err(OpenError::Missing { path: path.into() });
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path.join(IDENTITY));
        let file = file.map_err(|e| OpenError::io(path, "opening the identity", &e))?;
        lock(path, &file)?;
        let fields = identity(path)?;
        let store = fields
            .get("store")
            .map_err(|why| OpenError::damaged(path, IDENTITY, why))?;
        let home = Self {
            path: path.into(),
            store,
            _lock: file,
        };
        if !home.db().is_dir() {
            return Err(OpenError::damaged(
                path,
                DB,
                "the folder of the database is missing",
            ));
        }
        Ok(home)
    }

    /// The folder.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The engine's folder.
    pub(super) fn db(&self) -> PathBuf {
        self.path.join(DB)
    }

    /// Reads the state.
    pub(super) fn state(&self) -> Result<State, OpenError> {
        let damaged = |why: String| OpenError::damaged(&self.path, STATE, why);
        let fields = self
            .read(STATE)?
            .ok_or_else(|| damaged("it is missing".into()))?;
        let run = fields.get("run").map_err(damaged)?;
        let settle = Duration::from_millis(fields.get("settle_ms").map_err(damaged)?);
        let lax = fields.get("lax").map_err(damaged)?;
        Ok(State {
            run,
            in_force: InForce { settle, lax },
        })
    }

    /// Opens the ledger.
    pub(super) fn ledger(&self) -> Result<Ledger, OpenError> {
        Ledger::open(&self.path.join(LEDGER), &self.store).map_err(|e| match e.kind() {
            io::ErrorKind::InvalidData => OpenError::damaged(&self.path, LEDGER, e),
            io::ErrorKind::NotFound => OpenError::damaged(&self.path, LEDGER, "it is missing"),
            _ => OpenError::io(&self.path, "opening the ledger", &e),
        })
    }

    /// Whether the store was left clean at the end of that run. A marker of another run or store, or
    /// one that is not readable, counts for nothing.
    pub(super) fn is_clean(&self, run: u64) -> bool {
        let marker = self.read(CLEAN).ok().flatten();
        marker.is_some_and(|fields| fields.get("run") == Ok(run))
    }

    /// What that run left beside its clean marker. What is damaged, or of another run or store, was not left.
    pub(super) fn left(&self, run: u64) -> Option<String> {
        let left = self.read(LEFT).ok().flatten()?;
        let found = left.get("run") == Ok(run);
        found.then(|| left.get("text").ok()).flatten()
    }

    /// Leaves a text without a line end, of that run, for the next one. It counts beside the clean marker only.
    pub(super) fn leave(&self, run: u64, text: &str) -> Result<(), OpenError> {
        let run = run.to_string();
        let fields = [("store", &*self.store), ("run", &run), ("text", text)];
        self.replace(LEFT, &fields)
    }

    /// Removes what was left, and what was begun: for the room that it takes.
    pub(super) fn make_room(&self) {
        for name in ["left.new", "clean.new", "state.new", LEFT] {
            let _ = fs::remove_file(self.path.join(name));
        }
    }

    /// Begins a run: the marker and what was left with it are gone, and the new state is on disk when this returns.
    pub(super) fn begin(&self, state: State) -> Result<(), OpenError> {
        for name in [CLEAN, LEFT] {
            match fs::remove_file(self.path.join(name)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    let doing = format!("removing the file {name}");
                    return Err(OpenError::io(&self.path, doing, &e));
                }
                _ => {}
            }
        }
        let _ = fs::remove_file(self.path.join("left.new")); // begun, and cut off
        // Its rename is synced with the folder, and the removals with it.
        self.write_state(state)
    }

    /// Leaves the clean marker for that run.
    pub(super) fn leave_clean(&self, run: u64) -> Result<(), OpenError> {
        self.replace(CLEAN, &[("store", &self.store), ("run", &run.to_string())])
    }

    /// Finds out whether `size` bytes can be written and synced here. Leaves nothing behind.
    pub(super) fn probe(&self, size: u64) -> Result<(), OpenError> {
        let path = self.path.join(PROBE);
        let write = || {
            let mut file = File::create(&path)?;
            let chunk = [0x5a; 8 * 1024];
            let mut left = size.max(1);
            while left > 0 {
                let part = usize::try_from(left).unwrap_or(usize::MAX).min(chunk.len());
                file.write_all(&chunk[..part])?;
                left -= part as u64;
            }
            file.sync_all()
        };
        let written = write();
        let removed = fs::remove_file(&path);
        written
            .and(removed)
            .map_err(|e| OpenError::io(&self.path, "trying to write", &e))
    }

    fn write_state(&self, state: State) -> Result<(), OpenError> {
        // Rounded up: never a shorter wait.
        let InForce { settle, lax } = state.in_force;
        let settle = settle
            .as_nanos()
            .div_ceil(1_000_000)
            .min(u128::from(u64::MAX));
        let (run, settle, lax) = (state.run.to_string(), settle.to_string(), lax.to_string());
        self.replace(
            STATE,
            &[
                ("store", &self.store),
                ("run", &run),
                ("settle_ms", &settle),
                ("lax", &lax),
            ],
        )
    }

    fn read(&self, name: &str) -> Result<Option<Fields>, OpenError> {
        let damaged = |why: String| OpenError::damaged(&self.path, name, why);
        let bytes = match fs::read(self.path.join(name)) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(OpenError::io(&self.path, format!("reading {name}"), &e)),
        };
        let fields = sealed::unseal(name, &bytes).map_err(damaged)?;
        let store: String = fields.get("store").map_err(damaged)?;
        if store == self.store {
            Ok(Some(fields))
        } else {
            Err(damaged(format!("it belongs to another store, {store}")))
        }
    }

    /// Replaces a small file as a whole, durably.
    fn replace(&self, name: &str, fields: &[(&str, &str)]) -> Result<(), OpenError> {
        let new = self.path.join(format!("{name}.new"));
        let write = || {
            let mut file = File::create(&new)?;
            file.write_all(sealed::seal(name, fields).as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, self.path.join(name))?;
            sync_folder(&self.path)
        };
        write().map_err(|e| {
            // Half of it takes up room, and is of no use.
            let _ = fs::remove_file(&new);
            OpenError::io(&self.path, format!("writing {name}"), &e)
        })
    }
}

fn exists(path: &Path, name: &str) -> Result<bool, OpenError> {
    let found = path.join(name).try_exists();
    found.map_err(|e| OpenError::io(path, format!("looking for {name}"), &e))
}

fn lost_identity(path: &Path) -> OpenError {
    OpenError::damaged(
        path,
        IDENTITY,
        "it is missing, and other parts of a store are there",
    )
}

fn identity(path: &Path) -> Result<Fields, OpenError> {
    let bytes = fs::read(path.join(IDENTITY))
        .map_err(|e| OpenError::io(path, "reading the identity", &e))?;
    sealed::unseal(IDENTITY, &bytes).map_err(|why| OpenError::damaged(path, IDENTITY, why))
}

fn lock(path: &Path, file: &File) -> Result<(), OpenError> {
    file.try_lock().map_err(|e| match e {
        TryLockError::WouldBlock => OpenError::InUse { path: path.into() },
        TryLockError::Error(e) => OpenError::io(path, "locking the identity", &e),
    })
}

fn clear(path: &Path) -> io::Result<()> {
    for name in OURS {
        let path = path.join(name);
        let removed = if path.is_dir() {
            fs::remove_dir_all(path)
        } else {
            fs::remove_file(path)
        };
        if let Err(e) = removed
            && e.kind() != io::ErrorKind::NotFound
        {
            return Err(e);
        }
    }
    Ok(())
}

fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
