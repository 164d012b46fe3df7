//! TLS between members, where each side shows a certificate of the cluster's own authority.
//!
//! The files of a member are read anew when they change, so that a certificate is replaced, and another one revoked, without a restart. What is
//! replaced by halves is not taken: the former pair is used until certificate and key belong together. Connections of members that are not
//! trusted any more are cut.

mod authority;
mod cutting;
mod expiry;
mod identity;
mod list_exchange;
mod revocation;
mod sentences;

use std::fmt;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tracing::{info, warn};
use webpki::BorrowedCertRevocationList;

use crate::ClusterError;
pub use authority::Authority;
pub(crate) use cutting::WatchedStream;
pub(crate) use expiry::ending;
pub use identity::Role;
pub(crate) use identity::{MemberName, in_words};
pub(crate) use list_exchange::ListNews;
use list_exchange::{OwnList, own_list};
pub use revocation::RevokedCertificate;
pub(crate) use sentences::{of_client, of_server};

/// The certificates of the authorities that are trusted.
const AUTHORITY: &str = "ca.pem";
/// The member's own certificate.
const CERTIFICATE: &str = "cert.pem";
/// The key of this.
const KEY: &str = "key.pem";
/// The lists of revoked certificates, one for each authority; it need not be there.
const REVOKED: &str = "crl.pem";
/// How often it is looked whether the files have changed.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// How often a certificate is warned of that ends soon.
const WARNING_INTERVAL: Duration = Duration::from_secs(86_400);

/// The certificates of a member, as they are in its directory now.
pub(crate) struct Certificates {
    dir: PathBuf,
    /// What the member may be; one of them is needed.
    roles: Vec<Role>,
    current: Mutex<Current>,
}

struct Current {
    loaded: Arc<CredentialsDirectory>,
    /// Of the files that were loaded.
    stamp: Stamp,
    looked: Instant,
    /// Of the files that could not be loaded, so that it is said once.
    refused: Option<Stamp>,
    /// When it was last said that the certificate ends soon.
    warned: Option<Instant>,
    /// The digest of another member's list of which it was said why it is not taken.
    list_said: Option<u64>,
}

/// What tells whether files have changed: of each one its time, its number and its length.
type Stamp = [Option<(i64, i64, u64, u64)>; 4];
/// The place of the lists of revoked certificates there.
const REVOKED_AT: usize = 3;

/// What was loaded of a directory.
pub(crate) struct CredentialsDirectory {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    names: Vec<MemberName>,
    /// Verifies the certificates of other members.
    verifier: Arc<dyn ClientCertVerifier>,
    /// When the member's own certificate ends, in seconds since 1970; none if it does not.
    ends: Option<u64>,
    /// The list of revoked certificates that other members may take.
    own_list: OwnList,
}

impl fmt::Debug for CredentialsDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Loaded({})", in_words(&self.names))
    }
}

impl CredentialsDirectory {
    /// What accepts connections of other members.
    pub fn acceptor(&self) -> TlsAcceptor {
        Arc::clone(&self.server).into()
    }

    /// What connects to other members.
    pub fn connector(&self) -> TlsConnector {
        Arc::clone(&self.client).into()
    }

    /// Verifies the certificate that another member has shown.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    fn verify(&self, chain: &[CertificateDer<'static>]) -> Result<(), String> {
        let Some((own, others)) = chain.split_first() else {
            return Err("showed no certificate".to_owned());
        };
        let verified = self
            .verifier
            .verify_client_cert(own, others, UnixTime::now());
        verified
            .map(drop)
            .map_err(|error| sentences::of_other(&error))
    }
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
        let mut current = Current {
            loaded: Arc::new(load_or_fail(dir, roles)?),
            stamp,
            looked: Instant::now(),
            refused: None,
            warned: None,
            list_said: None,
        };
        current.warn_of_end();
        Ok(Arc::new(Self {
            dir: dir.to_owned(),
            roles: roles.to_vec(),
            current: Mutex::new(current),
        }))
    }

    /// Who the member is.
    pub fn names(&self) -> Vec<MemberName> {
        self.loaded().names.clone()
    }

    /// When the member's own certificate ends, in seconds since 1970; none if it does not.
    pub fn ends(&self) -> Option<u64> {
        self.loaded().ends
    }

    /// What the files say now.
    pub fn loaded(&self) -> Arc<CredentialsDirectory> {
        // Every change is a single one, so that a panic elsewhere leaves it whole.
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.looked.elapsed() < LOOK_INTERVAL {
            return Arc::clone(&current.loaded);
        }
        current.looked = Instant::now();
        current.warn_of_end();
        let now = stamp(&self.dir);
        if now == current.stamp {
            return Arc::clone(&current.loaded);
        }
        let dir = self.dir.display();
        // Whoever is revoked would be let in again.
        let is_list_gone = now[REVOKED_AT].is_none() && current.stamp[REVOKED_AT].is_some();
        let loaded = match is_list_gone {
            true => Err(format!(
                "{REVOKED} is gone: put it back, or restart the member without it"
            )),
            false => load(&self.dir, &self.roles),
        };
        match loaded {
            Ok(loaded) => {
                match now[REVOKED_AT] == current.stamp[REVOKED_AT] {
                    true => info!(%dir, "a new certificate is used"),
                    false => info!(%dir, "a new list of revoked certificates is used"),
                }
                current.loaded = Arc::new(loaded);
                current.stamp = now;
                current.refused = None;
                current.warned = None;
                current.warn_of_end();
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

    /// Says something of another member's list, once.
    fn say_once(&self, digest: u64, say: impl FnOnce()) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.list_said.replace(digest) != Some(digest) {
            say();
        }
    }

    /// Looks at the files until the member ends, also while nobody connects.
    pub async fn keep_looking(&self) {
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            self.loaded();
        }
    }
}

