//! One exchange on an HTTP/2 connection: a stream, and what the upstream says of it.

use super::Connections;
use super::connection::Connection;
use crate::clock::{self, Time};
use crate::forward::arriving::Arriving;
use crate::forward::pump::Pump;
use crate::forward::{Outgoing, headers};
use bytes::Bytes;
use h2::{Reason, SendStream};
use http::Response;
use std::cell::RefCell;
use std::rc::Rc;
use tokio::task::AbortHandle;

/// The right to one stream of a connection, and the stream.
pub(in crate::forward) struct Stream {
    connection: Rc<Connection>,
    pool: Rc<Connections>,
    sending: Option<Rc<RefCell<SendStream<Bytes>>>>,
    pump: Option<AbortHandle>,
    /// The upstream has said that it did not look at it.
    refused: bool,
    /// Bytes that had left on the connection when the request was handed over.
    before: u64,
    over: bool,
}

impl Stream {
    /// A place on that connection, which has room.
    pub(super) fn new(connection: Rc<Connection>, pool: &Rc<Connections>) -> Self {
        connection.streams.set(connection.streams.get() + 1);
        connection.wire.be_polite(false);
        Self {
            before: connection.wire.sent(),
            connection,
            pool: Rc::clone(pool),
            sending: None,
            pump: None,
            refused: false,
            over: false,
        }
    }

    /// Sends the request and waits for the head of its response. To be called once.
    ///
    /// # Errors
    /// The request, where nothing of it was taken and it can be had back.
    pub(in crate::forward) async fn send(
        &mut self,
        request: Box<Outgoing>,
    ) -> Result<Response<Arriving>, Option<Box<Outgoing>>> {
        let Outgoing { head, body } = *request;
        let bodiless = body.is_over();
        let message = headers::http2(head.clone(), &self.pool.dialer.upstream);
        self.before = self.connection.wire.sent();
        let sender = self.connection.sender.borrow().clone();
        let sent = sender.map(|mut sender| sender.send_request(message, bodiless));
        let Some(Ok((response, stream))) = sent else {
            self.refused = true;
            self.pool.leave(&self.connection);
            return Err(Some(Box::new(Outgoing { head, body })));
        };
        let stream = Rc::new(RefCell::new(stream));
        self.sending = Some(Rc::clone(&stream));
        let mut body = Some(body);
        if !bodiless {
            let pump = body.take().map(|body| Pump::new(body, stream));
            self.pump = pump.map(|pump| tokio::task::spawn_local(pump).abort_handle());
        }
        match response.await {
            Ok(response) => Ok(response.map(|body| Arriving::Http2(body, false))),
            Err(error) => {
                self.refused = is_refusal(&error);
                if self.refused || error.is_io() {
                    self.pool.leave(&self.connection); // or it would be tried there again
                }
                Err(body.map(|body| Box::new(Outgoing { head, body })))
            }
        }
    }

    /// It was used before, and its other side may have closed it by now.
    pub(in crate::forward) fn was_used(&self) -> bool {
        self.before > 0
    }

    /// Takes no further exchange where this one was not answered: the other side may be gone.
    pub(in crate::forward) fn distrust(&self) {
        self.pool.leave(&self.connection);
    }

    /// Resets the stream unless it has ended, and says when that left; `None` where the upstream did not
    /// look at the request, or no byte of it left.
    pub(in crate::forward) async fn reset(&mut self) -> Option<Time> {
        self.abort();
        let since = self.connection.flush().await;
        let untouched = self.connection.ended.get() && self.connection.wire.sent() == self.before;
        (!self.refused && !untouched).then_some(since)
    }

    /// The exchange is over, both ways.
    pub(in crate::forward) fn finish(mut self) {
        self.over = true;
    }

    fn abort(&mut self) {
        if let Some(pump) = self.pump.take() {
            pump.abort();
        }
        if let Some(sending) = self.sending.take() {
            // Explicitly: what of it waits in the library is dropped.
            sending.borrow_mut().send_reset(Reason::CANCEL);
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.over {
            self.abort();
        }
        let connection = &self.connection;
        connection
            .streams
            .set(connection.streams.get().saturating_sub(1));
        connection.used_at.set(clock::now());
        connection.wire.be_polite(connection.streams.get() == 0);
        self.pool.changed.notify_one();
    }
}

/// Whether the upstream says that it has done nothing with the request (RFC 9113 section 8.7): it reset the
/// stream with `REFUSED_STREAM`, or its GOAWAY names a lower one as the last.
fn is_refusal(error: &h2::Error) -> bool {
    let reset = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM);
    error.is_remote() && (reset || error.is_go_away())
}
