//! Whether upstreams can be reached, as far as connecting to them has told.
//!
//! Nobody asks an upstream how it is: nothing is known of one to which nothing was sent. Nothing is decided
//! by this either. It is written where a connection was made or was not; an exchange that goes well only
//! looks whether there is something to take back.

use crate::clock::{self, Time};
use parking_lot::Mutex;
use prometheus::{IntGauge, IntGaugeVec};
use std::sync::Arc;
use std::time::Duration;

/// The upstreams of the configuration that is in force.
pub struct Reaches {
    up: IntGaugeVec,
    all: Mutex<Vec<Arc<Reach>>>,
}

/// What is known of one upstream. Shared by all threads.
pub struct Reach {
    name: String,
    url: String,
    /// 0 where the last attempt to connect failed, and nothing has come since.
    up: IntGauge,
    last: Mutex<Option<Last>>,
}

struct Last {
    since: Time,
    error: Option<&'static str>,
}

/// What is known of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Nothing was sent to it yet.
    Nothing,
    /// It can be reached, for that long.
    Reachable(Duration),
    /// It cannot, for that long, and why.
    Unreachable(Duration, &'static str),
}

impl Reaches {
    /// `up`: where each has its series.
    #[must_use]
    pub fn new(up: IntGaugeVec) -> Self {
        let all = Mutex::default();
        Self { up, all }
    }

    /// Takes up the names and URLs of another configuration. What is known stays where both are the same;
    /// the series of those that are gone goes.
    pub fn take_up<'a>(
        &self,
        upstreams: impl Iterator<Item = (&'a str, String)>,
    ) -> Vec<Arc<Reach>> {
        let mut all = self.all.lock();
        let mut before = std::mem::take(&mut *all);
        let mut same = |name: &str, url: &str| {
            let at = before.iter().position(|r| r.name == name && r.url == url);
            at.map(|at| before.swap_remove(at))
        };
        let kept: Vec<_> = upstreams
            .map(|(name, url)| (same(name, &url), name, url))
            .collect();
        for gone in before {
            // It fails where there is none, and there is one for each.
            let _ = self.up.remove_label_values(&[&gone.name]);
        }
        let taken = kept.into_iter().map(|(kept, name, url)| {
            kept.unwrap_or_else(|| {
                let up = self.up.with_label_values(&[name]);
                Arc::new(Reach::new(name.into(), url, up))
            })
        });
        *all = taken.collect();
        all.clone()
    }

    /// Each upstream's name, and what is known of it.
    #[must_use]
    pub fn all(&self) -> Vec<(String, Known)> {
        let all = self.all.lock();
        all.iter().map(|r| (r.name.clone(), r.known())).collect()
    }
}

impl Reach {
    fn new(name: String, url: String, up: IntGauge) -> Self {
        up.set(1);
        Self {
            name,
            url,
            up,
            last: Mutex::default(),
        }
    }

    /// There is a new connection to it.
    pub fn connected(&self) {
        self.note(None);
    }

    /// A connection did not come to be.
    pub fn failed(&self, error: &'static str) {
        self.note(Some(error));
    }

    /// It has answered on a connection that was there already.
    pub fn answered(&self) {
        if self.up.get() == 0 {
            self.note(None);
        }
    }

    fn note(&self, error: Option<&'static str>) {
        let mut last = self.last.lock();
        let turned = last
            .as_ref()
            .is_none_or(|last| last.error.is_some() != error.is_some());
        let since = match &*last {
            Some(last) if !turned => last.since,
            _ => clock::now(),
        };
        *last = Some(Last { since, error });
        self.up.set(i64::from(error.is_none()));
    }

    fn known(&self) -> Known {
        match &*self.last.lock() {
            None => Known::Nothing,
            Some(Last { since, error }) => {
                let for_long = clock::now().since(*since);
                error.map_or(Known::Reachable(for_long), |error| {
                    Known::Unreachable(for_long, error)
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::Opts;
    use prometheus::core::Collector;

    fn reaches() -> Reaches {
        Reaches::new(IntGaugeVec::new(Opts::new("up", "up"), &["upstream"]).unwrap())
    }

    fn take_up(all: &Reaches, upstreams: &[(&'static str, &str)]) -> Vec<Arc<Reach>> {
        all.take_up(upstreams.iter().map(|(name, url)| (*name, (*url).into())))
    }

    #[test]
    fn an_exchange_that_goes_well_takes_back_what_was_said() {
        let all = reaches();
        let [one] = &take_up(&all, &[("a", "http://a")])[..] else {
            panic!("one")
        };
        assert_eq!((one.known(), one.up.get()), (Known::Nothing, 1));
        one.answered();
        assert_eq!(one.known(), Known::Nothing);
        one.failed("connection_refused");
        assert_eq!(one.up.get(), 0);
        one.failed("connection_timeout");
        let known = one.known();
        assert!(matches!(known, Known::Unreachable(_, "connection_timeout")));
        one.answered();
        assert!(matches!(one.known(), Known::Reachable(_)));
        assert_eq!(one.up.get(), 1);
    }

    #[test]
    fn what_it_is_counts_from_when_it_became_so() {
        let all = reaches();
        let one = take_up(&all, &[("a", "http://a")]).remove(0);
        one.failed("connection_refused");
        let since = one.last.lock().as_ref().unwrap().since;
        while clock::now() == since {}
        one.failed("connection_timeout");
        assert_eq!(one.last.lock().as_ref().unwrap().since, since);
        one.connected();
        assert!(one.last.lock().as_ref().unwrap().since > since);
    }

    #[test]
    fn another_configuration_forgets_what_it_does_not_name() {
        let all = reaches();
        let before = take_up(
            &all,
            &[("a", "http://a"), ("b", "http://b"), ("c", "http://c")],
        );
        for one in &before {
            one.failed("connection_refused");
        }
        take_up(&all, &[("b", "http://b"), ("c", "http://other")]);
        let known = all.all();
        assert!(
            matches!(&known[..], [(b, Known::Unreachable(..)), (c, Known::Nothing)] if b == "b" && c == "c")
        );
        before[2].failed("connection_refused"); // it is another's by now
        let series = all.up.collect();
        let values = series[0].get_metric().iter();
        let values: Vec<_> = values.map(|m| m.get_gauge().get_value()).collect();
        assert_eq!(values.len(), 2);
        assert!((values.iter().sum::<f64>() - 1.0).abs() < 0.1, "{values:?}");
    }
}
