//! One write's turn at its object: from the question for its state to what its answer says of it.

use super::answer::{self, Carried, Does, Told, Verdict};
use super::condition::{self, Condition, How, Sent, Whose};
use super::honours::{Call, Known};
use super::pin::{Gap, Lost, Pin, Slot};
use super::question::{self, Question, Unlearnt};
use crate::config::{Guard, Kind, Upstream};
use crate::fence::Token;
use crate::record::RouteMetrics;
use crate::route::Effect;
use crate::sign::stamp;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use std::sync::Arc;
use tokio::sync::OwnedMutexGuard;

/// Why a write cannot go out with a condition. Nothing of it may be forwarded then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unconditional {
    /// The client's own condition and the gateway's exclude each other.
    Clash(&'static str),
    /// The route requires the guard, and the call does not have it.
    Required(&'static str),
    /// It would write over an object that is only created, since the upstream ignores its condition.
    Overwrites,
    /// The route requires the guard, and it is not known yet whether the upstream honours it.
    Untried,
}

/// A write's turn. What it leaves is believed from when it is dropped; dropped in the middle, nothing is.
pub struct Turn {
    pub(super) slot: OwnedMutexGuard<Slot>,
    pub(super) guard: Guard,
    pub(super) required: bool,
    pub(super) upstream: Arc<Upstream>,
    pub(super) effect: Effect,
    pub(super) does: Does,
    pub(super) call: Call,
    pub(super) known: Known,
    pub(super) token: Token,
    pub(super) length: Option<u64>,
    pub(super) carried: Carried,
    /// Its name in the object's metadata, where the gateway signs.
    pub(super) stamp: Option<HeaderValue>,
    pub(super) question: Question,
    /// The object has no strong validator.
    pub(super) weak: bool,
    /// It may have reached the resource, and nothing says what became of it.
    pub(super) open: bool,
    /// The resource is not as it should be, which a lost write of this holder's may be why of.
    pub(super) odd: bool,
    /// What came of a body that reports a result.
    pub(super) report: Vec<u8>,
    pub(super) route: Arc<str>,
    /// What it is known by.
    pub(super) object: String,
    pub(super) counted: Arc<RouteMetrics>,
}

pub(super) fn say(
    (route, kind): (&str, Kind),
    object: &str,
    counted: &RouteMetrics,
    gap: Option<Gap>,
) {
    if let Some(gap) = gap {
        counted.guard_gaps.inc();
        tracing::warn!(
            route,
            object = shown(object, kind),
            why = gap.word(),
            "the guard does not close the window for an object: it is drained, not guarded"
        );
    }
}

/// An object's name as it is logged: less the upstream's, and less a query, which may hold a secret.
fn shown(object: &str, kind: Kind) -> &str {
    let (_, name) = object.split_once('/').unwrap_or(("", object));
    match kind {
        Kind::S3 => name,
        Kind::Http => name.split('?').next().unwrap_or_default(),
    }
}

impl Turn {
    /// Whether the object's state has to be learned before the write goes out.
    #[must_use]
    pub fn must_learn(&self) -> bool {
        let conditional = !matches!(self.effect, Effect::Beside | Effect::Unconditional);
        self.knows_nothing() && conditional && !self.known.ignores(self.call)
    }

    /// Whether the object's state is wanted and not known.
    #[must_use]
    pub fn knows_nothing(&self) -> bool {
        self.guard == Guard::Etag && *self.slot.pin(self.token) == Pin::Unknown
    }

    /// The question for the object's state.
    ///
    /// # Errors
    /// [`Unlearnt::Credentials`]
    pub async fn question(&self) -> Result<Parts, Unlearnt> {
        self.counted.guard_questions.inc();
        self.question.request().await
    }

    /// Takes the answer to it.
    ///
    /// # Errors
    /// [`Unlearnt`]: then nothing may be forwarded.
    pub fn learn(&mut self, status: StatusCode, headers: &HeaderMap) -> Result<(), Unlearnt> {
        self.question.heard(status);
        let Some(pin) = question::state(status, headers)? else {
            if self.required {
                return Err(Unlearnt::Weak);
            }
            self.slot.forget();
            self.weak = true;
            self.tell(Gap::Weak);
            return Ok(());
        };
        let gap = self.slot.learned(pin, self.token);
        self.say(gap);
        Ok(())
    }

    /// Puts the condition on the write. Where there can be none, the write is drained, unless its route requires
    /// the guard.
    ///
    /// # Errors
    /// [`Unconditional`]; then the headers are as they were.
    pub fn condition(&mut self, headers: &mut HeaderMap) -> Result<(), Unconditional> {
        let created_only = self.guard == Guard::CreateOnly;
        let ours = match (self.effect, self.slot.pin(self.token)) {
            (Effect::Beside, _) => return Ok(()),
            (Effect::Unconditional, _) => return self.without(Gap::Unconditional),
            _ if created_only => Condition::Create,
            _ if self.known.ignores(self.call) => return self.without(Gap::Ignored),
            // There is no way to say it of what is to be taken away.
            (Effect::Removes, Pin::Absent) => return self.without(Gap::Removed),
            (_, Pin::Absent) => Condition::Create,
            (_, Pin::At(etag)) => Condition::Match(etag.clone()),
            (_, Pin::Unknown) if self.weak => return Ok(()), // that was told
            (_, Pin::Unknown) => return self.without(Gap::Older),
        };
        let how = How {
            always: created_only,
            exact: self.upstream.kind == Kind::S3,
            removes: self.effect == Effect::Removes,
        };
        let planned = condition::plan(&ours, headers, how);
        let sent = planned.map_err(|clash| Unconditional::Clash(clash.0))?;
        self.is_honoured(&sent)?;
        sent.put(headers);
        // That an object is there already may be its own holder's doing: its client is told by the resource.
        let whose = if created_only {
            Whose::Clients { pinned: false }
        } else {
            sent.whose
        };
        self.carried = Some((whose, sent.test));
        Ok(())
    }

    /// Whether the upstream is known to look at it.
    fn is_honoured(&mut self, sent: &Sent) -> Result<(), Unconditional> {
        match self.known.of(self.call, sent.test) {
            // It would write over what is there.
            Some(false) if self.call == Call::Copy && self.guard == Guard::CreateOnly => {
                Err(Unconditional::Overwrites)
            }
            Some(false) => self.without(Gap::Ignored),
            // No probe tries it.
            None if self.known.is_any() => self.without(Gap::Untried),
            None if self.required => Err(Unconditional::Untried),
            None | Some(true) => Ok(()),
        }
    }

    fn without(&mut self, gap: Gap) -> Result<(), Unconditional> {
        if self.required {
            return Err(Unconditional::Required(gap.word()));
        }
        self.tell(gap);
        Ok(())
    }

    /// From here on the write may reach the resource.
    pub const fn begin(&mut self) {
        self.open = true;
    }

    /// No byte of it has.
    pub const fn unsent(&mut self) {
        self.open = false;
    }

    /// Takes the head of its final answer, and says what its client is to be told.
    pub fn answered(&mut self, status: StatusCode, headers: &HeaderMap) -> Told {
        let unsettled = self.upstream.unsettled_status.contains(&status);
        let verdict = answer::of_head(self.does, self.carried, status, unsettled, headers);
        let told = verdict.told;
        self.open = false;
        self.take(verdict);
        if status.is_success() && self.effect == Effect::Removes {
            self.tell(Gap::Removed);
        }
        if status.is_server_error() || unsettled {
            self.lose();
        }
        told
    }

    /// Takes a part of an answer's body.
    pub fn hears(&mut self, part: &[u8]) {
        let room = answer::REPORT.saturating_sub(self.report.len());
        if self.does == Does::Reports && part.len() <= room {
            self.report.extend_from_slice(part);
        }
    }

    /// The answer has ended.
    pub fn ended(&mut self) {
        if self.does == Does::Reports && !self.report.is_empty() {
            let report = std::mem::take(&mut self.report);
            let verdict = answer::of_report(self.carried, &report);
            self.take(verdict);
        }
    }

    /// Whether a write of this holder, whose outcome is unknown, may be why a condition did not hold.
    #[must_use]
    pub fn may_have_written(&self) -> bool {
        self.lost().is_some()
    }

    /// Whether the object is what that write was to leave, by its name in the metadata, or else as far as its size tells: the answer to
    /// [`Turn::question`] says.
    #[must_use]
    pub fn has_written(&self, status: StatusCode, headers: &HeaderMap) -> bool {
        let same = |lost: &Lost| match &lost.stamp {
            Some(stamp) => headers.get(stamp::WRITE) == Some(stamp),
            None => question::length(headers) == Some(lost.length),
        };
        let size = |lost: &Lost| self.length == Some(lost.length);
        status == StatusCode::OK && self.lost().is_some_and(|lost| size(lost) && same(lost))
    }

    /// No lost write of this holder's is why the resource is not as it should be, if it is not.
    pub fn is_not_mine(&mut self) {
        if std::mem::take(&mut self.odd) {
            self.past();
        }
    }

    /// Counts that somebody wrote past the gateway.
    fn past(&mut self) {
        self.counted.guard_conflicts.inc();
        if std::mem::replace(&mut self.slot.past, true) {
            return;
        }
        tracing::warn!(
            route = &*self.route,
            object = shown(&self.object, self.upstream.kind),
            "an object was written past the gateway: a condition that it had to meet does not hold"
        );
    }

    fn take(&mut self, verdict: Verdict) {
        // Where it may have been this holder, whoever owns the turn finds out, and says so.
        if verdict.past && self.may_have_written() {
            self.odd = true;
        } else if verdict.past {
            self.past();
        }
        match verdict.pin {
            None => {}
            Some(Pin::Unknown) => self.slot.forget(),
            Some(pin) => {
                let gap = self.slot.moved(pin, self.token);
                self.say(gap);
            }
        }
    }

    /// A write of this holder whose outcome is not known.
    fn lost(&self) -> Option<&Lost> {
        self.slot
            .lost
            .as_ref()
            .filter(|lost| lost.token == self.token)
    }

    /// Remembers the write, whose outcome is unknown.
    fn lose(&mut self) {
        self.slot.forget();
        if let Some(length) = self.length.filter(|_| self.does == Does::Puts) {
            let token = self.token;
            let stamp = self.stamp.clone();
            self.slot.lost = Some(Lost {
                token,
                length,
                stamp,
            });
        }
    }

    fn tell(&mut self, gap: Gap) {
        let gap = self.slot.gap(gap);
        self.say(gap);
    }

    fn say(&self, gap: Option<Gap>) {
        let on = (&*self.route, self.upstream.kind);
        say(on, &self.object, &self.counted, gap);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.open {
            self.lose();
        } else if self.effect == Effect::Unconditional {
            self.slot.forget();
        }
    }
}
