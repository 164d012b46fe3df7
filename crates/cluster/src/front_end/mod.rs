//! A front end's part in a cluster: it knows the workers, says what each shall hold, serves the files that they lack, and has pieces
//! of queries run by them.

mod assignments;
mod copy_order;
mod files;
mod holders;
mod leadership;
mod load_tasks;
mod loads;
mod members;
mod orders;
mod own_files;
mod parts;
mod repair;
mod room;
mod routes;
mod scrub;
mod settings;
mod several;
mod shared;
mod status;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use catalog::{CatalogState, SharedDatabase};
use engine::{Archive, EngineError, PieceDispatcher};
use store::FileService;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use users::{Users, UsersState};

use crate::ClusterError;
use crate::client::MemberClient;
use crate::credentials::{CredentialFiles, Credentials};
use crate::dispatch::{DispatchOptions, Dispatcher};
use crate::listen::{bind, serve};
use crate::scrubs::Scrubs;
use crate::shuffle::FrontEndShuffles;
use crate::tls::Role;
use assignments::{Assignments, Inputs, assign};
use files::LocalPort;
use holders::{EngineHolders, Holders};
use leadership::Leadership;
pub(crate) use members::{Holdings, Member, Members, part_files};
use orders::Orders;
use own_files::DamagedFiles;
use parts::KnownPart;
pub(crate) use parts::{PartKey, Parts};
pub use room::KeptFiles;
use settings::{Settings, lock_alone};
use several::Several;
use shared::Identity;

/// How often a front end looks whether tables have changed.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long after its start a front end waits for workers to report before it says what they shall hold: with the first one alone, it
/// would have to get everything.
const SETTLE: Duration = Duration::from_secs(3);

/// The configuration of a front end's part in a cluster.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// Where members connect: `host:port`; port 0 takes a free port.
    pub address: String,
    /// What others are told of where that is, if it is something else, as it is for `0.0.0.0`.
    pub advertise: Option<String>,
    /// What makes it a member.
    pub credentials: CredentialFiles,
    /// Replicas of each chunk file.
    pub replicas: usize,
    /// How many of the chunk files that workers hold the front end keeps itself.
    pub kept_files: KeptFiles,
    /// How long a worker may be silent before others get its replicas.
    pub lost_after: Duration,
    /// How long a worker may say nothing of pieces that it runs before they run elsewhere.
    pub stalled_after: Duration,
    /// The most rows of pieces that it merges itself: more are merged by workers, if that can be. None for all.
    pub shuffle_above: Option<u64>,
    /// Whether the address may be one that other machines reach, though what members say is not encrypted, which it is in TLS.
    pub is_insecure: bool,
}

/// A front end of a cluster.
#[derive(Debug)]
pub struct FrontEnd {
    archive: Arc<Archive>,
    /// Whose own databases there are.
    users: Users,
    settings: Settings,
    members: Arc<Members>,
    parts: Arc<Parts>,
    client: Arc<MemberClient>,
    dispatcher: Arc<Dispatcher>,
    shuffles: Arc<FrontEndShuffles>,
    holders: Arc<Holders>,
    options: ClusterOptions,
    listener: Mutex<Option<TcpListener>>,
    local_port: Mutex<Option<LocalPort>>,
    /// How other processes of this machine get files.
    service: FileService,
    address: SocketAddr,
    /// Where others are told that it listens.
    advertised: String,
    /// A number of this process.
    process: u64,
    assigned: Mutex<AssignedFiles>,
    /// Woken when what workers shall hold has to be computed anew.
    changed: Notify,
    leadership: Leadership,
    /// What it shares with other front ends; none where it is alone.
    several: Option<Several>,
    /// Keeps others out where it is alone.
    _alone: Option<File>,
    started: Instant,
    /// Since when workers can report: it was started, or woke up.
    awake: Mutex<Instant>,
    /// The workers that an operator has given up before `lost_after`, each with the moment when it was last heard of: one that is heard of again
    /// is not lost.
    given_up: Mutex<HashMap<String, Instant>>,
    /// Counts the files that workers asked for, so that they come from all holders by turns.
    redirections: AtomicUsize,
    /// Counts how often files were given up and brought back.
    away_version: AtomicU64,
    /// The loads that operators have workers do.
    loads: loads::Loads,
    /// Its own files that are damaged.
    damaged: Arc<DamagedFiles>,
    /// What operators have had read through of its own files.
    scrubs: Scrubs,
}

