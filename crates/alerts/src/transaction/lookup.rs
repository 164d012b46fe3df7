//! What is stored of objects and sources that an operation names.

use std::collections::{HashMap, HashSet};

use super::{Transaction, distinct};
use crate::error::{AlertsError, Result, listed};
use crate::rows::FoundRows;
use crate::schema::names;
use crate::statements as sql;
use crate::store::{Kind, Values};
use crate::updates::{ObjectPlace, SourcePlace};

/// The latest version of an object.
#[derive(Debug, Clone, Copy)]
pub(super) struct LatestVersion {
    pub(super) htm: i64,
    pub(super) validity_start: f64,
    pub(super) sources: Option<i64>,
    pub(super) place: ObjectPlace,
}

/// A stored source.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoredSource {
    pub(super) object: i64,
    pub(super) ss_object: Option<i64>,
    pub(super) withdrawn: Option<f64>,
    pub(super) place: SourcePlace,
}

impl StoredSource {
    pub(super) fn id(&self) -> i64 {
        self.place.dia_source_id
    }
}

/// A position, in degrees.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) ra: f64,
    pub(super) dec: f64,
}

impl Transaction<'_> {
    pub(super) async fn latest_of(
        &mut self,
        objects: &[i64],
    ) -> Result<HashMap<i64, LatestVersion>> {
        let kinds = [
            Kind::Int,
            Kind::Int,
            Kind::Real,
            Kind::Int,
            Kind::Int,
            Kind::Bytes,
        ];
        let ids = [Values::ints(distinct(objects.iter().copied()))];
        let mut found = self
            .connection
            .fetch(sql::LATEST_OF, &ids, &kinds)
            .await?
            .into_iter();
        let ids = found.next().map(Values::into_ints).unwrap_or_default();
        let htm = found.next().map(Values::into_ints).unwrap_or_default();
        let starts = found.next().map(Values::into_reals).unwrap_or_default();
        let sources = found.next().map(Values::into_ints).unwrap_or_default();
        let places = self.places(found)?;
        let versions = ids.into_iter().enumerate().filter_map(|(at, id)| {
            let dia_object_id = id?;
            let version = LatestVersion {
                htm: htm[at]?,
                validity_start: starts[at]?,
                sources: sources[at],
                place: ObjectPlace {
                    dia_object_id,
                    ra: places[at]?.ra,
                    dec: places[at]?.dec,
                },
            };
            Some((dia_object_id, version))
        });
        Ok(versions.collect())
    }

    /// The positions in payloads, which are the last two of the columns that were found, after their layouts.
    pub(super) fn places(
        &self,
        mut found: impl Iterator<Item = Values>,
    ) -> Result<Vec<Option<Place>>> {
        let rows = FoundRows {
            columns: Vec::new(),
            layouts: found.next().map(Values::into_ints).unwrap_or_default(),
            payloads: found.next().map(Values::into_bytes).unwrap_or_default(),
        };
        let layouts = &self.definition.layouts;
        let ra = rows.payload_reals(layouts, names::RA)?;
        let dec = rows.payload_reals(layouts, names::DEC)?;
        let place = |(ra, dec): (Option<f64>, Option<f64>)| Some(Place { ra: ra?, dec: dec? });
        Ok(ra.into_iter().zip(dec).map(place).collect())
    }

    /// The sources of these numbers, all of which have to be there.
    pub(super) async fn sources_of(&mut self, ids: &[i64]) -> Result<Vec<StoredSource>> {
        let wanted = distinct(ids.iter().copied());
        let kinds = [
            Kind::Int,
            Kind::Int,
            Kind::Real,
            Kind::Int,
            Kind::Real,
            Kind::Int,
            Kind::Bytes,
        ];
        let rows = [Values::ints(wanted.iter().copied())];
        let mut found = self
            .connection
            .fetch(sql::SOURCES_BY_ID, &rows, &kinds)
            .await?
            .into_iter();
        let ids = found.next().map(Values::into_ints).unwrap_or_default();
        let objects = found.next().map(Values::into_ints).unwrap_or_default();
        let midpoints = found.next().map(Values::into_reals).unwrap_or_default();
        let ss_objects = found.next().map(Values::into_ints).unwrap_or_default();
        let withdrawn = found.next().map(Values::into_reals).unwrap_or_default();
        let places = self.places(found)?;
        let sources = ids.into_iter().enumerate().filter_map(|(at, id)| {
            Some(StoredSource {
                object: objects[at]?,
                ss_object: ss_objects[at],
                withdrawn: withdrawn[at],
                place: SourcePlace {
                    dia_source_id: id?,
                    ra: places[at]?.ra,
                    dec: places[at]?.dec,
                    midpoint_mjd_tai: midpoints[at]?,
                },
            })
        });
        let mut sources: Vec<StoredSource> = sources.collect();
        sources.sort_by_key(|source| source.place.dia_source_id);
        let known: HashSet<i64> = sources
            .iter()
            .map(|source| source.place.dia_source_id)
            .collect();
        let missing: Vec<i64> = wanted
            .into_iter()
            .filter(|id| !known.contains(id))
            .collect();
        self.need_sources(&missing).await?;
        match missing.is_empty() {
            true => Ok(sources),
            false => Err(AlertsError::Missing(format!(
                "these DiaSources do not exist: {}",
                listed(&missing)
            ))),
        }
    }
}
