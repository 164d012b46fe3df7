//! LOAD DATA LOCAL INFILE: the client sends a file, whose rows are inserted.
//!
//! Source: *MySQL Source Code Documentation*, "LOCAL INFILE Request": a packet with 0xfb and the file's name, and from the client packets
//! with the file's bytes, of which the last is empty.

use std::io::Write;
use std::sync::{Arc, PoisonError};

use ::users::Limit;
use sql::connection::UserValue;
use sql::mysql::{LoadedField, LoadedFile};
use sql::{ErrorCode, Interrupt};
use tempfile::NamedTempFile;

use super::capabilities::Capabilities;
use super::connection::Client;
use super::packets::LONGEST_COMMAND;
use super::statements::aside;
use super::watch::{Interruption, Watch};
use crate::ClientError;
use crate::own_tables::{Assignments, Filling, TextFile, of_file};

/// The first byte of the packet that requests a file.
const FILE_REQUEST: u8 = 0xfb;
/// Bytes of the longest file.
const LONGEST_FILE: u64 = 256 << 20;

impl Client {
    /// Inserts the rows of a file that the client sends. Returns their number.
    pub(super) async fn load_file(
        &mut self,
        load: LoadedFile,
        watch: &Watch<'_>,
    ) -> Result<u64, Interruption> {
        if !self.capabilities.has(Capabilities::LOCAL_FILES) {
            let sentence = "your client does not send files: allow it (--local-infile=1, local_infile=True, allowLoadLocalInfile=true)";
            return Err(ClientError::new(ErrorCode::NO_LOCAL_FILES, sentence).into());
        }
        let statements = self.table_statements();
        let table = statements.table(load.table)?;
        let named = load.fields.iter().filter_map(LoadedField::column);
        let named: Vec<String> = named.map(str::to_owned).collect();
        if named.is_empty() && !load.fields.is_empty() && load.assigned.is_empty() {
            let sentence =
                "no column gets a field: name one at least beside the variables, or SET one";
            return Err(ClientError::new(ErrorCode::SYNTAX, sentence).into());
        }
        // Of a mistake the client is told before it sends anything.
        let columns = match named.is_empty() && !load.fields.is_empty() {
            true => Vec::new(),
            false => table.columns(named).await?,
        };
        let assigned = Assignments::of(table.find().await?.spec(), &load.assigned, &load.fields)?;
        let mut file = TextFile {
            file: NamedTempFile::new().map_err(of_file)?,
            form: load.form,
            character_set: load.character_set,
            fields: match load.fields.is_empty() {
                true => columns.iter().cloned().map(LoadedField::Column).collect(),
                false => load.fields,
            },
            assigned,
            last: Arc::default(),
        };
        let last = Arc::clone(&file.last);
        if !file.assigned.is_empty() {
            // Expressions that cannot be evaluated, of no rows.
            let checked = statements.filling(
                table.clone(),
                file.of_no_rows()?,
                Filling::More(columns.clone()),
            );
            let mut computed = self.shared.query_runtime.compute(checked.check_fields());
            watch
                .during(&mut self.incoming, computed.recv_one())
                .await??;
        }
        file.file = self.receive_file(&load.file, watch).await?;
        let change = statements.filling(table, file, Filling::More(columns));
        let loaded = async move {
            let rows = change.run().await?;
            let statement = Interrupt::current();
            let warnings = statement.map(|it| it.warnings().take());
            Ok((rows, warnings.unwrap_or_default()))
        };
        let mut computed = self.shared.query_runtime.compute(loaded);
        let (rows, warnings) = watch
            .during(&mut self.incoming, computed.recv_one())
            .await??;
        self.add_warnings(warnings);
        // A variable keeps the field of the last row.
        let last = std::mem::take(&mut *last.lock().unwrap_or_else(PoisonError::into_inner));
        let variables = &mut Arc::make_mut(&mut self.connection).user_variables;
        for (name, field) in last {
            // One that there is no room for keeps what it has.
            let _ = variables.set(&name, field.map_or(UserValue::Null, UserValue::Text));
        }
        Ok(rows)
    }

    /// Requests a file and receives it.
    async fn receive_file(
        &mut self,
        name: &str,
        watch: &Watch<'_>,
    ) -> Result<NamedTempFile, Interruption> {
        let mut file = NamedTempFile::new().map_err(of_file)?;
        self.outgoing.add(|bytes| {
            bytes.push(FILE_REQUEST);
            bytes.extend_from_slice(name.as_bytes());
        });
        if self.flush().await.is_err() {
            return Err(Interruption::Disconnected);
        }
        self.incoming.number = self.outgoing.number;
        let most = self.shared.usage.limit(Limit::Upload);
        let longest = most.unwrap_or(LONGEST_FILE).min(LONGEST_FILE);
        let (mut received, mut failed) = (0, None);
        loop {
            // In the middle of a file there is no way to tell the client of an error.
            let packet = tokio::select! {
                biased;
                () = watch.statement.stopped() => return Err(Interruption::Disconnected),
                () = self.shared.ended.cancelled() => return Err(Interruption::Disconnected),
                packet = self.incoming.next(LONGEST_COMMAND) => packet,
            };
            let Ok(packet) = packet else {
                return Err(Interruption::Disconnected);
            };
            if packet.is_empty() {
                break;
            }
            received += packet.len() as u64;
            if received > longest {
                continue;
            }
            if let Err(error) = aside(packet.len(), || file.write_all(&packet)) {
                failed.get_or_insert(error);
            }
        }
        self.outgoing.number = self.incoming.number;
        if let Some(most) = most.filter(|most| received > *most) {
            let sentence = format!(
                "the file has {received} bytes, and you may send {most} at a time: send it in parts; SHOW LIMITS tells all limits"
            );
            return Err(ClientError::new(ErrorCode::LIMIT_REACHED, sentence).into());
        }
        if received > LONGEST_FILE {
            let sentence = format!(
                "the file is longer than {} MiB: send it in parts",
                LONGEST_FILE >> 20
            );
            return Err(ClientError::new(ErrorCode::PACKET_TOO_LARGE, sentence).into());
        }
        match failed {
            Some(error) => Err(of_file(error).into()),
            None => Ok(file),
        }
    }
}
