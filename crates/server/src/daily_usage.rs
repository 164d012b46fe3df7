//! The processor time that users take on a day, kept over restarts.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ::users::DailyUsage;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::authenticator::Authenticator;

/// How often it is written down what users have taken. A server that is killed forgets what they took since.
const INTERVAL: Duration = Duration::from_secs(5);
const SECONDS_OF_A_DAY: u64 = 86_400;

/// The day of UTC, in days since 1970-01-01.
fn today() -> i64 {
    let since = SystemTime::UNIX_EPOCH.elapsed();
    let seconds = since.map_or(0, |since| since.as_secs());
    i64::try_from(seconds / SECONDS_OF_A_DAY).unwrap_or(i64::MAX)
}

/// What users have taken of this day.
pub(crate) async fn before(data: &Path) -> HashMap<String, u64> {
    let before = DailyUsage::of(data).of_day(today()).await;
    before.unwrap_or_else(|error| {
        warn!(%error, "what users have taken of this day's processor time is not known");
        HashMap::new()
    })
}

/// Writes down what users take, until the server ends.
pub(crate) async fn write_down(
    authenticator: Arc<Authenticator>,
    file: DailyUsage,
    stop: CancellationToken,
) {
    let mut day = today();
    let mut problem = String::new();
    loop {
        let is_over = timeout(INTERVAL, stop.cancelled()).await.is_ok();
        let now = today();
        let outcome = authenticator
            .usages()
            .write_down(&file, day, now != day)
            .await;
        match outcome {
            Ok(()) => day = now,
            // What is not written is counted still, and written when it can be.
            Err(error) => {
                let told = error.to_string();
                if told != problem {
                    warn!(%error, "the processor time of users is not written down");
                    problem = told;
                }
            }
        }
        if is_over {
            return;
        }
    }
}
