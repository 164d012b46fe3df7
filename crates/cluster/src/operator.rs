//! What an operator asks a front end.

use axum::http::Method;

use crate::ClusterError;
use crate::client::MemberClient;
use crate::credentials::{CredentialFiles, Credentials};
use crate::messages::ClusterStatus;
use crate::tls::Role;

/// Who may ask a front end.
pub(crate) const OPERATORS: &[Role] = &[Role::Operator, Role::FrontEnd];

/// Speaks with a front end for an operator.
#[derive(Debug)]
pub struct Operator {
    client: MemberClient,
    address: String,
}

impl Operator {
    /// An operator of the cluster whose front end listens at an address.
    ///
    /// # Errors
    /// The credentials cannot be used.
    pub fn new(address: String, credentials: &CredentialFiles) -> Result<Self, ClusterError> {
        let credentials = Credentials::read(credentials, OPERATORS)?;
        Ok(Self {
            client: MemberClient::new(credentials),
            address,
        })
    }

    /// The state of the cluster.
    ///
    /// # Errors
    /// The front end cannot be reached, or refuses.
    pub async fn status(&self) -> Result<ClusterStatus, ClusterError> {
        self.ask(Method::GET, "/status").await
    }

    /// Has a worker give everything up, so that it can be ended without loss.
    ///
    /// # Errors
    /// The front end cannot be reached, or knows no such worker.
    pub async fn drain(&self, worker: &str) -> Result<ClusterStatus, ClusterError> {
        let path = format!("/members/{}/drain", encoded(worker));
        self.ask(Method::POST, &path).await
    }

    /// Has a worker that was drained take its share again.
    ///
    /// # Errors
    /// The front end cannot be reached, or knows no such worker.
    pub async fn take_back(&self, worker: &str) -> Result<ClusterStatus, ClusterError> {
        let path = format!("/members/{}/drain", encoded(worker));
        self.ask(Method::DELETE, &path).await
    }

    /// Forgets a worker that is gone.
    ///
    /// # Errors
    /// The front end cannot be reached, knows no such worker, or the worker runs; or it has the last copies of files, unless that is forced.
    pub async fn remove(
        &self,
        worker: &str,
        is_forced: bool,
    ) -> Result<ClusterStatus, ClusterError> {
        let path = format!("/members/{}?force={is_forced}", encoded(worker));
        self.ask(Method::DELETE, &path).await
    }

    async fn ask(&self, method: Method, path: &str) -> Result<ClusterStatus, ClusterError> {
        let none: Option<&()> = None;
        let (role, address) = (Role::FrontEnd, &self.address);
        self.client.json(method, role, address, path, none).await
    }
}

/// A name as it stands in a path.
pub(crate) fn encoded(name: &str) -> String {
    let mut path = String::new();
    for byte in name.bytes() {
        match byte.is_ascii_alphanumeric() || b"-._".contains(&byte) {
            true => path.push(char::from(byte)),
            false => path.push_str(&format!("%{byte:02X}")),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_in_paths() {
        assert_eq!(encoded("w1.example.org"), "w1.example.org");
        assert_eq!(encoded("a/b c?"), "a%2Fb%20c%3F");
    }
}
