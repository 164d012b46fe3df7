//! TLS between members, where each side shows a certificate of the cluster's own authority.
//!
//! The files of a member are read anew when they change, so that a certificate is replaced without a restart. What is replaced by halves
//! is not taken: the former pair is used until certificate and key belong together.

mod authority;
mod identity;
mod sentences;

use std::fmt;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tracing::{info, warn};

use crate::ClusterError;
pub use authority::Authority;
pub use identity::Role;
pub(crate) use identity::{MemberName, in_words};
pub(crate) use sentences::{of_client, of_server};

/// The certificates of the authorities that are trusted.
const AUTHORITY: &str = "ca.pem";
/// The member's own certificate.
const CERTIFICATE: &str = "cert.pem";
/// The key of this.
const KEY: &str = "key.pem";
/// How often it is looked whether the files have changed.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// A certificate that ends within this is warned of.
const ENDS_SOON: Duration = Duration::from_secs(30 * 86_400);

/// The certificates of a member, as they are in its directory now.
pub(crate) struct Certificates {
    dir: PathBuf,
    /// What the member may be; one of them is needed.
    roles: Vec<Role>,
    current: Mutex<Current>,
}

struct Current {
    loaded: Arc<Loaded>,
    /// Of the files that were loaded.
    stamp: Stamp,
    looked: Instant,
    /// Of the files that could not be loaded, so that it is said once.
    refused: Option<Stamp>,
}

/// What tells whether files have changed: of each one its time, its number and its length.
type Stamp = [Option<(i64, i64, u64, u64)>; 3];

/// What was loaded of a directory.
struct Loaded {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    names: Vec<MemberName>,
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Certificates({})", self.dir.display())
    }
}

impl Certificates {
    /// Reads a member's directory. Its certificate has to be one of the authority there, and of one of these roles.
    ///
    /// # Errors
    /// A file cannot be read, others may read the key, or the certificate is not what it has to be.
    pub fn open(dir: &Path, roles: &[Role]) -> Result<Arc<Self>, ClusterError> {
        let stamp = stamp(dir);
        let loaded = load(dir, roles).map_err(|why| ClusterError::Certificates {
            dir: dir.to_owned(),
            why,
        })?;
        Ok(Arc::new(Self {
            dir: dir.to_owned(),
            roles: roles.to_vec(),
            current: Mutex::new(Current {
                loaded: Arc::new(loaded),
                stamp,
                looked: Instant::now(),
                refused: None,
            }),
        }))
    }

    /// Who the member is.
    pub fn names(&self) -> Vec<MemberName> {
        self.loaded().names.clone()
    }

    /// What accepts connections of other members.
    pub fn acceptor(&self) -> TlsAcceptor {
        Arc::clone(&self.loaded().server).into()
    }

    /// What connects to other members.
    pub fn connector(&self) -> TlsConnector {
        Arc::clone(&self.loaded().client).into()
    }

    /// What the files say now.
    fn loaded(&self) -> Arc<Loaded> {
        // Every change is a single one, so that a panic elsewhere leaves it whole.
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.looked.elapsed() < LOOK_INTERVAL {
            return Arc::clone(&current.loaded);
        }
        current.looked = Instant::now();
        let now = stamp(&self.dir);
        if now == current.stamp {
            return Arc::clone(&current.loaded);
        }
        let dir = self.dir.display();
        match load(&self.dir, &self.roles) {
            Ok(loaded) => {
                info!(%dir, "a new certificate is used");
                current.loaded = Arc::new(loaded);
                current.stamp = now;
                current.refused = None;
            }
            Err(why) => {
                if current.refused != Some(now) {
                    warn!(%dir, why, "the new certificate cannot be used: the former one is used still");
                }
                current.refused = Some(now);
            }
        }
        Arc::clone(&current.loaded)
    }
}

/// The name of the member whose certificate is in a directory, if it has the role.
///
/// # Errors
/// There is no certificate of that role.
pub fn certified_name(dir: &Path, role: Role) -> Result<String, ClusterError> {
    let certificates = Certificates::open(dir, &[role])?;
    let name = certificates.names().into_iter().find(|it| it.role == role);
    name.map(|it| it.name)
        .ok_or_else(|| ClusterError::Certificates {
            dir: dir.to_owned(),
            why: "the certificate has no name".to_owned(),
        })
}

