//! Where a store is and who asks, as AWS's tools are told it: by the environment, and by `~/.aws/credentials` and `~/.aws/config`.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use url::Url;

use crate::{RemoteError, Result};

/// The region where nothing else is said: AWS's own default for S3.
const REGION: &str = "us-east-1";
/// How often a request is tried if AWS_MAX_ATTEMPTS says nothing.
const ATTEMPTS: u32 = 8;
/// What the settings of profiles call ways to get credentials that are not gone here.
const OTHER_WAYS: [&str; 6] = [
    "sso_session",
    "sso_start_url",
    "role_arn",
    "credential_process",
    "web_identity_token_file",
    "login_session",
];

/// A key and its secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Credentials {
    pub key_id: String,
    pub secret: String,
    pub token: Option<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Credentials")
    }
}

/// Where stores are and who asks.
#[derive(Debug, Clone)]
pub struct Settings {
    pub(crate) credentials: Option<Credentials>,
    /// Whether requests are not signed.
    pub(crate) is_anonymous: bool,
    pub(crate) region: String,
    /// The server of S3; Amazon's if there is none.
    pub(crate) endpoint: Option<Url>,
    /// A file of the authorities whose certificates are trusted besides those that the machine knows.
    pub(crate) authorities: Option<PathBuf>,
    /// How often a request is tried.
    pub(crate) attempts: u32,
}

impl Settings {
    /// Those of the environment. Without credentials if `is_anonymous`: buckets that everybody may read.
    ///
    /// # Errors
    /// A variable or a file makes no sense, or names a profile that there is not.
    pub fn of_environment(is_anonymous: bool) -> Result<Self> {
        Self::of(&|name| std::env::var(name).ok(), is_anonymous)
    }

    fn of(variable: &dyn Fn(&str) -> Option<String>, is_anonymous: bool) -> Result<Self> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let profile = Profile::read(&variable)?;
        let named = |name: &str| profile.values.get(name).cloned();
        let region = ["AWS_REGION", "AWS_DEFAULT_REGION"]
            .into_iter()
            .find_map(variable)
            .or_else(|| named("region"));
        let ignores = variable("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS")
            .is_some_and(|it| it.eq_ignore_ascii_case("true"));
        let endpoint = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]
            .into_iter()
            .find_map(variable)
            .or_else(|| named("endpoint_url"))
            .filter(|_| !ignores);
        let region = region.unwrap_or_else(|| REGION.to_owned());
        if !region
            .chars()
            .all(|it| it.is_ascii_alphanumeric() || it == '-')
        {
            return Err(RemoteError::Settings(format!(
                "AWS_REGION is no name of a region: {region:?}"
            )));
        }
        Ok(Self {
            credentials: match is_anonymous {
                true => None,
                false => profile.credentials(&variable)?,
            },
            is_anonymous,
            region,
            endpoint: endpoint.as_deref().map(endpoint_of).transpose()?,
            authorities: variable("AWS_CA_BUNDLE")
                .or_else(|| named("ca_bundle"))
                .map(PathBuf::from),
            attempts: attempts_of(variable("AWS_MAX_ATTEMPTS").or_else(|| named("max_attempts")))?,
        })
    }
}

fn endpoint_of(text: &str) -> Result<Url> {
    let parsed = Url::parse(text).ok().filter(|url| {
        let is_http = ["http", "https"].contains(&url.scheme());
        let is_bare =
            url.query().is_none() && url.username().is_empty() && url.password().is_none();
        is_http && is_bare && url.host_str().is_some()
    });
    parsed.ok_or_else(|| {
        RemoteError::Settings(
            "AWS_ENDPOINT_URL is no address of a store: it is such as https://minio.example.org:9000".to_owned(),
        )
    })
}

fn attempts_of(text: Option<String>) -> Result<u32> {
    let Some(text) = text else {
        return Ok(ATTEMPTS);
    };
    let attempts = text.trim().parse().ok().filter(|it| (1..=100).contains(it));
    attempts.ok_or_else(|| {
        RemoteError::Settings(format!(
            "AWS_MAX_ATTEMPTS is a number from 1 to 100, and not {text:?}"
        ))
    })
}

