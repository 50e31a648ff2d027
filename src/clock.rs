//! The only place that reads a clock.
//!
//! Monotonic time that counts suspend (`CLOCK_BOOTTIME`), so that a settle which passed while the
//! machine slept has passed.

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, SystemTime};
use tokio::time::{Interval, MissedTickBehavior};

/// A moment: the time since boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(Duration);

/// The present moment.
#[must_use]
pub fn now() -> Time {
    let t = clock_gettime(ClockId::Boottime);
    let nanos = u32::try_from(t.tv_nsec).unwrap_or(0);
    Time(Duration::new(u64::try_from(t.tv_sec).unwrap_or(0), nanos))
}

/// The time of day, for records alone: it may jump.
#[must_use]
#[expect(
    clippy::disallowed_methods,
    reason = "the only place that reads a clock"
)]
pub fn time_of_day() -> SystemTime {
    SystemTime::now()
}

impl Time {
    /// The moment this much later; the far future where that does not fit.
    #[must_use]
    pub fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(wait))
    }

    /// How long ago `earlier` was; zero where it lies ahead.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// How long until this moment; zero once it has passed.
    #[must_use]
    pub fn left(self) -> Duration {
        self.since(now())
    }

    /// Whether this moment has passed.
    #[must_use]
    pub fn has_passed(self) -> bool {
        now() >= self
    }
}

/// Waits for a moment. The runtime's timers do not count suspend, so it looks again when they fire.
pub async fn sleep_until(moment: Time) {
    loop {
        let left = moment.left();
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left).await;
    }
}

/// Ticks now and then at this distance. Those that a pause of the process swallowed do not come after it:
/// between two looks at a deadline what came meanwhile is taken.
#[must_use]
pub fn ticks(period: Duration) -> Interval {
    let mut ticks = tokio::time::interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
