//! What is told to those who watch: the words of decisions, the metrics that count them, the access log, and
//! traces.
//!
//! Knows nothing of how a decision is made.

pub mod access;
pub mod collector;
pub mod decision;
pub mod entry;
pub mod metrics;
pub mod reach;
pub mod spans;
pub mod trace;

pub use decision::{Decision, FENCING_STATUS};
pub use entry::{Entry, Recorders};
pub use metrics::{BadRequest, Metrics, RouteMetrics};
pub use reach::Reach;
