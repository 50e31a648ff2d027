//! Tokens: what is accepted, what it is worth, and in which order, against numbers that have no bound.
//!
//! The input is one token a line; the first two are compared with each other.

use crate::fence::{Format, Token};
use crate::models::token::{self as model, Number};

const FORMATS: [Format; 3] = [Format::U64, Format::Hex, Format::Pair];

/// Checks the first two lines in every format.
///
/// # Panics
/// Where a property does not hold.
pub fn check(data: &[u8]) {
    let mut lines = data.split(|&b| b == b'\n');
    let (first, second) = (lines.next(), lines.next());
    let texts: Vec<&[u8]> = first.into_iter().chain(second).collect();
    for format in FORMATS {
        let read: Vec<_> = texts.iter().filter_map(|text| one(format, text)).collect();
        if let [(a, x), (b, y)] = &read[..] {
            assert_eq!(
                a.cmp(b),
                x.cmp(y),
                "{format:?}: the order of {a:?} and {b:?}"
            );
            advance(format, (*a, x), (*b, y));
        }
    }
}

/// The token, and the same without a bound, where the text is one.
fn one(format: Format, text: &[u8]) -> Option<(Token, (Number, Number))> {
    let (parsed, expected) = (format.parse(text), model::read(format, text));
    assert_eq!(
        parsed.is_ok(),
        expected.is_some(),
        "{format:?}: {} is {parsed:?}, and should be {expected:?}",
        text.escape_ascii()
    );
    let (token, expected) = (parsed.ok()?, expected?);
    let spelt = format.spell(token);
    assert_eq!(
        spelt.as_bytes(),
        spell(format, &expected),
        "{format:?}: the value of {}",
        text.escape_ascii()
    );
    assert_eq!(
        format.parse(spelt.as_bytes()),
        Ok(token),
        "{spelt} does not read back"
    );
    assert_ne!(token, Token::NONE);
    plain(format, text);
    respell(format, token, &spelt);
    Some((token, expected))
}

/// What must not be in a token, said once more without the model.
fn plain(format: Format, text: &[u8]) {
    let blank = |b: &&u8| matches!(b, b' ' | b'\t');
    let start = text.iter().take_while(blank).count();
    let end = text.len() - text.iter().rev().take_while(blank).count();
    let text = &text[start..end];
    let fits = |b: &u8| match format {
        Format::U64 => b.is_ascii_digit(),
        Format::Hex => b.is_ascii_hexdigit() || *b == b'x',
        Format::Pair => b.is_ascii_digit() || *b == b':',
    };
    let longest = match format {
        Format::U64 => 20,
        Format::Hex => 2 + 16,
        Format::Pair => 20 + 1 + 20,
    };
    assert!(
        text.iter().all(fits) && text.len() <= longest,
        "{format:?} accepts {}",
        text.escape_ascii()
    );
}

/// Other spellings of one token are that token, or none.
fn respell(format: Format, token: Token, spelt: &str) {
    let digits = spelt.trim_start_matches("0x");
    let padded = match format {
        Format::U64 => format!("{digits:0>20}"),
        Format::Hex => format!("{digits:0>16}"),
        Format::Pair => format!("{:020}:{:020}", token.epoch(), token.sequence()),
    };
    let same = [
        format!(" \t{spelt}\t "),
        padded.clone(),
        padded.to_ascii_uppercase(),
        if format == Format::Hex {
            format!("0x{padded}")
        } else {
            padded
        },
    ];
    for text in same {
        assert_eq!(
            format.parse(text.as_bytes()),
            Ok(token),
            "{format:?}: {text:?}"
        );
    }
    for odd in ["+", "-", "0x0x", "_", "\u{a0}"] {
        let text = format!("{odd}{spelt}");
        assert!(
            format.parse(text.as_bytes()).is_err(),
            "{format:?} accepts {text:?}"
        );
    }
    for odd in [",", ", 1", " 1", "\r", "_", ".0", "e1", "h", "L"] {
        // A hexadecimal digit more is another token.
        if format == Format::Hex && odd == "e1" {
            continue;
        }
        let text = format!("{spelt}{odd}");
        assert!(
            format.parse(text.as_bytes()).is_err(),
            "{format:?} accepts {text:?}"
        );
    }
}

fn spell(format: Format, (epoch, sequence): &(Number, Number)) -> Vec<u8> {
    let digits = |number: &Number| match number.digits() {
        [] => b"0".to_vec(),
        digits => digits.to_vec(),
    };
    match format {
        Format::U64 => digits(sequence),
        Format::Hex => [b"0x".to_vec(), digits(sequence)].concat(),
        Format::Pair => [digits(epoch), b":".to_vec(), digits(sequence)].concat(),
    }
}

/// `advance` counts what `max_advance` bounds, and never less.
fn advance(format: Format, (a, x): (Token, &(Number, Number)), (b, y): (Token, &(Number, Number))) {
    let value = |(epoch, sequence): &(Number, Number)| {
        let (number, radix) = match format {
            Format::U64 => (sequence, 10),
            Format::Hex => (sequence, 16),
            Format::Pair => (epoch, 10),
        };
        let text = std::str::from_utf8(number.digits()).unwrap_or_default();
        i128::from_str_radix(if text.is_empty() { "0" } else { text }, radix).unwrap()
    };
    let expected = (value(y) - value(x)).max(0);
    assert_eq!(
        i128::from(format.advance(a, b)),
        expected,
        "{format:?}: from {a:?} to {b:?}"
    );
}
