//! Functions of the values of one row, told from aggregates and window functions.

use std::collections::HashSet;
use std::sync::LazyLock;

use datafusion::functions_window::all_default_window_functions;

use crate::mysql::AGGREGATES;

/// Whether a name is that of a function of a row's values.
pub(crate) fn is_scalar(name: &str) -> bool {
    static OF_ROWS: LazyLock<HashSet<String>> = LazyLock::new(|| {
        let windows = all_default_window_functions();
        let windows = windows.into_iter().flat_map(|function| {
            let aliases = function.aliases().to_vec();
            aliases.into_iter().chain([function.name().to_owned()])
        });
        let own = ["group_concat", "ivo_string_agg", "std", "variance"].map(str::to_owned);
        windows
            .chain(own)
            .chain(AGGREGATES.iter().cloned())
            .collect()
    });
    let plain = name.trim_matches(['`', '"']);
    !OF_ROWS.contains(plain) && !OF_ROWS.contains(&format!("mysql_{plain}"))
}
