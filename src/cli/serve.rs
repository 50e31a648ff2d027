//! `fencegate serve`: runs the gateway until a signal ends it.

use super::{Failure, in_file, load};
use crate::app::Gateway;
use crate::lifecycle::Stop;
use std::path::Path;

pub(super) fn run(config: &Path) -> Result<(), Failure> {
    let loaded = load(config)?;
    for warning in &loaded.warnings {
        tracing::warn!("{}", in_file(config, warning));
    }
    let stop = Stop::default();
    stop.on_signals()?;
    let path = std::path::absolute(&loaded.settings.store.path)?
        .display()
        .to_string();
    let gateway = Gateway::open(loaded.settings)?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), store = %path, "fencegate has its store");
    for address in gateway.addresses() {
        tracing::info!(%address, "serving");
    }
    tracing::info!(address = %gateway.admin_address(), "admin pages");
    gateway.serve(&stop)?;
    Ok(())
}
