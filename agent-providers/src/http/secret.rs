//! Keeps keys out of what people read: services like to quote the key that they refuse.

use std::{fmt, sync::Arc};

use secrecy::{ExposeSecret, SecretString};

/// Shorter secrets are placeholders such as `none`; removing them would only garble messages.
const SHORTEST: usize = 6;

/// Removes known secrets from text. Cloning shares them.
#[derive(Clone, Default)]
pub(crate) struct Redactor(Arc<[SecretString]>);

impl Redactor {
    pub(crate) fn new(secrets: impl IntoIterator<Item = SecretString>) -> Self {
        Self(secrets.into_iter().filter(|secret| secret.expose_secret().len() >= SHORTEST).collect())
    }

    /// `text` with each secret replaced by `[key]`.
    pub(crate) fn clean(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| match text.contains(secret.expose_secret()) {
            true => text.replace(secret.expose_secret(), "[key]"),
            false => text,
        })
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redactor({} secrets)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_removed_and_never_shown() {
        let redactor = Redactor::new(["sk-secret-1".to_owned().into(), "none".to_owned().into()]);
        assert_eq!(redactor.clean("bad key sk-secret-1, none left"), "bad key [key], none left");
        assert_eq!(format!("{redactor:?}"), "Redactor(1 secrets)");
    }
}
