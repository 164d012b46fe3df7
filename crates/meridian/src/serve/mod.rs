//! `meridian serve`: runs the server for MySQL clients and cone searches over HTTP until a signal ends it.

mod beside;
mod compaction;
mod file;
mod home;
mod layers;
mod logging;
mod notify;
mod options;

use std::ffi::OsString;
use std::fmt::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::Args;
use cluster::ClusterOptions;
use server::{AuditOptions, Config, OidcOptions, QueryLimits, Server, TlsFiles};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::field::display;
use tracing::{info, warn};

use crate::cluster_credentials::credential_files;
use crate::console::tell;
use crate::failure::Failure;
use crate::temporary::{TemporaryFolder, half_of_free};
use layers::{CommandLineOptions, Layers};
use options::Settings;
pub(crate) use options::{DEFAULT_LOG, filter as log_filter};

/// Threads for the network, which only hand on what others compute.
const NETWORK_THREADS: usize = 2;
/// The radius in degrees of the cone that is given as an example.
const EXAMPLE_RADIUS: f64 = 0.01;
/// Exit status after a second Ctrl-C, as shells have it.
const INTERRUPTED: i32 = 130;

/// Serve MySQL clients, which connect as to any MySQL server, and over HTTP the Virtual Observatory, programs and browsers.
///
/// Listens on loopback addresses alone, unless there are users and TLS. Where no users were made, every client is accepted. Ctrl-C or
/// SIGTERM ends it when the running statements are done, a second one at once.
///
/// Each option can be set by a flag, by an environment variable or in a TOML file, where its key is its long name; the first of
/// these that is set takes precedence.
#[derive(Args)]
pub struct ServeArguments {
    /// Read options from this TOML file.
    #[arg(long, value_name = "FILE", env = "MERIDIAN_CONFIG")]
    config: Option<OsString>,
    /// Print the value of each option and its source, and exit.
    #[arg(long)]
    show_config: bool,
    #[command(flatten)]
    options: CommandLineOptions,
}

/// Runs the command.
pub fn run(arguments: ServeArguments) -> Result<(), Failure> {
    let file = arguments.config.filter(|file| !file.is_empty());
    let layers = Layers::of(arguments.options, file.as_deref().map(Path::new))?;
    layers.check()?;
    if arguments.show_config {
        return tell(&layers.show());
    }
    let settings = Settings::read(&layers)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(NETWORK_THREADS)
        .thread_name("meridian-net")
        .enable_all()
        .build()?;
    runtime.block_on(serve(settings, &layers))
}

async fn serve(settings: Settings, layers: &Layers) -> Result<(), Failure> {
    if settings.cluster.is_some() {
        home::expect_none(&settings.data)?;
    }
    let cluster = cluster_options(&settings)?;
    let credential_option = match settings.cluster_tls.is_some() {
        true => "--cluster-tls DIR",
        false => "--cluster-secret FILE",
    };
    logging::start(settings.log, settings.log_format);
    // Before anything else, so that nothing that has begun is cut off.
    let signals = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    let data = settings.data.display().to_string();
    let _temporary = match &settings.temp_dir {
        Some(directory) => Some(TemporaryFolder::make(directory)?),
        None => TemporaryFolder::of_data(&settings.data),
    };
    let compacted = settings
        .compact_every
        .map(|every| (settings.data.clone(), every));
    let pushed = (cluster.is_none()).then(|| (settings.data.clone(), settings.home_rate));
    let config = Config {
        data: settings.data,
        mysql: settings.mysql,
        mysql_socket: settings.mysql_socket,
        http: settings.http,
        threads: settings.threads,
        memory: settings.memory as usize,
        spilled: (settings.temp_size).or_else(|| half_of_free(&tempfile::env::temp_dir())),
        cache: settings.cache,
        max_connections: settings.max_connections.get(),
        max_connections_per_address: settings.max_connections_per_address.map(NonZeroUsize::get),
        http_hosts: settings.http_hosts,
        http_patience: settings.http_timeout,
        grace: settings.grace,
        tls: tls_files(settings.tls_cert, settings.tls_key)?,
        is_insecure: settings.insecure,
        native_password: settings.mysql_native_password,
        slow: Some(settings.slow).filter(|slow| !slow.is_zero()),
        audit: settings.audit_log.map(|path| AuditOptions {
            path,
            bytes: settings.audit_log_size,
            files: settings.audit_log_files,
        }),
        oidc: identity_provider(
            settings.oidc_issuer,
            settings.oidc_audience,
            [settings.oidc_user_claim, settings.oidc_groups_claim],
            settings.oidc_groups,
        )?,
        cone_columns: layers.cone_columns(),
        queries: QueryLimits {
            at_once: settings.queries_at_once.get(),
            result_bytes: settings.max_result,
            kept: settings.keep_results,
            blocking: settings.max_blocking,
            ..QueryLimits::default()
        },
        result_cache: settings.result_cache,
        cluster,
    };
    let (threads, memory, cache) = (config.threads, config.memory, config.cache);
    let server = Server::bind(config).await?;
    announce(&data, &server, credential_option).await?;
    let mysql = server.mysql_address().map(display);
    let http = server.http_address().map(display);
    info!(
        version = env!("CARGO_PKG_VERSION"),
        data, mysql, http, threads, memory, cache, "started"
    );
    notify::tell(notify::READY);
    let stop = CancellationToken::new();
    crate::parent::end_with_parent(&stop);
    tokio::spawn(stop_at_signals(signals, stop.clone()));
    let compaction = compacted.map(|(data, every)| {
        tokio::spawn(compaction::compact_regularly(data, every, stop.clone()))
    });
    let pushing =
        pushed.map(|(data, rate)| tokio::spawn(home::push_regularly(data, rate, stop.clone())));
    server.serve(stop).await;
    for beside in [compaction, pushing].into_iter().flatten() {
        beside.await?;
    }
    Ok(())
}

