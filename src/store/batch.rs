//! One round of the committer: many raises become one batch, with one record a key.
//!
//! Knows nothing of the engine: it reads through a function, and gives back what is to be put.

use super::record::{self, Tally};
use super::{Error, Record};
use crate::fence::{ResourceKey, Token};
use std::collections::HashMap;
use std::sync::Arc;

/// A key that the round looked at.
struct Touched {
    before: Option<Record>,
    now: Option<Record>,
}

/// A round that is being gathered. `read` gives what is on disk.
pub(super) struct Round<R> {
    read: R,
    touched: HashMap<ResourceKey, Touched>,
    created: HashMap<Arc<str>, u64>,
    raises: bool,
}

/// What a round changes.
#[derive(Debug)]
pub(super) struct Changes {
    /// Keys and their new values, the tally included.
    pub puts: Vec<(Vec<u8>, Vec<u8>)>,
    /// The store's tally after it.
    pub tally: Tally,
    /// The new counts of the routes that created resources.
    pub created: HashMap<Arc<str>, u64>,
    /// Whether it must be synced: it changes more than `drained` marks.
    pub sync: bool,
}

impl<R: Fn(&[u8]) -> Result<Option<Record>, Error>> Round<R> {
    /// Begins a round.
    pub(super) fn new(read: R) -> Self {
        Self {
            read,
            touched: HashMap::new(),
            created: HashMap::new(),
            raises: false,
        }
    }

    /// Takes a raise in, as a whole or not at all. A fence that is higher already, on disk or from
    /// earlier in the round, stays.
    ///
    /// # Errors
    /// Where what is on disk cannot be read. The round can go on.
    pub(super) fn raise(
        &mut self,
        fences: &[(ResourceKey, Record)],
        route: Option<&Arc<str>>,
    ) -> Result<(), Error> {
        for (key, _) in fences {
            self.load(key)?;
        }
        for (key, raised) in fences {
            let Some(touched) = self.touched.get_mut(key) else {
                continue;
            };
            let kept = match touched.now {
                Some(now) if now.token > raised.token => now,
                Some(now) if now.token == raised.token => Record {
                    token: now.token,
                    drained: now.drained || raised.drained,
                },
                _ => *raised,
            };
            if let (None, Some(route)) = (touched.now, route) {
                *self.created.entry(Arc::clone(route)).or_default() += 1;
            }
            touched.now = Some(kept);
            self.raises |= touched.before.map(|before| before.token) != Some(kept.token);
        }
        Ok(())
    }

    /// Marks a fence as drained if it is still `token`.
    ///
    /// # Errors
    /// Where what is on disk cannot be read. The round can go on.
    pub(super) fn drained(&mut self, key: &ResourceKey, token: Token) -> Result<(), Error> {
        if let Some(now) = &mut self.load(key)?.now
            && now.token == token
        {
            now.drained = true;
        }
        Ok(())
    }

    /// Ends the round: what it changes, given the tally and the routes' counts so far. `None` where
    /// everything is on disk already.
    pub(super) fn finish(
        self,
        mut tally: Tally,
        created: &HashMap<Arc<str>, u64>,
    ) -> Option<Changes> {
        let mut puts = Vec::with_capacity(self.touched.len() + self.created.len() + 1);
        let mut put = |key: Vec<u8>, before: Option<Vec<u8>>, now: Vec<u8>| {
            if let Some(before) = before {
                tally.remove(&key, &before);
            }
            tally.add(&key, &now);
            puts.push((key, now));
        };
        for (key, touched) in self.touched {
            if let Some(now) = touched.now
                && touched.before != touched.now
            {
                put(
                    key.as_bytes().to_vec(),
                    touched.before.map(record::encode),
                    record::encode(now),
                );
            }
        }
        let mut counts = HashMap::with_capacity(self.created.len());
        for (route, more) in self.created {
            let before = created.get(&route).copied();
            let now = before.unwrap_or(0).saturating_add(more);
            put(
                record::route_key(&route),
                before.map(record::encode_count),
                record::encode_count(now),
            );
            counts.insert(route, now);
        }
        if puts.is_empty() {
            return None;
        }
        tally.batch += 1;
        puts.push((record::TALLY.to_vec(), tally.encode()));
        Some(Changes {
            puts,
            tally,
            created: counts,
            sync: self.raises,
        })
    }

