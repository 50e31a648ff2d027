//! What is believed of one object: its present validator, and since whose token.
//!
//! Pure: no I/O, no clock.

use crate::fence::Token;
use http::HeaderValue;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use smallvec::SmallVec;

/// How many validators are remembered, to notice one that comes back.
const REMEMBERED: usize = 32;
/// How long a validator may be: longer ones are none.
const LONGEST: usize = 256;

/// A strong validator, quotes and all (RFC 9110, section 8.8.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ETag(HeaderValue);

impl ETag {
    /// Reads a strong one; `None` for a weak one, and for what is none.
    pub(super) fn strong(text: &[u8]) -> Option<Self> {
        let inner = text.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        let opaque = |b: &u8| *b == 0x21 || (0x23..=0x7E).contains(b) || *b >= 0x80;
        let sound = inner.iter().all(opaque) && text.len() <= LONGEST;
        sound
            .then(|| HeaderValue::from_bytes(text).ok().map(Self))
            .flatten()
    }

    pub(super) const fn value(&self) -> &HeaderValue {
        &self.0
    }

    fn fingerprint(&self) -> u64 {
        // The same in every build: it is kept over a restart.
        let digest: [u8; 32] = Sha256::digest(self.0.as_bytes()).into();
        digest
            .first_chunk()
            .map_or(0, |part| u64::from_be_bytes(*part))
    }
}

/// What is believed of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Pin {
    /// Nothing: it has to be asked for.
    #[default]
    Unknown,
    /// There is none.
    Absent,
    /// It is there, in the state that this names.
    At(ETag),
}

/// Why the guard no longer closes the window for an object: a late write could find what it was sent for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gap {
    /// A validator has come back.
    Repeats,
    /// It was taken away, and a write that was to create it may be on its way.
    Removed,
    /// It has no strong validator.
    Weak,
    /// It is changed by a call that takes no condition.
    Unconditional,
    /// It is changed by a call whose condition the resource ignores.
    Ignored,
    /// It is changed by a call of which that is not known.
    Untried,
    /// It is changed by a write that shows an older token than another one did, or none, where its route lets that.
    Older,
}

impl Gap {
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Repeats => "a validator of the object has come back",
            Self::Removed => "the object was taken away",
            Self::Weak => "the object has no strong validator",
            Self::Unconditional => "the call takes no condition",
            Self::Ignored => "the upstream ignores the condition of such a call",
            Self::Older => "it is written without the newest token",
            Self::Untried => {
                "it is not known whether the upstream honours the condition of such a call"
            }
        }
    }
}

/// A write whose outcome is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Lost {
    /// Whose it was.
    pub(super) token: Token,
    /// The size of what it was to put there.
    pub(super) length: u64,
    /// Its name in the object's metadata, where it has one.
    pub(super) stamp: Option<HeaderValue>,
}

/// One object.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pin: Pin,
    /// Under which token the pin was learned or moved.
    token: Option<Token>,
    /// Fingerprints of the validators that it had.
    had: SmallVec<[u64; 4]>,
    /// What was noticed last, so that it is told once.
    gaps: SmallVec<[Gap; 2]>,
    /// It was told that somebody wrote past the gateway, and no write of it has gone well since.
    pub(super) past: bool,
    /// The last write of unknown outcome, until the object is written again.
    pub(super) lost: Option<Lost>,
}

impl Slot {
    /// What is believed, for a holder: what was believed under another token is not, since a write of that
    /// one may have come since.
    pub(super) fn pin(&self, token: Token) -> &Pin {
        if self.token == Some(token) {
            &self.pin
        } else {
            &Pin::Unknown
        }
    }

    /// Forgets what is believed.
    pub(super) fn forget(&mut self) {
        self.pin = Pin::Unknown;
    }

    /// The object was looked at. What a newer holder knows stays: a read of an older one may have been late.
    pub(super) fn learned(&mut self, pin: Pin, token: Token) -> Option<Gap> {
        if self.token > Some(token) {
            return None;
        }
        // What was forgotten in between may be as it was.
        let last = |etag: &ETag| self.had.last() == Some(&etag.fingerprint());
        let same = match (&self.pin, &pin) {
            (Pin::Unknown, Pin::At(etag)) => last(etag),
            (before, now) => before == now,
        };
        let gap = if same { None } else { self.remember(&pin) };
        (self.pin, self.token) = (pin, Some(token));
        gap
    }

    /// A write was answered well, and left the object like this.
    pub(super) fn moved(&mut self, pin: Pin, token: Token) -> Option<Gap> {
        self.lost = None;
        self.past = false;
        let gap = self.remember(&pin);
        (self.pin, self.token) = (pin, Some(token));
        gap
    }

    /// Notes that the guard does not close the window for this object. Says it once.
    pub(super) fn gap(&mut self, gap: Gap) -> Option<Gap> {
        let new = !self.gaps.contains(&gap);
        if new {
            self.gaps.push(gap);
        }
        new.then_some(gap)
    }

    /// Whether leaving memory makes no difference.
    pub(super) fn is_blank(&self) -> bool {
        self.pin == Pin::Unknown && self.had.is_empty() && self.lost.is_none()
    }

