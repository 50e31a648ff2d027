//! The fencing token: its order, and the spellings that a client may use for it.
//!
//! Knows nothing of where in a request the token stands.

use std::fmt;

/// A fencing token: a number that grows with each change of the lock's hands.
///
/// Ordered by epoch, then by sequence. The single-number formats leave the epoch at 0, so every
/// format shares one order. The value 0 is no token; [`Token::NONE`] stands for a write without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token {
    epoch: u64,
    sequence: u64,
}

impl Token {
    /// No token: below every token. An admitted write without a token takes part in drains as this.
    pub const NONE: Self = Self::new(0, 0);

    /// Makes a token from an epoch (0 where the format has none) and a sequence.
    #[must_use]
    pub const fn new(epoch: u64, sequence: u64) -> Self {
        Self { epoch, sequence }
    }

    /// Whether this is [`Token::NONE`].
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.epoch == 0 && self.sequence == 0
    }

    /// `==`, usable in constant functions.
    pub(super) const fn eq_const(self, other: Self) -> bool {
        self.epoch == other.epoch && self.sequence == other.sequence
    }

    /// The epoch; 0 for the single-number formats.
    #[must_use]
    pub const fn epoch(self) -> u64 {
        self.epoch
    }

    /// The sequence within the epoch.
    #[must_use]
    pub const fn sequence(self) -> u64 {
        self.sequence
    }
}

/// How a token is spelt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Decimal, 1 to 20 digits.
    U64,
    /// Hexadecimal, 1 to 16 digits, `0x` optional (`ZooKeeper`'s zxid).
    Hex,
    /// `epoch:sequence`, both decimal.
    Pair,
}

/// What is wrong with the text of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// There is no text.
    Empty,
    /// A byte that the format does not have, or two values in one.
    NotANumber,
    /// The number does not fit in 64 bits, or has more digits than any 64-bit number.
    OutOfRange,
    /// 0 is not a token.
    Zero,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the token is empty",
            Self::NotANumber => "the token is not one number in the route's format",
            Self::OutOfRange => "the token does not fit in 64 bits",
            Self::Zero => "0 is not a token",
        })
    }
}

impl std::error::Error for Malformed {}

impl Format {
    /// Reads a token. Surrounding spaces and tabs are trimmed; leading zeros are allowed.
    ///
    /// # Errors
    /// [`Malformed`] for anything that is not exactly one token in this format.
    pub fn parse(self, text: &[u8]) -> Result<Token, Malformed> {
        let text = trim(text);
        let token = match self {
            Self::U64 => Token::new(0, decimal(text)?),
            Self::Hex => Token::new(0, hexadecimal(text.strip_prefix(b"0x").unwrap_or(text))?),
            Self::Pair => {
                let colon = text.iter().position(|&b| b == b':');
                let colon = colon.ok_or(if text.is_empty() {
                    Malformed::Empty
                } else {
                    Malformed::NotANumber
                })?;
                Token::new(decimal(&text[..colon])?, decimal(&text[colon + 1..])?)
            }
        };
        if token.is_none() {
            return Err(Malformed::Zero);
        }
        Ok(token)
    }

    /// Spells a token in this format, without leading zeros.
    #[must_use]
    pub fn spell(self, token: Token) -> String {
        match self {
            Self::U64 => token.sequence.to_string(),
            Self::Hex => format!("0x{:x}", token.sequence),
            Self::Pair => format!("{}:{}", token.epoch, token.sequence),
        }
    }

    /// How far `to` lies above `from`, in what `max_advance` and `first_max` count: epochs for
    /// [`Format::Pair`], else the number itself. 0 where `to` is not above.
    #[must_use]
    pub const fn advance(self, from: Token, to: Token) -> u64 {
        match self {
            Self::Pair => to.epoch.saturating_sub(from.epoch),
            Self::U64 | Self::Hex => to.sequence.saturating_sub(from.sequence),
        }
    }
}