    fn load(&mut self, key: &ResourceKey) -> Result<&mut Touched, Error> {
        if !self.touched.contains_key(key) {
            let before = (self.read)(key.as_bytes())?;
            self.touched.insert(
                key.clone(),
                Touched {
                    before,
                    now: before,
                },
            );
        }
        self.touched
            .get_mut(key)
            .ok_or_else(|| Error::Down("a key was lost from a round".into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(name: &str) -> ResourceKey {
        ResourceKey::new("n", name.as_bytes()).unwrap()
    }

    fn at(sequence: u64, drained: bool) -> Record {
        Record {
            token: Token::new(0, sequence),
            drained,
        }
    }

    const EMPTY: fn(&[u8]) -> Result<Option<Record>, Error> = |_| Ok(None);

    fn value(changes: &Changes, name: &str) -> Option<Record> {
        let mut found = changes
            .puts
            .iter()
            .filter(|(k, _)| k == key(name).as_bytes());
        let value = found
            .next()
            .map(|(_, value)| record::decode(value).unwrap());
        assert!(found.next().is_none(), "two records for one key");
        value
    }

    #[test]
    fn one_record_a_key_the_highest() {
        let mut round = Round::new(EMPTY);
        for token in [3, 9, 4] {
            round
                .raise(
                    &[(key("a"), at(token, false)), (key("b"), at(token, false))],
                    None,
                )
                .unwrap();
        }
        let changes = round.finish(Tally::default(), &HashMap::new()).unwrap();
        assert_eq!(changes.puts.len(), 3);
        assert_eq!(value(&changes, "a"), Some(at(9, false)));
        assert_eq!(value(&changes, "b"), Some(at(9, false)));
        assert!(changes.sync);
    }

    #[test]
    fn an_overtaken_raise_writes_nothing() {
        let mut round = Round::new(|_: &[u8]| Ok(Some(at(7, true))));
        round
            .raise(&[(key("a"), at(6, false))], Some(&"r".into()))
            .unwrap();
        round
            .raise(&[(key("a"), at(7, false))], Some(&"r".into()))
            .unwrap();
        assert!(round.finish(Tally::default(), &HashMap::new()).is_none());
    }

    #[test]
    fn a_raise_that_cannot_be_read_leaves_no_trace() {
        let bad = |k: &[u8]| {
            if k == key("b").as_bytes() {
                Err(Error::Damaged("b".into()))
            } else {
                Ok(None)
            }
        };
        let mut round = Round::new(bad);
        assert!(
            round
                .raise(&[(key("a"), at(1, false)), (key("b"), at(1, false))], None)
                .is_err()
        );
        round.raise(&[(key("c"), at(2, false))], None).unwrap();
        let changes = round.finish(Tally::default(), &HashMap::new()).unwrap();
        assert_eq!(
            (value(&changes, "a"), value(&changes, "c")),
            (None, Some(at(2, false)))
        );
    }

    #[test]
    fn drained_marks_the_same_token_only_and_needs_no_sync() {
        let stored = |_: &[u8]| Ok(Some(at(7, false)));
        let mut round = Round::new(stored);
        round.drained(&key("a"), Token::new(0, 6)).unwrap();
        assert!(round.finish(Tally::default(), &HashMap::new()).is_none());
        let mut round = Round::new(stored);
        round.drained(&key("a"), Token::new(0, 7)).unwrap();
        let changes = round.finish(Tally::default(), &HashMap::new()).unwrap();
        assert_eq!(value(&changes, "a"), Some(at(7, true)));
        assert!(!changes.sync);
        let mut round = Round::new(stored);
        round.drained(&key("a"), Token::new(0, 7)).unwrap();
        round.raise(&[(key("a"), at(8, false))], None).unwrap();
        let changes = round.finish(Tally::default(), &HashMap::new()).unwrap();
        assert_eq!(value(&changes, "a"), Some(at(8, false)));
        assert!(changes.sync);
    }

    #[test]
    fn new_resources_are_counted_once_for_their_route() {
        let mut round = Round::new(EMPTY);
        let (one, two) = (Arc::from("one"), Arc::from("two"));
        round
            .raise(
                &[(key("a"), at(1, false)), (key("b"), at(1, false))],
                Some(&one),
            )
            .unwrap();
        round
            .raise(
                &[(key("a"), at(2, false)), (key("c"), at(2, false))],
                Some(&two),
            )
            .unwrap();
        round.raise(&[(key("d"), at(2, false))], None).unwrap();
        let before = HashMap::from([(Arc::clone(&one), 5)]);
        let changes = round.finish(Tally::default(), &before).unwrap();
        assert_eq!(changes.created, HashMap::from([(one, 7), (two, 1)]));
    }

    proptest! {
            #[test]
            fn the_tally_follows_every_change(rounds in proptest::collection::vec(
                proptest::collection::vec((0u8..4, 1u64..6, any::<bool>(), any::<bool>()), 0..6), 0..8)) {
                let mut disk = HashMap::<Vec<u8>, Vec<u8>>::new();
                let (mut tally, mut created) = (Tally::default(), HashMap::new());
                let mut highest = HashMap::<u8, u64>::new();
                for jobs in rounds {
                    let mut round = Round::new(|k: &[u8]| disk.get(k).map(|v| record::decode(v)).transpose());
                    for (name, token, drained, is_raise) in jobs {
                        let key = key(&name.to_string());
                        if is_raise {
                            round.raise(&[(key, at(token, drained))], Some(&"r".into())).unwrap();
                            let top = highest.entry(name).or_default();
                            *top = (*top).max(token);
                        } else {
                            round.drained(&key, Token::new(0, token)).unwrap();
                        }
                    }
                    if let Some(changes) = round.finish(tally, &created) {
                        disk.extend(changes.puts.iter().filter(|(k, _)| k != record::TALLY).cloned());
                        tally = changes.tally;
                        created.extend(changes.created);
                    }
                    let mut whole = Tally::default();
                    whole.batch = tally.batch;
                    for (k, v) in &disk {
     whole.add(k, v);
    }
                    prop_assert_eq!(whole, tally);
                }
                for (name, token) in highest {
                    let stored = record::decode(&disk[key(&name.to_string()).as_bytes()]).unwrap();
                    prop_assert_eq!(stored.token, Token::new(0, token));
                }
            }
        }
}
