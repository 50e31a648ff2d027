//! The body of a response: the upstream's, or the gateway's own.

use super::client::UnderWay;
use crate::forward::Download;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{Either, Full};
use std::error::Error;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The body of a response. Its request is under way until this is dropped.
pub struct Reply {
    body: Either<Download, Full<Bytes>>,
    _under_way: UnderWay,
}

impl Reply {
    pub(super) const fn new(body: Either<Download, Full<Bytes>>, under_way: UnderWay) -> Self {
        Self {
            body,
            _under_way: under_way,
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
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
