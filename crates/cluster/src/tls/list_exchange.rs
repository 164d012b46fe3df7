//! Members give each other the newest list of revoked certificates: it is enough that one of them has it.
//!
//! A member takes a list of the authority that has made its own certificate, if that authority has signed it and it has all that is in the
//! one that the member has. So whatever another member says, nobody who is revoked is let in again.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateRevocationListDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{CertificateError, Error, RootCertStore};
use serde::{Deserialize, Serialize};
use tracing::{info, warn};
use webpki::{BorrowedCertRevocationList, CertRevocationList, EndEntityCert};
use xxhash_rust::xxh3::xxh3_64;

use super::authority::write_whole;
use super::{AUTHORITY, CERTIFICATE, Certificates, REVOKED, certificates};

const BEGIN: &str = "-----BEGIN X509 CRL-----";
/// Bytes of the longest list that is taken.
const LONGEST_LIST: usize = 1 << 20;

/// What a member says of its list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListNews {
    /// The digest of the list that it has; 0 if it has none.
    pub digest: u64,
    /// The list in PEM, if the other member has another one, or may have.
    pub list: Option<String>,
}

/// The list of the authority that has made the member's certificate.
#[derive(Debug, Clone, Default)]
pub(super) struct OwnList {
    digest: u64,
    pem: String,
}

/// One of the lists of a file.
struct List {
    pem: String,
    der: CertificateRevocationListDer<'static>,
}

impl List {
    /// Those of a text, in which there may be none.
    fn all_of(text: &str) -> Result<Vec<Self>, String> {
        let damaged = |error: &dyn std::fmt::Display| format!("{REVOKED} is damaged: {error}");
        let blocks = text.match_indices(BEGIN).map(|(at, _)| at);
        let ends = blocks.clone().skip(1).chain([text.len()]);
        let lists = blocks.zip(ends).map(|(begin, end)| {
            let pem = text[begin..end].trim_end().to_owned();
            let der = CertificateRevocationListDer::from_pem_slice(pem.as_bytes());
            let der = der.map_err(|error| damaged(&error))?;
            BorrowedCertRevocationList::from_der(&der).map_err(|error| damaged(&error))?;
            Ok(Self { pem, der })
        });
        lists.collect()
    }

    fn is_of(&self, issuer: &[u8]) -> bool {
        BorrowedCertRevocationList::from_der(&self.der)
            .is_ok_and(|list| CertRevocationList::from(list).issuer() == issuer)
    }

    /// The serial numbers in it.
    fn serials(&self) -> Vec<Vec<u8>> {
        let Ok(list) = BorrowedCertRevocationList::from_der(&self.der) else {
            return Vec::new();
        };
        let entries = list.into_iter().flatten();
        entries.map(|entry| entry.serial_number.to_vec()).collect()
    }

    fn has_all_of(&self, other: &Self) -> bool {
        let own = self.serials();
        other.serials().iter().all(|serial| own.contains(serial))
    }
}

/// The list of a member's directory that others may take from it.
pub(super) fn own_list(dir: &Path) -> OwnList {
    let found = || -> Option<OwnList> {
        let text = fs::read_to_string(dir.join(REVOKED)).ok()?;
        let issuer = own_issuer(dir).ok()?;
        let lists = List::all_of(&text).ok()?;
        let own = lists.into_iter().find(|list| list.is_of(&issuer))?;
        Some(OwnList {
            digest: xxh3_64(&own.der),
            pem: own.pem,
        })
    };
    found().unwrap_or_default()
}

/// The name of the authority that has made a member's certificate.
fn own_issuer(dir: &Path) -> Result<Vec<u8>, String> {
    let chain = certificates(dir, CERTIFICATE)?;
    let own = chain.first().ok_or("there is no certificate")?;
    let own = EndEntityCert::try_from(own).map_err(|error| error.to_string())?;
    Ok(own.issuer().to_vec())
}

/// What a list is for a member.
enum Outcome {
    Taken,
    /// It has it, or a newer one, already.
    NotNewer,
    /// It is in it itself: others do not speak to it any more.
    RevokesOwn,
}

impl Certificates {
    /// What to say of the list to a member that has the list of this digest; nothing is known of it if that is `None`.
    pub fn news_for(&self, digest: Option<u64>) -> ListNews {
        let own = &self.loaded().own_list;
        let differs = digest.is_some_and(|digest| digest != own.digest);
        ListNews {
            digest: own.digest,
            list: (differs && own.digest != 0).then(|| own.pem.clone()),
        }
    }

    /// Takes the list of another member, if it is one to take. It is used within seconds, as one that is copied into the directory.
    pub fn take_news(&self, from: &str, news: &ListNews) {
        let Some(list) = &news.list else {
            return;
        };
        match take(&self.dir, list) {
            Ok(Outcome::Taken) => info!(from, "a new list of revoked certificates is taken"),
            Ok(Outcome::NotNewer) => {}
            Ok(Outcome::RevokesOwn) => self.say_once(news.digest, || {
                warn!(from, "the certificate of this member has been revoked");
            }),
            Err(why) => self.say_once(news.digest, || {
                warn!(from, why, "its list of revoked certificates is not taken");
            }),
        }
    }
}

