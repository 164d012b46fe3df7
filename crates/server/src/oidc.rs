//! Tokens of an identity provider: JWTs that an `OpenID` provider has signed, verified with the keys that it publishes.
//!
//! ```text
//!   token ──► its key, by `kid` ──► the signature ──► issuer, audience, times ──► the user, and groups that follow the provider
//!                └─ not known: the provider's keys are fetched anew, but not often
//! ```
//!
//! Sources: OpenID Connect Discovery 1.0, section 4; RFC 7519 (JWT), section 4.1; RFC 7517 (JWK); RFC 8725, what to beware of. The library
//! verifies signatures; claims are checked here, strictly: a claim of another type than it has to have is an error.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation, decode, decode_header};
use serde::Deserialize;
use serde_json::{Map, Value};
use tracing::{info, warn};
use url::Url;

use crate::http::fetch_document;

/// An identity provider whose tokens let users in.
#[derive(Debug, Clone)]
pub struct OidcOptions {
    /// Its address, as in the claim `iss`.
    pub issuer: String,
    /// Who a token has to be for, as in the claim `aud`.
    pub audience: String,
    /// The claim with the name that the user has here.
    pub user_claim: String,
    /// The claim with the groups to which the user belongs there.
    pub groups_claim: String,
    /// The groups here whose members are those that the claim names.
    pub groups: Vec<String>,
}

/// What a token may have at most, in bytes.
const LONGEST_TOKEN: usize = 16 << 10;
/// Bytes of a document of the provider.
const LONGEST_DOCUMENT: usize = 1 << 20;
/// By how much clocks may differ, in seconds.
const LEEWAY: f64 = 60.0;
/// How often the keys are fetched at most because of a key that is not known.
const AT_MOST_EVERY: Duration = Duration::from_secs(5);
/// How old keys may be before they are fetched anew: a key that the provider has withdrawn counts no longer.
const FRESH: Duration = Duration::from_secs(3600);
/// The same where the provider does not answer.
const USABLE: Duration = Duration::from_secs(24 * 3600);
/// Signatures that are verified: all with a pair of keys. What is signed with a secret that both know is not taken.
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// Whom a token lets in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TokenUser {
    pub(crate) name: String,
    /// Those of the followed groups to which the user belongs.
    pub(crate) groups: BTreeSet<String>,
    /// When the token was made, in seconds since 1970.
    pub(crate) issued: u64,
}

/// The claims that every token has to have.
#[derive(Debug, Deserialize)]
struct Claims {
    iss: String,
    aud: Audience,
    exp: f64,
    nbf: Option<f64>,
    iat: Option<f64>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

/// What a provider says of itself.
#[derive(Debug, Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

/// The provider's keys, as they were fetched last.
#[derive(Debug, Default)]
struct Keys {
    keys: Arc<Vec<Jwk>>,
    fetched: Option<Instant>,
    /// When they were last asked for, with whatever success.
    asked: Option<Instant>,
}

/// Verifies the tokens of one provider.
#[derive(Debug)]
pub(crate) struct Oidc {
    options: OidcOptions,
    keys: Mutex<Keys>,
    /// Held by whoever fetches keys.
    fetching: tokio::sync::Mutex<()>,
    /// When the tokens were made by which the groups of users were last set.
    followed: Mutex<HashMap<String, u64>>,
}

/// Whether a text may be such a token.
pub(crate) fn may_be_token(text: &str) -> bool {
    text.starts_with("ey") && text.split('.').count() == 3
}

impl OidcOptions {
    /// Whether the options can be used.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn check(&self) -> Result<(), String> {
        if !is_safe(&self.issuer) {
            return Err(format!(
                "the identity provider {:?} has to be an address with https://, or one of this machine",
                self.issuer
            ));
        }
        if self.audience.is_empty() {
            return Err("an identity provider needs an audience (--oidc-audience): without one, tokens that were made for other services would let in here".to_owned());
        }
        Ok(())
    }
}

