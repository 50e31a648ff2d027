//! A WebSocket, from the response that grants it to its end: bytes both ways, and a write for as long.

use super::link::Link;
use crate::admit::{Outcome, Pass};
use crate::clock;
use crate::socket::Socket;
use bytes::Bytes;
use hyper_util::rt::TokioIo;
use std::future::poll_fn;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncWriteExt, copy_bidirectional};

/// How often it is looked at whether anything moves.
const LOOK: Duration = Duration::from_secs(1);

/// A WebSocket that the upstream has granted. Dropped before it began or ended, it is cut.
pub struct Tunnel {
    link: Link,
    /// `None` on a route that is off.
    pass: Option<Pass>,
}

/// How it ended.
enum End {
    /// Both sides have closed.
    Closed,
    /// One has broken off, or nothing moved for too long.
    Broken,
    /// A higher token asks for the end.
    Cut,
}

impl Tunnel {
    pub(super) const fn new(link: Link, pass: Option<Pass>) -> Self {
        Self { link, pass }
    }

    /// Moves bytes both ways until it ends. `early`: what the client has sent already. It ends when both sides
    /// have closed, when one breaks off, when nothing moves for `body_idle_timeout`, or when a higher token
    /// asks for it. Dropping the future cuts it.
    pub async fn run(mut self, client: Socket, early: Bytes) {
        let idle = self.link.limits().body_idle;
        let end = match self.link.switched().await {
            None => End::Broken,
            Some((upstream, late)) => {
                upstream.be_polite(true); // its end is passed on as it comes
                let end = join(&client, early, &upstream, late, self.pass.as_ref(), idle).await;
                upstream.be_polite(matches!(end, End::Closed));
                end
            }
        };
        client.close();
        let since = self.link.cut().await.unwrap_or_else(clock::now);
        let Some(pass) = self.pass.take() else { return };
        pass.finish(match end {
            End::Closed => Outcome::Answered,
            End::Broken | End::Cut => Outcome::Unknown { whole: true, since },
        });
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
    let (mut down, mut up) = (TokioIo::new(client.clone()), TokioIo::new(upstream.clone()));
    let moving = async {
        up.write_all(&early).await?;
        down.write_all(&late).await?;
        copy_bidirectional(&mut down, &mut up).await?;
        Ok::<_, io::Error>(())
    };
    let cut = poll_fn(|cx| match pass {
        Some(pass) => pass.poll_cut(cx),
        None => std::task::Poll::Pending,
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
        () = cut => End::Cut,
        moved = moving => if moved.is_ok() { End::Closed } else { End::Broken },
        () = still => End::Broken,
    }
}
