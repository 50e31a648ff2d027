//! Paths: two spellings that some server takes for one file never have two fences.
//!
//! The first line of the input is a path. The second is another one if it begins with a slash, else
//! edits that make another spelling of the first: see [`spell`].

mod spell;

use crate::config::load;
use crate::fence::ResourceKey;
use crate::models::{self, File, SERVERS};
use crate::route::{Class, End, Keys, Routes};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, Uri};
use std::fmt::Write as _;
use std::sync::LazyLock;

/// The whole path names the resource.
static WHOLE: LazyLock<Routes> = LazyLock::new(|| {
    let all = "resource = \"{path}\"";
    routes("", &[("root", "/", all), ("all", "/{*key}", all)])
});

/// The same, for a service to which capitals are small letters.
static FOLDED: LazyLock<Routes> = LazyLock::new(|| {
    let all = "resource = \"{path}\"";
    routes(
        "[server]\nfold_case = true\n",
        &[("root", "/", all), ("all", "/{*key}", all)],
    )
});

/// Those of an object store.
static OBJECTS: LazyLock<Routes> = LazyLock::new(|| {
    let all = "resource = \"{bucket}/{key}\"";
    let text = text("", &[("all", "/{bucket}/{*key}", all)]);
    let text = text.replace("[[routes]]", "kind = \"s3\"\n[[routes]]");
    // What is taken for no object of it is not fenced.
    let rest = "[[routes]]\nname = \"rest\"\npath = \"/{*all}\"\nupstream = \"u\"\nhost = \"gate\"\nmode = \"off\"\n";
    loaded(&(text.replace("collections = \"allow\"", "host = \"gate\"") + rest))
});

/// Captures of the path name it.
static PARTS: LazyLock<Routes> = LazyLock::new(|| {
    let (one, all) = ("resource = \"/{first}\"", "resource = \"/{first}/{rest}\"");
    routes(
        "",
        &[("one", "/{first}", one), ("all", "/{first}/{*rest}", all)],
    )
});

/// Checks the two spellings that the input gives.
///
/// # Panics
/// Where a property does not hold.
pub fn check(data: &[u8]) {
    let mut lines = data.split(|&b| b == b'\n');
    let (Some(first), second) = (lines.next(), lines.next().unwrap_or_default()) else {
        return;
    };
    let second = if second.starts_with(b"/") {
        second.to_vec()
    } else {
        spell::anew(first, second)
    };
    objects(first, &second);
    let (a, b) = (served(first), served(&second));
    for (path, served) in [(first, &a), (&second, &b)] {
        let text = path.escape_ascii();
        assert!(served.is_some() || !is_plain(path), "{text} is refused");
    }
    let (Some(a), Some(b)) = (a, b) else {
        return;
    };
    compare(&a, &b, |name| name);
    let (x, y) = (folded(&a), folded(&b));
    for (path, folded) in [(first, &x), (&second, &y)] {
        let text = path.escape_ascii();
        assert!(folded.is_some() || !is_plain(path), "{text} is not folded");
    }
    if let (Some(a), Some(b)) = (x, y) {
        compare(&a, &b, |name| {
            let letters = String::from_utf8_lossy(&name).to_lowercase();
            letters.into_bytes()
        });
    }
}

/// In an object store both have one fence exactly where one decoding makes one name of them.
fn objects(first: &[u8], second: &[u8]) {
    if let (Some(a), Some(b)) = (object(first), object(second)) {
        let name = |object: &Served| models::decode(object.forwarded.as_bytes());
        assert_eq!(
            a.key == b.key,
            name(&a) == name(&b),
            "{} ({}) and {} ({})",
            a.forwarded,
            a.key,
            b.forwarded,
            b.key
        );
    }
}

/// `None` where the path names no object, or is refused.
fn object(path: &[u8]) -> Option<Served> {
    let put = request(Method::PUT, Uri::try_from(path).ok()?.path().parse().ok()?);
    let found = OBJECTS.classify(&put).ok()?;
    let forwarded = found.target.path().to_owned();
    assert_eq!(forwarded, put.uri.path(), "it is forwarded otherwise");
    // Nothing that has a bucket and a key goes past the fence.
    let parts: Vec<_> = forwarded
        .split('/')
        .filter(|part| !part.is_empty())
        .collect();
    assert!(
        found.keys.is_some() || parts.len() < 2,
        "{forwarded} is not fenced"
    );
    let key = key(found.keys.as_ref(), End::Request)?;
    // The key is the name, and nothing else.
    let name = models::decode(forwarded.as_bytes());
    assert_eq!(key.key(), &name[1..], "{forwarded}");
    Some(Served { forwarded, key })
}

/// Both have one fence where a server finds one file under them, and two where it finds two. `name`: how
/// files are called there.
fn compare(a: &Served, b: &Served, name: fn(Vec<u8>) -> Vec<u8>) {
    for (server, file) in SERVERS {
        let file = |path: &str| -> Option<File> {
            let file = file(path.as_bytes())?;
            Some(file.into_iter().map(name).collect())
        };
        let (Some(x), Some(y)) = (file(&a.forwarded), file(&b.forwarded)) else {
            continue; // one of them is no file there
        };
        // A file with two fences is not protected. Two files with one fence lock each other out.
        assert_eq!(
            a.key == b.key,
            x == y,
            "{server}: {} ({}) and {} ({})",
            a.forwarded,
            a.key,
            b.forwarded,
            b.key
        );
    }
}

