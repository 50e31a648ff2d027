//! What is told to those who watch: the words of decisions, and the metrics that count them.
//!
//! Knows nothing of how a decision is made.

pub mod decision;
pub mod metrics;

pub use decision::{Decision, FENCING_STATUS};
pub use metrics::{BadRequest, Metrics, RouteMetrics};
