//! The services that the library knows.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use entourage_core::{Error, ErrorKind};
use reqwest::{
    StatusCode, Url,
    header::{ACCEPT, AUTHORIZATION, HeaderName, HeaderValue, RETRY_AFTER},
};
use serde::Deserialize;
use serde_json::json;

use super::{SearXng, SearchResult, SearchService};
use crate::web::{client::Client, html, transport::Ask};

/// Most bytes of an answer.
const LIMIT: usize = 2 << 20;

/// Seconds for which a service is left alone whose searches are used up.
const USED_UP: u64 = 3_600;

/// A word in the page of DuckDuckGo that it sends to a program which asks too often.
const CHALLENGE: &str = "anomaly-modal";

/// The services whose keys or addresses `variable` has, and the one that needs none.
pub(in crate::web) fn of_environment(
    client: &Client,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Vec<Arc<dyn SearchService>>, Error> {
    let key =
        |names: &[&str]| names.iter().find_map(|name| variable(name).filter(|it| !it.trim().is_empty()));
    let mut services: Vec<Arc<dyn SearchService>> = Vec::new();
    if let Some(key) = key(&["BRAVE_API_KEY", "BRAVE_SEARCH_API_KEY"]) {
        services.push(Arc::new(Brave::new(client.clone(), &key, Brave::BASE)?));
    }
    if let Some(key) = key(&["EXA_API_KEY"]) {
        services.push(Arc::new(Exa::new(client.clone(), &key, Exa::BASE)?));
    }
    if let Some(key) = key(&["TAVILY_API_KEY"]) {
        services.push(Arc::new(Tavily::new(client.clone(), &key, Tavily::BASE)?));
    }
    if let Some(address) = key(&["SEARXNG_URL"]) {
        services.push(Arc::new(SearXng::new(&address, client)?));
    }
    services.push(Arc::new(DuckDuckGo::new(client.clone(), DuckDuckGo::BASE)));
    Ok(services)
}

/// The value of a header that holds a key behind the name of its scheme, if it has one.
fn key(service: &str, scheme: &str, key: &str) -> Result<HeaderValue, Error> {
    let key = Some(key.trim()).filter(|key| !key.is_empty());
    let value = key.and_then(|key| HeaderValue::from_str(&format!("{scheme}{key}")).ok());
    let mut value = value.ok_or_else(|| {
        let message = format!("the key for {service} is empty or holds a character that no key has");
        Error::new(ErrorKind::Config, message).during("web.search")
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// The body of the answer to a request.
pub(super) async fn answer(client: &Client, ask: Ask) -> Result<String, Error> {
    let mut answer = client.send(ask).await?;
    let status = answer.status;
    let wait = answer.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    match status {
        StatusCode::OK => {}
        // DuckDuckGo's way to say it.
        StatusCode::TOO_MANY_REQUESTS | StatusCode::ACCEPTED => return Err(limited(wait)),
        // Tavily's, where the searches of a plan are used up.
        _ if matches!(status.as_u16(), 432 | 433) => return Err(limited(wait.or(Some(USED_UP)))),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            return Err(Error::new(ErrorKind::Authentication, format!("the key was refused ({status})")));
        }
        _ if status.is_redirection() => {
            let text = format!("it redirects ({status}), which is not followed");
            return Err(Error::new(ErrorKind::Protocol, text));
        }
        _ => return Err(Error::new(ErrorKind::Protocol, format!("it answered with the status {status}"))),
    }
    let mut body = Vec::new();
    while let Some(chunk) = answer.piece().await.map_err(|fault| fault.of_service("the answer broke off"))? {
        if body.len().saturating_add(chunk.len()) > LIMIT {
            return Err(Error::new(ErrorKind::TooLarge, "the answer has more than 2 MiB"));
        }
        body.extend_from_slice(&chunk);
    }
    String::from_utf8(body).map_err(|_| Error::new(ErrorKind::Protocol, "the answer is no text"))
}

fn limited(seconds: Option<u64>) -> Error {
    let error = Error::new(ErrorKind::RateLimited, "it takes no searches for the moment");
    match seconds {
        Some(seconds) => error.with_retry_after(Duration::from_secs(seconds)),
        None => error,
    }
}

pub(super) fn read<'t, T: Deserialize<'t>>(text: &'t str) -> Result<T, Error> {
    serde_json::from_str(text).map_err(|error| {
        Error::new(ErrorKind::Protocol, "the answer is not what the service documents").caused_by(error)
    })
}

fn address(base: &str, path: &str) -> Result<Url, Error> {
    Url::parse(&format!("{base}{path}"))
        .map_err(|error| Error::new(ErrorKind::Config, "the service's address is none").caused_by(error))
}

/// Brave Search, <https://api-dashboard.search.brave.com/api-reference/web/search/get>.
#[derive(Debug)]
pub(in crate::web) struct Brave {
    client: Client,
    key: HeaderValue,
    base: String,
}

impl Brave {
    pub(in crate::web) const BASE: &str = "https://api.search.brave.com";

    pub(in crate::web) fn new(client: Client, secret: &str, base: impl Into<String>) -> Result<Self, Error> {
        Ok(Self { client, key: key("Brave", "", secret)?, base: base.into() })
    }
}

#[derive(Deserialize)]
struct BraveAnswer {
    #[serde(default)]
    web: BraveWeb,
}

#[derive(Default, Deserialize)]
struct BraveWeb {
    #[serde(default)]
    results: Vec<BraveResult>,
}

#[derive(Deserialize)]
struct BraveResult {
    #[serde(default)]
    title: String,
    url: String,
    #[serde(default)]
    description: String,
}

#[async_trait]
impl SearchService for Brave {
    fn name(&self) -> &str {
        "brave"
    }

    fn host(&self) -> &str {
        "api.search.brave.com"
    }

    async fn search(&self, query: &str, count: usize) -> Result<Vec<SearchResult>, Error> {
        let mut url = address(&self.base, "/res/v1/web/search")?;
        url.query_pairs_mut().append_pair("q", query).append_pair("count", &count.to_string());
        let ask = Ask::get(url).header(ACCEPT, HeaderValue::from_static("application/json"));
        let ask = ask.header(HeaderName::from_static("x-subscription-token"), self.key.clone());
        let text = answer(&self.client, ask).await?;
        let found = read::<BraveAnswer>(&text)?.web.results.into_iter();
        Ok(found.map(|it| SearchResult { title: it.title, url: it.url, snippet: it.description }).collect())
    }
}

/// Exa, which searches by meaning, <https://exa.ai/docs/reference/search>.
#[derive(Debug)]
pub(in crate::web) struct Exa {
    client: Client,
    key: HeaderValue,
    base: String,
}

impl Exa {
    pub(in crate::web) const BASE: &str = "https://api.exa.ai";

    pub(in crate::web) fn new(client: Client, secret: &str, base: impl Into<String>) -> Result<Self, Error> {
        Ok(Self { client, key: key("Exa", "", secret)?, base: base.into() })
    }
}

#[derive(Deserialize)]
struct ExaAnswer {
    #[serde(default)]
    results: Vec<ExaResult>,
}

#[derive(Deserialize)]
struct ExaResult {
    title: Option<String>,
    url: String,
    #[serde(default)]
    highlights: Vec<String>,
    text: Option<String>,
}

#[async_trait]
impl SearchService for Exa {
    fn name(&self) -> &str {
        "exa"
    }

    fn host(&self) -> &str {
        "api.exa.ai"
    }

    async fn search(&self, query: &str, count: usize) -> Result<Vec<SearchResult>, Error> {
        let url = address(&self.base, "/search")?;
        let body = json!({ "query": query, "numResults": count, "contents": { "highlights": true } });
        let ask = Ask::post(url, &body).header(HeaderName::from_static("x-api-key"), self.key.clone());
        let text = answer(&self.client, ask).await?;
        let found = read::<ExaAnswer>(&text)?.results.into_iter().map(|it| SearchResult {
            title: it.title.unwrap_or_default(),
            url: it.url,
            snippet: if it.highlights.is_empty() {
                it.text.unwrap_or_default()
            } else {
                it.highlights.join(" … ")
            },
        });
        Ok(found.collect())
    }
}

/// Tavily, which searches for agents, <https://docs.tavily.com/documentation/api-reference/endpoint/search>.
#[derive(Debug)]
pub(in crate::web) struct Tavily {
    client: Client,
    key: HeaderValue,
    base: String,
}

impl Tavily {
    pub(in crate::web) const BASE: &str = "https://api.tavily.com";

    pub(in crate::web) fn new(client: Client, secret: &str, base: impl Into<String>) -> Result<Self, Error> {
        Ok(Self { client, key: key("Tavily", "Bearer ", secret)?, base: base.into() })
    }
}

#[derive(Deserialize)]
struct TavilyAnswer {
    #[serde(default)]
    results: Vec<TavilyResult>,
}

#[derive(Deserialize)]
struct TavilyResult {
    title: Option<String>,
    url: String,
    content: Option<String>,
}

#[async_trait]
impl SearchService for Tavily {
    fn name(&self) -> &str {
        "tavily"
    }

    fn host(&self) -> &str {
        "api.tavily.com"
    }

    async fn search(&self, query: &str, count: usize) -> Result<Vec<SearchResult>, Error> {
        let url = address(&self.base, "/search")?;
        let body = json!({ "query": query, "max_results": count });
        let ask = Ask::post(url, &body).header(AUTHORIZATION, self.key.clone());
        let text = answer(&self.client, ask).await?;
        let found = read::<TavilyAnswer>(&text)?.results.into_iter().map(|it| SearchResult {
            title: it.title.unwrap_or_default(),
            url: it.url,
            snippet: it.content.unwrap_or_default(),
        });
        Ok(found.collect())
    }
}

/// DuckDuckGo's page without scripts, which needs no key and takes few searches.
#[derive(Debug)]
pub(in crate::web) struct DuckDuckGo {
    client: Client,
    base: String,
}

impl DuckDuckGo {
    pub(in crate::web) const BASE: &str = "https://html.duckduckgo.com";

    pub(in crate::web) fn new(client: Client, base: impl Into<String>) -> Self {
        Self { client, base: base.into() }
    }
}

#[async_trait]
impl SearchService for DuckDuckGo {
    fn name(&self) -> &str {
        "duckduckgo"
    }

    fn host(&self) -> &str {
        "html.duckduckgo.com"
    }

    async fn search(&self, query: &str, count: usize) -> Result<Vec<SearchResult>, Error> {
        let mut url = address(&self.base, "/html/")?;
        url.query_pairs_mut().append_pair("q", query);
        let text = answer(&self.client, Ask::get(url)).await?;
        if text.contains(CHALLENGE) {
            return Err(limited(None));
        }
        let links = html::links(self.client.readers(), text)
            .await
            .map_err(|_| Error::new(ErrorKind::Protocol, "the page cannot be read"))?;
        Ok(results(&links).into_iter().take(count).collect())
    }
}

/// The results among the links of a page: each title with the snippet that follows it. Advertisements are left out.
fn results(links: &[html::Link]) -> Vec<SearchResult> {
    let mut found: Vec<SearchResult> = Vec::new();
    let mut is_open = false;
    for link in links {
        if link.has_class("result__a") {
            let target = leads_to(&link.href);
            is_open = target.is_some();
            let title = link.text.clone();
            found.extend(target.map(|url| SearchResult { title, url, snippet: String::new() }));
        } else if link.has_class("result__snippet")
            && is_open
            && let Some(last) = found.last_mut()
        {
            last.snippet.clone_from(&link.text);
            is_open = false;
        }
    }
    found
}

/// The page to which a link of DuckDuckGo leads, which counts the click first; none for an advertisement.
fn leads_to(href: &str) -> Option<String> {
    let url = Url::parse("https://duckduckgo.com/").ok()?.join(href).ok()?;
    if url.host_str()?.trim_start_matches("html.") != "duckduckgo.com" {
        return Some(url.into());
    }
    let target = url.query_pairs().find(|(name, _)| url.path() == "/l/" && name == "uddg");
    target.map(|(_, target)| target.into_owned())
}
