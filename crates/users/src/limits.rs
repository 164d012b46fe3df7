//! How much a user may take: at a time, in a minute, of one query, and of the disk.

use std::fmt;

/// A limit of a user's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Limit {
    /// Connections by MySQL's protocol that are open at a time.
    Connections,
    /// Queries that run at a time while their clients wait.
    Queries,
    /// Those of them that touch few chunks.
    Interactive,
    /// Those of them that scan more.
    Scans,
    /// Submitted queries that wait or run at a time.
    Submitted,
    /// Seconds that a query may take.
    Seconds,
    /// Rows of a result.
    Rows,
    /// HTTP requests in a minute.
    Requests,
    /// Bytes of the tables in the user's own database.
    Stored,
    /// Bytes of the tables in the database of a group: of the group, not of a member.
    GroupStored,
    /// Seconds of processor time in a day of UTC.
    Cpu,
    /// Bytes of a result, as they are sent.
    Bytes,
    /// Bytes of a file or a table that is sent.
    Upload,
    /// Days for which a table of the user's own is kept.
    Lifetime,
}

impl Limit {
    /// All of them, in the order in which they are listed.
    pub const ALL: [Self; 14] = [
        Self::Connections,
        Self::Queries,
        Self::Interactive,
        Self::Scans,
        Self::Submitted,
        Self::Seconds,
        Self::Rows,
        Self::Requests,
        Self::Stored,
        Self::GroupStored,
        Self::Cpu,
        Self::Bytes,
        Self::Upload,
        Self::Lifetime,
    ];

    /// The name, by which it is set and stored.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Queries => "queries",
            Self::Interactive => "interactive",
            Self::Scans => "scans",
            Self::Submitted => "submitted",
            Self::Seconds => "seconds",
            Self::Rows => "rows",
            Self::Requests => "requests",
            Self::Stored => "stored",
            Self::GroupStored => "group_stored",
            Self::Cpu => "cpu",
            Self::Bytes => "bytes",
            Self::Upload => "upload",
            Self::Lifetime => "lifetime",
        }
    }

    /// The limit of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|limit| limit.name() == name)
    }

    /// Whether a limit can have this value.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(self, value: u64) -> Result<(), &'static str> {
        match (self, value) {
            (Self::Lifetime, 0) => Err("a table is kept for a day at least"),
            (Self::Lifetime, 36_526..) => Err("a table is kept for 100 years at most: give none"),
            _ if i64::try_from(value).is_err() => {
                Err("a limit is a whole number from 0 on, of 63 bits at most, or none")
            }
            _ => Ok(()),
        }
    }

    /// What it limits.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Connections => "MySQL connections at a time",
            Self::Queries => "queries that run at a time while their clients wait",
            Self::Interactive => "interactive queries, of few chunks, that run at a time",
            Self::Scans => "scans, of more chunks, that run at a time",
            Self::Submitted => "submitted queries that wait or run at a time",
            Self::Seconds => "seconds that a query may take",
            Self::Rows => "rows of a result",
            Self::Requests => "HTTP requests in a minute",
            Self::Stored => "bytes of the tables in one's own database",
            Self::GroupStored => "bytes of the tables in the database of a group",
            Self::Cpu => "seconds of processor time in a day (UTC)",
            Self::Bytes => "bytes of a result",
            Self::Upload => "bytes of a file that is sent",
            Self::Lifetime => "days for which a table of one's own is kept",
        }
    }

    /// Whether it is one of groups, or of everybody for all groups, and none of users.
    pub fn is_of_groups(self) -> bool {
        self == Self::GroupStored
    }

    /// Whether it counts what is there at a moment, so that there is a present use.
    pub fn has_use(self) -> bool {
        !matches!(
            self,
            Self::Seconds | Self::Rows | Self::Bytes | Self::Upload | Self::Lifetime
        )
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The limits of a user, or those of everybody.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits([Option<u64>; Limit::ALL.len()]);

impl Limits {
    /// A limit; `None` if there is none.
    pub fn get(&self, limit: Limit) -> Option<u64> {
        self.0[limit as usize]
    }

    /// Sets a limit, or takes it away.
    pub fn set(&mut self, limit: Limit, value: Option<u64>) {
        self.0[limit as usize] = value;
    }

    /// These, and where there is none those of `others`.
    #[must_use]
    pub fn or(&self, others: &Self) -> Self {
        let mut limits = *self;
        for (own, other) in limits.0.iter_mut().zip(others.0) {
            *own = own.or(other);
        }
        limits
    }

    /// The widest of those that are set, for somebody who belongs to several groups.
    #[must_use]
    pub fn widest<'a>(all: impl Iterator<Item = &'a Self>) -> Self {
        let mut widest = Self::default();
        for limits in all {
            for (limit, most) in limits.iter() {
                widest.set(limit, widest.get(limit).max(Some(most)));
            }
        }
        widest
    }

    /// Those that are set.
    pub fn iter(&self) -> impl Iterator<Item = (Limit, u64)> {
        let all = Limit::ALL.into_iter();
        all.filter_map(|limit| Some((limit, self.get(limit)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_limits_come_before_those_of_everybody() {
        let (mut own, mut everybody) = (Limits::default(), Limits::default());
        everybody.set(Limit::Rows, Some(10));
        everybody.set(Limit::Queries, Some(2));
        own.set(Limit::Rows, Some(1000));
        let limits = own.or(&everybody);
        assert_eq!(
            limits.iter().collect::<Vec<_>>(),
            [(Limit::Queries, 2), (Limit::Rows, 1000)]
        );
        let widest = Limits::widest([&own, &everybody].into_iter());
        assert_eq!(widest, limits);
        for limit in Limit::ALL {
            assert_eq!(Limit::of_name(limit.name()), Some(limit));
        }
        assert_eq!(Limit::of_name("row"), None);
    }
}
