//! A small archive on which plans are made: all kinds of tables around the equator.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use datafusion::physical_plan::displayable;
use ingest::{LoadRequest, Progress};
use meridian_engine::{Archive, Session, SessionOptions};
use tempfile::TempDir;

/// Objects, one a degree along the equator: 36 in each of the ten chunks of its stripe.
const OBJECTS: usize = 360;

pub struct SmallSky {
    session: Session,
    _dir: TempDir,
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
            ..SessionOptions::default()
        };
        Self {
            session: Session::new(archive, &options).await.unwrap(),
            _dir: dir,
        }
    }

    /// The physical plan of a query, as text.
    pub async fn plan(&self, sql: &str) -> String {
        let answer = self.session.ask(sql).await.unwrap();
        displayable(answer.plan.as_ref()).indent(false).to_string()
    }
}
