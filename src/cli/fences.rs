//! `fencegate fences list|show`: through the gateway where one answers, else from the store.

use super::admin::{Gateway, encode};
use super::{Failure, load};
use crate::admin::{Fence, Page, page};
use crate::config::Settings;
use crate::store::RocksStore;
use anyhow::{Context, anyhow};
use clap::Subcommand;
use std::path::Path;

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
            let source = Source::open(&settings)?;
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
    Gateway(Gateway),
    Store(RocksStore),
}

impl Source {
    fn open(settings: &Settings) -> anyhow::Result<Self> {
        if let Some(gateway) = Gateway::find(settings.admin.listen)? {
            return Ok(Self::Gateway(gateway));
        }
        Ok(Self::Store(RocksStore::open_to_look(
            &settings.store.path,
            settings.store.cache,
        )?))
    }

    fn page(
        &self,
        namespace: &str,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> anyhow::Result<Page> {
        match self {
            Self::Store(store) => Ok(page(store, namespace, prefix, after, limit)?),
            Self::Gateway(gateway) => {
                let after = after.map(|key| format!("&after={}", encode(key)));
                let target = format!(
                    "/api/v1/fences?namespace={}&prefix={}&limit={limit}{}",
                    encode(namespace),
                    encode(prefix),
                    after.unwrap_or_default()
                );
                let body = gateway.get(&target)?;
                serde_json::from_slice(&body)
                    .with_context(|| format!("what answers at {} is no fencegate", gateway.address))
            }
        }
    }
}
