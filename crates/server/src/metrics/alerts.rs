//! The metrics of what is published of alert databases.

use std::fmt;
use std::sync::Arc;

use prometheus::{IntGaugeVec, Opts, Registry};

use super::registered;
use crate::http::AlertDatabases;

/// The metrics that tell what is published and what waits, as it was when the server looked last.
pub(super) struct AlertMetrics {
    databases: Arc<AlertDatabases>,
    published: IntGaugeVec,
    waiting: IntGaugeVec,
    open: IntGaugeVec,
    over: IntGaugeVec,
    following_failed: IntGaugeVec,
    followed_chunks: IntGaugeVec,
    followed_rows: IntGaugeVec,
    followed: IntGaugeVec,
}

impl fmt::Debug for AlertMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlertMetrics").finish_non_exhaustive()
    }
}

impl AlertMetrics {
    pub(super) fn register(
        registry: &Registry,
        databases: Arc<AlertDatabases>,
    ) -> Result<Self, prometheus::Error> {
        let gauge = |name: &str, help: &str| {
            let opts = Opts::new(name, help);
            registered(registry, IntGaugeVec::new(opts, &["database"])?)
        };
        Ok(Self {
            databases,
            published: gauge(
                "meridian_alerts_published_edition",
                "The last edition of an alert database that is published.",
            )?,
            waiting: gauge(
                "meridian_alerts_waiting_editions",
                "Editions of an alert database that are closed and not published.",
            )?,
            open: gauge(
                "meridian_alerts_open_chunks",
                "Replica chunks of an alert database that are of no edition yet.",
            )?,
            over: gauge(
                "meridian_alerts_unpublished_closed_chunks",
                "Replica chunks of an alert database that are over and of no edition yet.",
            )?,
            following_failed: gauge(
                "meridian_alerts_following_failed",
                "1 if an alert database could not follow the other one when the server tried last, else 0.",
            )?,
            followed_chunks: gauge(
                "meridian_alerts_followed_chunks",
                "Replica chunks of the database that is followed that were read since the server began, new or changed.",
            )?,
            followed_rows: gauge(
                "meridian_alerts_followed_rows",
                "Rows of the database that is followed that were stored since the server began.",
            )?,
            followed: gauge(
                "meridian_alerts_followed_timestamp_seconds",
                "When the database that is followed was looked at with success last, in seconds since 1970.",
            )?,
        })
    }

    /// Takes the values of now.
    pub(super) fn look(&self) {
        for (name, status) in self.databases.publishing.statuses() {
            let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
            let labels = [name.as_str()];
            self.published
                .with_label_values(&labels)
                .set(status.published);
            self.waiting
                .with_label_values(&labels)
                .set(count(status.waiting));
            self.open.with_label_values(&labels).set(count(status.open));
            self.over.with_label_values(&labels).set(count(status.over));
        }
        // One that follows no more has none.
        for gauge in [
            &self.following_failed,
            &self.followed_chunks,
            &self.followed_rows,
            &self.followed,
        ] {
            gauge.reset();
        }
        for (name, status) in self.databases.following.statuses() {
            let labels = [name.as_str()];
            let set = |gauge: &IntGaugeVec, value: i64| gauge.with_label_values(&labels).set(value);
            set(&self.following_failed, i64::from(status.is_failed));
            set(&self.followed_chunks, status.chunks.cast_signed());
            set(&self.followed_rows, status.rows.cast_signed());
            set(&self.followed, status.good_s);
        }
    }
}
