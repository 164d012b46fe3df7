//! `meridian registry-record`: the record by which the Virtual Observatory's registry knows the service.

use std::path::PathBuf;

use clap::Args;
use engine::Archive;
use server::{ServiceDescription, registry_record};

use crate::console::tell;
use crate::failure::Failure;

/// What the record says of the service.
#[derive(Args)]
pub struct RegistryRecordArguments {
    /// The data directory.
    #[arg(long, value_name = "DIR", env = "MERIDIAN_DATA")]
    data: PathBuf,
    /// The identifier: ivo://, an authority that is yours in the registry, and a path.
    #[arg(long, value_name = "IVOID")]
    identifier: String,
    /// The address of the server as others reach it, as https://tap.example.org.
    #[arg(long, value_name = "URL")]
    url: String,
    /// What the service is called.
    #[arg(long, value_name = "TEXT")]
    title: String,
    /// The same in up to 16 letters.
    #[arg(long, value_name = "TEXT")]
    short_name: Option<String>,
    /// Who publishes it: an institute, an observatory.
    #[arg(long, value_name = "NAME")]
    publisher: String,
    /// Who answers questions about it.
    #[arg(long, value_name = "NAME")]
    contact: String,
    /// The mail address for these.
    #[arg(long, value_name = "ADDRESS")]
    email: Option<String>,
    /// What it has, in some sentences.
    #[arg(long, value_name = "TEXT")]
    description: String,
    /// What it is about, in words of the Unified Astronomy Thesaurus. May be given several times.
    #[arg(long = "subject", value_name = "WORD", required = true)]
    subjects: Vec<String>,
    /// A page about it for people; without it the address of the server.
    #[arg(long, value_name = "URL")]
    reference_url: Option<String>,
    /// For how many days results are kept, as `meridian serve` was told.
    #[arg(long, value_name = "DAYS", default_value_t = 7)]
    keep_results: u64,
}

const SECONDS_OF_DAY: u64 = 86_400;

/// Prints the record.
pub fn run(arguments: RegistryRecordArguments) -> Result<(), Failure> {
    let runtime = tokio::runtime::Runtime::new()?;
    let data = arguments.data;
    let service = ServiceDescription {
        identifier: arguments.identifier,
        url: arguments.url,
        title: arguments.title,
        short_name: arguments.short_name,
        publisher: arguments.publisher,
        contact: arguments.contact,
        email: arguments.email,
        description: arguments.description,
        subjects: arguments.subjects,
        reference_url: arguments.reference_url,
        kept: arguments.keep_results.saturating_mul(SECONDS_OF_DAY),
    };
    let record = runtime.block_on(async {
        let archive = Archive::open(&data).await?;
        registry_record(&archive, &service).await
    })?;
    tell(&format!("{}\n", String::from_utf8_lossy(&record)))
}
