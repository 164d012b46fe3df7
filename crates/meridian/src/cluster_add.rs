//! `meridian cluster add`: makes the certificate of another worker, and says what is to be run on its machine.

use std::path::{Path, PathBuf};

use clap::Args;
use cluster::messages::ClusterStatus;
use cluster::{Authority, CredentialFiles, Role};
use tokio::runtime::Runtime;

use crate::cluster_commands::FrontEndArguments;
use crate::console::tell;
use crate::failure::Failure;

/// Days for which the certificate is valid.
const DAYS: u32 = 365;

/// Which worker is added.
#[derive(Args)]
pub struct AddArguments {
    /// The name of the new worker, as in w3 or w3.example.org.
    name: String,
    /// The directory of the authority, as `meridian cluster init` has made it, which makes the worker's certificate.
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
    #[command(flatten)]
    front_end: FrontEndArguments,
}

/// Makes the certificate, and says the rest.
pub fn run(arguments: AddArguments) -> Result<(), Failure> {
    let name = &arguments.name;
    let front_end = arguments.front_end;
    let address = front_end.address().to_owned();
    let (operator, files) = front_end.operator_and_files()?;
    let status = Runtime::new()?.block_on(operator.status())?;
    let known = status.workers.iter().find(|it| it.name == *name);
    if let Some(known) = known.filter(|it| it.state != "lost" && it.state != "silent") {
        return Err(Failure::new(format!(
            "a worker {name} runs at {} already: give the new one another name",
            known.address
        )));
    }
    let join = addresses(&status, &address);
    let (made, credentials) = match (&files, &arguments.directory) {
        (CredentialFiles::Secret(_), Some(_)) => {
            return Err(Failure::new(
                "the members of this cluster have a secret and no certificates: leave --directory out",
            ));
        }
        (CredentialFiles::Secret(file), None) => (
            "On its machine, with the file of the secret, run".to_owned(),
            format!("--cluster-secret {} --name {name}", file.display()),
        ),
        (CredentialFiles::Tls(_), Some(directory)) => {
            let dir = member(directory, name)?.display().to_string();
            (
                format!(
                    "The certificate of the worker {name} is in {dir}: copy that to its machine, and there run"
                ),
                format!("--cluster-tls {dir}"),
            )
        }
        (CredentialFiles::Tls(_), None) => (
            format!(
                "Make its certificate where the authority is, by `meridian cluster init --directory AUTHORITY {name}`, or give --directory AUTHORITY \
                 here. Copy that to its machine, and there run"
            ),
            format!("--cluster-tls {name}"),
        ),
    };
    tell(&format!(
        "{made}\n  meridian worker --join {join} --data DIR {credentials} --listen HOST:7601\nwith --data once for each of its disks. It takes its \
         share of the files by itself: `meridian cluster rebalance` waits until it has them.\n"
    ))
}

/// Where the front ends listen.
fn addresses(status: &ClusterStatus, asked: &str) -> String {
    match status.front_ends.as_slice() {
        [] => asked.to_owned(),
        several => {
            let addresses = several.iter().map(|it| it.address.as_str());
            addresses.collect::<Vec<&str>>().join(",")
        }
    }
}

/// The directory of the worker's certificate, which is made if there is none.
fn member(directory: &Path, name: &str) -> Result<PathBuf, Failure> {
    let authority = Authority::existing(directory)?;
    let members = authority.members()?;
    match members.contains(&(Role::Worker, name.to_owned())) {
        true => Ok(directory.join(name)),
        false => Ok(authority.make_member(Role::Worker, name, DAYS, false)?),
    }
}
