//! A small archive on which plans are made: all kinds of tables around the equator.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::util::pretty::pretty_format_batches;
use datafusion::physical_plan::displayable;
use futures::TryStreamExt;
use ingest::{LoadRequest, Progress};
use meridian_engine::{Archive, EngineError, QueryResult, ResultCache, Session, SessionOptions};
use tempfile::TempDir;

/// Objects, one a degree along the equator: 36 in each of the ten chunks of its stripe.
const OBJECTS: usize = 360;

pub struct SmallSky {
    session: Session,
    archive: Arc<Archive>,
    dir: TempDir,
}

impl SmallSky {
    pub async fn load() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let table = |name: &str, header: &str, row: &dyn Fn(usize) -> String| {
            let mut text = format!("{header}\n");
            for at in 0..OBJECTS {
                writeln!(text, "{}", row(at)).unwrap();
            }
            let path = dir.path().join(format!("{name}.csv"));
            std::fs::write(&path, text).unwrap();
            path
        };
        let objects = table("Object", "id,ra,decl,flag", &|at| {
            format!("{at},{at}.5,0.5,{}", at % 3)
        });
        // Every tenth source has no object, and every seventh an object that nobody knows.
        let sources = table("Source", "id,objectId,filterId,flux", &|at| match at {
            at if at % 10 == 0 => format!("{at},,1,{at}.25"),
            at if at % 7 == 0 => format!("{at},-{at},2,{at}.25"),
            at => format!("{at},{at},{},{at}.25", at % 4),
        });
        let pairs = table("ObjectPair", "leftId,rightId,sep", &|at| {
            format!("{at},{},0.1", (at + 1) % OBJECTS)
        });
        let filters = table("Filter", "id,name", &|at| format!("{at},f{at}"));

        let request = |name: &str, file: &Path| LoadRequest {
            files: vec![file.to_owned()],
            ..LoadRequest::new(&data, "sky", name)
        };
        for request in [
            LoadRequest {
                key: vec!["id".into()],
                ra: Some("ra".into()),
                dec: Some("decl".into()),
                stripes: Some(6),
                sub_stripes: Some(10),
                overlap_deg: Some(2.0),
                ..request("Object", &objects)
            },
            LoadRequest {
                key: vec!["objectId".into()],
                directors: vec!["Object".into()],
                ..request("Source", &sources)
            },
            LoadRequest {
                key: vec!["leftId".into(), "rightId".into()],
                directors: vec!["Object".into(), "Object".into()],
                ..request("ObjectPair", &pairs)
            },
            request("Filter", &filters),
        ] {
            ingest::load(request, Arc::new(Progress::default()))
                .await
                .unwrap();
        }
        let archive = Archive::open(&data).await.unwrap();
        let options = SessionOptions {
            cores: std::num::NonZeroUsize::new(2),
            dialect: sql::Dialect::Adql,
            ..SessionOptions::default()
        };
        Self {
            session: Session::new(Arc::clone(&archive), &options).await.unwrap(),
            archive,
            dir,
        }
    }

    /// A session that has not been asked anything before.
    pub async fn session_of(&self, dialect: sql::Dialect) -> Session {
        self.session_in(dialect, None).await.unwrap()
    }

    /// The same in a database.
    pub async fn session_in(
        &self,
        dialect: sql::Dialect,
        database: Option<&str>,
    ) -> Result<Session, EngineError> {
        let options = SessionOptions {
            database: database.map(str::to_owned),
            cores: std::num::NonZeroUsize::new(2),
            dialect,
            ..SessionOptions::default()
        };
        Session::new(Arc::clone(&self.archive), &options).await
    }

    /// A session whose statements may be answered by these results.
    pub async fn session_with(
        &self,
        results: &Arc<ResultCache>,
        dialect: sql::Dialect,
        database: &str,
    ) -> Session {
        let options = SessionOptions {
            database: Some(database.to_owned()),
            cores: std::num::NonZeroUsize::new(2),
            dialect,
            results: Some(Arc::clone(results)),
            ..SessionOptions::default()
        };
        Session::new(Arc::clone(&self.archive), &options)
            .await
            .unwrap()
    }

    /// The rows of a query as text, and whether they came from a plan that was kept rather than made.
    pub async fn rows(&self, sql: &str) -> (String, bool) {
        let known = self.session.execute_cached(sql).await.unwrap();
        let kept = known.is_some();
        let answer = match known {
            Some(answer) => answer,
            None => self.session.execute(sql).await.unwrap(),
        };
        (in_order(answer).await, kept)
    }

    /// Whether the rows of a query that touches one piece are found without a plan that was put together for it.
    pub async fn is_looked_up(&self, sql: &str) -> bool {
        let known = self.session.execute_cached(sql).await.unwrap();
        // Of such a plan there is no more than the part for the piece.
        known.is_some_and(|answer| answer.plan.name() == "ChunkPhaseExec")
    }

    /// Whether a query is answered at once, looking at no more than so many rows.
    pub async fn is_short(&self, sql: &str, most_rows: u64) -> bool {
        let alone = sql::Connection::alone(None);
        let answer = self
            .session
            .try_execute_inline(sql, &alone, most_rows)
            .await;
        answer.unwrap().is_some()
    }

    /// The same of a session that has not been asked anything before.
    pub async fn rows_afresh(&self, sql: &str) -> String {
        let session = self.session_of(sql::Dialect::Adql).await;
        let answer = session.execute(sql).await.unwrap();
        in_order(answer).await
    }

    /// Empties the file of a table's director index, as if a disk had lost it.
    pub fn empty_index(&self, table: &str) {
        let loads = self
            .dir
            .path()
            .join("data/tables")
            .join(format!("sky.{table}"));
        let mut found = 0;
        for load in std::fs::read_dir(loads).unwrap() {
            let index = load.unwrap().path().join("index/keys.mri");
            if index.exists() {
                std::fs::write(index, b"").unwrap();
                found += 1;
            }
        }
        assert_eq!(found, 1);
    }

    /// Loads Source anew, with other fluxes.
    pub async fn replace_sources(&self) {
        let path = self.dir.path().join("Other.csv");
        let lines: String = (1..OBJECTS)
            .map(|at| format!("{at},{at},1,{at}.75\n"))
            .collect();
        std::fs::write(&path, format!("id,objectId,filterId,flux\n{lines}")).unwrap();
        let request = LoadRequest {
            files: vec![path],
            key: vec!["objectId".into()],
            directors: vec!["Object".into()],
            replace: true,
            ..LoadRequest::new(self.dir.path().join("data"), "sky", "Source")
        };
        ingest::load(request, Arc::new(Progress::default()))
            .await
            .unwrap();
    }

    /// The physical plan of a query, as text.
    pub async fn plan(&self, sql: &str) -> String {
        let answer = self.session.execute(sql).await.unwrap();
        displayable(answer.plan.as_ref()).indent(false).to_string()
    }
}

/// The headings and the rows of an answer as text, the rows in the order of the alphabet.
pub async fn in_order(answer: QueryResult) -> String {
    let mut batches: Vec<RecordBatch> = answer.batches.try_collect().await.unwrap();
    batches.insert(0, RecordBatch::new_empty(answer.schema));
    let table = pretty_format_batches(&batches).unwrap().to_string();
    let mut lines: Vec<&str> = table.lines().collect();
    lines[3..].sort_unstable();
    lines.join("\n")
}
