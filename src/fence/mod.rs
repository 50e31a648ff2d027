//! The rules: tokens, resources, and the gate that decides.
//!
//! Standard library only. Nothing here reads a clock, does I/O or awaits, so the same code runs in
//! the server, in the model checker and in property tests.

pub mod crossing;
pub mod gate;
pub mod resource;
pub mod rules;
pub mod token;

pub use gate::{Effect, Gate, Origin};
pub use resource::ResourceKey;
pub use rules::{Accept, Kind, Missing, Refusal, Rules, WriteId};
pub use token::{Format, Token};
