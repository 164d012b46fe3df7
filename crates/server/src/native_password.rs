//! `mysql_native_password`, by which clients log in that know nothing newer: only where the operator has switched it on, and only users
//! whose passwords were set for it.

use ::users::{NativePassword, UserList};
use sql::ErrorCode;
use sql::mysql::PasswordPlugin;
use tracing::info;

use crate::ClientError;

/// What lets a user in whose client knows this plugin alone.
pub(crate) const REMEDY: &str = "use a client that has caching_sha2_password; or an operator starts the server with --mysql-native-password, and the password is set anew for it (`meridian user passwd NAME --mysql-native-password`, or ALTER USER NAME IDENTIFIED WITH mysql_native_password BY '...')";

/// What is kept of a password that a statement sets.
///
/// # Errors
/// It is to be for `mysql_native_password`, which is not switched on.
pub(crate) fn kept(
    plugin: Option<PasswordPlugin>,
    is_taken: bool,
) -> Result<NativePassword, ClientError> {
    match (plugin, is_taken) {
        (Some(PasswordPlugin::Native), true) => Ok(NativePassword::Kept),
        (Some(PasswordPlugin::Native), false) => {
            let sentence = "Plugin 'mysql_native_password' is not loaded: an operator can start the server with --mysql-native-password; IDENTIFIED BY alone sets a password for clients that have caching_sha2_password";
            Err(ClientError::new(ErrorCode::PLUGIN_NOT_LOADED, sentence))
        }
        (None, true) => Ok(NativePassword::AsBefore),
        (Some(PasswordPlugin::CachingSha2), _) | (None, false) => Ok(NativePassword::NotKept),
    }
}

/// Says in the log what comes of passwords that were set before it was switched on or off.
pub(crate) fn log_at_start(list: &UserList, is_taken: bool) {
    let with_password = || list.iter().filter(|user| user.password.is_some());
    let kept = with_password().filter(|user| user.native.is_some()).count();
    let others = with_password().count() - kept;
    match is_taken {
        true if others > 0 => info!(
            users = kept,
            others,
            "mysql_native_password is on: others than these users log in by caching_sha2_password alone, until their passwords are set anew with `meridian user passwd NAME --mysql-native-password`"
        ),
        false if kept > 0 => info!(
            users = kept,
            "mysql_native_password is off: the hashes that are kept for it of these users' passwords let nobody in here; `meridian user passwd NAME` removes one"
        ),
        _ => {}
    }
}
