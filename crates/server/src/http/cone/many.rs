//! Many cones in one request: `POST /scs/{database}/{table}?SR=` of a list of positions, matched as `crossmatch()` matches tables.

use std::sync::Arc;

use arrow::datatypes::Schema;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, Path, RawQuery, State};
use axum::http::Response;
use catalog::fold_name;
use engine::EngineError;
use futures::{StreamExt, TryStreamExt};
use prometheus::IntCounter;
use sql::{Connection, ErrorCode, SqlError};

use super::answer::{Wanted, from_parts, write};
use super::list::List;
use super::parameters::Given;
use super::served::Served;
use super::{account, begin, refused};
use crate::Refusal;
use crate::doors::Peer;
use crate::formats::{Format, Role, TableColumn, TableWriter};
use crate::http::problem::Problem;
use crate::http::{ClientAddress, HttpState};
use crate::metrics::{Begun, Door, Ending, Kind};
use crate::sessions::Sessions;
use crate::workshop::Giver;

const ARCSEC_PER_DEGREE: f64 = 3600.0;
/// What stands behind a name of the table's that the list has too.
const SUFFIX: &str = "_2";
/// What `crossmatch()` says of its arguments, and how somebody knows it who has sent a list.
const OWN_WORDS: [(&str, &str); 3] = [
    ("crossmatch: ", ""),
    ("the left side", "the list"),
    (
        "say which, as in left_ra => ..., left_dec => ...",
        "name them, as in RA=ra&DEC=dec",
    ),
];

/// `POST /scs/{database}/{table}`.
pub(crate) async fn search_many(
    State(state): State<Arc<HttpState>>,
    Extension(address): Extension<ClientAddress>,
    Path((database, table)): Path<(String, String)>,
    RawQuery(query): RawQuery,
    body: Body,
) -> Response<Body> {
    let counted = begin(&state, Kind::Multicone);
    let given = Given::read(query.as_deref().unwrap_or_default());
    let format = given
        .as_ref()
        .map_err(Problem::clone)
        .and_then(Given::format);
    let (given, format) = match (given, format) {
        (Ok(given), Ok(format)) => (given, format),
        (Err(problem), _) | (_, Err(problem)) => {
            counted.end_now(problem.ending());
            return refused(Format::Binary2, &problem);
        }
    };
    let mut counted = Some(counted);
    let answered = async {
        let served = state.served(&database, &table, given.verbosity()?).await?;
        let wish = Wish::read(&given)?;
        let list = List::receive(body, &state.lists).await?;
        let counted = counted.take();
        answer(&state, address, served, wish, (list, format), counted).await
    };
    let answered = answered.await;
    account(counted, &answered);
    answered.unwrap_or_else(|problem| refused(format, &problem))
}

/// What is wanted of the pairs.
#[derive(Debug)]
struct Wish {
    /// Arcseconds.
    radius: f64,
    find: &'static str,
    join: &'static str,
    /// The list's columns of right ascension and declination, where they are named.
    position: Option<[String; 2]>,
    max_rows: Option<u64>,
}

impl Wish {
    fn read(given: &Given) -> Result<Self, Problem> {
        let radius = given.number("SR")?.ok_or_else(|| {
            Problem::bad("SR is missing: the radius in degrees around each position of the list, as in ?SR=0.001")
        })?;
        if !(0.0..=180.0).contains(&radius) {
            return Err(Problem::bad(format!(
                "SR is {radius}: it is in degrees from 0 to 180"
            )));
        }
        let position = match (given.value("RA")?, given.value("DEC")?) {
            (None, None) => None,
            (Some(ra), Some(dec)) => Some([ra.to_owned(), dec.to_owned()]),
            _ => {
                return Err(Problem::bad(
                    "RA and DEC name the list's columns of right ascension and declination: give both or neither",
                ));
            }
        };
        Ok(Self {
            radius: radius * ARCSEC_PER_DEGREE,
            find: one_of(given, "FIND", &["all", "best1", "best"])?,
            join: one_of(given, "JOIN", &["1and2", "all1"])?,
            position,
            max_rows: given.count("MAXREC")?,
        })
    }
}

