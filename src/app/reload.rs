//! The configuration that is in force, and the next one: read again when that is asked for or its file has
//! changed, and taken up whole or not at all.

use super::{Encryption, plan};
use crate::config::{self, Note};
use crate::journey::{Plan, Shared};
use crate::stamp::Stamp;
use crate::store::{self, RocksStore};
use crate::tls::server;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::watch;

/// The configuration that is in force.
pub(super) struct Live {
    plan: watch::Sender<Plan>,
    encryption: Encryption,
    store: Arc<RocksStore>,
    file: Option<File>,
}

/// Where it comes from.
struct File {
    path: PathBuf,
    /// What was last read from it.
    text: String,
    /// As it was last looked at, and as it was when it was last read.
    seen: Stamp,
    read: Stamp,
}

/// Why a configuration is not taken up. Nothing has changed.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("cannot read it: {0}")]
    Unreadable(io::Error),
    #[error("it has faults:{}", lines(.0))]
    Faults(Vec<Note>),
    #[error("{} cannot change while the gateway runs: restart it, or set it back", .0.join(", "))]
    Fixed(Vec<&'static str>),
    #[error(transparent)]
    Tls(super::Error),
    #[error("what it puts in force cannot be noted: {0}")]
    Store(store::Error),
}

fn lines(notes: &[Note]) -> String {
    let lines: Vec<String> = notes.iter().map(ToString::to_string).collect();
    format!("\n  {}", lines.join("\n  "))
}

impl Live {
    pub(super) fn new(plan: Plan, encryption: Encryption, store: Arc<RocksStore>) -> Self {
        Self {
            plan: watch::Sender::new(plan),
            encryption,
            store,
            file: None,
        }
    }

    /// Reads it again when the file changes.
    pub(super) fn follow(&mut self, path: &Path, text: String, now: Stamp) {
        self.file = Some(File {
            path: path.into(),
            text,
            seen: now,
            read: now,
        });
    }

    /// What the requests share of what is in force.
    pub(super) fn now(&self) -> Arc<Shared> {
        Arc::clone(&self.plan.borrow().shared)
    }

    /// What is in force, and what will be.
    pub(super) fn watch(&self) -> watch::Receiver<Plan> {
        self.plan.subscribe()
    }

    /// What clients are shown.
    pub(super) fn clients_tls(&self) -> Option<Arc<server::Tls>> {
        self.encryption.clients.clone()
    }

    /// Looks whether files have changed. To be called about once a second: a file that is still being
    /// written is not read.
    pub(super) fn look(&mut self) {
        self.encryption.refresh(&self.now().settings);
        let Some(file) = &mut self.file else { return };
        let now = Stamp::of(&file.path);
        let at_rest = std::mem::replace(&mut file.seen, now) == now;
        if at_rest && now != file.read && self.now().settings.server.reload_on_change {
            self.reload();
        }
    }

    /// Reads the configuration again, and takes it up unless it has faults.
    pub(super) fn reload(&mut self) {
        if let Some(log) = &self.now().recorders.log {
            log.reopen();
        }
        let Some(file) = &mut self.file else { return };
        file.read = Stamp::of(&file.path);
        let path = file.path.display().to_string();
        let read = std::fs::read_to_string(&file.path).map_err(Refused::Unreadable);
        if read.as_ref().is_ok_and(|text| *text == file.text) {
            tracing::info!(path, "the configuration is what it was");
            return;
        }
        let metrics = Arc::clone(&self.now().metrics);
        match read.and_then(|text| self.take_up(text)) {
            Ok(warnings) => {
                metrics.reloads[0].inc();
                for warning in warnings {
                    tracing::warn!("{path}:{warning}");
                }
                tracing::info!(path, "the configuration has changed: new requests go by it");
            }
            Err(refused) => {
                metrics.reloads[1].inc();
                tracing::error!(path, "the configuration stays as it was: {refused}");
            }
        }
    }

    fn take_up(&mut self, text: String) -> Result<Vec<Note>, Refused> {
        let loaded = config::load(&text).map_err(Refused::Faults)?;
        let before = self.now();
        let fixed = before.settings.fixed(&loaded.settings);
        if !fixed.is_empty() {
            return Err(Refused::Fixed(fixed));
        }
        let anew = before.settings.fenced_anew(&loaded.settings);
        if !anew.is_empty() {
            tracing::warn!(
                routes = anew.join(", "),
                "resources have other names now and begin without a fence: a former holder may write until the next one has"
            );
        }
        let encryption = self.encryption.after(&before.settings, &loaded.settings);
        let encryption = encryption.map_err(Refused::Tls)?;
        let now = plan::in_force(&loaded.settings);
        self.store.enforce(now).map_err(Refused::Store)?;
        let next = plan::next(
            &self.plan.borrow(),
            loaded.settings,
            &*self.store,
            &encryption,
        );
        self.encryption = encryption;
        let gone = self.plan.send_replace(next);
        let now = self.now();
        now.guards.follow(&gone.shared.settings, &now.settings);
        if let Some(file) = &mut self.file {
            file.text = text;
        }
        Ok(loaded.warnings)
    }
}
