//! `fencegate fences list|show`: through the gateway where one answers, else from the store.

use super::{Failure, load};
use crate::admin::{Fence, Page, page};
use crate::config::Settings;
use crate::store::RocksStore;
use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use clap::Subcommand;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;
use tokio::net::TcpStream;

const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// List fences in key order.
    List {
        /// Those of this namespace.
        #[arg(long, default_value = "default")]
        namespace: String,
        /// Those whose key begins with this.
        #[arg(long, default_value = "")]
        prefix: String,
        /// At most so many.
        #[arg(long, default_value_t = 1000)]
        limit: usize,
    },
    /// Show the fence of one resource.
    Show {
        /// The resource's key, as `fences list` and `check --explain` show it.
        key: String,
        /// Its namespace.
        #[arg(long, default_value = "default")]
        namespace: String,
    },
}

pub(super) fn run(config: &Path, command: &Command) -> Result<(), Failure> {
    let settings = load(config)?.settings;
    match command {
        Command::List {
            namespace,
            prefix,
            limit,
        } => {
            let mut source = Source::open(&settings)?;
            let (mut left, mut after) = (*limit, None);
            while left > 0 {
                let page = source.page(namespace, prefix, after.as_deref(), left)?;
                page.fences.iter().for_each(print);
                left = left.saturating_sub(page.fences.len());
                let Some(next) = page.next else { break };
                after = Some(next);
            }
            Ok(())
        }
        Command::Show { key, namespace } => {
            let plain = key.strip_prefix(&format!("{namespace}:")).unwrap_or(key);
            let page = Source::open(&settings)?.page(namespace, plain, None, 1)?;
            match page.fences.first() {
                Some(fence) if fence.key == plain => {
                    print(fence);
                    Ok(())
                }
                _ => Err(anyhow!("{namespace}:{plain} has no fence").into()),
            }
        }
    }
}

fn print(fence: &Fence) {
    let Fence {
        namespace,
        key,
        epoch,
        token,
        drained,
    } = fence;
    let epoch = epoch
        .as_ref()
        .map(|epoch| format!("{epoch}:"))
        .unwrap_or_default();
    let state = if *drained {
        "drained"
    } else {
        "not known to be drained"
    };
    out!("{namespace}:{key}\t{epoch}{token}\t{state}");
}

/// Where fences are read from.
enum Source {
    Gateway {
        runtime: tokio::runtime::Runtime,
        address: SocketAddr,
    },
    Store(RocksStore),
}

impl Source {
    fn open(settings: &Settings) -> anyhow::Result<Self> {
        let address = reachable(settings.admin.listen);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        if runtime.block_on(TcpStream::connect(address)).is_ok() {
            return Ok(Self::Gateway { runtime, address });
        }
        Ok(Self::Store(RocksStore::open_to_look(
            &settings.store.path,
            settings.store.cache,
        )?))
    }

    fn page(
        &mut self,
        namespace: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> anyhow::Result<Page> {
        match self {
            Self::Store(store) => Ok(page(store, namespace, prefix, after, limit)?),
            Self::Gateway { runtime, address } => {
                let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
                let after = after.map(|key| format!("&after={}", encode(key)));
                let target = format!(
                    "/api/v1/fences?namespace={}&prefix={}&limit={limit}{}",
                    encode(namespace),
                    encode(prefix),
                    after.unwrap_or_default()
                );
                let asked = async { tokio::time::timeout(PATIENCE, ask(*address, &target)).await };
                let body = runtime
                    .block_on(asked)
                    .map_err(|_| anyhow!("the gateway at {address} does not answer"))??;
                serde_json::from_slice(&body)
                    .with_context(|| format!("what answers at {address} is no fencegate"))
            }
        }
    }
}

async fn ask(address: SocketAddr, target: &str) -> anyhow::Result<Bytes> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let exchange = async {
        let request = http::Request::get(target)
            .header(http::header::HOST, address.to_string())
            .body(Empty::<Bytes>::new())?;
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        if !status.is_success() {
            bail!(
                "the gateway at {address} says {status}: {}",
                String::from_utf8_lossy(&body)
            );
        }
        Ok(body)
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