/// Which of some words a parameter is; the first where it is not given.
fn one_of(given: &Given, name: &str, words: &[&'static str]) -> Result<&'static str, Problem> {
    let Some(value) = given.value(name)? else {
        return Ok(words[0]);
    };
    let known = words.iter().find(|word| word.eq_ignore_ascii_case(value));
    known.copied().ok_or_else(|| {
        Problem::bad(format!(
            "{name} is {value}: it is one of {}",
            words.join(", ")
        ))
    })
}

/// What is wrong, to somebody who has sent a list and knows neither the statement nor where the list lies.
fn to_sender(error: EngineError, path: &str) -> EngineError {
    let (sentence, code) = match &error {
        EngineError::Sql(error) => (error.sentence().to_owned(), error.code()),
        error => (error.to_string(), error.code()),
    };
    if let Some(rest) = sentence.strip_prefix(path) {
        // What cannot be read in it is the sender's to mend.
        let code = match code {
            ErrorCode::PACKET_TOO_LARGE | ErrorCode::OUT_OF_RESOURCES => code,
            _ => ErrorCode::WRONG_VALUE,
        };
        let sentence = format!("the list{rest}");
        return SqlError::new(sentence).with_code(code).into();
    }
    let mut own = sentence.clone();
    for (theirs, ours) in OWN_WORDS {
        own = own.replace(theirs, ours);
    }
    if own == sentence {
        return error;
    }
    SqlError::new(own).with_code(code).into()
}

fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// The statement that matches the list.
fn statement(served: &Served, wish: &Wish, list: &List) -> String {
    let spec = served.cones.table().spec();
    let columns: Vec<String> = served
        .described()
        .iter()
        .map(|column| quoted(&column.name))
        .collect();
    let position = wish
        .position
        .as_ref()
        .map(|[ra, dec]| format!(", left_ra => {}, left_dec => {}", quoted(ra), quoted(dec)));
    format!(
        "SELECT * FROM crossmatch({}, (SELECT {} FROM {}.{}), {}, '{}', '{}'{})",
        list.as_table(),
        columns.join(", "),
        quoted(&spec.database),
        quoted(&spec.name),
        wish.radius,
        wish.find,
        wish.join,
        position.unwrap_or_default(),
    )
}

async fn answer(
    state: &Arc<HttpState>,
    address: ClientAddress,
    served: Served,
    wish: Wish,
    (list, format): (List, Format),
    counted: Option<Begun>,
) -> Result<Response<Body>, Problem> {
    let shared = &state.shared;
    let text = statement(&served, &wish, &list);
    let ends_decoding = list.ends_decoding();
    let database = served.cones.table().spec().database.clone();
    let work = shared.list(Peer::Address(address.0), &database, "Multicone", &text);
    let sessions = Arc::clone(&shared.sessions);
    let state = Arc::clone(state);
    let rows = shared.metrics.rows(Door::Http);
    let parts = shared.workshop.start(move |giver| async move {
        let pairs = Pairs {
            state,
            served,
            list,
            text,
            database,
            max_rows: wish.max_rows,
            format,
            rows,
        };
        let outcome = work.during(pairs.write(&sessions, &giver)).await;
        if let Some(counted) = counted {
            counted.end_now(Ending::of_work(&outcome));
        }
        outcome
    });
    from_parts(format, parts, ends_decoding).await
}

/// The pairs of a list and a table.
struct Pairs {
    state: Arc<HttpState>,
    served: Served,
    list: List,
    text: String,
    database: String,
    max_rows: Option<u64>,
    format: Format,
    /// Where the rows are counted.
    rows: IntCounter,
}

impl Pairs {
    async fn write(&self, sessions: &Sessions, giver: &Giver<Bytes>) -> Result<(), Refusal> {
        let session = sessions.reading_files(&self.database).await?;
        let connection = Connection::alone(Some(self.database.clone()));
        let path = self.list.path();
        // Statements may name it for as long as this is held.
        let opened = self.state.lists.open(&self.list).await;
        let _received = opened.map_err(|error| to_sender(error, &path))?;
        let answer = session.ask_for(&self.text, &connection).await;
        let answer = answer.map_err(|error| to_sender(error, &path))?;
        let columns = described(&self.served, &answer.schema);
        let batches = answer.batches;
        let batches = batches.map_err(move |error| to_sender(error, &path));
        let mut wanted = Wanted::new(batches.boxed(), self.max_rows, self.rows.clone());
        let writer = TableWriter::new(self.format, "crossmatch", &columns);
        write(writer, &mut wanted, giver).await
    }
}

/// The list's columns, the table's and the separation.
fn described(served: &Served, schema: &Schema) -> Vec<TableColumn> {
    let own = |role: Role| {
        let of_role = served
            .described()
            .iter()
            .rfind(|column| column.role == role);
        of_role.map(|column| fold_name(&column.name))
    };
    let (ra, dec) = (own(Role::RightAscension), own(Role::Declination));
    // The table's columns stand behind those of the list.
    let first = schema
        .fields()
        .len()
        .saturating_sub(served.described().len() + 1);
    let is = |name: &str, wanted: &Option<String>| {
        let folded = fold_name(name);
        let plain = folded.strip_suffix(SUFFIX).unwrap_or(&folded);
        wanted
            .as_ref()
            .is_some_and(|wanted| *wanted == folded || wanted == plain)
    };
    let last = schema.fields().len().saturating_sub(1);
    let columns = schema.fields().iter().enumerate().map(|(at, field)| {
        let role = match at {
            at if at == last => Role::Separation,
            at if at < first => Role::Other,
            _ if is(field.name(), &ra) => Role::RightAscension,
            _ if is(field.name(), &dec) => Role::Declination,
            _ => Role::Other,
        };
        TableColumn::new(field, role)
    });
    columns.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_are_checked() {
        let read = |query: &str| Wish::read(&Given::read(query).unwrap());
        let wish = read("SR=0.001&FIND=best1&JOIN=ALL1&RA=a&DEC=b").unwrap();
        assert!((wish.radius - 3.6).abs() < 1e-12);
        assert_eq!((wish.find, wish.join), ("best1", "all1"));
        assert_eq!(wish.position, Some(["a".to_owned(), "b".to_owned()]));
        for (query, sentence) in [
            ("", "SR is missing"),
            ("SR=200", "SR is 200"),
            ("SR=1&RA=a", "give both or neither"),
            (
                "SR=1&FIND=near",
                "FIND is near: it is one of all, best1, best",
            ),
        ] {
            assert!(
                read(query).unwrap_err().sentence.contains(sentence),
                "{query}"
            );
        }
    }
}
