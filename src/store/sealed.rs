//! Small text files that notice their own damage: a title, one `name value` a line, a checksum.
//!
//! Knows nothing of what the files say or of where they lie. People may read them; a file that was
//! changed by hand no longer matches its checksum.

use std::fmt::Write as _;

/// A 64-bit fingerprint against accidents, not against an attacker: FNV-1a with a final mix, so that
/// sums of fingerprints spread too. Two inputs that differ in one byte never share one.
pub(super) fn fingerprint(parts: &[&[u8]]) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    let mut eat = |byte: u8| hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    for part in parts {
        // The length first: ("a", "bc") and ("ab", "c") differ.
        (part.len() as u64)
            .to_le_bytes()
            .into_iter()
            .for_each(&mut eat);
        part.iter().copied().for_each(&mut eat);
    }
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// The fields of a sealed text, in order.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fields(Vec<(String, String)>);

/// Writes a sealed text. Names hold no space; values hold no line end.
pub(super) fn seal(kind: &str, fields: &[(&str, &str)]) -> String {
    let mut text = format!("fencegate {kind} 1\n");
    for (name, value) in fields {
        let _ = writeln!(text, "{name} {value}");
    }
    let sum = fingerprint(&[text.as_bytes()]);
    let _ = writeln!(text, "checksum {sum:016x}");
    text
}

/// Reads a sealed text back. Line ends after it are padding.
///
/// # Errors
/// What is wrong, as a clause for a message: not this kind or version, torn, or changed.
pub(super) fn unseal(kind: &str, bytes: &[u8]) -> Result<Fields, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not text")?;
    let start = text
        .rfind("\nchecksum ")
        .ok_or("it is cut short, or empty")?
        + 1;
    let (body, seal) = text.split_at(start);
    let sum = format!("checksum {:016x}\n", fingerprint(&[body.as_bytes()]));
    let padding = seal
        .strip_prefix(sum.as_str())
        .ok_or("its checksum does not match")?;
    if padding.bytes().any(|b| b != b'\n') {
        return Err("something stands after its checksum".into());
    }
    let mut lines = body.lines();
    let title = lines.next().unwrap_or_default();
    if title != format!("fencegate {kind} 1") {
        return Err(format!(
            "it begins with {title:?}, which this version does not know"
        ));
    }
    let split = |line: &str| {
        line.split_once(' ')
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
    };
    let fields: Option<_> = lines.map(split).collect();
    Ok(Fields(fields.ok_or("a line is not `name value`")?))
}

impl Fields {
    /// The field of that name, parsed.
    ///
    /// # Errors
    /// A clause for a message, where it is missing or not such a value.
    pub(super) fn get<T: std::str::FromStr>(&self, name: &str) -> Result<T, String> {
        let value = self
            .0
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, value)| value);
        let value = value.ok_or_else(|| format!("it has no line `{name}`"))?;
        value
            .parse()
            .map_err(|_| format!("its line `{name}` is not readable"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_what_it_wrote() {
        let text = seal("thing", &[("store", "abc"), ("run", "7")]);
        let fields = unseal("thing", text.as_bytes()).unwrap();
        assert_eq!(fields.get::<String>("store").unwrap(), "abc");
        assert_eq!(fields.get::<u64>("run").unwrap(), 7);
        assert!(fields.get::<u64>("store").is_err());
        assert!(fields.get::<u64>("walk").is_err());
        assert!(unseal("thing", format!("{text}\n\n\n").as_bytes()).is_ok());
        assert!(unseal("other", text.as_bytes()).is_err());
    }

    #[test]
    fn notices_every_flipped_bit_and_every_cut() {
        let text = seal("thing", &[("store", "abc"), ("run", "7")]);
        for index in 0..text.len() {
            assert!(
                unseal("thing", &text.as_bytes()[..index]).is_err(),
                "cut at {index}"
            );
            for bit in 0..8 {
                let mut bytes = text.clone().into_bytes();
                bytes[index] ^= 1 << bit;
                assert!(
                    unseal("thing", &bytes).is_err(),
                    "bit {bit} of byte {index}"
                );
            }
        }
    }
}
