//! The engine, `RocksDB`: how it is set up, and how it is opened without trusting it to see all losses.
//!
//! Knows nothing of commits or of runs. Opening is two steps: a read-only one that reads every entry
//! and compares the whole with its tally, and only then the one that may write. So a damaged store is
//! refused as it was found, and never made worse.

use super::record::{self, Tally};
use super::refusal::OpenError;
use crate::fence::ResourceKey;
use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, Cache, DB, DBCompressionType, DBRawIterator,
    DBRecoveryMode, LogLevel, Options, ReadOptions, WriteBatch, WriteOptions,
};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const WRITE_BUFFER: usize = 8 << 20;
/// Steps in which space for the log is reserved. (With one column family this limit does nothing else.)
const LOG_STEP: u64 = 256 << 10;

/// What a database holds, beside the fences.
pub(super) struct Contents {
    /// What it must hold, and does.
    pub tally: Tally,
    /// Resources created, by route.
    pub created: HashMap<Arc<str>, u64>,
}

/// Opens the database of one store, again and again with the same cache.
pub(super) struct Engine {
    home: PathBuf,
    path: PathBuf,
    store: String,
    cache: Cache,
}

impl Engine {
    /// Remembers where the database is. Opens nothing.
    pub(super) fn new(home: &Path, path: PathBuf, store: &str, cache_bytes: usize) -> Self {
        let cache = Cache::new_hyper_clock_cache(cache_bytes.max(1 << 20), 0);
        Self {
            home: home.into(),
            path,
            store: store.into(),
            cache,
        }
    }

    /// Makes an empty database and says how many batches it holds.
    pub(super) fn create(home: &Path, path: &Path, store: &str) -> Result<u64, OpenError> {
        let engine = Self::new(home, path.into(), store, 0);
        let failed = |e| OpenError::engine(home, e);
        let mut options = engine.options();
        options.create_if_missing(true);
        options.set_error_if_exists(true);
        let db = DB::open(&options, path).map_err(failed)?;
        let mut tally = Tally::default();
        tally.batch = 1;
        tally.add(record::IDENTITY, store.as_bytes());
        let mut batch = WriteBatch::default();
        batch.put(record::IDENTITY, store);
        batch.put(record::TALLY, tally.encode());
        db.write_opt(batch, &synced()).map_err(failed)?;
        db.flush().map_err(failed)?;
        Ok(tally.batch)
    }

    /// Opens it read-only, and reads and checks all. Changes nothing.
    pub(super) fn look(&self, at_least: u64) -> Result<(DB, Contents), OpenError> {
        self.look_for_logs()?;
        let db = DB::open_for_read_only(&self.options(), &self.path, false);
        let db = db.map_err(|e| OpenError::engine(&self.home, e))?;
        let contents = self.check(&db, at_least)?;
        Ok((db, contents))
    }

    /// Opens it for writing, after [`Engine::look`]. What was only in its log is in a table, synced,
    /// when this returns.
    pub(super) fn open(&self, at_least: u64) -> Result<(DB, Contents), OpenError> {
        let (_, contents) = self.look(at_least)?;
        let failed = |e| OpenError::engine(&self.home, e);
        let db = DB::open(&self.options(), &self.path).map_err(failed)?;
        let tally = db.get_opt(record::TALLY, &checked()).map_err(failed)?;
        if tally.as_deref() != Some(&contents.tally.encode()[..]) {
            return Err(self.damaged("it changed while it was opened"));
        }
        Ok((db, contents))
    }

    /// How many bytes the logs have now: an opening writes them anew.
    pub(super) fn log_bytes(&self) -> u64 {
        self.logs()
            .map(|log| log.metadata().map_or(0, |data| data.len()))
            .sum()
    }

    fn logs(&self) -> impl Iterator<Item = fs::DirEntry> {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        entries.filter(|entry| entry.path().extension().is_some_and(|e| e == "log"))
    }

