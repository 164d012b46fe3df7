//! Passwords and tokens: what is kept of them, and how what a client sends is verified.

use argon2::Argon2;
use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{self, SHA1_FOR_LEGACY_USE_ONLY};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::UsersError;

/// Bytes of the longest password.
const LONGEST: usize = 256;
const SALT: usize = 16;
/// Random bytes of a token.
const TOKEN: usize = 24;
/// With which tokens begin, so that they are recognised where they should not be.
const PREFIX: &str = "mrd_";

/// The hash that a password is compared with where there is no such user, so that it takes as long: argon2id of nothing that anybody knows.
pub const NO_USER: &str = "$argon2id$v=19$m=19456,t=2,p=1$bWVyaWRpYW5ub25lMDAwMA$0000000000000000000000000000000000000000000";

/// What is kept of a password.
#[derive(Debug, Clone)]
pub(crate) struct Secret {
    /// argon2id, in PHC's string format.
    pub(crate) hash: String,
    /// SHA-256 of the SHA-256 of the password, as MySQL's `caching_sha2_password` needs it for its challenge.
    pub(crate) challenge: [u8; 32],
    /// SHA-1 of the SHA-1 of the password, as `mysql_native_password` needs it: kept only where [`NativePassword`] says so.
    pub(crate) native: [u8; 20],
}

/// Whether what `mysql_native_password` needs is kept of a password that is set. SHA-1 is guessed faster than the other hashes, and MySQL's
/// servers that use the plugin keep the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NativePassword {
    /// No.
    NotKept,
    /// If it was kept of the user's former password.
    AsBefore,
    /// Yes.
    Kept,
}

impl Secret {
    pub(crate) fn of(password: &str) -> Result<Self, UsersError> {
        if password.is_empty() || password.len() > LONGEST || password.contains('\0') {
            return Err(UsersError::BadPassword);
        }
        let mut salt = [0; SALT];
        getrandom::fill(&mut salt).map_err(|_| UsersError::NoRandomness)?;
        let salt = SaltString::encode_b64(&salt).map_err(|_| UsersError::NoRandomness)?;
        let hash = Argon2::default()
            .hash_password(password.as_bytes(), &salt)
            .map_err(|_| UsersError::BadPassword)?;
        Ok(Self {
            hash: hash.to_string(),
            challenge: sha256(&[&sha256(&[password.as_bytes()])]),
            native: sha1(&[&sha1(&[password.as_bytes()])]),
        })
    }
}

/// Whether a password is that of a hash, which may be [`NO_USER`]. A user without a password has none that fits. It takes some tens of
/// milliseconds and 19 MiB.
pub fn verify_password(hash: Option<&str>, password: &str) -> bool {
    let parsed = PasswordHash::new(hash.unwrap_or(NO_USER));
    let fits = parsed.is_ok_and(|hash| {
        Argon2::default()
            .verify_password(password.as_bytes(), &hash)
            .is_ok()
    });
    fits && hash.is_some()
}

/// The random bytes with which a client of MySQL's hashes its password.
#[derive(Debug, Clone, Copy)]
pub struct Scramble<'a>(pub &'a [u8]);

impl Scramble<'_> {
    /// Whether a response of `caching_sha2_password` is that of the password of a user's challenge: SHA-256 of the password, combined by
    /// exclusive or with SHA-256 of the challenge and the random bytes.
    pub fn is_answered(&self, challenge: &[u8; 32], response: &[u8]) -> bool {
        let Ok(response) = <[u8; 32]>::try_from(response) else {
            return false;
        };
        let mask = sha256(&[challenge, self.0]);
        let mut once = response;
        once.iter_mut()
            .zip(mask)
            .for_each(|(byte, mask)| *byte ^= mask);
        sha256(&[&once]).ct_eq(challenge).into()
    }

    /// Whether a response of `mysql_native_password` is that of the password whose twofold SHA-1 is kept: SHA-1 of the password, combined
    /// by exclusive or with SHA-1 of the random bytes and what is kept.
    pub fn is_answered_natively(&self, kept: &[u8; 20], response: &[u8]) -> bool {
        let Ok(response) = <[u8; 20]>::try_from(response) else {
            return false;
        };
        let mask = sha1(&[self.0, kept]);
        let mut once = response;
        once.iter_mut()
            .zip(mask)
            .for_each(|(byte, mask)| *byte ^= mask);
        sha1(&[&once]).ct_eq(kept).into()
    }
}

