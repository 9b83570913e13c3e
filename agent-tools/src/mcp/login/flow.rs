//! The steps of a login.

use std::sync::{Arc, Mutex, PoisonError};

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
    store::{Found, Store},
};
use crate::mcp::handshake::{Failure, http};

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
    client: AuthClient<reqwest::Client>,
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

/// A login for which a person is waited.
pub(in crate::mcp) struct Waiting {
    listener: Listener,
    address: Url,
    state: String,
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

    /// The client that sends the tokens there are, and refreshes them.
    pub(in crate::mcp) async fn client(&self) -> Result<AuthClient<reqwest::Client>, Failure> {
        Ok(Box::pin(self.ready()).await?.client)
    }

    async fn ready(&self) -> Result<Ready, Failure> {
        let ready = self.ready.get_or_try_init(|| async {
            let guard = Guard::new(&self.address, &self.settings.hosts, self.with_proxies);
            let guarded = Guarded::new(guard).map_err(|error| error.to_string())?;
            let guarded = Arc::new(guarded);
            let client = Arc::clone(&guarded);
            let mut manager = AuthorizationManager::new_with_oauth_http_client(self.address.clone(), client)
                .await
                .map_err(|error| told(&error))?;
            manager.set_credential_store(self.store.clone());
            self.restore(&mut manager, &guarded).await?;
            let http = http(self.with_proxies).map_err(|error| error.to_string())?;
            Ok::<_, Failure>(Ready { guarded, client: AuthClient::new(http, manager) })
        });
        ready.await.cloned()
    }

    /// Makes the tokens that were kept fit for a refresh. Those of another authorization server are forgotten.
    async fn restore(&self, manager: &mut AuthorizationManager, guarded: &Guarded) -> Result<(), Failure> {
        let record = self.store.record().await.map_err(|error| error.to_string())?;
        let Some(record) = record.filter(|record| record.credentials.token_response.is_some()) else {
            return Ok(());
        };
        let header = record.found.metadata.map(|url| format!("Bearer resource_metadata=\"{url}\""));
        let found = manager.resolve_metadata_from_challenge(header.as_deref()).await;
        let metadata = found.map_err(|error| told(&error))?.metadata;
        check(guarded, &metadata)?;
        if record.credentials.issuer != metadata.issuer {
            use rmcp::transport::CredentialStore;
            return self.store.clear().await.map_err(|error| told(&error).into());
        }
        manager.set_metadata(metadata);
        let id = record.credentials.client_id;
        let fixed = self.settings.client.as_ref().filter(|(fixed, _)| *fixed == id);
        let secret = fixed.and_then(|(_, secret)| secret.clone()).or(record.found.secret);
        // The address is used by no refresh.
        let config = with_secret(OAuthClientConfig::new(id, "http://127.0.0.1/callback"), secret);
        manager.configure_client(config).map_err(|error| told(&error).into())
    }

    /// Begins a login. Returns what a person is waited for with, if one has to do something.
    pub(in crate::mcp) async fn begin(&self, wanted: &Wanted) -> Result<Option<Waiting>, Failure> {
        let in_vain = *self.in_vain.lock().unwrap_or_else(PoisonError::into_inner);
        if in_vain.is_some_and(|at| at.elapsed() < PAUSE) {
            return Err(Failure::NeedsAuth(None));
        }
        let Ready { guarded, client } = self.ready().await?;
        guarded.refill();
        let mut manager = client.auth_manager.lock().await;
        let more = self.more(wanted).await?;
        let found = manager.resolve_metadata_from_challenge(Some(&wanted.header)).await;
        let metadata = found.map_err(|error| told(&error))?.metadata;
        check(&guarded, &metadata)?;
        manager.set_metadata(metadata.clone());
        let scopes = match (more, self.settings.scopes.is_empty()) {
            (Some(scopes), _) => scopes,
            (None, true) => manager.select_initial_scopes(&[]).await,
            (None, false) => self.settings.scopes.clone(),
        };
        let mut next =
            Found { secret: None, metadata: self.asked(wanted).resource_metadata_url.map(String::from) };
        if matches!(self.settings.who, Who::Program) {
            self.store.expect(next);
            return self.as_program(&mut manager, scopes).await.map(|()| None);
        }
        let listener = Listener::open(self.settings.port).await.map_err(|error| {
            format!("there is no port of this machine for the end of its login: {}", error.kind())
        })?;
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        next.secret = self.introduce(&mut manager, &metadata, &listener.address(), &scopes).await?;
        self.store.expect(next);
        let address = manager.get_authorization_url(&scopes).await.map_err(|error| told(&error))?;
        let address = guarded.check(&address)?;
        let state = address.query_pairs().find(|(key, _)| key == "state");
        let state = state.map(|(_, state)| state.into_owned()).unwrap_or_default();
        Ok(Some(Waiting { listener, address, state }))
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

    /// Settles as which client this program logs in. Returns the secret that was made for it.
    async fn introduce(
        &self,
        manager: &mut AuthorizationManager,
        metadata: &AuthorizationMetadata,
        end: &str,
        scopes: &[&str],
    ) -> Result<Option<String>, Failure> {
        let reads_documents = metadata
            .additional_fields
            .get("client_id_metadata_document_supported")
            .and_then(serde_json::Value::as_bool)
            .unwrap_or_default();
        let named = self.settings.client.as_ref();
        if let Some((id, secret)) = named.filter(|(id, _)| reads_documents || !is_document(id)) {
            let config = with_secret(OAuthClientConfig::new(id, end), secret.clone());
            return manager.configure_client(config).map(|()| None).map_err(|error| told(&error).into());
        }
        let registered = manager.register_client("Entourage", end, scopes).await;
        registered.map(|config| config.client_secret).map_err(|error| told(&error).into())
    }

    async fn as_program(
        &self,
        manager: &mut AuthorizationManager,
        scopes: Vec<String>,
    ) -> Result<(), Failure> {
        let (client_id, secret) = self.settings.client.clone().unwrap_or_default();
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
    pub(in crate::mcp) async fn answer(&self, waiting: Waiting) -> Result<Answer, Failure> {
        let Waiting { listener, address, state } = waiting;
        if let Who::Person(show) = &self.settings.who {
            show(&self.server, address.as_str());
        }
        if let Ok(Ok(answer)) = timeout(self.settings.time, listener.answer(&state)).await {
            return Ok(answer);
        }
        *self.in_vain.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        Err(Failure::NeedsAuth(None))
    }

    /// Takes the tokens for an answer, and keeps them.
    pub(in crate::mcp) async fn finish(&self, answer: Answer) -> Result<(), Failure> {
        let Ready { guarded, client } = self.ready().await?;
        let manager = client.auth_manager.lock().await;
        guarded.set_code(Some(answer.code));
        let exchanged =
            manager.exchange_code_for_token_with_issuer(CODE, &answer.state, answer.issuer.as_deref());
        let exchanged = exchanged.await;
        guarded.set_code(None);
        exchanged.map(|_| ()).map_err(|error| told(&error).into())
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