/// What is forwarded of a path, and the fence that it is judged by.
struct Served {
    forwarded: String,
    key: ResourceKey,
}

/// Whether nobody could misread a path: names of unreserved characters but dots, each as it is or escaped
/// once. Such a path is served.
fn is_plain(path: &[u8]) -> bool {
    let names = path.strip_prefix(b"/").unwrap_or_default();
    let names = names.strip_suffix(b"/").unwrap_or(names);
    names.split(|&b| b == b'/').all(|name| {
        let name = models::decode(name);
        let unreserved = |b: &u8| b.is_ascii_alphanumeric() || b"-_~".contains(b);
        !name.is_empty() && name.iter().all(unreserved)
    })
}

/// The same path where capitals do not matter; `None` where it is refused there.
fn folded(plain: &Served) -> Option<Served> {
    let put = request(Method::PUT, plain.forwarded.parse().unwrap());
    let found = FOLDED.classify(&put).ok()?;
    assert_eq!(found.target.path(), plain.forwarded);
    Some(Served {
        forwarded: plain.forwarded.clone(),
        key: key(found.keys.as_ref(), End::Request).unwrap(),
    })
}

/// `None` where the gateway refuses the path. All ways to the key of a path must give one.
fn served(path: &[u8]) -> Option<Served> {
    let uri = Uri::try_from(path).ok()?;
    let put = request(Method::PUT, uri.clone());
    let found = WHOLE.classify(&put);
    let read = request(Method::GET, uri.clone());
    let read = WHOLE.classify(&read);
    assert_eq!(
        found.is_ok(),
        read.is_ok(),
        "{uri}: reads are judged otherwise"
    );
    let (found, read) = (found.ok()?, read.ok()?);
    assert_eq!((found.class, read.class), (Class::Write, Class::Read));
    let key = key(found.keys.as_ref(), End::Request).unwrap();
    assert_eq!(found.keys, read.keys, "{uri}: reads have another key");
    assert_eq!(found.target, read.target);

    let whole = path.split(|&b| b == b'#').next().unwrap_or_default();
    if whole.starts_with(b"/") {
        assert_eq!(
            found.target.as_str().as_bytes(),
            whole,
            "{uri} is forwarded otherwise"
        );
    }
    let forwarded = found.target.path().to_owned();

    if let Ok(found) = PARTS.classify(&put) {
        let parts = self::key(found.keys.as_ref(), End::Request).unwrap();
        assert_eq!(parts, key, "{uri}: its captures make another key");
    } else {
        assert_eq!(
            forwarded, "/",
            "{uri} is refused where captures make the key"
        );
    }
    let destination = as_destination(&forwarded);
    assert_eq!(
        destination, key,
        "{uri}: as a Destination it has another key"
    );
    Some(Served { forwarded, key })
}

/// The key of a path that stands in a `Destination`.
fn as_destination(path: &str) -> ResourceKey {
    let mut copy = request(Method::from_bytes(b"COPY").unwrap(), Uri::from_static("/x"));
    let value = HeaderValue::from_str(path).unwrap();
    copy.headers.insert("destination", value);
    let found = WHOLE.classify(&copy);
    let found = found.unwrap_or_else(|why| panic!("{path} is no Destination: {why:?}"));
    assert_eq!(
        found.destination.map(|end| end.target),
        PathAndQuery::try_from(path).ok()
    );
    key(found.keys.as_ref(), End::Destination).unwrap()
}

fn key(keys: Option<&Keys>, end: End) -> Option<ResourceKey> {
    let keys = keys?;
    assert!(keys.second.is_none());
    (keys.first.end == end).then(|| keys.first.resource.clone())
}

fn request(method: Method, uri: Uri) -> Parts {
    let host = uri
        .authority()
        .map_or("gate", |authority| authority.as_str())
        .to_owned();
    let request = Request::builder().method(method).uri(uri);
    let request = request.header("host", host).body(()).unwrap();
    request.into_parts().0
}

fn routes(server: &str, list: &[(&str, &str, &str)]) -> Routes {
    loaded(&text(server, list))
}

fn text(server: &str, list: &[(&str, &str, &str)]) -> String {
    let mut text = server.to_owned();
    text += "[store]\npath = \"data\"\n[upstreams.u]\nurl = \"http://a\"\nsettle = \"1s\"\n";
    for (name, path, resource) in list {
        let _ = write!(
            text,
            "[[routes]]\nname = \"{name}\"\npath = \"{path}\"\nupstream = \"u\"\n{resource}\n\
             raise_on_read = true\ncollections = \"allow\"\n"
        );
    }
    text
}

fn loaded(text: &str) -> Routes {
    let loaded = load(text).unwrap_or_else(|faults| panic!("{faults:#?}"));
    Routes::new(&loaded.settings)
}
