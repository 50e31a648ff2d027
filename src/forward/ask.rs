//! What the gateway asks an upstream on its own behalf.

use super::Outgoing;
use super::download::Download;
use super::exchange;
use super::failure::{Failed, Failure};
use super::pool::Pool;
use super::upload::Upload;
use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response};
use http_body_util::{BodyExt, Limited};
use std::rc::Rc;

/// Asks, and reads the answer; of one whose body is larger than `most` bytes, the head. A HEAD on a connection
/// that breaks off is sent again, once: it changes nothing.
/// Dropping the future closes the connection.
pub(super) async fn ask(
    pool: &Rc<Pool>,
    head: Parts,
    body: Bytes,
    most: usize,
) -> Result<Response<Bytes>, Failed> {
    let again = (head.method == Method::HEAD).then(|| head.clone());
    match (once(pool, head, body, most).await, again) {
        (Err(failed), Some(again)) if matches!(failed.why, Failure::Broken) => {
            once(pool, again, Bytes::new(), most).await
        }
        (answered, _) => answered,
    }
}

async fn once(
    pool: &Rc<Pool>,
    head: Parts,
    body: Bytes,
    most: usize,
) -> Result<Response<Bytes>, Failed> {
    let mut request = Box::new(Outgoing {
        head,
        upgrade: false,
        body: Upload::held(body),
    });
    request.bind(&Rc::default(), pool);
    let progress = Rc::clone(request.progress());
    let answered = exchange::run(pool, None, request, &progress).await;
    let (response, link) = answered.map_err(|stopped| Failed {
        why: stopped.why,
        sent: stopped.closed.is_some(),
    })?;
    let (head, body) = response.into_parts();
    // Read, so that the connection can be used again; of a larger one, that there is one is enough.
    let body = Download::direct(body, link, progress.is_whole(), None);
    let body = Limited::new(body, most).collect().await;
    let body = body
        .map(http_body_util::Collected::to_bytes)
        .unwrap_or_default();
    Ok(Response::from_parts(head, body))
}
