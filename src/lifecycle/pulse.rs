//! Whether the serving threads have begun, and whether they go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

/// The pulse of the serving threads.
#[derive(Clone)]
pub struct Pulse(Arc<Inner>);

struct Inner {
    beats: Box<[AtomicU64]>,
    began: Notify,
}

/// One thread's part of it.
pub struct Heart(Pulse, usize);

impl Pulse {
    /// That of so many threads, none of which has begun.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        Self(Arc::new(Inner {
            beats: (0..threads).map(|_| AtomicU64::new(0)).collect(),
            began: Notify::new(),
        }))
    }

    /// The part of the thread of that number.
    #[must_use]
    pub fn of(&self, thread: usize) -> Heart {
        Heart(self.clone(), thread)
    }

    /// How often each thread's heart has beaten.
    #[must_use]
    pub fn count(&self) -> Vec<u64> {
        let beats = self.0.beats.iter();
        beats.map(|beats| beats.load(Ordering::Acquire)).collect()
    }

    /// Waits until each thread's heart has beaten. For one who waits.
    pub async fn all_began(&self) {
        while self.count().contains(&0) {
            self.0.began.notified().await;
        }
    }
}

impl Heart {
    /// The thread goes on: to be said some ten times a second, by the thread itself.
    pub fn beat(&self) {
        let Self(Pulse(all), thread) = self;
        if let Some(beats) = all.beats.get(*thread)
            && beats.fetch_add(1, Ordering::AcqRel) == 0
        {
            all.began.notify_one();
        }
    }
}
