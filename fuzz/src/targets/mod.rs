//! One file or folder a target. Each `check` takes any bytes, and panics where a property does not hold.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

pub mod config;
pub mod head;
pub mod path;
pub mod signature;
pub mod token;
