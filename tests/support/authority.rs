//! An authority of a test's own, which signs certificates for gateways, upstreams and clients.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// An authority that signs certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    own: rcgen::Certificate,
}

impl Authority {
    /// One that nobody knows yet.
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Clients that are strict ask for a name of its own and for what it may be used.
        params
            .distinguished_name
            .push(DnType::CommonName, "an authority for tests");
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let own = params.self_signed(&key).unwrap();
        let issuer = Issuer::new(params, key);
        Self { issuer, own }
    }

    /// A certificate for these names or addresses, and its key.
    pub fn sign(&self, names: &[&str]) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.use_authority_key_identifier_extension = true;
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    /// Its own certificate, which those who trust it know.
    pub fn pem(&self) -> String {
        self.own.pem()
    }

    /// Puts a new certificate for localhost into the folder: `cert.pem` and `key.pem`.
    pub fn renew(&self, folder: &Path) {
        let (cert, key) = self.sign(&["localhost", "127.0.0.1"]);
        fs::write(folder.join("key.pem"), key.serialize_pem()).unwrap();
        fs::write(folder.join("cert.pem"), cert.pem()).unwrap();
    }

    /// A client that trusts this authority, and shows a certificate if it has one.
    pub fn client(
        &self,
        protocols: &[&[u8]],
        shown: Option<(rcgen::Certificate, KeyPair)>,
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.own.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match shown {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
                let chain = vec![cert.der().clone()];
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        config.alpn_protocols = protocols.iter().map(|p| p.to_vec()).collect();
        Arc::new(config)
    }

    /// What a server of that name shows that speaks these protocols, to clients of that authority alone if
    /// one is given.
    pub fn server(
        &self,
        name: &str,
        protocols: &[&[u8]],
        clients: Option<&Self>,
    ) -> Arc<ServerConfig> {
        let (cert, key) = self.sign(&[name]);
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(clients) => {
                let mut roots = RootCertStore::empty();
                roots.add(clients.own.der().clone()).unwrap();
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let chain = vec![cert.der().clone()];
        let mut config = builder.with_single_cert(chain, key).unwrap();
        config.alpn_protocols = protocols.iter().map(|p| p.to_vec()).collect();
        Arc::new(config)
    }
}
