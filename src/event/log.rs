//! The way from whoever saw something to where it is kept: a queue that nobody waits for, and a thread.

use super::fold::Fold;
use super::keep::{Bounds, Keep, Wanted};
use super::sighting::{Event, Sighting};
use crate::clock::{self, Time};
use parking_lot::Mutex;
use prometheus::IntCounter;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;
use tokio::sync::broadcast;

/// How many sightings may wait.
const QUEUE: usize = 8192;
/// How long what has changed may wait to be written.
const FLUSH: Duration = Duration::from_millis(200);
/// How often it is looked for what is too old, where nothing is seen.
const IDLE: Duration = Duration::from_mins(1);
/// How long the end waits for what is still to be written.
const GOODBYE: Duration = Duration::from_secs(2);
/// How many events that were kept may go on.
const GO_ON: usize = 4096;
/// How far who follows may fall behind.
const BEHIND: usize = 1024;

/// The log of events. Dropping it writes what waits.
pub struct Events {
    queue: Option<SyncSender<Box<Sighting>>>,
    ended: Mutex<Receiver<()>>,
    /// `None`: they cannot be kept.
    keep: Option<Arc<Keep>>,
    follow: broadcast::Sender<Arc<Event>>,
    dropped: IntCounter,
}

impl Events {
    /// Starts the thread. Without a place to keep them, events are shown to who follows them alone. `dropped` counts
    /// sightings that found no room.
    ///
    /// # Errors
    /// Where the system refuses the thread.
    pub fn start(keep: Option<Keep>, bounds: Bounds, dropped: IntCounter) -> io::Result<Arc<Self>> {
        let keep = keep.map(Arc::new);
        let (queue, sightings) = sync_channel(QUEUE);
        let follow = broadcast::Sender::new(BEHIND);
        let writer = Writer {
            keep: keep.clone(),
            bounds,
            follow: follow.clone(),
            failing: false,
        };
        let (tell, ended) = sync_channel(1);
        thread::Builder::new()
            .name("events".into())
            .spawn(move || {
                writer.run(&sightings);
                let _ = tell.send(());
            })?;
        Ok(Arc::new(Self {
            queue: Some(queue),
            ended: Mutex::new(ended),
            keep,
            follow,
            dropped,
        }))
    }

    /// Hands something on. Never waits.
    pub fn saw(&self, sighting: Sighting) {
        let sent = self
            .queue
            .as_ref()
            .map(|queue| queue.try_send(Box::new(sighting)));
        if !matches!(sent, Some(Ok(()))) {
            self.dropped.inc();
        }
    }

    /// Up to `limit` events that are kept, the newest first. May block on the disk.
    ///
    /// # Errors
    /// What went wrong.
    pub fn list(&self, wanted: &Wanted, limit: usize) -> Result<Vec<Event>, String> {
        let keep = self.keep.as_ref();
        let keep = keep.ok_or("events cannot be kept: the log of the start says why")?;
        keep.list(wanted, limit)
    }

    /// Each event from now on, as it is when it is written: one that goes on comes again.
    #[must_use]
    pub fn follow(&self) -> broadcast::Receiver<Arc<Event>> {
        self.follow.subscribe()
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.queue = None;
        let _ = self.ended.lock().recv_timeout(GOODBYE);
    }
}

/// The thread's side.
struct Writer {
    keep: Option<Arc<Keep>>,
    bounds: Bounds,
    follow: broadcast::Sender<Arc<Event>>,
    /// It was said that nothing can be written.
    failing: bool,
}

impl Writer {
    fn run(mut self, sightings: &Receiver<Box<Sighting>>) {
        let keep = self.keep.as_ref();
        let mut fold = Fold::after(keep.map_or(0, |keep| keep.last()));
        let kept = keep.map(|keep| keep.list(&Wanted::default(), GO_ON));
        for event in kept.and_then(Result::ok).unwrap_or_default() {
            fold.go_on(event);
        }
        // When what was seen is to be written; `None`: nothing was.
        let mut due = None;
        loop {
            let patience = due.map_or(IDLE, Time::left);
            let ended = match sightings.recv_timeout(patience) {
                Ok(sighting) => {
                    fold.see(&sighting);
                    let due = *due.get_or_insert_with(|| clock::now().after(FLUSH));
                    // Where nothing can be written, trying at each sighting would only take time from others.
                    let crowded = fold.is_crowded() && !self.failing;
                    if !due.has_passed() && !crowded {
                        continue;
                    }
                    false
                }
                Err(RecvTimeoutError::Timeout) => false,
                Err(RecvTimeoutError::Disconnected) => true,
            };
            self.write(&mut fold);
            due = None;
            if ended {
                return;
            }
        }
    }

    fn write(&mut self, fold: &mut Fold) {
        let mut changed = fold.changed();
        let kept = match &self.keep {
            Some(keep) => keep.keep(&mut changed, self.bounds, clock::time_of_day()),
            None => Ok(None),
        };
        match kept {
            Ok(gone) => {
                self.failing &= changed.is_empty();
                fold.placed(&changed);
                if let Some(gone) = gone {
                    fold.forget(gone);
                }
            }
            Err(error) => {
                fold.give_back(&changed); // with what comes next

                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(%error, "events cannot be written: who follows them sees them all the same");
                }
            }
        }
        for event in changed {
            let _ = self.follow.send(Arc::new(event)); // nobody may follow
        }
    }
}