fn trim(text: &[u8]) -> &[u8] {
    let blank = |b: &u8| matches!(b, b' ' | b'\t');
    let start = text.iter().position(|b| !blank(b)).unwrap_or(text.len());
    let end = text
        .iter()
        .rposition(|b| !blank(b))
        .map_or(start, |i| i + 1);
    &text[start..end]
}

fn decimal(text: &[u8]) -> Result<u64, Malformed> {
    number(text, 10, 20)
}

fn hexadecimal(text: &[u8]) -> Result<u64, Malformed> {
    number(text, 16, 16)
}

fn number(text: &[u8], radix: u32, max_digits: usize) -> Result<u64, Malformed> {
    if text.is_empty() {
        return Err(Malformed::Empty);
    }
    let mut value: u64 = 0;
    for &byte in text {
        let digit = char::from(byte)
            .to_digit(radix)
            .ok_or(Malformed::NotANumber)?;
        let next = value
            .checked_mul(u64::from(radix))
            .and_then(|v| v.checked_add(u64::from(digit)));
        value = next.ok_or(Malformed::OutOfRange)?;
    }
    if text.len() > max_digits {
        Err(Malformed::OutOfRange)
    } else {
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn refuses_what_is_not_one_number() {
        for text in ["abc", "5, 99", "5,5", "+5", "-5", "5.5", "5 5", "0x5", "٥"] {
            assert_eq!(
                Format::U64.parse(text.as_bytes()),
                Err(Malformed::NotANumber),
                "{text}"
            );
        }
        assert_eq!(Format::U64.parse(b" \t"), Err(Malformed::Empty));
        assert_eq!(Format::U64.parse(b"00"), Err(Malformed::Zero));
        assert_eq!(
            Format::U64.parse(b"18446744073709551616"),
            Err(Malformed::OutOfRange)
        );
        assert_eq!(Format::U64.parse(&[b'0'; 21]), Err(Malformed::OutOfRange));
        assert_eq!(Format::Pair.parse(b"7"), Err(Malformed::NotANumber));
        assert_eq!(Format::Pair.parse(b"1:2:3"), Err(Malformed::NotANumber));
        assert_eq!(Format::Pair.parse(b"1:"), Err(Malformed::Empty));
        assert_eq!(Format::Hex.parse(b"0xzz"), Err(Malformed::NotANumber));
        assert_eq!(Format::Hex.parse(b"0x"), Err(Malformed::Empty));
    }

    #[test]
    fn reads_the_spellings_of_lock_services() {
        assert_eq!(Format::U64.parse(b" 0000000042\t"), Ok(Token::new(0, 42)));
        assert_eq!(
            Format::U64.parse(b"18446744073709551615"),
            Ok(Token::new(0, u64::MAX))
        );
        assert_eq!(
            Format::Hex.parse(b"0x00000000000001A0"),
            Ok(Token::new(0, 0x1a0))
        );
        assert_eq!(Format::Pair.parse(b"2:10"), Ok(Token::new(2, 10)));
    }

    proptest! {
        #[test]
        fn every_spelling_reads_back(epoch: u64, sequence: u64) {
            for (format, token) in [
                (Format::U64, Token::new(0, sequence)),
                (Format::Hex, Token::new(0, sequence)),
                (Format::Pair, Token::new(epoch, sequence)),
            ] {
                let read = format.parse(format.spell(token).as_bytes());
                prop_assert_eq!(read, if token.is_none() { Err(Malformed::Zero) } else { Ok(token) });
            }
        }

        #[test]
        fn order_is_numeric_with_the_epoch_first(a: (u64, u64), b: (u64, u64)) {
            prop_assert_eq!(Token::new(a.0, a.1).cmp(&Token::new(b.0, b.1)), a.cmp(&b));
        }

        #[test]
        fn no_input_panics(text: Vec<u8>) {
            for format in [Format::U64, Format::Hex, Format::Pair] {
                let _ = format.parse(&text);
            }
        }
    }
}
