//! Pages as text: their charset, their kind, and JSON that is easy to read. Pure.

use encoding_rs::{Encoding, UTF_8};
use entourage_core::tool::ToolError;
use serde::de::IgnoredAny;

use super::client::Reply;

/// Bytes of a page in which its charset is looked for, as browsers do.
const PRESCAN: usize = 1_024;

/// Most bytes of pretty JSON, as a multiple of its own and in any case.
const PRETTIER: usize = 4;
const PRETTY: usize = 64 << 10;

/// The forms that a page is read in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Html,
    Json,
    Text,
}

impl Kind {
    pub(super) fn of(reply: &Reply, text: &str) -> Self {
        let start = text.trim_start_matches('\u{feff}').trim_start();
        let opens = |tag: &str| start.get(..tag.len()).is_some_and(|start| start.eq_ignore_ascii_case(tag));
        match reply.mime.as_str() {
            "text/html" | "application/xhtml+xml" => Self::Html,
            "" if opens("<!doctype html") || opens("<html") => Self::Html,
            mime if mime == "application/json" || mime.ends_with("+json") => Self::Json,
            _ => Self::Text,
        }
    }
}

/// The text of a page in the charset that it declares, else in UTF-8.
///
/// # Errors
/// The text for the model, if the page is no text in that charset.
pub(super) fn decoded(reply: &Reply) -> Result<String, ToolError> {
    let declared = reply.charset.clone().or_else(|| declared(&reply.body));
    let encoding = declared.and_then(|label| Encoding::for_label(label.as_bytes())).unwrap_or(UTF_8);
    let mut decoder = encoding.new_decoder();
    let mut text = String::new();
    text.reserve(decoder.max_utf8_buffer_length(reply.body.len()).unwrap_or_default());
    // A page that was cut may end within a character, which is then left out.
    let (_, _, broken) = decoder.decode_to_string(&reply.body, &mut text, !reply.is_cut);
    if broken || text.contains('\0') {
        let mime = if reply.mime.is_empty() { "unknown type" } else { &reply.mime };
        return Err(ToolError::tell(format!(
            "`{}` is no text in {} ({mime}); download it instead",
            reply.url,
            decoder.encoding().name()
        )));
    }
    Ok(text)
}

/// The charset that a page declares in its own text.
fn declared(body: &[u8]) -> Option<String> {
    let start = body.get(..PRESCAN.min(body.len()))?;
    let start = String::from_utf8_lossy(start).to_ascii_lowercase();
    start.split("<meta").skip(1).find_map(|tag| {
        let (_, value) = tag.split('>').next()?.split_once("charset")?;
        let value = value.trim_start().strip_prefix('=')?.trim_start().trim_start_matches(['"', '\'']);
        let end = value.find(|c: char| c.is_whitespace() || "\"';/".contains(c)).unwrap_or(value.len());
        value.get(..end).filter(|label| !label.is_empty()).map(str::to_owned)
    })
}

/// JSON with two spaces a level, its members in their order and its numbers as they are written; any other text as it
/// is, and JSON that is nested so that this would be many times as long.
pub(super) fn pretty(text: String) -> String {
    if serde_json::from_str::<IgnoredAny>(&text).is_err() {
        return text;
    }
    let longest = text.len().saturating_mul(PRETTIER).saturating_add(PRETTY);
    let mut pretty = String::with_capacity(text.len() * 2);
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    let line = |pretty: &mut String, depth: usize| {
        pretty.push('\n');
        pretty.extend(std::iter::repeat_n("  ", depth));
    };
    for c in text.chars() {
        if pretty.len() > longest {
            return text;
        }
        if in_string {
            (in_string, escaped) = (escaped || c != '"', c == '\\' && !escaped);
            pretty.push(c);
            continue;
        }
        let is_empty = pretty.ends_with(['{', '[']);
        match c {
            ' ' | '\t' | '\r' | '\n' => continue,
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                if !is_empty {
                    line(&mut pretty, depth);
                }
            }
            _ if is_empty => line(&mut pretty, depth),
            _ => {}
        }
        pretty.push(c);
        match c {
            '"' => in_string = true,
            '{' | '[' => depth += 1,
            ',' => line(&mut pretty, depth),
            ':' => pretty.push(' '),
            _ => {}
        }
    }
    pretty
}

/// The source between the tags of the body.
pub(super) fn body(html: &str) -> Option<&str> {
    let lower = html.to_ascii_lowercase();
    let open = lower.match_indices("<body").map(|(at, tag)| at + tag.len());
    let start = open.filter_map(|at| {
        let next = lower.get(at..)?.chars().next()?;
        (next == '>' || next.is_whitespace()).then(|| lower.get(at..)?.find('>').map(|end| at + end + 1))?
    });
    let start = start.min()?;
    let end = lower.rfind("</body").filter(|end| *end >= start).unwrap_or(html.len());
    html.get(start..end)
}
