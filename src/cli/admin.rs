//! The gateway that runs here, as its own commands ask it.

use anyhow::{anyhow, bail};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(10);
/// The longest line of what is followed.
const LONGEST: usize = 64 << 10;

/// A gateway that answers.
pub(super) struct Gateway {
    runtime: Runtime,
    /// Where.
    pub(super) address: SocketAddr,
}

impl Gateway {
    /// The one that listens there, if one does.
    pub(super) fn find(listen: SocketAddr) -> anyhow::Result<Option<Self>> {
        let address = reachable(listen);
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let found = runtime.block_on(TcpStream::connect(address)).is_ok();
        Ok(found.then_some(Self { runtime, address }))
    }

    /// What it answers.
    pub(super) fn get(&self, target: &str) -> anyhow::Result<Bytes> {
        let read = async |body: Incoming| Ok(body.collect().await?.to_bytes());
        let asked = async { timeout(PATIENCE, ask(self.address, target, read)).await };
        let silent = |_| anyhow!("the gateway at {} does not answer", self.address);
        self.runtime.block_on(asked).map_err(silent)?
    }

    /// Takes each line of an answer that does not end by itself, as long as `take` asks for more.
    pub(super) fn lines(
        &self,
        target: &str,
        mut take: impl FnMut(&str) -> bool,
    ) -> anyhow::Result<()> {
        let read = async |mut body: Incoming| {
            let mut line = Vec::new();
            while let Some(frame) = body.frame().await {
                let Ok(data) = frame?.into_data() else {
                    continue;
                };
                for byte in data {
                    match byte {
                        b'\n' => {
                            if !take(&String::from_utf8_lossy(&line)) {
                                return Ok(());
                            }
                            line.clear();
                        }
                        byte if line.len() < LONGEST => line.push(byte),
                        _ => {}
                    }
                }
            }
            Ok(())
        };
        self.runtime.block_on(ask(self.address, target, read))
    }
}

/// A text as a value in a query.
pub(super) fn encode(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

async fn ask<T>(
    address: SocketAddr,
    target: &str,
    read: impl AsyncFnOnce(Incoming) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let exchange = async {
        let request = http::Request::get(target)
            .header(http::header::HOST, address.to_string())
            .body(Empty::<Bytes>::new())?;
        let response = sender.send_request(request).await?;
        let status = response.status();
        if !status.is_success() {
            let body = response.into_body().collect().await?.to_bytes();
            bail!(
                "the gateway at {address} says {status}: {}",
                String::from_utf8_lossy(&body)
            );
        }
        read(response.into_body()).await
    };
    tokio::select! {
        done = exchange => done,
        Err(error) = connection => Err(error.into()),
    }
}

/// Where a listener on every address is reached from here.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, listen.port())
}
