//! A body in signed chunks (`STREAMING-AWS4-HMAC-SHA256-PAYLOAD`): each is checked, and only then let through, since
//! whoever signs for its client cannot pass its signatures on.
//!
//! Pure: bytes in, bytes out. Memory is bounded by the largest chunk.

use super::claim::{Proven, hex};
use bytes::Bytes;
use ring::hmac;
use sha2::{Digest, Sha256};
use std::collections::VecDeque;

/// The largest chunk; clients make them of 64 KiB to 1 MiB.
const LARGEST: usize = 16 << 20;
/// The longest line before a chunk, or of a trailer.
const LINE: usize = 1024;
/// How many trailers may come.
const TRAILERS: usize = 16;
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// The chunks are not as their client signed them, or are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forged;

/// A body in chunks, as far as it came.
pub struct Chunks {
    proven: Proven,
    /// A signature comes after the trailers too.
    trailers: bool,
    stage: Stage,
    line: Vec<u8>,
    out: VecDeque<Bytes>,
}

enum Stage {
    /// The line before a chunk.
    Head,
    /// A chunk of so many bytes, and its signature.
    Data(usize, Vec<u8>, String),
    /// What is left of the line end after it.
    Gap(usize),
    /// The lines after the last one.
    Trailers(String, usize),
    /// All of it, but for so much of the last line end, which some leave out.
    Over(usize),
}

impl Chunks {
    pub(super) const fn new(proven: Proven, trailers: bool) -> Self {
        Self {
            proven,
            trailers,
            stage: Stage::Head,
            line: Vec::new(),
            out: VecDeque::new(),
        }
    }

    /// Takes the next bytes of the body.
    ///
    /// # Errors
    /// [`Forged`]; then nothing more of it may be let through.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), Forged> {
        while !bytes.is_empty() {
            match &mut self.stage {
                Stage::Data(size, data, _) => {
                    let missing = *size - data.len();
                    let (now, later) = bytes.split_at(missing.min(bytes.len()));
                    data.extend_from_slice(now);
                    bytes = later;
                    if data.len() == *size {
                        self.chunk()?;
                    }
                }
                Stage::Gap(left) | Stage::Over(left) => {
                    let wanted = match left {
                        2 => b'\r',
                        1 => b'\n',
                        _ => return Err(Forged),
                    };
                    if bytes.first() != Some(&wanted) {
                        return Err(Forged);
                    }
                    *left -= 1;
                    bytes = &bytes[1..];
                    if matches!(self.stage, Stage::Gap(0)) {
                        self.stage = Stage::Head;
                    }
                }
                Stage::Head | Stage::Trailers(..) => {
                    let end = bytes.iter().position(|b| *b == b'\n');
                    let (now, later) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
                    if self.line.len() + now.len() > LINE {
                        return Err(Forged);
                    }
                    self.line.extend_from_slice(now);
                    bytes = later;
                    if end.is_some() {
                        self.line()?;
                    }
                }
            }
        }
        Ok(())
    }

    /// How large the next part is that was checked.
    #[must_use]
    pub fn ready(&self) -> Option<usize> {
        self.out.front().map(Bytes::len)
    }

    /// The next part that was checked.
    pub fn pop(&mut self) -> Option<Bytes> {
        self.out.pop_front()
    }

    /// Whether all of it has come.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over(_))
    }

    fn line(&mut self) -> Result<(), Forged> {
        let line = std::mem::take(&mut self.line);
        let text = std::str::from_utf8(&line).map_err(|_| Forged)?;
        let text = text.trim_end_matches(['\r', '\n']);
        if let Stage::Trailers(canonical, count) = &mut self.stage {
            if let Some(signature) = text.strip_prefix("x-amz-trailer-signature:") {
                let digest = hex(&Sha256::digest(canonical.as_bytes()));
                let text = self.proven.text("TRAILER", &digest);
                self.proven.holds(&text, signature)?;
                self.stage = Stage::Over(2);
                return Ok(());
            }
            *count += 1;
            if *count > TRAILERS {
                return Err(Forged);
            }
            if !text.is_empty() {
                canonical.push_str(text);
                canonical.push('\n');
            }
            return Ok(());
        }
        let (size, signature) = text.split_once(";chunk-signature=").ok_or(Forged)?;
        let digits = size.len() <= 8 && size.bytes().all(|b| b.is_ascii_hexdigit());
        let size = usize::from_str_radix(size, 16)
            .ok()
            .filter(|size| digits && *size <= LARGEST);
        self.stage = Stage::Data(size.ok_or(Forged)?, Vec::new(), signature.to_owned());
        if size == Some(0) {
            return self.chunk();
        }
        Ok(())
    }

    fn chunk(&mut self) -> Result<(), Forged> {
        let Stage::Data(size, data, signature) = std::mem::replace(&mut self.stage, Stage::Gap(2))
        else {
            return Err(Forged);
        };
        let digest = format!("{EMPTY}\n{}", hex(&Sha256::digest(&data)));
        let text = self.proven.text("PAYLOAD", &digest);
        self.proven.holds(&text, &signature)?;
        self.proven.seed = signature;
        if size == 0 {
            self.stage = if self.trailers {
                Stage::Trailers(String::new(), 0)
            } else {
                Stage::Over(2)
            };
        } else {
            self.out.push_back(data.into());
        }
        Ok(())
    }
}

