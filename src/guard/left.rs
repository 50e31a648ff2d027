//! What a clean stop leaves of the pins, for the next start: without it each object costs a question, and nobody
//! notices what was written past the gateway while it was down.
//!
//! Knows nothing of where the text is kept, or of when it may be trusted: after a clean stop only, under the
//! configuration that it was left by.

use super::pin::{Left, Slot};
use super::table::{Guards, Id};
use crate::config::Settings;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::sync::Arc;

/// How large the text may be, about: what is beyond that costs a question.
const MOST: usize = 16 << 20;

/// All of them, by the digests of their names: those may hold what is secret.
#[derive(Serialize, Deserialize)]
struct Leaving {
    /// Under which configuration.
    under: String,
    objects: Vec<(String, Left)>,
}

impl Guards {
    /// What is believed, as a text of one line; `None` where nothing is. To be called when no write is under way: an
    /// object that is being written is left out.
    #[must_use]
    pub fn leave(&self, settings: &Settings) -> Option<String> {
        let (mut objects, mut room) = (Vec::new(), MOST);
        self.each(|id, slot| {
            if let Some(left) = slot.leave()
                && let Some(after) = room.checked_sub(left.size())
            {
                room = after;
                objects.push((hex(&id), left));
            }
        });
        let under = rules(settings);
        let leaving = Leaving { under, objects };
        let some = !leaving.objects.is_empty();
        some.then(|| serde_json::to_string(&leaving).ok()).flatten()
    }

    /// Believes what a clean stop left. Gives the number of objects: none, where it was left under other rules or is
    /// not readable.
    pub fn take_up(&self, text: &str, settings: &Settings) -> usize {
        let Ok(leaving) = serde_json::from_str::<Leaving>(text) else {
            return 0;
        };
        if leaving.under != rules(settings) {
            return 0;
        }
        let objects = leaving.objects.into_iter();
        let known = objects.filter_map(|(id, left)| Some((decoded(&id)?, Slot::of(left)?)));
        let known = known.map(|(id, slot)| {
            let cell = self.cell_at(id);
            if let Ok(mut place) = Arc::clone(&cell.slot).try_lock_owned() {
                *place = slot;
            }
        });
        known.count()
    }

    /// Forgets the pins where the next configuration has other rules: under those, objects may be written without
    /// their guard.
    pub fn follow(&self, before: &Settings, next: &Settings) {
        if rules(before) != rules(next) {
            self.forget();
        }
    }
}

/// Names what decides which writes are guarded, and then some.
fn rules(settings: &Settings) -> String {
    let mut digest = Sha256::new();
    digest.update([u8::from(settings.server.fold_case)]);
    for route in &settings.routes {
        digest.update(format!("{route:?}"));
    }
    let id: Id = digest.finalize().into();
    hex(&id)
}

fn hex(id: &Id) -> String {
    id.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn decoded(text: &str) -> Option<Id> {
    let mut id = Id::default();
    let digits = text.as_bytes().chunks(2).zip(&mut id);
    for (pair, byte) in digits {
        let pair = std::str::from_utf8(pair).ok()?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    (text.len() == 2 * id.len()).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fence::Token;
    use crate::guard::pin::{Gap, Lost, Pin, at};
    use http::HeaderValue;

    const HOLDER: Token = Token::new(3, 33);

    fn settings(guard: &str) -> Settings {
        let text = format!(
            "[store]\npath = \"data\"\n\
             [upstreams.u]\nurl = \"http://127.0.0.1:9\"\nconditions = \"trusted\"\n\
             [[routes]]\nname = \"r\"\npath = \"/{{key}}\"\nupstream = \"u\"\nresource = \"{{key}}\"\n\
             guard = \"{guard}\"\n"
        );
        crate::config::load(&text).unwrap().settings
    }

    fn with(guards: &Guards, object: &str, does: impl FnOnce(&mut Slot)) {
        does(&mut guards.cell(object).slot.try_lock().unwrap());
    }

    #[test]
    fn the_next_run_believes_what_this_one_did() {
        let (before, after, rules) = (Guards::default(), Guards::default(), settings("etag"));
        assert_eq!(before.leave(&rules), None);
        let lost = Lost {
            token: HOLDER,
            length: 5,
            stamp: Some(HeaderValue::from_static("name")),
        };
        with(&before, "there", |slot| {
            slot.moved(at("\"a\""), HOLDER);
            slot.moved(at("\"b\""), HOLDER);
        });
        with(&before, "gone", |slot| {
            slot.learned(Pin::Absent, HOLDER);
        });
        with(&before, "lost", |slot| slot.lost = Some(lost.clone()));
        with(&before, "blank", |_| ());
        let text = before.leave(&rules).unwrap();
        assert!(!text.contains('\n') && !text.contains("there\",{"));
        assert_eq!(after.take_up(&text, &rules), 3);
        with(&after, "there", |slot| {
            assert_eq!(*slot.pin(HOLDER), at("\"b\""));
            assert_eq!(*slot.pin(Token::new(3, 34)), Pin::Unknown);
            assert_eq!(slot.moved(at("\"a\""), HOLDER), Some(Gap::Repeats));
        });
        with(&after, "gone", |slot| {
            assert_eq!(*slot.pin(HOLDER), Pin::Absent);
        });
        with(&after, "lost", |slot| assert_eq!(slot.lost, Some(lost)));
    }

    #[test]
    fn nothing_is_believed_of_another_configuration_or_of_what_is_not_readable() {
        let (before, rules) = (Guards::default(), settings("etag"));
        with(&before, "a", |slot| {
            slot.learned(Pin::Absent, HOLDER);
        });
        let text = before.leave(&rules).unwrap();
        let after = Guards::default();
        assert_eq!(after.take_up(&text, &settings("none")), 0);
        assert_eq!(after.take_up(&text[1..], &rules), 0);
        assert!(after.is_empty());
        assert_eq!(
            after.take_up(&text, &settings("etag")),
            1,
            "the same configuration, read again"
        );
    }

    #[test]
    fn what_is_left_is_bounded() {
        let (guards, rules) = (Guards::default(), settings("etag"));
        let long = format!("\"{}\"", "e".repeat(250));
        for number in 0..80_000 {
            with(&guards, &number.to_string(), |slot| {
                slot.learned(at(&long), HOLDER);
            });
        }
        let text = guards.leave(&rules).unwrap();
        assert!(text.len() < MOST + MOST / 8, "{}", text.len());
        assert!(Guards::default().take_up(&text, &rules) > 10_000);
    }

    #[test]
    fn other_rules_forget_pins_and_the_same_ones_do_not() {
        let guards = Guards::default();
        with(&guards, "a", |slot| {
            slot.learned(Pin::Absent, HOLDER);
        });
        guards.follow(&settings("etag"), &settings("etag"));
        assert!(guards.leave(&settings("none")).unwrap().contains("false"));
        // One that is being written is forgotten when it was.
        let written = guards.cell("b");
        let mut slot = written.slot.try_lock().unwrap();
        guards.follow(&settings("etag"), &settings("none"));
        slot.moved(at("\"b\""), HOLDER);
        drop(slot);
        let mut known = 0;
        guards.each(|_, slot| known += u32::from(*slot.pin(HOLDER) != Pin::Unknown));
        assert_eq!(known, 0);
    }
}
