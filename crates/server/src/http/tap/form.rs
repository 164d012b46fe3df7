//! The parameters of a request with the tables that come with them, from the address, a form, or a form of several parts.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode, header};
use futures::StreamExt;
use multer::{Field, Multipart};

use super::uploads::{Source, TABLE, Uploads};
use crate::http::HttpState;
use crate::http::parameters::{RequestParameters, pairs};
use crate::http::problem::Problem;
use crate::http::received_table::{ReceivedTable, TableRoom};
use crate::http::upload::{ReceivedBody, Upload, UploadRate};

/// A form with a query.
const FORM: Upload = Upload {
    name: "the form",
    most_bytes: 16 << 20,
    advice: "send a shorter query, and long lists of keys as a table",
};
const FORM_TYPE: &str = "application/x-www-form-urlencoded";
const PARTS_TYPE: &str = "multipart/form-data";
/// Parameters that are never tables, whatever a client says of their parts.
const PLAIN: [&str; 14] = [
    "REQUEST",
    "LANG",
    "QUERY",
    "FORMAT",
    "RESPONSEFORMAT",
    "MAXREC",
    "UPLOAD",
    "PHASE",
    "ACTION",
    "DESTRUCTION",
    "EXECUTIONDURATION",
    "WAIT",
    "VERSION",
    "RUNID",
];
const MOST_PARTS: usize = 100;
/// Characters of a boundary (RFC 2046, section 5.1.1).
const LONGEST_BOUNDARY: usize = 70;

/// What a request brings.
#[derive(Debug)]
pub(super) struct TapForm {
    pub(super) parameters: RequestParameters,
    pub(super) uploads: Uploads,
}

impl TapForm {
    /// Receives a form, and reads the parameters of the address besides it.
    ///
    /// # Errors
    /// The form cannot be read, or names a table that does not come with it.
    pub(super) async fn receive(
        state: &Arc<HttpState>,
        query: Option<&str>,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Self, Problem> {
        let media_type = headers.get(header::CONTENT_TYPE);
        let media_type = media_type.and_then(|value| value.to_str().ok());
        let plain = media_type.map(|it| it.split(';').next().unwrap_or(it).trim());
        let query = query.unwrap_or_default();
        match plain {
            Some(given) if given.eq_ignore_ascii_case(PARTS_TYPE) => {
                let (media_type, patience) =
                    (media_type.unwrap_or_default(), state.shared.http_patience);
                let parts = Parts::receive(&state.lists, patience, media_type, body).await?;
                parts.into_form(&state.lists, query).await
            }
            Some(given) if !given.eq_ignore_ascii_case(FORM_TYPE) => Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                format!(
                    "the request is of type {given}: send the parameters as a form, {FORM_TYPE}, and tables with them as {PARTS_TYPE}"
                ),
            )),
            _ => {
                let shared = &state.shared;
                let body = ReceivedBody::receive(body, FORM, shared.http_patience, &shared.packets)
                    .await?;
                let parameters = RequestParameters::read_form(query, &body.bytes)?;
                Ok(Self {
                    uploads: Uploads::of(&parameters, Vec::new(), &state.lists).await?,
                    parameters,
                })
            }
        }
    }
}

/// The parts of a form.
#[derive(Debug, Default)]
struct Parts {
    /// As they came: a table may come as a plain value, too.
    values: Vec<(String, Vec<u8>)>,
    tables: Vec<(String, ReceivedTable)>,
}

impl Parts {
    /// `patience` is how long nothing may come of a part.
    async fn receive(
        room: &TableRoom,
        patience: Duration,
        media_type: &str,
        body: Body,
    ) -> Result<Self, Problem> {
        let boundary = boundary(media_type)?;
        let mut parts = Multipart::new(body.into_data_stream(), boundary);
        let (mut received, mut pace) = (Self::default(), UploadRate::new(FORM, patience));
        while let Some(part) = pace.next(parts.next_field()).await?.map_err(unreadable)? {
            let Some(name) = part.name().map(str::to_owned) else {
                return Err(Problem::bad("a part of the form has no name"));
            };
            if received.values.len() + received.tables.len() >= MOST_PARTS {
                return Err(Problem::bad(format!(
                    "the form has more than {MOST_PARTS} parts"
                )));
            }
            if is_table(&name, &part) {
                let body = Body::from_stream(part);
                let table = ReceivedTable::receive(body, TABLE, room).await?;
                received.tables.push((name, table));
            } else {
                let value = whole(part, &mut pace).await?;
                received.values.push((name, value));
            }
        }
        Ok(received)
    }

