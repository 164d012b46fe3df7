//! Certificates that an authority takes back.
//!
//! ```text
//!   DIR/issued/SERIAL.pem       every certificate that the authority has made, also those that newer ones have replaced
//!   DIR/crl.pem                 the list of revoked certificates, signed by the authority (RFC 5280, 5)
//!   DIR/NAME/crl.pem            the same for the members that are not revoked
//! ```
//!
//! A member that is revoked is so with all certificates that it was ever given: the key of an older one may be what was stolen. One that it is
//! given later is valid.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    CertificateRevocationListParams, Issuer, KeyIdMethod, RevocationReason, RevokedCertParams,
    SerialNumber,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use webpki::{BorrowedCertRevocationList, EndEntityCert};

use super::authority::{
    AUTHORITY_DAYS, Authority, DAY, failed, make_directory, not_made, write_whole,
};
use super::identity::{MemberName, Role, in_words};
use super::{AUTHORITY, CERTIFICATE, REVOKED};
use crate::ClusterError;

/// Where the certificates are that an authority has made.
const ISSUED: &str = "issued";

/// A certificate that is revoked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevokedCertificate {
    /// The role of its member.
    pub role: Role,
    /// The name of its member.
    pub name: String,
    /// Its serial number, in hexadecimal digits.
    pub serial: String,
}

/// A certificate that the authority has made.
struct IssuedCertificate {
    names: Vec<MemberName>,
    serial: Vec<u8>,
}

impl IssuedCertificate {
    /// What a certificate says. `None` if it is none of a member.
    fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let names = MemberName::all_of(certificate);
        let serial = EndEntityCert::try_from(certificate).ok()?.serial().to_vec();
        (!names.is_empty()).then_some(Self { names, serial })
    }

    fn is_of(&self, name: &str) -> bool {
        self.names.iter().any(|it| it.name == name)
    }

    fn revoked(&self) -> impl Iterator<Item = RevokedCertificate> + '_ {
        self.names.iter().map(|it| RevokedCertificate {
            role: it.role,
            name: it.name.clone(),
            serial: digits(&self.serial),
        })
    }
}

/// An entry of the list: the serial number, and when it was revoked.
type Entry = (Vec<u8>, SystemTime);

impl Authority {
    /// Revokes all certificates of members that were made until now, and writes the list for all others. Gives those that were not revoked before.
    ///
    /// # Errors
    /// It has made no certificate of such a name, or a file cannot be read or written.
    pub fn revoke(&self, names: &[String]) -> Result<Vec<RevokedCertificate>, ClusterError> {
        let issued = self.issued()?;
        for name in names {
            if !issued.iter().any(|it| it.is_of(name)) {
                return Err(failed(self.dir(), unknown(name, &issued)));
            }
        }
        let is_named = |it: &IssuedCertificate| names.iter().any(|name| it.is_of(name));
        self.revoke_all(issued.into_iter().filter(is_named).collect())
    }

    /// The same for the certificate in a file.
    ///
    /// # Errors
    /// There is none of a member of this authority's, or a file cannot be read or written.
    pub fn revoke_certificate(&self, path: &Path) -> Result<Vec<RevokedCertificate>, ClusterError> {
        let certificate = CertificateDer::from_pem_file(path);
        let certificate = certificate
            .map_err(|error| failed(path, format!("there is no certificate in PEM: {error}")))?;
        let own = self.dir().join(AUTHORITY);
        let own = CertificateDer::from_pem_file(&own)
            .map_err(|error| failed(&own, format!("it cannot be read: {error}")))?;
        let issuer = EndEntityCert::try_from(&certificate).map(|it| it.issuer().to_vec());
        let subject = EndEntityCert::try_from(&own).map(|it| it.subject().to_vec());
        let issued = IssuedCertificate::of(&certificate);
        match (issuer, subject, issued) {
            (Ok(issuer), Ok(subject), Some(issued)) if issuer == subject => {
                self.revoke_all(vec![issued])
            }
            _ => Err(failed(
                path,
                format!(
                    "it is no certificate of a member that the authority in {} has made",
                    self.dir().display()
                ),
            )),
        }
    }

    fn revoke_all(
        &self,
        issued: Vec<IssuedCertificate>,
    ) -> Result<Vec<RevokedCertificate>, ClusterError> {
        let mut entries = self.entries()?;
        let now = SystemTime::now();
        let mut revoked = Vec::new();
        for certificate in issued {
            if !entries
                .iter()
                .any(|(serial, _)| *serial == certificate.serial)
            {
                revoked.extend(certificate.revoked());
                entries.push((certificate.serial, now));
            }
        }
        // Also if there is no new one: whoever ended this the last time may have done so before all had it.
        self.write_list(&entries)?;
        Ok(revoked)
    }

    /// Whether a certificate is revoked.
    ///
    /// # Errors
    /// The list cannot be read.
    pub(super) fn is_revoked(
        &self,
        certificate: &CertificateDer<'_>,
    ) -> Result<bool, ClusterError> {
        let Some(issued) = IssuedCertificate::of(certificate) else {
            return Ok(false);
        };
        let entries = self.entries()?;
        Ok(entries.iter().any(|(serial, _)| *serial == issued.serial))
    }

