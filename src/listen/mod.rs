//! Listeners and client connections: sockets in, requests out to the journey.
//!
//! Knows nothing of routes or gates.

mod bind;
mod connection;
mod passed;
mod room;
mod serve;
mod streams;

pub use bind::{BindError, Bound, bind};
pub use passed::{Passed, PassedError};
pub use room::{Full, Room, Seat};
pub use serve::{Limits, serve};