    /// The engine always has a live log, and takes a lost one for an empty one.
    fn look_for_logs(&self) -> Result<(), OpenError> {
        if !self.path.join("CURRENT").is_file() {
            return Err(self.damaged("its file CURRENT is missing"));
        }
        if self.logs().next().is_none() {
            return Err(self.damaged("its live log is missing"));
        }
        Ok(())
    }

    fn check(&self, db: &DB, at_least: u64) -> Result<Contents, OpenError> {
        let mut all = checked();
        all.fill_cache(false);
        all.set_readahead_size(1 << 20);
        let mut entries: DBRawIterator = db.raw_iterator_opt(all);
        let mut found = Tally::default();
        let (mut tally, mut owner, mut created) = (None, None, HashMap::new());
        entries.seek_to_first();
        while let Some((key, value)) = entries.item() {
            match key {
                record::TALLY => tally = Tally::decode(value),
                record::IDENTITY => owner = Some(String::from_utf8_lossy(value).into_owned()),
                key => match (record::route_of(key), record::decode_count(value)) {
                    (Some(route), Some(count)) => drop(created.insert(route.into(), count)),
                    _ if ResourceKey::from_bytes(key).is_some() => {
                        record::decode(value).map_err(|e| self.damaged(&e.to_string()))?;
                    }
                    _ => return Err(self.damaged("it holds an entry that is not readable")),
                },
            }
            if key != record::TALLY {
                found.add(key, value);
            }
            entries.next();
        }
        entries
            .status()
            .map_err(|e| OpenError::engine(&self.home, e))?;
        let tally = tally.ok_or_else(|| self.damaged("it holds no tally of its entries"))?;
        if owner.as_ref() != Some(&self.store) {
            return Err(self.damaged("it belongs to another store"));
        }
        found.batch = tally.batch;
        if found != tally {
            return Err(self.damaged(&format!(
                "its entries are not those that its tally names: {found:?}, {tally:?}"
            )));
        }
        if tally.batch < at_least {
            let batch = tally.batch;
            return Err(self.damaged(&format!(
                "it ends at batch {batch}, and batch {at_least} was on disk: its newest changes are lost"
            )));
        }
        Ok(Contents { tally, created })
    }

    fn damaged(&self, why: &str) -> OpenError {
        OpenError::damaged(&self.home, "its database", why)
    }

    fn options(&self) -> Options {
        let mut table = BlockBasedOptions::default();
        table.set_block_cache(&self.cache);
        table.set_ribbon_filter(10.0);
        table.set_partition_filters(true);
        table.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
        table.set_cache_index_and_filter_blocks(true);
        table.set_cache_index_and_filter_blocks_with_high_priority(true);
        table.set_pin_top_level_index_and_filter(true);
        table.set_optimize_filters_for_memory(true);

        let mut options = Options::default();
        options.set_block_based_table_factory(&table);
        options.set_compression_type(DBCompressionType::Lz4);
        options.set_write_buffer_size(WRITE_BUFFER);
        options.set_max_total_wal_size(LOG_STEP);
        options.set_manifest_preallocation_size(64 << 10);
        options.set_max_manifest_file_size(1 << 20);
        options.set_max_open_files(256);
        options.set_max_background_jobs(2);

        // A flipped bit anywhere, or a log that is lost, is an error and not the end of the data.
        // Only a torn end of the log is let through: kill -9 leaves one.
        options.set_paranoid_checks(true);
        options.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
        options.set_recycle_log_file_num(0);
        options.set_track_and_verify_wals_in_manifest(true);

        options.set_log_level(LogLevel::Warn);
        options.set_keep_log_file_num(4);
        options.set_max_log_file_size(1 << 20);
        options.set_stats_dump_period_sec(0);
        options.set_stats_persist_period_sec(0);
        options
    }
}

/// Reads with checksums.
pub(super) fn checked() -> ReadOptions {
    let mut options = ReadOptions::default();
    options.set_verify_checksums(true);
    options
}

/// Writes that are on disk when they return.
pub(super) fn synced() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.set_sync(true);
    options
}
