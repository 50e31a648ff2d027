//! Events: what somebody on call should hear of, folded where it repeats, and kept for a while.
//!
//! They have a database of their own beside the fences. So nothing of them takes part in a commit, a lost or damaged
//! one stops no start, and a disk on which they cannot be written costs events and no write. Whoever sees something
//! hands it on and goes on: what finds no room is counted and dropped.
//!
//! Knows nothing of how a request is judged or of who reads what is kept.

mod fold;
mod keep;
mod log;
mod sighting;

pub use keep::{Bounds, Keep, OpenError, Wanted};
pub use log::Events;
pub use sighting::{Event, Kind, Sighting, short};
