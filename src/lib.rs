//! fencegate: a reverse proxy that keeps zombies from writing.
pub mod fence;
pub mod store;
