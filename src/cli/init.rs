//! `fencegate init`: makes the store.

use super::{Failure, load};
use crate::store::{Init, RocksStore};
use std::path::Path;

pub(super) fn run(config: &Path) -> Result<(), Failure> {
    let path = load(config)?.settings.store.path;
    match RocksStore::init(&path)? {
        Init::Created => out!("made a store in {}", path.display()),
        Init::Existed => out!("{} is a store already: nothing was changed", path.display()),
    }
    Ok(())
}
