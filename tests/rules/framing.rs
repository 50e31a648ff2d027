//! Bytes on a connection that two servers may read in two ways. Each row of the table stands in
//! docs/security.md too: what goes in, and what comes out.

use crate::support::Client;
use crate::world::World;
use std::io::Write;
use std::net::TcpStream;

/// What becomes of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Out {
    /// One reading, made anew for the upstream: a PUT with the body `data`.
    One,
    /// 400 with `Fencing-Status: malformed`; the connection closes.
    Refused,
    /// 400 or 431 by the HTTP library, without a word of the gateway's; the connection closes.
    Bare(u16),
    /// The body is no body: the upstream never sees its end.
    Cut,
}
use Out::{Bare, Cut, One, Refused};

const START: &str = "PUT /files/a HTTP/1.1\r\nHost: gate\r\nFencing-Token: 5\r\nX-Tag: TAG\r\n";
const CHUNKS: &str = "4\r\ndata\r\n0\r\n\r\n";
const DATA: &str = "Content-Length: 4\r\n\r\ndata";

/// Name, what stands for `START`, the rest of the head with its empty line, the body, and what becomes
/// of it.
type Row = (&'static str, &'static str, &'static str, &'static str, Out);

const ROWS: &[Row] = &[
    // The length.
    (
        "length-and-coding",
        START,
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
        CHUNKS,
        One,
    ),
    (
        "coding-and-length",
        START,
        "Transfer-Encoding: chunked\r\nContent-Length: 40\r\n\r\n",
        CHUNKS,
        One,
    ),
    (
        "length-twice",
        START,
        "Content-Length: 4\r\nContent-Length: 4\r\n\r\n",
        "data",
        One,
    ),
    (
        "lengths-that-differ",
        START,
        "Content-Length: 4\r\nContent-Length: 5\r\n\r\n",
        "data",
        Bare(400),
    ),
    (
        "length-list",
        START,
        "Content-Length: 4, 4\r\n\r\n",
        "data",
        Bare(400),
    ),
    (
        "length-with-a-sign",
        START,
        "Content-Length: +4\r\n\r\n",
        "data",
        Bare(400),
    ),
    (
        "length-in-hex",
        START,
        "Content-Length: 0x4\r\n\r\n",
        "data",
        Bare(400),
    ),
    (
        "length-below-zero",
        START,
        "Content-Length: -4\r\n\r\n",
        "data",
        Bare(400),
    ),
    (
        "length-with-zeros",
        START,
        "Content-Length: 004\r\n\r\n",
        "data",
        One,
    ),
    (
        "length-in-two-parts",
        START,
        "Content-Length: 4 4\r\n\r\n",
        "data",
        Bare(400),
    ),
    (
        "length-empty",
        START,
        "Content-Length: \r\n\r\n",
        "",
        Bare(400),
    ),
    (
        "length-too-large",
        START,
        "Content-Length: 99999999999999999999\r\n\r\n",
        "data",
        Bare(400),
    ),
    (
        "length-twin",
        START,
        "Content_Length: 9\r\nContent-Length: 4\r\n\r\n",
        "data",
        Refused,
    ),
    // The coding.
    (
        "coding-before-chunked",
        START,
        "Transfer-Encoding: gzip, chunked\r\n\r\n",
        CHUNKS,
        Refused,
    ),
    (
        "coding-after-chunked",
        START,
        "Transfer-Encoding: chunked, gzip\r\n\r\n",
        CHUNKS,
        Bare(400),
    ),
    (
        "coding-identity",
        START,
        "Transfer-Encoding: identity\r\n\r\n",
        "",
        Bare(400),
    ),
    (
        "coding-unknown",
        START,
        "Transfer-Encoding: xchunked\r\n\r\n",
        CHUNKS,
        Bare(400),
    ),
    (
        "coding-twice",
        START,
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        CHUNKS,
        Refused,
    ),
    (
        "coding-list",
        START,
        "Transfer-Encoding: chunked, chunked\r\n\r\n",
        CHUNKS,
        Refused,
    ),
    (
        "coding-hidden",
        START,
        "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n",
        CHUNKS,
        Refused,
    ),
    (
        "coding-in-capitals",
        START,
        "Transfer-Encoding: CHUNKED\r\n\r\n",
        CHUNKS,
        One,
    ),
    (
        "coding-with-a-tab",
        START,
        "Transfer-Encoding: \x0bchunked\r\n\r\n",
        CHUNKS,
        Bare(400),
    ),
    (
        "coding-with-a-space",
        START,
        "Transfer-Encoding : chunked\r\n\r\n",
        CHUNKS,
        Bare(400),
    ),
    (
        "coding-twin",
        START,
        "Transfer_Encoding: chunked\r\nContent-Length: 4\r\n\r\n",
        "data",
        Refused,
    ),
    (
        "coding-in-http-1.0",
        "PUT /files/a HTTP/1.0\r\nHost: gate\r\nFencing-Token: 5\r\nX-Tag: TAG\r\n",
        "Transfer-Encoding: chunked\r\n\r\n",
        CHUNKS,
        Bare(400),
    ),
    // Chunks.
    (
        "chunk-extension",
        START,
        "Transfer-Encoding: chunked\r\n\r\n",
        "4;x=y\r\ndata\r\n0\r\n\r\n",
        One,
    ),
    (
        "chunk-extension-with-a-line-feed",
        START,
        "Transfer-Encoding: chunked\r\n\r\n",
        "4;x\nxx\r\ndata\r\n0\r\n\r\n",
        Cut,
    ),
    (
        "chunk-in-hex-notation",
        START,
        "Transfer-Encoding: chunked\r\n\r\n",
        "0x4\r\ndata\r\n0\r\n\r\n",
        Cut,
    ),
    (
        "chunk-with-a-space",
        START,
        "Transfer-Encoding: chunked\r\n\r\n",
        "4 \r\ndata\r\n0\r\n\r\n",
        One,
    ),
    (
        "chunk-with-a-bare-line-feed",
        START,
        "Transfer-Encoding: chunked\r\n\r\n",
        "4\ndata\n0\n\n",
        Cut,
    ),
    (
        "chunk-below-zero",
        START,
        "Transfer-Encoding: chunked\r\n\r\n",
        "-4\r\ndata\r\n0\r\n\r\n",
        Cut,
    ),
    (
        "chunk-too-large",
        START,
        "Transfer-Encoding: chunked\r\n\r\n",
        "10000000000000004\r\ndata\r\n0\r\n\r\n",
        Cut,
    ),
    (
        "chunk-longer-than-it-says",
        START,
        "Transfer-Encoding: chunked\r\n\r\n",
        "4\r\ndataX\r\n0\r\n\r\n",
        Cut,
    ),
    (
        "chunk-without-a-size",
        START,
        "Transfer-Encoding: chunked\r\n\r\n",
        "\r\ndata\r\n0\r\n\r\n",
        Cut,
    ),
    (
        "token-in-a-trailer",
        START,
        "Transfer-Encoding: chunked\r\n\r\n",
        "4\r\ndata\r\n0\r\nFencing-Token: 9\r\n\r\n",
        One,
    ),
    // Lines.
    ("bare-line-feed", START, "X: y\n", DATA, One),
    (
        "bare-carriage-return",
        START,
        "X: y\rZ: z\r\n",
        DATA,
        Bare(400),
    ),
    ("folded-line", START, "X: y\r\n z\r\n", DATA, Bare(400)),
    (
        "token-in-a-folded-line",
        START,
        "X: y\r\n Fencing-Token: 9\r\n",
        DATA,
        Bare(400),
    ),
    ("zero-byte", START, "X: y\0z\r\n", DATA, Bare(400)),
    ("space-in-a-name", START, "X y: z\r\n", DATA, Bare(400)),
    ("no-name", START, ": z\r\n", DATA, Bare(400)),
    ("no-colon", START, "Xyz\r\n", DATA, Bare(400)),
    (
        "space-before-the-first-header",
        "PUT /files/a HTTP/1.1\r\n Host: gate\r\n",
        "",
        DATA,
        Bare(400),
    ),
    (
        "empty-lines-before",
        "\r\n\r\nPUT /files/a HTTP/1.1\r\nHost: gate\r\nFencing-Token: 5\r\nX-Tag: TAG\r\n",
        "",
        DATA,
        One,
    ),
    // The request line.
    ("http-0.9", "GET /files/a\r\n\r\n", "", "", Bare(400)),
    (
        "http-1.2",
        "PUT /files/a HTTP/1.2\r\nHost: gate\r\n",
        "",
        DATA,
        Bare(400),
    ),
    (
        "http-1.10",
        "PUT /files/a HTTP/1.10\r\nHost: gate\r\n",
        "",
        DATA,
        Bare(400),
    ),
    (
        "two-spaces",
        "PUT  /files/a HTTP/1.1\r\nHost: gate\r\n",
        "",
        DATA,
        Bare(400),
    ),
    (
        "tab-for-a-space",
        "PUT\t/files/a HTTP/1.1\r\nHost: gate\r\n",
        "",
        DATA,
        Bare(400),
    ),
    (
        "space-in-the-target",
        "PUT /files/a b HTTP/1.1\r\nHost: gate\r\n",
        "",
        DATA,
        Bare(400),
    ),
    // Names that decide.
    (
        "no-host",
        "PUT /files/a HTTP/1.1\r\nFencing-Token: 5\r\nX-Tag: TAG\r\n",
        "",
        DATA,
        Refused,
    ),
    ("two-hosts", START, "Host: other\r\n", DATA, Refused),
    (
        "target-of-another-host",
        "PUT http://other/files/a HTTP/1.1\r\nHost: gate\r\nFencing-Token: 5\r\nX-Tag: TAG\r\n",
        "",
        DATA,
        Refused,
    ),
    ("token-twice", START, "Fencing-Token: 5\r\n", DATA, Refused),
    ("token-twin", START, "Fencing_Token: 9\r\n", DATA, Refused),
    (
        "token-named-in-connection",
        START,
        "Connection: Fencing-Token\r\n",
        DATA,
        Refused,
    ),
    (
        "added-header-named-in-connection",
        START,
        "Connection: Via, X-Forwarded-For\r\n",
        DATA,
        One,
    ),
    (
        "two-method-overrides",
        START,
        "X-HTTP-Method: PATCH\r\nX-Method-Override: POST\r\n",
        DATA,
        Refused,
    ),
    (
        "upgrade-to-http-2",
        START,
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n",
        DATA,
        One,
    ),
];

