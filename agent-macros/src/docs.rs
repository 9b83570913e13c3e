//! Reads descriptions from doc comments.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Attribute, Expr, Meta};

use crate::attribute::literal;

/// An expression of type `&'static str` with the text of the doc comments among `attributes`; `None` if they are
/// blank.
pub(crate) fn description(attributes: &[Attribute]) -> Option<TokenStream> {
    let pieces: Vec<&Expr> = attributes.iter().filter_map(piece).collect();
    let texts: Option<Vec<String>> = pieces.iter().map(|piece| Some(literal(piece)?.value())).collect();
    match texts {
        Some(texts) => {
            let text = joined(&texts);
            (!text.is_empty()).then(|| quote!(#text))
        }
        // A piece is a macro such as `include_str!`: only the compiler can join those.
        None => Some(quote!(::core::concat!(#(#pieces, "\n"),*))),
    }
}

fn piece(attribute: &Attribute) -> Option<&Expr> {
    match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => Some(&pair.value),
        Meta::NameValue(_) | Meta::Path(_) | Meta::List(_) => None,
    }
}

/// Joins the lines of a description. `/// text` arrives as `" text"`: one leading space of each line is dropped.
fn joined(texts: &[String]) -> String {
    let lines = texts.iter().flat_map(|text| text.split('\n'));
    let lines: Vec<&str> = lines.map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end()).collect();
    lines.join("\n").trim().to_owned()
}
