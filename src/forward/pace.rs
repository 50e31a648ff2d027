//! How fast a client sends the body of its request, where a least rate is asked of it.
//!
//! Reads no clock: parts are counted as they come, and whoever looks some ten times a second says how long
//! it was. Time counts only as long as the next part has to come from the client, so that an upstream which
//! takes nothing makes no client slow.

use crate::clock::Time;
use std::cell::Cell;
use std::num::NonZeroU64;
use std::time::Duration;

/// By how much a client may be late at first.
const GRACE: Duration = Duration::from_secs(5);

/// The most that one look counts. After a pause of the process, what the client sent meanwhile comes later.
const LOOK: Duration = Duration::from_millis(500);

/// The pace of one body.
pub(super) struct Pace {
    /// Bytes since the last look.
    came: Cell<u64>,
    looked: Cell<Option<Time>>,
    /// How much longer the client may send nothing.
    left: Cell<Duration>,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            came: Cell::new(0),
            looked: Cell::new(None),
            left: Cell::new(GRACE),
        }
    }
}

impl Pace {
    /// A part has come.
    pub(super) fn came(&self, bytes: usize) {
        self.came.set(self.came.get() + bytes as u64);
    }

    /// Until the next look nothing counts.
    pub(super) fn rest(&self) {
        self.looked.set(None);
    }

    /// Whether the client has fallen behind this rate, in bytes a second. `waits`: the next part has to come
    /// from it. What it was ahead counts for it later, up to `pause`.
    pub(super) fn is_behind(
        &self,
        rate: NonZeroU64,
        pause: Duration,
        waits: bool,
        now: Time,
    ) -> bool {
        let looked = self.looked.replace(Some(now));
        let worth = self.came.take().saturating_mul(1_000_000_000) / rate;
        let ahead = self.left.get() + Duration::from_nanos(worth);
        let ahead = ahead.min(pause.max(GRACE));
        let took = looked.filter(|_| waits).map(|looked| now.since(looked));
        let left = ahead.checked_sub(took.unwrap_or_default().min(LOOK));
        self.left.set(left.unwrap_or_default());
        left.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const STEP: Duration = Duration::from_millis(100);
    const PAUSE: Duration = Duration::from_secs(30);

    /// Looks every tenth of a second, and says after how many of them the client is behind 1000 bytes a
    /// second, if it is before the end. `steps`: what came before each look, and whether more is waited for.
    fn behind(pace: &Pace, steps: impl Iterator<Item = (usize, bool)>) -> Option<u32> {
        let rate = NonZeroU64::new(1000).unwrap();
        let start = clock::now();
        pace.rest();
        for (n, (bytes, waits)) in (0..).zip(steps) {
            pace.came(bytes);
            if pace.is_behind(rate, PAUSE, waits, start.after(STEP * n)) {
                return Some(n);
            }
        }
        None
    }

    fn each(bytes: usize, waits: bool, count: usize) -> impl Iterator<Item = (usize, bool)> {
        std::iter::repeat_n((bytes, waits), count)
    }

    #[test]
    fn a_client_below_the_rate_is_behind_after_the_grace() {
        let of = |bytes| behind(&Pace::default(), each(bytes, true, 1000));
        assert_eq!(of(0), Some(51));
        assert_eq!(of(50), Some(102)); // it loses half of the time
        assert_eq!(of(100), None);
        assert_eq!(of(101), None);
    }

    #[test]
    fn an_upstream_that_takes_nothing_makes_no_client_slow() {
        let stalled = each(0, false, 10_000);
        assert_eq!(behind(&Pace::default(), stalled), None);
        let some = (0..1000).map(|n| (0, n % 20 == 0)); // waited for when it is looked at, by chance
        assert_eq!(behind(&Pace::default(), some.take(900)), None);
    }

    #[test]
    fn what_a_client_was_ahead_counts_up_to_a_pause() {
        let pace = Pace::default();
        let burst = each(1_000_000, true, 1);
        let steps = burst.chain(each(0, true, 1000));
        assert_eq!(behind(&pace, steps), Some(301));
        let pace = Pace::default();
        let burst = each(10_000, true, 1);
        let steps = burst.chain(each(0, true, 1000));
        assert_eq!(behind(&pace, steps), Some(151));
    }

    #[test]
    fn a_pause_of_the_process_counts_as_one_look() {
        let rate = NonZeroU64::new(1000).unwrap();
        let pace = Pace::default();
        let start = clock::now();
        assert!(!pace.is_behind(rate, PAUSE, true, start));
        assert!(!pace.is_behind(rate, PAUSE, true, start.after(Duration::from_hours(1))));
    }
}