fn take(dir: &Path, pem: &str) -> Result<Outcome, String> {
    if pem.len() > LONGEST_LIST {
        return Err(format!("it has more than {LONGEST_LIST} bytes"));
    }
    let issuer = own_issuer(dir)?;
    let mut offered = List::all_of(pem)?.into_iter();
    let offered = offered.find(|list| list.is_of(&issuer)).ok_or(
        "it is of another authority than the certificate of this member: copy it to each member",
    )?;
    let kept = match fs::read_to_string(dir.join(REVOKED)) {
        Ok(text) => List::all_of(&text)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(format!("{REVOKED} cannot be read: {error}")),
    };
    let (own, others): (Vec<List>, Vec<List>) =
        kept.into_iter().partition(|list| list.is_of(&issuer));
    if let Some(own) = own.first() {
        if own.has_all_of(&offered) {
            return Ok(Outcome::NotNewer);
        }
        if !offered.has_all_of(own) {
            return Err("it lacks what is in the list of this member, which lacks what is in it: copy the newer one to each member".to_owned());
        }
    }
    if is_revoked_by(dir, &offered)? {
        return Ok(Outcome::RevokesOwn);
    }
    let all = std::iter::once(&offered).chain(&others);
    let text: String = all.map(|list| format!("{}\n", list.pem)).collect();
    let written = write_whole(&dir.join(REVOKED), text.as_bytes());
    written.map_err(|error| error.to_string())?;
    Ok(Outcome::Taken)
}

/// Whether the member's own certificate is in a list, which its authority has to have signed.
fn is_revoked_by(dir: &Path, list: &List) -> Result<bool, String> {
    let mut trusted = RootCertStore::empty();
    for authority in certificates(dir, AUTHORITY)? {
        trusted.add(authority).map_err(|error| error.to_string())?;
    }
    let chain = certificates(dir, CERTIFICATE)?;
    let (own, others) = chain.split_first().ok_or("there is no certificate")?;
    let provider = Arc::new(ring::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(trusted), Arc::clone(&provider))
            .with_crls([list.der.clone()])
            .only_check_end_entity_revocation();
    let verifier = verifier.build().map_err(|error| error.to_string())?;
    // The signature of the list is verified with that of the certificate, of which the list tells.
    match verifier.verify_client_cert(own, others, UnixTime::now()) {
        Ok(_) => Ok(false),
        Err(Error::InvalidCertificate(CertificateError::Revoked)) => Ok(true),
        Err(error) => Err(format!("its signature cannot be verified: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{authority, opened};
    use super::super::{Authority, Role};
    use super::*;

    fn list(dir: &Path, member: &str) -> String {
        fs::read_to_string(dir.join(member).join(REVOKED)).unwrap_or_default()
    }

    #[test]
    fn a_list_goes_from_one_member_to_another() {
        let dir = authority(9);
        let worker = opened(&dir, "w2.example.org", Role::Worker);
        assert_eq!(worker.news_for(Some(0)), ListNews::default());
        let authority = Authority::existing(dir.path()).unwrap();
        authority.revoke(&["w1".to_owned()]).unwrap();
        // As if the list had been copied to the front end alone.
        fs::remove_file(dir.path().join("w2.example.org").join(REVOKED)).unwrap();
        let front_end = opened(&dir, "f", Role::FrontEnd);
        let news = front_end.news_for(Some(0));
        assert!(news.list.is_some());
        assert_eq!(front_end.news_for(None).list, None);
        worker.take_news("f", &news);
        assert_eq!(list(dir.path(), "w2.example.org"), list(dir.path(), "f"));
        let again = opened(&dir, "w2.example.org", Role::Worker);
        assert_eq!(again.news_for(Some(news.digest)).list, None);
        // An older list takes nothing away.
        let former = news;
        authority.make_member(Role::Worker, "w3", 9, false).unwrap();
        authority.revoke(&["w3".to_owned()]).unwrap();
        let newer = list(dir.path(), "w2.example.org");
        worker.take_news("f", &former);
        assert_eq!(list(dir.path(), "w2.example.org"), newer);
    }

    #[test]
    fn lists_that_are_not_right_are_not_taken() {
        let (dir, elsewhere) = (authority(9), authority(9));
        let own = dir.path().join("f");
        Authority::existing(elsewhere.path())
            .unwrap()
            .revoke(&["w1".to_owned()])
            .unwrap();
        // Of an authority of the same name with another key.
        let foreign = list(elsewhere.path(), "f");
        let told = take(&own, &foreign).err().unwrap();
        assert!(
            told.contains("signature") || told.contains("another authority"),
            "{told}"
        );
        assert!(take(&own, "nothing").is_err());
        let authority = Authority::existing(dir.path()).unwrap();
        authority.revoke(&["w1".to_owned()]).unwrap();
        let right = list(dir.path(), "f");
        fs::remove_file(own.join(REVOKED)).unwrap();
        let middle = right.len() / 2;
        let changed: String = { right.char_indices() }
            .map(|(at, c)| match (at == middle, c) {
                (true, 'A') => 'B',
                (true, _) => 'A',
                (false, c) => c,
            })
            .collect();
        assert!(take(&own, &changed).is_err());
        assert!(!own.join(REVOKED).exists());
        assert!(matches!(take(&own, &right), Ok(Outcome::Taken)));
        assert!(matches!(take(&own, &right), Ok(Outcome::NotNewer)));
        // Whoever is in it goes on without it, and is refused by all others.
        let stolen = dir.path().join("w1");
        assert!(matches!(take(&stolen, &right), Ok(Outcome::RevokesOwn)));
        assert!(!stolen.join(REVOKED).exists());
    }
}
