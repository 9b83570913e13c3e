//! Types of tasks, and the size of model that each needs. Pure.

use std::{fmt, str::FromStr};

use entourage_core::{Error, ErrorKind, provider::Size};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The type of a task, from which the size of its model follows.
///
/// | type | at least | preferred |
/// |---|---|---|
/// | `summarize` | XS | S |
/// | `edit`, `analyze`, `chat` | S | M |
/// | `design` | S | M |
/// | `code`, `review` | M | L |
///
/// ```
/// use entourage_core::provider::Size;
/// use entourage_runners::team::TaskType;
///
/// let sizes = [Size::Xs, Size::M, Size::Xl];
/// assert_eq!(TaskType::Code.size(sizes), Some(Size::Xl), "the nearest larger one");
/// assert_eq!(TaskType::Code.size([Size::Xs, Size::M]), Some(Size::M), "at least the smallest that will do");
/// assert_eq!(TaskType::Code.size([Size::Xs]), None, "the main model must do it");
/// assert!("poem".parse::<TaskType>().is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline, description = "The type of a task.")]
#[non_exhaustive]
pub enum TaskType {
    /// A text is made shorter.
    Summarize,
    /// A text or file is changed as the task says.
    Edit,
    /// Something is found out.
    Analyze,
    /// A question is answered.
    Chat,
    /// Something is planned or drawn up.
    Design,
    /// Code is written.
    Code,
    /// Work is checked.
    Review,
}

impl TaskType {
    /// All types.
    pub const ALL: [Self; 7] =
        [Self::Summarize, Self::Edit, Self::Analyze, Self::Chat, Self::Design, Self::Code, Self::Review];

    /// Returns the name, as in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Summarize => "summarize",
            Self::Edit => "edit",
            Self::Analyze => "analyze",
            Self::Chat => "chat",
            Self::Design => "design",
            Self::Code => "code",
            Self::Review => "review",
        }
    }

    /// Returns the smallest size that will do, and the preferred one.
    #[must_use]
    pub fn sizes(self) -> (Size, Size) {
        match self {
            Self::Summarize => (Size::Xs, Size::S),
            Self::Edit | Self::Analyze | Self::Chat | Self::Design => (Size::S, Size::M),
            Self::Code | Self::Review => (Size::M, Size::L),
        }
    }

    /// Chooses among the sizes that there are: the preferred one, else the nearest larger one, else the nearest smaller
    /// one that will do; `None` when only the main model is left.
    #[must_use]
    pub fn size(self, available: impl IntoIterator<Item = Size>) -> Option<Size> {
        let (least, preferred) = self.sizes();
        let (larger, smaller): (Vec<_>, Vec<_>) =
            available.into_iter().filter(|size| *size >= least).partition(|size| *size >= preferred);
        larger.into_iter().min().or_else(|| smaller.into_iter().max())
    }
}

impl fmt::Display for TaskType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for TaskType {
    type Err = Error;

    /// # Errors
    /// [`ErrorKind::InvalidInput`] for any other name, with those that there are.
    fn from_str(name: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|it| it.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::new(ErrorKind::InvalidInput, format!("there is no such type of task; use one of {names}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use entourage_core::provider::Size::{self, L, M, S, Xl, Xs};

    use super::TaskType::{self, Analyze, Chat, Code, Design, Edit, Review, Summarize};

    #[test]
    fn lo03_the_size_for_a_task_among_those_that_there_are() {
        let table: &[(&[TaskType], &[Size], Option<Size>)] = &[
            (&[Summarize], &[Xs, S, M, L, Xl], Some(S)),
            (&[Summarize], &[Xs, M, Xl], Some(M)),
            (&[Summarize], &[Xs], Some(Xs)),
            (&[Edit, Analyze, Chat, Design], &[Xs, S, M, L, Xl], Some(M)),
            (&[Edit, Analyze, Chat, Design], &[Xl, L, S], Some(L)),
            (&[Edit, Analyze, Chat, Design], &[Xs, S], Some(S)),
            (&[Edit, Analyze, Chat, Design], &[Xs], None),
            (&[Code, Review], &[Xs, S, M, L, Xl], Some(L)),
            (&[Code, Review], &[S, M, Xl], Some(Xl)),
            (&[Code, Review], &[S, M], Some(M)),
            (&[Code, Review], &[Xs, S], None),
            (&[Code], &[], None),
        ];
        for (types, available, size) in table {
            for task in *types {
                assert_eq!(task.size(available.iter().copied()), *size, "{task} {available:?}");
            }
        }
        let listed = table.iter().flat_map(|(types, ..)| types.iter());
        assert!(TaskType::ALL.iter().all(|task| listed.clone().any(|it| it == task)));
    }

    #[test]
    fn lo03_an_unknown_type_is_an_error_that_lists_the_types() {
        for task in TaskType::ALL {
            assert_eq!(task.name().parse::<TaskType>().unwrap(), task);
            assert_eq!(serde_json::to_value(task).unwrap(), task.name());
        }
        let error = "poem".parse::<TaskType>().unwrap_err();
        assert!(error.message().contains("summarize, edit, analyze"), "{error}");
    }
}