    /// Which parts the form says are tables.
    fn sources(&self) -> Result<Vec<(String, Source)>, Problem> {
        let values = self.values.iter();
        let named = values.filter(|(name, _)| name.eq_ignore_ascii_case("UPLOAD"));
        let named = named.map(|(name, value)| Ok((name.clone(), text(value.clone())?)));
        Uploads::sources(&RequestParameters::of(
            named.collect::<Result<_, Problem>>()?,
        ))
    }

    async fn into_form(mut self, room: &TableRoom, query: &str) -> Result<TapForm, Problem> {
        let sources = self.sources()?;
        let is_named = |name: &str| {
            let mut fields = sources.iter().map(|(_, source)| source);
            fields.any(
                |source| matches!(source, Source::Field(field) if field.eq_ignore_ascii_case(name)),
            )
        };
        let (mut values, mut plain_tables) = (Vec::new(), Vec::new());
        for (name, value) in self.values {
            match is_named(&name) {
                true => plain_tables.push((name, value)),
                false => values.push((name, text(value)?)),
            }
        }
        for (name, value) in plain_tables {
            let table = ReceivedTable::receive(Body::from(value), TABLE, room).await?;
            self.tables.push((name, table));
        }
        values.extend(pairs(query)?);
        let parameters = RequestParameters::of(values);
        Ok(TapForm {
            uploads: Uploads::of(&parameters, self.tables, room).await?,
            parameters,
        })
    }
}

/// The boundary of a form's parts. astroquery writes one with `=` in it, which stands in quotes elsewhere (RFC 2045, section 5.1), without them.
fn boundary(media_type: &str) -> Result<String, Problem> {
    let boundary = multer::parse_boundary(media_type).or_else(|error| {
        let parameters = media_type.split(';').skip(1);
        let mut parameters = parameters.filter_map(|it| it.split_once('='));
        let found = parameters.find(|(name, _)| name.trim().eq_ignore_ascii_case("boundary"));
        let text = found.map(|(_, text)| text.trim());
        let text = text.filter(|text| text.len() <= LONGEST_BOUNDARY);
        text.map(str::to_owned).ok_or_else(|| unreadable(error))
    })?;
    match boundary.is_empty() {
        true => Err(Problem::bad(
            "the form cannot be read: its boundary is empty",
        )),
        false => Ok(boundary),
    }
}

fn is_table(name: &str, part: &Field<'_>) -> bool {
    let is_text = part
        .content_type()
        .is_none_or(|given| given.essence_str() == "text/plain");
    let is_plain = PLAIN.iter().any(|plain| plain.eq_ignore_ascii_case(name));
    !is_plain && (part.file_name().is_some() || !is_text)
}

/// The value of a part.
async fn whole(mut part: Field<'_>, pace: &mut UploadRate) -> Result<Vec<u8>, Problem> {
    let mut bytes: Vec<u8> = Vec::new();
    while let Some(block) = pace.next(part.next()).await? {
        let block: Bytes = block.map_err(unreadable)?;
        pace.count(block.len())?;
        bytes.extend_from_slice(&block);
    }
    Ok(bytes)
}

fn text(bytes: Vec<u8>) -> Result<String, Problem> {
    String::from_utf8(bytes).map_err(|_| Problem::bad("a part of the form is no text in UTF-8"))
}

