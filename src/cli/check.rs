//! `fencegate check`: the configuration's faults, all at once, or what becomes of a request.

use super::{Failure, in_file, load};
use crate::app::{Encryption, probing};
use crate::config::Settings;
use crate::route::explain::{explain, of_route};
use std::path::Path;

pub(super) fn run(config: &Path, request: Option<&str>, probe: bool) -> Result<(), Failure> {
    let loaded = load(config)?;
    if let Some(request) = request {
        out!(
            "{}",
            explain(&loaded.settings, request).map_err(Failure::Config)?
        );
        if probe {
            probed(&loaded.settings)?;
        }
        return Ok(());
    }
    Encryption::open(&loaded.settings).map_err(|e| Failure::Config(e.to_string()))?;
    for warning in &loaded.warnings {
        out!("warning: {}", in_file(config, warning));
    }
    for route in &loaded.settings.routes {
        out!("route {}: {}", route.name, of_route(route));
    }
    if probe {
        probed(&loaded.settings)?;
    }
    out!("{}: no faults", config.display());
    Ok(())
}

/// What the upstreams of guarded routes do at present.
fn probed(settings: &Settings) -> Result<(), Failure> {
    for (route, strength, why) in probing::look(settings)? {
        out!("probe of route {route}: {}: {why}", strength.word());
    }
    Ok(())
}
