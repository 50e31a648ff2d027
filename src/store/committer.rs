//! The committer: the one thread that writes to the store.
//!
//! Knows nothing of gates, and leaves the database and what is noted about it to keeper.rs. It gathers
//! the raises that wait into one synced batch, so that all of them share a sync.

use super::batch::Round;
use super::job::{Close, Done, Enforce, Job, closed};
use super::keeper::{Keeper, read};
use super::{Error, Record};
use crate::clock;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// Jobs that one batch takes up.
const ROUND: usize = 1024;
/// Pauses between attempts to open the database anew.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LAST_PAUSE: Duration = Duration::from_secs(2);

/// What came of waiting.
enum Next {
    Job(Job),
    Nothing,
    /// Nobody can send any more.
    Ended,
}

/// Serves the queue until the store is closed or dropped.
pub(super) fn run(mut keeper: Keeper, queue: &Receiver<Job>) {
    let mut pause = FIRST_PAUSE;
    let close = loop {
        let next = if keeper.shared.is_up() {
            pause = FIRST_PAUSE;
            wait(queue, keeper.ledger_due())
        } else {
            wait_down(&keeper, queue, pause)
        };
        match next {
            Next::Job(Job::Close(close)) => break Some(close),
            Next::Job(job) => {
                let close = round(&mut keeper, queue, job);
                if close.is_some() {
                    break close;
                }
                if keeper.ledger_due() == Some(Duration::ZERO) {
                    keeper.sync_ledger();
                }
            }
            Next::Nothing if keeper.shared.is_up() => keeper.sync_ledger(),
            Next::Nothing => {
                pause = (pause * 2).min(LAST_PAUSE);
                keeper.reopen();
            }
            Next::Ended => break None,
        }
    };
    match close {
        Some(Close {
            clean,
            leaving,
            answer,
        }) => {
            let outcome = keeper.close(clean, leaving.as_deref());
            // The lock goes before the answer: who waits for it may open the store again.
            drop(keeper);
            let _ = answer.send(outcome);
        }
        None => keeper.sync_ledger(),
    }
}

fn wait(queue: &Receiver<Job>, limit: Option<Duration>) -> Next {
    let Some(limit) = limit else {
        return queue.recv().map_or(Next::Ended, Next::Job);
    };
    match queue.recv_timeout(limit) {
        Ok(job) => Next::Job(job),
        Err(RecvTimeoutError::Timeout) => Next::Nothing,
        Err(RecvTimeoutError::Disconnected) => Next::Ended,
    }
}

/// Refuses what comes, for as long as `pause`. Where the store is damaged, there is no next attempt.
fn wait_down(keeper: &Keeper, queue: &Receiver<Job>, pause: Duration) -> Next {
    let hopeless = matches!(keeper.shared.trouble(), Error::Damaged(_));
    let end = clock::now().after(pause);
    loop {
        let left = end.left();
        match wait(queue, (!hopeless).then_some(left)) {
            Next::Job(job @ (Job::Raise { .. } | Job::Drained { .. } | Job::Enforce(_))) => {
                job.refuse(keeper.shared.trouble());
            }
            other => return other,
        }
        if !hopeless && left.is_zero() {
            return Next::Nothing;
        }
    }
}

/// Commits what waits, `first` and on. Gives back a wish to close that stood among it.
fn round(keeper: &mut Keeper, queue: &Receiver<Job>, first: Job) -> Option<Close> {
    let (mut jobs, mut close) = (vec![first], None);
    while jobs.len() < ROUND && close.is_none() {
        match queue.try_recv() {
            Ok(Job::Close(wish)) => close = Some(wish),
            Ok(job) => jobs.push(job),
            Err(_) => break,
        }
    }
    let (changes, waiting) = {
        let db = keeper.shared.db();
        let Some(db) = db.as_ref() else {
            for job in jobs {
                job.refuse(keeper.shared.trouble());
            }
            return close;
        };
        let mut round = Round::new(|key: &[u8]| read(db, key));
        let waiting = gather(keeper, &mut round, jobs);
        (keeper.finish(round), waiting)
    };
    let outcome = match changes {
        Some(changes) => keeper.commit(changes, waiting.len()),
        // Overtaken: what is on disk already is higher, and synced.
        None => Ok(()),
    };
    for done in waiting {
        done.call(outcome.clone());
    }
    close
}

/// Takes jobs into a round. Gives back who waits for it.
fn gather<R>(keeper: &Keeper, round: &mut Round<R>, jobs: Vec<Job>) -> Vec<Done>
where
    R: Fn(&[u8]) -> Result<Option<Record>, Error>,
{
    let mut waiting = Vec::with_capacity(jobs.len());
    for job in jobs {
        match job {
            Job::Raise {
                fences,
                route,
                done,
            } => match round.raise(&fences, route.as_ref()) {
                Ok(()) => waiting.push(done),
                Err(error) => {
                    keeper.observer.failed("read");
                    done.call(Err(error));
                }
            },
            Job::Drained { key, token } => {
                if round.drained(&key, token).is_err() {
                    keeper.observer.failed("read");
                }
            }
            Job::Enforce(Enforce { now, answer }) => {
                let _ = answer.send(keeper.enforce(now));
            }
            close @ Job::Close(_) => close.refuse(closed()),
        }
    }
    waiting
}
