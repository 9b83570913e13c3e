//! Size of a model, in five classes.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind};

/// Size of a model. Ordered: `Xs < S < M < L < Xl`.
///
/// ```
/// use entourage_core::provider::Size;
///
/// assert!(Size::S < Size::Xl);
/// assert_eq!("xs".parse::<Size>().unwrap(), Size::Xs);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Size {
    /// Below 2 billion parameters.
    Xs,
    /// Up to 4 billion.
    S,
    /// Up to 13 billion; also the default where nothing is known.
    M,
    /// Up to 34 billion.
    L,
    /// Above 34 billion.
    Xl,
}

impl Size {
    /// All sizes, smallest first.
    pub const ALL: [Self; 5] = [Self::Xs, Self::S, Self::M, Self::L, Self::Xl];
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Xs => "XS",
            Self::S => "S",
            Self::M => "M",
            Self::L => "L",
            Self::Xl => "XL",
        })
    }
}

impl FromStr for Size {
    type Err = Error;

    /// Reads `XS`, `S`, `M`, `L` or `XL`, in either case.
    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|size| size.to_string().eq_ignore_ascii_case(text)).ok_or_else(|| {
            Error::new(ErrorKind::InvalidInput, format!("{text:?} is not a size; use XS, S, M, L or XL"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_sizes_are_in_order() {
        assert!(Size::ALL.is_sorted());
    }

    #[test]
    fn sizes_are_read_and_shown_alike() {
        for size in Size::ALL {
            assert_eq!(size.to_string().to_lowercase().parse::<Size>().unwrap(), size);
        }
        assert_eq!("XXL".parse::<Size>().unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
