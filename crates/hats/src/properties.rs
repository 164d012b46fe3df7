//! What a catalogue says of itself: `hats.properties` and `partition_info.csv`.

use catalog::TableKind;
use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::catalogue::{CELL_COLUMN, Catalogue};
use crate::tiles::Tiling;

/// The version of the format, and when that was released.
const VERSION: &str = "v1.0";
const RELEASED: &str = "2025-08-22";

/// The text of `hats.properties`; `bytes` are those of all files, where they are known.
pub fn properties(catalogue: &Catalogue, tiling: &Tiling, bytes: Option<u64>) -> String {
    let table = &catalogue.table;
    let kind = match table.spec.kind {
        TableKind::Child => "source",
        _ => "object",
    };
    let max_order = tiling.tiles.iter().map(|tile| tile.order).max();
    let max_rows = tiling.tiles.iter().map(|tile| tile.rows).max();
    let description = table.metadata.description.clone();
    let number = |number: Option<u64>| number.map(|it| it.to_string());
    let lines: [(&str, Option<String>); 19] = [
        ("obs_collection", Some(table.spec.name.clone())),
        ("dataproduct_type", Some(kind.to_owned())),
        ("hats_nrows", number(Some(tiling.rows()))),
        ("hats_col_ra", Some(catalogue.position.ra.clone())),
        ("hats_col_dec", Some(catalogue.position.dec.clone())),
        ("hats_col_healpix", Some(CELL_COLUMN.to_owned())),
        ("hats_col_healpix_order", Some("29".to_owned())),
        ("hats_npix_suffix", Some(".parquet".to_owned())),
        ("hats_skymap_order", Some(tiling.map_order.to_string())),
        ("hats_max_rows", number(max_rows)),
        ("hats_order", number(max_order.map(u64::from))),
        (
            "moc_sky_fraction",
            Some(format!("{:.5}", tiling.sky_fraction())),
        ),
        ("obs_description", description),
        ("obs_frame", Some("icrs".to_owned())),
        (
            "hats_estsize",
            number(bytes.map(|bytes| bytes.div_ceil(1024))),
        ),
        (
            "hats_builder",
            Some(format!("Meridian {}", env!("CARGO_PKG_VERSION"))),
        ),
        ("hats_creation_date", Some(now())),
        ("hats_release_date", Some(RELEASED.to_owned())),
        ("hats_version", Some(VERSION.to_owned())),
    ];
    let mut text = "#HATS catalog\n".to_owned();
    for (name, value) in lines {
        if let Some(value) = value {
            // Writing to a text cannot fail.
            let _ = writeln!(text, "{name}={}", escaped(&value));
        }
    }
    text
}

/// A value in Java's properties.
fn escaped(value: &str) -> String {
    let words: Vec<&str> = value.split_whitespace().collect();
    words.join(" ").replace('\\', "\\\\")
}

/// The text of `partition_info.csv`.
pub fn partition_info(tiling: &Tiling) -> String {
    let mut text = "Norder,Npix\n".to_owned();
    for tile in &tiling.tiles {
        let _ = writeln!(text, "{},{}", tile.order, tile.cell);
    }
    text
}

/// The time to the minute, UTC, as catalogues have it.
fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let minutes = since.map_or(0, |it| it.as_secs() / 60);
    let (days, minute) = (minutes / 1440, minutes % 1440);
    let (year, month, day) = date_of(days as i64);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}UTC",
        minute / 60,
        minute % 60
    )
}

/// The date so many days after 1970-01-01 (H. Hinnant, *chrono-Compatible Low-Level Date Algorithms*, `civil_from_days`).
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tiles::Tile;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date_of(0), (1970, 1, 1));
        assert_eq!(date_of(19_782), (2024, 2, 29));
        assert_eq!(date_of(20_783), (2026, 11, 26));
        assert!(now().ends_with("UTC") && now().len() == 19);
    }

    #[test]
    fn values_are_one_line() {
        assert_eq!(escaped("a\\b\n c"), "a\\\\b c");
        let tile = |order, cell| Tile {
            order,
            cell,
            rows: 1,
        };
        let tiling = Tiling {
            tiles: vec![tile(0, 4), tile(2, 176)],
            unplaced: 0,
            map_order: 0,
            map: vec![0; 12],
        };
        assert_eq!(partition_info(&tiling), "Norder,Npix\n0,4\n2,176\n");
    }
}
