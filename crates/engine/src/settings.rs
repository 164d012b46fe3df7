//! Settings of Meridian that travel with a session's configuration.

use datafusion::common::config::{ConfigExtension, ConfigOptions};
use datafusion::common::extensions_options;

extensions_options! {
    /// How chunk phases run.
    pub struct Settings {
        /// Partitions of a chunk phase: 1 where one process runs all pieces, more where executors share them.
        pub phase_partitions: usize, default = 1
    }
}

impl ConfigExtension for Settings {
    const PREFIX: &'static str = "meridian";
}

impl Settings {
    /// The settings of a configuration; the defaults where it has none.
    pub fn of(config: &ConfigOptions) -> Self {
        config.extensions.get::<Self>().cloned().unwrap_or_default()
    }
}