/// What the files of AWS's tools say of one profile.
struct Profile {
    name: String,
    values: HashMap<String, String>,
}

impl Profile {
    fn read(variable: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        let asked = ["AWS_PROFILE", "AWS_DEFAULT_PROFILE"]
            .into_iter()
            .find_map(variable);
        let name = asked.clone().unwrap_or_else(|| "default".to_owned());
        let home = variable("HOME").map(PathBuf::from);
        let path = |named: &str, usual: &str| {
            let named = variable(named).map(PathBuf::from);
            named.or_else(|| Some(home.as_ref()?.join(".aws").join(usual)))
        };
        let config = read_file(path("AWS_CONFIG_FILE", "config"))?;
        let credentials = read_file(path("AWS_SHARED_CREDENTIALS_FILE", "credentials"))?;
        let is_this = |section: &str| {
            let words: Vec<&str> = section.split_whitespace().collect();
            words == ["profile", name.as_str()] || (name == "default" && words == ["default"])
        };
        let of_config = section_of(&config, is_this);
        let of_credentials = section_of(&credentials, |section| section.trim() == name);
        if asked.is_some() && of_config.is_none() && of_credentials.is_none() {
            return Err(RemoteError::Settings(format!(
                "there is no profile {name} in ~/.aws/config and ~/.aws/credentials: check AWS_PROFILE"
            )));
        }
        let mut values = of_config.unwrap_or_default();
        values.extend(of_credentials.unwrap_or_default());
        Ok(Self { name, values })
    }

