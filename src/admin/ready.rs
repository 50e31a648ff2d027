//! Readiness: whether the gateway serves, and what is known of its upstreams. Those make nothing unready:
//! to take the gateway out for an upstream that is down would take its other upstreams, and what it knows
//! of fences, out with it.

use super::State;
use crate::clock::Time;
use crate::record::reach::Known;
use axum::Json;
use axum::extract::State as Extract;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Serialize)]
struct Readiness {
    /// "ready", or why not.
    status: String,
    /// After a start that was not clean: for how long raises still wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    raises_wait_seconds: Option<u64>,
    upstreams: BTreeMap<String, Upstream>,
}

#[derive(Serialize)]
struct Upstream {
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    for_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'static str>,
}

impl From<Known> for Upstream {
    fn from(known: Known) -> Self {
        let (state, since, error) = match known {
            Known::Nothing => ("unused", None, None),
            Known::Reachable(since) => ("reachable", Some(since), None),
            Known::Unreachable(since, error) => ("unreachable", Some(since), Some(error)),
        };
        Self {
            state,
            for_seconds: since.map(|since| since.as_secs()),
            error,
        }
    }
}

pub(super) async fn ready(Extract(state): Extract<State>) -> impl IntoResponse {
    let (code, status) = if *state.stopping.borrow() {
        (StatusCode::SERVICE_UNAVAILABLE, "stopping".to_owned())
    } else {
        match state.store.trouble() {
            None => (StatusCode::OK, "ready".to_owned()),
            Some(why) => (
                StatusCode::SERVICE_UNAVAILABLE,
                format!("the fence store is down: {why}"),
            ),
        }
    };
    let upstreams = state.metrics.reach.all().into_iter();
    let upstreams = upstreams.map(|(name, known)| (name, known.into()));
    let left = state.raises_wait_until.map(Time::left);
    let left = left.filter(|left| !left.is_zero());
    let readiness = Readiness {
        status,
        raises_wait_seconds: left.map(|left| left.as_secs() + 1),
        upstreams: upstreams.collect(),
    };
    (code, Json(readiness))
}