fn unreadable(error: multer::Error) -> Problem {
    Problem::bad(format!("the form cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;
    use crate::chance::feed;
    use crate::query_runtime::QueryRuntime;

    const PATIENCE: Duration = Duration::from_secs(5);
    /// The media type before the body, as `strange_forms_do_no_harm` gives them.
    const FORMS: [&str; 4] = [
        "multipart/form-data; boundary=ab\n--ab\r\nContent-Disposition: form-data; name=\"QUERY\"\r\n\r\nSELECT 1\r\n--ab\r\nContent-Disposition: form-data; name=\"UPLOAD\"\r\n\r\nmine,param:t\r\n--ab\r\nContent-Disposition: form-data; name=\"t\"; filename=\"t.csv\"\r\nContent-Type: text/csv\r\n\r\nra,dec\n1,2\n\r\n--ab--\r\n",
        "multipart/form-data; boundary====17==\n--===17==\r\nContent-Type: text/plain\r\nMIME-Version: 1.0\r\nContent-Disposition: form-data; name=\"LANG\"\r\n\r\nADQL\r\n--===17==--",
        "Multipart/Form-Data; charset=utf-8; boundary=\"a=b\"\n--a=b\r\nContent-Disposition: form-data; name*=utf-8''t%C3%A9; filename=\"\u{e9}\"\r\n\r\n\r\n--a=b\r\n\r\nno name\r\n--a=b--",
        "multipart/form-data; boundary=x\n--x\r\ncontent-disposition: form-data; name=UPLOAD\r\ncontent-type: text/plain; charset=latin1\r\n\r\nt,param:u;v,param:w\r\n--x\r\ncontent-disposition: form-data; name=u\r\n\r\n<VOTABLE/>\r\n--x--\r\n",
    ];

    /// Reads the form that follows its media type, and what its parts say. What it names elsewhere is not fetched.
    async fn read(room: &TableRoom, input: &[u8]) -> Result<TapForm, Problem> {
        let mut halves = input.splitn(2, |byte| *byte == b'\n');
        let media_type = String::from_utf8_lossy(halves.next().unwrap_or_default());
        let body = Body::from(halves.next().unwrap_or_default().to_vec());
        let parts = Parts::receive(room, PATIENCE, &media_type, body).await?;
        let sources = parts.sources()?;
        let is_elsewhere = |source: &Source| matches!(source, Source::Address(_));
        match sources.iter().any(|(_, source)| is_elsewhere(source)) {
            true => Err(Problem::bad("a table is elsewhere")),
            false => parts.into_form(room, "").await,
        }
    }

    #[test]
    fn strange_forms_do_no_harm() {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        let query_runtime = Arc::new(QueryRuntime::new(NonZeroUsize::MIN).unwrap());
        let room = TableRoom::new(0, Arc::default(), PATIENCE, query_runtime);
        let whole = runtime.block_on(read(&room, FORMS[0].as_bytes())).unwrap();
        assert!(!whole.uploads.is_empty());
        assert_eq!(whole.parameters.value("QUERY").unwrap(), Some("SELECT 1"));
        feed(
            "forms of several parts",
            &FORMS.map(str::as_bytes),
            |input| {
                let _ = runtime.block_on(read(&room, input));
            },
        );
    }

    /// Tables that astroquery uploads were refused: "failed to decode Content-Type".
    #[test]
    fn boundaries_are_as_clients_write_them() {
        for (media_type, known) in [
            ("multipart/form-data; boundary=abc", Some("abc")),
            ("multipart/form-data; boundary=\"a=b\"", Some("a=b")),
            (
                "multipart/form-data; boundary====1764187===",
                Some("===1764187==="),
            ),
            ("multipart/form-data; boundary=", None),
            ("multipart/form-data", None),
        ] {
            let found = boundary(media_type).ok();
            assert_eq!(found.as_deref(), known, "{media_type}");
        }
    }

    /// A gzipped table, or one in another encoding, in a part that was not said to be a file was refused as no UTF-8.
    #[tokio::test]
    async fn a_plain_part_may_be_a_table_of_any_bytes() {
        let query_runtime = Arc::new(QueryRuntime::new(NonZeroUsize::MIN).unwrap());
        let room = TableRoom::new(0, Arc::default(), PATIENCE, query_runtime);
        let form = |name: &str| {
            let head = format!(
                "multipart/form-data; boundary=x\n--x\r\ncontent-disposition: form-data; name=UPLOAD\r\n\r\nt,param:u\r\n\
                 --x\r\ncontent-disposition: form-data; name={name}\r\n\r\n"
            );
            [head.as_bytes(), b"<T>\xe9</T>\r\n--x--\r\n"].concat()
        };
        let table = read(&room, &form("u")).await.unwrap();
        assert!(!table.uploads.is_empty());
        let problem = read(&room, &form("QUERY")).await.unwrap_err();
        assert!(problem.sentence.contains("no text in UTF-8"), "{problem:?}");
    }
}