/// A token, by which a user is let in without a password.
#[derive(Clone)]
pub struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    pub(crate) fn random() -> Result<Self, UsersError> {
        let mut bytes = [0; TOKEN];
        getrandom::fill(&mut bytes).map_err(|_| UsersError::NoRandomness)?;
        Ok(Self(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))))
    }

    /// The text that is given to the user, once.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// What is kept of it.
    pub(crate) fn hash(text: &str) -> [u8; 32] {
        sha256(&[text.as_bytes()])
    }

    /// Whether a text may be a token.
    pub fn may_be(text: &str) -> bool {
        text.starts_with(PREFIX)
    }
}

/// SHA-256 of texts, which do not run into each other.
pub fn fingerprint(texts: &[&str]) -> [u8; 32] {
    let hashes: Vec<[u8; 32]> = texts
        .iter()
        .map(|text| sha256(&[text.as_bytes()]))
        .collect();
    let parts: Vec<&[u8]> = hashes.iter().map(<[u8; 32]>::as_slice).collect();
    sha256(&parts)
}

fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize().into()
}

fn sha1(parts: &[&[u8]]) -> [u8; 20] {
    let mut hasher = digest::Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    for part in parts {
        hasher.update(part);
    }
    let mut hash = [0; 20];
    // SHA-1 has 20 bytes.
    hash.copy_from_slice(hasher.finish().as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a client answers: MySQL's documentation of `caching_sha2_password`.
    fn answer(password: &str, nonce: &[u8]) -> Vec<u8> {
        let once = sha256(&[password.as_bytes()]);
        let mask = sha256(&[&sha256(&[&once]), nonce]);
        once.iter()
            .zip(mask)
            .map(|(byte, mask)| byte ^ mask)
            .collect()
    }

    #[test]
    fn challenges_are_answered_by_the_password_alone() {
        let secret = Secret::of("pässword").unwrap();
        let nonce = Scramble(b"abcdefghijklmnopqrst");
        assert!(nonce.is_answered(&secret.challenge, &answer("pässword", nonce.0)));
        assert!(!nonce.is_answered(&secret.challenge, &answer("password", nonce.0)));
        assert!(!Scramble(b"another").is_answered(&secret.challenge, &answer("pässword", nonce.0)));
        for wrong in [&[][..], &[0], &[0; 32], &[0; 33]] {
            assert!(!nonce.is_answered(&secret.challenge, wrong));
        }
    }

    #[test]
    fn native_responses_are_those_of_the_password_alone() {
        // Of `SELECT SHA1(UNHEX(SHA1('secret')))`, in MySQL's notation *14E65567ABDB5135D0CFD9A70B3032C179A49EE7.
        let kept = Secret::of("secret").unwrap().native;
        assert_eq!(kept[..4], [0x14, 0xe6, 0x55, 0x67]);
        let nonce = Scramble(b"abcdefghijklmnopqrst");
        // As a client answers: MySQL's documentation of `mysql_native_password`.
        let answer = |password: &str| -> Vec<u8> {
            let once = sha1(&[password.as_bytes()]);
            let mask = sha1(&[nonce.0, &sha1(&[&once])]);
            once.iter()
                .zip(mask)
                .map(|(byte, mask)| byte ^ mask)
                .collect()
        };
        assert!(nonce.is_answered_natively(&kept, &answer("secret")));
        assert!(!nonce.is_answered_natively(&kept, &answer("Secret")));
        assert!(!Scramble(b"another").is_answered_natively(&kept, &answer("secret")));
        for wrong in [&[][..], &[0], &[0; 20], &[0; 32]] {
            assert!(!nonce.is_answered_natively(&kept, wrong));
        }
    }

    #[test]
    fn nobody_has_the_password_of_no_user() {
        assert!(PasswordHash::new(NO_USER).is_ok());
        assert!(!verify_password(None, ""));
    }
}
