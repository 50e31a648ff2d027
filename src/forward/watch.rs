//! The exchanges under way, and when each is overdue.
//!
//! One look at all of them some ten times a second costs less than a timer for each: an exchange that
//! goes well touches no timer. Time-outs fire up to three tenths of a second late.

use super::upload::Progress;
use crate::clock::Time;
use std::cell::RefCell;
use std::rc::Rc;

/// The exchanges of one pool.
#[derive(Default)]
pub(super) struct Watch(RefCell<Vec<Rc<Progress>>>);

/// An exchange that is watched until this is dropped.
pub(super) struct Watched<'a> {
    watch: &'a Watch,
    progress: &'a Rc<Progress>,
}

impl Watch {
    pub(super) fn enter<'a>(&'a self, progress: &'a Rc<Progress>) -> Watched<'a> {
        let mut all = self.0.borrow_mut();
        progress.place.set(all.len());
        all.push(Rc::clone(progress));
        Watched {
            watch: self,
            progress,
        }
    }

    /// Wakes the owners of those whose deadline has passed.
    pub(super) fn wake_overdue(&self, now: Time) {
        for progress in &*self.0.borrow() {
            progress.check(now);
        }
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        let mut all = self.watch.0.borrow_mut();
        let place = self.progress.place.get();
        if place < all.len() {
            all.swap_remove(place);
        }
        if let Some(moved) = all.get(place) {
            moved.place.set(place);
        }
    }
}
