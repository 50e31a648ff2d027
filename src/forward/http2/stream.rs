//! One exchange on an HTTP/2 connection: a stream, and what the upstream says of it.

use super::Connections;
use super::connection::Connection;
use super::pump::Pump;
use crate::clock::{self, Time};
use crate::forward::arriving::Arriving;
use crate::forward::{Outgoing, headers};
use bytes::Bytes;
use h2::client::SendRequest;
use h2::{Reason, SendStream};
use http::Response;
use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Waker};
use tokio::task::AbortHandle;

/// The right to one stream of a connection, and the stream.
pub(in crate::forward) struct Stream {
    connection: Rc<Connection>,
    pool: Rc<Connections>,
    sender: Option<SendRequest<Bytes>>,
    sending: Option<Rc<RefCell<SendStream<Bytes>>>>,
    pump: Option<AbortHandle>,
    /// The upstream has said that it did not look at it, or it was never given to it.
    refused: bool,
    /// When the upstream has reset it by itself.
    ended_at: Option<Time>,
    /// Bytes that had left on the connection when the request was handed over.
    before: u64,
    over: bool,
}

impl Stream {
    /// A place on that connection, which has room.
    pub(super) fn new(connection: Rc<Connection>, pool: &Rc<Connections>) -> Self {
        connection.streams.set(connection.streams.get() + 1);
        connection.be_polite();
        Self {
            before: connection.wire.sent(),
            connection,
            pool: Rc::clone(pool),
            sender: None,
            sending: None,
            pump: None,
            refused: true,
            ended_at: None,
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
        let Outgoing { head, body, .. } = *request;
        let bodiless = body.is_over();
        let message = headers::http2(head.clone(), &self.pool.dialer.upstream);
        self.before = self.connection.wire.sent();
        let mut sender = self.connection.sender.borrow().clone();
        let sent = sender.as_mut();
        let sent = sent.map(|sender| sender.send_request(message, bodiless));
        self.sender = sender;
        let Some(Ok((response, stream))) = sent else {
            self.pool.leave(&self.connection);
            return Err(Some(Outgoing::again(head, body)));
        };
        self.refused = false;
        let stream = Rc::new(RefCell::new(stream));
        self.sending = Some(Rc::clone(&stream));
        let mut body = Some(body);
        if !bodiless {
            let connection = Rc::clone(&self.connection);
            let pump = body.take().map(|body| Pump::new(body, stream, connection));
            self.pump = pump.map(|pump| tokio::task::spawn_local(pump).abort_handle());
        }
        match response.await {
            Ok(response) => Ok(response.map(|body| Arriving::Http2(body, false))),
            Err(error) => {
                self.refused = is_refusal(&error);
                if error.is_reset() && error.is_remote() {
                    self.ended_at = Some(clock::now());
                }
                if self.refused || error.is_io() {
                    self.pool.leave(&self.connection); // or it would be tried there again
                }
                Err(body.map(|body| Outgoing::again(head, body)))
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

    /// Resets the stream unless it has ended, and says when the upstream had taken that; `None` where it did
    /// not look at the request, or no byte of it left.
    pub(in crate::forward) async fn reset(&mut self) -> Option<Time> {
        if self.refused {
            self.abort();
            return None;
        }
        if let Some(ended_at) = self.ended_at {
            return Some(ended_at);
        }
        let reset = self.abort();
        let mut since = self.connection.arrival(reset).await;
        if self.is_pending() {
            since = self.connection.close(); // its request would go out later, before its reset
        }
        let untouched = self.connection.ended.get() && self.connection.wire.sent() == self.before;
        (!untouched).then_some(since)
    }

    /// Whether the library keeps the request back, since the upstream takes no further stream for now.
    fn is_pending(&mut self) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        let sender = self.sender.as_mut();
        sender.is_some_and(|sender| sender.poll_ready(&mut cx).is_pending())
    }

    /// The exchange is over, both ways: what of it may still be in the library is dropped.
    pub(in crate::forward) fn finish(mut self) {
        self.over = true;
        self.drop_rest();
    }

    /// Gives the number of the reset.
    fn abort(&mut self) -> u64 {
        self.drop_rest();
        let number = self.connection.resets.add();
        self.connection.wake();
        number
    }

    fn drop_rest(&mut self) {
        if let Some(pump) = self.pump.take() {
            pump.abort();
        }
        if let Some(sending) = self.sending.take() {
            // Explicitly: what of it waits in the library is dropped. Does nothing where all has left.
            sending.borrow_mut().send_reset(Reason::CANCEL);
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.over && self.sending.is_some() {
            self.abort();
        }
        self.sender = None;
        let connection = &self.connection;
        connection
            .streams
            .set(connection.streams.get().saturating_sub(1));
        connection.used_at.set(clock::now());
        connection.be_polite();
        self.pool.changed.notify_one();
    }
}

/// Whether the upstream says that it has done nothing with the request (RFC 9113 section 8.7): it reset the
/// stream with `REFUSED_STREAM`, or its GOAWAY names a lower one as the last.
fn is_refusal(error: &h2::Error) -> bool {
    let reset = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM);
    error.is_remote() && (reset || error.is_go_away())
}
