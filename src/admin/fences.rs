//! `GET /api/v1/fences`: what the store holds, a page at a time.

use super::{State, loopback};
use crate::fence::{ResourceKey, Token};
use crate::store::{Error, FenceStore, Record};
use axum::Json;
use axum::extract::{ConnectInfo, Query, State as Extract};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::sync::Arc;

const MOST: usize = 1000;

/// One fence, with its numbers as strings: a token may exceed 53 bits.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fence {
    /// The namespace.
    pub namespace: String,
    /// The key, with bytes that are not printable ASCII as `\xNN`.
    pub key: String,
    /// The epoch; absent where the token has none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub epoch: Option<String>,
    /// The sequence, or the whole token where it has no epoch.
    pub token: String,
    /// Whether every lower write was known to be settled.
    pub drained: bool,
}

/// A page of fences.
#[derive(Debug, Serialize, Deserialize)]
pub struct Page {
    /// The fences, in key order.
    pub fences: Vec<Fence>,
    /// What to pass as `after` for the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next: Option<String>,
}

/// Which fences to list.
#[derive(Debug, Deserialize)]
pub struct Wanted {
    #[serde(default = "default_namespace")]
    namespace: String,
    #[serde(default)]
    prefix: String,
    after: Option<String>,
    limit: Option<usize>,
}

fn default_namespace() -> String {
    "default".into()
}

/// Reads a page of fences from a store: those of a namespace whose key begins with `prefix`, after
/// the key `after`. May block on the disk.
///
/// # Errors
/// [`Error`] where the store cannot answer.
pub fn page(
    store: &dyn FenceStore,
    namespace: &str,
    prefix: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Page, Error> {
    let full = |key: &[u8]| ResourceKey::new(namespace, key);
    let Some(start) = full(prefix.as_bytes()) else {
        return Ok(Page {
            fences: Vec::new(),
            next: None,
        });
    };
    let after = after.and_then(unescape).and_then(|key| full(&key));
    let limit = limit.clamp(1, MOST);
    let found = store.list(
        start.as_bytes(),
        after.as_ref().map(ResourceKey::as_bytes),
        limit,
    )?;
    let next = if found.len() < limit {
        None
    } else {
        found.last()
    };
    let next = next.map(|(key, _)| key.key().escape_ascii().to_string());
    Ok(Page {
        fences: found
            .iter()
            .map(|(key, record)| fence(key, *record))
            .collect(),
        next,
    })
}

fn fence(key: &ResourceKey, record: Record) -> Fence {
    let Record { token, drained } = record;
    let epoch = (token.epoch() > 0).then(|| token.epoch().to_string());
    Fence {
        namespace: key.namespace().to_owned(),
        key: key.key().escape_ascii().to_string(),
        epoch,
        token: Token::sequence(token).to_string(),
        drained,
    }
}

/// Reads back what `escape_ascii` wrote.
fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'\\' => match rest.next()? {
                b'x' => {
                    let digits = [rest.next()?, rest.next()?];
                    u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
                }
                b't' => b'\t',
                b'r' => b'\r',
                b'n' => b'\n',
                quoted => quoted,
            },
            plain => plain,
        });
    }
    Some(bytes)
}

pub(super) async fn list(
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Extract(state): Extract<State>,
    Query(wanted): Query<Wanted>,
) -> Result<Json<Page>, (StatusCode, String)> {
    loopback(peer)?;
    let store = Arc::clone(&state.store);
    let read = move || {
        let Wanted {
            namespace,
            prefix,
            after,
            limit,
        } = wanted;
        page(
            &*store,
            &namespace,
            &prefix,
            after.as_deref(),
            limit.unwrap_or(100),
        )
    };
    let down = |why: String| (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"));
    let read = tokio::task::spawn_blocking(read)
        .await
        .map_err(|e| down(e.to_string()))?;
    read.map(Json).map_err(|e| down(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn escapes_read_back(bytes: Vec<u8>) {
            prop_assert_eq!(unescape(&bytes.escape_ascii().to_string()), Some(bytes));
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = unescape(&text);
        }
    }
}