fn check(w: &World, number: usize, (name, start, head, body, out): &Row) {
    let (tag, next) = (format!("row{number}"), format!("next{number}"));
    let first = format!("{start}{head}{body}").replace("TAG", &tag);
    // What a second reading would take for the rest of the first request, or the other way round.
    let second = format!(
        "GET /files/next HTTP/1.1\r\nHost: gate\r\nX-Tag: {next}\r\nConnection: close\r\n\r\n"
    );
    let mut stream = TcpStream::connect(("127.0.0.1", w.gw.port)).unwrap();
    let _ = stream.write_all((first + &second).as_bytes()); // it may be closed in the middle
    let answer = Client::from(stream).rest();
    let answer = String::from_utf8_lossy(&answer).to_lowercase();
    let statuses: Vec<&str> = answer.split("http/1.1 ").skip(1).map(|a| &a[..3]).collect();
    let seen = w.up.all_of(&tag);
    let said = answer.contains("fencing-status: malformed");
    match out {
        One => {
            assert_eq!(statuses.first(), Some(&"200"), "{name}: {answer}");
            assert!(seen.len() == 1 && seen[0].whole_at.is_some(), "{name}");
            assert_eq!(
                (&*seen[0].method, &*seen[0].target),
                ("PUT", "/files/a"),
                "{name}"
            );
            assert_eq!(seen[0].body, b"data", "{name}");
            assert!(
                seen[0].all("Fencing-Token") == ["5"] && seen[0].trailers.is_empty(),
                "{name}"
            );
            assert!(
                seen[0].all("Content-Length").len() + seen[0].all("Transfer-Encoding").len() == 1,
                "{name}"
            );
        }
        Refused => assert!(
            statuses == ["400"] && said && seen.is_empty(),
            "{name}: {answer}"
        ),
        Bare(status) => {
            let status = status.to_string();
            assert!(
                statuses == [&*status] && !said && seen.is_empty(),
                "{name}: {answer}"
            );
        }
        Cut => {
            assert!(
                statuses.len() == 1 && statuses != ["200"],
                "{name}: {answer}"
            );
            assert!(seen.iter().all(|seen| seen.whole_at.is_none()), "{name}");
        }
    }
    // The second request is served as it is, or not at all.
    let seen = w.up.all_of(&next);
    assert!(
        seen.iter()
            .all(|seen| seen.method == "GET" && seen.target == "/files/next"),
        "{name}"
    );
    assert_eq!(seen.len(), statuses.len() - 1, "{name}: {answer}");
}