impl Proven {
    fn text(&self, of: &str, digest: &str) -> String {
        let Self {
            date, scope, seed, ..
        } = self;
        format!("AWS4-HMAC-SHA256-{of}\n{date}\n{scope}\n{seed}\n{digest}")
    }

    fn holds(&self, text: &str, signature: &str) -> Result<(), Forged> {
        let signature = super::claim::decoded(signature.trim()).ok_or(Forged)?;
        hmac::verify(&self.key, text.as_bytes(), &signature).map_err(|_| Forged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sign::claim::key;

    /// Amazon's example of an upload in chunks.
    fn example() -> (Chunks, Vec<u8>) {
        let scope = "20130524/us-east-1/s3/aws4_request";
        let proven = Proven {
            key: key("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", scope),
            scope: scope.into(),
            date: "20130524T000000Z".into(),
            seed: "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9".into(),
        };
        let mut body = Vec::new();
        for (size, signature) in [
            (
                65536,
                "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
            ),
            (
                1024,
                "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
            ),
            (
                0,
                "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
            ),
        ] {
            body.extend(format!("{size:x};chunk-signature={signature}\r\n").bytes());
            body.extend(vec![b'a'; size]);
            body.extend(b"\r\n");
        }
        (Chunks::new(proven, false), body)
    }

    fn read(chunks: &mut Chunks, body: &[u8], step: usize) -> Result<usize, Forged> {
        let mut length = 0;
        for part in body.chunks(step) {
            chunks.push(part)?;
            while let Some(part) = chunks.pop() {
                assert!(part.iter().all(|b| *b == b'a'));
                length += part.len();
            }
        }
        Ok(length)
    }

    #[test]
    fn amazons_example_holds_in_any_pieces() {
        for step in [1, 7, 1000, 100_000] {
            let (mut chunks, body) = example();
            assert_eq!(read(&mut chunks, &body, step), Ok(66560));
            assert!(chunks.is_over());
        }
    }

    #[test]
    fn nothing_of_a_chunk_that_was_changed_comes_through() {
        for at in [0, 30, 200, 65_536, 65_700] {
            let (mut chunks, mut body) = example();
            body[at] ^= 1;
            let read = read(&mut chunks, &body, 1000);
            assert_eq!(read, Err(Forged), "{at}");
        }
        let (mut chunks, body) = example();
        assert_eq!(
            read(&mut chunks, &body[..65_000], 1000),
            Ok(0),
            "not before it is checked"
        );
        assert!(!chunks.is_over());
        let (mut chunks, body) = example();
        chunks.push(&body[..body.len() - 2]).unwrap();
        assert!(chunks.is_over(), "some leave the last line end out");
        chunks.push(b"\r\n").unwrap();
        assert_eq!(chunks.push(b"\r\n"), Err(Forged));
    }

    #[test]
    fn sizes_and_lines_are_bounded() {
        for line in [
            "ffffffff;chunk-signature=a\r\n",
            "+1;chunk-signature=a\r\n",
            "1\r\n",
            ";chunk-signature=a\r\n",
            "1;other=a\r\n",
        ] {
            let (mut chunks, _) = example();
            assert_eq!(chunks.push(line.as_bytes()), Err(Forged), "{line}");
        }
        let (mut chunks, _) = example();
        assert_eq!(chunks.push(&[b'0'; LINE + 1]), Err(Forged));
    }
}
