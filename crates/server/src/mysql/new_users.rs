//! CREATE USER.

use ::users::{NativePassword, UserList, Users, UsersError};
use sql::mysql::NewPassword;

use super::user_statements::namesake;
use crate::grants::failed;
use crate::{ClientError, native_password};

/// Adds users; takes those back that it has added if one cannot be.
pub(super) async fn add(
    users: &Users,
    takes_native: bool,
    list: &UserList,
    new: &[(String, Option<NewPassword>)],
    if_not_exists: bool,
) -> Result<(), ClientError> {
    // Before anything is changed.
    let kept = new.iter().map(|(_, password)| match password {
        Some(password) => native_password::kept(password.plugin, takes_native),
        None => Ok(NativePassword::NotKept),
    });
    let kept: Vec<NativePassword> = kept.collect::<Result<_, _>>()?;
    let mut added: Vec<&str> = Vec::new();
    for ((name, password), native) in new.iter().zip(kept) {
        let password = password.as_ref().map(|password| password.text.as_str());
        let done = match namesake(list, name) {
            Some(_) if if_not_exists => continue,
            Some(other) => Err(UsersError::Exists {
                name: other.name.clone(),
            }),
            None => users.add_with(name, password, native, false).await,
        };
        if let Err(error) = done {
            for name in added {
                users.remove(name).await.map_err(failed)?;
            }
            return Err(failed(error));
        }
        added.push(name);
    }
    Ok(())
}
