//! How users of this server log in with MySQL's clients: by `caching_sha2_password`, whose challenge is answered without the password
//! crossing the network; where nobody can listen, by the password or a token itself; and where it is switched on by `mysql_native_password`.

use std::str;
use std::sync::Arc;

use ::users::{ANONYMOUS, Limit, UserList};
use sql::ErrorCode;
use tracing::info;

use super::capabilities::Capabilities;
use super::connection::{Client, CommandResult, Disconnected};
use super::handshake::{
    AuthenticationStep, CACHING_SHA2, HandshakeResponse, NATIVE_PASSWORD, Scramble, has_password,
    put_auth_confirmed, put_auth_switch_request, put_password_request,
};
use crate::ClientError;
use crate::authenticator::Principal;
use crate::login_throttle::WrongResponse;
use crate::native_password::REMEDY;

/// Bytes of a response by `mysql_native_password`: one by `caching_sha2_password` has 32.
const NATIVE_RESPONSE: usize = 20;

/// What a client has answered to the server's challenge.
enum PluginResponse {
    /// The password, by `mysql_native_password`.
    Right(Arc<Principal>),
    /// This, by `caching_sha2_password`.
    Sha2(Vec<u8>),
}

/// The error for a client that knows `mysql_native_password` alone, or nothing of plugins, where that is not taken.
fn no_common_plugin() -> ClientError {
    let sentence = format!(
        "Client does not support authentication protocol requested by server: mysql_native_password is off here; {REMEDY}"
    );
    ClientError::new(ErrorCode::NO_COMMON_PLUGIN, sentence)
}

impl Client {
    /// Has a user prove who they are.
    pub(super) async fn log_in(
        &mut self,
        list: &UserList,
        handshake_response: &HandshakeResponse,
        scramble: &Scramble,
    ) -> Result<Result<Arc<Principal>, ClientError>, Disconnected> {
        let name = &handshake_response.user;
        let response = match self
            .sha2_response(list, handshake_response, scramble)
            .await?
        {
            Ok(PluginResponse::Right(principal)) => return Ok(Ok(principal)),
            Ok(PluginResponse::Sha2(response)) => response,
            Err(error) => return Ok(Err(error)),
        };
        let authenticator = Arc::clone(&self.shared.authenticator);
        let mut wrong = None;
        let found = match has_password(&response) {
            false if name == ANONYMOUS => authenticator.anonymous(list),
            false => None,
            true => {
                let answer = (scramble.bytes(), response.as_slice());
                match authenticator.answered(list, name, answer, self.peer) {
                    Ok(None) if self.is_private => {
                        wrong = Some(WrongResponse::new(&authenticator, name, self.peer));
                        None
                    }
                    Ok(found) => found,
                    // Where nobody listens there may be a token to come.
                    Err(_) if self.is_private => None,
                    Err(error) => return Ok(Err(error)),
                }
            }
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
            if let Some(wrong) = wrong.take() {
                wrong.goes_on();
            }
            let password = packet.strip_suffix(b"\0").unwrap_or(&packet);
            match str::from_utf8(password) {
                Ok(password) => {
                    let found = authenticator.log_in(list, name, password, self.peer);
                    match found.await {
                        Ok(Some(principal)) => return Ok(Ok(principal)),
                        Ok(None) => {}
                        Err(error) => return Ok(Err(error)),
                    }
                }
                Err(_) => authenticator.throttle().failed(self.peer, name),
            }
        }
        // In private the password itself was tried, which has counted.
        if has_password(&response) && !self.is_private {
            authenticator.throttle().failed(self.peer, name);
        }
        Ok(Err(self.denied(name, has_password(&response)).await))
    }

    /// The error for a login that has failed, after the time that whoever fails waits.
    async fn denied(&mut self, name: &str, has_password: bool) -> ClientError {
        let authenticator = &self.shared.authenticator;
        authenticator.failed_login("mysql", name, self.peer).await;
        let with = if has_password { "YES" } else { "NO" };
        let sentence = format!(
            "Access denied for user '{name}'@'{}' (using password: {with})",
            self.connection.host
        );
        ClientError::new(ErrorCode::LOGIN_DENIED, sentence)
    }

    /// The client's response by `caching_sha2_password`, which a client that has begun with another plugin is asked for; unless what it has
    /// begun with lets it in.
    async fn sha2_response(
        &mut self,
        list: &UserList,
        handshake_response: &HandshakeResponse,
        scramble: &Scramble,
    ) -> Result<Result<PluginResponse, ClientError>, Disconnected> {
        let (name, response) = (&handshake_response.user, &handshake_response.response);
        let plugin = handshake_response.plugin.as_str();
        let is_anonymous = name == ANONYMOUS && !has_password(response);
        if plugin == CACHING_SHA2 || is_anonymous {
            return Ok(Ok(PluginResponse::Sha2(response.clone())));
        }
        let authenticator = Arc::clone(&self.shared.authenticator);
        // Clients from before there were plugins know this one.
        let is_native = ["", NATIVE_PASSWORD].contains(&plugin) && has_password(response);
        let mut wrong = None;
        if is_native && authenticator.takes_native() {
            let answer = (scramble.bytes(), response.as_slice());
            match authenticator.answered_natively(list, name, answer, self.peer) {
                Ok(Some(principal)) => return Ok(Ok(PluginResponse::Right(principal))),
                Ok(None) => wrong = Some(WrongResponse::new(&authenticator, name, self.peer)),
                Err(error) => return Ok(Err(error)),
            }
        }
        if !(handshake_response.capabilities).has(Capabilities::PLUGIN_AUTH) {
            if !authenticator.takes_native() {
                return Ok(Err(no_common_plugin()));
            }
            if let Some(wrong) = wrong {
                authenticator.throttle().failed(self.peer, name);
                wrong.goes_on();
            }
            return Ok(Err(self.denied(name, has_password(response)).await));
        }
        self.outgoing
            .add(|bytes| put_auth_switch_request(bytes, CACHING_SHA2, scramble));
        let response = match self.read_packet().await {
            Ok(Ok(packet)) => packet.to_vec(),
            Ok(Err(error)) => return Ok(Err(error)),
            Err(Disconnected) => {
                if is_native && wrong.is_none() {
                    info!(
                        user = name.chars().take(64).collect::<String>(),
                        address = %self.peer,
                        "a client has left when it was asked for caching_sha2_password: it may know mysql_native_password alone, which is off (--mysql-native-password)"
                    );
                }
                return Err(Disconnected);
            }
        };
        if response.len() == NATIVE_RESPONSE && wrong.is_none() {
            return Ok(Err(no_common_plugin()));
        }
        if let Some(wrong) = wrong.filter(|_| has_password(&response)) {
            wrong.goes_on();
        }
        Ok(Ok(PluginResponse::Sha2(response)))
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