/// Whether what comes from an address cannot be changed on its way.
fn is_safe(address: &str) -> bool {
    let Ok(url) = Url::parse(address) else {
        return false;
    };
    match (url.scheme(), url.host()) {
        ("https", Some(_)) => true,
        ("http", Some(url::Host::Ipv4(address))) => address.is_loopback(),
        ("http", Some(url::Host::Ipv6(address))) => address.is_loopback(),
        ("http", Some(url::Host::Domain(name))) => name == "localhost",
        _ => false,
    }
}

impl Oidc {
    pub(crate) fn new(options: OidcOptions) -> Self {
        Self {
            options,
            keys: Mutex::default(),
            fetching: tokio::sync::Mutex::default(),
            followed: Mutex::default(),
        }
    }

    /// The groups that follow the provider.
    pub(crate) fn groups(&self) -> &[String] {
        &self.options.groups
    }

    /// Whether the groups of a user are to be set by a token, and not by an older one than before.
    pub(crate) fn is_newest(&self, user: &TokenUser) -> bool {
        let mut followed = lock(&self.followed);
        let last = followed.entry(user.name.clone()).or_default();
        let is_newest = user.issued >= *last;
        *last = user.issued.max(*last);
        is_newest
    }

    /// Whom a token lets in.
    ///
    /// # Errors
    /// Why it does not, in words for whoever has sent it.
    pub(crate) async fn verify(&self, token: &str) -> Result<TokenUser, String> {
        if token.len() > LONGEST_TOKEN {
            return Err("the token is too long".to_owned());
        }
        // An algorithm that there is not, as "none", is an error here.
        let header = decode_header(token).map_err(|_| {
            "the token cannot be read, or its algorithm is none that is taken".to_owned()
        })?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err(format!(
                "the token is signed by {:?}, and has to be by a pair of keys",
                header.alg
            ));
        }
        let keys = self.keys_for(&header).await?;
        let key = key_of(&keys, &header)?;
        let key = DecodingKey::from_jwk(key)
            .map_err(|_| "the provider's key cannot be read".to_owned())?;
        let mut signature_alone = Validation::new(header.alg);
        signature_alone.required_spec_claims.clear();
        signature_alone.validate_exp = false;
        signature_alone.validate_aud = false;
        let claims =
            decode::<Claims>(token, &key, &signature_alone).map_err(|error| {
                match error.kind() {
                    jsonwebtoken::errors::ErrorKind::Json(_) => {
                        "the token lacks iss, aud or exp, or has one of another type".to_owned()
                    }
                    _ => "the token's signature is not the provider's".to_owned(),
                }
            })?;
        self.check(claims.claims, now())
    }

    /// Checks the claims of a token whose signature is right.
    fn check(&self, claims: Claims, now: f64) -> Result<TokenUser, String> {
        if claims.iss != self.options.issuer {
            return Err("the token is of another provider".to_owned());
        }
        let is_for_us = match &claims.aud {
            Audience::One(audience) => *audience == self.options.audience,
            Audience::Several(all) => all.contains(&self.options.audience),
        };
        if !is_for_us {
            return Err("the token is for another service".to_owned());
        }
        if claims.exp + LEEWAY <= now {
            return Err("the token has expired".to_owned());
        }
        if claims.nbf.is_some_and(|from| from > now + LEEWAY)
            || claims.iat.is_some_and(|made| made > now + LEEWAY)
        {
            return Err("the token is not valid yet: compare the clocks".to_owned());
        }
        let name = claim(&claims.others, &self.options.user_claim).and_then(Value::as_str);
        let name = name.filter(|name| !name.is_empty()).ok_or_else(|| {
            format!(
                "the token does not tell a user: it has no claim {}",
                self.options.user_claim
            )
        })?;
        if self.options.user_claim == "email"
            && claims.others.get("email_verified") != Some(&Value::Bool(true))
        {
            return Err("the provider has not verified the address of the user".to_owned());
        }
        Ok(TokenUser {
            name: name.to_owned(),
            groups: self.groups_of(&claims.others),
            issued: claims.iat.unwrap_or(0.0).max(0.0) as u64,
        })
    }

    /// The followed groups that the claim names; none where there is no claim.
    fn groups_of(&self, claims: &Map<String, Value>) -> BTreeSet<String> {
        let named: Vec<&str> = match claim(claims, &self.options.groups_claim) {
            Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
            Some(Value::String(all)) => all.split_whitespace().collect(),
            _ => Vec::new(),
        };
        let followed = self.options.groups.iter();
        followed
            .filter(|group| named.contains(&group.as_str()))
            .cloned()
            .collect()
    }

    /// The provider's keys, fetched anew if they are old or the key of a token is not among them.
    async fn keys_for(&self, header: &Header) -> Result<Arc<Vec<Jwk>>, String> {
        let is_enough = |keys: &Keys| {
            let is_fresh = keys.fetched.is_some_and(|at| at.elapsed() < FRESH);
            is_fresh && key_of(&keys.keys, header).is_ok()
        };
        {
            let keys = lock(&self.keys);
            if is_enough(&keys) {
                return Ok(Arc::clone(&keys.keys));
            }
        }
        let _one = self.fetching.lock().await;
        {
            let mut keys = lock(&self.keys);
            let is_too_soon = keys.asked.is_some_and(|at| at.elapsed() < AT_MOST_EVERY);
            if is_enough(&keys) || (is_too_soon && keys.fetched.is_some()) {
                return usable(&keys);
            }
            if is_too_soon {
                return Err(
                    "the identity provider does not answer: try again in a while".to_owned(),
                );
            }
            keys.asked = Some(Instant::now());
        }
        match self.fetch().await {
            Ok(fetched) => {
                info!(
                    issuer = self.options.issuer,
                    keys = fetched.len(),
                    "the keys of the identity provider are fetched"
                );
                let mut keys = lock(&self.keys);
                (keys.keys, keys.fetched) = (Arc::new(fetched), Some(Instant::now()));
            }
            Err(error) => {
                warn!(
                    issuer = self.options.issuer,
                    error, "the keys of the identity provider cannot be fetched"
                );
            }
        }
        usable(&lock(&self.keys))
    }

    async fn fetch(&self) -> Result<Vec<Jwk>, String> {
        let issuer = &self.options.issuer;
        let address = format!(
            "{}/.well-known/openid-configuration",
            issuer.trim_end_matches('/')
        );
        let document = fetch_document(&address, LONGEST_DOCUMENT).await?;
        let discovery: Discovery = serde_json::from_slice(&document)
            .map_err(|error| format!("{address} cannot be read: {error}"))?;
        if discovery.issuer != *issuer {
            return Err(format!(
                "{address} is of the issuer {:?}: write it so",
                discovery.issuer
            ));
        }
        if !is_safe(&discovery.jwks_uri) {
            return Err(format!(
                "the keys at {:?} are not at https://",
                discovery.jwks_uri
            ));
        }
        let document = fetch_document(&discovery.jwks_uri, LONGEST_DOCUMENT).await?;
        #[derive(Deserialize)]
        struct Set {
            keys: Vec<Value>,
        }
        let set: Set = serde_json::from_slice(&document)
            .map_err(|error| format!("{} cannot be read: {error}", discovery.jwks_uri))?;
        // Keys of kinds that are not known here are for others.
        let keys = set.keys.into_iter();
        Ok(keys
            .filter_map(|key| serde_json::from_value(key).ok())
            .collect())
    }
}

