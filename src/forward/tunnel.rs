//! A WebSocket, from the response that grants it to its end: bytes both ways, and a write for as long.

use super::link::Link;
use crate::admit::{Outcome, Pass, Unseen};
use crate::clock;
use crate::socket::Socket;
use bytes::Bytes;
use hyper_util::rt::TokioIo;
use std::cell::Cell;
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncWriteExt, copy};

/// How often it is looked at whether anything moves.
const LOOK: Duration = Duration::from_secs(1);

/// A WebSocket that the upstream has granted. Dropped before it began or ended, it is cut.
pub struct Tunnel {
    link: Link,
    held: Held,
}

/// What holds up others for as long as it may take effect.
pub(super) enum Held {
    Pass(Pass),
    /// On a route that is off, for the configuration after this one.
    Unseen(Option<Unseen>),
}

/// How it ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// Both sides have closed, the upstream first: it was done with all that came before.
    Done,
    /// The client closed first, one side has broken off, nothing moved for too long, or a higher token asks
    /// for the end.
    Broken,
}

impl Tunnel {
    pub(super) const fn new(link: Link, held: Held) -> Self {
        Self { link, held }
    }

    /// Moves bytes both ways until it ends. `early`: what the client has sent already. It ends when both sides
    /// have closed, when one breaks off, when nothing moves for `body_idle_timeout`, or when a higher token
    /// asks for it. Dropping the future cuts it.
    pub async fn run(mut self, client: Socket, early: Bytes) {
        let idle = self.link.limits().body_idle;
        let pass = match &self.held {
            Held::Pass(pass) => Some(pass),
            Held::Unseen(_) => None,
        };
        let end = match self.link.switched().await {
            None => End::Broken,
            Some((upstream, late)) => {
                // Unless it ends well nothing of it may be delivered later: so also where this is dropped.
                let abrupt = Abrupt::begin(&upstream);
                let end = join(&client, early, &upstream, late, pass, idle).await;
                if end == End::Done {
                    abrupt.not();
                }
                end
            }
        };
        client.close();
        let since = self.link.cut().await.unwrap_or_else(clock::now);
        match (self.held, end) {
            (Held::Pass(pass), End::Done) => pass.finish(Outcome::Answered),
            (Held::Pass(pass), End::Broken) => {
                pass.finish(Outcome::Unknown { whole: true, since });
            }
            (Held::Unseen(Some(unseen)), End::Done) => unseen.settled(),
            (Held::Unseen(unseen), _) => drop(unseen), // its settle runs from here
        }
    }
}

/// A connection on which one end is passed on (FIN), and which yet is closed with a reset when this is
/// dropped.
struct Abrupt<'a>(Option<&'a Socket>);

impl<'a> Abrupt<'a> {
    fn begin(socket: &'a Socket) -> Self {
        socket.be_polite(true);
        Self(Some(socket))
    }

    fn not(mut self) {
        self.0 = None;
    }
}

impl Drop for Abrupt<'_> {
    fn drop(&mut self) {
        if let Some(socket) = self.0 {
            socket.be_polite(false);
        }
    }
}

async fn join(
    client: &Socket,
    early: Bytes,
    upstream: &Socket,
    late: Bytes,
    pass: Option<&Pass>,
    idle: Duration,
) -> End {
    let (mut down_from, mut down_to) = tokio::io::split(TokioIo::new(client.clone()));
    let (mut up_from, mut up_to) = tokio::io::split(TokioIo::new(upstream.clone()));
    let first = Cell::new(None);
    let ended = |who| first.set(first.get().or(Some(who)));
    let up = async {
        up_to.write_all(&early).await?;
        up_to.flush().await?;
        copy(&mut down_from, &mut up_to).await?;
        ended(Side::Client);
        up_to.shutdown().await
    };
    let down = async {
        down_to.write_all(&late).await?;
        down_to.flush().await?;
        copy(&mut up_from, &mut down_to).await?;
        ended(Side::Upstream);
        down_to.shutdown().await
    };
    let moving =
        async { tokio::try_join!(up, down).is_ok() && first.get() == Some(Side::Upstream) };
    let cut = poll_fn(|cx| match pass {
        Some(pass) => pass.poll_cut(cx),
        None => Poll::Pending,
    });
    let still = async {
        let mut tick = clock::ticks(LOOK);
        let (mut last, mut since) = (0, clock::now());
        loop {
            tick.tick().await;
            let moved = client.sent() + upstream.sent();
            if std::mem::replace(&mut last, moved) != moved {
                since = clock::now();
            } else if clock::now().since(since) >= idle {
                return;
            }
        }
    };
    tokio::select! {
        biased;
        () = cut => End::Broken,
        well = moving => if well { End::Done } else { End::Broken },
        () = still => End::Broken,
    }
}

/// Who has ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Client,
    Upstream,
}
