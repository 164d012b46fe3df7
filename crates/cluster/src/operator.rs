//! What an operator asks a front end.

use axum::http::Method;
use serde::de::DeserializeOwned;

use crate::ClusterError;
use crate::client::MemberClient;
use crate::credentials::{CredentialFiles, Credentials};
use crate::messages::{ClusterStatus, LoadOrder, LoadState, ScrubRequest, ScrubStatus};
use crate::tls::{Role, ending};

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
        self.request(Method::GET, "/status").await
    }

    /// Has a worker give everything up, so that it can be ended without loss.
    ///
    /// # Errors
    /// The front end cannot be reached, or knows no such worker.
    pub async fn drain(&self, worker: &str) -> Result<ClusterStatus, ClusterError> {
        let path = format!("/members/{}/drain", encoded(worker));
        self.request(Method::POST, &path).await
    }

    /// Has a worker that was drained take its share again.
    ///
    /// # Errors
    /// The front end cannot be reached, or knows no such worker.
    pub async fn take_back(&self, worker: &str) -> Result<ClusterStatus, ClusterError> {
        let path = format!("/members/{}/drain", encoded(worker));
        self.request(Method::DELETE, &path).await
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
        self.request(Method::DELETE, &path).await
    }

    /// Has others get the replicas of workers that are silent at once. The status is that of the front end that leads.
    ///
    /// # Errors
    /// The front end cannot be reached, or none leads now.
    pub async fn repair(&self) -> Result<ClusterStatus, ClusterError> {
        self.request(Method::POST, "/repair").await
    }

    /// Has files move at once that shall be elsewhere. The status is that of the front end that leads.
    ///
    /// # Errors
    /// Those of [`Self::repair`].
    pub async fn rebalance(&self) -> Result<ClusterStatus, ClusterError> {
        self.request(Method::POST, "/rebalance").await
    }

    /// The state of the cluster as the front end that leads knows it.
    ///
    /// # Errors
    /// Those of [`Self::repair`].
    pub async fn status_of_leader(&self) -> Result<ClusterStatus, ClusterError> {
        self.request(Method::GET, "/repair").await
    }

    /// Has workers read replicas through.
    ///
    /// # Errors
    /// The front end cannot be reached, or knows no such worker or table.
    pub async fn scrub(&self, request: &ScrubRequest) -> Result<ScrubStatus, ClusterError> {
        let (role, address) = (Role::FrontEnd, &self.address);
        self.client
            .json(Method::POST, role, address, "/scrub", Some(request))
            .await
    }

    /// How far workers are with that.
    ///
    /// # Errors
    /// The front end cannot be reached.
    pub async fn scrub_status(&self) -> Result<ScrubStatus, ClusterError> {
        let none: Option<&()> = None;
        let (role, address) = (Role::FrontEnd, &self.address);
        self.client
            .json(Method::GET, role, address, "/scrub", none)
            .await
    }

    /// Has workers load a table. The number is one that no other load has, and the load ends unless its state is asked for again and again.
    ///
    /// # Errors
    /// The front end cannot be reached, or refuses.
    pub async fn begin_load(&self, number: u64, order: &LoadOrder) -> Result<(), ClusterError> {
        self.load_request(Method::POST, number, Some(order)).await
    }

    /// How far that is.
    ///
    /// # Errors
    /// The front end cannot be reached, or knows no such load.
    pub async fn load_state(&self, number: u64) -> Result<LoadState, ClusterError> {
        self.load_request(Method::GET, number, None).await
    }

    /// Has it end, if it is not done yet.
    ///
    /// # Errors
    /// The front end cannot be reached, or knows no such load.
    pub async fn cancel_load(&self, number: u64) -> Result<(), ClusterError> {
        self.load_request(Method::DELETE, number, None).await
    }

    async fn load_request<T: DeserializeOwned>(
        &self,
        method: Method,
        number: u64,
        order: Option<&LoadOrder>,
    ) -> Result<T, ClusterError> {
        let path = format!("/loads/{number}");
        let (role, address) = (Role::FrontEnd, &self.address);
        self.client.json(method, role, address, &path, order).await
    }

    async fn request(&self, method: Method, path: &str) -> Result<ClusterStatus, ClusterError> {
        let none: Option<&()> = None;
        let (role, address) = (Role::FrontEnd, &self.address);
        let asked = self.client.json(method, role, address, path, none);
        let mut status: ClusterStatus = asked.await?;
        if let Some(ends) = ending(self.client.credentials().ends()) {
            let warning = format!("the certificate of the operator {ends}");
            status.warnings.push(warning);
        }
        Ok(status)
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
