//! `GET /api/v1/events`: what is kept, the newest first; `GET /api/v1/events/stream`: each as it comes, as
//! server-sent events.

use super::{State, loopback};
use crate::event::{Event, Kind, Wanted};
use axum::Json;
use axum::extract::{ConnectInfo, Query, State as Extract};
use axum::http::StatusCode;
use axum::response::sse::{self, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use serde::{Deserialize, Serialize};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::broadcast::error::RecvError;

const MOST: usize = 1000;

/// Events that are kept.
#[derive(Debug, Serialize, Deserialize)]
pub struct EventPage {
    /// The events, those seen last first.
    pub events: Vec<Event>,
    /// What to pass as `before` for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next: Option<u64>,
}

/// Which events are asked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    before: Option<u64>,
    kind: Option<String>,
    route: Option<String>,
    resource: Option<String>,
    holder: Option<String>,
    limit: Option<usize>,
}

type Failed = (StatusCode, String);

impl Asked {
    fn wanted(&self) -> Result<Wanted, Failed> {
        let kind = self.kind.as_ref().map(|word| {
            Kind::of(word).ok_or_else(|| {
                let all = Kind::ALL.map(Kind::word).join(", ");
                let what = format!("{word:?} is no kind of event: there are {all}\n");
                (StatusCode::BAD_REQUEST, what)
            })
        });
        Ok(Wanted {
            before: self.before,
            kind: kind.transpose()?,
            route: self.route.clone(),
            resource: self.resource.clone(),
            holder: self.holder.clone(),
        })
    }
}

pub(super) async fn list(
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Extract(state): Extract<State>,
    Query(asked): Query<Asked>,
) -> Result<Json<EventPage>, Failed> {
    loopback(peer)?;
    let (wanted, events) = (asked.wanted()?, Arc::clone(&state.events));
    let limit = asked.limit.unwrap_or(100).clamp(1, MOST);
    let down = |why: String| (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"));
    let read = tokio::task::spawn_blocking(move || events.list(&wanted, limit));
    let read = read.await.map_err(|e| down(e.to_string()))?;
    let events = read.map_err(down)?;
    let next = events.last().filter(|_| events.len() == limit);
    let next = next.map(|event| event.place);
    Ok(Json(EventPage { events, next }))
}

pub(super) async fn follow(
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Extract(state): Extract<State>,
    Query(asked): Query<Asked>,
) -> Result<Sse<impl Stream<Item = Result<sse::Event, Infallible>>>, Failed> {
    loopback(peer)?;
    let begun = (state.events.follow(), asked.wanted()?, state.stopping);
    let events = stream::unfold(begun, async |(mut events, wanted, mut stopping)| {
        loop {
            let next = tokio::select! {
                next = events.recv() => next,
                _ = stopping.wait_for(|stopping| *stopping) => return None,
            };
            let told = match next {
                Ok(event) if wanted.takes(&event) => sse::Event::default()
                    .id(event.id.to_string())
                    .json_data(&*event)
                    .ok()?,
                Ok(_) => continue,
                // It may read what it has missed from the list.
                Err(RecvError::Lagged(missed)) => sse::Event::default()
                    .event("missed")
                    .data(missed.to_string()),
                Err(RecvError::Closed) => return None,
            };
            return Some((Ok(told), (events, wanted, stopping)));
        }
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}
