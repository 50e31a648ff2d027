//! fencegate: a reverse proxy that keeps zombies from writing.
pub mod admit;
pub mod clock;
pub mod fence;
pub mod record;
pub mod store;
