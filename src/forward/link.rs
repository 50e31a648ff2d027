//! The right to one exchange with an upstream, in either protocol, and how it ends.

use super::Outgoing;
use super::arriving::Arriving;
use super::upload::Limits;
use super::{http1, http2};
use crate::clock::{self, Time};
use crate::socket::Socket;
use bytes::Bytes;
use http::{Response, Version};

/// An exchange's place on a connection. Dropped before its end, it ends the exchange: by closing the
/// connection, or by resetting its stream.
pub(super) struct Link {
    place: Place,
    limits: Limits,
}

enum Place {
    Http1(Box<http1::Link>),
    Http2(Box<http2::Stream>),
}

impl Link {
    pub(super) const fn http1(link: Box<http1::Link>, limits: Limits) -> Self {
        let place = Place::Http1(link);
        Self { place, limits }
    }

    pub(super) fn http2(stream: http2::Stream, limits: Limits) -> Self {
        let place = Place::Http2(Box::new(stream));
        Self { place, limits }
    }

    /// How long the parts of its exchange may take.
    pub(super) const fn limits(&self) -> Limits {
        self.limits
    }

    /// Whether its connection has served before: the other side may have closed it by now.
    pub(super) fn was_used(&self) -> bool {
        match &self.place {
            Place::Http1(link) => link.reused,
            Place::Http2(stream) => stream.was_used(),
        }
    }

    /// Sends the request and waits for the head of its response. To be called once. Dropping the future
    /// leaves the exchange as it is: [`Link::cut`] ends it.
    ///
    /// # Errors
    /// The request, where nothing of it was taken and it can be had back.
    pub(super) async fn send(
        &mut self,
        request: Box<Outgoing>,
    ) -> Result<Response<Arriving>, Option<Box<Outgoing>>> {
        match &mut self.place {
            Place::Http1(link) => {
                link.begin();
                match link.sender.try_send_request(request.into_request()).await {
                    Ok(response) => {
                        // The HTTP library remembers that the other side speaks 1.0, and would send the
                        // next request's chunked body not at all.
                        link.reusable = response.version() == Version::HTTP_11;
                        link.used_at = clock::now();
                        Ok(response.map(Arriving::Http1))
                    }
                    Err(mut error) => Err(error.take_message().map(Outgoing::from_request)),
                }
            }
            // Large: kept out of the caller's future.
            Place::Http2(stream) => Box::pin(stream.send(request)).await,
        }
    }

    /// The connection itself, after the other side has switched protocols, and what it has sent since.
    pub(super) async fn switched(&mut self) -> Option<(Socket, Bytes)> {
        match &mut self.place {
            Place::Http1(link) => link.switched().await,
            Place::Http2(_) => None,
        }
    }

    /// Ends the exchange now, and says when the gateway had let go of it: when the connection was closed,
    /// or the upstream had taken the reset. `None` where no byte of the request reached the upstream, or the
    /// upstream says that it did not look at it. Takes no time over HTTP/1.1. Over HTTP/2 it waits for the
    /// upstream's word, some seconds at most, and closes the connection where that does not come.
    pub(super) async fn cut(&mut self) -> Option<Time> {
        match &mut self.place {
            Place::Http1(link) => link.cut(),
            Place::Http2(stream) => Box::pin(stream.reset()).await,
        }
    }

    /// The exchange was not answered in time: its connection is not used for another.
    pub(super) fn distrust(&self) {
        if let Place::Http2(stream) = &self.place {
            stream.distrust();
        }
    }

    /// Gives the connection back after the response has ended; `whole`: the request was sent to its end.
    /// Where it was not, or the connection cannot serve another exchange, this one is ended.
    pub(super) fn give_back(self, whole: bool) {
        match self.place {
            Place::Http1(link) => link.give_back(whole),
            Place::Http2(stream) if whole => stream.finish(),
            Place::Http2(stream) => drop(stream),
        }
    }

    /// The same, where the response ended after its head came.
    pub(super) fn give_back_later(mut self, whole: bool) {
        if let Place::Http1(link) = &mut self.place {
            link.used_at = clock::now();
        }
        self.give_back(whole);
    }
}
