//! The ledger: a synced note, outside of the engine, of the last batch that the store must hold.
//!
//! Knows nothing of fences. It is written in place, two slots in turn, each with a checksum: so it
//! needs no new space on a full disk, and a torn write leaves the slot before it.

use super::sealed;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A slot has a page of its own: a torn write does not reach into the other.
const SLOT: usize = 4096;

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
    turn: u64,
    /// The newest entry.
    pub entry: Entry,
}

impl Ledger {
    /// Makes the file, with both slots written and synced. The caller syncs the folder.
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
            entry,
        };
        ledger.note(entry)?;
        ledger.note(entry)
    }

    /// Opens the file and reads the newest readable slot.
    ///
    /// # Errors
    /// Where neither slot is readable, or one is another store's: as `InvalidData`, with a clause that
    /// says why.
    pub(super) fn open(path: &Path, store: &str) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let bad = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        let mut newest: Option<(u64, Entry)> = None;
        let mut trouble = String::new();
        for index in 0..2 {
            let mut bytes = vec![0; SLOT];
            let slot = file.read_exact_at(&mut bytes, index * SLOT as u64);
            let slot = slot.map_err(|_| "it is cut short".to_owned());
            match slot.and_then(|()| read_slot(&bytes)) {
                Ok((owner, _, _)) if owner != store => {
                    return Err(bad(format!("it belongs to another store, {owner}")));
                }
                Ok((_, turn, entry)) if newest.is_none_or(|(best, _)| turn > best) => {
                    newest = Some((turn, entry));
                }
                Ok(_) => {}
                Err(why) => trouble = why,
            }
        }
        let (turn, entry) = newest.ok_or_else(|| bad(trouble))?;
        Ok(Self {
            file,
            store: store.into(),
            turn,
            entry,
        })
    }

    /// Writes an entry over the older slot, and syncs it.
    pub(super) fn note(&mut self, entry: Entry) -> io::Result<()> {
        // After a failure the turn stays, and the same slot is written again: the other is good.
        let turn = self.turn + 1;
        let mut slot = sealed::seal(
            "ledger",
            &[
                ("store", &self.store),
                ("turn", &turn.to_string()),
                ("run", &entry.run.to_string()),
                ("batch", &entry.batch.to_string()),
            ],
        )
        .into_bytes();
        slot.resize(SLOT, b'\n');
        self.file.write_all_at(&slot, (turn % 2) * SLOT as u64)?;
        self.file.sync_data()?;
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
            Ledger::open(&path, "me").unwrap().note(entry).unwrap();
            assert_eq!(Ledger::open(&path, "me").unwrap().entry, entry);
        }
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 2 * SLOT as u64);
    }

    #[test]
    fn a_torn_write_leaves_the_entry_before() {
        let (_folder, path) = made();
        let mut ledger = Ledger::open(&path, "me").unwrap();
        ledger.note(Entry { run: 1, batch: 2 }).unwrap();
        ledger.note(Entry { run: 1, batch: 3 }).unwrap();
        let start = (ledger.turn % 2) * SLOT as u64;
        ledger.file.write_all_at(&[0; 100], start).unwrap();
        assert_eq!(
            Ledger::open(&path, "me").unwrap().entry,
            Entry { run: 1, batch: 2 }
        );
        ledger
            .file
            .write_all_at(&[0; 100], SLOT as u64 - start)
            .unwrap();
        assert!(Ledger::open(&path, "me").is_err());
    }

    #[test]
    fn another_stores_ledger_is_refused() {
        let (_folder, path) = made();
        assert!(Ledger::open(&path, "you").is_err());
    }
}
