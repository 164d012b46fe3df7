//! TLS: the server's certificate and key, for all listeners.
//!
//! The files are read once, at the start. The protocol is negotiated in the TLS handshake (ALPN): HTTP offers its versions, MySQL's
//! protocol has nothing to choose from.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{Error, InconsistentKeys, ServerConfig};
use tokio_rustls::TlsAcceptor;

/// The versions of HTTP, in order of preference.
const HTTP_VERSIONS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The files of the server's certificate and key.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The certificate, followed by its issuers', in PEM.
    pub certificate: PathBuf,
    /// The key of the first certificate, in PEM and without a password.
    pub key: PathBuf,
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {}, which is to be the {what} for TLS: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What it should contain.
        what: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A PEM section is damaged.
    #[error("{}, which is to be the {what} for TLS, is damaged: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What it should contain.
        what: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// The file contains no certificate.
    #[error("there is no certificate in {}: it has to be in PEM, which begins with BEGIN CERTIFICATE", path.display())]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// The file contains no key.
    #[error(
        "there is no private key in {}: it has to be in PEM, which begins with BEGIN PRIVATE KEY, and without a password, which \
         `openssl pkey` takes off", path.display()
    )]
    NoKey {
        /// The file.
        path: PathBuf,
    },
    /// The certificate and the key do not belong together.
    #[error(
        "the private key in {} is not that of the first certificate in {}: the server's own certificate has to be the first",
        key.display(), certificate.display()
    )]
    NotAPair {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// The kind of the certificate or key is not supported.
    #[error("the certificate in {} with the key in {} cannot be used for TLS: {source}", certificate.display(), key.display())]
    Unusable {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What is wrong.
        source: Error,
    },
}

/// The server's certificate and key, ready for handshakes.
#[derive(Debug, Clone)]
pub(crate) struct Tls {
    config: Arc<ServerConfig>,
}

impl Tls {
    /// # Errors
    /// The files cannot be read, or are not a certificate and its key.
    pub(crate) fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        let chain = certificates(&files.certificate)?;
        let key = private_key(&files.key)?;
        let (certificate, path) = (files.certificate.clone(), files.key.clone());
        let unusable = |source| match source {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => TlsError::NotAPair {
                certificate,
                key: path,
            },
            source => TlsError::Unusable {
                certificate,
                key: path,
                source,
            },
        };
        // The provider is named, because a program with several providers has no default.
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map(|builder| builder.with_no_client_auth())
            .and_then(|builder| builder.with_single_cert(chain, key))
            .map_err(unusable)?;
        Ok(Self {
            config: Arc::new(config),
        })
    }

    /// The acceptor for MySQL's protocol.
    pub(crate) fn for_mysql(&self) -> TlsAcceptor {
        Arc::clone(&self.config).into()
    }

    /// The acceptor for HTTP.
    pub(crate) fn for_http(&self) -> TlsAcceptor {
        let mut config = ServerConfig::clone(&self.config);
        config.alpn_protocols = HTTP_VERSIONS.map(<[u8]>::to_vec).into();
        Arc::new(config).into()
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    const WHAT: &str = "certificate";
    let bytes = read(path, WHAT)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let chain = chain.map_err(|error| damaged(path, WHAT, &error))?;
    match chain.is_empty() {
        true => Err(TlsError::NoCertificate {
            path: path.to_owned(),
        }),
        false => Ok(chain),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    const WHAT: &str = "private key";
    let bytes = read(path, WHAT)?;
    PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| match error {
        pem::Error::NoItemsFound => TlsError::NoKey {
            path: path.to_owned(),
        },
        error => damaged(path, WHAT, &error),
    })
}

fn read(path: &Path, what: &'static str) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Unreadable {
        path: path.to_owned(),
        what,
        source,
    })
}