#[test]
fn each_request_has_one_reading_or_none() {
    let w = World::new();
    for (number, row) in ROWS.iter().enumerate() {
        check(&w, number, row);
    }
    let many = (0..101).fold(String::new(), |lines, n| lines + &format!("X-{n}: y\r\n"));
    let large = format!("X: {}\r\n", "y".repeat(70_000));
    for head in [many, large] {
        let mut stream = TcpStream::connect(("127.0.0.1", w.gw.port)).unwrap();
        let _ = stream.write_all(format!("{START}{head}{DATA}").as_bytes());
        assert!(Client::from(stream).rest().starts_with(b"HTTP/1.1 431 "));
    }
    let bare = ROWS.iter().filter(|row| row.4 == Bare(400)).count();
    let counted = |reason: &str| w.metric("fencegate_bad_requests_total", &[reason]).round();
    assert_eq!(format!("{}", counted("\"head\"")), bare.to_string());
    assert_eq!(format!("{}", counted("\"too-large\"")), "2");
}

#[test]
fn each_row_is_in_the_security_page() {
    let page = include_str!("../../docs/security.md");
    let missing: Vec<&str> = ROWS
        .iter()
        .map(|row| row.0)
        .filter(|name| !page.contains(&format!("| `{name}` |")))
        .collect();
    assert!(missing.is_empty(), "not in docs/security.md: {missing:#?}");
}
