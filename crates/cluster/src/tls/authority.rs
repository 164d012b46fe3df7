//! A small certificate authority: what `meridian cluster init` makes.
//!
//! ```text
//!   DIR/ca.pem, ca.key          the authority; the key makes members, and no member needs it
//!   DIR/NAME/ca.pem, crl.pem    what a member is given with --cluster-tls: whom it trusts,
//!            cert.pem, key.pem  and who it is
//! ```
//!
//! Keys are of the curve P-256, certificates are those of RFC 5280 with the names of [`super::identity`].

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData,
};
use ring::digest::{SHA256, digest};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::identity::{MemberName, Role};
use super::{AUTHORITY, CERTIFICATE, KEY};
use crate::ClusterError;

const AUTHORITY_KEY: &str = "ca.key";
pub(super) const DAY: Duration = Duration::from_secs(86_400);
/// How long the authority's own certificate is valid.
pub(super) const AUTHORITY_DAYS: u32 = 3650;
/// Clocks of the members may differ by so much.
const CLOCK_SKEW: Duration = Duration::from_secs(3600);

/// A certificate authority in a directory.
#[derive(Debug)]
pub struct Authority {
    dir: PathBuf,
    key: KeyPair,
    is_new: bool,
}

impl Authority {
    /// Opens the authority in a directory, where there is one.
    ///
    /// # Errors
    /// There is none, a file cannot be read or written, or the key is damaged.
    pub fn existing(dir: &Path) -> Result<Self, ClusterError> {
        match dir.join(AUTHORITY_KEY).exists() {
            true => Self::open(dir),
            false => Err(failed(
                dir,
                format!(
                    "there is no authority ({AUTHORITY_KEY}) here: give the directory that `meridian cluster init` has made"
                ),
            )),
        }
    }

    /// Opens the authority in a directory, or makes one if there is none.
    ///
    /// # Errors
    /// A file cannot be read or written, or the key is damaged.
    pub fn open(dir: &Path) -> Result<Self, ClusterError> {
        make_directory(dir)?;
        let path = dir.join(AUTHORITY_KEY);
        if path.exists() {
            let damaged =
                |why: String| failed(&path, format!("it is no private key in PEM: {why}"));
            let text = fs::read_to_string(&path).map_err(|error| damaged(error.to_string()))?;
            let authority = Self {
                dir: dir.to_owned(),
                key: KeyPair::from_pem(&text).map_err(|error| damaged(error.to_string()))?,
                is_new: false,
            };
            // Whoever ended this the last time may have done so between the two.
            authority.write_own_certificate_if_missing()?;
            return Ok(authority);
        }
        let authority = Self {
            dir: dir.to_owned(),
            key: new_key().map_err(|error| not_made(&path, &error))?,
            is_new: true,
        };
        write_whole(&path, authority.key.serialize_pem().as_bytes())?;
        authority.write_own_certificate_if_missing()?;
        Ok(authority)
    }

    fn write_own_certificate_if_missing(&self) -> Result<(), ClusterError> {
        let path = self.dir.join(AUTHORITY);
        match path.exists() {
            true => Ok(()),
            false => {
                let certificate = self.parameters().self_signed(&self.key);
                let certificate = certificate.map_err(|error| not_made(&path, &error))?;
                write_whole(&path, certificate.pem().as_bytes())
            }
        }
    }

