//! Removing what is published from the store, and bringing back what an operation needs of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use arrow::array::RecordBatch;
use sky::htm::{Level, centre};
use sky::{LonLat, UnitVector};

use super::{HTM_LEVEL, NO_OBJECT, Transaction, counted, distinct};
use crate::editions::PUBLISHED;
use crate::error::{AlertsError, Result};
use crate::operation::Outcome;
use crate::published::{EmptyStep, NeededRows, RecalledRows, Through};
use crate::reseed::setting;
use crate::reseed_statements::RELEASES;
use crate::rows::ints;
use crate::schema::names;
use crate::statements as sql;
use crate::store::{Connection, Kind, Values, first};

/// The settings that tell how far the store was emptied.
pub(super) const EMPTIED: &str = "emptied";
const EMPTIED_VERSIONS: &str = "emptied_versions";

/// More degrees than there are from the middle of a trixel of the store to any point of it: fewer than 100 / 2^[`HTM_LEVEL`].
const TRIXEL: f64 = 3e-4;

/// Up to which edition rows were removed from the store.
pub(crate) async fn emptied(connection: &mut dyn Connection) -> Result<Option<Through>> {
    let kinds = [Kind::Int, Kind::Int];
    let found = connection.fetch(sql::EMPTIED, &[], &kinds).await?;
    let mut found = found.into_iter().map(Values::into_ints);
    let edition = found.next().and_then(|it| it.first().copied().flatten());
    let closed = found.next().and_then(|it| it.first().copied().flatten());
    let Some((edition, closed_us)) = edition.zip(closed) else {
        return Ok(None);
    };
    let release = releases(connection).await?;
    Ok(Some(Through {
        edition,
        closed_us,
        release,
    }))
}

/// How many releases took the place of what was published before.
pub(crate) async fn releases(connection: &mut dyn Connection) -> Result<i64> {
    let text = setting(connection, RELEASES).await?;
    Ok(text.and_then(|text| text.parse().ok()).unwrap_or(0))
}

