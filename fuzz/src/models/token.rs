//! What a token is worth, without arithmetic: digits are compared as text.

use crate::fence::Format;
use std::cmp::Ordering;

/// 2^64 - 1, in both notations.
const LARGEST: [&[u8]; 2] = [b"18446744073709551615", b"ffffffffffffffff"];

/// A whole number without a bound: its digits, without zeros before them, in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Number(Vec<u8>);

impl Number {
    /// The number that digits of one notation stand for.
    #[must_use]
    pub fn of(digits: &[u8]) -> Self {
        let start = digits.iter().position(|&b| b != b'0');
        Self(digits[start.unwrap_or(digits.len())..].to_ascii_lowercase())
    }

    /// The digits; empty for 0.
    #[must_use]
    pub fn digits(&self) -> &[u8] {
        &self.0
    }
}

impl Ord for Number {
    fn cmp(&self, other: &Self) -> Ordering {
        // '0'..'9' < 'a'..'f' in ASCII as in value.
        let length = self.0.len().cmp(&other.0.len());
        length.then_with(|| self.0.cmp(&other.0))
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The epoch and the sequence that a text stands for; `None` where it is no token.
#[must_use]
pub fn read(format: Format, text: &[u8]) -> Option<(Number, Number)> {
    let mut text = text;
    while let Some((b' ' | b'\t', rest)) = text.split_first() {
        text = rest;
    }
    while let Some((b' ' | b'\t', rest)) = text.split_last() {
        text = rest;
    }
    let zero = Number::of(b"");
    let token = match format {
        Format::U64 => (
            zero.clone(),
            number(text, 20, u8::is_ascii_digit, LARGEST[0])?,
        ),
        Format::Hex => {
            let digits = text.strip_prefix(b"0x").unwrap_or(text);
            (
                zero.clone(),
                number(digits, 16, u8::is_ascii_hexdigit, LARGEST[1])?,
            )
        }
        Format::Pair => {
            let mut parts = text.split(|&b| b == b':');
            let (epoch, sequence) = (parts.next()?, parts.next()?);
            if parts.next().is_some() {
                return None;
            }
            let part = |text| number(text, 20, u8::is_ascii_digit, LARGEST[0]);
            (part(epoch)?, part(sequence)?)
        }
    };
    (token != (zero.clone(), zero)).then_some(token)
}

fn number(text: &[u8], longest: usize, digit: fn(&u8) -> bool, largest: &[u8]) -> Option<Number> {
    let fits = (1..=longest).contains(&text.len()) && text.iter().all(digit);
    let number = fits.then(|| Number::of(text))?;
    (number <= Number::of(largest)).then_some(number)
}