    /// Those of the environment, or else of the profile.
    fn credentials(
        &self,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Credentials>> {
        let pair = |key_id: Option<String>, secret: Option<String>, token, place: &str| match (
            key_id, secret,
        ) {
            (Some(key_id), Some(secret)) => Ok(Some(Credentials {
                key_id,
                secret,
                token,
            })),
            (None, None) => Ok(None),
            _ => Err(RemoteError::Settings(format!(
                "{place} has one of the key's identifier and its secret: both are needed"
            ))),
        };
        let of_environment = pair(
            variable("AWS_ACCESS_KEY_ID"),
            variable("AWS_SECRET_ACCESS_KEY"),
            variable("AWS_SESSION_TOKEN"),
            "the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)",
        )?;
        if of_environment.is_some() {
            return Ok(of_environment);
        }
        let named = |name: &str| self.values.get(name).cloned();
        let found = pair(
            named("aws_access_key_id"),
            named("aws_secret_access_key"),
            named("aws_session_token"),
            &format!("the profile {} of ~/.aws/credentials", self.name),
        )?;
        let other = OTHER_WAYS
            .iter()
            .find(|way| self.values.contains_key(**way));
        match (found, other) {
            (None, Some(way)) => Err(RemoteError::Settings(format!(
                "the profile {} has its credentials by {way}, which is not supported: put those that `aws configure \
                 export-credentials --format env` prints into the environment",
                self.name
            ))),
            (found, _) => Ok(found),
        }
    }
}

fn read_file(path: Option<PathBuf>) -> Result<String> {
    let Some(path) = path else {
        return Ok(String::new());
    };
    let unreadable = |path: &Path, why: &dyn fmt::Display| {
        RemoteError::Settings(format!("{} cannot be read: {why}", path.display()))
    };
    match std::fs::read_to_string(&path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(unreadable(&path, &error)),
    }
}

/// The values of a section of an INI file, if it is there. Lines that are indented belong to the value above them, and are passed over.
fn section_of(text: &str, is_wanted: impl Fn(&str) -> bool) -> Option<HashMap<String, String>> {
    let mut found: Option<HashMap<String, String>> = None;
    let mut is_in = false;
    for line in text.lines() {
        if line.starts_with([' ', '\t', '#', ';']) || line.trim().is_empty() {
            continue;
        }
        if let Some(section) = line.trim_end().strip_prefix('[') {
            is_in = is_wanted(section.split(']').next().unwrap_or_default());
            if is_in {
                found.get_or_insert_default();
            }
        } else if let (true, Some((name, value))) = (is_in, line.split_once('='))
            && let Some(values) = &mut found
        {
            // A comment begins behind a blank.
            let value = value.split(" #").next().unwrap_or_default().trim();
            values.insert(name.trim().to_ascii_lowercase(), value.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREDENTIALS: &str = "# keys\n[default]\naws_access_key_id = A\naws_secret_access_key=S/+=\n\n[half]\naws_access_key_id=H\n\n\
        [temporary]\naws_access_key_id=T\naws_secret_access_key=U\naws_session_token=V==\n";
    const CONFIG: &str = "[default]\nregion = eu-west-1 # here\ns3 =\n  region = no\n[profile temporary]\nendpoint_url = http://h:9000\n\
        [profile sso]\nsso_session = x\nregion=r\n";

    fn settings(variables: &[(&str, &str)]) -> std::result::Result<Settings, String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join(".aws")).unwrap();
        std::fs::write(dir.path().join(".aws/credentials"), CREDENTIALS).unwrap();
        std::fs::write(dir.path().join(".aws/config"), CONFIG).unwrap();
        let home = dir.path().to_str().unwrap().to_owned();
        let variable = |name: &str| match name {
            "HOME" => Some(home.clone()),
            _ => { variables.iter() }
                .find(|(known, _)| *known == name)
                .map(|(_, value)| (*value).to_owned()),
        };
        Settings::of(&variable, false).map_err(|error| error.to_string())
    }

    fn keys(settings: &Settings) -> (&str, &str, Option<&str>) {
        let it = settings.credentials.as_ref().unwrap();
        (&it.key_id, &it.secret, it.token.as_deref())
    }

    #[test]
    fn profiles_and_the_environment_are_read_as_by_the_tools_of_aws() {
        let default = settings(&[]).unwrap();
        assert_eq!(keys(&default), ("A", "S/+=", None));
        assert_eq!(
            (default.region.as_str(), default.attempts),
            ("eu-west-1", 8)
        );
        assert!(default.endpoint.is_none());
        let temporary =
            settings(&[("AWS_PROFILE", "temporary"), ("AWS_MAX_ATTEMPTS", "3")]).unwrap();
        assert_eq!(keys(&temporary), ("T", "U", Some("V==")));
        assert_eq!(
            (temporary.region.as_str(), temporary.attempts),
            ("us-east-1", 3)
        );
        assert_eq!(temporary.endpoint.unwrap().as_str(), "http://h:9000/");
        // The environment comes first.
        let environment = settings(&[
            ("AWS_ACCESS_KEY_ID", "E"),
            ("AWS_SECRET_ACCESS_KEY", "secret-F"),
            ("AWS_PROFILE", "sso"),
            ("AWS_REGION", "us-west-2"),
        ]);
        let environment = environment.unwrap();
        assert_eq!(keys(&environment), ("E", "secret-F", None));
        assert_eq!(environment.region, "us-west-2");
        let shown = format!("{environment:?}");
        assert!(
            shown.contains("us-west-2") && !shown.contains("secret"),
            "{shown}"
        );
    }

    #[test]
    fn what_cannot_be_used_is_told() {
        for (variables, sentence) in [
            (&[("AWS_PROFILE", "none")][..], "no profile none"),
            (&[("AWS_PROFILE", "half")], "both are needed"),
            (&[("AWS_PROFILE", "sso")], "export-credentials"),
            (&[("AWS_ACCESS_KEY_ID", "x")], "both are needed"),
            (&[("AWS_ENDPOINT_URL", "minio:9000")], "AWS_ENDPOINT_URL"),
            (
                &[("AWS_ENDPOINT_URL", "http://a:sesame@h")],
                "AWS_ENDPOINT_URL",
            ),
            (&[("AWS_MAX_ATTEMPTS", "0")], "1 to 100"),
            (&[("AWS_REGION", "eu west")], "no name of a region"),
        ] {
            let error = settings(variables).unwrap_err();
            assert!(error.contains(sentence), "{variables:?}: {error}");
            assert!(!error.contains("sesame"), "{error}");
        }
    }
}