    /// What is left of it for the next run; `None` where nothing is known.
    pub(super) fn leave(&self) -> Option<Left> {
        let text = |value: &HeaderValue| value.to_str().ok().map(str::to_owned);
        let (there, etag) = match &self.pin {
            Pin::Unknown => (None, None),
            Pin::Absent => (Some(false), None),
            Pin::At(etag) => match text(etag.value()) {
                Some(etag) => (Some(true), Some(etag)),
                None => (None, None),
            },
        };
        let lost = self.lost.as_ref().map(|lost| LeftLost {
            token: parts(lost.token),
            length: lost.length,
            stamp: lost.stamp.as_ref().and_then(text),
        });
        let left = Left {
            token: self.token.map(parts),
            there,
            etag,
            had: self.had.to_vec(),
            lost,
        };
        (!self.is_blank()).then_some(left)
    }

    /// What the run before has left.
    pub(super) fn of(left: Left) -> Option<Self> {
        let pin = match (left.there, left.etag) {
            (None, _) => Pin::Unknown,
            (Some(false), _) => Pin::Absent,
            (Some(true), etag) => Pin::At(ETag::strong(etag?.as_bytes())?),
        };
        let lost = left.lost.map(|lost| {
            let stamp = lost.stamp.map(HeaderValue::try_from).transpose().ok()?;
            Some(Lost {
                token: token(lost.token),
                length: lost.length,
                stamp,
            })
        });
        Some(Self {
            pin,
            token: left.token.map(token),
            had: left.had.into_iter().take(REMEMBERED).collect(),
            lost: lost.flatten(),
            ..Self::default()
        })
    }

    fn remember(&mut self, pin: &Pin) -> Option<Gap> {
        let Pin::At(etag) = pin else { return None };
        let print = etag.fingerprint();
        if let Some(at) = self.had.iter().position(|had| *had == print) {
            self.had.remove(at);
            self.had.push(print);
            return self.gap(Gap::Repeats);
        }
        if self.had.len() >= REMEMBERED {
            self.had.remove(0);
        }
        self.had.push(print);
        None
    }
}

/// A [`Slot`] as a clean stop leaves it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Left {
    token: Option<(u64, u64)>,
    /// Whether the object is there, if that is known.
    there: Option<bool>,
    etag: Option<String>,
    had: Vec<u64>,
    lost: Option<LeftLost>,
}

impl Left {
    /// About how many bytes it takes.
    pub(super) fn size(&self) -> usize {
        let etag = self.etag.as_ref().map_or(0, String::len);
        let lost = if self.lost.is_some() { 200 } else { 0 };
        160 + etag + 21 * self.had.len() + lost
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct LeftLost {
    token: (u64, u64),
    length: u64,
    stamp: Option<String>,
}

const fn parts(token: Token) -> (u64, u64) {
    (token.epoch(), token.sequence())
}

const fn token((epoch, sequence): (u64, u64)) -> Token {
    Token::new(epoch, sequence)
}

#[cfg(test)]
pub(super) fn at(text: &str) -> Pin {
    Pin::At(ETag::strong(text.as_bytes()).unwrap())
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Token = Token::new(0, 33);
    const NEW: Token = Token::new(0, 34);

    #[test]
    fn only_strong_validators_are_any() {
        for text in ["\"a\"", "\"\"", "\"W/\"", "\"1-2\""] {
            assert!(ETag::strong(text.as_bytes()).is_some(), "{text}");
        }
        let long = format!("\"{}\"", "a".repeat(LONGEST));
        for text in [
            "W/\"a\"",
            "a",
            "\"",
            "",
            "\"a\"b\"",
            "\"a b\"",
            "\"a\", \"b\"",
            &long,
        ] {
            assert!(ETag::strong(text.as_bytes()).is_none(), "{text}");
        }
    }

    #[test]
    fn what_one_holder_knew_the_next_one_asks_for() {
        let mut slot = Slot::default();
        slot.learned(at("\"a\""), OLD);
        assert_eq!(slot.pin(OLD), &at("\"a\""));
        assert_eq!(slot.pin(NEW), &Pin::Unknown);
        slot.learned(at("\"b\""), NEW);
        slot.learned(at("\"c\""), OLD);
        assert_eq!(slot.pin(NEW), &at("\"b\""), "a late look of the old one's");
        slot.forget();
        assert_eq!(slot.pin(NEW), &Pin::Unknown);
        assert_eq!(slot.learned(at("\"b\""), NEW), None, "it is as it was");
        assert_eq!(slot.learned(at("\"a\""), NEW), Some(Gap::Repeats));
        assert!(!slot.is_blank() && Slot::default().is_blank());
    }

    #[test]
    fn a_validator_that_comes_back_is_noticed_once() {
        let mut slot = Slot::default();
        assert_eq!(slot.learned(at("\"a\""), OLD), None);
        assert_eq!(
            slot.learned(at("\"a\""), NEW),
            None,
            "looking changes nothing"
        );
        assert_eq!(slot.moved(at("\"b\""), NEW), None);
        assert_eq!(slot.moved(at("\"a\""), NEW), Some(Gap::Repeats));
        assert_eq!(slot.moved(at("\"b\""), NEW), None);
        let mut slot = Slot::default();
        slot.learned(at("\"a\""), OLD);
        assert_eq!(
            slot.moved(at("\"a\""), OLD),
            Some(Gap::Repeats),
            "the same content again"
        );
    }
}
