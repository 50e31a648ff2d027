//! `fencegate rebuild`: fences from the stamps in an object store, after a lost store.

use super::{Failure, load};
use crate::app::rebuild::{From, rebuild};
use anyhow::anyhow;
use std::path::Path;

pub(super) fn run(config: &Path, from: &str, upstream: Option<String>) -> Result<(), Failure> {
    let settings = load(config)?.settings;
    let place = from
        .strip_prefix("s3://")
        .map(|place| place.split_once('/').unwrap_or((place, "")));
    let Some((bucket, prefix)) = place.filter(|(bucket, _)| !bucket.is_empty()) else {
        let what = format!(
            "fencegate: \"{from}\" is no place of objects: write one such as s3://backups/wal/"
        );
        return Err(Failure::Config(what));
    };
    let found = rebuild(
        &settings,
        &From {
            upstream,
            bucket: bucket.into(),
            prefix: prefix.into(),
        },
    )?;
    out!(
        "{} objects, {} with a stamp: the fences of {} resources are at least what those say",
        found.objects,
        found.stamped,
        found.resources
    );
    if found.stamped < found.objects {
        out!(
            "{} objects have no stamp: of them nothing is known",
            found.objects - found.stamped
        );
    }
    out!(
        "what was raised and left no object is not known: let every lock be taken anew before anyone writes"
    );
    if found.stamped == 0 {
        return Err(anyhow!("nothing was found in {from}, and no fence was raised").into());
    }
    Ok(())
}
