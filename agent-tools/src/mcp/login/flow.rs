//! The steps of a login.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
};

use entourage_core::bound;
use reqwest::Url;
use rmcp::transport::{
    AuthorizationManager,
    auth::{
        AuthClient, AuthError, AuthorizationMetadata, ClientCredentialsConfig, OAuthClientConfig,
        WWWAuthenticateParams,
    },
};
use tokio::{
    sync::OnceCell,
    time::{Duration, Instant, timeout},
};

use super::{
    McpLogin, Who,
    http::{CODE, Guard, Guarded, Refused},
    listen::{Answer, Listener},
    store::{Found, Origin, Record, Store},
};
use crate::mcp::{
    ends::{Part, hold},
    handshake::{Failure, http},
    paced::Paced,
};

/// Most bytes of a server's word that it wants a login.
const CHALLENGE: usize = 8 << 10;
/// Time until a person who did not log in is asked again.
const PAUSE: Duration = Duration::from_secs(60);

/// The login at one server.
pub(in crate::mcp) struct Login {
    server: String,
    address: Url,
    with_proxies: bool,
    settings: McpLogin,
    store: Store,
    ready: OnceCell<Ready>,
    /// The last time that a person was asked in vain.
    in_vain: Mutex<Option<Instant>>,
}

#[derive(Clone)]
struct Ready {
    guarded: Arc<Guarded>,
    client: AuthClient<Paced<reqwest::Client>>,
}

/// The demand of a server before it answers: the header in which it says so.
#[derive(Debug, Clone)]
pub(in crate::mcp) struct Wanted {
    pub(in crate::mcp) header: String,
    /// True if it wants more rights than were granted.
    pub(in crate::mcp) is_more: bool,
}

impl Wanted {
    /// Reads the header of a 401, or that of a 403 with `is_refused`; a 403 may have nothing to do with rights.
    pub(in crate::mcp) fn read(header: &str, is_refused: bool) -> Option<Self> {
        let header = Some(header).filter(|header| header.len() <= CHALLENGE)?.to_owned();
        // Where it leads is read later.
        let nowhere = Url::parse("http://localhost").ok()?;
        let is_more = WWWAuthenticateParams::parse(&header, &nowhere).is_insufficient_scope();
        (is_more || !is_refused).then_some(Self { header, is_more: is_more && is_refused })
    }
}

/// A login for which a person is waited. The tokens there are stay in use until it ends.
pub(in crate::mcp) struct Waiting {
    listener: Listener,
    address: Url,
    state: String,
    manager: AuthorizationManager,
}

/// A login that a person has answered.
pub(in crate::mcp) struct Answered {
    answer: Answer,
    manager: AuthorizationManager,
}

impl From<Refused> for Failure {
    fn from(error: Refused) -> Self {
        Self::Other(error.to_string())
    }
}

impl Login {
    pub(in crate::mcp) fn new(server: &str, address: &Url, with_proxies: bool, settings: McpLogin) -> Self {
        // Which client an address of metadata leads to is found out later.
        let client = settings.client.as_ref().map(|(id, _)| id.clone()).filter(|id| !is_document(id));
        let store = Store::new(settings.file.clone(), server, address.as_str(), client);
        Self {
            server: server.to_owned(),
            address: address.clone(),
            with_proxies,
            settings,
            store,
            ready: OnceCell::new(),
            in_vain: Mutex::default(),
        }
    }

    /// The client that sends the tokens there are, and refreshes them, for the connection of this part. Requests to the
    /// server end with the connection. A refresh does not: its tokens would be lost.
    pub(in crate::mcp) async fn client(
        &self,
        part: Part,
    ) -> Result<AuthClient<Paced<reqwest::Client>>, Failure> {
        let mut client = Box::pin(self.ready()).await?.client;
        client.http_client.serve(part);
        Ok(client)
    }

