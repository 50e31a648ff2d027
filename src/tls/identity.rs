//! Who a client is, by the certificate that it showed.

use x509_cert::Certificate;
use x509_cert::der::asn1::{PrintableStringRef, TeletexStringRef, Utf8StringRef};
use x509_cert::der::oid::db::rfc4519::CN;
use x509_cert::der::{Any, Decode};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::name::Name;

/// How many names of one certificate are looked at, and how long one may be.
const MOST: (usize, usize) = (32, 256);

/// The names in a certificate (DER) that was found to be valid: its subject alternative names (RFC 5280
/// section 4.2.1.6) in their order, URIs, DNS names and mail addresses; where it has no such extension, its
/// common name. Empty where there is none, or none that can be printed.
#[must_use]
pub fn names(certificate: &[u8]) -> Vec<String> {
    let Ok(certificate) = Certificate::from_der(certificate) else {
        return Vec::new();
    };
    let names: Vec<String> = match certificate.tbs_certificate.get::<SubjectAltName>() {
        Ok(Some((_, SubjectAltName(names)))) => names.iter().filter_map(text).collect(),
        Ok(None) => common(&certificate.tbs_certificate.subject),
        Err(_) => Vec::new(),
    };
    let sound = |name: &String| {
        !name.is_empty() && name.len() <= MOST.1 && name.bytes().all(|b| b.is_ascii_graphic())
    };
    names.into_iter().filter(sound).take(MOST.0).collect()
}

fn text(name: &GeneralName) -> Option<String> {
    match name {
        GeneralName::UniformResourceIdentifier(name)
        | GeneralName::DnsName(name)
        | GeneralName::Rfc822Name(name) => Some(name.to_string()),
        _ => None,
    }
}

fn common(subject: &Name) -> Vec<String> {
    let all = subject.0.iter().flat_map(|part| part.0.iter());
    let common = all.filter(|attribute| attribute.oid == CN);
    common
        .filter_map(|attribute| decoded(&attribute.value))
        .collect()
}

/// The kinds of text that a name may be (RFC 5280 section 4.1.2.4), as far as they are in use.
fn decoded(value: &Any) -> Option<String> {
    let utf8 = value
        .decode_as::<Utf8StringRef<'_>>()
        .map(|text| text.to_string());
    let printable = || {
        value
            .decode_as::<PrintableStringRef<'_>>()
            .map(|text| text.to_string())
    };
    let teletex = || {
        value
            .decode_as::<TeletexStringRef<'_>>()
            .map(|text| text.to_string())
    };
    utf8.or_else(|_| printable()).or_else(|_| teletex()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    fn certificate(common: &str, names: Vec<SanType>) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, common);
        params.subject_alt_names = names;
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn alternative_names_come_before_the_common_one() {
        let uri = SanType::URI("spiffe://prod/writer".try_into().unwrap());
        let dns = SanType::DnsName("writer.internal".try_into().unwrap());
        let found = names(&certificate("someone", vec![uri, dns]));
        assert_eq!(found, ["spiffe://prod/writer", "writer.internal"]);
        assert_eq!(names(&certificate("someone", Vec::new())), ["someone"]);
        // An extension without a name of these kinds does not fall back on the common one.
        let address = SanType::IpAddress("192.0.2.1".parse().unwrap());
        assert!(names(&certificate("someone", vec![address])).is_empty());
    }

    #[test]
    fn what_is_no_name_is_none() {
        assert!(names(b"nothing").is_empty());
        assert!(names(&certificate("two words", Vec::new())).is_empty());
        assert!(names(&certificate(&"x".repeat(300), Vec::new())).is_empty());
    }
}
