//! After a lost store: fences from the stamps that the gateway left in the metadata of objects.
//!
//! What it finds is a lower bound: a token that raised a fence and wrote nothing, or deleted, left no stamp, and an
//! upload in parts has that of the token which began it.

use super::{Encryption, Error, plan, runtime};
use crate::config::{Kind, Settings, Upstream};
use crate::fence::{ResourceKey, Token};
use crate::forward::Upstreams;
use crate::guard::{self, Guards};
use crate::record::Metrics;
use crate::route::Routes;
use crate::sign::{self, Signer, stamp};
use crate::store::{FenceStore, Raise, Record, RocksStore};
use bytes::Bytes;
use http::header::HOST;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use roxmltree::Document;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;

/// How many objects are asked for at once.
const AT_ONCE: usize = 16;
/// The largest list of objects: a thousand of the longest keys, escaped.
const LIST: usize = 8 << 20;
/// A key in a path: its slashes stay.
const IN_PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Where to look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct From {
    /// The upstream's name; `None`: the only object store.
    pub upstream: Option<String>,
    /// The bucket.
    pub bucket: String,
    /// What keys begin with.
    pub prefix: String,
}

/// What was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Objects that are there.
    pub objects: u64,
    /// Those with a stamp of their own resource.
    pub stamped: u64,
    /// Resources whose fence is at least the highest of their tokens now.
    pub resources: usize,
}

struct Walk {
    upstreams: Upstreams,
    upstream: Arc<Upstream>,
    signer: Arc<Signer>,
    host: HeaderValue,
    routes: Routes,
    fences: RefCell<BTreeMap<ResourceKey, Token>>,
    found: RefCell<Found>,
}

/// Reads the stamps of all objects there, and raises the fences of their resources to at least their tokens: durable
/// when this returns. No gateway may hold the store. It counts as unclean afterwards: what the gateway before had in
/// flight is not known.
///
/// # Errors
/// [`Error`]; fences that were raised stay.
pub fn rebuild(settings: &Settings, from: &From) -> Result<Found, Error> {
    let failed = |why: String| Error::Rebuild(why);
    let encryption = Encryption::open(settings)?;
    let metrics = Metrics::new().map_err(|e| Error::System(e.to_string()))?;
    let upstream = chosen(settings, from).map_err(failed)?;
    let all = settings.upstreams.iter();
    let seconds: Vec<_> = all.map(|u| metrics.upstream_seconds(&u.name)).collect();
    let reach = metrics.reach.take_up(plan::urls(settings));
    let own = upstream.authority.to_string();
    let mut routes = settings.routes.iter();
    let route = routes.find(|route| route.upstream.index == upstream.index);
    let host = route.and_then(|route| route.host.as_deref());
    let host = host.filter(|_| !upstream.rewrite_host).unwrap_or(&own);
    let (store, _) = RocksStore::open(
        &settings.store.path,
        settings.store.cache,
        plan::in_force(settings),
        Arc::new(()),
    )?;
    let walked = runtime()?.block_on(async {
        let walk = Rc::new(Walk {
            upstreams: Upstreams::new(
                &settings.upstreams,
                &encryption.upstreams,
                1,
                &seconds,
                &reach,
            ),
            signer: Guards::default().signer(&upstream.region),
            host: HeaderValue::from_str(host).map_err(|e| failed(e.to_string()))?,
            routes: Routes::new(settings),
            fences: RefCell::default(),
            found: RefCell::default(),
            upstream,
        });
        walk.all(from).await.map_err(failed)?;
        Ok((walk.fences.take(), walk.found.take()))
    });
    let raised = walked.and_then(|(fences, mut found): (BTreeMap<_, _>, Found)| {
        found.resources = fences.len();
        raise(&store, fences).map_err(Error::Close)?;
        Ok(found)
    });
    store.close(false).map_err(Error::Close)?;
    raised
}

fn chosen(settings: &Settings, from: &From) -> Result<Arc<Upstream>, String> {
    let stores: Vec<_> = settings
        .upstreams
        .iter()
        .filter(|u| u.kind == Kind::S3)
        .collect();
    let named = |u: &&&Arc<Upstream>| from.upstream.as_deref().is_none_or(|name| name == &*u.name);
    let mut chosen = stores.iter().filter(named);
    match (chosen.next(), chosen.next()) {
        (Some(one), None) => Ok(Arc::clone(one)),
        (None, _) => Err("the configuration has no such upstream of kind \"s3\"".into()),
        (Some(_), Some(_)) => {
            Err("the configuration has several object stores: name one with --upstream".into())
        }
    }
}

impl Walk {
    async fn all(self: &Rc<Self>, from: &From) -> Result<(), String> {
        let mut next: Option<String> = None;
        loop {
            let (keys, more) = self.page(from, next.as_deref()).await?;
            let keys = Rc::new(RefCell::new(keys));
            let workers: Vec<_> = (0..AT_ONCE)
                .map(|_| {
                    let (walk, keys, bucket) =
                        (Rc::clone(self), Rc::clone(&keys), from.bucket.clone());
                    tokio::task::spawn_local(async move {
                        loop {
                            let Some(key) = keys.borrow_mut().pop() else {
                                return Ok::<(), String>(());
                            };
                            walk.object(&format!(
                                "/{bucket}/{}",
                                utf8_percent_encode(&key, IN_PATH)
                            ))
                            .await?;
                        }
                    })
                })
                .collect();
            for worker in workers {
                worker.await.map_err(|e| e.to_string())??;
            }
            match more {
                Some(token) => next = Some(token),
                None => return Ok(()),
            }
        }
    }