fn stamp(dir: &Path) -> Stamp {
    [AUTHORITY, CERTIFICATE, KEY].map(|name| {
        let found = fs::metadata(dir.join(name)).ok()?;
        Some((found.mtime(), found.mtime_nsec(), found.ino(), found.len()))
    })
}

fn load(dir: &Path, roles: &[Role]) -> Result<Loaded, String> {
    let mut trusted = RootCertStore::empty();
    for authority in certificates(dir, AUTHORITY)? {
        let added = trusted.add(authority);
        added
            .map_err(|error| format!("{AUTHORITY} has no certificate of an authority: {error}"))?;
    }
    let chain = certificates(dir, CERTIFICATE)?;
    let key = private_key(&dir.join(KEY))?;
    let own = chain.first().ok_or("there is no certificate")?;
    let names = MemberName::all_of(own);
    if !names.iter().any(|it| roles.contains(&it.role)) {
        return Err(format!(
            "{CERTIFICATE} is that of {}, and here that of {} is needed: `meridian cluster init` makes it",
            in_words(&names),
            Role::any_of(roles)
        ));
    }
    // The provider is named, because a program with several providers has no default.
    let provider = Arc::new(ring::default_provider());
    let trusted = Arc::new(trusted);
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::clone(&trusted), Arc::clone(&provider));
    let verifier = verifier.build().map_err(|error| error.to_string())?;
    verify_own(verifier.as_ref(), &chain)?;
    let unusable =
        |error: rustls::Error| format!("{CERTIFICATE} and {KEY} cannot be used together: {error}");
    Ok(Loaded {
        server: server(&provider, verifier, &chain, &key).map_err(unusable)?,
        client: client(&provider, trusted, chain, key).map_err(unusable)?,
        names,
    })
}

/// What would be refused by all others is no certificate to start with.
fn verify_own(
    verifier: &dyn ClientCertVerifier,
    chain: &[CertificateDer<'static>],
) -> Result<(), String> {
    let (own, others) = chain.split_first().ok_or("there is no certificate")?;
    let now = UnixTime::now();
    let verified = verifier.verify_client_cert(own, others, now);
    verified.map_err(|error| format!("{CERTIFICATE} {}", sentences::of_own(&error)))?;
    let soon = UnixTime::since_unix_epoch(Duration::from_secs(now.as_secs()) + ENDS_SOON);
    if verifier.verify_client_cert(own, others, soon).is_err() {
        warn!(
            "the certificate of this member ends within 30 days: `meridian cluster init --renew` makes another"
        );
    }
    Ok(())
}

/// Sessions are not resumed: a certificate is verified at each connection.
fn server(
    provider: &Arc<CryptoProvider>,
    verifier: Arc<dyn ClientCertVerifier>,
    chain: &[CertificateDer<'static>],
    key: &PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain.to_vec(), key.clone_key())?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

fn client(
    provider: &Arc<CryptoProvider>,
    trusted: Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ClientConfig>, rustls::Error> {
    let mut config = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(trusted)
        .with_client_auth_cert(chain, key)?;
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

fn certificates(dir: &Path, name: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let bytes =
        fs::read(dir.join(name)).map_err(|error| format!("{name} cannot be read: {error}"))?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let all = all.map_err(|error| format!("{name} is damaged: {error}"))?;
    match all.is_empty() {
        true => Err(format!(
            "there is no certificate in {name}: it has to be in PEM, which begins with BEGIN CERTIFICATE"
        )),
        false => Ok(all),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let unreadable = |error: std::io::Error| format!("{KEY} cannot be read: {error}");
    let metadata = fs::metadata(path).map_err(unreadable)?;
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(format!(
            "others may read or change {KEY}: run `chmod 600` on it"
        ));
    }
    let bytes = fs::read(path).map_err(unreadable)?;
    PrivateKeyDer::from_pem_slice(&bytes)
        .map_err(|error| format!("there is no private key without a password in {KEY}: {error}"))
}

#[cfg(test)]
mod tests;