/// What workers were told to hold.
#[derive(Debug, Default)]
struct AssignedFiles {
    latest: Assignments,
    parts: Arc<Vec<Arc<KnownPart>>>,
    superseded: Vec<Arc<KnownPart>>,
    /// Counts the lists of parts.
    list: u64,
    /// The folded names of users' and groups' own databases.
    user_databases: HashSet<String>,
    /// The states of the catalog and of the users of which the list is.
    state: Option<(CatalogState, UsersState)>,
    /// Of what `latest` was computed.
    inputs: Option<KnownInputs>,
    /// The epoch in which this front end gives orders; none if it does not.
    epoch: Option<u64>,
    orders: Orders,
}

impl AssignedFiles {
    /// Gives orders in another epoch from now on. What workers were told before counts for nothing.
    fn begin(&mut self, epoch: u64, process: u64) {
        // After a start no worker shall take an old number for a new one.
        self.orders = Orders::new(process >> 16);
        self.epoch = Some(epoch);
        self.inputs = None;
    }

    /// The epoch of its orders, if this front end still leads in it.
    fn leads(&self, leadership: &Leadership) -> Option<u64> {
        self.epoch
            .filter(|epoch| leadership.epoch() == Some(*epoch))
    }
}

/// The version of what a worker holds, once it has told.
type HeldVersion = Option<(u64, u64)>;

/// What assignments depend on, in short: equal ones give equal assignments.
#[derive(Debug, PartialEq)]
struct KnownInputs {
    /// The number of the list of parts.
    list: u64,
    /// The parts of those that no table shows whose files are there still.
    superseded: Vec<PartKey>,
    /// The workers that are not lost, each with the version of what it holds, and this front end's assignment if it follows one.
    members: Vec<(String, HeldVersion, Option<u64>)>,
    /// Those of them that report.
    live: HashSet<String>,
    /// Counts how often files were given up and brought back.
    away: u64,
    draining: HashSet<String>,
    /// The epoch in which this front end leads.
    epoch: Option<u64>,
    /// When it was: disks fill up by themselves.
    minute: u64,
}

impl FrontEnd {
    /// Binds the address. It is served, and workers are told what to hold, by [`Self::run`]; pieces are sent from threads of the runtime
    /// in which this is called.
    ///
    /// # Errors
    /// The credentials or the settings cannot be read, or the address cannot be bound.
    pub async fn bind(
        archive: Arc<Archive>,
        options: ClusterOptions,
    ) -> Result<Arc<Self>, ClusterError> {
        let credentials = Credentials::read(&options.credentials, &[Role::FrontEnd])?;
        let may_be_reached = options.is_insecure || credentials.is_encrypted();
        let listener = bind(&options.address, may_be_reached).await?;
        let address = listener
            .local_addr()
            .map_err(|error| ClusterError::Listen {
                address: options.address.clone(),
                why: error.to_string(),
            })?;
        let advertised = options.advertise.clone();
        let advertised = advertised.unwrap_or_else(|| address.to_string());
        let process = crate::random()?;
        let data_dir = archive.catalog().data_dir();
        let users = Users::of(data_dir);
        let mut settings = Settings::open(data_dir)?;
        let database = SharedDatabase::of(data_dir).await;
        let (several, alone) = match database.map_err(EngineError::from)? {
            Some(database) => {
                let me = Identity {
                    process,
                    address: advertised.clone(),
                    replicas: options.replicas,
                    gives_up: options.kept_files != KeptFiles::All,
                };
                let several = Several::open(database, me, &mut settings).await?;
                (Some(several), None)
            }
            None => (None, Some(lock_alone(data_dir)?)),
        };
        let local_port = LocalPort::open(data_dir).await?;
        let members: Arc<Members> = Arc::default();
        let client = Arc::new(MemberClient::new(credentials));
        let parts: Arc<Parts> = Arc::default();
        let holders = Holders::new(
            Arc::clone(&members),
            Arc::clone(&parts),
            client.credentials().clone(),
        );
        let damaged: Arc<DamagedFiles> = Arc::default();
        archive.read_from_holders(Arc::new(EngineHolders {
            holders: Arc::clone(&holders),
            damaged: Arc::clone(&damaged),
        }));
        let shuffles = FrontEndShuffles::new(&advertised);
        let dispatching = DispatchOptions {
            archive: settings.archive().to_owned(),
            process,
            stalled_after: options.stalled_after,
            shuffle_above: options.shuffle_above,
        };
        Ok(Arc::new(Self {
            holders,
            dispatcher: Dispatcher::new(
                dispatching,
                Arc::clone(&members),
                Arc::clone(&parts),
                Arc::clone(&client),
                Arc::clone(&shuffles),
            ),
            shuffles,
            archive,
            users,
            settings,
            members,
            parts,
            client,
            options,
            listener: Mutex::new(Some(listener)),
            service: local_port.service().clone(),
            local_port: Mutex::new(Some(local_port)),
            address,
            advertised,
            process,
            assigned: Mutex::default(),
            changed: Notify::new(),
            leadership: match &several {
                Some(_) => Leadership::among_others(),
                None => Leadership::alone(),
            },
            several,
            _alone: alone,
            started: Instant::now(),
            awake: Mutex::new(Instant::now()),
            given_up: Mutex::default(),
            redirections: AtomicUsize::new(0),
            away_version: AtomicU64::new(0),
            loads: loads::Loads::default(),
            damaged,
            scrubs: Scrubs::default(),
        }))
    }

