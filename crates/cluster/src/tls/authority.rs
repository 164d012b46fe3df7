//! A small certificate authority: what `meridian cluster init` makes.
//!
//! ```text
//!   DIR/ca.pem, ca.key          the authority; the key makes members, and no member needs it
//!   DIR/NAME/ca.pem             what a member is given with --cluster-tls: whom it trusts,
//!            cert.pem, key.pem  and who it is
//! ```
//!
//! Keys are of the curve P-256, certificates are those of RFC 5280 with the names of [`super::identity`].

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;

use super::der;
use super::identity::{MemberName, Role};
use super::{AUTHORITY, CERTIFICATE, KEY};
use crate::ClusterError;

const AUTHORITY_KEY: &str = "ca.key";
const DAY: Duration = Duration::from_secs(86_400);
/// How long the authority's own certificate is valid.
const AUTHORITY_DAYS: u32 = 3650;
/// Clocks of the members may differ by so much.
const CLOCK_SKEW: Duration = Duration::from_secs(3600);

const ECDSA_WITH_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const PRIME256V1: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
const SUBJECT_KEY_IDENTIFIER: &[u8] = &[0x55, 0x1d, 0x0e];
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x0f];
const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
const AUTHORITY_KEY_IDENTIFIER: &[u8] = &[0x55, 0x1d, 0x23];
const EXTENDED_KEY_USAGE: &[u8] = &[0x55, 0x1d, 0x25];
const SERVER_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];
const CLIENT_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02];
/// Tags of the context, as RFC 5280 numbers them.
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
const DNS_NAME: u8 = 0x82;
const KEY_IDENTIFIER: u8 = 0x80;

/// A certificate authority in a directory.
#[derive(Debug)]
pub struct Authority {
    dir: PathBuf,
    key: EcdsaKeyPair,
    is_new: bool,
}

/// What a certificate says.
struct Content<'a> {
    subject: &'a str,
    public_key: &'a [u8],
    valid: Duration,
    extensions: Vec<Vec<u8>>,
}

impl Authority {
    /// Opens the authority in a directory, or makes one if there is none.
    ///
    /// # Errors
    /// A file cannot be read or written, or the key is damaged.
    pub fn open(dir: &Path) -> Result<Self, ClusterError> {
        make_directory(dir)?;
        let path = dir.join(AUTHORITY_KEY);
        if path.exists() {
            let damaged = |why: String| failed(&path, why);
            let key = PrivatePkcs8KeyDer::from_pem_file(&path)
                .map_err(|error| damaged(format!("it is no private key in PEM: {error}")))?;
            let authority = Self {
                dir: dir.to_owned(),
                key: key_pair(key.secret_pkcs8_der()).map_err(damaged)?,
                is_new: false,
            };
            // Whoever ended this the last time may have done so between the two.
            authority.write_own_certificate_if_missing()?;
            return Ok(authority);
        }
        let pkcs8 = new_key().map_err(|why| failed(&path, why))?;
        let authority = Self {
            dir: dir.to_owned(),
            key: key_pair(&pkcs8).map_err(|why| failed(&path, why))?,
            is_new: true,
        };
        write(&path, "PRIVATE KEY", &pkcs8)?;
        authority.write_own_certificate_if_missing()?;
        Ok(authority)
    }

    fn write_own_certificate_if_missing(&self) -> Result<(), ClusterError> {
        let path = self.dir.join(AUTHORITY);
        match path.exists() {
            true => Ok(()),
            false => write(&path, "CERTIFICATE", &self.own_certificate()?),
        }
    }

