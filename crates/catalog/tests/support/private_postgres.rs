//! A PostgreSQL of this process's own, from Debian's packages, reached through a socket in a directory of its own.
//!
//! It ends with this process, however that ends: a shell that started it waits for the end of its input.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use meridian_catalog::{Catalog, PostgresAddress};
use sqlx::{ConnectOptions, PgConnection, postgres::PgConnectOptions};
use tempfile::TempDir;

/// The socket, a database and where it listens.
pub struct Server {
    socket: PathBuf,
    _input: Option<ChildStdin>,
    _shell: Child,
}

static SERVER: OnceLock<Option<Server>> = OnceLock::new();
static SCHEMAS: AtomicU32 = AtomicU32::new(0);

const SCRIPT: &str = r#"
"$1/initdb" -D "$2/data" -U meridian -A trust -N -E UTF8 --locale=C >/dev/null 2>&1 || exit 1
"$1/postgres" -D "$2/data" -k "$2" -c listen_addresses= -c fsync=off -c max_connections=500 >/dev/null 2>&1 &
cat >/dev/null
kill -QUIT $!
wait $!
rm -rf "$2"
"#;

/// The server, which all tests of the process share; `None`, which is told, where there is no PostgreSQL.
pub fn server() -> Option<&'static Server> {
    SERVER
        .get_or_init(|| {
            let Some(binaries) = binaries() else {
                // Tests' output is not shown when they pass, but this is not printed.
                let told = "PostgreSQL is not installed (Debian's package postgresql): the catalog in it is NOT TESTED\n";
                std::io::stderr().write_all(told.as_bytes()).unwrap();
                return None;
            };
            Some(start(&binaries))
        })
        .as_ref()
}

fn binaries() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let mut found: Vec<PathBuf> = { versions }
        .flatten()
        .map(|version| version.path().join("bin"))
        .filter(|binaries| binaries.join("postgres").exists())
        .collect();
    found.sort();
    found.pop()
}

fn start(binaries: &Path) -> Server {
    let directory = tempfile::Builder::new()
        .prefix("postgres_")
        .tempdir()
        .unwrap()
        .keep();
    let is_root = directory.metadata().unwrap().uid() == 0;
    let mut shell = if is_root {
        // PostgreSQL refuses to run as root: then it runs as the user that its package made.
        let owned = Command::new("chown")
            .arg("postgres")
            .arg(&directory)
            .status();
        assert!(owned.unwrap().success());
        let mut shell = Command::new("runuser");
        shell.args(["-u", "postgres", "--", "sh"]);
        shell
    } else {
        Command::new("sh")
    };
    let mut shell = shell
        .args(["-c", SCRIPT, "sh"])
        .args([binaries, &directory])
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let ready = || {
        Command::new(binaries.join("pg_isready"))
            .arg("-h")
            .arg(&directory)
            .stdout(Stdio::null())
            .status()
            .unwrap()
            .success()
    };
    let give_up = Instant::now() + Duration::from_secs(120);
    while !ready() {
        assert!(shell.try_wait().unwrap().is_none(), "PostgreSQL has ended");
        assert!(Instant::now() < give_up, "PostgreSQL does not start");
        std::thread::sleep(Duration::from_millis(50));
    }
    Server {
        socket: directory,
        _input: shell.stdin.take(),
        _shell: shell,
    }
}

impl Server {
    pub fn url(&self) -> String {
        let socket = self.socket.display();
        format!("postgres://meridian@localhost/postgres?host={socket}")
    }

    /// A name that no other test has.
    pub fn new_schema(&self) -> String {
        format!("t{}", SCHEMAS.fetch_add(1, Ordering::Relaxed))
    }

    pub fn address(&self, schema: &str) -> PostgresAddress {
        PostgresAddress::new(&self.url(), Some(schema), None).unwrap()
    }

    /// A connection that sees a schema.
    pub async fn connect(&self, schema: &str) -> PgConnection {
        let options: PgConnectOptions = self.url().parse().unwrap();
        let options = options.options([("search_path", schema)]);
        options.connect().await.unwrap()
    }
}

/// A catalog in a schema of its own. Each handle is of another data directory, as other front ends may see one directory by other paths.
pub struct PostgresPlace {
    pub server: &'static Server,
    pub schema: String,
    file: String,
    first: TempDir,
    more: std::sync::Mutex<Vec<TempDir>>,
}

impl PostgresPlace {
    pub async fn new() -> Option<Self> {
        let server = tokio::task::spawn_blocking(server).await.unwrap()?;
        let schema = server.new_schema();
        let first = tempfile::tempdir().unwrap();
        Catalog::create_in_postgres(first.path(), &server.address(&schema))
            .await
            .unwrap();
        let file = std::fs::read_to_string(first.path().join("meridian.catalog")).unwrap();
        Some(Self {
            server,
            schema,
            file,
            first,
            more: std::sync::Mutex::default(),
        })
    }

    /// The directory for which the catalog was made.
    pub fn first_dir(&self) -> &Path {
        self.first.path()
    }

    /// One more directory with this catalog.
    pub fn another_dir(&self) -> PathBuf {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("meridian.catalog"), &self.file).unwrap();
        let path = dir.path().to_owned();
        self.more.lock().unwrap().push(dir);
        path
    }
}
