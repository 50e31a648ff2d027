//! What a client still sends once it has its answer.
//!
//! Closing at once would reset the connection, and with it the answer, for a client that reads only
//! after it has sent all. So the rest is read and dropped for a while.

use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::time::Duration;

/// How long the rest is read for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reads the rest of a request's body and lets it go, in a task of its own. Runs in a `LocalSet`.
pub fn linger(mut body: Incoming) {
    if body.is_end_stream() {
        return;
    }
    tokio::task::spawn_local(async move {
        let rest = async { while let Some(Ok(_)) = body.frame().await {} };
        // Cut short, the connection closes, as it would have at once.
        let _ = tokio::time::timeout(PATIENCE, rest).await;
    });
}
