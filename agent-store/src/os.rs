//! Errors of the operating system, in words that name the next step.

use std::{borrow::Cow, io};

use entourage_core::RetryStatus;

/// Codes of "too many open files", in this process and in the whole system.
#[cfg(unix)]
const TOO_MANY_FILES: [i32; 2] = [24, 23];

/// Returns a text for an error of the system, which names it, and the retry that can help.
pub(crate) fn explain(error: &io::Error) -> (Cow<'static, str>, RetryStatus) {
    if is_too_many_files(error) {
        let text = format!(
            "no file can be opened because too many are open ({error}); try again, and raise the limit (`ulimit -n`) if it \
             stays so"
        );
        return (text.into(), RetryStatus::Temporary);
    }
    let text = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "the disk is full; free some space and try again".into()
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "this process may not read or write the file; check its permissions and those of its directory".into()
        }
        io::ErrorKind::FileTooLarge => format!(
            "the file would be larger than the system lets it be ({error}); raise the limit (`ulimit -f`) or use another \
             disk"
        )
        .into(),
        _ => format!("the file cannot be read or written: {error}").into(),
    };
    (text, RetryStatus::Permanent)
}

/// Returns true if this process, or the system, has as many files open as it may.
pub(crate) fn is_too_many_files(error: &io::Error) -> bool {
    #[cfg(unix)]
    return error.raw_os_error().is_some_and(|code| TOO_MANY_FILES.contains(&code));
    #[cfg(not(unix))]
    return error.raw_os_error() == Some(4);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_system_are_named_and_a_shortage_of_files_is_worth_a_retry() {
        for (code, retry) in [
            (24, RetryStatus::Temporary),
            (23, RetryStatus::Temporary),
            (27, RetryStatus::Permanent),
            (5, RetryStatus::Permanent),
        ] {
            let error = io::Error::from_raw_os_error(code);
            let (text, told) = explain(&error);
            assert_eq!(told, retry, "{text}");
            assert!(text.contains(&format!("os error {code}")), "{text}");
        }
    }
}
