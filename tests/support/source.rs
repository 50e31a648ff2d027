//! Reads Rust source as text, just well enough for the house rules: which part is code, which part
//! of that is test, and which modules it mentions. Knows no rule.

use std::path::{Path, PathBuf};

/// A source file in four texts of equal length, so that an offset means the same place in each.
pub struct Source {
    /// As it was read.
    pub text: String,
    /// Comments and the insides of literals blanked.
    pub code: String,
    /// The code, with everything that only tests compile blanked.
    pub product: String,
    /// The code, with everything else blanked.
    pub tests: String,
    /// The lines that only tests compile, comments and all.
    pub test_lines: usize,
    /// The whole file is for tests only (`#![cfg(test)]`).
    pub is_all_test: bool,
}

impl Source {
    /// Takes a file apart. Characters beyond ASCII are replaced: no rule asks for them.
    pub fn new(text: &str) -> Self {
        let text: String = text
            .chars()
            .map(|c| if c.is_ascii() { c } else { '?' })
            .collect();
        let code = code_of(&text);
        let (product, tests, test_lines) = split_tests(&code);
        let is_all_test = code.contains("#![cfg(test)]");
        Self {
            text,
            code,
            product,
            tests,
            test_lines,
            is_all_test,
        }
    }

    /// The number of the line at an offset, from 1.
    pub fn line(&self, offset: usize) -> usize {
        1 + self.text[..offset].matches('\n').count()
    }

    /// The lines on which a part of this file has the needle, as a word of its own.
    pub fn lines_of(&self, part: &str, needle: &str) -> Vec<usize> {
        let begins = |i: usize| !needle.starts_with(is_word) || !part[..i].ends_with(is_word);
        let found = part.match_indices(needle).filter(|(i, _)| begins(*i));
        found.map(|(i, _)| self.line(i)).collect()
    }

    /// How many lines the file has without those that are only test.
    pub fn product_lines(&self) -> usize {
        self.text.lines().count() - self.test_lines
    }

    /// The files that this one declares as modules for tests only, in both spellings.
    pub fn test_files(&self, path: &Path) -> Vec<PathBuf> {
        let folder = match path.file_stem().and_then(|stem| stem.to_str()) {
            Some("mod" | "lib" | "main") => path.with_file_name(""),
            _ => path.with_extension(""),
        };
        let mut files = Vec::new();
        for (offset, word) in words(&self.tests) {
            let rest = self.tests[offset + word.len()..].trim_start();
            let name = &rest[..rest.find(|c| !is_word(c)).unwrap_or(rest.len())];
            if word == "mod" && rest[name.len()..].starts_with(';') {
                files.push(folder.join(name).with_extension("rs"));
                files.push(folder.join(name).join("mod.rs"));
            }
        }
        files
    }
}

/// The module path of a file below `src`: empty for the crate's roots.
pub fn module_path(path: &Path) -> Vec<String> {
    let whole = path.with_extension("");
    let mut parts: Vec<String> = whole
        .iter()
        .map(|p| p.to_string_lossy().into_owned())
        .collect();
    let is_root = parts.len() == 1 && (parts[0] == "lib" || parts[0] == "main");
    if is_root || parts.last().is_some_and(|last| last == "mod") {
        parts.pop();
    }
    parts
}

/// The first names of all paths that begin at `root`, with their offsets: `root::{a::B, c}` gives a
/// and c.
pub fn mentions(code: &str, root: &str) -> Vec<(usize, String)> {
    let start = format!("{root}::");
    let begins = |i: usize| !code[..i].ends_with(|c| is_word(c) || c == ':');
    let found = code.match_indices(&start).filter(|(i, _)| begins(*i));
    found
        .flat_map(|(i, _)| heads(code, i + start.len()))
        .collect()
}

/// Like [`mentions`], for paths that climb exactly `depth` times with `super`.
pub fn mentions_above(code: &str, depth: usize) -> Vec<(usize, String)> {
    mentions(code, &vec!["super"; depth].join("::"))
}

