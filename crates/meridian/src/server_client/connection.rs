//! Connections to a server: plain, or in TLS.

use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper::http::uri::Authority;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::failure::Failure;

/// How long a connection may take, and the handshake of TLS on it.
const PATIENCE: Duration = Duration::from_secs(5);
/// The ports of URLs that name none.
const HTTP_PORT: u16 = 80;
const HTTPS_PORT: u16 = 443;

/// What carries a request.
pub trait Stream: AsyncRead + AsyncWrite + Debug + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Debug + Send + Unpin> Stream for T {}

/// Whose certificates are trusted.
#[derive(Debug, Clone)]
pub enum Trust {
    /// The authorities that this machine knows.
    Machine,
    /// Those of a file in PEM.
    File(PathBuf),
}

impl Trust {
    /// The settings of TLS.
    ///
    /// # Errors
    /// There are no certificates of authorities.
    pub fn config(&self) -> Result<Arc<ClientConfig>, Failure> {
        let mut roots = RootCertStore::empty();
        match self {
            Self::Machine => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
            Self::File(path) => {
                let certificates = certificates(path)
                    .map_err(|reason| Failure::new(format!("--ca {}: {reason}", path.display())))?;
                roots.add_parsable_certificates(certificates);
            }
        }
        if roots.is_empty() {
            return Err(Failure::new(
                "no authority's certificate is known, so that https is not spoken: give a file of them with --ca",
            ));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Arc::new(config))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_file_iter(path).map_err(|error| error.to_string())?;
    let certificates: Result<Vec<_>, _> = read.collect();
    match certificates {
        Ok(certificates) if certificates.is_empty() => {
            Err("the file has no certificates in PEM".to_owned())
        }
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(error.to_string()),
    }
}

/// Connects to a server; in TLS if there are settings for it.
///
/// # Errors
/// No connection is made in time, or the server's certificate is not trusted.
pub async fn connect(
    authority: &Authority,
    tls: Option<&Arc<ClientConfig>>,
) -> io::Result<Box<dyn Stream>> {
    // An IPv6 address stands in brackets.
    let host = (authority.host().trim_start_matches('[')).trim_end_matches(']');
    let port = match (authority.port_u16(), tls) {
        (Some(port), _) => port,
        (None, None) => HTTP_PORT,
        (None, Some(_)) => HTTPS_PORT,
    };
    let plain = within("no connection", TcpStream::connect((host, port))).await?;
    let Some(tls) = tls else {
        return Ok(Box::new(plain));
    };
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let connector = TlsConnector::from(Arc::clone(tls));
    let encrypted = within("no handshake of TLS", connector.connect(name, plain)).await?;
    Ok(Box::new(encrypted))
}

async fn within<T>(what: &str, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let outcome = timeout(PATIENCE, work).await;
    outcome.unwrap_or_else(|_| {
        let sentence = format!("{what} in {PATIENCE:?}");
        Err(io::Error::new(io::ErrorKind::TimedOut, sentence))
    })
}
