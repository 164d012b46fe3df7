//! Who executes the statements of `meridian sql`: this process, on a data directory, or a server.

mod archive;
mod server;

use sql::Dialect;

use crate::failure::Failure;
use crate::sql::SqlArgs;
use crate::statements::{Executed, ResultWriter};
pub use archive::ArchiveSession;
pub use server::ServerSession;

/// Who executes statements, with the default database of these.
#[derive(Clone)]
pub enum Executor {
    /// This process.
    Archive(ArchiveSession),
    /// A server.
    Server(ServerSession),
}

impl Executor {
    /// What the arguments of the command line name.
    ///
    /// # Errors
    /// The data directory cannot be opened, the server does not answer, or there is no such database.
    pub async fn open(args: &SqlArgs) -> Result<Self, Failure> {
        match args.server()? {
            Some(client) => ServerSession::open(client, args).await.map(Self::Server),
            None => ArchiveSession::open(args).await.map(Self::Archive),
        }
    }

    /// The dialect of the statements.
    pub fn dialect(&self) -> Dialect {
        match self {
            Self::Archive(session) => session.dialect(),
            Self::Server(session) => session.dialect,
        }
    }

    /// The default database.
    pub fn database(&self) -> Option<&str> {
        match self {
            Self::Archive(session) => session.database(),
            Self::Server(session) => session.database.as_deref(),
        }
    }

    /// Chooses the default database.
    ///
    /// # Errors
    /// There is no such database.
    pub async fn choose(&mut self, database: &str) -> Result<(), Failure> {
        match self {
            Self::Archive(session) => session.choose(database).await,
            Self::Server(session) => session.choose(database).await,
        }
    }

    /// Executes the statements of a text and writes their results.
    ///
    /// # Errors
    /// A statement fails, or its result cannot be written.
    pub async fn execute(
        &self,
        writer: &ResultWriter,
        text: &str,
        executed: &mut Executed,
    ) -> Result<(), Failure> {
        match self {
            Self::Archive(session) => session.execute(writer, text, executed).await,
            Self::Server(session) => session.execute(writer, text, executed).await,
        }
    }
}
