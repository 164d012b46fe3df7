//! LOAD DATA LOCAL INFILE: the client sends a file, whose rows are inserted.
//!
//! Source: *MySQL Source Code Documentation*, "LOCAL INFILE Request": a packet with 0xfb and the file's name, and from the client packets
//! with the file's bytes, of which the last is empty.

use std::io::Write;

use sql::mysql::LoadedFile;
use sql::{ErrorCode, Interrupt};
use tempfile::NamedTempFile;

use super::capabilities::Capabilities;
use super::connection::Client;
use super::packets::LONGEST_COMMAND;
use super::statements::aside;
use super::watch::{Interruption, Watch};
use crate::ClientError;
use crate::own_tables::{Filling, TextFile, of_file};

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
        let table = self.own(load.table)?;
        let named: Vec<String> = load.columns.iter().flatten().cloned().collect();
        if named.is_empty() && !load.columns.is_empty() {
            let sentence = "no column gets a field: name one at least beside the variables";
            return Err(ClientError::new(ErrorCode::SYNTAX, sentence).into());
        }
        // Of a mistake the client is told before it sends anything.
        let columns = table.columns(named).await?;
        let file = self.receive_file(&load.file, watch).await?;
        let fields = match load.columns.is_empty() {
            true => vec![true; columns.len()],
            false => load.columns.iter().map(Option::is_some).collect(),
        };
        let file = TextFile {
            file,
            form: load.form,
            character_set: load.character_set,
            fields,
        };
        let change = self.filling(table, file, Filling::More(columns));
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
            if received > LONGEST_FILE {
                continue;
            }
            if let Err(error) = aside(packet.len(), || file.write_all(&packet)) {
                failed.get_or_insert(error);
            }
        }
        self.outgoing.number = self.incoming.number;
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