    /// The next keys, and where to go on.
    async fn page(
        &self,
        from: &From,
        next: Option<&str>,
    ) -> Result<(Vec<String>, Option<String>), String> {
        let escaped = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let next = next.map(|token| format!("&continuation-token={}", escaped(token)));
        let (bucket, prefix) = (&from.bucket, escaped(&from.prefix));
        let target = format!(
            "/{bucket}?encoding-type=url&list-type=2&max-keys=1000&prefix={prefix}{}",
            next.unwrap_or_default()
        );
        let (status, _, body) = self.ask(Method::GET, &target).await?;
        if status != StatusCode::OK {
            let code = guard::error_code(&body).map(|code| format!(" ({code})"));
            return Err(format!(
                "listing {bucket} was answered {status}{}",
                code.unwrap_or_default()
            ));
        }
        let unreadable = || format!("the list of {bucket} cannot be read");
        let text = std::str::from_utf8(&body).map_err(|_| unreadable())?;
        let document = Document::parse(text.trim()).map_err(|_| unreadable())?;
        let root = document.root_element();
        let text = |node: roxmltree::Node<'_, '_>, name: &str| {
            let found = node
                .children()
                .find(|child| child.tag_name().name() == name);
            found.and_then(|child| child.text()).map(str::to_owned)
        };
        let mut keys = Vec::new();
        for entry in root
            .children()
            .filter(|node| node.tag_name().name() == "Contents")
        {
            let key = text(entry, "Key").ok_or_else(unreadable)?;
            // Escaped as in a form.
            let key = key.replace('+', " ");
            let key = percent_decode_str(&key)
                .decode_utf8()
                .map_err(|_| unreadable())?;
            keys.push(key.into_owned());
        }
        let more = text(root, "IsTruncated").as_deref() == Some("true");
        let next = text(root, "NextContinuationToken").filter(|_| more);
        if more && next.is_none() {
            return Err(unreadable());
        }
        Ok((keys, next))
    }

    async fn object(&self, path: &str) -> Result<(), String> {
        let (status, headers, _) = self.ask(Method::HEAD, path).await?;
        self.found.borrow_mut().objects += 1;
        match status {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return Ok(()), // gone since
            status => return Err(format!("{path} was answered {status}")),
        }
        // As a write of it would be routed.
        let head = self.head(Method::PUT, path)?;
        let Ok(found) = self.routes.classify(&head) else {
            return Ok(());
        };
        let Some(keys) = found
            .keys
            .filter(|_| found.route.upstream.index == self.upstream.index)
        else {
            return Ok(());
        };
        let resource = keys.first.resource;
        let text = stamp::token(&headers, &resource);
        let token = text.and_then(|text| found.route.format.parse(text.as_bytes()).ok());
        if let Some(token) = token {
            self.found.borrow_mut().stamped += 1;
            let mut fences = self.fences.borrow_mut();
            let highest = fences.entry(resource).or_insert(token);
            *highest = token.max(*highest);
        }
        Ok(())
    }

    async fn ask(
        &self,
        method: Method,
        target: &str,
    ) -> Result<(StatusCode, HeaderMap, Bytes), String> {
        let mut head = self.head(method, target)?;
        let whole = sign::absolute(&head)?;
        let relative = std::mem::replace(&mut head.uri, whole);
        self.signer.sign(&mut head).await?;
        head.uri = relative;
        let answer = self
            .upstreams
            .ask(self.upstream.index, head, Bytes::new(), LIST)
            .await;
        let answer =
            answer.map_err(|failed| format!("{target} was not answered: {}", failed.why))?;
        let (head, body) = answer.into_parts();
        Ok((head.status, head.headers, body))
    }

    fn head(&self, method: Method, target: &str) -> Result<Parts, String> {
        let request = Request::builder()
            .method(method)
            .uri(target)
            .header(HOST, self.host.clone());
        let request = request.body(()).map_err(|e| format!("{target}: {e}"))?;
        Ok(request.into_parts().0)
    }
}

/// Raises them, in one batch.
fn raise(
    store: &RocksStore,
    fences: BTreeMap<ResourceKey, Token>,
) -> Result<(), crate::store::Error> {
    if fences.is_empty() {
        return Ok(());
    }
    let (sender, receiver) = sync_channel(1);
    let fences = fences.into_iter().map(|(key, token)| {
        let drained = false;
        (key, Record { token, drained })
    });
    store.commit(Raise {
        fences: fences.collect(),
        counted_for: None,
        done: Box::new(move |done| drop(sender.send(done))),
    });
    let gone = || crate::store::Error::Down("it did not say what became of the fences".into());
    receiver.recv().map_err(|_| gone())?
}
