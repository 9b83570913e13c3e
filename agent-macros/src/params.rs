//! The parameters of the function: their roles, and the attributes that belong to them.
//!
//! Removes the attributes that only `#[tool]` understands from the function. Judges single attributes and patterns;
//! `check` judges if the parameters make sense together.

use proc_macro2::Ident;
use syn::{
    Attribute, Error, FnArg, GenericArgument, Meta, Pat, PatType, PathArguments, Result, Signature, Token,
    Type, parse_quote_spanned, punctuated::Punctuated, spanned::Spanned,
};

use crate::{attribute, errors::Errors};

/// One parameter other than `self`.
#[derive(Debug)]
pub(crate) struct Param {
    pub(crate) ident: Ident,
    pub(crate) ty: Type,
    pub(crate) role: Role,
    /// Attributes for the field of the argument struct: docs, `serde` and `schemars`.
    pub(crate) field: Vec<Attribute>,
    /// What an argument names, and the word that says so.
    pub(crate) names: Option<(Subject, Ident)>,
}

/// Kind of a thing that a call touches and an argument names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// A path that the call reads.
    Read,
    /// A path that the call changes.
    Write,
    /// A host, or a URL whose host counts.
    Host,
    /// The command line that the call runs.
    Command,
}

impl Subject {
    const WORDS: [(&str, Self); 4] =
        [("read", Self::Read), ("write", Self::Write), ("host", Self::Host), ("command", Self::Command)];

    fn parse(meta: &Meta) -> Option<(Self, Ident)> {
        let Meta::Path(path) = meta else { return None };
        let word = path.get_ident()?;
        let (_, subject) = Self::WORDS.into_iter().find(|(name, _)| word == name)?;
        Some((subject, word.clone()))
    }
}

/// Source of a parameter's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// An argument that the model gives by name.
    Argument,
    /// `#[args]`: all arguments of the model in one value.
    Arguments,
    /// `#[state]`: a value that the program gives when it makes the tool.
    State,
    /// `&ToolContext<'_>`, which the run gives.
    Context,
}

/// Reads the parameters and removes the attributes that the function cannot keep.
pub(crate) fn take(signature: &mut Signature, errors: &mut Errors) -> Vec<Param> {
    let typed = signature.inputs.iter_mut().filter_map(|input| match input {
        FnArg::Typed(param) => Some(param),
        FnArg::Receiver(_) => None,
    });
    typed.filter_map(|param| take_one(param, errors)).collect()
}

fn take_one(param: &mut PatType, errors: &mut Errors) -> Option<Param> {
    let mut marks = Marks::default();
    for attribute in std::mem::take(&mut param.attrs) {
        let kept = marks.sort(attribute);
        param.attrs.extend(errors.keep(kept).flatten());
    }
    let role = marks.role(&param.ty, errors);
    let ident = errors.keep(name(&param.pat))?;
    let mut field = if marks.described.is_some() { Vec::new() } else { marks.docs };
    field.extend(marks.described);
    field.extend(marks.derives);
    Some(Param { ident, ty: (*param.ty).clone(), role, field, names: marks.names })
}

/// The attributes of one parameter, sorted.
#[derive(Default)]
struct Marks {
    role: Option<(Role, Attribute)>,
    docs: Vec<Attribute>,
    /// The doc attribute made from `#[arg(description = …)]`.
    described: Option<Attribute>,
    /// Attributes `serde` and `schemars`.
    derives: Vec<Attribute>,
    /// The mark of `#[arg(write)]` and the like.
    names: Option<(Subject, Ident)>,
}

impl Marks {
    /// Takes an attribute of `#[tool]`, or returns one that the function keeps.
    fn sort(&mut self, attribute: Attribute) -> Result<Option<Attribute>> {
        let name = attribute.path().get_ident().map(Ident::to_string).unwrap_or_default();
        match name.as_str() {
            "doc" => self.docs.push(attribute),
            "serde" | "schemars" => self.derives.push(attribute),
            "arg" => self.arg(&attribute)?,
            "args" => self.mark(Role::Arguments, attribute)?,
            "state" => self.mark(Role::State, attribute)?,
            "allow" | "expect" | "warn" | "deny" | "forbid" => return Ok(Some(attribute)),
            "cfg" | "cfg_attr" => {
                let message =
                    "the parameters of a tool cannot depend on `cfg`; put the whole function under it";
                return Err(Error::new_spanned(attribute, message));
            }
            _ => {
                let message = "a parameter of a tool has no such attribute; it takes `#[arg(description = \"…\")]`, \
                               `#[args]`, `#[state]`, `#[serde(…)]`, `#[schemars(…)]` and doc comments";
                return Err(Error::new_spanned(attribute, message));
            }
        }
        Ok(None)
    }

