//! A request's body that is read before the request is judged, since it says what the request changes.

use super::unread::Came;
use super::upload::Upload;
use bytes::{Bytes, BytesMut};
use http_body::Body;
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::timeout;

/// How many bodies one serving thread holds at once.
const MOST: usize = 32;
/// How long one may take in all.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why a body was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ungathered {
    /// There is no room for another.
    Busy,
    /// It is larger than it may be.
    TooLarge,
    /// It stalled, or broke off.
    Broken,
    /// Trailers came after it, which would not go with it.
    Trailers,
}

/// How many bodies are held.
#[derive(Default)]
pub(super) struct Gathered(Cell<usize>);

/// A place among them, until dropped.
pub struct Place<'a>(&'a Gathered);

impl Gathered {
    pub(super) fn enter(&self) -> Result<Place<'_>, Ungathered> {
        let taken = self.0.get();
        if taken >= MOST {
            return Err(Ungathered::Busy);
        }
        self.0.set(taken + 1);
        Ok(Place(self))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let taken = &(self.0).0;
        taken.set(taken.get().saturating_sub(1));
    }
}

/// Reads a body of at most `most` bytes, and puts what was read in its place. Dropping the future loses what
/// was read.
pub(super) async fn gather(body: &mut Upload, most: usize) -> Result<Bytes, Ungathered> {
    if !body.limit(Some(most as u64)) {
        return Err(Ungathered::TooLarge);
    }
    let h2 = body.came_as_h2();
    let Some(mut came) = body.take() else {
        return Ok(Bytes::new());
    };
    let read = timeout(PATIENCE, read(&mut came, most, h2)).await;
    let held = read.unwrap_or(Err(Ungathered::Broken))?;
    body.put_back(Came::held(held.clone()));
    Ok(held)
}

async fn read(came: &mut Came, most: usize, h2: bool) -> Result<Bytes, Ungathered> {
    let mut held = BytesMut::new();
    while !came.is_end_stream() {
        let Some(frame) = poll_fn(|cx| Pin::new(&mut *came).poll_frame(cx)).await else {
            // A stream that was reset without an error ends like one that has ended: it has not.
            if h2 && !came.is_end_stream() {
                return Err(Ungathered::Broken);
            }
            break;
        };
        let frame = frame.map_err(|_| Ungathered::Broken)?;
        let data = frame.into_data().map_err(|_| Ungathered::Trailers)?;
        if held.len() + data.len() > most {
            return Err(Ungathered::TooLarge);
        }
        held.extend_from_slice(&data);
    }
    Ok(held.freeze())
}
