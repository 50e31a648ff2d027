//! The clients for whom the gateway signs: their access keys, in a file that is read again when it changes.

use super::chunks::Chunks;
use super::claim::{self, Claim};
use crate::stamp::Stamp;
use http::header::AUTHORIZATION;
use http::request::Parts;
use parking_lot::RwLock;
use ring::hmac;
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::SystemTime;

const STREAMING: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";
const STREAMING_WITH_TRAILER: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER";

/// The clients, by their access keys.
pub struct Clients {
    path: PathBuf,
    current: RwLock<Current>,
}

struct Current {
    keys: HashMap<String, String>,
    stamp: Stamp,
    /// What was last said to be wrong, so that it is said once.
    said: String,
}

/// A client that has shown who it is.
pub struct Identity {
    /// Its access key.
    pub name: String,
    /// Its body comes in chunks that are signed, which are checked as they come.
    pub chunks: Option<Chunks>,
}

impl Clients {
    /// Reads the file: TOML, each line an access key and its secret.
    ///
    /// # Errors
    /// What is wrong with it, without what is in it.
    pub fn open(path: PathBuf) -> Result<Self, String> {
        let stamp = Stamp::of(&path);
        let keys = read(&path)?;
        let said = String::new();
        Ok(Self {
            path,
            current: RwLock::new(Current { keys, stamp, said }),
        })
    }

    /// Reads it again if it has changed. Says whether it had.
    ///
    /// # Errors
    /// What is wrong with it, once; then the keys are those that were.
    pub fn refresh(&self) -> Result<bool, String> {
        let stamp = Stamp::of(&self.path);
        if stamp == self.current.read().stamp {
            return Ok(false);
        }
        let read = read(&self.path);
        let mut current = self.current.write();
        match read {
            Ok(keys) => {
                *current = Current {
                    keys,
                    stamp,
                    said: String::new(),
                };
                Ok(true)
            }
            Err(why) if current.said == why => Ok(false),
            Err(why) => {
                current.said.clone_from(&why);
                Err(why)
            }
        }
    }

    /// Checks who a request comes from: by its signature for stores in `region`, or by a secret that it bears.
    /// `host`: what it names as its host. `tokens`: the headers that say which token it has.
    ///
    /// # Errors
    /// Why it is nobody, for the sender; without a secret.
    pub fn prove(
        &self,
        head: &Parts,
        host: &str,
        tokens: &[&str],
        region: &str,
        now: SystemTime,
    ) -> Result<Identity, String> {
        let current = self.current.read();
        if let Some(secret) = bearer(head) {
            let own = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
            // In a time that says nothing of how much of a secret was right.
            let tag = hmac::sign(&own, b"bearer");
            let is_it = |secret: &String| {
                let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
                hmac::verify(&key, b"bearer", tag.as_ref()).is_ok()
            };
            let mut all = current.keys.iter();
            let found = all.find(|(_, secret)| is_it(secret));
            let (name, _) = found.ok_or("nobody has that secret")?;
            return Ok(Identity {
                name: name.clone(),
                chunks: None,
            });
        }
        let query = claim::pairs(head.uri.query().unwrap_or_default())?;
        let claim = Claim::of(head, region, &query)?;
        let name = claim.key_id.to_owned();
        let secret = current
            .keys
            .get(&name)
            .ok_or("no client has that access key")?;
        let payload = claim::single(&head.headers, claim::CONTENT_SHA256).map(str::to_owned);
        let proven = claim.check(head, host, &query, tokens, secret, now)?;
        let chunks = match payload.as_deref() {
            Some(STREAMING) => Some(Chunks::new(proven, false)),
            Some(STREAMING_WITH_TRAILER) => Some(Chunks::new(proven, true)),
            Some(other)
                if other.starts_with("STREAMING-")
                    && other != "STREAMING-UNSIGNED-PAYLOAD-TRAILER" =>
            {
                return Err(format!("chunks of the kind {other} are not known"));
            }
            _ => None,
        };
        Ok(Identity { name, chunks })
    }
}

fn bearer(head: &Parts) -> Option<&str> {
    let said = claim::single(&head.headers, AUTHORIZATION.as_str())?;
    let (scheme, secret) = said.split_once(' ')?;
    scheme.eq_ignore_ascii_case("Bearer").then(|| secret.trim())
}

fn read(path: &PathBuf) -> Result<HashMap<String, String>, String> {
    let wrong = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
    let text = std::fs::read_to_string(path).map_err(|e| wrong(&e))?;
    // The library's own message has the line in it, and so a secret.
    let read: Result<HashMap<String, String>, _> = toml::from_str(&text);
    let keys = read.map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.unwrap_or_default().matches('\n').count() + 1;
        wrong(&format!(
            "line {line} is not one such as NAME = \"secret\", with each name once"
        ))
    })?;
    if keys.is_empty() {
        return Err(wrong(&"has no access key"));
    }
    if let Some((name, _)) = keys.iter().find(|(_, secret)| secret.len() < 16) {
        return Err(wrong(&format!(
            "the secret of {name} has less than 16 characters"
        )));
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;
    use std::fs;

    #[test]
    fn the_file_is_strict_and_says_no_secret() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.toml");
        for text in [
            "",
            "a",
            "a = 1",
            "[a]\nb = \"sesame sesame sesame\"",
            "a = \"sesame\"",
            "a = \"sesame sesame sesame\" b",
        ] {
            fs::write(&path, text).unwrap();
            let why = Clients::open(path.clone()).err().unwrap();
            assert!(!why.contains("sesame"), "{why}");
        }
        fs::write(&path, "a = \"sesame sesame sesame\"\n\na = \"sesame\"\n").unwrap();
        let why = Clients::open(path.clone()).err().unwrap();
        assert!(why.contains("line 3"), "{why}");
        assert!(Clients::open(folder.path().join("none")).is_err());
    }

    #[test]
    fn it_is_read_again_and_stays_where_that_fails() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.toml");
        fs::write(&path, "a = \"sesame sesame sesame\"").unwrap();
        let clients = Clients::open(path.clone()).unwrap();
        let name = |secret: &str| {
            let said = format!("Bearer {secret}");
            let request = Request::put("/")
                .header("authorization", said)
                .body(())
                .unwrap();
            let (head, ()) = request.into_parts();
            let proven = clients.prove(&head, "h", &[], "us-east-1", SystemTime::UNIX_EPOCH);
            proven.map(|identity| identity.name)
        };
        assert_eq!(name("sesame sesame sesame").as_deref(), Ok("a"));
        assert!(name("sesame sesame sesamf").is_err());
        assert_eq!(clients.refresh(), Ok(false));
        fs::write(&path, "b = \"another secret of b\"\n").unwrap();
        assert_eq!(clients.refresh(), Ok(true));
        assert_eq!(name("another secret of b").as_deref(), Ok("b"));
        assert!(name("sesame sesame sesame").is_err());
        fs::write(&path, "").unwrap();
        assert!(clients.refresh().is_err());
        assert_eq!(clients.refresh(), Ok(false), "said once");
        assert!(name("another secret of b").is_ok());
    }
}
