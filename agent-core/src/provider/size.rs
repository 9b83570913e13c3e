//! Size of a model, in five classes.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{Error, ErrorKind};

/// Size of a model. Ordered: `Xs < S < M < L < Xl`.
///
/// ```
/// use entourage_core::provider::Size;
///
/// assert_eq!(Size::from_model_name("worker-1.5b-instruct"), Some(Size::Xs));
/// assert_eq!(Size::from_model_name("mixed-8x7b"), Some(Size::Xl));
/// assert_eq!(Size::from_model_name("large-2026"), None);
/// assert!(Size::S < Size::Xl);
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

    /// Size of a model with that many billion parameters. A count between two sizes gets the larger one.
    #[must_use]
    pub fn from_parameters(billions: f64) -> Self {
        match billions {
            b if b < 2.0 => Self::Xs,
            b if b <= 4.0 => Self::S,
            b if b <= 13.0 => Self::M,
            b if b <= 34.0 => Self::L,
            b if b > 34.0 => Self::Xl,
            _ => Self::M,
        }
    }

    /// Size stated in a model's name, as in `7b`, `1.5b`, `270m` or `8x7b`. `None` if the name states none, and for
    /// embedding models, which do not chat.
    #[must_use]
    pub fn from_model_name(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        if name.contains("embed") {
            return None;
        }
        let words = name.split(|c: char| !(c.is_ascii_alphanumeric() || c == '.'));
        words.filter_map(parameters).reduce(f64::max).map(Self::from_parameters)
    }
}

/// Billions of parameters, if the whole word states them. `a3b` (active parameters) and `v2` do not.
fn parameters(word: &str) -> Option<f64> {
    let (number, unit) = match word.strip_suffix('b') {
        Some(number) => (number, 1.0),
        None => (word.strip_suffix('m')?, 0.001),
    };
    let (experts, each) = number.split_once('x').unwrap_or(("1", number));
    let read = |text: &str| {
        let digits = text.starts_with(|c: char| c.is_ascii_digit());
        text.parse::<f64>().ok().filter(|n| digits && n.is_finite() && *n > 0.0)
    };
    Some(read(experts)? * read(each)? * unit)
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
    fn lo02_sizes_are_read_from_whole_numbers_in_names() {
        for (name, size) in [
            ("a-1b", Some(Size::Xs)),
            ("a-1.5b", Some(Size::Xs)),
            ("a:270m", Some(Size::Xs)),
            ("a-2b", Some(Size::S)),
            ("a-4b", Some(Size::S)),
            ("a-5b", Some(Size::M)),
            ("a-7b", Some(Size::M)),
            ("a-11b", Some(Size::M)),
            ("a-13b", Some(Size::M)),
            ("a-14b", Some(Size::L)),
            ("A-22B-Chat", Some(Size::L)),
            ("a-32b", Some(Size::L)),
            ("a-40b", Some(Size::Xl)),
            ("a-70b", Some(Size::Xl)),
            ("a-8x7b", Some(Size::Xl)),
            ("a-235b-a22b", Some(Size::Xl)),
            ("maker/a-30b-a3b-v2", Some(Size::L)),
            ("embed-7b", None),
            ("a-large", None),
            ("b", None),
            ("xb", None),
            ("a-0b", None),
            ("", None),
        ] {
            assert_eq!(Size::from_model_name(name), size, "{name}");
        }
        assert!(Size::ALL.is_sorted());
        assert_eq!(Size::from_parameters(f64::NAN), Size::M);
    }

    #[test]
    fn sizes_are_read_and_shown_alike() {
        for size in Size::ALL {
            assert_eq!(size.to_string().to_lowercase().parse::<Size>().unwrap(), size);
        }
        assert_eq!("XXL".parse::<Size>().unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
