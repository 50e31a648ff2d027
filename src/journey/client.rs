//! A client connection, and whether a request of it is under way.

use crate::forward::Tunnel;
use crate::forward::headers::Peer;
use crate::socket::Socket;
use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use tokio::sync::Notify;

/// A client connection.
pub struct Client {
    /// What is said of it upstream.
    pub peer: Peer,
    /// The connection itself.
    pub socket: Socket,
    names: OnceCell<Box<[String]>>,
    tunnel: Cell<Option<Box<Tunnel>>>,
    under_way: Cell<usize>,
    served: Cell<u64>,
    late: Notify,
    h2: Cell<bool>,
}

/// A request of a client, from its head to the end of its response: until this is dropped.
pub struct UnderWay(Rc<Client>);

impl Client {
    /// A client that has sent nothing yet.
    #[must_use]
    pub fn new(peer: Peer, socket: Socket) -> Self {
        Self {
            peer,
            socket,
            names: OnceCell::new(),
            tunnel: Cell::new(None),
            under_way: Cell::new(0),
            served: Cell::new(0),
            late: Notify::new(),
            h2: Cell::new(false),
        }
    }

    /// It has shown a certificate with these names. To be said once, before its first request.
    pub fn is_called(&self, names: Vec<String>) {
        let _ = self.names.set(names.into());
    }

    /// The names in the certificate that it showed.
    #[must_use]
    pub fn names(&self) -> &[String] {
        self.names.get().map_or(&[], |names| names)
    }

    /// Its connection becomes a WebSocket once the response that grants it has left.
    pub fn switches(&self, tunnel: Box<Tunnel>) {
        self.tunnel.set(Some(tunnel));
    }

    /// Takes the WebSocket that its connection becomes.
    pub fn take_tunnel(&self) -> Option<Box<Tunnel>> {
        self.tunnel.take()
    }

    /// It was quiet for too long, and will be closed if it stays so.
    pub fn is_late(&self) {
        self.late.notify_one();
    }

    /// Waits until [`Client::is_late`] was said.
    pub async fn late(&self) {
        self.late.notified().await;
    }

    /// A request begins.
    #[must_use]
    pub fn begin(self: &Rc<Self>) -> UnderWay {
        self.under_way.set(self.under_way.get() + 1);
        UnderWay(Rc::clone(self))
    }

    /// It speaks HTTP/2.
    pub fn speaks_h2(&self) {
        self.h2.set(true);
    }

    /// `None` while a request is under way, else a number that grows with each request, and in HTTP/1.1
    /// with what the client takes of its response, the end of which may lie in a buffer for long (in
    /// HTTP/2 whatever a client sends is answered). Where it stays the same the client is quiet: nobody
    /// reads a clock for each request.
    #[must_use]
    pub fn quiet_after(&self) -> Option<u64> {
        let sent = if self.h2.get() { 0 } else { self.socket.sent() };
        (self.under_way.get() == 0).then(|| self.served.get() + sent)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let client = &self.0;
        client
            .under_way
            .set(client.under_way.get().saturating_sub(1));
        client.served.set(client.served.get() + 1);
    }
}
