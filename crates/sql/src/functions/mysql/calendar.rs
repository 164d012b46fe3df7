//! Dates and times of the proleptic Gregorian calendar, as MySQL counts and writes them.
//!
//! Day numbers are converted by H. Hinnant's algorithms (chrono-Compatible Low-Level Date Algorithms, 2013).

/// Microseconds of a second.
pub(super) const MICROS_OF_SECOND: i64 = 1_000_000;
/// Seconds of a day.
pub(super) const SECONDS_OF_DAY: i64 = 86_400;
/// Microseconds of a day.
pub(super) const MICROS_OF_DAY: i64 = SECONDS_OF_DAY * MICROS_OF_SECOND;
/// The number that TO_DAYS gives to 1970-01-01.
pub(super) const DAYS_BEFORE_EPOCH: i64 = 719_528;
/// The last year of dates.
pub(super) const LAST_YEAR: i64 = 9999;
/// Days of 400 years.
const DAYS_OF_ERA: i64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01.
const EPOCH_FROM_MARCH: i64 = 719_468;

pub(super) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
pub(super) const WEEKDAYS: [&str; 7] = [
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
];

/// A date and a time of day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Of the proleptic Gregorian calendar.
    pub year: i64,
    /// From 1.
    pub month: i64,
    /// From 1.
    pub day: i64,
    /// From 0.
    pub hour: i64,
    /// From 0.
    pub minute: i64,
    /// From 0.
    pub second: i64,
    /// Of a second.
    pub micros: i64,
}

impl Moment {
    /// A number of microseconds since 1970-01-01.
    pub fn of_micros(micros: i64) -> Self {
        let (days, rest) = (
            micros.div_euclid(MICROS_OF_DAY),
            micros.rem_euclid(MICROS_OF_DAY),
        );
        let (year, month, day) = civil(days);
        let seconds = rest / MICROS_OF_SECOND;
        Self {
            year,
            month,
            day,
            hour: seconds / 3600,
            minute: seconds / 60 % 60,
            second: seconds % 60,
            micros: rest % MICROS_OF_SECOND,
        }
    }

    /// Microseconds since 1970-01-01.
    pub(super) fn to_micros(self) -> i64 {
        let seconds = (self.hour * 60 + self.minute) * 60 + self.second;
        (self.days() * SECONDS_OF_DAY + seconds) * MICROS_OF_SECOND + self.micros
    }

    /// Days since 1970-01-01.
    pub(super) fn days(self) -> i64 {
        day_number(self.year, self.month, self.day)
    }

    /// From Monday, 0.
    pub(super) fn weekday(self) -> i64 {
        (self.days() + 3).rem_euclid(7)
    }

    /// From 1.
    pub(super) fn day_of_year(self) -> i64 {
        self.days() - day_number(self.year, 1, 1) + 1
    }

    /// The time moved by months; a day that the month does not have becomes its last.
    pub(super) fn plus_months(self, months: i64) -> Self {
        let all = self.year * 12 + self.month - 1 + months;
        let (year, month) = (all.div_euclid(12), all.rem_euclid(12) + 1);
        let day = self.day.min(days_of_month(year, month));
        Self {
            year,
            month,
            day,
            ..self
        }
    }

    /// As MySQL writes it: `2010-06-15 01:02:03`, with a fraction where there is one.
    pub(super) fn text(self) -> String {
        format!("{} {}", date_text(self.days() as i32), self.time_text())
    }

    /// The time of day as MySQL writes it.
    pub(super) fn time_text(self) -> String {
        let Self {
            hour,
            minute,
            second,
            micros,
            ..
        } = self;
        let fraction = if micros == 0 {
            String::new()
        } else {
            format!(".{micros:06}")
        };
        format!("{hour:02}:{minute:02}:{second:02}{fraction}")
    }

    /// The number whose digits are those of the text.
    pub(super) fn digits(self) -> f64 {
        (self.date_digits() * 1_000_000) as f64 + self.time_digits()
    }

    /// The number whose digits are those of the time of day: 123000 is half past twelve.
    pub(super) fn time_digits(self) -> f64 {
        let time = (self.hour * 100 + self.minute) * 100 + self.second;
        time as f64 + self.micros as f64 / MICROS_OF_SECOND as f64
    }

    /// The number whose digits are those of the date.
    pub(super) fn date_digits(self) -> i64 {
        (self.year * 100 + self.month) * 100 + self.day
    }
}

/// The days that a date can be: 0000-01-01 to 9999-12-31.
const DAYS: std::ops::Range<i64> = -DAYS_BEFORE_EPOCH..2_932_897;

/// A day number, if it is one of the years 0 to 9999.
pub(super) fn date_in_range(days: i128) -> Option<i32> {
    let days = i64::try_from(days).ok()?;
    DAYS.contains(&days).then_some(days as i32)
}

/// Microseconds since 1970-01-01, if they are in the years 0 to 9999.
pub(super) fn time_in_range(micros: i128) -> Option<i64> {
    let micros = i64::try_from(micros).ok()?;
    DAYS.contains(&micros.div_euclid(MICROS_OF_DAY))
        .then_some(micros)
}

pub(super) fn date_text(days: i32) -> String {
    let (year, month, day) = civil(days.into());
    format!("{year:04}-{month:02}-{day:02}")
}

/// Days since 1970-01-01.
pub(super) fn day_number(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    era * DAYS_OF_ERA + of_era * 365 + of_era / 4 - of_era / 100 + of_year - EPOCH_FROM_MARCH
}

/// Year, month and day of a day number.
pub(super) fn civil(days: i64) -> (i64, i64, i64) {
    let from_march = days + EPOCH_FROM_MARCH;
    let (era, of_era) = (
        from_march.div_euclid(DAYS_OF_ERA),
        from_march.rem_euclid(DAYS_OF_ERA),
    );
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

pub(super) fn days_of_month(year: i64, month: i64) -> i64 {
    let (next_year, next) = if month == 12 {
        (year + 1, 1)
    } else {
        (year, month + 1)
    };
    day_number(next_year, next, 1) - day_number(year, month, 1)
}

/// Years of two digits are from 1970 to 2069.
pub(super) fn century(year: i64) -> i64 {
    if year < 70 { year + 2000 } else { year + 1900 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_there_and_back() {
        for days in (-800_000..3_000_000).step_by(97) {
            let (year, month, day) = civil(days);
            assert_eq!(day_number(year, month, day), days);
        }
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(
            (civil(DAYS.start), civil(DAYS.end - 1)),
            ((0, 1, 1), (9999, 12, 31))
        );
    }
}
