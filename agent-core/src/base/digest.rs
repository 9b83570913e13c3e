//! A digest that binds an approval or a journaled effect to exact content.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};

/// The first 128 bits of a SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 16]);

impl Digest {
    /// Digest of `pieces`, each with its length, so that lists that only split differently have different digests.
    #[must_use]
    pub fn of<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hasher = Sha256::new();
        for piece in pieces {
            hasher.update((piece.len() as u64).to_le_bytes());
            hasher.update(piece);
        }
        let mut short = [0; 16];
        for (to, from) in short.iter_mut().zip(hasher.finalize()) {
            *to = from;
        }
        Self(short)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        match u128::from_str_radix(&text, 16) {
            Ok(number) if text.len() == 32 => Ok(Self(number.to_be_bytes())),
            _ => Err(de::Error::custom("a digest has 32 hexadecimal digits")),
        }
    }
}
