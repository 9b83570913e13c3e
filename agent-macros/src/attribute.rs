//! The arguments of the attribute: `#[tool(access = "read", …)]`. Knows nothing of the function below it.

use proc_macro2::{Ident, Span, TokenStream};
use syn::{
    Error, Expr, ExprLit, Lit, LitStr, Meta, Path, Result, Token, parse::Parser, parse_quote,
    punctuated::Punctuated,
};

use crate::errors::Errors;

const KEYS: &str = "`access`, `name`, `description`, `repeat`, `timeout` and `crate`";

/// The words of `Access::parse` and the constants that they name.
const ACCESS: [(&str, &str); 7] = [
    ("read", "READ"),
    ("write", "WRITE"),
    ("execute", "EXECUTE"),
    ("network", "NETWORK"),
    ("delegate", "DELEGATE"),
    ("ask", "ASK"),
    ("none", "NONE"),
];

const ACCESS_WORDS: &str = "read, write, execute, network, delegate, ask, joined by `+`, or none";

const REPEAT: [(&str, &str); 4] =
    [("safe", "Safe"), ("idempotent", "Idempotent"), ("resume", "Resume"), ("once", "Once")];

/// Arguments of the attribute, as far as they are valid.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) name: Option<LitStr>,
    pub(crate) description: Option<Expr>,
    /// Constants of `Access`, to be joined. Empty if none could be read, which is then among the errors.
    pub(crate) access: Vec<Ident>,
    /// A variant of `Repeat`.
    pub(crate) repeat: Option<Ident>,
    /// Milliseconds, above zero.
    pub(crate) timeout: Option<u64>,
    /// Path of entourage-core, or of a crate that exports its tools.
    pub(crate) core: Path,
}

impl Options {
    /// Parses the arguments; each mistake goes to `errors`.
    pub(crate) fn parse(attribute: TokenStream, errors: &mut Errors) -> Self {
        let mut options = Self {
            name: None,
            description: None,
            access: Vec::new(),
            repeat: None,
            timeout: None,
            core: parse_quote!(::entourage),
        };
        let metas = Punctuated::<Meta, Token![,]>::parse_terminated.parse2(attribute).map_err(|error| {
            Error::new(
                error.span(),
                format!("{error}; `#[tool]` takes `key = \"value\"` with the keys {KEYS}"),
            )
        });
        let Some(metas) = errors.keep(metas) else { return options };
        let mut seen: Vec<String> = Vec::new();
        for meta in metas {
            let key = meta.path().get_ident().map(Ident::to_string).unwrap_or_default();
            if seen.contains(&key) {
                errors.on(meta.path(), format!("`{key}` is given twice; keep one"));
                continue;
            }
            let read = options.set(&key, &meta);
            errors.keep(read);
            seen.push(key);
        }
        if !seen.iter().any(|key| key == "access") {
            errors.push(Error::new(Span::call_site(), missing_access()));
        }
        options
    }

    fn set(&mut self, key: &str, meta: &Meta) -> Result<()> {
        match key {
            "name" => self.name = Some(text(meta)?.clone()),
            "description" => self.description = Some(description(meta)?),
            "access" => self.access = access(text(meta)?)?,
            "repeat" => self.repeat = Some(repeat(text(meta)?)?),
            "timeout" => self.timeout = Some(timeout(text(meta)?)?),
            "crate" => self.core = core(text(meta)?)?,
            _ => {
                let path = meta.path();
                let message = format!("`#[tool]` has no such argument; it takes {KEYS}");
                return Err(Error::new_spanned(path, message));
            }
        }
        Ok(())
    }
}

/// The expression itself, without the invisible groups that `macro_rules!` puts around it.
pub(crate) fn ungroup(mut value: &Expr) -> &Expr {
    while let Expr::Group(group) = value {
        value = &group.expr;
    }
    value
}

/// The string literal in `value`, if it is one.
pub(crate) fn literal(value: &Expr) -> Option<&LitStr> {
    match ungroup(value) {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text),
        _ => None,
    }
}

fn value(meta: &Meta) -> Result<&Expr> {
    match meta {
        Meta::NameValue(pair) => Ok(&pair.value),
        Meta::Path(_) | Meta::List(_) => {
            let key = meta.path().get_ident().map(Ident::to_string).unwrap_or_default();
            Err(Error::new_spanned(meta, format!("`{key}` needs a value: `{key} = \"…\"`")))
        }
    }
}

fn text(meta: &Meta) -> Result<&LitStr> {
    let value = value(meta)?;
    literal(value).ok_or_else(|| Error::new_spanned(value, "a string literal is needed here: `\"…\"`"))
}

/// The value of a description: a text that is not blank, or a macro that gives one.
pub(crate) fn description(meta: &Meta) -> Result<Expr> {
    let value = value(meta)?;
    match (literal(value), ungroup(value)) {
        (Some(text), _) if text.value().trim().is_empty() => {
            Err(Error::new_spanned(text, "the description is empty; say what the model needs to know"))
        }
        (Some(_), value) | (None, value @ Expr::Macro(_)) => Ok(value.clone()),
        (None, value) => Err(Error::new_spanned(
            value,
            "a description is a string literal or a macro such as `include_str!(\"…\")`",
        )),
    }
}

/// The error for a missing `access`. There is no default: a tool that forgot to declare a write would run without
/// approval.
fn missing_access() -> String {
    format!("`access` is missing; add `access = \"…\"` to say what the tool touches: {ACCESS_WORDS}")
}

fn access(words: &LitStr) -> Result<Vec<Ident>> {
    let text = words.value();
    text.split('+')
        .map(|word| match constant(&ACCESS, word.trim(), words.span()) {
            Some(constant) => Ok(constant),
            None => {
                Err(Error::new_spanned(words, format!("`{}` is no access; use {ACCESS_WORDS}", word.trim())))
            }
        })
        .collect()
}

fn repeat(word: &LitStr) -> Result<Ident> {
    constant(&REPEAT, &word.value(), word.span()).ok_or_else(|| {
        Error::new_spanned(
            word,
            format!(
                "`{}` does not say what may be repeated after a crash; use safe, idempotent, resume or once",
                word.value()
            ),
        )
    })
}

fn constant(words: &[(&str, &str)], word: &str, span: Span) -> Option<Ident> {
    words.iter().find(|(name, _)| *name == word).map(|(_, constant)| Ident::new(constant, span))
}

fn timeout(text: &LitStr) -> Result<u64> {
    let value = text.value();
    let unit_at = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let (number, unit) = value.split_at_checked(unit_at).unwrap_or_default();
    let unit = match unit {
        "ms" => Some(1),
        "s" => Some(1_000),
        "m" => Some(60_000),
        _ => None,
    };
    let Some(unit) = unit.filter(|_| !number.is_empty()) else {
        let message =
            format!("`{value}` is no time; write a whole number and its unit: `500ms`, `30s` or `5m`");
        return Err(Error::new_spanned(text, message));
    };
    match number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)) {
        Some(0) => Err(Error::new_spanned(
            text,
            "a tool without time could never answer; leave `timeout` away for the agent's own limit",
        )),
        Some(millis) => Ok(millis),
        None => Err(Error::new_spanned(
            text,
            "this time is too long to be counted in milliseconds; use a shorter one",
        )),
    }
}

fn core(text: &LitStr) -> Result<Path> {
    text.parse_with(Path::parse_mod_style).map_err(|_| {
        let message = format!(
            "`{}` is no path; name the one of entourage-core, such as `crate = \"entourage_core\"`",
            text.value()
        );
        Error::new(text.span(), message)
    })
}
