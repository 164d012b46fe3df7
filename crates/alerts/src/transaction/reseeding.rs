//! The steps by which a release takes the place of what is there.

use std::collections::BTreeSet;

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::filter_record_batch;
use arrow::datatypes::Float64Type;

use super::emptying::{circle_around, pairs_of, ranges_of};
use super::log::unique_id;
use super::storing::{htm_numbers, required};
use super::{Transaction, check_time, counted};
use crate::error::{AlertsError, Result, listed};
use crate::operation::{Operation, Outcome};
use crate::reseed::{ReseedState, ReseedStep, setting, state};
use crate::reseed_statements as sql;
use crate::rows::{Kept, ints, payloads, reals};
use crate::schema::{AlertTable, names};
use crate::statements::{self, Dialect};
use crate::store::{Kind, Values, first};

/// Numbers in a range of sources: the circle of one is to be small.
const MOST_IN_RANGE: usize = 1000;

impl Transaction<'_> {
    pub(super) async fn reseed(&mut self, step: &ReseedStep) -> Result<Outcome> {
        match step {
            ReseedStep::Begin {
                cut,
                now_us,
                is_postgres,
            } => self.begin_reseed(*cut, *now_us, *is_postgres).await,
            ReseedStep::Objects(batch) => self.prepare_objects(batch).await,
            ReseedStep::Sources(batch) => self.prepare_sources(batch).await,
            ReseedStep::Visits(visits) => {
                let visits: BTreeSet<(i64, i64)> = visits.iter().copied().collect();
                let rows = pairs_of(&visits);
                Ok(counted(
                    self.connection.change(sql::PREPARE_VISITS, &rows).await?,
                ))
            }
            ReseedStep::Ready { shown_us } => self.ready(*shown_us).await,
            ReseedStep::Switch => self.switch().await,
            ReseedStep::Abandon => self.abandon().await,
        }
    }

    async fn set_text(&mut self, name: &str, value: String) -> Result<()> {
        let row = [Values::texts([name.to_owned()]), Values::texts([value])];
        self.connection
            .change(statements::SET_SETTING, &row)
            .await?;
        Ok(())
    }

    async fn set_state(&mut self, state: &ReseedState) -> Result<()> {
        let text = serde_json::to_string(state)
            .map_err(|error| AlertsError::Damaged(error.to_string()))?;
        self.set_text(sql::RESEED, text).await
    }

    /// The state of what has begun.
    async fn begun(&mut self) -> Result<ReseedState> {
        let begun = state(self.connection).await?;
        begun.ok_or_else(|| {
            AlertsError::Conflict("it is not being reseeded any more: begin anew".to_owned())
        })
    }

    async fn begin_reseed(&mut self, cut: f64, now_us: i64, is_postgres: bool) -> Result<Outcome> {
        check_time("the cut", cut)?;
        if self.definition.follows {
            return Err(AlertsError::Conflict(
                "it follows another database, or did: reseed that one".to_owned(),
            ));
        }
        if self.definition.replica_seconds.is_none() {
            return Err(AlertsError::Conflict(
                "nothing of it can be published: it was made without --replica".to_owned(),
            ));
        }
        if state(self.connection).await?.is_some() {
            return Err(AlertsError::Conflict(
                "it is being reseeded already".to_owned(),
            ));
        }
        // All that was changed so far is of an edition.
        let kinds = [Kind::Int, Kind::Int];
        let open = self
            .connection
            .fetch(statements::OPEN_CHUNKS, &[], &kinds)
            .await?;
        if first(open).len() > 0 {
            self.add_edition(now_us).await?;
        }
        let edition = self.number(statements::NEXT_EDITION).await?;
        let closed_us = now_us.max(self.last_time().await? + 1);
        let chunk = self.number(statements::NEXT_CHUNK).await?;
        let row = [
            Values::ints([chunk]),
            Values::ints([0]),
            Values::texts([unique_id()?]),
            Values::ints([edition]),
        ];
        self.connection
            .change(sql::ADD_CHUNK_OF_RELEASE, &row)
            .await?;
        let releases = setting(self.connection, sql::RELEASES).await?;
        let releases = releases.and_then(|it| it.parse::<i64>().ok()).unwrap_or(0);
        let state = ReseedState {
            cut,
            edition,
            closed_us,
            release: releases + 1,
            chunk,
            shown_us: None,
        };
        let dialect = match is_postgres {
            true => Dialect::Postgres,
            false => Dialect::Sqlite,
        };
        self.connection
            .run(&sql::prepared_tables(dialect, state.release))
            .await?;
        self.set_state(&state).await?;
        Ok(counted((edition - 1).unsigned_abs()))
    }

    async fn prepare_objects(&mut self, batch: &RecordBatch) -> Result<Outcome> {
        let state = self.begun().await?;
        let count = batch.num_rows();
        let ends = reals(batch, names::VALIDITY_END);
        let (number, layout) = self.definition.layout(Kept::Table(AlertTable::DiaObject))?;
        let rows = [
            Values::ints(required(batch, names::DIA_OBJECT)),
            Values::Real(reals(batch, names::VALIDITY_START)),
            Values::Real(ends.clone()),
            Values::Int(ints(batch, names::N_SOURCES)),
            Values::ints(std::iter::repeat_n(state.chunk, count)),
            Values::ints(std::iter::repeat_n(number, count)),
            Values::bytes(payloads(batch, &layout)),
        ];
        self.connection.change(sql::PREPARE_OBJECTS, &rows).await?;
        let filtered = |is_open: bool| {
            let keeps: Vec<bool> = ends.iter().map(|end| end.is_none() == is_open).collect();
            filter_record_batch(batch, &keeps.into())
                .map_err(|error| AlertsError::Damaged(error.to_string()))
        };
        let open = filtered(true)?;
        let (number, layout) = self.definition.layout(Kept::Latest)?;
        let rows = [
            Values::ints(htm_numbers(&open, "DiaObject")?),
            Values::ints(required(&open, names::DIA_OBJECT)),
            Values::Real(reals(&open, names::VALIDITY_START)),
            Values::Int(ints(&open, names::N_SOURCES)),
            Values::ints(std::iter::repeat_n(number, open.num_rows())),
            Values::bytes(payloads(&open, &layout)),
        ];
        self.connection.change(sql::PREPARE_LATEST, &rows).await?;
        let closed = filtered(false)?;
        let rows = [
            Values::ints(required(&closed, names::DIA_OBJECT)),
            Values::Real(reals(&closed, names::VALIDITY_START)),
            Values::ints(std::iter::repeat_n(state.edition, closed.num_rows())),
            Values::Real(reals(&closed, names::VALIDITY_END)),
        ];
        self.connection.change(sql::PREPARE_CLOSES, &rows).await?;
        Ok(counted(count as u64))
    }

    async fn prepare_sources(&mut self, batch: &RecordBatch) -> Result<Outcome> {
        self.begun().await?;
        let ids = required(batch, names::DIA_SOURCE);
        let trixels = htm_numbers(batch, "DiaSource")?;
        let mut ranges: Vec<(i64, i64)> = Vec::new();
        let mut circles: Vec<Option<[f64; 3]>> = Vec::new();
        for (ids, trixels) in ids.chunks(MOST_IN_RANGE).zip(trixels.chunks(MOST_IN_RANGE)) {
            let mut rest = trixels;
            for range in ranges_of(ids.iter().copied()) {
                let count = usize::try_from(range.1 - range.0 + 1).unwrap_or(rest.len());
                let (these, others) = rest.split_at(count.min(rest.len()));
                rest = others;
                ranges.push(range);
                circles.push(circle_around(these.iter().copied()));
            }
        }
        let of_circles =
            |at: usize| Values::Real(circles.iter().map(|it| it.map(|it| it[at])).collect());
        let rows = [
            Values::ints(ranges.iter().map(|range| range.0)),
            Values::ints(ranges.iter().map(|range| range.1)),
            of_circles(0),
            of_circles(1),
            of_circles(2),
        ];
        self.connection.change(sql::PREPARE_EMPTIED, &rows).await?;
        Ok(counted(ids.len() as u64))
    }

    /// Nothing that was stored since it began is contradicted, and nothing can be that is stored from now on.
    async fn ready(&mut self, shown_us: i64) -> Result<Outcome> {
        let mut state = self.begun().await?;
        if self.number(statements::NEXT_EDITION).await? != state.edition {
            return Err(AlertsError::Conflict(
                "an edition was closed meanwhile: begin anew".to_owned(),
            ));
        }
        for (statement, what) in [
            (
                sql::STORED_SOURCES,
                "DiaSources were stored meanwhile that the release has, too",
            ),
            (
                sql::STORED_FORCED,
                "DiaForcedSources were stored meanwhile of visits that the release has, too",
            ),
            (
                sql::STORED_OBJECTS,
                "versions of DiaObjects were stored meanwhile that do not begin after the last ones",
            ),
            (sql::LEFT_SOURCES, "DiaSources have changed meanwhile"),
            (
                sql::LEFT_FORCED,
                "DiaForcedSources of visits have changed meanwhile",
            ),
        ] {
            let found = self.connection.fetch(statement, &[], &[Kind::Int]).await?;
            let found: Vec<i64> = first(found).into_ints().into_iter().flatten().collect();
            if !found.is_empty() {
                return Err(AlertsError::Conflict(format!("{what}: {}", listed(&found))));
            }
        }
        state.shown_us = Some(shown_us.max(state.closed_us));
        self.set_state(&state).await?;
        Ok(counted(1))
    }

    async fn switch(&mut self) -> Result<Outcome> {
        let Some(state) = state(self.connection).await? else {
            return Ok(Outcome::default());
        };
        let shown_us = state.shown_us.ok_or_else(|| {
            AlertsError::Damaged("a release is published that was not prepared".to_owned())
        })?;
        self.connection.run(sql::SWITCH).await?;
        let row = [
            Values::ints([state.edition]),
            Values::ints([state.closed_us]),
        ];
        self.connection
            .change(statements::ADD_EDITION, &row)
            .await?;
        self.set_setting(super::emptying::EMPTIED, state.edition)
            .await?;
        self.set_setting(sql::RELEASES, state.release).await?;
        self.set_setting(sql::RESEEDED, shown_us).await?;
        self.forget_state().await?;
        Ok(counted(1))
    }

    async fn forget_state(&mut self) -> Result<()> {
        let name = [Values::texts([sql::RESEED.to_owned()])];
        self.connection.change(sql::REMOVE_SETTING, &name).await?;
        Ok(())
    }

    async fn abandon(&mut self) -> Result<Outcome> {
        let Some(state) = state(self.connection).await? else {
            return Ok(Outcome::default());
        };
        self.connection.run(sql::DROP_PREPARED).await?;
        let chunk = [Values::ints([state.chunk])];
        self.connection
            .change(statements::REMOVE_CHUNK, &chunk)
            .await?;
        self.forget_state().await?;
        Ok(counted(1))
    }

    /// Refuses what would change rows that a release may be about to replace; whether that is so.
    pub(super) async fn check_not_reseeding(&mut self, operation: &Operation) -> Result<bool> {
        let is_change = match operation {
            Operation::ReassignToSolarSystem { .. }
            | Operation::ReassignToObjects { .. }
            | Operation::CloseObjects { .. }
            | Operation::WithdrawSources { .. }
            | Operation::WithdrawForcedSources { .. }
            | Operation::SetSchema(_) => true,
            Operation::CloseEdition { .. } => false,
            _ => return Ok(false),
        };
        let is_reseeding = state(self.connection).await?.is_some();
        match is_reseeding && is_change {
            true => Err(AlertsError::Reseeding),
            false => Ok(is_reseeding),
        }
    }

    /// Refuses to store what is of before the cut of a release that is being prepared, or that it has.
    pub(super) async fn check_after_cut(
        &mut self,
        time: f64,
        sources: &RecordBatch,
        forced: &RecordBatch,
    ) -> Result<()> {
        let Some(state) = state(self.connection).await? else {
            return Ok(());
        };
        let cut = state.cut;
        let is_early = |batch: &RecordBatch| {
            let times = batch.column_by_name(names::MIDPOINT);
            let times = times.and_then(|it| it.as_primitive_opt::<Float64Type>());
            times.is_some_and(|it| it.iter().flatten().any(|time| time < cut))
        };
        if time < cut || is_early(sources) || is_early(forced) {
            return Err(AlertsError::Conflict(format!(
                "it is being reseeded with a release of everything before {cut} (MJD, TAI): what is of before that cannot be stored"
            )));
        }
        let ids = [Values::ints(required(sources, names::DIA_SOURCE))];
        let known = self
            .connection
            .fetch(sql::PREPARED_SOURCES, &ids, &[Kind::Int])
            .await?;
        let known: Vec<i64> = first(known).into_ints().into_iter().flatten().collect();
        if !known.is_empty() {
            return Err(AlertsError::Conflict(format!(
                "it is being reseeded with a release that has these DiaSources: {}",
                listed(&known)
            )));
        }
        let visits = ints(forced, names::VISIT)
            .into_iter()
            .zip(ints(forced, names::DETECTOR));
        let visits: BTreeSet<(i64, i64)> = visits
            .filter_map(|(visit, detector)| Some((visit?, detector?)))
            .collect();
        let kinds = [Kind::Int, Kind::Int];
        let known = self
            .connection
            .fetch(sql::PREPARED_VISITS, &pairs_of(&visits), &kinds)
            .await?;
        let known: Vec<i64> = first(known).into_ints().into_iter().flatten().collect();
        match known.is_empty() {
            true => Ok(()),
            false => Err(AlertsError::Conflict(format!(
                "it is being reseeded with a release that has these visits: {}",
                listed(&known)
            ))),
        }
    }
}
