//! fencegate: a reverse proxy that keeps zombies from writing.
pub mod admit;
pub mod clock;
pub mod config;
pub mod fence;
pub mod forward;
pub mod record;
pub mod store;
