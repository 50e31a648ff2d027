//! The admin listener: health, readiness, metrics, and fences and events as JSON.
//!
//! Knows nothing of requests on the data plane. The API answers loopback peers only: it names
//! resources, and has no other protection yet.

mod events;
mod fences;
mod ready;

pub use events::EventPage;
pub use fences::{Fence, Page, page};

use crate::clock::Time;
use crate::event::Events;
use crate::record::Metrics;
use crate::store::FenceStore;
use axum::Router;
use axum::extract::State as Extract;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::get;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// What the pages show.
#[derive(Clone)]
pub struct State {
    /// The store.
    pub store: Arc<dyn FenceStore>,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// What somebody on call should hear of.
    pub events: Arc<Events>,
    /// After a start that was not clean: until when raises wait.
    pub raises_wait_until: Option<Time>,
    /// Becomes true when the gateway is stopping.
    pub stopping: watch::Receiver<bool>,
}

/// Serves the admin pages until the task is dropped.
pub async fn serve(listener: TcpListener, state: State) {
    let pages = Router::new()
        .route("/healthz", get(|| async { "alive\n" }))
        .route("/readyz", get(ready::ready))
        .route("/metrics", get(metrics))
        .route("/api/v1/fences", get(fences::list))
        .route("/api/v1/events", get(events::list))
        .route("/api/v1/events/stream", get(events::follow))
        .with_state(state)
        .into_make_service_with_connect_info::<SocketAddr>();
    if let Err(error) = axum::serve(listener, pages).await {
        tracing::error!(%error, "the admin pages have ended");
    }
}

/// The API names resources and clients, and has no other protection yet.
fn loopback(peer: SocketAddr) -> Result<(), (StatusCode, String)> {
    if peer.ip().is_loopback() {
        return Ok(());
    }
    let what = "the API answers on loopback only\n";
    Err((StatusCode::FORBIDDEN, what.into()))
}

async fn metrics(Extract(state): Extract<State>) -> impl IntoResponse {
    (
        [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")],
        state.metrics.render(),
    )
}