/// The keys, unless they are too old.
fn usable(keys: &Keys) -> Result<Arc<Vec<Jwk>>, String> {
    match keys.fetched {
        Some(at) if at.elapsed() < USABLE => Ok(Arc::clone(&keys.keys)),
        _ => Err("the identity provider does not answer: try again in a while".to_owned()),
    }
}

/// The key by which a token says that it is signed: it has to be one for this algorithm.
fn key_of<'a>(keys: &'a [Jwk], header: &Header) -> Result<&'a Jwk, String> {
    let mut fitting = keys.iter().filter(|key| {
        let is_named = header.kid.is_none() || key.common.key_id == header.kid;
        is_named && is_for(key, header.alg)
    });
    match (fitting.next(), fitting.next()) {
        (Some(key), None) => Ok(key),
        (Some(_), Some(_)) => {
            Err("the token does not tell which of the provider's keys has signed it".to_owned())
        }
        (None, _) => Err("the token is signed by a key that the provider does not have".to_owned()),
    }
}

/// Whether a key is for signatures by an algorithm. Nothing but the key decides of what kind it is.
fn is_for(key: &Jwk, algorithm: Algorithm) -> bool {
    let is_for_signatures = matches!(
        key.common.public_key_use,
        None | Some(PublicKeyUse::Signature)
    );
    let is_said_otherwise = key
        .common
        .key_algorithm
        .is_some_and(|said| said.to_string() != format!("{algorithm:?}"));
    let fits = match (&key.algorithm, algorithm) {
        (
            AlgorithmParameters::RSA(_),
            Algorithm::RS256
            | Algorithm::RS384
            | Algorithm::RS512
            | Algorithm::PS256
            | Algorithm::PS384
            | Algorithm::PS512,
        ) => true,
        (AlgorithmParameters::EllipticCurve(curve), Algorithm::ES256) => {
            curve.curve == EllipticCurve::P256
        }
        (AlgorithmParameters::EllipticCurve(curve), Algorithm::ES384) => {
            curve.curve == EllipticCurve::P384
        }
        (AlgorithmParameters::OctetKeyPair(pair), Algorithm::EdDSA) => {
            pair.curve == EllipticCurve::Ed25519
        }
        _ => false,
    };
    is_for_signatures && !is_said_otherwise && fits
}

