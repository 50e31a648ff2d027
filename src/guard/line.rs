//! Whose turn it is at an object. Guarded writes of one object go one at a time: each names the state that the one
//! before it left.

use super::answer::Does;
use super::honours::{Call, Honours};
use super::pin::{Gap, Slot};
use super::question::Question;
use super::table::{Cell, Guards};
use super::turn::{Turn, say};
use crate::config::{Kind, Route};
use crate::fence::Token;
use crate::record::RouteMetrics;
use crate::route::{Effect, Match};
use crate::sign::{Signer, stamp};
use http::Method;
use http::request::Parts;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::OwnedMutexGuard;

/// What a write's turn begins with.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    /// What it is.
    pub found: &'a Match<'a>,
    /// Its head, as it is to go out.
    pub head: &'a Parts,
    /// The token that it shows; NONE where it shows none.
    pub token: Token,
    /// How large its body is, where that is known.
    pub length: Option<u64>,
    /// Where its route counts.
    pub counted: &'a Arc<RouteMetrics>,
    /// What is known of the conditions that its upstream honours.
    pub honours: &'a Honours,
}

/// Too many wait for their turn already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crowded;

impl Guards {
    /// Waits for a write's turn at its object. `None` where its route has no guard. Dropping the future leaves
    /// the line.
    ///
    /// # Errors
    /// [`Crowded`], where more wait than its route lets (`max_waiting`).
    pub async fn turn(&self, setting: Setting<'_>) -> Result<Option<Turn>, Crowded> {
        let Some((object, cell)) = self.cell_of(&setting) else {
            return Ok(None);
        };
        let slot = match Arc::clone(&cell.slot).try_lock_owned() {
            Ok(slot) => slot,
            Err(_) => in_line(&cell, setting.found.route.max_waiting).await?,
        };
        Ok(Some(self.begin(object, &cell, slot, setting)))
    }

    /// The turn, where nobody has it and the route has a guard.
    #[must_use]
    pub fn turn_at_once(&self, setting: Setting<'_>) -> Option<Turn> {
        let (object, cell) = self.cell_of(&setting)?;
        let slot = Arc::clone(&cell.slot).try_lock_owned().ok()?;
        Some(self.begin(object, &cell, slot, setting))
    }

    fn cell_of(&self, setting: &Setting<'_>) -> Option<(String, Arc<Cell>)> {
        let object = name(setting.found.route, setting.found.object.as_deref()?);
        let cell = self.cell(&object);
        Some((object, cell))
    }

    fn begin(
        &self,
        object: String,
        cell: &Cell,
        mut slot: OwnedMutexGuard<Slot>,
        setting: Setting<'_>,
    ) -> Turn {
        let Setting {
            found,
            head,
            token,
            length,
            counted,
            honours,
        } = setting;
        let route = found.route;
        if cell.changed.swap(false, Ordering::AcqRel) {
            slot.forget();
        }
        let signer = self.signer_of(route);
        let question = Question::about(head, route.upstream.kind == Kind::Http, signer.as_ref());
        Turn {
            slot,
            guard: route.guard,
            required: route.guard_required,
            upstream: Arc::clone(&route.upstream),
            effect: found.effect,
            does: does(found),
            call: call(found),
            known: honours.known(),
            token,
            length,
            carried: None,
            stamp: head
                .headers
                .get(stamp::WRITE)
                .filter(|_| route.upstream.sign)
                .cloned(),
            question,
            weak: false,
            open: false,
            odd: false,
            report: Vec::new(),
            route: Arc::clone(&route.name),
            object,
            counted: Arc::clone(counted),
        }
    }

    /// Notes that a write changes an object beside its own, without a condition: what is believed of that is
    /// forgotten. To be called before it goes out and after it was answered.
    pub fn changed(&self, route: &Route, object: &str, counted: &RouteMetrics) {
        let object = name(route, object);
        let cell = self.cell(&object);
        cell.changed.store(true, Ordering::Release);
        let gap = match cell.slot.try_lock() {
            Ok(mut slot) => slot.gap(Gap::Unconditional),
            Err(_) => Some(Gap::Unconditional),
        };
        say((&*route.name, route.upstream.kind), &object, counted, gap);
    }

    /// Who signs the question, where requests of this route are signed.
    fn signer_of(&self, route: &Route) -> Option<Arc<Signer>> {
        let upstream = &route.upstream;
        (upstream.kind == Kind::S3).then(|| self.signer(&upstream.region))
    }
}

/// Waits in line.
async fn in_line(cell: &Arc<Cell>, most: usize) -> Result<OwnedMutexGuard<Slot>, Crowded> {
    struct Place<'a>(&'a Cell);
    impl Drop for Place<'_> {
        fn drop(&mut self) {
            self.0.waiting.fetch_sub(1, Ordering::AcqRel);
        }
    }
    let before = cell.waiting.fetch_add(1, Ordering::AcqRel);
    let _place = Place(cell);
    if before >= most {
        return Err(Crowded);
    }
    Ok(Arc::clone(&cell.slot).lock_owned().await)
}

/// What an object is known by: its place in its upstream, under whatever name that has.
fn name(route: &Route, object: &str) -> String {
    format!("{}{object}", route.upstream.authority)
}

fn does(found: &Match<'_>) -> Does {
    match found.effect {
        Effect::Beside => Does::Nothing,
        Effect::Removes => Does::Removes,
        Effect::Replaces if found.answered_at_end => Does::Reports,
        Effect::Replaces if matches!(found.method, Method::PUT | Method::PATCH) => Does::Puts,
        Effect::Replaces | Effect::Unconditional => Does::Changes,
    }
}

const fn call(found: &Match<'_>) -> Call {
    match (found.effect, found.answered_at_end, &found.method) {
        (Effect::Removes, ..) => Call::Delete,
        (_, true, &Method::PUT) => Call::Copy,
        (_, true, _) => Call::Complete,
        (_, _, &Method::PUT) => Call::Put,
        _ => Call::Change,
    }
}