impl Transaction<'_> {
    /// Removes rows, or says first that rows through an edition are read from the archive from now on.
    pub(super) async fn empty(&mut self, through: i64, step: Option<EmptyStep>) -> Result<Outcome> {
        let before = emptied(self.connection).await?.map_or(0, |it| it.edition);
        let Some(step) = step else {
            if through <= before {
                return Ok(Outcome::default());
            }
            let edition = [Values::ints([through])];
            let closed = self
                .connection
                .fetch(sql::CLOSED, &edition, &[Kind::Int])
                .await?;
            if first(closed).len() == 0 {
                let sentence = format!("there is no edition {through}");
                return Err(AlertsError::Invalid(sentence));
            }
            self.set_setting(EMPTIED, through).await?;
            return Ok(counted(
                self.connection.change(sql::FORGET_CHUNKS, &edition).await?,
            ));
        };
        if through != before {
            let sentence = format!("rows through edition {before} are removed, not {through}");
            return Err(AlertsError::Invalid(sentence));
        }
        match step {
            EmptyStep::Sources(chunk) => self.empty_sources(chunk, through).await,
            EmptyStep::Forced(chunk) => self.empty_forced(chunk, through).await,
            EmptyStep::Versions(chunk) => self.empty_versions(chunk).await,
        }
    }

    pub(super) async fn set_setting(&mut self, name: &str, value: i64) -> Result<()> {
        let row = [
            Values::texts([name.to_owned()]),
            Values::texts([value.to_string()]),
        ];
        self.connection.change(sql::SET_SETTING, &row).await?;
        Ok(())
    }

    async fn empty_sources(&mut self, chunk: i64, through: i64) -> Result<Outcome> {
        let row = [Values::ints([chunk]), Values::ints([through])];
        let found = self
            .connection
            .fetch(sql::OLD_SOURCES, &row, &[Kind::Int, Kind::Int])
            .await?;
        let mut found = found.into_iter().map(Values::into_ints);
        let ids = found.next().unwrap_or_default().into_iter();
        let trixels = ids.zip(found.next().unwrap_or_default());
        let trixels: BTreeMap<i64, i64> = trixels
            .filter_map(|(id, trixel)| Some((id?, trixel?)))
            .collect();
        let rows = [Values::ints(trixels.keys().copied())];
        // Rows that were brought back are in a range already.
        let found = self
            .connection
            .fetch(sql::EMPTIED_SOURCES, &rows, &[Kind::Int])
            .await?;
        let known: BTreeSet<i64> = first(found).into_ints().into_iter().flatten().collect();
        let new = trixels.keys().copied().filter(|id| !known.contains(id));
        let ranges = ranges_of(new);
        let circle = |range: &(i64, i64)| {
            let of_range = trixels.range(range.0..=range.1);
            circle_around(of_range.map(|(_, trixel)| *trixel))
        };
        let circles: Vec<Option<[f64; 3]>> = ranges.iter().map(circle).collect();
        let of_circles =
            |at: usize| Values::Real(circles.iter().map(|it| it.map(|it| it[at])).collect());
        let ranges = [
            Values::ints(ranges.iter().map(|range| range.0)),
            Values::ints(ranges.iter().map(|range| range.1)),
            of_circles(0),
            of_circles(1),
            of_circles(2),
        ];
        self.connection.change(sql::ADD_EMPTIED, &ranges).await?;
        self.connection.change(sql::REMOVE_SOURCES, &rows).await?;
        self.connection
            .change(sql::REMOVE_SOURCE_STATES, &rows)
            .await?;
        Ok(counted(trixels.len() as u64))
    }

    async fn empty_forced(&mut self, chunk: i64, through: i64) -> Result<Outcome> {
        let row = [Values::ints([chunk]), Values::ints([through])];
        let kinds = [Kind::Int, Kind::Int, Kind::Int];
        let keys = self.connection.fetch(sql::OLD_FORCED, &row, &kinds).await?;
        let visits: BTreeSet<(i64, i64)> = keys_of(&keys)
            .into_iter()
            .map(|(_, visit, detector)| (visit, detector))
            .collect();
        self.connection
            .change(sql::NOTE_EMPTIED_VISITS, &pairs_of(&visits))
            .await?;
        self.connection.change(sql::REMOVE_FORCED, &keys).await?;
        self.connection
            .change(sql::REMOVE_WITHDRAWALS, &keys)
            .await?;
        Ok(counted(keys.first().map_or(0, Values::len) as u64))
    }

    /// The last version of an object stays, whatever it is: the next one begins after it.
    async fn empty_versions(&mut self, chunk: i64) -> Result<Outcome> {
        let row = [Values::ints([chunk])];
        let kinds = [Kind::Int, Kind::Real];
        let versions = self
            .connection
            .fetch(sql::OLD_VERSIONS, &row, &kinds)
            .await?;
        let count = versions.first().map_or(0, Values::len) as u64;
        for statement in [
            sql::REMOVE_VERSIONS,
            sql::REMOVE_OBJECT_STATES,
            sql::REMOVE_CLOSES,
        ] {
            self.connection.change(statement, &versions).await?;
        }
        if count == 0 {
            self.set_setting(EMPTIED_VERSIONS, chunk).await?;
        }
        Ok(counted(count))
    }

    /// Brings rows of the archive back, unless they are there.
    pub(super) async fn recall(&mut self, recalled: &RecalledRows) -> Result<()> {
        if emptied(self.connection).await? != Some(recalled.through) {
            // What was read may not be the last that was published of them.
            return Err(AlertsError::OnlyPublished(Box::new(
                recalled.needed.clone(),
            )));
        }
        for batch in &recalled.sources {
            let chunks = self.chunks_of(batch).await?;
            self.add_sources(batch, chunks).await?;
        }
        for batch in &recalled.forced {
            let chunks = self.chunks_of(batch).await?;
            self.add_forced(batch, chunks).await?;
        }
        Ok(())
    }

    /// A chunk of the edition in which each row became what it is.
    async fn chunks_of(&mut self, batch: &RecordBatch) -> Result<Vec<Option<i64>>> {
        let times = ints(batch, PUBLISHED);
        let asked = [Values::ints(distinct(times.iter().copied().flatten()))];
        let kinds = [Kind::Int, Kind::Int];
        let found = self
            .connection
            .fetch(sql::CHUNK_OF_TIME, &asked, &kinds)
            .await?;
        let mut found = found.into_iter().map(Values::into_ints);
        let closed = found.next().unwrap_or_default().into_iter();
        let chunks = closed.zip(found.next().unwrap_or_default());
        let chunks: HashMap<Option<i64>, Option<i64>> = chunks.collect();
        let chunk = |time: &Option<i64>| match chunks.get(time) {
            Some(Some(chunk)) => Ok(Some(*chunk)),
            _ => Err(AlertsError::Damaged(
                "the archive has rows of an edition that the store does not know".to_owned(),
            )),
        };
        times.iter().map(chunk).collect()
    }

    /// Sees that an operation has the sources of these numbers that only the archive has.
    pub(super) async fn need_sources(&mut self, missing: &[i64]) -> Result<()> {
        let rows = [Values::ints(missing.iter().copied())];
        let found = self
            .connection
            .fetch(sql::EMPTIED_SOURCES, &rows, &[Kind::Int])
            .await?;
        let sources: BTreeSet<i64> = first(found).into_ints().into_iter().flatten().collect();
        if sources.is_empty() {
            return Ok(());
        }
        if self.asked.is_some_and(|it| sources.is_subset(&it.sources)) {
            return Err(AlertsError::Damaged(format!(
                "the archive does not have DiaSources that were published, {} among them",
                sources.first().copied().unwrap_or_default()
            )));
        }
        Err(needs(NeededRows {
            sources,
            ..NeededRows::default()
        }))
    }

    /// Sees that an operation has all sources of these objects.
    pub(super) async fn need_sources_of(&mut self, objects: &[i64]) -> Result<()> {
        let objects: BTreeSet<i64> = objects.iter().copied().collect();
        let is_asked = self.asked.is_some_and(|it| objects.is_subset(&it.objects));
        if objects.is_empty() || is_asked || emptied(self.connection).await?.is_none() {
            return Ok(());
        }
        Err(needs(NeededRows {
            objects,
            ..NeededRows::default()
        }))
    }

    /// Sees that an operation has those of these forced sources that there are.
    pub(super) async fn need_forced(&mut self, keys: &[(i64, i64, i64)]) -> Result<()> {
        let visits: BTreeSet<(i64, i64)> = keys.iter().map(|key| (key.1, key.2)).collect();
        let kinds = [Kind::Int, Kind::Int];
        let found = self
            .connection
            .fetch(sql::EMPTIED_VISITS, &pairs_of(&visits), &kinds)
            .await?;
        let mut found = found.into_iter().map(Values::into_ints);
        let emptied: BTreeSet<(Option<i64>, Option<i64>)> = found
            .next()
            .unwrap_or_default()
            .into_iter()
            .zip(found.next().unwrap_or_default())
            .collect();
        let forced: BTreeSet<(i64, i64, i64)> = keys
            .iter()
            .copied()
            .filter(|key| emptied.contains(&(Some(key.1), Some(key.2))))
            .collect();
        if self.asked.is_some_and(|it| forced.is_subset(&it.forced)) || forced.is_empty() {
            return Ok(());
        }
        Err(needs(NeededRows {
            forced,
            ..NeededRows::default()
        }))
    }

    /// Refuses sources that only the archive has to be stored once more.
    pub(super) async fn check_not_emptied(&mut self, ids: &[i64]) -> Result<()> {
        let rows = [Values::ints(ids.iter().copied())];
        let found = self
            .connection
            .fetch(sql::EMPTIED_SOURCES, &rows, &[Kind::Int])
            .await?;
        match first(found).len() {
            0 => Ok(()),
            count => Err(AlertsError::Conflict(format!(
                "{count} of the DiaSources are stored already; a retry of a store is recognised by its request name"
            ))),
        }
    }
}