    /// Gives a member the list, if there is one.
    ///
    /// # Errors
    /// It cannot be read or written.
    pub(super) fn copy_list(&self, member: &Path) -> Result<(), ClusterError> {
        let path = self.dir().join(REVOKED);
        match fs::read(&path) {
            Ok(list) => write_whole(&member.join(REVOKED), &list),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(failed(&path, error.to_string())),
        }
    }

    /// Notes a certificate, before anybody has its key.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn note(
        &self,
        certificate: &CertificateDer<'_>,
        pem: &[u8],
    ) -> Result<(), ClusterError> {
        let Some(issued) = IssuedCertificate::of(certificate) else {
            return Ok(());
        };
        let dir = self.dir().join(ISSUED);
        make_directory(&dir)?;
        let path = dir.join(format!("{}.pem", digits(&issued.serial)));
        match path.exists() {
            true => Ok(()),
            false => write_whole(&path, pem),
        }
    }

    /// The certificates that the authority has made, as far as it knows: those that were noted, and those of its members' directories.
    fn issued(&self) -> Result<Vec<IssuedCertificate>, ClusterError> {
        let mut issued: Vec<IssuedCertificate> = Vec::new();
        let noted = self.dir().join(ISSUED);
        let noted = match noted.exists() {
            true => paths(&noted)?,
            false => Vec::new(),
        };
        let of_members = paths(self.dir())?
            .into_iter()
            .map(|it| it.join(CERTIFICATE));
        for path in noted.into_iter().chain(of_members) {
            let found = CertificateDer::from_pem_file(&path).ok();
            if let Some(found) = found.as_ref().and_then(IssuedCertificate::of)
                && !issued.iter().any(|it| it.serial == found.serial)
            {
                issued.push(found);
            }
        }
        Ok(issued)
    }

    /// The entries of the list as it is.
    fn entries(&self) -> Result<Vec<Entry>, ClusterError> {
        let path = self.dir().join(REVOKED);
        if !path.exists() {
            return Ok(Vec::new());
        }
        let damaged = |why: String| {
            failed(
                &path,
                format!("the list of revoked certificates is damaged: {why}"),
            )
        };
        let list = CertificateRevocationListDer::from_pem_file(&path);
        let list = list.map_err(|error| damaged(error.to_string()))?;
        let list = BorrowedCertRevocationList::from_der(&list);
        let list = list.map_err(|error| damaged(error.to_string()))?;
        let entries = list.into_iter().map(|entry| {
            let entry = entry.map_err(|error| damaged(error.to_string()))?;
            let since = Duration::from_secs(entry.revocation_date.as_secs());
            Ok((entry.serial_number.to_vec(), UNIX_EPOCH + since))
        });
        entries.collect()
    }

    /// Writes the list, first for the authority, then for the members whose certificates are not in it.
    fn write_list(&self, entries: &[Entry]) -> Result<(), ClusterError> {
        let path = self.dir().join(REVOKED);
        let now = SystemTime::now();
        // A list has a higher number than those before.
        let number = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let list = CertificateRevocationListParams {
            this_update: now.into(),
            // Members do not ask for a newer one: it is given to them when there is one.
            next_update: (now + DAY * AUTHORITY_DAYS).into(),
            crl_number: SerialNumber::from(number.as_millis() as u64),
            issuing_distribution_point: None,
            revoked_certs: entries
                .iter()
                .map(|(serial, revoked)| RevokedCertParams {
                    serial_number: SerialNumber::from_slice(serial),
                    revocation_time: (*revoked).into(),
                    reason_code: Some(RevocationReason::KeyCompromise),
                    invalidity_date: None,
                })
                .collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let issuer = Issuer::new(self.parameters(), self.key());
        let list = list.signed_by(&issuer).and_then(|it| it.pem());
        let list = list.map_err(|error| not_made(&path, &error))?;
        write_whole(&path, list.as_bytes())?;
        for dir in paths(self.dir())? {
            let Ok(certificate) = CertificateDer::from_pem_file(dir.join(CERTIFICATE)) else {
                continue;
            };
            let serial = IssuedCertificate::of(&certificate).map(|it| it.serial);
            if !entries
                .iter()
                .any(|(revoked, _)| Some(revoked) == serial.as_ref())
            {
                write_whole(&dir.join(REVOKED), list.as_bytes())?;
            }
        }
        Ok(())
    }
}

fn unknown(name: &str, issued: &[IssuedCertificate]) -> String {
    let mut known: Vec<MemberName> = issued.iter().flat_map(|it| it.names.clone()).collect();
    known.sort_by(|a, b| (a.role, &a.name).cmp(&(b.role, &b.name)));
    known.dedup();
    let known = match known.is_empty() {
        true => "none".to_owned(),
        false => format!("those of {}", in_words(&known)),
    };
    format!(
        "the authority has made no certificate for {name:?}, as far as its directory says: it has made {known}; give --certificate FILE \
         if you have the certificate"
    )
}

fn paths(dir: &Path) -> Result<Vec<PathBuf>, ClusterError> {
    let io = |error: std::io::Error| failed(dir, error.to_string());
    let entries = fs::read_dir(dir).map_err(io)?;
    entries.map(|entry| Ok(entry.map_err(io)?.path())).collect()
}

fn digits(serial: &[u8]) -> String {
    serial.iter().map(|it| format!("{it:02x}")).collect()
}
