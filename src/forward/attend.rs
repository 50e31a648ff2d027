//! A write's own life: attended by its client's request while that lasts, on its own afterwards.
//!
//! While the client is there, its connection's task drives the write, without a task switch. When the
//! client leaves, or has its response before the write has ended, the write moves to a task of its
//! own. Either way what owns the pass is driven to its end.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use tokio::sync::Notify;

type Work = Pin<Box<dyn Future<Output = ()>>>;

/// Where writes go that nobody attends any more. For one serving thread.
#[derive(Default)]
pub(super) struct Orphans {
    waiting: RefCell<Vec<Work>>,
    came: Notify,
}

impl Orphans {
    /// Gives each of them a task. Runs in a `LocalSet`, for as long as the thread serves; what comes
    /// after that is dropped, and its pass with it.
    pub(super) async fn adopt(&self) {
        loop {
            self.came.notified().await;
            let came = self.waiting.take();
            for work in came {
                tokio::task::spawn_local(work);
            }
        }
    }

    fn take(&self, work: Work) {
        self.waiting.borrow_mut().push(work);
        self.came.notify_one();
    }
}

/// Whether the client is still there, for the write that it attends.
#[derive(Clone, Default)]
pub(super) struct Attendance(Rc<Cell<bool>>);

impl Attendance {
    /// Whether the client has left, or has its response.
    pub(super) fn has_ended(&self) -> bool {
        self.0.get()
    }
}

/// Where a write leaves its response, for whoever attends it.
pub(super) struct Slot<T>(Rc<RefCell<Option<T>>>);

impl<T> Slot<T> {
    /// Leaves the response. Dropped where nobody attends the write any more.
    pub(super) fn fill(self, response: T) {
        *self.0.borrow_mut() = Some(response);
    }
}

/// Drives a write until it has left its response.
pub(super) struct Attended<T> {
    work: Option<Work>,
    response: Rc<RefCell<Option<T>>>,
    attendance: Attendance,
    orphans: Rc<Orphans>,
}

impl<T: 'static> Attended<T> {
    /// `work` is made with the slot that it is to fill, exactly once.
    pub(super) fn new<F>(orphans: &Rc<Orphans>, work: impl FnOnce(Slot<T>, Attendance) -> F) -> Self
    where
        F: Future<Output = ()> + 'static,
    {
        let response = Rc::new(RefCell::new(None));
        let attendance = Attendance::default();
        let work = work(Slot(Rc::clone(&response)), attendance.clone());
        Self {
            work: Some(Box::pin(work)),
            response,
            attendance,
            orphans: Rc::clone(orphans),
        }
    }
}

impl<T> Future for Attended<T> {
    /// `None` where the write ended without filling its slot, which it never does.
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let ended = self
            .work
            .as_mut()
            .is_none_or(|work| work.as_mut().poll(cx).is_ready());
        if ended {
            self.work = None;
        }
        let response = self.response.borrow_mut().take();
        match response {
            None if !ended => Poll::Pending,
            response => Poll::Ready(response),
        }
    }
}

impl<T> Drop for Attended<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.attendance.0.set(true);
            self.orphans.take(work);
        }
    }
}
