//! Folds what repeats into one event: a zombie that writes six hundred times is one, with a count.
//!
//! Pure: no I/O, no clock; the time comes with what was seen.

use super::sighting::{Event, Kind, Sighting};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, SystemTime};

/// How many events are open: that fold what comes.
const OPEN: usize = 8192;
/// After how long a pause what comes is an event of its own.
const PAUSE: Duration = Duration::from_hours(1);

/// What makes two sightings one event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Same {
    kind: Kind,
    route: String,
    resource: Option<String>,
    holder: Option<String>,
    token: Option<String>,
    observed: bool,
}

impl Same {
    fn of(event: &Event) -> Self {
        // That the store fails is one thing, whomever it hits.
        let own = event.kind != Kind::Store;
        let one = |part: &Option<String>| part.clone().filter(|_| own);
        Self {
            kind: event.kind,
            route: event.route.clone(),
            resource: one(&event.resource_id),
            holder: one(&event.holder),
            token: one(&event.token),
            observed: event.observed,
        }
    }
}

struct Open {
    event: Event,
    last: SystemTime,
}

/// The events that are open.
#[derive(Default)]
pub(super) struct Fold {
    open: HashMap<Same, Open>,
    changed: HashSet<Same>,
    next: u64,
}

impl Fold {
    /// One that goes on after an event of that number.
    pub(super) fn after(id: u64) -> Self {
        Self {
            next: id + 1,
            ..Self::default()
        }
    }

    /// Takes up an event that was kept, and is not over yet.
    pub(super) fn go_on(&mut self, event: Event) {
        let Ok(last) = humantime::parse_rfc3339(&event.last) else {
            return;
        };
        let same = Same::of(&event);
        let newer = self.open.get(&same).is_none_or(|open| open.last <= last);
        if newer && self.open.len() < OPEN {
            self.open.insert(same, Open { event, last });
        }
    }

    /// Takes what was seen.
    pub(super) fn see(&mut self, seen: &Sighting) {
        let event = Event::of(self.next.max(micros(seen.time)), seen);
        let same = Same::of(&event);
        let over = |open: &Open| {
            let pause = seen.time.duration_since(open.last);
            pause.is_ok_and(|pause| pause > PAUSE)
        };
        match self.open.get_mut(&same) {
            Some(open) if !over(open) => {
                open.event.again(seen);
                open.last = open.last.max(seen.time);
            }
            _ => {
                if self.open.len() >= OPEN {
                    self.close_some();
                }
                self.next = event.id + 1;
                let last = seen.time;
                self.open.insert(same.clone(), Open { event, last });
            }
        }
        self.changed.insert(same);
    }

    /// What has changed since the last call.
    pub(super) fn changed(&mut self) -> Vec<Event> {
        let changed = self.changed.drain();
        let events = changed.filter_map(|same| Some(self.open.get(&same)?.event.clone()));
        let mut events: Vec<Event> = events.collect();
        events.sort_by_key(|event| (event.place, event.id));
        events
    }

    /// They have these places now.
    pub(super) fn placed(&mut self, events: &[Event]) {
        for event in events {
            if let Some(open) = self.open.get_mut(&Same::of(event)) {
                open.event.place = event.place;
            }
        }
    }

    /// They could not be kept: they have changed still.
    pub(super) fn give_back(&mut self, events: &[Event]) {
        self.changed.extend(events.iter().map(Same::of));
    }

    /// Whether what has changed should be asked for before more comes.
    pub(super) fn is_crowded(&self) -> bool {
        self.changed.len() >= OPEN / 4
    }

    /// Closes those with places up to this one: they are kept no more.
    pub(super) fn forget(&mut self, place: u64) {
        self.open.retain(|_, open| open.event.place > place);
    }

    /// Closes the older half of what has not changed; where all has, the older half of that.
    fn close_some(&mut self) {
        let mut last: Vec<SystemTime> = self.open.values().map(|open| open.last).collect();
        last.sort_unstable();
        let middle = last.get(last.len() / 2).copied();
        let old = |open: &Open| middle.is_some_and(|middle| open.last <= middle);
        let (open, changed) = (&mut self.open, &self.changed);
        open.retain(|same, it| !old(it) || changed.contains(same));
        if open.len() >= OPEN {
            open.retain(|_, it| !old(it));
        }
    }
}

fn micros(time: SystemTime) -> u64 {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn seen(second: u64, holder: &str, token: u64) -> Sighting {
        Sighting {
            kind: Kind::Stale,
            time: SystemTime::UNIX_EPOCH + Duration::from_secs(second),
            route: Arc::from("files"),
            resource: Some(("default:files/a".into(), "0123456789abcdef".into())),
            token: Some(token.to_string()),
            fence: Some("34".into()),
            superseded: Some(Duration::from_secs(second)),
            holder: Some(holder.into()),
            proved: false,
            client: format!("10.0.0.{second}"),
            agent: None,
            request: None,
            trace: None,
            observed: false,
        }
    }

    #[test]
    fn what_repeats_is_one_event_with_its_first_and_last_time() {
        let mut fold = Fold::after(7);
        for second in 0..600 {
            fold.see(&seen(second, "a", 33));
        }
        fold.see(&seen(5, "b", 33));
        fold.see(&seen(6, "a", 32));
        let events = fold.changed();
        let counts: Vec<_> = events.iter().map(|e| e.count).collect();
        assert_eq!(counts, [600, 1, 1]);
        assert!(events[0].id == 8 && events.is_sorted_by_key(|e| e.id));
        let one = &events[0];
        assert_eq!(one.first, "1970-01-01T00:00:00.000Z");
        assert_eq!(one.last, "1970-01-01T00:09:59.000Z");
        assert_eq!(
            (&*one.client, one.superseded_ms),
            ("10.0.0.599", Some(599_000))
        );
        assert!(fold.changed().is_empty());
    }

    #[test]
    fn after_a_pause_it_is_another_event() {
        let mut fold = Fold::after(0);
        fold.see(&seen(0, "a", 33));
        fold.see(&seen(3600, "a", 33));
        fold.see(&seen(7201, "a", 33));
        let events = fold.changed();
        assert_eq!(events.len(), 1, "the first was not asked for in time");
        assert_eq!(events[0].count, 1);
    }

    #[test]
    fn an_event_goes_on_in_the_next_run() {
        let mut fold = Fold::after(0);
        fold.see(&seen(0, "a", 33));
        let kept = fold.changed().remove(0);
        let id = kept.id;
        let mut next = Fold::after(id);
        next.go_on(kept);
        next.see(&seen(9, "a", 33));
        let events = next.changed();
        assert_eq!((events[0].id, events[0].count), (id, 2));
    }

    #[test]
    fn a_crowd_is_bounded() {
        let mut fold = Fold::after(0);
        for number in 0..3 * OPEN as u64 {
            fold.see(&seen(number, "a", number));
            assert!(fold.open.len() <= OPEN);
        }
    }
}
