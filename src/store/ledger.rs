//! The ledger: a note, outside of the engine, of the last batch that the store must hold.
//!
//! Knows nothing of fences. It is written in place, so that it needs no new space on a full disk, in
//! slots with a checksum each. Two are written in turn and synced: a torn write leaves the one before.
//! The third is written after every batch without a sync: it is exact after anything but a loss of
//! power, and torn then at worst.

use super::sealed;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A slot has a page of its own: a torn write does not reach into another.
const SLOT: usize = 4096;
const SLOTS: usize = 3;
/// The slot that is written without a sync.
const JOTTER: u64 = 2;

/// What a slot says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The run that wrote it.
    pub run: u64,
    /// The last batch that was on disk then.
    pub batch: u64,
}

/// The open file.
#[derive(Debug)]
pub(super) struct Ledger {
    file: File,
    store: String,
    /// Counts the writes: the readable slot with the highest is the newest.
    turn: u64,
    /// The synced slot that is written next.
    next: u64,
    /// The newest entry.
    pub entry: Entry,
}

impl Ledger {
    /// Makes the file, with all slots written and synced. The caller syncs the folder.
    pub(super) fn create(path: &Path, store: &str, entry: Entry) -> io::Result<()> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)?;
        let mut ledger = Self {
            file,
            store: store.into(),
            turn: 0,
            next: 0,
            entry,
        };
        ledger.jot(entry)?;
        ledger.note(entry)?;
        ledger.note(entry)
    }

    /// Opens the file and reads the newest readable slot.
    ///
    /// # Errors
    /// Where no slot is readable, or one is another store's: as `InvalidData`, with a clause that
    /// says why.
    pub(super) fn open(path: &Path, store: &str) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let bad = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        let mut newest: Option<(u64, Entry)> = None;
        let mut turns = [0; SLOTS];
        let mut trouble = String::new();
        for (index, seen) in turns.iter_mut().enumerate() {
            let mut bytes = vec![0; SLOT];
            let slot = file.read_exact_at(&mut bytes, (index * SLOT) as u64);
            let slot = slot.map_err(|_| "it is cut short".to_owned());
            match slot.and_then(|()| read_slot(&bytes)) {
                Ok((owner, _, _)) if owner != store => {
                    return Err(bad(format!("it belongs to another store, {owner}")));
                }
                Ok((_, turn, entry)) => {
                    *seen = turn;
                    if newest.is_none_or(|(best, _)| turn > best) {
                        newest = Some((turn, entry));
                    }
                }
                Err(why) => trouble = why,
            }
        }
        let (turn, entry) = newest.ok_or_else(|| bad(trouble))?;
        Ok(Self {
            file,
            store: store.into(),
            turn,
            next: u64::from(turns[0] > turns[1]),
            entry,
        })
    }

    /// Writes an entry over the older of the synced slots, and syncs it.
    pub(super) fn note(&mut self, entry: Entry) -> io::Result<()> {
        // After a failure the same slot is written again: the other is good.
        self.write(self.next, entry)?;
        self.file.sync_data()?;
        self.next = 1 - self.next;
        Ok(())
    }

    /// Writes an entry without a sync. Cheap: for each batch.
    pub(super) fn jot(&mut self, entry: Entry) -> io::Result<()> {
        self.write(JOTTER, entry)
    }

    fn write(&mut self, slot: u64, entry: Entry) -> io::Result<()> {
        let turn = self.turn + 1;
        let mut bytes = sealed::seal(
            "ledger",
            &[
                ("store", &self.store),
                ("turn", &turn.to_string()),
                ("run", &entry.run.to_string()),
                ("batch", &entry.batch.to_string()),
            ],
        )
        .into_bytes();
        bytes.resize(SLOT, b'\n');
        self.file.write_all_at(&bytes, slot * SLOT as u64)?;
        (self.turn, self.entry) = (turn, entry);
        Ok(())
    }
}

fn read_slot(bytes: &[u8]) -> Result<(String, u64, Entry), String> {
    let fields = sealed::unseal("ledger", bytes)?;
    let entry = Entry {
        run: fields.get("run")?,
        batch: fields.get("batch")?,
    };
    Ok((fields.get("store")?, fields.get("turn")?, entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made() -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger");
        Ledger::create(&path, "me", Entry { run: 0, batch: 1 }).unwrap();
        (folder, path)
    }

    #[test]
    fn the_newest_entry_is_read() {
        let (_folder, path) = made();
        for batch in 2..9 {
            let entry = Entry { run: 3, batch };
            let mut ledger = Ledger::open(&path, "me").unwrap();
            if batch % 3 == 0 {
                ledger.jot(entry).unwrap();
            } else {
                ledger.note(entry).unwrap();
            }
            assert_eq!(Ledger::open(&path, "me").unwrap().entry, entry);
        }
        let length = std::fs::metadata(&path).unwrap().len();
        assert_eq!(length, (SLOTS * SLOT) as u64);
    }

    #[test]
    fn torn_writes_leave_the_last_synced_entry() {
        let (_folder, path) = made();
        let mut ledger = Ledger::open(&path, "me").unwrap();
        let read = || Ledger::open(&path, "me").map(|ledger| ledger.entry.batch);
        let at = |batch| Entry { run: 1, batch };
        ledger.note(at(2)).unwrap();
        ledger.note(at(3)).unwrap();
        ledger.jot(at(4)).unwrap();
        let (older, newer) = (ledger.next, 1 - ledger.next);
        let tear = |slot: u64| ledger.file.write_all_at(&[0; 100], slot * SLOT as u64);
        assert_eq!(read().unwrap(), 4);
        tear(JOTTER).unwrap();
        assert_eq!(read().unwrap(), 3);
        // A crash amid the next note: its slot is the older one.
        tear(older).unwrap();
        assert_eq!(read().unwrap(), 3);
        assert_eq!(Ledger::open(&path, "me").unwrap().next, older);
        tear(newer).unwrap();
        assert!(read().is_err());
    }

    #[test]
    fn another_stores_ledger_is_refused() {
        let (_folder, path) = made();
        assert!(Ledger::open(&path, "you").is_err());
    }
}
