//! How things are spelt in the key-value engine: fences, and the store's own notes beside them.
//!
//! Knows nothing of the engine. A value begins with the version of its layout; what is not exactly
//! one known layout is refused rather than guessed. There is one spelling a value, so that equal
//! contents are equal bytes.

use super::{Error, Record, sealed};
use crate::fence::Token;

const VERSION: u8 = 1;
const DRAINED: u8 = 1;
const EPOCH: u8 = 2;

/// What the store's own keys begin with. No resource key does: it would name a namespace of 255
/// bytes that begins with a byte which UTF-8 does not have. They sort behind all resources.
pub(super) const NOTES: &[u8] = &[0xff, 0xff];

/// The key of the [`Tally`].
pub(super) const TALLY: &[u8] = b"\xff\xfftally";

/// The key of the store's identity, so that an engine folder from another store is noticed.
pub(super) const IDENTITY: &[u8] = b"\xff\xffidentity";

const ROUTE: &[u8] = b"\xff\xffroute:";

/// The key of a route's count of created resources.
pub(super) fn route_key(route: &str) -> Vec<u8> {
    [ROUTE, route.as_bytes()].concat()
}

/// The route that a count belongs to; `None` where the key is not a count's.
pub(super) fn route_of(key: &[u8]) -> Option<&str> {
    std::str::from_utf8(key.strip_prefix(ROUTE)?).ok()
}

/// Spells a fence: 10 bytes, or 18 with an epoch.
pub(super) fn encode(record: Record) -> Vec<u8> {
    let epoch = record.token.epoch();
    let mut flags = if record.drained { DRAINED } else { 0 };
    if epoch != 0 {
        flags |= EPOCH;
    }
    let mut bytes = Vec::with_capacity(18);
    bytes.extend([VERSION, flags]);
    bytes.extend(record.token.sequence().to_le_bytes());
    if epoch != 0 {
        bytes.extend(epoch.to_le_bytes());
    }
    bytes
}

/// Reads a fence.
///
/// # Errors
/// [`Error::Damaged`] for anything that [`encode`] does not write.
pub(super) fn decode(bytes: &[u8]) -> Result<Record, Error> {
    let unknown =
        || Error::Damaged(format!("a fence's record is not readable: {bytes:02x?}").into());
    let [VERSION, flags, rest @ ..] = bytes else {
        return Err(unknown());
    };
    let (sequence, rest) = number(rest).ok_or_else(unknown)?;
    let (epoch, rest) = match flags & !DRAINED {
        0 => (0, rest),
        EPOCH => number(rest)
            .filter(|(epoch, _)| *epoch != 0)
            .ok_or_else(unknown)?,
        _ => return Err(unknown()),
    };
    if !rest.is_empty() {
        return Err(unknown());
    }
    Ok(Record {
        token: Token::new(epoch, sequence),
        drained: flags & DRAINED != 0,
    })
}

/// Spells a count.
pub(super) fn encode_count(count: u64) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    bytes.extend(count.to_le_bytes());
    bytes
}

/// Reads a count; `None` where it is not one.
pub(super) fn decode_count(bytes: &[u8]) -> Option<u64> {
    let [VERSION, rest @ ..] = bytes else {
        return None;
    };
    number(rest)
        .filter(|(_, rest)| rest.is_empty())
        .map(|(count, _)| count)
}

/// What the store must hold, itself a value in the store, written with every batch.
///
/// Each batch changes it in the same atomic step as the entries that it speaks of. So a store that
/// lost anything but its newest batches as a whole contradicts its tally; and that it lost the
/// newest is seen from [`Tally::batch`], which the ledger outside of the engine remembers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// How many batches were written, ever.
    pub batch: u64,
    entries: u64,
    /// The sum of the fingerprints of all entries.
    digest: u64,
}

impl Tally {
    /// Counts an entry in.
    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) {
        self.entries = self.entries.wrapping_add(1);
        self.digest = self.digest.wrapping_add(sealed::fingerprint(&[key, value]));
    }

    /// Counts an entry out.
    pub(super) fn remove(&mut self, key: &[u8], value: &[u8]) {
        self.entries = self.entries.wrapping_sub(1);
        self.digest = self.digest.wrapping_sub(sealed::fingerprint(&[key, value]));
    }

    /// Spells it.
    pub(super) fn encode(self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        for number in [self.batch, self.entries, self.digest] {
            bytes.extend(number.to_le_bytes());
        }
        bytes
    }

    /// Reads it; `None` where it is not one.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let [VERSION, rest @ ..] = bytes else {
            return None;
        };
        let (batch, rest) = number(rest)?;
        let (entries, rest) = number(rest)?;
        let (digest, rest) = number(rest)?;
        rest.is_empty().then_some(Self {
            batch,
            entries,
            digest,
        })
    }
}

fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (head, rest) = bytes.split_first_chunk()?;
    Some((u64::from_le_bytes(*head), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fence::ResourceKey;
    use proptest::prelude::*;

    #[test]
    fn own_keys_are_never_a_resource() {
        let long = route_key(&"r".repeat(400));
        for key in [NOTES, TALLY, IDENTITY, ROUTE, &long] {
            assert!(key.starts_with(NOTES));
            assert_eq!(ResourceKey::from_bytes(key), None);
        }
        assert_eq!(route_of(&long), Some("r".repeat(400).as_str()));
        assert_eq!(route_of(TALLY), None);
    }

    #[test]
    fn refuses_unknown_versions_and_lengths() {
        let good = encode(Record {
            token: Token::new(0, 7),
            drained: true,
        });
        assert_eq!(good.len(), 10);
        let mut newer = good.clone();
        newer[0] = 2;
        let mut flags = good.clone();
        flags[1] |= 4;
        let mut no_epoch = good.clone();
        no_epoch[1] |= EPOCH;
        let zero_epoch = [&no_epoch[..], &[0; 8]].concat();
        let longer = [&good[..], b"x"].concat();
        for bad in [
            &b""[..],
            &[1],
            &good[..9],
            &newer,
            &flags,
            &no_epoch,
            &zero_epoch,
            &longer,
        ] {
            assert!(matches!(decode(bad), Err(Error::Damaged(_))), "{bad:?}");
        }
    }

    proptest! {
            #[test]
            fn a_fence_reads_back(epoch in prop_oneof![Just(0), any::<u64>()], sequence: u64, drained: bool) {
                let record = Record { token: Token::new(epoch, sequence), drained };
                prop_assert_eq!(decode(&encode(record)).unwrap(), record);
            }

            #[test]
            fn no_bytes_panic_and_each_value_has_one_spelling(bytes in proptest::collection::vec(any::<u8>(), 0..26)) {
                if let Ok(record) = decode(&bytes) {
                    prop_assert_eq!(encode(record), bytes.clone());
                }
                if let Some(tally) = Tally::decode(&bytes) {
                    prop_assert_eq!(tally.encode(), bytes.clone());
                }
                if let Some(count) = decode_count(&bytes) {
                    prop_assert_eq!(encode_count(count), bytes);
                }
            }

            #[test]
            fn the_tally_does_not_depend_on_the_order(entries: Vec<(Vec<u8>, Vec<u8>)>) {
                let (mut up, mut down) = (Tally::default(), Tally::default());
                for (key, value) in &entries {
     up.add(key, value);
    }
                for (key, value) in entries.iter().rev() {
     down.add(key, value);
    }
                prop_assert_eq!(up, down);
                for (key, value) in &entries {
     up.remove(key, value);
    }
                prop_assert_eq!(up, Tally::default());
            }
        }
}
