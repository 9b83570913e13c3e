//! Estimates for requests.
//!
//! Nothing here decides anything; it only counts.

use entourage_core::{
    bound::value,
    context::estimate_tokens,
    message::{Content, Part},
    provider::{OutputFormat, Request},
};

/// Estimated tokens of an image or a document: its description says too little about its cost.
const FILE_TOKENS: u64 = 1_500;

/// Estimated tokens of a text of that many bytes.
pub(crate) fn tokens(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(4)
}

/// Estimated tokens of a whole prompt: instructions, tools, schema and messages, and 1,500 for each file.
pub(crate) fn input_tokens(request: &Request) -> u64 {
    // A deferred tool costs nothing until the service's search found it.
    let tools = request.tools.iter().filter(|tool| !tool.is_deferred());
    let tools = tools.map(|tool| tool.name().len() + tool.description().len() + value(tool.schema()));
    let schema = match &request.output {
        OutputFormat::Schema(schema) => value(&schema.schema),
        _ => 0,
    };
    let around = [request.instructions.len(), schema].into_iter().chain(tools).map(tokens);
    let said = request.messages.iter().map(|message| estimate_tokens(message));
    let files = request.messages.iter().flat_map(|message| message.parts()).map(files);
    around
        .chain(said)
        .chain(files.map(|files| files.saturating_mul(FILE_TOKENS)))
        .fold(0, u64::saturating_add)
}

fn files(part: &Part) -> u64 {
    match part {
        Part::Media(_) => 1,
        Part::ToolResult(result) => result
            .content
            .iter()
            .filter(|piece| matches!(piece, Content::Media(_)))
            .fold(0, |count, _| count + 1),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use entourage_core::{
        message::{Arguments, Media, MediaSource, Message, Role, ToolCall, ToolResult},
        provider::OutputSchema,
        tool::ToolSpec,
    };
    use serde_json::json;

    use super::*;

    #[test]
    fn cc03_a_prompt_is_estimated_from_all_that_it_holds() {
        let call = ToolCall::new("1", "look", Arguments::parse("{\"a\":1}").unwrap());
        let image = Part::Media(Media::new("image/png", MediaSource::Base64("A".repeat(1_000_000))));
        let messages = [
            Message::user("hello"),
            Message::new(Role::Assistant, vec![Part::ToolCall(call.clone())]),
            Message::tool([ToolResult::text(&call, "found")]),
        ];
        let request = Request::new("m", messages.into_iter().collect());
        // hello, look and its arguments, look and found.
        assert_eq!(input_tokens(&request), 2 + 1 + 2 + 1 + 2);
        let schema = OutputSchema::new("s", json!({"type":"object"}));
        let tools = [ToolSpec::new("look", "Looks.", json!({}))];
        let more = request.clone().with_instructions("be brief").with_tools(tools).with_output(schema);
        assert_eq!(input_tokens(&more), 8 + 2 + 3 + 5);
        let mut shown = request;
        shown.messages.push(Message::new(Role::User, vec![image.clone()]));
        assert_eq!(input_tokens(&shown), 8 + 3 + FILE_TOKENS);
        let Part::Media(image) = image else { return };
        let result =
            ToolResult::new(&call, vec![Content::Media(image.clone()), Content::Media(image)], false);
        shown.messages.push(Message::tool([result]));
        assert_eq!(input_tokens(&shown), 8 + 3 + 1 + 3 + 3 + 3 * FILE_TOKENS);
        assert_eq!((tokens(0), tokens(1), tokens(4), tokens(5)), (0, 1, 1, 2));
    }
}
