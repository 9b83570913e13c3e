//! Questions of the tools to servers: diagnostics, places, symbols; and restarts of servers.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use entourage_core::{
    permission::RuleEffect,
    tool::{ToolContext, ToolError, ToolOutput},
};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};

use super::{
    LanguageServers,
    connection::Failed,
    feedback::{in_order, refresh, shown, text_of},
    link::{Absent, Link},
    live::{Ability, Live, deadline},
    position::{Lines, Position},
    report::{Report, counted},
    tool::{DiagnosticsArguments, PlaceArguments, RestartArguments, SymbolsArguments},
    uri,
    wire::{PLACES, Symbol, places, plain, symbols},
};
use crate::fs::Source;

/// Time in which a call has its answer.
const TIME: Duration = Duration::from_secs(30);
/// Time that a server has to look at a file that it did not know, and to end the work that it reports.
const LOOK: Duration = Duration::from_secs(5);
const WORK: Duration = Duration::from_secs(15);
/// Most diagnostics of a group, and most symbols, that a tool shows.
const DIAGNOSTICS: usize = 50;
const SYMBOLS: usize = 300;
/// Most characters of a name that the model gives.
const NAME: usize = 200;

/// A server that was told of a file, to be asked about it.
pub(super) struct Asked {
    pub(super) live: Arc<Live>,
    pub(super) server: String,
    pub(super) source: Source,
    pub(super) until: Instant,
}

impl Asked {
    pub(super) fn uri(&self, servers: &LanguageServers) -> Value {
        json!({ "uri": uri::of(&servers.workspace().root().join(&self.source.at)) })
    }

    pub(super) async fn ask(&self, method: &str, params: Value) -> Result<Value, ToolError> {
        let answer = self.live.ask(method, params, self.until).await;
        answer.map_err(|failed| refused(&self.server, &failed))
    }

    /// A note for an answer that may lack something.
    fn note(&self) -> &'static str {
        match self.live.known().is_busy() {
            true => "\n(the language server is still at work, so this may not be all)",
            false => "",
        }
    }

    /// The place of a symbol in a line, both as the model gave them.
    pub(super) fn place(&self, line: usize, symbol: &str) -> Result<Position, ToolError> {
        let lines = Lines::of(&self.source.text);
        let (name, shown) = (&self.source.name, plain(symbol, NAME));
        let number = line.checked_sub(1);
        let Some((number, text)) = number.and_then(|number| Some((number, lines.line(number)?))) else {
            return Err(ToolError::tell(format!("`{name}` has no line {line}; lines are counted from 1")));
        };
        let byte = (!symbol.is_empty()).then(|| found(text, symbol)).flatten();
        byte.and_then(|byte| lines.position(number, byte, self.live.encoding)).ok_or_else(|| {
            let text = plain(text, NAME);
            ToolError::tell(format!(
                "`{shown}` is not in line {line} of `{name}`, which is `{text}`; view the file again"
            ))
        })
    }
}

/// The byte at which a name begins in a line: as a whole word, or as a part of one.
fn found(line: &str, name: &str) -> Option<usize> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let is_whole = |at: &usize| {
        let before = line.get(..*at).and_then(|it| it.chars().next_back());
        let after = line.get(at.saturating_add(name.len())..).and_then(|it| it.chars().next());
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    };
    line.match_indices(name).map(|(at, _)| at).find(is_whole).or_else(|| line.find(name))
}

fn refused(server: &str, failed: &Failed) -> ToolError {
    ToolError::Tell(match failed {
        Failed::Over(reason) => {
            format!("the language server `{server}` failed: {reason}; call the tool again")
        }
        Failed::Refused(code, text) => {
            format!("the language server `{server}` refused: {text} (code {code})")
        }
        Failed::Late => format!(
            "the language server `{server}` did not answer within {} s; go on without it, or restart it by `lsp_restart`",
            TIME.as_secs()
        ),
        Failed::Deep => format!(
            "the answer of the language server `{server}` nests too deep to be read; ask for another place, or go on \
             without it"
        ),
    })
}