    /// Whether it was made a moment ago.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// The names of members that have certificates.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn members(&self) -> Result<Vec<(Role, String)>, ClusterError> {
        let io = |error: std::io::Error| failed(&self.dir, error.to_string());
        let mut members = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(io)? {
            let path = entry.map_err(io)?.path().join(CERTIFICATE);
            if let Ok(certificate) = rustls::pki_types::CertificateDer::from_pem_file(&path) {
                let names = MemberName::all_of(&certificate).into_iter();
                members.extend(names.map(|it| (it.role, it.name)));
            }
        }
        members.sort();
        Ok(members)
    }

    /// Makes the certificate of a member, valid for so many days, in the directory that is returned. One that is there is replaced, with its
    /// key, if it may be.
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
        if !replace && dir.join(CERTIFICATE).exists() {
            let why = "there is a certificate already: --renew makes another in its place";
            return Err(failed(&dir, why.to_owned()));
        }
        make_directory(&dir)?;
        let pkcs8 = new_key().map_err(|why| failed(&dir, why))?;
        let key = key_pair(&pkcs8).map_err(|why| failed(&dir, why))?;
        let certificate = self.certificate_of(&member, &key, days)?;
        let authority = self.dir.join(AUTHORITY);
        let trusted =
            fs::read(&authority).map_err(|error| failed(&authority, error.to_string()))?;
        write_whole(&dir.join(AUTHORITY), &trusted)?;
        write(&dir.join(KEY), "PRIVATE KEY", &pkcs8)?;
        write(&dir.join(CERTIFICATE), "CERTIFICATE", &certificate)?;
        Ok(dir)
    }

    fn subject(&self) -> String {
        let identifier = key_identifier(self.key.public_key().as_ref());
        let digits: String = identifier[..4]
            .iter()
            .map(|it| format!("{it:02x}"))
            .collect();
        format!("Meridian cluster {digits}")
    }

    fn own_certificate(&self) -> Result<Vec<u8>, ClusterError> {
        let key = self.key.public_key().as_ref();
        let constraints = der::sequence(&[der::truth(), der::integer(&[0])]);
        self.sign(&Content {
            subject: &self.subject(),
            public_key: key,
            valid: DAY * AUTHORITY_DAYS,
            extensions: vec![
                extension(BASIC_CONSTRAINTS, true, &constraints),
                // Signs certificates, and lists of revoked ones.
                extension(KEY_USAGE, true, &der::bits_but(1, &[0b0000_0110])),
                subject_key(key),
            ],
        })
    }

    fn certificate_of(
        &self,
        member: &MemberName,
        key: &EcdsaKeyPair,
        days: u32,
    ) -> Result<Vec<u8>, ClusterError> {
        let public = key.public_key().as_ref();
        let issuer = key_identifier(self.key.public_key().as_ref());
        let issuer = der::sequence(&[der::value(KEY_IDENTIFIER, &issuer)]);
        let names = member.dns_names();
        let names = names.map(|name| der::value(DNS_NAME, name.as_bytes()));
        let purposes = der::sequence(&[der::object(SERVER_AUTH), der::object(CLIENT_AUTH)]);
        self.sign(&Content {
            subject: &member.name,
            public_key: public,
            valid: DAY * days,
            extensions: vec![
                extension(BASIC_CONSTRAINTS, true, &der::sequence(&[])),
                // Signs in handshakes.
                extension(KEY_USAGE, true, &der::bits_but(7, &[0b1000_0000])),
                extension(EXTENDED_KEY_USAGE, false, &purposes),
                extension(SUBJECT_ALT_NAME, false, &der::sequence(&names)),
                subject_key(public),
                extension(AUTHORITY_KEY_IDENTIFIER, false, &issuer),
            ],
        })
    }

    fn sign(&self, content: &Content<'_>) -> Result<Vec<u8>, ClusterError> {
        let mut serial = [0; 16];
        getrandom::fill(&mut serial).map_err(|error| failed(&self.dir, error.to_string()))?;
        let algorithm = der::sequence(&[der::object(ECDSA_WITH_SHA256)]);
        let now = SystemTime::now();
        let key = der::sequence(&[der::object(EC_PUBLIC_KEY), der::object(PRIME256V1)]);
        let body = der::sequence(&[
            der::value(VERSION, &der::integer(&[2])),
            der::integer(&serial),
            algorithm.clone(),
            der::common_name(&self.subject()),
            der::sequence(&[der::time(now - CLOCK_SKEW), der::time(now + content.valid)]),
            der::common_name(content.subject),
            der::sequence(&[key, der::bits(content.public_key)]),
            der::value(EXTENSIONS, &der::sequence(&content.extensions)),
        ]);
        let signature = self.key.sign(&SystemRandom::new(), &body);
        let signature =
            signature.map_err(|_| failed(&self.dir, "nothing can be signed".to_owned()))?;
        Ok(der::sequence(&[
            body,
            algorithm,
            der::bits(signature.as_ref()),
        ]))
    }
}

fn extension(identifier: &[u8], is_critical: bool, content: &[u8]) -> Vec<u8> {
    let mut values = vec![der::object(identifier)];
    values.extend(is_critical.then(der::truth));
    values.push(der::value(der::OCTET_STRING, content));
    der::sequence(&values)
}

fn subject_key(public_key: &[u8]) -> Vec<u8> {
    let identifier = der::value(der::OCTET_STRING, &key_identifier(public_key));
    extension(SUBJECT_KEY_IDENTIFIER, false, &identifier)
}

/// The first 160 bits of the key's SHA-256 (RFC 7093, section 2, method 1).
fn key_identifier(public_key: &[u8]) -> Vec<u8> {
    digest(&SHA256, public_key).as_ref()[..20].to_vec()
}

fn new_key() -> Result<Vec<u8>, String> {
    let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new());
    let made = made.map_err(|_| "no key can be made: the system gives no random numbers")?;
    Ok(made.as_ref().to_vec())
}

fn key_pair(pkcs8: &[u8]) -> Result<EcdsaKeyPair, String> {
    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8, &SystemRandom::new())
        .map_err(|error| format!("it is no key of the curve P-256: {error}"))
}

fn make_directory(dir: &Path) -> Result<(), ClusterError> {
    let mut builder = fs::DirBuilder::new();
    let made = builder.recursive(true).mode(0o700).create(dir);
    made.map_err(|error| failed(dir, error.to_string()))
}

/// Writes bytes as PEM (RFC 7468).
fn write(path: &Path, label: &str, bytes: &[u8]) -> Result<(), ClusterError> {
    let encoded = STANDARD.encode(bytes);
    let mut text = format!("-----BEGIN {label}-----\n");
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, more) = rest.split_at(rest.len().min(64));
        text.push_str(line);
        text.push('\n');
        rest = more;
    }
    text.push_str(&format!("-----END {label}-----\n"));
    write_whole(path, text.as_bytes())
}

/// Writes a file that its owner alone reads, as a whole or not at all.
fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), ClusterError> {
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

fn failed(path: &Path, why: String) -> ClusterError {
    ClusterError::Directory {
        path: path.to_owned(),
        why,
    }
}
