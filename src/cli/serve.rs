//! `fencegate serve`: runs the gateway until a signal ends it.

use super::{Failure, in_file, load_text};
use crate::app::Gateway;
use crate::lifecycle::{Manager, Stop};
use crate::listen::Passed;
use crate::stamp::Stamp;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::Path;

pub(super) fn run(config: &Path) -> Result<(), Failure> {
    let passed = Passed::take(); // first, since there is no other thread yet
    let manager = Manager::from_env();
    let stamp = Stamp::of(config);
    let (loaded, text) = load_text(config)?;
    for warning in &loaded.warnings {
        tracing::warn!("{}", in_file(config, warning));
    }
    allow_descriptors();
    let stop = Stop::default();
    stop.on_signals()?;
    let path = std::path::absolute(&loaded.settings.store.path)?
        .display()
        .to_string();
    let addresses = [
        &loaded.settings.server.listen[..],
        &[loaded.settings.admin.listen],
    ];
    let passed = passed.and_then(|passed| passed.fit(&addresses.concat()));
    let passed = passed.map_err(|error| Failure::Config(format!("fencegate: {error}")))?;
    let gateway = manager.starting(|| Gateway::open(loaded.settings, passed))?;
    let gateway = gateway.following(config, text, stamp);
    tracing::info!(version = env!("CARGO_PKG_VERSION"), store = %path, "fencegate has its store");
    for address in gateway.addresses() {
        tracing::info!(%address, "serving");
    }
    tracing::info!(address = %gateway.admin_address(), "admin pages");
    gateway.serve(&stop, &manager)?;
    Ok(())
}

/// Lets the process open as many files as it may: the usual soft limit, 1024, is far below what it is to
/// serve.
fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, wanted) {
        tracing::warn!(%error, now = ?limit.current, "the limit of open files stays as it is");
    }
}
