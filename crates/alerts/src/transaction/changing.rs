//! Changing what was stored: to what a source belongs, when a version ends, what is withdrawn.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::lookup::{LatestVersion, StoredSource};
use super::{NO_OBJECT, Transaction, check_time, counted, distinct};
use crate::error::{AlertsError, Result, listed};
use crate::operation::Outcome;
use crate::schema::{AlertTable, names};
use crate::statements as sql;
use crate::store::{Kind, Values, first};
use crate::updates::Update;

impl Transaction<'_> {
    pub(super) async fn reassign_to_solar_system(
        &mut self,
        pairs: &[(i64, i64)],
        time: f64,
    ) -> Result<Outcome> {
        check_time("the time", time)?;
        let wanted = mapping(pairs)?;
        let ids: Vec<i64> = wanted.keys().copied().collect();
        let sources = self.sources_of(&ids).await?;
        let changed: Vec<StoredSource> = sources
            .into_iter()
            .filter(|source| source.ss_object != wanted.get(&source.place.dia_source_id).copied())
            .collect();
        let rows = [
            Values::ints(changed.iter().map(|source| source.place.dia_source_id)),
            Values::ints(
                changed
                    .iter()
                    .map(|source| wanted[&source.place.dia_source_id]),
            ),
            Values::reals(changed.iter().map(|_| time)),
        ];
        let ids: Vec<i64> = changed.iter().map(StoredSource::id).collect();
        self.keep_sources(&ids).await?;
        self.connection.change(sql::REASSIGN_SOURCES, &rows).await?;
        self.note_sources(&ids).await?;
        let mut updates: Vec<Update> = changed
            .iter()
            .map(|source| Update::ReassignToSolarSystem {
                source: source.place,
                ss_object_id: wanted[&source.place.dia_source_id],
                ss_object_reassoc_time_mjd_tai: time,
            })
            .collect();
        // An object without a source of its own is none.
        let objects = distinct(
            changed
                .iter()
                .map(|source| source.object)
                .filter(|object| *object != NO_OBJECT),
        );
        let rows = [Values::ints(objects.iter().copied())];
        let left = first(
            self.connection
                .fetch(sql::WITH_SOURCES, &rows, &[Kind::Int])
                .await?,
        )
        .into_ints();
        let left: HashSet<i64> = left.into_iter().flatten().collect();
        let empty: Vec<i64> = objects
            .into_iter()
            .filter(|object| !left.contains(object))
            .collect();
        self.need_sources_of(&empty).await?;
        let mut closed: Vec<(i64, LatestVersion)> =
            self.latest_of(&empty).await?.into_iter().collect();
        closed.retain(|(_, version)| version.validity_start < time);
        closed.sort_by_key(|(object, _)| *object);
        self.close_versions(&closed, time).await?;
        updates.extend(closed.iter().map(|(_, version)| Update::CloseObject {
            object: version.place,
            validity_end_mjd_tai: time,
            n_dia_sources: None,
        }));
        self.log(updates, time).await?;
        Ok(counted(changed.len() as u64))
    }

    pub(super) async fn reassign_to_objects(
        &mut self,
        pairs: &[(i64, i64)],
        (increment, decrement): (bool, bool),
        time: f64,
    ) -> Result<Outcome> {
        check_time("the time", time)?;
        let wanted = mapping(pairs)?;
        let ids: Vec<i64> = wanted.keys().copied().collect();
        let sources = self.sources_of(&ids).await?;
        let targets = distinct(wanted.values().copied());
        let sources: Vec<StoredSource> = sources
            .into_iter()
            .filter(|source| {
                source.object != wanted[&source.place.dia_source_id] || source.ss_object.is_some()
            })
            .collect();
        let origins = sources
            .iter()
            .filter(|source| source.ss_object.is_none())
            .map(|source| source.object);
        let touched = distinct(targets.iter().copied().chain(origins));
        let latest = self.latest_of(&touched).await?;
        let missing: Vec<i64> = targets
            .into_iter()
            .filter(|object| !latest.contains_key(object))
            .collect();
        if !missing.is_empty() {
            return Err(AlertsError::Missing(format!(
                "these DiaObjects do not exist, or are closed: {}",
                listed(&missing)
            )));
        }
        let rows = [
            Values::ints(sources.iter().map(|source| source.place.dia_source_id)),
            Values::ints(
                sources
                    .iter()
                    .map(|source| wanted[&source.place.dia_source_id]),
            ),
        ];
        let ids: Vec<i64> = sources.iter().map(StoredSource::id).collect();
        self.keep_sources(&ids).await?;
        self.connection.change(sql::MOVE_SOURCES, &rows).await?;
        self.note_sources(&ids).await?;
        let mut changes: BTreeMap<i64, i64> = BTreeMap::new();
        for source in &sources {
            if increment {
                *changes
                    .entry(wanted[&source.place.dia_source_id])
                    .or_default() += 1;
            }
            if decrement && source.ss_object.is_none() {
                *changes.entry(source.object).or_default() -= 1;
            }
        }
        let changes = changes.into_iter().filter(|(_, change)| *change != 0);
        let counts: Vec<(LatestVersion, i64)> = changes
            .filter_map(|(object, change)| {
                let version = latest.get(&object)?;
                Some((*version, (version.sources.unwrap_or(0) + change).max(0)))
            })
            .collect();
        self.count_sources(&counts).await?;
        let mut updates: Vec<Update> = sources
            .iter()
            .map(|source| Update::ReassignToObject {
                source: source.place,
                dia_object_id: wanted[&source.place.dia_source_id],
            })
            .collect();
        updates.extend(counts.iter().map(|(version, count)| Update::CountSources {
            object: version.place,
            n_dia_sources: *count,
        }));
        self.log(updates, time).await?;
        Ok(counted(sources.len() as u64))
    }

    /// Gives the latest versions of objects other numbers of sources.
    pub(super) async fn count_sources(&mut self, counts: &[(LatestVersion, i64)]) -> Result<()> {
        let objects = || {
            Values::ints(
                counts
                    .iter()
                    .map(|(version, _)| version.place.dia_object_id),
            )
        };
        let sources = || Values::ints(counts.iter().map(|(_, count)| *count));
        let htm = Values::ints(counts.iter().map(|(version, _)| version.htm));
        self.connection
            .change(sql::COUNT_LATEST, &[htm, objects(), sources()])
            .await?;
        let starts = Values::reals(counts.iter().map(|(version, _)| version.validity_start));
        self.keep_objects(objects(), starts.clone()).await?;
        self.connection
            .change(sql::COUNT_OBJECTS, &[objects(), starts.clone(), sources()])
            .await?;
        self.note_objects(objects(), starts).await
    }

    pub(super) async fn close_objects(
        &mut self,
        objects: &[i64],
        end: f64,
        must_exist: bool,
        time: f64,
    ) -> Result<Outcome> {
        check_time("the end of validity", end)?;
        check_time("the time", time)?;
        let objects = distinct(objects.iter().copied());
        let latest = self.latest_of(&objects).await?;
        if must_exist {
            let others = objects
                .iter()
                .copied()
                .filter(|object| !latest.contains_key(object));
            let others: Vec<i64> = others.collect();
            let rows = [Values::ints(others.iter().copied())];
            let kinds = [Kind::Int, Kind::Real, Kind::Real];
            let known = first(
                self.connection
                    .fetch(sql::LAST_VERSIONS, &rows, &kinds)
                    .await?,
            )
            .into_ints();
            let known: HashSet<i64> = known.into_iter().flatten().collect();
            let missing: Vec<i64> = others
                .into_iter()
                .filter(|object| !known.contains(object))
                .collect();
            if !missing.is_empty() {
                return Err(AlertsError::Missing(format!(
                    "these DiaObjects do not exist: {}",
                    listed(&missing)
                )));
            }
        }
        let mut closed: Vec<(i64, LatestVersion)> = latest.into_iter().collect();
        closed.sort_by_key(|(object, _)| *object);
        let early: Vec<i64> = closed
            .iter()
            .filter(|(_, version)| version.validity_start >= end)
            .map(|(object, _)| *object)
            .collect();
        if !early.is_empty() {
            return Err(AlertsError::Conflict(format!(
                "these DiaObjects have versions that begin at this time or later: {}",
                listed(&early)
            )));
        }
        self.close_versions(&closed, end).await?;
        let updates = closed.iter().map(|(_, version)| Update::CloseObject {
            object: version.place,
            validity_end_mjd_tai: end,
            n_dia_sources: None,
        });
        self.log(updates.collect(), time).await?;
        Ok(counted(closed.len() as u64))
    }

    pub(super) async fn withdraw_sources(
        &mut self,
        ids: &[i64],
        withdrawn: f64,
        time: f64,
    ) -> Result<Outcome> {
        check_time("the time of withdrawal", withdrawn)?;
        check_time("the time", time)?;
        self.check_can_withdraw(AlertTable::DiaSource)?;
        let mut sources = self.sources_of(ids).await?;
        sources.retain(|source| source.withdrawn.is_none());
        let rows = [
            Values::ints(sources.iter().map(|source| source.place.dia_source_id)),
            Values::reals(sources.iter().map(|_| withdrawn)),
        ];
        let ids: Vec<i64> = sources.iter().map(StoredSource::id).collect();
        self.keep_sources(&ids).await?;
        self.connection.change(sql::WITHDRAW_SOURCES, &rows).await?;
        self.note_sources(&ids).await?;
        let updates = sources.iter().map(|source| Update::WithdrawSource {
            source: source.place,
            time_withdrawn_mjd_tai: withdrawn,
        });
        self.log(updates.collect(), time).await?;
        Ok(counted(sources.len() as u64))
    }

    pub(super) async fn withdraw_forced(
        &mut self,
        keys: &[(i64, i64, i64)],
        withdrawn: f64,
        time: f64,
    ) -> Result<Outcome> {
        check_time("the time of withdrawal", withdrawn)?;
        check_time("the time", time)?;
        self.check_can_withdraw(AlertTable::DiaForcedSource)?;
        let wanted: BTreeSet<(i64, i64, i64)> = keys.iter().copied().collect();
        let key_rows = |keys: &[(i64, i64, i64)]| {
            [
                Values::ints(keys.iter().map(|key| key.0)),
                Values::ints(keys.iter().map(|key| key.1)),
                Values::ints(keys.iter().map(|key| key.2)),
            ]
        };
        let listed_keys: Vec<(i64, i64, i64)> = wanted.iter().copied().collect();
        let kinds = [
            Kind::Int,
            Kind::Int,
            Kind::Int,
            Kind::Real,
            Kind::Real,
            Kind::Int,
            Kind::Bytes,
        ];
        let found = self
            .connection
            .fetch(sql::FORCED_BY_ID, &key_rows(&listed_keys), &kinds)
            .await?;
        let mut found = found.into_iter();
        let objects = found.next().map(Values::into_ints).unwrap_or_default();
        let visits = found.next().map(Values::into_ints).unwrap_or_default();
        let detectors = found.next().map(Values::into_ints).unwrap_or_default();
        let midpoints = found.next().map(Values::into_reals).unwrap_or_default();
        let before = found.next().map(Values::into_reals).unwrap_or_default();
        let places = self.places(found)?;
        let (mut known, mut changed, mut updates) = (HashSet::new(), Vec::new(), Vec::new());
        for at in 0..objects.len() {
            let (Some(dia_object_id), Some(visit), Some(detector), Some(place)) =
                (objects[at], visits[at], detectors[at], places[at])
            else {
                continue;
            };
            let key = (dia_object_id, visit, detector);
            known.insert(key);
            if before[at].is_some() {
                continue;
            }
            changed.push(key);
            updates.push(Update::WithdrawForcedSource {
                dia_object_id,
                visit,
                detector,
                ra: place.ra,
                dec: place.dec,
                midpoint_mjd_tai: midpoints[at].unwrap_or_default(),
                time_withdrawn_mjd_tai: withdrawn,
            });
        }
        let missing = wanted.iter().copied().filter(|key| !known.contains(key));
        let missing: Vec<(i64, i64, i64)> = missing.collect();
        self.need_forced(&missing).await?;
        let missing: Vec<i64> = missing.into_iter().map(|key| key.0).collect();
        if !missing.is_empty() {
            return Err(AlertsError::Missing(format!(
                "there are no such DiaForcedSources of the DiaObjects {}",
                listed(&missing)
            )));
        }
        let [objects, visits, detectors] = key_rows(&changed);
        let times = Values::reals(changed.iter().map(|_| withdrawn));
        let rows = [objects, visits, detectors, times];
        self.connection.change(sql::WITHDRAW_FORCED, &rows).await?;
        self.note_withdrawals(rows).await?;
        self.log(updates, time).await?;
        Ok(counted(changed.len() as u64))
    }

    pub(super) fn check_can_withdraw(&self, table: AlertTable) -> Result<()> {
        match self.definition.schema.table(table).column(names::WITHDRAWN) {
            Some(_) => Ok(()),
            None => Err(AlertsError::Invalid(format!(
                "the schema of this database has no column {}.{}, so that nothing can be withdrawn",
                table.name(),
                names::WITHDRAWN
            ))),
        }
    }
}

/// What each source is mapped to.
fn mapping(pairs: &[(i64, i64)]) -> Result<BTreeMap<i64, i64>> {
    let mut mapped = BTreeMap::new();
    for &(source, target) in pairs {
        if mapped
            .insert(source, target)
            .is_some_and(|other| other != target)
        {
            let sentence = format!("the DiaSource {source} is mapped to two objects");
            return Err(AlertsError::Invalid(sentence));
        }
    }
    Ok(mapped)
}
