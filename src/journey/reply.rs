//! The body of a response: the upstream's, or the gateway's own.

use super::client::UnderWay;
use crate::forward::Download;
use crate::record::Entry;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{Either, Full};
use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The body of a response. Its request is under way until this is dropped.
pub struct Reply {
    body: Either<Download, Full<Bytes>>,
    /// How long it is, where that was said: with the last byte the HTTP library asks for no end.
    length: Option<u64>,
    /// What is recorded of it when this is dropped.
    entry: Option<Box<Entry>>,
    _under_way: UnderWay,
}

impl Reply {
    pub(super) fn new(
        body: Either<Download, Full<Bytes>>,
        under_way: UnderWay,
        entry: Option<Box<Entry>>,
    ) -> Self {
        Self {
            length: body.size_hint().exact(),
            body,
            entry,
            _under_way: under_way,
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if let Some(entry) = &mut self.entry {
            entry.complete |= self.body.is_end_stream() || self.length == Some(entry.bytes);
        }
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Some(entry) = &mut self.entry {
            match &polled {
                Poll::Ready(Some(Ok(frame))) => {
                    entry.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                }
                Poll::Ready(None) => entry.complete = true,
                Poll::Ready(Some(Err(_))) | Poll::Pending => {}
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