fn absent(server: &str, absent: &Absent) -> String {
    match absent {
        Absent::Starting => format!("the language server `{server}` is still starting; go on without it"),
        Absent::Failed(reason) => {
            format!("the language server `{server}` is not there: {reason}; `lsp_restart` starts it again")
        }
    }
}

/// The first server of these with an ability that runs, or else the one that is ready first. So one that hangs keeps no
/// other from answering.
async fn able(
    links: Vec<Arc<Link>>,
    ability: Ability,
    until: Instant,
) -> Result<(Arc<Live>, String), ToolError> {
    for link in &links {
        if let Some(live) = link.running().filter(|live| live.can(ability)) {
            return Ok((live, link.server.name().to_owned()));
        }
    }
    let mut each = JoinSet::new();
    for (number, link) in links.into_iter().enumerate() {
        each.spawn(async move { (number, link.server.name().to_owned(), link.live(until).await) });
    }
    let mut reasons = BTreeMap::new();
    while let Some(ended) = each.join_next().await {
        let Ok((number, server, live)) = ended else { continue };
        let reason = match live {
            Ok(live) if live.can(ability) => return Ok((live, server)),
            Ok(_) => format!("the language server `{server}` cannot do that"),
            Err(reason) => absent(&server, &reason),
        };
        reasons.insert(number, reason);
    }
    Err(ToolError::Tell(reasons.into_values().collect::<Vec<_>>().join("; ")))
}

impl LanguageServers {
    /// Tells a server that has an ability of a file, which it may know already.
    pub(super) async fn asked(
        &self,
        path: &str,
        ability: Ability,
        cx: &ToolContext<'_>,
    ) -> Result<Asked, ToolError> {
        let until = deadline(TIME);
        let source = self.workspace().named_source(path, cx).await?;
        let links = self.links_for(&source.at);
        if links.is_empty() {
            return Err(self.none_for(&source.name));
        }
        let (live, server) = able(links, ability, until).await?;
        self.prepare(&live, &source, until).await;
        Ok(Asked { live, server, source, until })
    }

    fn none_for(&self, name: &str) -> ToolError {
        let names: Vec<_> = self.0.links.iter().map(|link| format!("`{}`", link.server.name())).collect();
        ToolError::tell(format!(
            "there is no language server for `{name}`; there are {}: go on without one",
            names.join(", ")
        ))
    }

    /// Tells a server of a file, and gives it time for one that it did not know.
    async fn prepare(&self, live: &Arc<Live>, source: &Source, until: Instant) {
        refresh(live, self.workspace(), until).await;
        let path = self.workspace().root().join(&source.at);
        let is_first = live.version(&path).is_none();
        live.show(&text_of(path.clone(), source), false, until).await;
        if is_first {
            live.diagnosed(&path, until.min(deadline(LOOK))).await;
        }
        live.known().idle(until.min(deadline(WORK))).await;
    }

    pub(super) async fn definition(
        &self,
        arguments: PlaceArguments,
        cx: &ToolContext<'_>,
    ) -> Result<ToolOutput, ToolError> {
        let asked = self.asked(&arguments.path, Ability::Definition, cx).await?;
        self.places(&asked, &arguments, "textDocument/definition", ("definition", "definitions"), cx).await
    }

    pub(super) async fn references(
        &self,
        arguments: PlaceArguments,
        cx: &ToolContext<'_>,
    ) -> Result<ToolOutput, ToolError> {
        let asked = self.asked(&arguments.path, Ability::References, cx).await?;
        self.places(&asked, &arguments, "textDocument/references", ("reference", "references"), cx).await
    }

    async fn places(
        &self,
        asked: &Asked,
        arguments: &PlaceArguments,
        method: &str,
        (one, many): (&str, &str),
        cx: &ToolContext<'_>,
    ) -> Result<ToolOutput, ToolError> {
        let position = asked.place(arguments.line, &arguments.symbol)?;
        let mut params = json!({ "textDocument": asked.uri(self), "position": position.json() });
        if one == "reference"
            && let Some(params) = params.as_object_mut()
        {
            params.insert("context".to_owned(), json!({ "includeDeclaration": true }));
        }
        let answer = asked.ask(method, params).await?;
        let places = places(&answer);
        let (count, listing) = self.listing(places, asked.live.encoding, &Arc::new(cx.admission())).await;
        let symbol = plain(&arguments.symbol, NAME);
        let text = match listing.is_empty() {
            true => format!("no {many} of `{symbol}` were found"),
            false => format!("{} of `{symbol}`:\n{listing}", counted(count, one, many)),
        };
        let metadata = json!({ "path": asked.source.name, "server": asked.server, "places": count });
        Ok(ToolOutput::text(format!("{text}{}", asked.note())).with_metadata(metadata))
    }

