//! Stopping, softly first, then hard, and reading the configuration again: who asks for it, who has heard, and
//! what the service manager is told.

mod manager;
mod pulse;

pub use manager::Manager;
pub use pulse::{Heart, Pulse};

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, watch};

/// The request to stop, shared by all who must hear it. Softly: no new connections, what is under
/// way may end. Hard: now.
#[derive(Clone)]
pub struct Stop {
    soft: watch::Sender<bool>,
    hard: watch::Sender<bool>,
    done: watch::Sender<usize>,
    reload: Arc<Notify>,
    /// Counted apart from the channel, so that a send cannot be lost.
    count: Arc<AtomicUsize>,
}

impl Default for Stop {
    fn default() -> Self {
        Self {
            soft: watch::Sender::new(false),
            hard: watch::Sender::new(false),
            done: watch::Sender::new(0),
            reload: Arc::default(),
            count: Arc::default(),
        }
    }
}

impl Stop {
    /// Asks for a soft stop.
    pub fn ask(&self) {
        self.soft.send_replace(true);
    }

    /// Asks for a hard stop.
    pub fn ask_hard(&self) {
        self.ask();
        self.hard.send_replace(true);
    }

    /// Asks that the configuration be read again.
    pub fn ask_reload(&self) {
        self.reload.notify_one();
    }

    pub(crate) async fn reload_asked(&self) {
        self.reload.notified().await;
    }

    pub(crate) fn soft(&self) -> watch::Receiver<bool> {
        self.soft.subscribe()
    }

    pub(crate) async fn asked(&self) {
        let _ = self.soft.subscribe().wait_for(|asked| *asked).await;
    }

    pub(crate) async fn hard(&self) {
        let _ = self.hard.subscribe().wait_for(|asked| *asked).await;
    }

    pub(crate) fn one_done(&self) {
        let count = self.count.fetch_add(1, Ordering::AcqRel) + 1;
        self.done.send_if_modified(|done| {
            let more = count > *done;
            *done = count.max(*done);
            more
        });
    }

    /// Waits until that many serving threads have ended.
    pub(crate) async fn done(&self, count: usize) {
        let _ = self.done.subscribe().wait_for(|done| *done >= count).await;
    }

    /// Listens for SIGTERM and SIGINT, on a thread of its own: the first asks for a soft stop, the
    /// second for a hard one. SIGHUP asks for a reload.
    ///
    /// # Errors
    /// Where the system refuses the handlers or the thread.
    pub fn on_signals(&self) -> std::io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (mut term, mut int, mut hangup) = {
            let _inside = runtime.enter();
            (
                signal(SignalKind::terminate())?,
                signal(SignalKind::interrupt())?,
                signal(SignalKind::hangup())?,
            )
        };
        let (stop, reload) = (self.clone(), Arc::clone(&self.reload));
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::spawn(async move {
                        while hangup.recv().await.is_some() {
                            reload.notify_one();
                        }
                    });
                    next(&mut term, &mut int).await;
                    tracing::info!("stopping softly; send the signal again to stop at once");
                    stop.ask();
                    next(&mut term, &mut int).await;
                    tracing::warn!("stopping at once");
                    stop.ask_hard();
                });
            })?;
        Ok(())
    }
}

async fn next(term: &mut Signal, int: &mut Signal) {
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
}
