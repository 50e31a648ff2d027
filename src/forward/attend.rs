//! A write's own life: attended by its client's request while that lasts, on its own afterwards.
//!
//! While the client is there, its connection's task drives the write, without a task switch. When the
//! client leaves, or has its response before the write has ended, the write moves to a task of its
//! own. Either way what owns the pass is driven to its end.

use super::download::Download;
use super::failure::Failed;
use super::upload::Progress;
use http::Response;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::sync::Notify;

/// Work that nobody waits for.
pub(super) type Work = Pin<Box<dyn Future<Output = ()>>>;

/// What a write's client gets, and what is left to do for the write once it has that.
pub(super) type Answered = (Result<Response<Download>, Failed>, Option<Work>);

/// Where writes go that nobody attends any more, and bodies that nobody wants. For one serving thread.
#[derive(Default)]
pub struct Orphans {
    waiting: RefCell<Vec<Work>>,
    came: Notify,
}

impl Orphans {
    /// Drives them: gives each of them a task of this thread, for as long as the thread serves; what comes after
    /// that is dropped, and its pass with it.
    pub async fn adopt(&self) {
        loop {
            self.came.notified().await;
            let came = self.waiting.take();
            for work in came {
                tokio::task::spawn_local(work);
            }
        }
    }

    pub(super) fn take(&self, work: Work) {
        self.waiting.borrow_mut().push(work);
        self.came.notify_one();
    }
}

/// Drives a write until it has its response.
pub(super) struct Attended<F: Future<Output = Answered> + 'static> {
    work: Option<Pin<Box<F>>>,
    progress: Rc<Progress>,
    orphans: Rc<Orphans>,
}

impl<F: Future<Output = Answered>> Attended<F> {
    pub(super) fn new(orphans: &Rc<Orphans>, progress: &Rc<Progress>, work: F) -> Self {
        Self {
            work: Some(Box::pin(work)),
            progress: Rc::clone(progress),
            orphans: Rc::clone(orphans),
        }
    }
}

impl<F: Future<Output = Answered>> Future for Attended<F> {
    type Output = Result<Response<Download>, Failed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(work) = &mut self.work else {
            return Poll::Pending; // it has given its response already
        };
        let Poll::Ready((response, rest)) = work.as_mut().poll(cx) else {
            return Poll::Pending;
        };
        self.work = None;
        if let Some(rest) = rest {
            self.orphans.take(rest);
        }
        Poll::Ready(response)
    }
}

impl<F: Future<Output = Answered> + 'static> Drop for Attended<F> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.progress.abandon();
            self.orphans.take(Box::pin(async {
                let (response, rest) = work.await;
                drop(response);
                if let Some(rest) = rest {
                    rest.await;
                }
            }));
        }
    }
}
