//! Commands that a server has another process run on its data directory, whose memory is not that of statements.

use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// How often it is looked whether the process has ended.
const POLL: Duration = Duration::from_millis(200);

/// How a process of this program with these arguments has ended, and what it complained of; `None` if the server stops before.
pub(super) async fn run_beside(
    arguments: &[&str],
    data: &Path,
    stop: &CancellationToken,
) -> io::Result<Option<(ExitStatus, String)>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments).arg("--data").arg(data);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut process = Beside(crate::parent::tie(&mut command).spawn()?);
    let status = loop {
        if let Some(status) = process.0.try_wait()? {
            break status;
        }
        if stop.run_until_cancelled(sleep(POLL)).await.is_none() {
            return Ok(None);
        }
    };
    let mut complaint = String::new();
    if let Some(pipe) = &mut process.0.stderr {
        pipe.read_to_string(&mut complaint)?;
    }
    Ok(Some((status, complaint.trim().to_owned())))
}

/// The process. It ends when this is dropped, and leaves what it leaves when it is killed.
struct Beside(Child);

impl Drop for Beside {
    fn drop(&mut self) {
        if !matches!(self.0.try_wait(), Ok(Some(_))) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}