    /// Reads `#[arg(write, description = "…")]`.
    fn arg(&mut self, attribute: &Attribute) -> Result<()> {
        const FORM: &str = "`#[arg]` takes a description, and a word for what the argument names: `#[arg(description = \
                            \"…\")]`, `#[arg(read)]` or `#[arg(write)]` for a path, `#[arg(host)]`, `#[arg(command)]`";
        let Meta::List(list) = &attribute.meta else { return Err(Error::new_spanned(attribute, FORM)) };
        let metas = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)?;
        if metas.is_empty() {
            return Err(Error::new_spanned(attribute, FORM));
        }
        for meta in &metas {
            match Subject::parse(meta) {
                Some((_, word)) if self.names.is_some() => {
                    let message = format!(
                        "an argument names one thing, so `{word}` is one word too many; a path that is read and \
                         changed is `write`"
                    );
                    return Err(Error::new_spanned(meta, message));
                }
                Some(names) => self.names = Some(names),
                None if self.described.is_some() || !meta.path().is_ident("description") => {
                    return Err(Error::new_spanned(meta, FORM));
                }
                None => {
                    let text = attribute::description(meta)?;
                    self.described = Some(parse_quote_spanned!(attribute.path().span()=> #[doc = #text]));
                }
            }
        }
        Ok(())
    }

    fn mark(&mut self, role: Role, attribute: Attribute) -> Result<()> {
        attribute.meta.require_path_only()?;
        if self.role.is_some() {
            let message = "a parameter takes one of `#[args]` and `#[state]`, once";
            return Err(Error::new_spanned(attribute, message));
        }
        self.role = Some((role, attribute));
        Ok(())
    }

    fn role(&self, ty: &Type, errors: &mut Errors) -> Role {
        let role = match &self.role {
            Some((role, _)) if !is_context(ty) => *role,
            Some((_, attribute)) => {
                errors.on(attribute, "the run gives the `ToolContext`; take this attribute away");
                Role::Context
            }
            None if is_context(ty) => Role::Context,
            None => Role::Argument,
        };
        match role {
            Role::Argument => {}
            Role::Arguments => {
                for attribute in self.docs.iter().chain(&self.described).chain(&self.derives) {
                    errors.on(
                        attribute,
                        "the model does not see this; write it on the struct and its fields, where they are defined",
                    );
                }
                if let Some((_, word)) = &self.names {
                    errors.on(
                        word,
                        "`#[args]` is the whole argument object; make what names something a parameter of its own, or \
                         implement `Tool` and its `footprint` by hand",
                    );
                }
            }
            Role::State | Role::Context => {
                const MESSAGE: &str = "the model does not give this parameter; take this attribute away";
                for attribute in self.described.iter().chain(&self.derives) {
                    errors.on(attribute, MESSAGE);
                }
                if let Some((_, word)) = &self.names {
                    errors.on(word, MESSAGE);
                }
            }
        }
        role
    }
}

fn name(pattern: &Pat) -> Result<Ident> {
    match pattern {
        Pat::Ident(name) if name.by_ref.is_none() && name.subpat.is_none() => Ok(name.ident.clone()),
        pattern => Err(Error::new_spanned(
            pattern,
            "the model gives an argument by its name, so a parameter of a tool is a plain name; take the value apart in \
             the function",
        )),
    }
}

/// True if `ty` is `&ToolContext<'_>`, by the name of the type.
fn is_context(ty: &Type) -> bool {
    match ungroup(ty) {
        Type::Reference(reference) => reference.mutability.is_none() && names(&reference.elem, "ToolContext"),
        _ => false,
    }
}

/// True if the last segment of the path `ty` is `name`.
pub(crate) fn names(ty: &Type, name: &str) -> bool {
    match ungroup(ty) {
        Type::Path(path) => path.path.segments.last().is_some_and(|segment| segment.ident == name),
        _ => false,
    }
}

/// `T`, if `ty` is `Name<T>` with one of these names.
pub(crate) fn inside<'t>(ty: &'t Type, names: &[&str]) -> Option<&'t Type> {
    let Type::Path(path) = ungroup(ty) else { return None };
    let last = path.path.segments.last().filter(|last| names.iter().any(|name| last.ident == name))?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.first() {
        Some(GenericArgument::Type(inner)) => Some(inner),
        _ => None,
    }
}

/// The type itself, without parentheses and the invisible groups that `macro_rules!` puts around it.
pub(crate) fn ungroup(mut ty: &Type) -> &Type {
    loop {
        ty = match ty {
            Type::Group(group) => &group.elem,
            Type::Paren(paren) => &paren.elem,
            other => return other,
        };
    }
}
