//! The body of a `DeleteObjects` call: which objects it names.
//!
//! A strict reading: what one parser could take for another key than the next does is refused. Knows nothing of
//! routes or fences.

use roxmltree::{Document, Node, ParsingOptions};

/// How large such a body may be: a thousand keys of the longest kind, and what stands around them.
pub const LARGEST: usize = 2 << 20;
/// How many objects S3 lets one call name.
const MOST: usize = 1000;
/// How many nodes a document of so many may have, with room for white space.
const NODES: u32 = 20_000;

/// The keys of the objects, as they are named.
///
/// # Errors
/// Why the body is no such list, or one that could be read in two ways.
pub fn keys(body: &[u8]) -> Result<Vec<String>, &'static str> {
    let text = std::str::from_utf8(body).map_err(|_| "the list of objects is not UTF-8")?;
    let declared = text.split_once("?>").map_or("", |(declared, _)| declared);
    if declared.contains("encoding") && !declared.to_ascii_lowercase().contains("utf-8") {
        return Err("the list of objects says that it is not UTF-8");
    }
    let options = ParsingOptions {
        nodes_limit: NODES,
        ..ParsingOptions::default()
    };
    let document = Document::parse_with_options(text, options);
    let document = document.map_err(|_| "the list of objects is no XML document")?;
    let root = document.root_element();
    if root.tag_name().name() != "Delete" {
        return Err("the list of objects is none");
    }
    let mut keys = Vec::new();
    for child in elements(root)? {
        match child.tag_name().name() {
            "Object" => keys.push(key(child)?),
            "Quiet" => {}
            _ => return Err("the list of objects has an element that is not known"),
        }
    }
    match keys.len() {
        0 => Err("the list of objects is empty"),
        1..=MOST => Ok(keys),
        _ => Err("the list of objects has more than 1000"),
    }
}

fn key(object: Node<'_, '_>) -> Result<String, &'static str> {
    let mut key = None;
    for child in elements(object)? {
        match child.tag_name().name() {
            "Key" if key.is_none() => key = Some(text(child)?),
            "VersionId" | "ETag" | "LastModifiedTime" | "Size" => {}
            _ => {
                return Err("an object in the list has an element twice, or one that is not known");
            }
        }
    }
    let key = key.filter(|key| !key.is_empty());
    let key = key.ok_or("an object in the list has no key")?;
    // Some parsers trim, and all make one line end of several.
    if key.trim() != key || key.contains(char::is_control) {
        return Err(
            "a key in the list begins or ends with white space, or has a control character",
        );
    }
    Ok(key.to_owned())
}

/// The elements in it, between which nothing stands but white space and comments.
fn elements<'a>(node: Node<'a, 'a>) -> Result<Vec<Node<'a, 'a>>, &'static str> {
    let odd = |child: Node<'_, '_>| {
        child.is_pi()
            || child
                .text()
                .is_some_and(|text| child.is_text() && !text.trim().is_empty())
    };
    if node.children().any(odd) {
        return Err("the list of objects has text where none belongs");
    }
    Ok(node.children().filter(Node::is_element).collect())
}

/// All that stands in it, where that is one text.
fn text<'a>(node: Node<'a, 'a>) -> Result<&'a str, &'static str> {
    let mut children = node.children();
    match (children.next(), children.next()) {
        (None, _) => Ok(""),
        (Some(only), None) if only.is_text() => Ok(only.text().unwrap_or_default()),
        _ => Err("a key in the list is more than a text"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(inner: &str) -> Result<Vec<String>, &'static str> {
        keys(
            format!("<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{inner}</Delete>")
                .as_bytes(),
        )
    }

    #[test]
    fn names_each_key_as_it_is() {
        let found = read(
            "<Object><Key>a b/%2F+ü</Key></Object>\n <Object><VersionId>v</VersionId><Key>&lt;&amp;&#x41;</Key></Object><Quiet>true</Quiet>",
        );
        assert_eq!(found.unwrap(), ["a b/%2F+ü", "<&A"]);
        let declared = b"<?xml version=\"1.0\" encoding=\"UTF-8\"?><Delete><Object><Key>k</Key></Object></Delete>";
        assert_eq!(keys(declared).unwrap(), ["k"]);
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        for inner in [
            "",
            "<Quiet>true</Quiet>",
            "<Object></Object>",
            "<Object><Key></Key></Object>",
            "<Object><Key>a</Key><Key>b</Key></Object>",
            "<Object><Key>a<!-- -->b</Key></Object>",
            "<Object><Key>a<x/>b</Key></Object>",
            "<Object><Key> a</Key></Object>",
            "<Object><Key>a\n</Key></Object>",
            "<Object><Key>a&#x1;b</Key></Object>",
            "<Object><Key>a</Key>text</Object>",
            "<Object><Other>a</Other></Object>",
            "<Other><Key>a</Key></Other>",
            "<Object><Key>a</Key></Object><?pi?>",
        ] {
            assert!(read(inner).is_err(), "{inner}");
        }
        for body in [
            "<!DOCTYPE Delete [<!ENTITY k \"a\">]><Delete><Object><Key>&k;</Key></Object></Delete>",
            "<?xml version=\"1.0\" encoding=\"UTF-7\"?><Delete><Object><Key>a</Key></Object></Delete>",
            "<Deletes><Object><Key>a</Key></Object></Deletes>",
            "{\"Key\":\"a\"}",
            "<Delete><Object><Key>a</Key></Object>",
        ] {
            assert!(keys(body.as_bytes()).is_err(), "{body}");
        }
        assert!(keys(b"<Delete><Object><Key>\xff</Key></Object></Delete>").is_err());
        let many = "<Object><Key>a</Key></Object>".repeat(MOST + 1);
        assert!(read(&many).is_err());
        assert_eq!(read(&many[..many.len() - 29]).unwrap().len(), MOST);
    }

    #[test]
    fn deep_nesting_is_refused_and_ends_nobody() {
        let deep = "<a>".repeat(LARGEST / 3);
        assert!(keys(deep.as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = keys(&bytes);
        }
    }
}
