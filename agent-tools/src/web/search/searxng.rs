//! An instance of SearXNG, which asks other services: the one service whose address the program gives.

use async_trait::async_trait;
use entourage_core::{
    Error, ErrorKind,
    tool::{Access, Footprint},
};
use reqwest::{
    Url,
    header::{ACCEPT, HeaderValue},
};
use serde::Deserialize;
use serde_json::Value;

use super::{
    SearchResult, SearchService,
    services::{answer, read},
};
use crate::web::{
    client::Client,
    transport::{Ask, Guard},
};

/// SearXNG, <https://docs.searxng.org/dev/search_api.html>.
///
/// Its client may ask any address, and is asked for no other than the instance's: redirects are not followed.
#[derive(Debug)]
pub(in crate::web) struct SearXng {
    client: Client,
    url: Url,
    /// The host in the form of subjects.
    host: String,
}

impl SearXng {
    pub(in crate::web) fn new(address: &str, client: &Client) -> Result<Self, Error> {
        let wrong = |what: &str| {
            let text = format!("the address of SearXNG {what}; write it as https://host/path");
            Error::new(ErrorKind::Config, text).during("web.search")
        };
        let mut url = Url::parse(address.trim()).map_err(|error| wrong("is none").caused_by(error))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(wrong("is none of the web"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(wrong("holds a user or a password, which results would show"));
        }
        let named = Footprint::new(Access::NETWORK).naming_host(url.as_str());
        let host = named.hosts.into_iter().next().filter(|_| !named.unclear);
        let host = host.ok_or_else(|| wrong("has a host that can be read in several ways"))?;
        url.set_query(None);
        url.set_fragment(None);
        let path = format!("{}/search", url.path().trim_end_matches('/'));
        url.set_path(&path);
        Ok(Self { client: client.guarded(Guard::Chosen)?, url, host })
    }
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    results: Vec<Found>,
    /// The services that did not answer, with their reasons.
    #[serde(default)]
    unresponsive_engines: Vec<Value>,
}

#[derive(Deserialize)]
struct Found {
    title: Option<String>,
    url: Option<String>,
    content: Option<String>,
}

#[async_trait]
impl SearchService for SearXng {
    fn name(&self) -> &str {
        "searxng"
    }

    fn host(&self) -> &str {
        &self.host
    }

    async fn search(&self, query: &str, count: usize) -> Result<Vec<SearchResult>, Error> {
        let mut url = self.url.clone();
        url.query_pairs_mut().append_pair("q", query).append_pair("format", "json");
        let ask = Ask::get(url).header(ACCEPT, HeaderValue::from_static("application/json"));
        let text = answer(&self.client, ask).await.map_err(|error| match error.kind() {
            ErrorKind::Authentication => {
                let text =
                    "it refuses the program, or JSON: add `json` to `search.formats` of its settings.yml";
                Error::new(ErrorKind::Authentication, text)
            }
            _ => error,
        })?;
        let Answer { results, unresponsive_engines: silent } = read(&text)?;
        // Services that block the instance are no proof that there is nothing.
        if results.is_empty() && !silent.is_empty() {
            let text = format!("it found nothing, and {} of its services did not answer", silent.len());
            return Err(Error::new(ErrorKind::Overloaded, text));
        }
        let found = results.into_iter().filter_map(|it| {
            let (title, snippet) = (it.title.unwrap_or_default(), it.content.unwrap_or_default());
            Some(SearchResult { title, url: it.url?, snippet })
        });
        Ok(found.take(count).collect())
    }
}