    pub(super) async fn diagnostics(
        &self,
        arguments: DiagnosticsArguments,
        cx: &ToolContext<'_>,
    ) -> Result<ToolOutput, ToolError> {
        let admission = Arc::new(cx.admission());
        let mut report = match arguments.path {
            Some(path) => {
                let source = self.workspace().named_source(&path, cx).await?;
                if self.links_for(&source.at).is_empty() {
                    return Err(self.none_for(&source.name));
                }
                let said = self.tell(&source.at, Some(&source), None, deadline(TIME)).await;
                let reasons: Vec<_> = said
                    .iter()
                    .filter_map(|said| Some(absent(&said.server, said.live.as_ref().err()?)))
                    .collect();
                if reasons.len() == said.len() {
                    return Err(ToolError::tell(reasons.join("; ")));
                }
                self.report(&source.at, Some(&source), &said, &admission).await
            }
            None => Report { project: self.project(None, &admission).await, ..Report::default() },
        };
        let troubles = self.servers().into_iter().filter_map(|(name, state)| match state {
            super::LanguageServerState::Running => None,
            state => Some(format!("the language server `{name}` is {}", plain(&state.to_string(), NAME))),
        });
        let known = report.notes.join("; ");
        report.notes.extend(troubles.filter(|trouble| !known.contains(trouble.as_str())));
        let metadata = json!({ "diagnostics": report.metadata() });
        Ok(ToolOutput::text(report.text(DIAGNOSTICS)).with_metadata(metadata))
    }

    pub(super) async fn symbols(
        &self,
        arguments: SymbolsArguments,
        cx: &ToolContext<'_>,
    ) -> Result<ToolOutput, ToolError> {
        let blank = |text: &String| !text.trim().is_empty();
        match (arguments.path.filter(blank), arguments.query.filter(blank)) {
            (Some(path), None) => self.symbols_of(&path, cx).await,
            (None, Some(query)) => self.symbols_named(&query, cx).await,
            _ => Err(ToolError::tell("give either `path`, a file, or `query`, a part of a name")),
        }
    }

    async fn symbols_of(&self, path: &str, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let asked = self.asked(path, Ability::Symbols, cx).await?;
        let params = json!({ "textDocument": asked.uri(self) });
        let all = symbols(&asked.ask("textDocument/documentSymbol", params).await?);
        let name = &asked.source.name;
        let list = all.iter().take(SYMBOLS).map(|symbol| {
            let indent = "  ".repeat(symbol.depth);
            format!("\n{indent}{} {} (line {})", symbol.kind, symbol.name, symbol.line.saturating_add(1))
        });
        let list: String = list.collect();
        let text = match all.len() {
            0 => format!("`{name}` has no symbols"),
            count => {
                format!("{} in `{name}`:{list}{}", counted(count, "symbol", "symbols"), more(count, SYMBOLS))
            }
        };
        Ok(ToolOutput::text(format!("{text}{}", asked.note())).with_metadata(json!({ "path": name })))
    }

