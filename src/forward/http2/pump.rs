//! Moves a request's body into its HTTP/2 stream, as fast as the upstream takes it.

use super::connection::Connection;
use crate::forward::upload::Upload;
use bytes::Bytes;
use h2::SendStream;
use http_body::Body;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

/// Moves a body to its end. One that breaks off never ends here: whoever owns the exchange resets the
/// stream.
pub(super) struct Pump {
    body: Upload,
    stream: Rc<RefCell<SendStream<Bytes>>>,
    connection: Rc<Connection>,
}

/// It moves no more.
struct Over;

impl Pump {
    pub(super) const fn new(
        body: Upload,
        stream: Rc<RefCell<SendStream<Bytes>>>,
        connection: Rc<Connection>,
    ) -> Self {
        Self {
            body,
            stream,
            connection,
        }
    }

    /// Waits for room for at least one byte, so that no more than one part lies in the HTTP library.
    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<Result<(), Over>> {
        let mut stream = self.stream.borrow_mut();
        if stream.poll_reset(cx).is_ready() {
            return Poll::Ready(Err(Over)); // the upstream takes no more, or the connection has ended
        }
        if stream.capacity() == 0 {
            stream.reserve_capacity(1);
        }
        while stream.capacity() == 0 {
            match ready!(stream.poll_capacity(cx)) {
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Poll::Ready(Err(Over)),
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Over>> {
        ready!(self.connection.resets.poll_left(cx));
        ready!(self.poll_room(cx))?;
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let mut stream = self.stream.borrow_mut();
        let Some(frame) = frame else {
            let _ = stream.send_data(Bytes::new(), true); // where it fails the response says so too
            return Poll::Ready(Err(Over));
        };
        let Ok(frame) = frame else {
            return Poll::Ready(Err(Over)); // it stalls instead
        };
        let (handed, over) = match frame.into_data() {
            Ok(data) => {
                let last = self.body.is_end_stream() || self.body.is_over();
                (stream.send_data(data, last), last)
            }
            Err(frame) => {
                let trailers = frame.into_trailers().unwrap_or_default();
                let sent = stream.send_trailers(trailers);
                // They may be none for HTTP/2; the body ends all the same.
                (sent.or_else(|_| stream.send_data(Bytes::new(), true)), true)
            }
        };
        Poll::Ready(if handed.is_err() || over {
            Err(Over)
        } else {
            Ok(())
        })
    }
}

impl Future for Pump {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        while ready!(self.poll_part(cx)).is_ok() {}
        Poll::Ready(())
    }
}
