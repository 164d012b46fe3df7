//! What makes a process a member of a cluster, by the command line.

use std::path::PathBuf;

use clap::Args;
use cluster::CredentialFiles;

use crate::failure::Failure;

/// A directory of certificates, or a file with a secret.
#[derive(Args, Clone)]
pub struct CredentialArguments {
    /// The directory with this member's certificate and key, and its authority's certificate, as `meridian cluster init` makes it: members
    /// then speak TLS.
    #[arg(long, value_name = "DIR", env = "MERIDIAN_CLUSTER_TLS")]
    cluster_tls: Option<PathBuf>,
    /// The file with the secret that all members of the cluster know, which speak without encryption.
    #[arg(long, value_name = "FILE", env = "MERIDIAN_CLUSTER_SECRET")]
    cluster_secret: Option<PathBuf>,
}

impl CredentialArguments {
    /// The files that were given.
    pub fn files(self) -> Result<CredentialFiles, Failure> {
        credential_files(self.cluster_tls, self.cluster_secret)
    }
}

/// The one of both that was given.
pub fn credential_files(
    tls: Option<PathBuf>,
    secret: Option<PathBuf>,
) -> Result<CredentialFiles, Failure> {
    match (tls, secret) {
        (Some(dir), None) => Ok(CredentialFiles::Tls(dir)),
        (None, Some(file)) => Ok(CredentialFiles::Secret(file)),
        (Some(_), Some(_)) => Err(Failure::new(
            "members of a cluster have certificates or a secret: give --cluster-tls or --cluster-secret, not both",
        )),
        (None, None) => Err(Failure::new(
            "members of a cluster have to know each other: give --cluster-tls with a directory that `meridian cluster init` has made, or, \
             on one machine, --cluster-secret with a file as `openssl rand -hex 32` makes it",
        )),
    }
}