fn needs(needed: NeededRows) -> AlertsError {
    AlertsError::OnlyPublished(Box::new(needed))
}

pub(super) fn pairs_of(visits: &BTreeSet<(i64, i64)>) -> [Values; 2] {
    [
        Values::ints(visits.iter().map(|pair| pair.0)),
        Values::ints(visits.iter().map(|pair| pair.1)),
    ]
}

/// Keys of forced sources, in three columns.
pub(crate) fn keys_of(columns: &[Values]) -> Vec<(i64, i64, i64)> {
    let [
        Values::Int(objects),
        Values::Int(visits),
        Values::Int(detectors),
    ] = columns
    else {
        return Vec::new();
    };
    let keys = objects.iter().zip(visits).zip(detectors);
    keys.filter_map(|((object, visit), detector)| Some(((*object)?, (*visit)?, (*detector)?)))
        .collect()
}

/// The keys of a batch of forced sources.
pub(crate) fn forced_keys(batch: &RecordBatch) -> Vec<(i64, i64, i64)> {
    let or_none = |name| {
        Values::ints(
            ints(batch, name)
                .into_iter()
                .map(|it| it.unwrap_or(NO_OBJECT)),
        )
    };
    keys_of(&[
        or_none(names::DIA_OBJECT),
        or_none(names::VISIT),
        or_none(names::DETECTOR),
    ])
}

