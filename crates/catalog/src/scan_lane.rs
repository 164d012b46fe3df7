//! The lanes of scans by the ratings of tables.

use std::fmt;
use std::str::FromStr;

/// The rating of a table whose lane nobody has chosen: it goes by the bytes of its chunks.
pub const UNRATED: u8 = 1;

/// A lane of scans, in which the queries over tables of some ratings share their way over the chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ScanLane {
    /// Scans that take about an hour over the whole sky.
    Fast,
    /// About eight hours.
    Medium,
    /// About twelve hours.
    Slow,
    /// Longer.
    Snail,
}

impl ScanLane {
    /// All lanes, the fastest first.
    pub const ALL: [Self; 4] = [Self::Fast, Self::Medium, Self::Slow, Self::Snail];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Medium => "medium",
            Self::Slow => "slow",
            Self::Snail => "snail",
        }
    }

    /// The largest rating that belongs to it, but for the last, which has all above, too.
    pub const fn rating(self) -> u8 {
        match self {
            Self::Fast => 10,
            Self::Medium => 20,
            Self::Slow => 30,
            Self::Snail => 40,
        }
    }

    /// The lane that was chosen for a table of this rating; `None` if none was.
    pub fn chosen(rating: u8) -> Option<Self> {
        let reaches = |lane: &Self| rating <= lane.rating();
        let lane = Self::ALL.into_iter().find(reaches).unwrap_or(Self::Snail);
        (rating > UNRATED).then_some(lane)
    }
}

impl fmt::Display for ScanLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ScanLane {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_it = |lane: &Self| lane.name().eq_ignore_ascii_case(text.trim());
        let found = Self::ALL.into_iter().find(is_it);
        found.ok_or_else(|| {
            format!("{text:?} is no lane of scans: it is fast, medium, slow or snail")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_are_known_by_their_names_and_ratings() {
        for lane in ScanLane::ALL {
            assert_eq!(lane.name().to_uppercase().parse(), Ok(lane));
            assert_eq!(ScanLane::chosen(lane.rating()), Some(lane));
        }
        assert_eq!(ScanLane::chosen(0), None);
        assert_eq!(ScanLane::chosen(UNRATED), None);
        assert_eq!(ScanLane::chosen(11), Some(ScanLane::Medium));
        assert_eq!(ScanLane::chosen(255), Some(ScanLane::Snail));
        assert!(
            "quick"
                .parse::<ScanLane>()
                .unwrap_err()
                .contains("fast, medium")
        );
    }
}
