//! The body of a response as it comes from its upstream, in either protocol.

use super::failure::Failure;
use bytes::Bytes;
use h2::RecvStream;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A body on its way. One that breaks off ends with [`Failure::Broken`].
pub(super) enum Arriving {
    Http1(Incoming),
    /// And whether only its trailers are still to come.
    Http2(RecvStream, bool),
}

impl Body for Arriving {
    type Data = Bytes;
    type Error = Failure;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
        match &mut *self {
            Self::Http1(body) => {
                let polled = Pin::new(body).poll_frame(cx);
                polled.map(|frame| frame.map(|frame| frame.map_err(|_| Failure::Broken)))
            }
            Self::Http2(stream, over) => poll_stream(stream, over, cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Http1(body) => body.is_end_stream(),
            Self::Http2(stream, _) => stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Http1(body) => body.size_hint(),
            Self::Http2(stream, _) if stream.is_end_stream() => SizeHint::with_exact(0),
            Self::Http2(..) => SizeHint::default(),
        }
    }
}

/// A reset is an error here, whatever its code: the stream did not come to its end.
fn poll_stream(
    stream: &mut RecvStream,
    over: &mut bool,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, Failure>>> {
    while !*over {
        match stream.poll_data(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Some(Ok(data))) => {
                // It fails where the stream has ended, and nothing more will come.
                let _ = stream.flow_control().release_capacity(data.len());
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            Poll::Ready(Some(Err(_))) => return Poll::Ready(Some(Err(Failure::Broken))),
            Poll::Ready(None) => *over = true,
        }
    }
    stream.poll_trailers(cx).map(|trailers| match trailers {
        Ok(None) => None,
        Ok(Some(trailers)) => Some(Ok(Frame::trailers(trailers))),
        Err(_) => Some(Err(Failure::Broken)),
    })
}
