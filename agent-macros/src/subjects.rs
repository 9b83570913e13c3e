//! Checks that what the arguments name agrees with the tool's access.
//!
//! Rules take a tool with marked arguments for one that names all that it touches. So each access needs a mark, and
//! each mark its access.

use proc_macro2::Ident;
use syn::{Type, spanned::Spanned};

use crate::{
    errors::Errors,
    params::{Param, Subject, inside},
};

/// Access, its word, what calls do with it, and the marks that name it. A command is all that its program does.
const ACCESSES: [(&str, &str, &str, &[Subject]); 4] = [
    ("READ", "read", "read something", &[Subject::Read, Subject::Write, Subject::Command]),
    ("WRITE", "write", "change something", &[Subject::Write, Subject::Command]),
    ("NETWORK", "network", "talk to hosts", &[Subject::Host, Subject::Command]),
    ("EXECUTE", "execute", "run programs", &[Subject::Command]),
];

/// Checks the marks of `params` against `access`, constants of `Access`; without any of them nothing was read.
pub(crate) fn check(params: &[Param], access: &[Ident], errors: &mut Errors) {
    let marks: Vec<_> = params.iter().filter_map(|param| Some((&param.ty, param.names.as_ref()?))).collect();
    let Some(declared) = access.first().filter(|_| !marks.is_empty()) else { return };
    let has = |name: &str| access.iter().any(|constant| constant == name);
    for (_, (subject, word)) in &marks {
        let (constant, needed, says) = need(*subject);
        if !has(constant) {
            errors.on(
                word,
                format!("`{word}` says that {says}, and `access` does not hold `{needed}`; add it: `access = \"…+{needed}\"`"),
            );
        }
    }
    // A mark that could not be read may be the missing one.
    let read = errors.is_empty();
    for (constant, word, does, named_by) in ACCESSES.into_iter().filter(|_| read) {
        if has(constant) && !marks.iter().any(|(_, (subject, _))| named_by.contains(subject)) {
            let mark = match constant {
                "NETWORK" => "host",
                "EXECUTE" => "command",
                _ => word,
            };
            let message = format!(
                "calls may {does}, and no argument says what; rules would take them for calls that do not: mark the \
                 argument with `#[arg({mark})]`, take `{word}` out of `access`, or implement `Tool` and its `footprint` \
                 by hand"
            );
            errors.push(syn::Error::new(declared.span(), message));
        }
    }
    let commands = || marks.iter().filter(|(_, (subject, _))| *subject == Subject::Command);
    for (_, (_, word)) in commands().skip(1) {
        errors.on(word, "a call has one command, and another argument is it; join the two");
    }
    for (ty, _) in commands().filter(|(ty, _)| several(ty)) {
        errors.push(syn::Error::new(
            ty.span(),
            "a call has one command; take it as one text, such as `String`",
        ));
    }
}

/// The access that a mark needs: its constant and its word, and what the mark says.
fn need(subject: Subject) -> (&'static str, &'static str, &'static str) {
    match subject {
        Subject::Read => ("READ", "read", "calls read this path"),
        Subject::Write => ("WRITE", "write", "calls change this path"),
        Subject::Host => ("NETWORK", "network", "calls talk to this host"),
        Subject::Command => ("EXECUTE", "execute", "calls run this command"),
    }
}

fn several(ty: &Type) -> bool {
    inside(ty, &["Vec"]).is_some() || inside(ty, &["Option"]).is_some_and(several)
}