/// The words of the code: names, keywords and numbers, with their offsets.
pub fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let spans = code.split(|c| !is_word(c)).filter(|word| !word.is_empty());
    spans.map(|word| (word.as_ptr() as usize - code.as_ptr() as usize, word))
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The first name at an offset, or of each branch of the group there.
fn heads(code: &str, offset: usize) -> Vec<(usize, String)> {
    if !code[offset..].starts_with('{') {
        let rest = &code[offset..];
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        return if end == 0 {
            vec![]
        } else {
            vec![(offset, rest[..end].to_owned())]
        };
    }
    let (mut found, mut depth, mut at_start) = (Vec::new(), 0, true);
    for (i, c) in code[offset..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => break,
            '}' => depth -= 1,
            ',' if depth == 1 => at_start = true,
            c if depth == 1 && at_start && is_word(c) => {
                at_start = false;
                found.extend(heads(code, offset + i));
            }
            _ => {}
        }
    }
    found
}

/// Blanks comments and the insides of string and character literals.
fn code_of(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut i = 0;
    while i < bytes.len() {
        let end = skip(text, i);
        if end > i {
            blank(&mut code[i..end]);
        }
        i = end.max(i + 1);
    }
    String::from_utf8_lossy(&code).into_owned()
}

fn blank(part: &mut [u8]) {
    for byte in part.iter_mut().filter(|byte| **byte != b'\n') {
        *byte = b' ';
    }
}

/// Where the comment or literal that begins here ends; `i` itself where none does.
fn skip(text: &str, i: usize) -> usize {
    let rest = &text[i..];
    let after =
        |found: Option<usize>, length: usize| found.map_or(text.len(), |at| i + at + length);
    if rest.starts_with("//") {
        return after(rest.find('\n'), 0);
    }
    if rest.starts_with("/*") {
        return block_comment(text, i);
    }
    if rest.starts_with('"') {
        return quoted(text, i + 1, b'"');
    }
    if rest.starts_with('\'') {
        let inside = &rest.as_bytes()[1..];
        let is_char = inside.first() == Some(&b'\\') || inside.get(1) == Some(&b'\'');
        return if is_char {
            quoted(text, i + 1, b'\'')
        } else {
            i
        };
    }
    let begins = !text[..i].ends_with(is_word) || text[..i].ends_with(['b', 'c']);
    if rest.starts_with('r') && begins {
        let hashes = rest[1..].len() - rest[1..].trim_start_matches('#').len();
        if rest[1 + hashes..].starts_with('"') {
            let close = format!("\"{}", "#".repeat(hashes));
            let from = 2 + hashes;
            return after(rest[from..].find(&close), from + close.len());
        }
    }
    i
}

fn quoted(text: &str, from: usize, quote: u8) -> usize {
    let bytes = text.as_bytes();
    let mut i = from;
    while i < bytes.len() && bytes[i] != quote {
        i += if bytes[i] == b'\\' { 2 } else { 1 };
    }
    (i + 1).min(bytes.len())
}

fn block_comment(text: &str, from: usize) -> usize {
    let (mut depth, mut i) = (0, from);
    while i < text.len() {
        if text[i..].starts_with("/*") {
            (depth, i) = (depth + 1, i + 2);
        } else if text[i..].starts_with("*/") {
            (depth, i) = (depth - 1, i + 2);
            if depth == 0 {
                return i;
            }
        } else {
            i += 1;
        }
    }
    i
}

/// Parts the code into what the product compiles and what only tests do; and how many lines those
/// tests take.
fn split_tests(code: &str) -> (String, String, usize) {
    let (mut product, mut tests) = (code.as_bytes().to_vec(), code.as_bytes().to_vec());
    let (mut i, mut lines) = (0, 0);
    while i < code.len() {
        let rest = &code[i..];
        let start = ["#[cfg(test)]", "#[cfg(all(test", "#[test]"]
            .iter()
            .filter_map(|a| rest.find(a))
            .min();
        let from = start.map_or(code.len(), |at| i + at);
        blank(&mut tests[i..from]);
        i = end_of_item(code, from);
        blank(&mut product[from..i]);
        lines += code[from..i].lines().count();
    }
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (text(product), text(tests), lines)
}

/// The end of the item whose attributes begin at `from`: its `;`, or the `}` of its first brace.
fn end_of_item(code: &str, from: usize) -> usize {
    let (mut round, mut braces) = (0, 0);
    for (i, c) in code[from..].char_indices() {
        match c {
            '(' | '[' => round += 1,
            ')' | ']' => round -= 1,
            '{' => braces += 1,
            '}' => braces -= 1,
            _ => {}
        }
        if matches!(c, ';' | '}') && round == 0 && braces == 0 {
            return from + i + 1;
        }
    }
    code.len()
}
