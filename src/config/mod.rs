//! The configuration: what the file says, checked whole, as values that cannot be wrong.
//!
//! Knows nothing of requests, of the store or of sockets.

mod change;
mod file;
mod load;
pub mod pattern;
pub mod settings;
mod strength;
pub mod template;
mod upstream;
mod value;

pub use file::Note;
pub use load::{Loaded, load};
pub use pattern::{Captures, PathPattern};
pub use settings::*;
pub use template::{Part, Template};