/// A claim by its name, or by its path as in `realm_access.roles`.
fn claim<'a>(claims: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    if let Some(value) = claims.get(name) {
        return Some(value);
    }
    let (first, rest) = name.split_once('.')?;
    claim(claims.get(first)?.as_object()?, rest)
}

/// Seconds since 1970.
fn now() -> f64 {
    let since = SystemTime::UNIX_EPOCH.elapsed();
    since.map_or(0.0, |since| since.as_secs_f64())
}

/// A panic in another thread leaves these whole, because every change is a single operation.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::chance::feed;

    fn oidc(user_claim: &str) -> Oidc {
        Oidc::new(OidcOptions {
            issuer: "https://id.example.org".to_owned(),
            audience: "meridian".to_owned(),
            user_claim: user_claim.to_owned(),
            groups_claim: "realm.roles".to_owned(),
            groups: vec!["survey".to_owned(), "staff".to_owned()],
        })
    }

    fn claims(changes: Value) -> Result<Claims, serde_json::Error> {
        let mut claims = json!({
            "iss": "https://id.example.org", "aud": "meridian", "exp": 2000, "iat": 900, "name": "ann",
            "realm": {"roles": ["survey", "other"]},
        });
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        serde_json::from_value(claims)
    }

    #[test]
    fn claims_are_checked() {
        let check = |changes| oidc("name").check(claims(changes).unwrap(), 1000.0);
        let ann = TokenUser {
            name: "ann".to_owned(),
            groups: BTreeSet::from(["survey".to_owned()]),
            issued: 900,
        };
        for changes in [
            json!({}),
            json!({"aud": ["other", "meridian"]}),
            json!({"exp": 941}),
            json!({"nbf": 1059}),
            json!({"realm": {"roles": "survey other"}}),
        ] {
            assert_eq!(check(changes.clone()), Ok(ann.clone()), "{changes}");
        }
        let none = check(json!({"realm": null})).unwrap();
        assert!(none.groups.is_empty());
        for (changes, sentence) in [
            (
                json!({"iss": "https://id.example.org/"}),
                "another provider",
            ),
            (json!({"aud": "meridian2"}), "another service"),
            (json!({"aud": []}), "another service"),
            (json!({"exp": 940}), "expired"),
            (json!({"exp": -5}), "expired"),
            (json!({"nbf": 1061}), "not valid yet"),
            (json!({"iat": 1061}), "not valid yet"),
            (json!({"name": ""}), "no claim name"),
            (json!({"name": 7}), "no claim name"),
        ] {
            let error = check(changes.clone()).unwrap_err();
            assert!(error.contains(sentence), "{changes}: {error}");
        }
        // A time that is a text was once taken for none by the library.
        for changes in [
            json!({"exp": "2000"}),
            json!({"exp": null}),
            json!({"nbf": "soon"}),
            json!({"aud": 7}),
            json!({"iss": null}),
        ] {
            assert!(claims(changes.clone()).is_err(), "{changes}");
        }
    }

    #[test]
    fn addresses_of_mail_have_to_be_verified() {
        let check = |changes| oidc("email").check(claims(changes).unwrap(), 1000.0);
        let email = "ann@example.org";
        assert!(check(json!({"email": email})).is_err());
        assert!(check(json!({"email": email, "email_verified": "true"})).is_err());
        let ann = check(json!({"email": email, "email_verified": true})).unwrap();
        assert_eq!(ann.name, email);
    }

    #[test]
    fn older_tokens_do_not_change_groups_back() {
        let oidc = oidc("name");
        let token = |issued| TokenUser {
            name: "ann".to_owned(),
            groups: BTreeSet::new(),
            issued,
        };
        assert!(oidc.is_newest(&token(5)) && oidc.is_newest(&token(7)));
        assert!(!oidc.is_newest(&token(6)) && oidc.is_newest(&token(7)));
    }

    #[test]
    fn providers_are_at_safe_addresses() {
        for (issuer, is_safe) in [
            ("https://id.example.org", true),
            ("http://127.0.0.1:9000/realm", true),
            ("http://localhost:9000", true),
            ("http://[::1]:9000", true),
            ("http://id.example.org", false),
            ("http://127.0.0.1.example.org", false),
            ("ftp://id.example.org", false),
            ("id.example.org", false),
        ] {
            let options = OidcOptions {
                issuer: issuer.to_owned(),
                ..oidc("name").options
            };
            assert_eq!(options.check().is_ok(), is_safe, "{issuer}");
        }
    }

    #[test]
    fn strange_tokens_do_no_harm() {
        let oidc = oidc("name");
        let usual = [
            r#"{"iss": "https://id.example.org", "aud": ["meridian", "x"], "exp": 2e3, "nbf": null, "iat": 900, "name": "ann", "realm": {"roles": ["survey"]}}"#,
            r#"{"iss":"https://id.example.org","aud":"meridian","exp":2000,"email":"a@b","email_verified":true,"realm.roles":"survey staff"}"#,
        ];
        feed("claims", &usual.map(str::as_bytes), |bytes| {
            if let Ok(claims) = serde_json::from_slice::<Claims>(bytes) {
                let _ = oidc.check(claims, 1000.0);
            }
        });
        let rsa = r#"{"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "a", "n": "u1SU1LfVLPHCozMxH2Mo4lgOEePzNm0tRgeLezV6ffAt0gunVTLw7onLRnrq0_IzW7yWR7QkrmBL7jTKEn5u", "e": "AQAB"}"#;
        let curve = r#"{"kty": "EC", "crv": "P-256", "kid": "b", "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}"#;
        let edwards = r#"{"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;
        let keys = [rsa, curve, edwards].map(str::as_bytes);
        let headers = ALGORITHMS.map(Header::new);
        feed("keys of a provider", &keys, |bytes| {
            let Ok(key) = serde_json::from_slice::<Jwk>(bytes) else {
                return;
            };
            let _ = DecodingKey::from_jwk(&key);
            for header in &headers {
                let _ = key_of(std::slice::from_ref(&key), header);
            }
        });
        let token = "eyJhbGciOiJFUzI1NiIsImtpZCI6ImIiLCJ0eXAiOiJKV1QifQ.eyJpc3MiOiJodHRwczovL2lkLmV4YW1wbGUub3JnIn0.c2lnbmF0dXJl";
        let key: Jwk = serde_json::from_str(curve).unwrap();
        let key = DecodingKey::from_jwk(&key).unwrap();
        feed("tokens of a provider", &[token.as_bytes()], |bytes| {
            let text = String::from_utf8_lossy(bytes);
            let token: &str = &text;
            let _ = (may_be_token(token), decode_header(token));
            let _ = decode::<Claims>(token, &key, &Validation::new(Algorithm::ES256));
        });
    }
}
