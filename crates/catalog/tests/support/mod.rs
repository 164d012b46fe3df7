//! Builders for the catalog's tests: small descriptions of databases, tables and chunks.

#![allow(dead_code, reason = "each test binary takes what it needs")]

pub mod private_postgres;

use meridian_catalog::{
    Catalog, CatalogState, Change, Chunk, Column, ColumnChange, ColumnType, DatabaseChange,
    DirectorRef, LoadId, NewDatabase, OverlapFile, PartContents, Position, REPLICATED_CHUNK, Table,
    TableChange, TableKind, TableSpec, ViewQuery,
};
use sky::ChunkId;

/// The state of the catalog, once it is known.
pub async fn settled(catalog: &Catalog) -> CatalogState {
    let give_up = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        if let Some(state) = catalog.state() {
            return state;
        }
        assert!(
            std::time::Instant::now() < give_up,
            "the state stays unknown"
        );
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// Waits until a handle knows this state.
pub async fn wait_for_state(catalog: &Catalog, state: CatalogState) {
    let give_up = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while catalog.state() != Some(state) {
        assert!(
            std::time::Instant::now() < give_up,
            "the state does not come"
        );
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// A database of 18 stripes.
pub fn database(name: &str) -> NewDatabase {
    NewDatabase {
        name: name.to_owned(),
        stripes: 18,
        sub_stripes: 10,
        overlap_deg: 1.0 / 60.0,
    }
}

fn column(name: &str, ty: ColumnType) -> Column {
    Column {
        name: name.to_owned(),
        ty,
        nullable: false,
        declared: None,
    }
}

/// A director with columns `objectId`, `ra`, `dec` and two more.
pub fn director(database: &str, name: &str) -> TableSpec {
    let decimal = ColumnType::Decimal {
        precision: 10,
        scale: 2,
    };
    TableSpec {
        database: database.to_owned(),
        name: name.to_owned(),
        kind: TableKind::Director,
        columns: vec![
            column("objectId", ColumnType::Int64),
            column("ra", ColumnType::Float64),
            Column {
                declared: Some("double NOT NULL".to_owned()),
                ..column("dec", ColumnType::Float64)
            },
            Column {
                nullable: true,
                ..column("name", ColumnType::Text)
            },
            column("price", decimal),
        ],
        key: Some("objectId".to_owned()),
        position: Some(Position {
            ra: "ra".to_owned(),
            dec: "dec".to_owned(),
        }),
        directors: Vec::new(),
        scan_rating: 1,
    }
}

/// A view's query, with a column that is a position and one that is none.
pub fn query(definition: &str) -> ViewQuery {
    ViewQuery {
        definition: definition.to_owned(),
        default_database: Some("sky".to_owned()),
        columns: vec!["RA".to_owned(), "dec".to_owned(), "a, \"b\"".to_owned()],
        headings: vec!["RA".to_owned(), "decl".to_owned(), "a, \"b\"".to_owned()],
        position: Some(Position {
            ra: "RA".to_owned(),
            dec: "dec".to_owned(),
        }),
    }
}

/// A table without position, key or director.
pub fn replicated(database: &str, name: &str) -> TableSpec {
    TableSpec {
        kind: TableKind::Replicated,
        columns: vec![column("filterId", ColumnType::UInt8)],
        key: None,
        position: None,
        ..director(database, name)
    }
}

/// A child of one director, or a match table of two, by the number of names given.
pub fn dependent(database: &str, name: &str, directors: &[(&str, LoadId)]) -> TableSpec {
    let key = |index: usize| format!("key{index}");
    TableSpec {
        kind: if directors.len() == 1 {
            TableKind::Child
        } else {
            TableKind::Match
        },
        columns: (0..directors.len())
            .map(|index| column(&key(index), ColumnType::Int64))
            .collect(),
        key: None,
        position: None,
        directors: (directors.iter().enumerate())
            .map(|(index, (table, load))| DirectorRef {
                table: (*table).to_owned(),
                elsewhere: None,
                key: key(index),
                placement: Some(*load),
            })
            .collect(),
        ..director(database, name)
    }
}

/// Chunks `0..count` in ascending order, each with `rows` rows; every third with an overlap file and
/// every second with bounds, so that the optional parts are there and not there.
pub fn chunks(count: i32, rows: u64) -> Vec<Chunk> {
    (0..count)
        .map(|id| Chunk {
            chunk: ChunkId(id),
            file: ChunkId(id - id % 2),
            rows,
            strays: u64::from(id == 3),
            bytes: rows * 40,
            checksum: u64::MAX - u64::from(id.unsigned_abs()),
            overlap: (id % 3 == 0).then_some(OverlapFile {
                rows: 7,
                bytes: 280,
                checksum: 1 << 63,
            }),
            bounds: (id % 2 == 0).then_some([359.5, -0.25, 0.5, f64::from(id) / 1000.0]),
        })
        .collect()
}

/// The one chunk of a replicated table.
pub fn whole(rows: u64) -> Vec<Chunk> {
    vec![Chunk {
        chunk: REPLICATED_CHUNK,
        file: REPLICATED_CHUNK,
        rows,
        strays: 0,
        bytes: rows,
        checksum: 5,
        overlap: None,
        bounds: None,
    }]
}

/// Publishes a load that was begun, with what the chunks add up to, into [`database`].
pub async fn publish(
    catalog: &Catalog,
    load: LoadId,
    spec: &TableSpec,
    chunks: &[Chunk],
) -> Result<Vec<LoadId>, meridian_catalog::CatalogError> {
    let database = database(&spec.database);
    catalog
        .publish(load, &database, spec, contents(spec, chunks))
        .await
}

/// A change that says something of database, of the table Object and of two of its columns.
pub fn words() -> DatabaseChange {
    let text = |text: &str| Change::Set(text.to_owned());
    let ra = ColumnChange {
        description: text("right ascension"),
        unit: text("deg"),
        ucd: text("pos.eq.ra;meta.main"),
        utype: text("stc:AstroCoords.Position2D.Value2.C1"),
        principal: Change::Set(true),
        index: Change::Set(10),
        ..ColumnChange::default()
    };
    let name = ColumnChange {
        xtype: text("adql:VARCHAR"),
        principal: Change::Set(false),
        ..ColumnChange::default()
    };
    let columns = [("ra".to_owned(), ra), ("name".to_owned(), name)];
    let table = TableChange {
        description: text("objects"),
        utype: text("caom:Observation"),
        index: Change::Set(3),
        scan_lane: Change::Keep,
        columns: columns.into(),
    };
    DatabaseChange {
        description: text("a survey"),
        tables: [("object".to_owned(), table)].into(),
    }
}

/// What a load of a table says of itself: what the chunks add up to.
pub fn contents<'a>(spec: &TableSpec, chunks: &'a [Chunk]) -> PartContents<'a> {
    let is_child = spec.kind == TableKind::Child;
    PartContents {
        rows: chunks.iter().map(|chunk| chunk.rows).sum(),
        bytes: chunks.iter().map(|chunk| chunk.bytes).sum(),
        null_keys: if is_child { 3 } else { 0 },
        orphan_rows: if is_child { 5 } else { 0 },
        source: "rows.csv",
        chunks,
        metadata: None,
    }
}

/// Begins and publishes a load; gives its number and what publishing said.
pub async fn load(
    catalog: &Catalog,
    spec: &TableSpec,
    chunks: &[Chunk],
) -> Result<(LoadId, Vec<LoadId>), meridian_catalog::CatalogError> {
    let load = catalog.begin_load(&spec.database, &spec.name).await?;
    Ok((load, publish(catalog, load, spec, chunks).await?))
}

/// The table, which must be there, whole: its chunks add up to it.
pub async fn shown(catalog: &Catalog, database: &str, name: &str) -> Table {
    let table = catalog
        .table(database, name)
        .await
        .unwrap()
        .expect("the table is there");
    for part in &table.parts {
        let chunks = catalog.chunks(part.load).await.unwrap();
        assert_eq!(
            (part.rows, part.bytes),
            (
                chunks.iter().map(|chunk| chunk.rows).sum::<u64>(),
                chunks.iter().map(|chunk| chunk.bytes).sum::<u64>()
            )
        );
    }
    table
}
