//! How many threads and how much memory the scheduler shares out, and among which lanes.

use std::time::Duration;

/// A lane: the scans of a range of ratings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneOptions {
    /// What users and metrics call it.
    pub name: String,
    /// The largest scan rating that belongs here. The last lane also takes every larger one.
    pub rating_to: u8,
    /// The lane's part of the threads, relative to the other lanes that have something to run.
    pub weight: u32,
    /// The thread time that a query's pieces may take on average.
    pub mean_piece_time: Duration,
    /// The time that a query may take in this lane with all threads of the process to itself. What is compared with it is the
    /// query's own thread time, divided by the number of threads: waiting for other queries slows no query's lane down.
    pub total_time: Duration,
}

/// The lanes, fastest first. There is at least one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneTable(Vec<LaneOptions>);

/// Why lanes cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LaneTableError {
    /// There is none.
    #[error("there is no lane: give at least one")]
    Empty,
    /// The ratings do not ascend.
    #[error(
        "lane {later} is for ratings up to {rating_to}, no more than the lane before it: list lanes by ascending rating"
    )]
    Order {
        /// The lane whose ratings are too small.
        later: String,
        /// Its largest rating.
        rating_to: u8,
    },
    /// Two lanes have one name.
    #[error("two lanes are named {0}: give each its own name")]
    SameName(String),
}

impl LaneTable {
    /// These lanes, fastest first.
    ///
    /// # Errors
    /// If there is none, two have one name, or their ratings do not ascend.
    pub fn new(lanes: Vec<LaneOptions>) -> Result<Self, LaneTableError> {
        if lanes.is_empty() {
            return Err(LaneTableError::Empty);
        }
        for (index, lane) in lanes.iter().enumerate().skip(1) {
            if lane.rating_to <= lanes[index - 1].rating_to {
                return Err(LaneTableError::Order {
                    later: lane.name.clone(),
                    rating_to: lane.rating_to,
                });
            }
            if lanes[..index].iter().any(|other| other.name == lane.name) {
                return Err(LaneTableError::SameName(lane.name.clone()));
            }
        }
        Ok(Self(lanes))
    }

    /// The lanes, fastest first.
    pub fn lanes(&self) -> &[LaneOptions] {
        &self.0
    }

    /// The lane of a scan of this rating.
    pub fn lane_of(&self, rating: u8) -> usize {
        let last = self.0.len() - 1;
        self.0[..last].partition_point(|lane| lane.rating_to < rating)
    }
}

/// Four lanes. A piece is meant to take about a tenth of a second, so a mean beyond the bound of the fast lane is several
/// times that; the total times are the classes of the LSST papers' shared scans (1 h, 8 h, 12 h, longer).
impl Default for LaneTable {
    fn default() -> Self {
        const HOUR: Duration = Duration::from_secs(3600);
        let lane = |name: &str, rating_to, weight, mean_piece_time, total_time| LaneOptions {
            name: name.to_owned(),
            rating_to,
            weight,
            mean_piece_time,
            total_time,
        };
        Self(vec![
            lane("fast", 10, 4, Duration::from_millis(500), HOUR),
            lane("medium", 20, 3, Duration::from_secs(2), 8 * HOUR),
            lane("slow", 30, 2, Duration::from_secs(8), 12 * HOUR),
            lane("snail", u8::MAX, 1, Duration::MAX, Duration::MAX),
        ])
    }
}

/// What the scheduler shares out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchedulerOptions {
    /// How many pieces of scans run at once; 0 counts as 1.
    pub threads: usize,
    /// How many interactive pieces run at once, besides those of scans; 0 counts as 1.
    pub interactive_threads: usize,
    /// The memory, in bytes, that pieces may take together, by the estimates they enroll with.
    pub memory_bytes: u64,
    /// The lanes of scans.
    pub lanes: LaneTable,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(name: &str, rating_to: u8) -> LaneOptions {
        LaneOptions {
            name: name.to_owned(),
            rating_to,
            weight: 1,
            mean_piece_time: Duration::MAX,
            total_time: Duration::MAX,
        }
    }

    #[test]
    fn a_rating_has_the_first_lane_that_reaches_it() {
        let table = LaneTable::default();
        let lanes = [0, 10, 11, 20, 21, 30, 31, 255].map(|rating| table.lane_of(rating));
        assert_eq!(lanes, [0, 0, 1, 1, 2, 2, 3, 3]);
        let short = LaneTable::new(vec![lane("a", 5), lane("b", 9)]).unwrap();
        assert_eq!(
            [5, 6, 9, 10, 255].map(|rating| short.lane_of(rating)),
            [0, 1, 1, 1, 1]
        );
    }

    /// The lane that is chosen for a table is the one in which it runs.
    #[test]
    fn lanes_of_tables_are_those_of_the_scheduler() {
        let table = LaneTable::default();
        let names = table.lanes().iter().map(|lane| lane.name.as_str());
        assert!(names.eq(catalog::ScanLane::ALL.iter().map(|lane| lane.name())));
        for (at, lane) in catalog::ScanLane::ALL.into_iter().enumerate() {
            assert_eq!(table.lane_of(lane.rating()), at, "{lane}");
        }
        for rating in 2..=255 {
            let chosen = catalog::ScanLane::chosen(rating).unwrap().name();
            assert_eq!(
                table.lanes()[table.lane_of(rating)].name,
                chosen,
                "{rating}"
            );
        }
    }

    #[test]
    fn lanes_that_cannot_be_told_apart_are_rejected() {
        assert_eq!(LaneTable::new(vec![]), Err(LaneTableError::Empty));
        let order = LaneTable::new(vec![lane("a", 5), lane("b", 5)]).unwrap_err();
        assert!(order.to_string().contains("lane b is for ratings up to 5"));
        let same = LaneTable::new(vec![lane("a", 5), lane("a", 6)]).unwrap_err();
        assert_eq!(same, LaneTableError::SameName("a".to_owned()));
    }
}
