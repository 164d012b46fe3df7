//! `meridian query cancel`.

use clap::Args;
use hyper::Method;
use server::QueryDescription;

use crate::console::tell;
use crate::failure::Failure;
use crate::server_client::{ServerArguments, UserArguments, target};

/// Which query.
#[derive(Args)]
pub struct CancelArguments {
    #[command(flatten)]
    server: ServerArguments,
    #[command(flatten)]
    user: UserArguments,
    /// The number of the query.
    id: u64,
}

/// Ends the query.
pub async fn run(arguments: CancelArguments) -> Result<(), Failure> {
    let client = arguments.server.client_for(&arguments.user)?;
    let path = format!("/queries/{}", arguments.id);
    let target = target(&path, &[("user", client.user())]);
    let query: QueryDescription = client.send_for(Method::DELETE, &target, None).await?;
    tell(&format!("Query {} is cancelled.\n", query.id))
}