impl Current {
    /// Warns of a certificate that ends soon, once a day.
    fn warn_of_end(&mut self) {
        if let Some(ends) = ending(self.loaded.ends)
            && self.warned.is_none_or(|it| it.elapsed() > WARNING_INTERVAL)
        {
            warn!("the certificate of this member {ends}");
            self.warned = Some(Instant::now());
        }
    }
}

/// The name of the member whose certificate is in a directory, if it has the role.
///
/// # Errors
/// There is no certificate of that role.
pub fn certified_name(dir: &Path, role: Role) -> Result<String, ClusterError> {
    let loaded = load_or_fail(dir, &[role])?;
    let name = loaded.names.into_iter().find(|it| it.role == role);
    name.map(|it| it.name)
        .ok_or_else(|| ClusterError::Certificates {
            dir: dir.to_owned(),
            why: "the certificate has no name".to_owned(),
        })
}

fn stamp(dir: &Path) -> Stamp {
    [AUTHORITY, CERTIFICATE, KEY, REVOKED].map(|name| {
        let found = fs::metadata(dir.join(name)).ok()?;
        Some((found.mtime(), found.mtime_nsec(), found.ino(), found.len()))
    })
}

fn load_or_fail(dir: &Path, roles: &[Role]) -> Result<CredentialsDirectory, ClusterError> {
    load(dir, roles).map_err(|why| ClusterError::Certificates {
        dir: dir.to_owned(),
        why,
    })
}

fn load(dir: &Path, roles: &[Role]) -> Result<CredentialsDirectory, String> {
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
    let revoked = revocation_lists(dir)?;
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::clone(&trusted), Arc::clone(&provider))
            .with_crls(revoked.iter().cloned())
            // An authority need not have a list.
            .allow_unknown_revocation_status();
    let verifier = verifier.build().map_err(|error| error.to_string())?;
    let ends = verify_own(verifier.as_ref(), &chain)?;
    let of_servers = WebPkiServerVerifier::builder_with_provider(trusted, Arc::clone(&provider))
        .with_crls(revoked)
        .allow_unknown_revocation_status();
    let of_servers = of_servers.build().map_err(|error| error.to_string())?;
    let unusable =
        |error: rustls::Error| format!("{CERTIFICATE} and {KEY} cannot be used together: {error}");
    Ok(CredentialsDirectory {
        server: server(&provider, Arc::clone(&verifier), &chain, &key).map_err(unusable)?,
        client: client(&provider, of_servers, chain, key).map_err(unusable)?,
        names,
        verifier,
        ends,
        own_list: own_list(dir),
    })
}

/// What would be refused by all others is no certificate to start with. Gives when it ends.
fn verify_own(
    verifier: &dyn ClientCertVerifier,
    chain: &[CertificateDer<'static>],
) -> Result<Option<u64>, String> {
    let (own, others) = chain.split_first().ok_or("there is no certificate")?;
    let verified = verifier.verify_client_cert(own, others, UnixTime::now());
    verified.map_err(|error| sentences::of_own(&error))?;
    Ok(expiry::end(verifier, own, others))
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
    verifier: Arc<WebPkiServerVerifier>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ClientConfig>, rustls::Error> {
    let mut config = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_safe_default_protocol_versions()?
        .with_webpki_verifier(verifier)
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

/// The lists of revoked certificates, of which an authority has one at most; none if there is no file.
fn revocation_lists(dir: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, String> {
    let bytes = match fs::read(dir.join(REVOKED)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("{REVOKED} cannot be read: {error}")),
    };
    let lists: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&bytes).collect();
    let lists = lists.map_err(|error| format!("{REVOKED} is damaged: {error}"))?;
    if lists.is_empty() {
        return Err(format!(
            "there is no list of revoked certificates in {REVOKED}: it has to be in PEM, which begins with BEGIN X509 CRL"
        ));
    }
    let mut issuers: Vec<Vec<u8>> = Vec::new();
    for list in &lists {
        let list = BorrowedCertRevocationList::from_der(list)
            .map_err(|error| format!("{REVOKED} is damaged: {error}"))?;
        let issuer = webpki::CertRevocationList::from(list).issuer().to_vec();
        if issuers.contains(&issuer) {
            return Err(format!(
                "there are two lists of one authority in {REVOKED}: leave the newer one alone there"
            ));
        }
        issuers.push(issuer);
    }
    Ok(lists)
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