/// Right ascension, declination and radius, in degrees, of a circle that holds trixels; `None` where they are all around, or are none.
pub(super) fn circle_around(trixels: impl Iterator<Item = i64>) -> Option<[f64; 3]> {
    let level = Level::new(HTM_LEVEL).ok()?;
    let centres = trixels.map(|trixel| centre(level, u64::try_from(trixel).ok()?));
    let centres: Vec<UnitVector> = centres.collect::<Option<_>>()?;
    let sum = |of: fn(UnitVector) -> f64| centres.iter().copied().map(of).sum::<f64>();
    let middle = [sum(UnitVector::x), sum(UnitVector::y), sum(UnitVector::z)];
    // Far below the length of one of them: they are opposite to each other.
    if middle.iter().map(|it| it * it).sum::<f64>() < 1e-6 {
        return None;
    }
    let middle = UnitVector::from_vector(middle)?;
    let away = centres.iter().map(|it| middle.separation(*it).degrees());
    let radius = away.fold(0.0, f64::max) + TRIXEL;
    let place = LonLat::from(middle);
    (radius < 180.0).then(|| [place.ra().degrees(), place.dec().degrees(), radius])
}

/// Numbers in order as ranges of the first and the last one.
pub(super) fn ranges_of(ids: impl Iterator<Item = i64>) -> Vec<(i64, i64)> {
    let mut ranges: Vec<(i64, i64)> = Vec::new();
    for id in ids {
        match ranges.last_mut() {
            Some(range) if range.1.checked_add(1) == Some(id) => range.1 = id,
            _ => ranges.push((id, id)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_hold_what_is_removed() {
        let level = Level::new(HTM_LEVEL).unwrap();
        let circle = |places: &[(f64, f64)]| {
            let (ra, dec): (Vec<f64>, Vec<f64>) = places.iter().copied().unzip();
            let mut trixels = Vec::new();
            sky::htm::ids_degrees(level, &ra, &dec, &mut trixels);
            circle_around(trixels.into_iter().map(|trixel| trixel as i64))
        };
        for (ra, dec) in [(0.0, 0.0), (359.95, -89.95), (120.3, 90.0), (45.0, -30.0)] {
            // A detector's field, across whatever is there.
            let places: Vec<(f64, f64)> = (0..40)
                .map(|at| {
                    let (east, north) = (f64::from(at % 7) / 30.0, f64::from(at % 11) / 50.0);
                    ((ra + east) % 360.0, (dec - north).max(-90.0))
                })
                .collect();
            let [centre_ra, centre_dec, radius] = circle(&places).unwrap();
            assert!(radius < 0.3, "{radius}");
            let region = sky::Region::circle_degrees(centre_ra, centre_dec, radius).unwrap();
            for (ra, dec) in places {
                assert!(region.contains(LonLat::from_degrees(ra, dec).unwrap()));
            }
        }
        assert!(circle(&[(10.0, 20.0)]).unwrap()[2] < 0.001);
        assert_eq!(circle(&[(10.0, 20.0), (190.0, -20.0)]), None);
        assert_eq!(circle(&[]), None);
        assert_eq!(circle_around([3].into_iter()), None);
    }

    #[test]
    fn numbers_become_ranges() {
        let ranges = |ids: &[i64]| ranges_of(ids.iter().copied());
        assert_eq!(ranges(&[]), []);
        assert_eq!(ranges(&[-1, 0, 1, 3, 7, 8]), [(-1, 1), (3, 3), (7, 8)]);
        assert_eq!(
            ranges(&[i64::MIN, i64::MAX]),
            [(i64::MIN, i64::MIN), (i64::MAX, i64::MAX)]
        );
    }
}
