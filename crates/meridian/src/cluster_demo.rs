//! `meridian cluster demo`: a cluster on this machine to try things with, until Ctrl-C ends it.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use cluster::{CredentialFiles, Operator};
use tokio::runtime::Runtime;

use crate::console::{remark, tell};
use crate::failure::Failure;
use crate::parent::tie;

const WORKERS: usize = 3;
const REPLICAS: usize = 2;
/// How long the workers may take to get their files.
const PATIENCE: Duration = Duration::from_secs(600);
const POLL: Duration = Duration::from_millis(300);

/// What is tried, and where.
#[derive(Args)]
pub struct DemoArguments {
    /// The data directory that the front end serves; what `make demo` has loaded by default.
    #[arg(long, value_name = "DIR", default_value = "data/demo")]
    data: PathBuf,
    /// Where the workers have their directories.
    #[arg(long, value_name = "DIR", default_value = "data/cluster-demo")]
    work: PathBuf,
}

/// Processes that end with this one.
struct Members(Vec<Child>);

impl Drop for Members {
    fn drop(&mut self) {
        for member in &mut self.0 {
            // It may have ended by itself.
            let _ = member.kill();
            let _ = member.wait();
        }
    }
}

/// Starts a front end and three workers, says what to try, and waits for Ctrl-C.
pub fn run(arguments: &DemoArguments) -> Result<(), Failure> {
    if catalog::catalog_place(&arguments.data).is_err() {
        return Err(Failure::new(format!(
            "there is nothing loaded in {}: run `make demo` first, or give --data with a data directory",
            arguments.data.display()
        )));
    }
    fs::create_dir_all(&arguments.work)?;
    let secret = make_secret(&arguments.work)?;
    let program = std::env::current_exe()?;
    let mut members = Members(Vec::new());
    let mut front_end = Command::new(&program);
    front_end
        .args(["serve", "--mysql", "127.0.0.1:0", "--http", "127.0.0.1:0"])
        .args(["--cluster", "127.0.0.1:0", "--log", "warn"])
        .args(["--replicas", &REPLICAS.to_string(), "--lost-after", "20"])
        .arg("--data")
        .arg(&arguments.data)
        .arg("--cluster-secret")
        .arg(&secret);
    let (child, said) = started(front_end, "Workers join at ")?;
    members.0.push(child);
    let (_, address) = said
        .last()
        .and_then(|line| line.split_once("Workers join at "))
        .ok_or_else(|| Failure::new("the front end did not start: see what it says above"))?;
    let address = address.split(',').next().unwrap_or_default().to_owned();
    tell(&format!("{}\n\n", said[..said.len() - 1].join("\n")))?;
    let mut pids = Vec::new();
    for number in 1..=WORKERS {
        let mut worker = Command::new(&program);
        worker
            .args(["worker", "--join", &address, "--log", "warn"])
            .args(["--name", &format!("w{number}"), "--threads", "2"])
            .args(["--memory", "512M", "--cache", "256M"])
            .arg("--data")
            .arg(arguments.work.join(format!("w{number}")))
            .arg("--cluster-secret")
            .arg(&secret);
        let (child, _) = started(worker, "joins the cluster")?;
        pids.push(child.id());
        members.0.push(child);
    }
    let runtime = Runtime::new()?;
    runtime.block_on(wait_for_replicas(&address, &secret))?;
    tell(&what_to_try(
        &program,
        &address,
        &secret,
        &arguments.work,
        &pids,
    ))?;
    runtime.block_on(tokio::signal::ctrl_c())?;
    Ok(())
}

/// A secret of this demo's own.
fn make_secret(work: &Path) -> Result<PathBuf, Failure> {
    let path = work.join("secret");
    if !path.exists() {
        let mut bytes = [0; 32];
        fs::File::open("/dev/urandom").and_then(|mut source| {
            use std::io::Read;
            source.read_exact(&mut bytes)
        })?;
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        writeln!(file, "{digits}")?;
    }
    Ok(path)
}

/// Starts a process, and gives the lines that it says up to one with these words. What it says later goes nowhere.
fn started(mut command: Command, words: &str) -> Result<(Child, Vec<String>), Failure> {
    // A demonstration that is killed ends nothing by itself.
    let mut child = tie(&mut command).stdout(Stdio::piped()).spawn()?;
    let Some(stdout) = child.stdout.take() else {
        return Err(Failure::new("a process cannot be heard"));
    };
    let (mut lines, mut said) = (BufReader::new(stdout).lines(), Vec::new());
    for line in lines.by_ref() {
        let line = line?;
        let is_last = line.contains(words);
        said.push(line);
        if is_last {
            // Nobody reading would end it.
            thread::spawn(move || lines.for_each(drop));
            return Ok((child, said));
        }
    }
    let status = child.wait()?;
    Err(Failure::new(format!(
        "a member of the cluster did not start ({status}): see what it says above"
    )))
}

async fn wait_for_replicas(address: &str, secret: &Path) -> Result<(), Failure> {
    let secret = CredentialFiles::Secret(secret.to_owned());
    let operator = Operator::new(address.to_owned(), &secret)?;
    let began = Instant::now();
    remark("The workers get their files ...");
    loop {
        let status = operator.status().await?;
        if status.workers.len() == WORKERS && status.missing_replicas == 0 {
            return Ok(());
        }
        if began.elapsed() > PATIENCE {
            return Err(Failure::new(format!(
                "the workers did not get their files within {} s: {} replicas lack",
                PATIENCE.as_secs(),
                status.missing_replicas
            )));
        }
        tokio::time::sleep(POLL).await;
    }
}

fn what_to_try(program: &Path, address: &str, secret: &Path, work: &Path, pids: &[u32]) -> String {
    let program = program.display();
    let options = format!("--cluster {address} --cluster-secret {}", secret.display());
    let (work, first) = (work.display(), pids.first().copied().unwrap_or_default());
    format!(
        "A front end and {WORKERS} workers run; each chunk file is on {REPLICAS} of them. What to try:

  Connect as above, ask something, and see who ran it: the last lines of
    EXPLAIN ANALYZE SELECT ...
  Look at the workers:
    {program} cluster status {options}
  Kill one while a statement runs. No statement fails, and the others get its replicas after 20 s:
    kill -9 {first}
  Start it again, and it takes its share back:
    {program} worker --join {address} --cluster-secret {} --name w1 --data {work}/w1
  Take one away without loss:
    {program} cluster drain w2 {options}

Ctrl-C ends all of them. docs/cluster.md has the rest.
",
        secret.display()
    )
}
