//! The log of updates: what was changed of rows after they were stored, for copies of the database to follow.

use serde::{Deserialize, Serialize};

/// A change of a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "update_type", rename_all_fields = "camelCase")]
pub enum Update {
    /// A source belongs to another object.
    #[serde(rename = "reassign_diasource_to_diaobject")]
    ReassignToObject {
        /// Which source, and where it is.
        #[serde(flatten)]
        source: SourcePlace,
        /// The object that it belongs to.
        dia_object_id: i64,
    },
    /// A source is of an object of the solar system.
    #[serde(rename = "reassign_diasource_to_ssobject")]
    ReassignToSolarSystem {
        /// Which source, and where it is.
        #[serde(flatten)]
        source: SourcePlace,
        /// The solar-system object.
        ss_object_id: i64,
        /// When that was found, as MJD (TAI).
        ss_object_reassoc_time_mjd_tai: f64,
    },
    /// A source is withdrawn.
    #[serde(rename = "withdraw_diasource")]
    WithdrawSource {
        /// Which source, and where it is.
        #[serde(flatten)]
        source: SourcePlace,
        /// When, as MJD (TAI).
        time_withdrawn_mjd_tai: f64,
    },
    /// A forced source is withdrawn.
    #[serde(rename = "withdraw_diaforcedsource")]
    WithdrawForcedSource {
        /// The object of the forced source.
        dia_object_id: i64,
        /// Its visit.
        visit: i64,
        /// Its detector.
        detector: i64,
        /// Right ascension, degrees.
        ra: f64,
        /// Declination, degrees.
        dec: f64,
        /// The time of the exposure's middle, as MJD (TAI).
        midpoint_mjd_tai: f64,
        /// When it was withdrawn, as MJD (TAI).
        time_withdrawn_mjd_tai: f64,
    },
    /// The latest version of an object is valid no longer.
    #[serde(rename = "close_diaobject_validity")]
    CloseObject {
        /// Which object, and where it is.
        #[serde(flatten)]
        object: ObjectPlace,
        /// From when on, as MJD (TAI).
        validity_end_mjd_tai: f64,
        /// The number of its sources, if it changes.
        n_dia_sources: Option<i64>,
    },
    /// An object has another number of sources.
    #[serde(rename = "update_n_dia_sources")]
    CountSources {
        /// Which object, and where it is.
        #[serde(flatten)]
        object: ObjectPlace,
        /// The number of its sources.
        n_dia_sources: i64,
    },
}

/// Which source, and where it is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourcePlace {
    /// Its number.
    pub dia_source_id: i64,
    /// Right ascension, degrees.
    pub ra: f64,
    /// Declination, degrees.
    pub dec: f64,
    /// The time of the exposure's middle, as MJD (TAI).
    pub midpoint_mjd_tai: f64,
}

/// Which object, and where it is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectPlace {
    /// Its number.
    pub dia_object_id: i64,
    /// Right ascension, degrees.
    pub ra: f64,
    /// Declination, degrees.
    pub dec: f64,
}

/// An entry of the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UpdateRecord {
    /// When it was, in nanoseconds since 1970 (TAI).
    pub update_time_ns: i64,
    /// Its place among those of the same time.
    pub update_order: i64,
    /// What was changed.
    #[serde(flatten)]
    pub update: Update,
}

/// The MJD of 1970.
const MJD_1970: f64 = 40_587.0;
const SECONDS_OF_A_DAY: f64 = 86_400.0;

/// A time in nanoseconds since 1970, of an MJD in the same scale; exact to a microsecond, as a double is.
pub(crate) fn nanoseconds(mjd: f64) -> i64 {
    let microseconds = (mjd - MJD_1970) * SECONDS_OF_A_DAY * 1e6;
    // Years far beyond any observation saturate.
    (microseconds.round() as i64).saturating_mul(1000)
}

/// Whole seconds since 1970, of an MJD in the same scale. A time within a millisecond of a full second is taken for it, so that rounding of
/// the MJD moves nothing into the second before.
pub(crate) fn seconds(mjd: f64) -> i64 {
    let milliseconds = (mjd - MJD_1970) * SECONDS_OF_A_DAY * 1e3;
    (milliseconds.round() as i64).div_euclid(1000)
}