fn damaged(path: &Path, what: &'static str, error: &pem::Error) -> TlsError {
    let reason = match error {
        // These are written as lists of numbers elsewhere.
        pem::Error::MissingSectionEnd { end_marker } => {
            let marker = String::from_utf8_lossy(end_marker);
            let label = marker.trim_matches(['-', ' ', '\n', '\r']);
            format!(
                "the line END {} is missing",
                label.trim_start_matches("END ")
            )
        }
        pem::Error::IllegalSectionStart { line } => {
            let line = String::from_utf8_lossy(line);
            format!("{:?} begins nothing that is known", line.trim())
        }
        other => other.to_string(),
    };
    TlsError::Damaged {
        path: path.to_owned(),
        what,
        reason,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, RootCertStore};
    use tokio_rustls::TlsConnector;

    use super::*;

    fn fixture(name: &str) -> PathBuf {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/certificates");
        tests.join(name)
    }

    pub(crate) fn files() -> TlsFiles {
        TlsFiles {
            certificate: fixture("server.pem"),
            key: fixture("server.key"),
        }
    }

    /// A client that trusts the tests' certificates, and the name by which it calls the server.
    pub(crate) fn client(alpn: &[&[u8]]) -> (TlsConnector, ServerName<'static>) {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(
            CertificateDer::pem_file_iter(fixture("ca.pem"))
                .unwrap()
                .map(Result::unwrap),
        );
        let provider = Arc::new(ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = alpn.iter().map(|it| it.to_vec()).collect();
        let name = ServerName::try_from("localhost").unwrap();
        (TlsConnector::from(Arc::new(config)), name)
    }

    /// The negotiated protocol of a client with these ALPN names.
    async fn agreed(acceptor: TlsAcceptor, alpn: &[&[u8]]) -> Option<Vec<u8>> {
        let (near, far) = tokio::io::duplex(1 << 14);
        let (connector, name) = client(alpn);
        let (client, server) = tokio::join!(connector.connect(name, near), acceptor.accept(far));
        server.unwrap();
        let client = client.unwrap();
        client.get_ref().1.alpn_protocol().map(<[u8]>::to_vec)
    }

    #[tokio::test]
    async fn both_listeners_show_the_certificate() {
        let tls = Tls::read(&files()).unwrap();
        assert_eq!(agreed(tls.for_mysql(), &[]).await, None);
        assert_eq!(
            agreed(tls.for_http(), &[b"http/1.1"]).await.unwrap(),
            b"http/1.1"
        );
        assert_eq!(
            agreed(tls.for_http(), &[b"http/1.1", b"h2"]).await.unwrap(),
            b"h2"
        );
        assert_eq!(agreed(tls.for_http(), &[]).await, None);
    }

    #[test]
    fn what_is_wrong_with_the_files_is_said() {
        let directory = tempfile::tempdir().unwrap();
        let written = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let (good, key) = (fixture("server.pem"), fixture("server.key"));
        let text = std::fs::read_to_string(&good).unwrap();
        let cut = written("cut", &text[..text.len() / 4]);
        let garbage = written(
            "garbage",
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        );
        let locked = written(
            "locked",
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
        );
        for (certificate, key, words) in [
            (
                &fixture("nowhere.pem"),
                &key,
                ["nowhere.pem", "No such file"],
            ),
            (
                &good,
                &fixture("nowhere.key"),
                ["nowhere.key", "No such file"],
            ),
            (&key, &key, ["no certificate", "server.key"]),
            (&good, &good, ["no private key", "server.pem"]),
            (&good, &locked, ["no private key", "without a password"]),
            (&cut, &key, ["damaged", "END CERTIFICATE"]),
            (&garbage, &key, ["cannot be used", "garbage"]),
            (
                &good,
                &fixture("other.key"),
                ["not that of the first certificate", "other.key"],
            ),
        ] {
            let files = TlsFiles {
                certificate: certificate.clone(),
                key: key.clone(),
            };
            let sentence = Tls::read(&files).unwrap_err().to_string();
            for word in words {
                assert!(sentence.contains(word), "{sentence}");
            }
        }
    }
}
