//! The server's variables, status, processes and limits, for SQL statements: of the whole server, and as a user sees them.

use std::path::PathBuf;
use std::sync::Arc;

use ::queries::QueryService;
use ::users::{Limit, User};
use engine::SystemTables;
use sql::connection::{LimitInfo, ProcessInfo, ServerInfo, VariableValue};

use crate::mysql;
use crate::queries::ServerTables;
use crate::usage::Usage;

/// The server's variables, status and processes, for SQL statements.
#[derive(Debug)]
pub(crate) struct LiveServerInfo {
    pub(crate) tables: Arc<ServerTables>,
    pub(crate) port: u16,
    pub(crate) socket: Option<PathBuf>,
    pub(crate) max_connections: u64,
    pub(crate) tls: bool,
    pub(crate) native_password: bool,
}

impl ServerInfo for LiveServerInfo {
    fn variable(&self, name: &str) -> Option<VariableValue> {
        match name {
            "port" => Some(VariableValue::Number(self.port.into())),
            "socket" => {
                let socket = self.socket.as_ref()?;
                Some(VariableValue::Text(socket.display().to_string()))
            }
            "max_connections" => Some(VariableValue::Number(self.max_connections)),
            "max_allowed_packet" => Some(VariableValue::Number(mysql::LONGEST_COMMAND as u64)),
            "mysql_native_password" => Some(VariableValue::Number(self.native_password.into())),
            "have_ssl" | "have_openssl" if self.tls => Some(VariableValue::Text("YES".to_owned())),
            _ => None,
        }
    }

    fn status(&self) -> Vec<(&'static str, String)> {
        self.tables.status()
    }

    fn processes(&self) -> Vec<ProcessInfo> {
        self.tables.processes()
    }

    fn limits(&self) -> Vec<LimitInfo> {
        Vec::new()
    }

    fn groups(&self) -> Vec<String> {
        Vec::new()
    }

    fn own_databases(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The same as a user sees it: the own connections, unless the user is an administrator, and the own limits.
#[derive(Debug)]
pub(crate) struct OwnServerInfo {
    pub(crate) user: Arc<User>,
    pub(crate) usage: Arc<Usage>,
    pub(crate) queries: Arc<QueryService>,
    pub(crate) server: Arc<dyn ServerInfo>,
}

impl ServerInfo for OwnServerInfo {
    fn variable(&self, name: &str) -> Option<VariableValue> {
        self.server.variable(name)
    }

    fn status(&self) -> Vec<(&'static str, String)> {
        self.server.status()
    }

    fn processes(&self) -> Vec<ProcessInfo> {
        let mut processes = self.server.processes();
        processes.retain(|process| self.user.is_admin || process.user == self.user.name);
        processes
    }

    fn limits(&self) -> Vec<LimitInfo> {
        let mut limits = self.usage.infos();
        for limit in &mut limits {
            if limit.name == Limit::Submitted.name() {
                limit.used = Some(self.queries.num_submitted_by(&self.user.name));
            } else if limit.name == Limit::Stored.name() {
                limit.stored_in = Some(self.user.name.clone());
            }
        }
        limits.extend(self.user.group_databases.iter().map(|database| LimitInfo {
            name: Limit::GroupStored.name(),
            most: database.limits.stored,
            used: None,
            stored_in: Some(database.name.clone()),
            meaning: database.meaning().into(),
        }));
        limits
    }

    fn groups(&self) -> Vec<String> {
        self.user.groups.clone()
    }

    fn own_databases(&self) -> Vec<String> {
        self.user.own_databases().map(str::to_owned).collect()
    }
}
