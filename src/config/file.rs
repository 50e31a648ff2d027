//! A strict reader of the config file: every key is asked for by name, every fault is kept, with its
//! line, and what nobody asked for is a fault too.
//!
//! Knows TOML and lines; knows nothing of what the keys mean.

use super::value::Value;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use toml::de::DeTable;

/// A fault or a warning: where it is, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The line in the file, from 1.
    pub line: usize,
    /// The key, with its table: `routes.files.accept`. Empty for a syntax error.
    pub key: String,
    /// What is wrong and what to write instead.
    pub what: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.is_empty() {
            return write!(f, "{}: {}", self.line, self.what);
        }
        write!(f, "{}: {}: {}", self.line, self.key, self.what)
    }
}

impl Note {
    /// The note as a line of text, `file:line: key: what`.
    #[must_use]
    pub fn in_file(&self, file: &str) -> String {
        format!("{file}:{self}")
    }
}

/// The file's text, and what was found wrong so far.
pub struct Source<'t> {
    text: &'t str,
    faults: RefCell<Vec<Note>>,
    warnings: RefCell<Vec<Note>>,
}

impl<'t> Source<'t> {
    pub fn new(text: &'t str) -> Self {
        Self {
            text,
            faults: RefCell::default(),
            warnings: RefCell::default(),
        }
    }

    /// Parses the text. Syntax errors are kept as faults, and then there is no document.
    pub fn parse(&self) -> Option<toml::Spanned<DeTable<'t>>> {
        let (document, errors) = DeTable::parse_recoverable(self.text);
        for error in &errors {
            let line = self.line(error.span().map_or(0, |span| span.start));
            self.fault(line, "", format!("not valid TOML: {}", error.message()));
        }
        errors.is_empty().then_some(document)
    }

    /// The top of the document.
    pub fn root<'s>(&'s self, document: &'s DeTable<'s>) -> Table<'s, 't> {
        Table::new(self, String::new(), 1, document)
    }

    pub fn fault(&self, line: usize, key: &str, what: impl Into<String>) {
        self.faults.borrow_mut().push(Note {
            line,
            key: key.into(),
            what: what.into(),
        });
    }

    pub fn warn(&self, line: usize, key: &str, what: impl Into<String>) {
        self.warnings.borrow_mut().push(Note {
            line,
            key: key.into(),
            what: what.into(),
        });
    }

    /// All faults and all warnings, in the order of their lines.
    pub fn into_notes(self) -> (Vec<Note>, Vec<Note>) {
        let (mut faults, mut warnings) = (self.faults.into_inner(), self.warnings.into_inner());
        faults.sort_by_key(|note| note.line);
        warnings.sort_by_key(|note| note.line);
        (faults, warnings)
    }

    /// The line that a place in the text is on.
    pub fn line(&self, offset: usize) -> usize {
        let before = self
            .text
            .as_bytes()
            .get(..offset)
            .unwrap_or(self.text.as_bytes());
        before.split(|&b| b == b'\n').count()
    }
}

/// One table of the file. Keys are taken one by one; [`Table::finish`] reports those that are left.
pub struct Table<'s, 't> {
    source: &'s Source<'t>,
    path: String,
    line: usize,
    entries: BTreeMap<&'s str, Value<'s, 't>>,
    asked: Vec<&'static str>,
}

impl<'s, 't> Table<'s, 't> {
    pub fn new(source: &'s Source<'t>, path: String, line: usize, table: &'s DeTable<'s>) -> Self {
        let entries = table.iter().map(|(key, value)| {
            let name: &str = key.get_ref();
            let path = if path.is_empty() {
                name.to_owned()
            } else {
                format!("{path}.{name}")
            };
            let line = source.line(key.span().start);
            let start = source.line(value.span().start);
            (
                name,
                Value {
                    source,
                    path,
                    line,
                    start,
                    given: value.get_ref(),
                },
            )
        });
        let entries = entries.collect();
        Self {
            source,
            path,
            line,
            entries,
            asked: Vec::new(),
        }
    }

    /// The line on which the table begins.
    pub fn line(&self) -> usize {
        self.line
    }

    /// The line of a key, or of the table where the key is not given.
    pub fn line_of(&self, key: &str) -> usize {
        self.entries.get(key).map_or(self.line, |value| value.line)
    }

    /// The name of a key with its table's.
    pub fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.into()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    /// Calls the table by another name from here on: a route by its own.
    pub fn rename(&mut self, path: &str) {
        for (name, value) in &mut self.entries {
            value.path = format!("{path}.{name}");
        }
        path.clone_into(&mut self.path);
    }

    /// A key that may be there.
    pub fn get(&mut self, key: &'static str) -> Option<Value<'s, 't>> {
        self.asked.push(key);
        self.entries.get(key).cloned()
    }

    /// A key's value; `None` where it is not there, or is wrong (then a fault is kept).
    pub fn read<T>(
        &mut self,
        key: &'static str,
        parse: impl FnOnce(&Value<'s, 't>) -> Option<T>,
    ) -> Option<T> {
        self.get(key).and_then(|value| parse(&value))
    }

    /// A key's value, or `default` where it is not there or is wrong.
    pub fn read_or<T>(
        &mut self,
        key: &'static str,
        default: T,
        parse: impl FnOnce(&Value<'s, 't>) -> Option<T>,
    ) -> T {
        self.read(key, parse).unwrap_or(default)
    }

    /// A key's value; a fault where it is not there.
    pub fn need<T>(
        &mut self,
        key: &'static str,
        example: &str,
        parse: impl FnOnce(&Value<'s, 't>) -> Option<T>,
    ) -> Option<T> {
        let value = self.get(key);
        if value.is_none() {
            self.missing(key, example);
        }
        value.and_then(|value| parse(&value))
    }

    /// A table within this one; an empty one where it is not there.
    pub fn table(&mut self, key: &'static str) -> Table<'s, 't> {
        let path = self.path_of(key);
        let (source, line) = (self.source, self.line);
        self.read(key, Value::table).unwrap_or(Table {
            source,
            path,
            line,
            entries: BTreeMap::new(),
            asked: Vec::new(),
        })
    }

    /// Every entry, by name: for tables whose keys are names.
    pub fn into_entries(self) -> BTreeMap<&'s str, Value<'s, 't>> {
        self.entries
    }

    pub fn missing(&self, key: &str, example: &str) {
        let what = format!("is missing: write {key} = {example}");
        self.source.fault(self.line, &self.path_of(key), what);
    }

    /// Keys that the file format has and this version does not do.
    pub fn unsupported(&mut self, keys: &[&'static str]) {
        for &key in keys {
            if let Some(value) = self.get(key) {
                value.fault("is not supported in this version: remove it");
            }
        }
    }

    /// Reports every key that nobody asked for.
    pub fn finish(self) {
        for (name, value) in &self.entries {
            if self.asked.contains(name) {
                continue;
            }
            let near = self.asked.iter().min_by_key(|known| distance(known, name));
            match near.filter(|known| distance(known, name) <= 1 + name.len() / 5) {
                Some(known) => value.fault(format!("is not a key here: did you mean {known}?")),
                None => value.fault("is not a key here: remove it"),
            }
        }
    }
}

/// Edits that turn one word into another.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let change = corner + usize::from(x != *y);
            corner = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(corner + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}