    async fn ready(&self) -> Result<Ready, Failure> {
        let ready = self.ready.get_or_try_init(|| async {
            let guard = Guard::new(&self.address, &self.settings.hosts, self.with_proxies);
            let guarded = Arc::new(Guarded::new(guard).map_err(|error| error.to_string())?);
            let record = self.store.record().await.map_err(|error| error.to_string())?;
            let restored = self.restored(&guarded, record).await?;
            let manager = match restored {
                Some(manager) => manager,
                None => self.manager(&guarded).await?,
            };
            let http = http(self.with_proxies).map_err(|error| error.to_string())?;
            // Each connection gets a part of its own.
            let http = Paced::new(http, hold().1);
            Ok::<_, Failure>(Ready { guarded, client: AuthClient::new(http, manager) })
        });
        ready.await.cloned()
    }

    /// A manager without tokens.
    async fn manager(&self, guarded: &Arc<Guarded>) -> Result<AuthorizationManager, Failure> {
        let client = Arc::clone(guarded);
        let manager = AuthorizationManager::new_with_oauth_http_client(self.address.clone(), client).await;
        let mut manager = manager.map_err(|error| told(&error))?;
        manager.set_credential_store(self.store.clone());
        Ok(manager)
    }

    /// A manager for tokens that were kept, which can refresh them. Those of another authorization server than the one
    /// that the server names now are of no use.
    async fn restored(
        &self,
        guarded: &Arc<Guarded>,
        record: Option<Record>,
    ) -> Result<Option<AuthorizationManager>, Failure> {
        let Some(record) = record.filter(|record| record.credentials.token_response.is_some()) else {
            return Ok(None);
        };
        let mut manager = self.manager(guarded).await?;
        let header = record.found.metadata.as_ref().map(|url| format!("Bearer resource_metadata=\"{url}\""));
        let metadata = self.found(guarded, &manager, header.as_deref()).await?;
        if record.credentials.issuer != metadata.issuer {
            return Ok(None);
        }
        let origin = Origin {
            issuer: metadata.issuer.clone(),
            client: record.credentials.client_id,
            found: record.found,
        };
        manager.set_metadata(metadata);
        let fixed = self.settings.client.as_ref().filter(|(fixed, _)| *fixed == origin.client);
        let secret = fixed.and_then(|(_, secret)| secret.clone()).or_else(|| origin.found.secret.clone());
        // The address is used by no refresh.
        let config = OAuthClientConfig::new(origin.client.as_str(), "http://127.0.0.1/callback");
        manager.configure_client(with_secret(config, secret)).map_err(|error| told(&error))?;
        manager.set_credential_store(self.store.of(origin));
        Ok(Some(manager))
    }

    /// The metadata of the authorization server, if all that it names may be asked.
    async fn found(
        &self,
        guarded: &Guarded,
        manager: &AuthorizationManager,
        header: Option<&str>,
    ) -> Result<AuthorizationMetadata, Failure> {
        let found = manager.resolve_metadata_from_challenge(header).await;
        let metadata = found.map_err(|error| told(&error))?.metadata;
        check(guarded, &metadata)?;
        let bare = |issuer: &str| issuer.trim_end_matches('/').to_owned();
        match &self.settings.issuer {
            Some(named) if metadata.issuer.as_deref().map(bare) != Some(bare(named)) => {
                let text = "it names another authorization server than `McpLogin::with_issuer`";
                Err(text.to_owned().into())
            }
            _ => Ok(metadata),
        }
    }