    /// Whether it was made a moment ago.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn key(&self) -> &KeyPair {
        &self.key
    }

    /// The names of members that have certificates which are not revoked.
    ///
    /// # Errors
    /// The directory or the list of revoked certificates cannot be read.
    pub fn members(&self) -> Result<Vec<(Role, String)>, ClusterError> {
        let io = |error: std::io::Error| failed(&self.dir, error.to_string());
        let mut members = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(io)? {
            let path = entry.map_err(io)?.path().join(CERTIFICATE);
            if let Ok(certificate) = CertificateDer::from_pem_file(&path)
                && !self.is_revoked(&certificate)?
            {
                let names = MemberName::all_of(&certificate).into_iter();
                members.extend(names.map(|it| (it.role, it.name)));
            }
        }
        members.sort();
        Ok(members)
    }

    /// Makes the certificate of a member, valid for so many days, in the directory that is returned. One that is there is replaced, with its
    /// key, if it may be or is revoked.
    ///
    /// # Errors
    /// The name cannot be one, there is a certificate already, or a file cannot be written.
    pub fn make_member(
        &self,
        role: Role,
        name: &str,
        days: u32,
        replace: bool,
    ) -> Result<PathBuf, ClusterError> {
        let dir = self.dir.join(name);
        let member = MemberName::new(role, name).map_err(|why| failed(&self.dir, why))?;
        let former = dir.join(CERTIFICATE);
        if former.exists() {
            let certificate = CertificateDer::from_pem_file(&former);
            let is_revoked = match &certificate {
                Ok(certificate) => self.is_revoked(certificate)?,
                Err(_) => false,
            };
            if !replace && !is_revoked {
                let why = "there is a certificate already: --renew makes another in its place";
                return Err(failed(&dir, why.to_owned()));
            }
            // Whoever has its key can use it until it is revoked.
            if let Ok(certificate) = certificate {
                let pem = fs::read(&former).map_err(|error| failed(&former, error.to_string()))?;
                self.note(&certificate, &pem)?;
            }
        }
        make_directory(&dir)?;
        let key = new_key().map_err(|error| not_made(&dir, &error))?;
        let certificate = self.certificate_of(&member, &key, days);
        let certificate = certificate.map_err(|error| not_made(&dir, &error))?;
        let pem = certificate.pem();
        self.note(certificate.der(), pem.as_bytes())?;
        let authority = self.dir.join(AUTHORITY);
        let trusted =
            fs::read(&authority).map_err(|error| failed(&authority, error.to_string()))?;
        write_whole(&dir.join(AUTHORITY), &trusted)?;
        self.copy_list(&dir)?;
        write_whole(&dir.join(KEY), key.serialize_pem().as_bytes())?;
        write_whole(&dir.join(CERTIFICATE), pem.as_bytes())?;
        Ok(dir)
    }

    /// What the authority's certificate says. Its name tells authorities apart, which are all called alike otherwise.
    pub(super) fn parameters(&self) -> CertificateParams {
        let identifier = digest(&SHA256, self.key.der_bytes());
        let digits = identifier.as_ref()[..4]
            .iter()
            .map(|it| format!("{it:02x}"));
        let name = format!("Meridian cluster {}", digits.collect::<String>());
        let mut parameters = valid_for(CertificateParams::default(), &name, AUTHORITY_DAYS);
        // It signs members, and no other authorities.
        parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        parameters
    }

    /// The certificate of a member.
    fn certificate_of(
        &self,
        member: &MemberName,
        key: &KeyPair,
        days: u32,
    ) -> Result<rcgen::Certificate, rcgen::Error> {
        let names = CertificateParams::new(member.dns_names())?;
        let mut parameters = valid_for(names, &member.name, days);
        parameters.is_ca = IsCa::ExplicitNoCa;
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        parameters.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        parameters.use_authority_key_identifier_extension = true;
        let issuer = Issuer::new(self.parameters(), &self.key);
        parameters.signed_by(key, &issuer)
    }
}

/// The same for a subject of this name, valid from now on for so many days.
fn valid_for(mut parameters: CertificateParams, name: &str, days: u32) -> CertificateParams {
    let now = SystemTime::now();
    parameters.not_before = (now - CLOCK_SKEW).into();
    parameters.not_after = (now + DAY * days).into();
    // The name that the library gives it goes.
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters
}

fn new_key() -> Result<KeyPair, rcgen::Error> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)
}

pub(super) fn not_made(path: &Path, error: &rcgen::Error) -> ClusterError {
    failed(path, format!("no certificate can be made: {error}"))
}

pub(super) fn make_directory(dir: &Path) -> Result<(), ClusterError> {
    let mut builder = fs::DirBuilder::new();
    let made = builder.recursive(true).mode(0o700).create(dir);
    made.map_err(|error| failed(dir, error.to_string()))
}

/// Writes a file that its owner alone reads, as a whole or not at all.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), ClusterError> {
    let written = || -> std::io::Result<()> {
        let temporary = path.with_extension("new");
        let _ = fs::remove_file(&temporary);
        let mut options = fs::OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    written().map_err(|error| failed(path, format!("it cannot be written: {error}")))
}

pub(super) fn failed(path: &Path, why: String) -> ClusterError {
    ClusterError::Directory {
        path: path.to_owned(),
        why,
    }
}
