//! What is told to those who watch: the words of decisions, the metrics that count them, and the access log.
//!
//! Knows nothing of how a decision is made.

pub mod access;
pub mod decision;
pub mod metrics;
pub mod reach;

pub use decision::{Decision, FENCING_STATUS};
pub use metrics::{BadRequest, Metrics, RouteMetrics};
pub use reach::Reach;