    async fn symbols_named(&self, query: &str, cx: &ToolContext<'_>) -> Result<ToolOutput, ToolError> {
        let (until, admission) = (deadline(TIME), Arc::new(cx.admission()));
        let asked = json!({ "query": query.chars().take(NAME).collect::<String>() });
        let running = self.0.links.iter().filter_map(|link| Some((link, link.running()?)));
        let able: Vec<_> = running.filter(|(_, live)| live.can(Ability::WorkspaceSymbols)).collect();
        if able.is_empty() {
            return Err(ToolError::tell(
                "no language server runs that can find symbols of the project; give the `path` of a file, whose server \
                 then starts, or search by `grep`",
            ));
        }
        let mut each = JoinSet::new();
        for (number, (link, live)) in able.into_iter().enumerate() {
            let (link, ws, query) = (Arc::clone(link), self.workspace().clone(), asked.clone());
            each.spawn(async move {
                refresh(&live, &ws, until).await;
                live.known().idle(until.min(deadline(WORK))).await;
                let answer = live.ask("workspace/symbol", query, until).await;
                (number, answer.map_err(|failed| refused(link.server.name(), &failed)))
            });
        }
        let (mut all, mut trouble): (Vec<Symbol>, _) = (Vec::new(), None);
        for answer in in_order(each).await {
            match answer {
                Ok(answer) => all.extend(symbols(&answer)),
                Err(error) => trouble = trouble.or(Some(error)),
            }
        }
        let paths = all.iter().filter_map(|symbol| symbol.path.clone()).collect();
        let effects = self.workspace().effects_on(paths, &admission).await;
        let effect = |symbol: &Symbol| effects.get(symbol.path.as_ref()?).copied();
        all.retain(|symbol| effect(symbol) == Some(RuleEffect::Allow));
        all.truncate(PLACES);
        match trouble {
            Some(trouble) if all.is_empty() => Err(trouble),
            _ => Ok(ToolOutput::text(self.named(&all, query))),
        }
    }

    fn named(&self, all: &[Symbol], query: &str) -> String {
        let query = plain(query, NAME);
        let list = all.iter().take(SYMBOLS).map(|symbol| {
            let path = symbol.path.as_deref().map(|path| shown(self.workspace(), path)).unwrap_or_default();
            let within = match symbol.container.is_empty() {
                true => String::new(),
                false => format!(" in {}", symbol.container),
            };
            let line = symbol.line.saturating_add(1);
            format!("\n{path}:{line}: {} {}{within}", symbol.kind, symbol.name)
        });
        let list: String = list.collect();
        match all.len() {
            0 => format!("no symbols with `{query}` were found"),
            count => format!(
                "{} with `{query}`:{list}{}",
                counted(count, "symbol", "symbols"),
                more(count, SYMBOLS)
            ),
        }
    }

    pub(super) async fn restart(&self, arguments: RestartArguments) -> Result<ToolOutput, ToolError> {
        let links: Vec<&Arc<Link>> = match &arguments.server {
            Some(name) => self.0.links.iter().filter(|link| link.server.name() == name).collect(),
            None => {
                let is_used = |link: &&Arc<Link>| link.state() != super::LanguageServerState::Idle;
                self.0.links.iter().filter(is_used).collect()
            }
        };
        if links.is_empty() {
            let names: Vec<_> =
                self.servers().iter().map(|(name, state)| format!("`{name}` ({state})")).collect();
            let text = format!("there is no such server to restart; there are {}", names.join(", "));
            return Err(ToolError::tell(plain(&text, 1_000)));
        }
        let (until, mut each) = (deadline(TIME), JoinSet::new());
        for (number, link) in links.into_iter().cloned().enumerate() {
            each.spawn(async move {
                let server = link.server.name();
                let ended = link.restart(until).await;
                let told = ended.map(|_| format!("the language server `{server}` runs again"));
                (number, told.map_err(|reason| absent(server, &reason)))
            });
        }
        let told = in_order(each).await;
        let is_error = told.iter().all(Result::is_err);
        let lines: Vec<_> = told.into_iter().map(|told| told.unwrap_or_else(|reason| reason)).collect();
        let text = lines.join("\n");
        Ok(if is_error { ToolOutput::error(text) } else { ToolOutput::text(text) })
    }
}

fn more(count: usize, shown: usize) -> String {
    if count > shown { format!("\n({} more)", count.saturating_sub(shown)) } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ce02_a_symbol_is_found_as_a_whole_word_first() {
        for (line, name, at) in [
            ("let total = tot + tot2;", "tot", Some(12)),
            ("let total = 1;", "tot", Some(4)),
            ("é x", "x", Some(3)),
            ("a.b(c)", "b", Some(2)),
            ("a", "x", None),
        ] {
            assert_eq!(found(line, name), at, "{line}");
        }
    }
}
