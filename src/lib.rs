//! fencegate: a reverse proxy that keeps zombies from writing.
pub mod config;
pub mod extract;
pub mod fence;
pub mod route;
pub mod store;
