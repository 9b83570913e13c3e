//! Logins that are kept: in memory, or in a file that several processes share.

use std::{
    collections::BTreeMap,
    fs::TryLockError,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use entourage_core::{Digest, Error, ErrorKind, Result};
use rmcp::transport::auth::{AuthError, CredentialRefreshGuard, CredentialStore, StoredCredentials};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use crate::private_file::PrivateFile;

/// Longest wait for another process that asks for tokens.
const PATIENCE: Duration = Duration::from_secs(45);

/// The login of one server at one address. Clones share it.
#[derive(Clone)]
pub(super) struct Store {
    kept: Arc<Kept>,
    /// The only tokens that this one gives and takes; none without it.
    of: Option<Arc<Origin>>,
}

struct Kept {
    file: Option<PrivateFile>,
    server: String,
    /// The whole address: a token goes nowhere else.
    address: String,
    /// The client that the user named; tokens of another are of no use.
    client: Option<String>,
    memory: Mutex<Option<Record>>,
    /// Digest of the tokens that were used here last.
    used: Mutex<Option<Digest>>,
}

/// The maker of tokens. Those of another one are given to nobody who would send them to this one.
#[derive(Clone)]
pub(super) struct Origin {
    pub(super) issuer: Option<String>,
    pub(super) client: String,
    pub(super) found: Found,
}

impl Record {
    /// Digest of its tokens, if it has any.
    fn tokens(&self) -> Option<Digest> {
        let tokens = serde_json::to_vec(self.credentials.token_response.as_ref()?).ok()?;
        Some(Digest::of([tokens.as_slice()]))
    }
}

/// A login.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) credentials: StoredCredentials,
    #[serde(flatten)]
    pub(super) found: Found,
}

/// Facts that a login found out beside its tokens.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(super) struct Found {
    /// The secret that a registration brought.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) secret: Option<String>,
    /// The address of the server's metadata, if the server named one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) metadata: Option<String>,
}

/// The file: logins by server and address.
type Logins = BTreeMap<String, BTreeMap<String, Record>>;

impl Store {
    pub(super) fn new(file: Option<PathBuf>, server: &str, address: &str, client: Option<String>) -> Self {
        let kept = Kept {
            file: file.map(|path| PrivateFile { path, what: "logins of MCP servers" }),
            server: server.to_owned(),
            address: address.to_owned(),
            client,
            memory: Mutex::default(),
            used: Mutex::default(),
        };
        Self { kept: Arc::new(kept), of: None }
    }

    /// The same, for the tokens of one maker.
    pub(super) fn of(&self, origin: Origin) -> Self {
        Self { kept: Arc::clone(&self.kept), of: Some(Arc::new(origin)) }
    }

    /// The login that another process made, if it was not used here.
    ///
    /// # Errors
    /// Those of reading the file.
    pub(super) async fn unused(&self) -> Result<Option<Record>> {
        let record = self.record().await?;
        let used = self.kept.used.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = |record: &Record| record.tokens().is_some_and(|tokens| *used != Some(tokens));
        Ok(record.filter(is_new))
    }

    fn note_used(&self, record: &Record) {
        *self.kept.used.lock().unwrap_or_else(PoisonError::into_inner) = record.tokens();
    }

    /// The login as it is by now.
    ///
    /// # Errors
    /// Those of reading the file.
    pub(super) async fn record(&self) -> Result<Option<Record>> {
        let kept = Arc::clone(&self.kept);
        let record = blocking(move || match &kept.file {
            Some(file) => {
                let mut all = file.read(|text| parse(file, text))?;
                Ok(all.get_mut(&kept.server).and_then(|of| of.remove(&kept.address)))
            }
            None => Ok(kept.memory.lock().unwrap_or_else(PoisonError::into_inner).clone()),
        });
        let is_own = |record: &Record| {
            self.kept.client.as_ref().is_none_or(|client| *client == record.credentials.client_id)
        };
        Ok(record.await?.filter(is_own))
    }

    /// Replaces the login.
    async fn replace(&self, record: Option<Record>) -> Result<()> {
        let kept = Arc::clone(&self.kept);
        blocking(move || {
            let Some(file) = &kept.file else {
                *kept.memory.lock().unwrap_or_else(PoisonError::into_inner) = record;
                return Ok(());
            };
            file.change(
                || true,
                |text| {
                    let mut all = parse(file, text)?;
                    let of = all.entry(kept.server.clone()).or_default();
                    match record {
                        Some(record) => drop(of.insert(kept.address.clone(), record)),
                        None => drop(of.remove(&kept.address)),
                    }
                    all.retain(|_, of| !of.is_empty());
                    let text = serde_json::to_string_pretty(&all);
                    text.map(Some).map_err(|error| file.invalid(&error))
                },
            )
        })
        .await
    }

    /// Waits until no other process asks for tokens.
    async fn turn(&self) -> Result<Option<CredentialRefreshGuard>> {
        let Some(file) = self.kept.file.clone() else { return Ok(None) };
        let lock = blocking(move || file.open_lock(".refresh")).await?;
        let since = Instant::now();
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(Some(CredentialRefreshGuard::new(lock))),
                Err(TryLockError::Error(error)) => {
                    let text = "the file of logins of MCP servers cannot be locked";
                    return Err(Error::new(ErrorKind::Io, text).caused_by(error));
                }
                Err(TryLockError::WouldBlock) if since.elapsed() > PATIENCE => {
                    let text = "another process holds the logins of MCP servers; try again when it is done";
                    return Err(Error::new(ErrorKind::Busy, text));
                }
                Err(TryLockError::WouldBlock) => sleep(Duration::from_millis(20)).await,
            }
        }
    }
}

/// The logins of a file.
fn parse(file: &PrivateFile, text: Option<String>) -> Result<Logins> {
    // An error of the parser would show what it read.
    let wrong = |_| file.invalid(&"the file has another form; remove it, and log in again");
    text.map_or_else(|| Ok(Logins::new()), |text| serde_json::from_str(&text).map_err(wrong))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| {
        Err(Error::new(ErrorKind::Internal, "the logins of MCP servers were not read").caused_by(error))
    })
}

fn failed(error: &Error) -> AuthError {
    AuthError::CredentialStoreError(error.to_string())
}

#[async_trait]
impl CredentialStore for Store {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        let Some(of) = &self.of else { return Ok(None) };
        let record = self.record().await.map_err(|error| failed(&error))?;
        let is_its = |record: &Record| {
            (&record.credentials.issuer, &record.credentials.client_id) == (&of.issuer, &of.client)
        };
        let record = record.filter(is_its);
        if let Some(record) = &record {
            self.note_used(record);
        }
        Ok(record.map(|record| record.credentials))
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        let Some(of) = &self.of else { return Ok(()) };
        let record = Record { credentials, found: of.found.clone() };
        self.note_used(&record);
        self.replace(Some(record)).await.map_err(|error| failed(&error))
    }

    async fn clear(&self) -> Result<(), AuthError> {
        self.replace(None).await.map_err(|error| failed(&error))
    }

    async fn acquire_refresh_guard(&self) -> Result<Option<CredentialRefreshGuard>, AuthError> {
        self.turn().await.map_err(|error| failed(&error))
    }
}
