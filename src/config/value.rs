//! The value of one key of the config file, read as what it should be: text, number, time, size.
//!
//! Knows types and units; knows nothing of what the keys mean.

use super::file::{Source, Table};
use std::time::Duration;
use toml::de::DeValue;

/// The longest time span that a key may give: what is added to a clock must not overflow it.
const LONGEST: Duration = Duration::from_hours(366 * 24);

/// The value of one key.
#[derive(Clone)]
pub struct Value<'s, 't> {
    pub source: &'s Source<'t>,
    pub path: String,
    /// The line of the key.
    pub line: usize,
    /// The line where the value begins.
    pub start: usize,
    pub given: &'s DeValue<'s>,
}

impl<'s, 't> Value<'s, 't> {
    /// Keeps a fault of this value.
    pub fn fault(&self, what: impl Into<String>) {
        self.source.fault(self.line, &self.path, what);
    }

    fn expects(&self, what: &str) {
        let given = match self.given {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) | DeValue::Float(_) => "a number",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        self.fault(format!("is {given}: write {what}"));
    }

    /// The result, or a fault.
    pub fn check<T>(&self, result: Result<T, impl Into<String>>) -> Option<T> {
        result.map_err(|what| self.fault(what)).ok()
    }

    pub fn text(&self) -> Option<&'s str> {
        let DeValue::String(text) = self.given else {
            self.expects("a string in quotes");
            return None;
        };
        Some(text)
    }

    /// A text that is not empty and has no control characters, at most `longest` bytes.
    pub fn label(&self, longest: usize) -> Option<&'s str> {
        let text = self.text()?;
        if text.is_empty() || text.len() > longest || text.chars().any(char::is_control) {
            self.fault(format!(
                "must have 1 to {longest} bytes, none of them a control character"
            ));
            return None;
        }
        Some(text)
    }

    pub fn flag(&self) -> Option<bool> {
        let DeValue::Boolean(flag) = self.given else {
            self.expects("true or false");
            return None;
        };
        Some(*flag)
    }

    /// A whole number within a range.
    pub fn number(&self, least: u64, most: u64) -> Option<u64> {
        let DeValue::Integer(digits) = self.given else {
            self.expects("a whole number");
            return None;
        };
        let number = u64::from_str_radix(digits.as_str(), digits.radix()).ok();
        let number = number.filter(|n| (least..=most).contains(n));
        if number.is_none() {
            self.fault(format!("{digits} is out of range: write {least} to {most}"));
        }
        number
    }

    /// As [`Value::number`], for what is counted in memory.
    pub fn count(&self, least: u64, most: u64) -> Option<usize> {
        self.number(least, most)
            .and_then(|n| usize::try_from(n).ok())
    }

    /// A share of all: 0 to 1.
    pub fn share(&self) -> Option<f64> {
        let digits = match self.given {
            DeValue::Float(number) => number.as_str(),
            DeValue::Integer(number) => number.as_str(),
            _ => {
                self.expects("a number from 0 to 1, such as 0.1");
                return None;
            }
        };
        let share = digits.parse().ok();
        let share = share.filter(|share| (0.0..=1.0).contains(share));
        if share.is_none() {
            self.fault(format!("{digits} is out of range: write 0 to 1"));
        }
        share
    }

    /// A time span, which may be 0.
    pub fn span(&self) -> Option<Duration> {
        let DeValue::String(text) = self.given else {
            self.expects("a duration in quotes, such as \"30s\" or \"300ms\"");
            return None;
        };
        match humantime::parse_duration(text) {
            Ok(span) if span > LONGEST => {
                self.fault(format!("\"{text}\" is too long: write at most \"366d\""));
                None
            }
            Ok(span) => Some(span),
            Err(e) => {
                self.fault(format!(
                    "\"{text}\" is no duration ({e}): write one such as \"30s\" or \"300ms\""
                ));
                None
            }
        }
    }

    /// A time span above 0.
    pub fn timeout(&self) -> Option<Duration> {
        let span = self.span()?;
        if span.is_zero() {
            self.fault("is 0: nothing could ever be done in time; write one such as \"30s\"");
            return None;
        }
        Some(span)
    }

    /// A size in bytes, at least `least`.
    pub fn size(&self, least: usize) -> Option<usize> {
        let DeValue::String(text) = self.given else {
            self.expects("a size in quotes, such as \"64KiB\"");
            return None;
        };
        let size = text.parse::<bytesize::ByteSize>().ok();
        let Some(size) = size.and_then(|size| usize::try_from(size.as_u64()).ok()) else {
            self.fault(format!(
                "\"{text}\" is no size: write one such as \"64KiB\" or \"8MiB\""
            ));
            return None;
        };
        if size < least {
            self.fault(format!(
                "\"{text}\" is too small: write at least \"{least}B\""
            ));
            return None;
        }
        Some(size)
    }

    /// One of a few words.
    pub fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Option<T> {
        let text = self.text()?;
        let found = choices
            .iter()
            .find(|(word, _)| *word == text)
            .map(|(_, value)| *value);
        if found.is_none() {
            let words: Vec<String> = choices
                .iter()
                .map(|(word, _)| format!("\"{word}\""))
                .collect();
            self.fault(format!(
                "\"{text}\" is not one of them: write {}",
                words.join(" or ")
            ));
        }
        found
    }

    /// A list, each item parsed.
    pub fn list<T>(&self, mut parse: impl FnMut(&Value<'s, 't>) -> Option<T>) -> Option<Vec<T>> {
        let DeValue::Array(items) = self.given else {
            self.expects("a list in brackets");
            return None;
        };
        let parsed = items.iter().enumerate().map(|(i, item)| {
            let line = self.source.line(item.span().start);
            let path = format!("{}[{i}]", self.path);
            parse(&Value {
                source: self.source,
                path,
                line,
                start: line,
                given: item.get_ref(),
            })
        });
        // All items are parsed before one that is wrong makes the list wrong: all faults count.
        parsed.collect::<Vec<_>>().into_iter().collect()
    }

    pub fn table(&self) -> Option<Table<'s, 't>> {
        let DeValue::Table(table) = self.given else {
            self.expects("a table");
            return None;
        };
        // The line of a `[table]` is that of its header.
        let line = self.start.min(self.line);
        Some(Table::new(self.source, self.path.clone(), line, table))
    }
}
