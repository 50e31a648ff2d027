//! `fencegate check`: the configuration's faults, all at once, or what becomes of a request.

use super::{Failure, in_file, load};
use crate::app::{Encryption, probing};
use crate::config::Settings;
use crate::route::explain::{explain, of_route};
use anyhow::anyhow;
use std::path::Path;

pub(super) fn run(config: &Path, request: Option<&str>, probe: bool) -> Result<(), Failure> {
    let loaded = load(config)?;
    if let Some(request) = request {
        let explained = explain(&loaded.settings, request).map_err(Failure::Config)?;
        out!("{explained}");
        return match explained.route {
            Some(route) if probe => probed(&loaded.settings, |name| name == route),
            _ => Ok(()),
        };
    }
    Encryption::open(&loaded.settings).map_err(|e| Failure::Config(e.to_string()))?;
    for warning in &loaded.warnings {
        out!("warning: {}", in_file(config, warning));
    }
    for route in &loaded.settings.routes {
        out!("route {}: {}", route.name, of_route(route));
    }
    out!("{}: no faults", config.display());
    if probe {
        probed(&loaded.settings, |_| true)?;
    }
    Ok(())
}

/// What the upstreams of guarded routes do at present.
fn probed(settings: &Settings, wanted: impl Fn(&str) -> bool) -> Result<(), Failure> {
    let mut failed = Vec::new();
    for found in probing::look(settings)? {
        if !wanted(&found.route) {
            continue;
        }
        let (route, strength) = (found.route, found.strength.word());
        out!("probe of route {route}: {strength}: {}", found.why);
        if found.failed {
            failed.push(route);
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    let failed = failed.join(", ");
    Err(anyhow!("not guarded as the configuration wants it: {failed}").into())
}
