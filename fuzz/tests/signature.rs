//! The model of signatures makes those that Amazon's pages have as examples.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use fencegate_fuzz::models::chunks::Body;
use fencegate_fuzz::models::signature::{Claim, Gate, claim};
use http::Request;
use http::request::Parts;
use libfuzzer_sys as _; // what the counters call, where this is compiled with them

const ID: &str = "AKIAIOSFODNN7EXAMPLE";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const SCOPE: &str = "20130524/us-east-1/s3/aws4_request";

/// On 24 May 2013, as the day begins.
const GATE: Gate = Gate {
    clients: [(ID, SECRET), ("", "")],
    region: "us-east-1",
    tokens: &[],
    now: 1_369_353_600,
};

fn read(host: &str, request: http::request::Builder) -> Claim {
    let (head, ()): (Parts, ()) = request.body(()).unwrap().into_parts();
    let claim = claim(&GATE, &head, host).unwrap();
    assert_eq!((&*claim.key_id, claim.fault), (ID, None));
    claim
}

/// Reads a request with the headers that all examples have.
fn signed(method: &str, target: &str, payload: &str, more: &[(&str, &str)], host: &str) -> Claim {
    let mut all = vec![
        ("x-amz-date", "20130524T000000Z"),
        ("x-amz-content-sha256", payload),
    ];
    all.extend(more);
    let mut names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    names.push("host");
    names.sort_unstable();
    let names = names.join(";");
    let said =
        format!("AWS4-HMAC-SHA256 Credential={ID}/{SCOPE},SignedHeaders={names},Signature=unknown");
    all.push(("authorization", &said));
    let request = Request::builder().method(method).uri(target);
    let request = all.iter().fold(request, |request, (name, value)| {
        request.header(*name, *value)
    });
    read(host, request)
}

#[test]
fn the_examples_of_headers_and_a_url() {
    let host = "examplebucket.s3.amazonaws.com";
    let put = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
    let range = [("range", "bytes=0-9")];
    let stored = [
        ("date", "Fri, 24 May 2013 00:00:00 GMT"),
        ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
    ];
    let url = format!(
        "/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={ID}/{SCOPE}&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature=unknown"
    );
    for (claim, signature) in [
        (
            signed("GET", "/test.txt", EMPTY, &range, host),
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        (
            signed("PUT", "/test$file.text", put, &stored, host),
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        ),
        (
            signed("GET", "/?lifecycle", EMPTY, &[], host),
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        ),
        (
            signed("GET", "/?prefix=J&max-keys=2", EMPTY, &[], host),
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
        (
            read(host, Request::builder().uri(url)),
            "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404",
        ),
    ] {
        assert_eq!(
            claim.signed.signature(SECRET),
            signature,
            "{:?}",
            claim.signed
        );
    }
}

#[test]
fn the_examples_of_chunks() {
    let chunks = [vec![b'a'; 65536], vec![b'a'; 1024]];
    let upload = |payload: &str, more: &[(&str, &str)], trailers: Option<Vec<String>>| {
        let mut all = vec![
            ("content-encoding", "aws-chunked"),
            ("x-amz-decoded-content-length", "66560"),
            ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
        ];
        all.extend(more);
        let target = "/examplebucket/chunkObject.txt";
        let signed = signed("PUT", target, payload, &all, "s3.amazonaws.com").signed;
        let seed = signed.signature(SECRET);
        let body = Body::new(&signed, SECRET, &seed, &chunks, trailers);
        [vec![seed], body.signatures].concat()
    };
    let plain = upload(
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
        &[("content-length", "66824")],
        None,
    );
    assert_eq!(
        plain,
        [
            "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9",
            "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
            "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
            "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
        ]
    );
    let trailer = vec!["x-amz-checksum-crc32c:sOO8/Q==".to_owned()];
    let with_trailer = upload(
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
        &[("x-amz-trailer", "x-amz-checksum-crc32c")],
        Some(trailer),
    );
    assert_eq!(
        with_trailer,
        [
            "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e",
            "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
            "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
            "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
            "d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435",
        ]
    );
}
