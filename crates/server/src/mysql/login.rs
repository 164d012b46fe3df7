//! How users of this server log in with MySQL's clients: by `caching_sha2_password`, whose challenge is answered without the password
//! crossing the network; and, where nobody can listen, by the password or a token itself.

use std::str;
use std::sync::Arc;

use ::users::{ANONYMOUS, Limit, UserList};
use sql::ErrorCode;

use super::capabilities::Capabilities;
use super::connection::{Client, CommandResult, Disconnected};
use super::handshake::{
    AuthenticationStep, CACHING_SHA2, HandshakeResponse, NATIVE_PASSWORD, Scramble, has_password,
    put_auth_confirmed, put_auth_switch_request, put_password_request,
};
use crate::ClientError;
use crate::authenticator::Principal;

impl Client {
    /// Has a user prove who they are.
    pub(super) async fn log_in(
        &mut self,
        list: &UserList,
        handshake_response: &HandshakeResponse,
        scramble: &Scramble,
    ) -> Result<Result<Arc<Principal>, ClientError>, Disconnected> {
        let name = &handshake_response.user;
        let mut response = handshake_response.response.clone();
        if handshake_response.plugin != CACHING_SHA2 {
            if !handshake_response
                .capabilities
                .has(Capabilities::PLUGIN_AUTH)
            {
                let sentence = "the client knows no authentication plugins: use a newer one, which has caching_sha2_password";
                return Ok(Err(ClientError::new(ErrorCode::HANDSHAKE, sentence)));
            }
            self.outgoing
                .add(|bytes| put_auth_switch_request(bytes, CACHING_SHA2, scramble));
            response = match self.read_packet().await? {
                Ok(packet) => packet.to_vec(),
                Err(error) => return Ok(Err(error)),
            };
        }
        let authenticator = Arc::clone(&self.shared.authenticator);
        let found = match has_password(&response) {
            false if name == ANONYMOUS => authenticator.anonymous(list),
            false => None,
            true => authenticator.answered(list, name, scramble.bytes(), &response),
        };
        if let Some(principal) = found {
            if has_password(&response) {
                self.outgoing.add(put_auth_confirmed);
            }
            return Ok(Ok(principal));
        }
        if self.is_private && has_password(&response) {
            self.outgoing.add(put_password_request);
            let packet = match self.read_packet().await? {
                Ok(packet) => packet,
                Err(error) => return Ok(Err(error)),
            };
            let password = packet.strip_suffix(b"\0").unwrap_or(&packet);
            if let Ok(password) = str::from_utf8(password) {
                let found = authenticator.log_in(list, name, password, self.peer);
                match found.await {
                    Ok(Some(principal)) => return Ok(Ok(principal)),
                    Ok(None) => {}
                    Err(error) => return Ok(Err(error)),
                }
            }
        }
        authenticator.failed_login("mysql", name, self.peer).await;
        let with = if has_password(&response) { "YES" } else { "NO" };
        let sentence = format!(
            "Access denied for user '{name}'@'{}' (using password: {with})",
            self.connection.host
        );
        Ok(Err(ClientError::new(ErrorCode::LOGIN_DENIED, sentence)))
    }

    /// Completes the exchange that the client's authentication plugin expects, where there are no users, and so no password is checked.
    pub(super) async fn authenticate(
        &mut self,
        step: AuthenticationStep,
        scramble: &Scramble,
    ) -> CommandResult {
        let way = match step {
            AuthenticationStep::Finished => return Ok(Ok(())),
            AuthenticationStep::Confirm => {
                self.outgoing.add(put_auth_confirmed);
                return Ok(Ok(()));
            }
            AuthenticationStep::SwitchPlugin(way) => way,
        };
        self.outgoing
            .add(|bytes| put_auth_switch_request(bytes, way, scramble));
        let response = match self.read_packet().await? {
            Ok(response) => response,
            Err(error) => return Ok(Err(error)),
        };
        if way != NATIVE_PASSWORD && has_password(&response) {
            self.outgoing.add(put_auth_confirmed);
        }
        Ok(Ok(()))
    }

    /// Shows the client from now on what a principal sees.
    pub(super) fn set_principal(&mut self, principal: Arc<Principal>) {
        self.shared = Arc::new(self.shared.seen_by(&principal));
        let connection = Arc::make_mut(&mut self.connection);
        let server = &connection.server_info;
        let server = Arc::clone(self.server_info.get_or_insert_with(|| Arc::clone(server)));
        connection.server_info = self.shared.server_info_for_user(server);
        connection.most_rows = self.shared.usage.limit(Limit::Rows);
        connection.most_bytes = self.shared.usage.limit(Limit::Bytes);
        self.principal = Some(principal);
    }

    /// Looks whether the users have changed since the last command: a grant that was taken back does not count any more, and a user who
    /// was removed is told so.
    pub(super) async fn renew_rights(&mut self) -> Result<(), ClientError> {
        let authenticator = &self.shared.authenticator;
        if (self.principal.as_ref()).is_some_and(|principal| authenticator.is_current(principal)) {
            return Ok(());
        }
        let principal = authenticator.of(&self.connection.user).await?;
        let had_none = self.principal.as_ref().is_some_and(|it| it.user.is_none());
        if had_none && principal.user.is_some() {
            // A name that nobody has proved to have.
            let sentence =
                "this server has users since this connection was made: connect again and log in";
            return Err(ClientError::new(ErrorCode::LOGIN_DENIED, sentence));
        }
        let rights = Arc::clone(principal.archive.catalog().rights());
        self.set_principal(principal);
        let connection = Arc::make_mut(&mut self.connection);
        if (connection.database.as_ref()).is_some_and(|name| !rights.may_see_database(name)) {
            connection.database = None;
            self.guard.set_identity(&connection.user, None);
        }
        Ok(())
    }
}
