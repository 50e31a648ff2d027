//! The rules: tokens, resources, and the gate that decides.
//!
//! Standard library only. Nothing here reads a clock, does I/O or awaits, so the same code runs in
//! the server, in the model checker and in property tests.

pub mod resource;
pub mod token;

pub use resource::ResourceKey;
pub use token::{Format, Token};