    /// Lets a person be asked again at once.
    pub(in crate::mcp) fn forget_pause(&self) {
        *self.in_vain.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Begins a login. Returns what a person is waited for with, if one has to do something.
    pub(in crate::mcp) async fn begin(&self, wanted: &Wanted) -> Result<Option<Waiting>, Failure> {
        let Ready { guarded, client } = self.ready().await?;
        guarded.refill();
        if !wanted.is_more {
            // Another process may have logged in meanwhile.
            let record = self.store.unused().await.map_err(|error| error.to_string())?;
            if let Some(manager) = self.restored(&guarded, record).await? {
                *client.auth_manager.lock().await = manager;
                return Ok(None);
            }
        }
        let in_vain = *self.in_vain.lock().unwrap_or_else(PoisonError::into_inner);
        if in_vain.is_some_and(|at| at.elapsed() < PAUSE) {
            return Err(Failure::NeedsAuth(None));
        }
        let mut manager = self.manager(&guarded).await?;
        let more = self.more(wanted).await?;
        let metadata = self.found(&guarded, &manager, Some(&wanted.header)).await?;
        manager.set_metadata(metadata.clone());
        let scopes = match (more, self.settings.scopes.is_empty()) {
            (Some(scopes), _) => scopes,
            (None, true) => manager.select_initial_scopes(&[]).await,
            (None, false) => self.settings.scopes.clone(),
        };
        let found =
            Found { secret: None, metadata: self.asked(wanted).resource_metadata_url.map(String::from) };
        if matches!(self.settings.who, Who::Program) {
            self.as_program(&mut manager, metadata.issuer, found, scopes).await?;
            *client.auth_manager.lock().await = manager;
            return Ok(None);
        }
        self.asking(&guarded, manager, &metadata, found, &scopes).await.map(Some)
    }

    /// Prepares what a person is shown.
    async fn asking(
        &self,
        guarded: &Guarded,
        mut manager: AuthorizationManager,
        metadata: &AuthorizationMetadata,
        found: Found,
        scopes: &[String],
    ) -> Result<Waiting, Failure> {
        let listener = Listener::open(self.settings.port).await.map_err(|error| {
            format!("there is no port of this machine for the end of its login: {}", error.kind())
        })?;
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let (client, secret) = self.introduce(&mut manager, metadata, &listener.address(), &scopes).await?;
        let origin = Origin { issuer: metadata.issuer.clone(), client, found: Found { secret, ..found } };
        manager.set_credential_store(self.store.of(origin));
        let address = manager.get_authorization_url(&scopes).await.map_err(|error| told(&error))?;
        let address = guarded.check(&address)?;
        let state = address.query_pairs().find(|(key, _)| key == "state");
        let state = state.map(|(_, state)| state.into_owned()).unwrap_or_default();
        Ok(Waiting { listener, address, state, manager })
    }

    fn asked(&self, wanted: &Wanted) -> WWWAuthenticateParams {
        WWWAuthenticateParams::parse(&wanted.header, &self.address)
    }

    /// The scopes to ask for where the server wants more than were granted: those, and these.
    async fn more(&self, wanted: &Wanted) -> Result<Option<Vec<String>>, Failure> {
        if !wanted.is_more {
            return Ok(None);
        }
        let record = self.store.record().await.map_err(|error| error.to_string())?;
        let mut scopes = record.map(|record| record.credentials.granted_scopes).unwrap_or_default();
        let before = scopes.len();
        for scope in self.asked(wanted).scope.unwrap_or_default().split_whitespace() {
            if !scopes.iter().any(|known| known == scope) {
                scopes.push(scope.to_owned());
            }
        }
        match scopes.len() > before {
            true => Ok(Some(scopes)),
            false => Err("it wants more rights, and names none that were not granted".to_owned().into()),
        }
    }

    /// Settles as which client this program logs in. Returns its id, and the secret that was made for it.
    async fn introduce(
        &self,
        manager: &mut AuthorizationManager,
        metadata: &AuthorizationMetadata,
        end: &str,
        scopes: &[&str],
    ) -> Result<(String, Option<String>), Failure> {
        let reads_documents = metadata
            .additional_fields
            .get("client_id_metadata_document_supported")
            .and_then(serde_json::Value::as_bool)
            .unwrap_or_default();
        let named = self.settings.client.as_ref();
        if let Some((id, secret)) = named.filter(|(id, _)| reads_documents || !is_document(id)) {
            let config = with_secret(OAuthClientConfig::new(id, end), secret.clone());
            manager.configure_client(config).map_err(|error| told(&error))?;
            return Ok((id.clone(), None));
        }
        let registered = manager.register_client("Entourage", end, scopes).await;
        let config = registered.map_err(|error| told(&error))?;
        Ok((config.client_id, config.client_secret))
    }

    async fn as_program(
        &self,
        manager: &mut AuthorizationManager,
        issuer: Option<String>,
        found: Found,
        scopes: Vec<String>,
    ) -> Result<(), Failure> {
        let (client_id, secret) = self.settings.client.clone().unwrap_or_default();
        manager.set_credential_store(self.store.of(Origin { issuer, client: client_id.clone(), found }));
        let config = ClientCredentialsConfig::ClientSecret {
            client_id,
            client_secret: secret.unwrap_or_default(),
            scopes,
            resource: Some(self.address.to_string()),
        };
        let checked = manager.validate_client_credentials_metadata(&config);
        checked.and_then(|()| manager.configure_client_credentials(&config)).map_err(|error| told(&error))?;
        manager.exchange_client_credentials(&config).await.map_err(|error| told(&error))?;
        Ok(())
    }

    /// Shows a person the address, and waits for the answer.
    ///
    /// # Errors
    /// [`Failure::NeedsAuth`] if there is none, or a refusal.
    pub(in crate::mcp) async fn answer(&self, waiting: Waiting) -> Result<Answered, Failure> {
        let Waiting { listener, address, state, manager } = waiting;
        if let Who::Person(show) = &self.settings.who {
            // The program's own code. Others wait for the login.
            let shown = AssertUnwindSafe(|| show(&self.server, address.as_str()));
            catch_unwind(shown)
                .map_err(|_| Failure::Login("this program panicked while it logged in".to_owned()))?;
        }
        if let Ok(Ok(answer)) = timeout(self.settings.time, listener.answer(&state)).await {
            return Ok(Answered { answer, manager });
        }
        *self.in_vain.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        Err(Failure::NeedsAuth(None))
    }

    /// Takes the tokens for an answer, keeps them, and uses them from now on.
    pub(in crate::mcp) async fn finish(&self, answered: Answered) -> Result<(), Failure> {
        let Answered { answer, manager } = answered;
        let Ready { guarded, client } = self.ready().await?;
        let mut current = client.auth_manager.lock().await;
        guarded.set_code(Some(answer.code));
        let exchanged =
            manager.exchange_code_for_token_with_issuer(CODE, &answer.state, answer.issuer.as_deref());
        let exchanged = exchanged.await;
        guarded.set_code(None);
        exchanged.map_err(|error| told(&error))?;
        *current = manager;
        Ok(())
    }
}

/// True for the id of a client that is the address of its metadata.
fn is_document(id: &str) -> bool {
    id.starts_with("https://")
}

fn with_secret(config: OAuthClientConfig, secret: Option<String>) -> OAuthClientConfig {
    match secret {
        Some(secret) => config.with_client_secret(secret),
        None => config,
    }
}

/// Checks the addresses that an authorization server names.
fn check(guarded: &Guarded, metadata: &AuthorizationMetadata) -> Result<(), Refused> {
    let named = [Some(&metadata.authorization_endpoint), Some(&metadata.token_endpoint)];
    for address in named.into_iter().chain([metadata.registration_endpoint.as_ref()]).flatten() {
        guarded.check(address)?;
    }
    Ok(())
}

/// Returns the text for a failure: nothing that was sent, and little of what was answered.
fn told(error: &AuthError) -> String {
    let text = match error {
        AuthError::DiscoveryRequestFailed { source, .. } => match source.downcast_ref::<Refused>() {
            Some(refused) => return format!("where to log in cannot be found out: {refused}"),
            None => "where to log in cannot be found out",
        },
        AuthError::ProtectedResourceMetadataInvalid { .. } => {
            "it names metadata for its login that is not its own"
        }
        AuthError::AuthorizationServersUnavailable { .. } => {
            "none of the authorization servers that it names can be used"
        }
        AuthError::AuthorizationServerMismatch { .. }
        | AuthError::AuthorizationServerMissingIssuer { .. } => {
            "its authorization server is not who it says it is (issuer)"
        }
        AuthError::AuthorizationFailed(_) => "the answer to its login is from nobody who is known (issuer)",
        AuthError::PkceUnsupported => "its authorization server does not know PKCE with S256",
        AuthError::RegistrationFailed(_) => {
            "its authorization server does not register this program; name a client with `McpLogin::with_client`"
        }
        AuthError::ClientCredentialsError(_) => "its authorization server gives this program no token",
        AuthError::TokenExchangeFailed(_) => "its authorization server gave no token",
        AuthError::CredentialStoreError(text) => return bound::shortened(text, bound::TEXT).into_owned(),
        _ => "its login failed",
    };
    text.to_owned()
}