/// Has another command log as this one does, in lines for people.
pub(crate) fn log_to_stderr(filter: tracing_subscriber::EnvFilter) {
    logging::start(filter, logging::Form::Text);
}

/// The identity provider that is configured, if one is.
fn identity_provider(
    issuer: Option<String>,
    audience: Option<String>,
    [user_claim, groups_claim]: [Option<String>; 2],
    groups: Vec<String>,
) -> Result<Option<OidcOptions>, Failure> {
    let Some(issuer) = issuer else {
        return match audience {
            None => Ok(None),
            Some(_) => Err(Failure::new(
                "--oidc-audience is for an identity provider: give --oidc-issuer, too",
            )),
        };
    };
    let options = OidcOptions {
        issuer,
        audience: audience.unwrap_or_default(),
        user_claim: user_claim.unwrap_or_default(),
        groups_claim: groups_claim.unwrap_or_default(),
        groups,
    };
    options.check().map_err(Failure::new)?;
    Ok(Some(options))
}

/// Each of the two files needs the other.
fn tls_files(
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
) -> Result<Option<TlsFiles>, Failure> {
    match (certificate, key) {
        (None, None) => Ok(None),
        (Some(certificate), Some(key)) => Ok(Some(TlsFiles { certificate, key })),
        _ => Err(Failure::new(
            "TLS needs both a certificate and its key: give --tls-cert and --tls-key",
        )),
    }
}

/// A front end of a cluster needs what makes it a member.
fn cluster_options(settings: &Settings) -> Result<Option<ClusterOptions>, Failure> {
    let Some(address) = settings.cluster.clone() else {
        return Ok(None);
    };
    let (tls, secret) = (
        settings.cluster_tls.clone(),
        settings.cluster_secret.clone(),
    );
    Ok(Some(ClusterOptions {
        address,
        advertise: settings.cluster_advertise.clone(),
        credentials: credential_files(tls, secret)?,
        replicas: settings.replicas.get(),
        kept_files: settings.keep_files,
        lost_after: settings.lost_after,
        stalled_after: settings.stalled_after,
        shuffle_above: settings.shuffle_above,
        is_insecure: settings.insecure,
    }))
}

/// Cancels at the first signal and leaves at the second.
pub(crate) async fn stop_at_signals(
    (mut interrupt, mut terminate): (Signal, Signal),
    stop: CancellationToken,
) {
    for first in [true, false] {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        if !first {
            tracing::warn!("ended at once");
            std::process::exit(INTERRUPTED);
        }
        notify::tell(notify::STOPPING);
        stop.cancel();
    }
}

/// Says what is served and where, and how to get there.
async fn announce(data: &str, server: &Server, credential_option: &str) -> Result<(), Failure> {
    let databases = server.databases().await?;
    let of = match databases.len() {
        0 => format!("nothing yet of {data}: load something with `meridian load`"),
        1 => format!("the database {} of {data}", databases.join("")),
        _ => format!("the databases {} of {data}", databases.join(", ")),
    };
    let mut text = format!("Meridian {} serves {of}\n", env!("CARGO_PKG_VERSION"));
    let chosen = databases.first().map(|name| format!(" {name}"));
    let chosen = chosen.unwrap_or_default();
    let (login, user) = match server.has_users() {
        true => (" -u NAME -p", "-u NAME "),
        false => ("", ""),
    };
    if let Some(address) = server.mysql_address() {
        let (host, port) = (address.ip(), address.port());
        writeln!(text, "MySQL clients connect to {address}, as with")?;
        writeln!(text, "  mysql -h {host} -P {port}{login}{chosen}")?;
    }
    if let Some(socket) = server.mysql_socket() {
        let socket = socket.display();
        writeln!(
            text,
            "MySQL clients of this machine connect by {socket}, as with"
        )?;
        writeln!(text, "  mysql -S {socket}{login}{chosen}")?;
    }
    if let Some(address) = server.http_address() {
        writeln!(text, "HTTP clients connect to http://{address}, as with")?;
        // Tables that cannot be read are no reason not to serve the others.
        let example = server.example_cone().await.unwrap_or_else(|error| {
            warn!(%error, "there is no example of a cone search");
            None
        });
        match example {
            Some((database, table, [ra, dec])) => writeln!(
                text,
                "  curl {user}'http://{address}/scs/{database}/{table}?RA={ra:.4}&DEC={dec:.4}&SR={EXAMPLE_RADIUS}&RESPONSEFORMAT=csv'"
            ),
            None => writeln!(text, "  curl {user}http://{address}/"),
        }?;
        writeln!(
            text,
            "Browsers find a page for queries at http://{address}/editor"
        )?;
    }
    if let Some(address) = server.cluster_address() {
        writeln!(text, "Workers join at {address}, as with")?;
        writeln!(
            text,
            "  meridian worker --join {address} --data DIR {credential_option}"
        )?;
    }
    tell(&text)
}
