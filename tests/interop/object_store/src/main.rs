//! What the object_store crate does through a gateway before an object store. Called by tests/object_store.rs.
//!
//!     object-store-client GATEWAY
//!
//! Fails where a call ends otherwise than it should.

use http::{HeaderMap, HeaderValue};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::{ClientOptions, Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};

const BUCKET: &str = "bucket";

fn store(gateway: &str, token: &'static str) -> AmazonS3 {
    let mut headers = HeaderMap::new();
    headers.insert("fencing-token", HeaderValue::from_static(token));
    let options = ClientOptions::new().with_default_headers(headers).with_allow_http(true);
    AmazonS3Builder::from_env()
        .with_endpoint(gateway)
        .with_region("us-east-1")
        .with_bucket_name(BUCKET)
        .with_virtual_hosted_style_request(false)
        .with_client_options(options)
        .build()
        .unwrap()
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let gateway = std::env::args().nth(1).unwrap();
    let (holder, zombie) = (store(&gateway, "5"), store(&gateway, "4"));
    let body = |text: &'static str| PutPayload::from_static(text.as_bytes());
    let create = || PutOptions::from(PutMode::Create);
    for name in ["a b", "a+b", "ü", "a/b"] {
        let path = Path::from(name);
        holder.put(&path, body("of the holder")).await.unwrap();
        let error = zombie.put(&path, body("of the zombie")).await.unwrap_err();
        assert!(error.to_string().contains("The fencing token is stale"), "{error}");
        let found = holder.get(&path).await.unwrap().bytes().await.unwrap();
        assert_eq!(&found[..], b"of the holder");
    }
    // A commit that another has made is the store's refusal.
    let commit = Path::from("table/_log/1.json");
    holder.put_opts(&commit, body("mine"), create()).await.unwrap();
    let again = holder.put_opts(&commit, body("again"), create()).await;
    assert!(matches!(again, Err(Error::AlreadyExists { .. })), "{again:?}");
    // An upload in parts.
    let large = Path::from("large");
    let mut upload = holder.put_multipart(&large).await.unwrap();
    for _ in 0..2 {
        upload.put_part(PutPayload::from(vec![7; 5 << 20])).await.unwrap();
    }
    upload.complete().await.unwrap();
    assert_eq!(holder.head(&large).await.unwrap().size, 10 << 20);
    holder.delete(&large).await.unwrap();
    println!("passed");
}
