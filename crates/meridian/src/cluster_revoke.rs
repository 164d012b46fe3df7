//! `meridian cluster revoke`: shuts members out whose keys are lost or stolen.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use cluster::{Authority, RevokedCertificate};

use crate::console::tell;
use crate::failure::Failure;

/// Whose certificates are revoked.
#[derive(Args)]
pub struct RevokeArguments {
    /// The names of members: all certificates that they have been given until now are revoked.
    #[arg(value_name = "NAME", required_unless_present = "certificate")]
    names: Vec<String>,
    /// A certificate that is revoked, as one of which the authority's directory knows nothing any more.
    #[arg(long, value_name = "FILE")]
    certificate: Vec<PathBuf>,
    /// The directory of the authority, as `meridian cluster init` has made it.
    #[arg(long, value_name = "DIR")]
    directory: PathBuf,
}

/// Revokes them, and says what is to be done with the list.
pub fn run(arguments: &RevokeArguments) -> Result<(), Failure> {
    let authority = Authority::existing(&arguments.directory)?;
    let mut revoked = Vec::new();
    if !arguments.names.is_empty() {
        revoked.extend(authority.revoke(&arguments.names)?);
    }
    for file in &arguments.certificate {
        revoked.extend(authority.revoke_certificate(file)?);
    }
    let mut text = String::new();
    for RevokedCertificate { role, name, serial } in &revoked {
        let role = role.name();
        writeln!(
            text,
            "revoked: the certificate {serial} of the {role} {name}"
        )?;
    }
    if revoked.is_empty() {
        text.push_str("all of these certificates were revoked before\n");
    }
    let dir = arguments.directory.display();
    writeln!(
        text,
        "The list is {dir}/crl.pem, and in the directories of the other members there. Copy it into the TLS directory of a front end or a worker, as crl.pem: \
         it reads it within seconds, without a restart, lets nobody in who is in the list, and gives it to the other members."
    )?;
    tell(&text)
}