    /// Where members connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Has pieces of queries run by workers.
    pub fn dispatcher(&self) -> Arc<dyn PieceDispatcher> {
        Arc::clone(&self.dispatcher) as _
    }

    /// Serves members until it is stopped.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let (listener, local) = (lock(&self.listener).take(), lock(&self.local_port).take());
        let (Some(listener), Some(local)) = (listener, local) else {
            return;
        };
        let (local, files, token) = local.into_parts(Arc::clone(&self));
        let router = routes::router(Arc::clone(&self));
        let served = serve(listener, router, self.client.credentials(), stop.clone());
        tokio::select! {
            () = served => {}
            () = serve(local, files, &token, stop.clone()) => {}
            () = Arc::clone(&self).keep_assigning() => {}
            () = Arc::clone(&self).keep_bringing_back() => {}
            () = self.keep_repairing() => {}
            () = self.keep_scrubbing() => {}
            () = self.keep_leading() => {}
            () = self.notice_sleep() => {}
        }
        self.leave().await;
    }

    async fn keep_assigning(self: Arc<Self>) {
        loop {
            let _ = timeout(LOOK_INTERVAL, self.changed.notified()).await;
            let leads = self.leadership.epoch();
            let begins = leads.filter(|epoch| lock(&self.assigned).epoch != Some(*epoch));
            let listed = match begins {
                // A leader knows all parts that the one before it knew: else it would have replicas of the newest ones given up.
                Some(_) => self.read_parts().await,
                None => self.list_parts().await,
            };
            match (listed, begins) {
                (Ok(()), Some(epoch)) => {
                    self.look_for_files_that_came_back();
                    lock(&self.assigned).begin(epoch, self.process);
                }
                (Ok(()), None) if leads.is_none() => self.look_for_files_that_came_back(),
                (Ok(()), None) => {}
                (Err(error), _) => {
                    warn!(%error, "the parts of the archive cannot be listed");
                    sleep(LOOK_INTERVAL).await;
                }
            }
            // It takes long where there is much to place.
            let placing = Arc::clone(&self);
            let place = move || {
                placing.assign();
                while placing.make_room() {
                    placing.assign();
                }
            };
            if let Err(error) = spawn_blocking(place).await {
                warn!(%error, "files could not be placed");
            }
        }
    }

    /// Lists the parts of the archive, if they have changed since the last time.
    pub(crate) async fn list_parts(&self) -> Result<(), EngineError> {
        let now = self.state();
        if now.is_some() && now == lock(&self.assigned).state {
            return Ok(());
        }
        self.read_parts().await
    }

    /// What the list of parts depends on; none if that cannot be told.
    fn state(&self) -> Option<(CatalogState, UsersState)> {
        Some((self.archive.catalog().state()?, self.users.state().ok()?))
    }

    /// Lists the parts of the archive as they are now.
    async fn read_parts(&self) -> Result<(), EngineError> {
        let mut now = self.state();
        let users_of = |state: Option<(CatalogState, UsersState)>| state.map(|(_, users)| users);
        let known = users_of(lock(&self.assigned).state);
        let user_databases = match known.is_some() && known == users_of(now) {
            true => None,
            // What cannot be read is as it was known before, until it can.
            false => match self.users.list().await {
                Ok(users) => Some(users.own_databases()),
                Err(error) => {
                    warn!(%error, "whose own tables there are is not known anew");
                    now = None;
                    None
                }
            },
        };
        let parts = self.parts.list(self.archive.catalog()).await?;
        let superseded = self.parts.superseded(self.archive.catalog()).await?;
        let mut assigned = lock(&self.assigned);
        assigned.parts = Arc::new(parts);
        assigned.superseded = superseded;
        if let Some(known) = user_databases {
            assigned.user_databases = known;
        }
        assigned.list += 1;
        assigned.state = now;
        drop(assigned);
        self.parts.forget_removed();
        Ok(())
    }

    /// Computes what the workers shall hold, if anything has changed that decides it.
    fn assign(&self) {
        let members = self.placed_members();
        let now = Instant::now();
        let live = members.iter().filter(|(_, member)| member.is_live(now));
        let live: HashSet<String> = live.map(|(name, _)| name.clone()).collect();
        let draining = self.settings.draining();
        let mut assigned = lock(&self.assigned);
        assigned.superseded.retain(|part| part.exists());
        let epoch = assigned.leads(&self.leadership);
        let follows = |member: &Member| member.follows(epoch);
        let inputs = KnownInputs {
            list: assigned.list,
            members: members
                .iter()
                .map(|(name, it)| (name.clone(), it.holdings_version, follows(it)))
                .collect(),
            live: live.clone(),
            superseded: assigned.superseded.iter().map(|part| part.key).collect(),
            away: self.away_version.load(Relaxed),
            draining: draining.clone(),
            epoch,
            minute: self.started.elapsed().as_secs() / 60,
        };
        if assigned.inputs.as_ref() == Some(&inputs) {
            return;
        }
        assigned.inputs = Some(inputs);
        for (name, member) in &members {
            if let Some(number) = follows(member) {
                assigned.orders.acknowledge(name, number);
            }
        }
        let sure = match epoch {
            Some(_) => assigned.orders.sure(),
            // Whatever the leader has told workers is not known here.
            None => HashMap::new(),
        };
        let latest = assign(&Inputs {
            parts: &assigned.parts,
            superseded: &assigned.superseded,
            members: &members,
            live: &live,
            user_databases: &assigned.user_databases,
            draining: &draining,
            replicas: self.options.replicas,
            sure: &sure,
        });
        if epoch.is_some() {
            assigned.orders.tell(&latest.workers, &latest.user_parts);
        }
        if assigned.latest.missing_replicas > 0 && latest.missing_replicas == 0 {
            info!(files = latest.files, "every chunk file has its replicas");
        }
        assigned.latest = latest;
    }

    /// The workers that are not lost: replicas on others count for nothing.
    fn placed_members(&self) -> BTreeMap<String, Member> {
        let mut members = self.members.all();
        let now = Instant::now();
        members.retain(|name, member| !self.is_lost(name, member, now));
        members
    }

    /// Whether others get a worker's replicas.
    fn is_lost(&self, name: &str, member: &Member, now: Instant) -> bool {
        now.duration_since(member.heard) >= self.options.lost_after
            || lock(&self.given_up).get(name) == Some(&member.heard)
    }

    /// Whether all workers that there are have had the time to report.
    fn has_settled(&self) -> bool {
        lock(&self.awake).elapsed() >= SETTLE
    }
}

/// A panic elsewhere leaves what it guards whole: every change is a single one.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
