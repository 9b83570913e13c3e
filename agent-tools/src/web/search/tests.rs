//! The services against servers of this machine, and the order in which the tool asks them.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpListener,
    sync::mpsc::{Receiver, channel},
    thread,
};

use super::*;
use crate::web::{Guard, client::Client};

fn client() -> Client {
    Client::new(Guard::Internet(Arc::default()), false).unwrap()
}

/// A server that answers each request so, and hands on what it was asked.
fn server(status: &'static str, header: &'static str, body: &'static str) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut head = String::new();
            while reader.read_line(&mut head).is_ok_and(|read| read > 2) {}
            let length = head
                .to_lowercase()
                .split("content-length: ")
                .nth(1)
                .and_then(|rest| rest.split("\r\n").next()?.parse().ok());
            let mut asked = vec![0; length.unwrap_or(0)];
            reader.read_exact(&mut asked).unwrap();
            let _ = sender.send(head + &String::from_utf8(asked).unwrap());
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {status}\r\n{header}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}"
            );
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (base, receiver)
}

fn result(title: &str, url: &str, snippet: &str) -> SearchResult {
    SearchResult { title: title.to_owned(), url: url.to_owned(), snippet: snippet.to_owned() }
}

#[tokio::test]
async fn ai09_brave_and_exa_are_asked_as_they_document_it() {
    let body = r#"{"query":{"original":"x"},"web":{"results":[
        {"title":"A &amp; <strong>B</strong>","url":"https://a.example/","description":"One.","page_age":"2025"},
        {"url":"https://b.example/"}]}}"#;
    let (base, asked) = server("200 OK", "", body);
    let brave = Brave::new(client(), "secret-key", base).unwrap();
    let found = brave.search("a b&c", 2).await.unwrap();
    assert_eq!(found[0], result("A &amp; <strong>B</strong>", "https://a.example/", "One."));
    assert_eq!(found[1], result("", "https://b.example/", ""));
    let asked = asked.recv().unwrap();
    assert!(asked.starts_with("GET /res/v1/web/search?q=a+b%26c&count=2 HTTP/1.1"), "{asked}");
    assert!(asked.contains("x-subscription-token: secret-key"), "{asked}");
    assert!(!format!("{brave:?}").contains("secret"));

    let body = r#"{"results":[{"title":null,"url":"https://a.example/","highlights":["One.","Two."],"text":"Three."},
        {"title":"B","url":"https://b.example/","text":"Text."}]}"#;
    let (base, asked) = server("200 OK", "", body);
    let exa = Exa::new(client(), " other-key\n", base).unwrap();
    let found = exa.search("query", 7).await.unwrap();
    assert_eq!(found[0], result("", "https://a.example/", "One. … Two."));
    assert_eq!(found[1], result("B", "https://b.example/", "Text."));
    let asked = asked.recv().unwrap();
    assert!(asked.starts_with("POST /search HTTP/1.1") && asked.contains("x-api-key: other-key"), "{asked}");
    let body: Value = serde_json::from_str(asked.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!(body, json!({ "query": "query", "numResults": 7, "contents": { "highlights": true } }));
    for key in ["", " ", "a\nb"] {
        assert_eq!(Brave::new(client(), key, "").unwrap_err().kind(), ErrorKind::Config);
    }
}

#[tokio::test]
async fn ai09_tavily_is_asked_as_it_documents_it_and_a_used_up_plan_rests() {
    let body = r#"{"query":"x","answer":null,"images":[],"response_time":1.67,"results":[
        {"title":"A","url":"https://a.example/","content":"One.","score":0.9,"raw_content":null},
        {"title":null,"url":"https://b.example/"}]}"#;
    let (base, asked) = server("200 OK", "", body);
    let tavily = Tavily::new(client(), " tvly-secret\n", base).unwrap();
    let found = tavily.search("a \"b\"", 20).await.unwrap();
    assert_eq!(found, [result("A", "https://a.example/", "One."), result("", "https://b.example/", "")]);
    let asked = asked.recv().unwrap();
    assert!(asked.starts_with("POST /search HTTP/1.1"), "{asked}");
    assert!(asked.contains("authorization: Bearer tvly-secret\r\n"), "{asked}");
    let body: Value = serde_json::from_str(asked.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!(body, json!({ "query": "a \"b\"", "max_results": 20 }));
    assert!(!format!("{tavily:?}").contains("secret"));
    for (status, header, kind, wait) in [
        ("432 Plan Limit Exceeded", "", ErrorKind::RateLimited, Some(3_600)),
        ("433 Pay-As-You-Go Limit Exceeded", "Retry-After: 9\r\n", ErrorKind::RateLimited, Some(9)),
        ("429 Too Many Requests", "", ErrorKind::RateLimited, None),
        ("401 Unauthorized", "", ErrorKind::Authentication, None),
        ("400 Bad Request", "", ErrorKind::Protocol, None),
    ] {
        let (base, _asked) = server(status, header, "{}");
        let error = Tavily::new(client(), "key", base).unwrap().search("rust", 1).await.unwrap_err();
        assert_eq!((error.kind(), error.retry_after()), (kind, wait.map(Duration::from_secs)), "{status}");
    }
    for key in ["", " ", "a\nb"] {
        assert_eq!(Tavily::new(client(), key, "").unwrap_err().kind(), ErrorKind::Config);
    }
}

#[tokio::test]
async fn ai09_searxng_of_this_machine_is_asked_below_its_path() {
    let body = r#"{"query":"x","number_of_results":0,"results":[
        {"url":"https://a.example/","title":"A","content":"One.","engine":"e","engines":["e"],"score":1.0},
        {"title":"An answer without a page"},
        {"url":"https://b.example/","title":"B","content":null},
        {"url":"https://c.example/","title":"C"}],
        "answers":[],"unresponsive_engines":[["google","CAPTCHA"]]}"#;
    let (base, asked) = server("200 OK", "", body);
    for (path, asked_for) in [("", ""), ("/", ""), ("/searx/?q=other#top", "/searx")] {
        let searxng = SearXng::new(&format!("{base}{path}"), &client()).unwrap();
        let found = searxng.search("a b&c", 2).await.unwrap();
        assert_eq!(found, [result("A", "https://a.example/", "One."), result("B", "https://b.example/", "")]);
        let asked = asked.recv().unwrap();
        let line = format!("GET {asked_for}/search?q=a+b%26c&format=json HTTP/1.1");
        assert!(asked.starts_with(&line), "{asked}");
        assert_eq!(searxng.host(), "127.0.0.1");
    }
    // A name of this machine is not for the guarded client either.
    let named = base.replace("127.0.0.1", "localhost");
    assert_eq!(SearXng::new(&named, &client()).unwrap().search("x", 1).await.unwrap().len(), 1);
    let error = DuckDuckGo::new(client(), named).search("x", 1).await.unwrap_err();
    assert!(error.to_string().contains("not an address of another machine"), "{error}");
}

#[tokio::test]
async fn cf06_searxng_without_services_or_json_is_no_empty_result() {
    for (status, body, kind, says) in [
        (
            "200 OK",
            r#"{"results":[],"unresponsive_engines":[["a","timeout"],["b","CAPTCHA"]]}"#,
            ErrorKind::Overloaded,
            "2 of its",
        ),
        ("403 Forbidden", "", ErrorKind::Authentication, "settings.yml"),
        ("429 Too Many Requests", "", ErrorKind::RateLimited, "no searches"),
        ("200 OK", "<html>", ErrorKind::Protocol, "not what"),
    ] {
        let (base, _asked) = server(status, "", body);
        let error = SearXng::new(&base, &client()).unwrap().search("rust", 10).await.unwrap_err();
        assert!(error.kind() == kind && error.message().contains(says), "{status}: {error}");
    }
    let (base, _asked) = server("200 OK", "", r#"{"results":[]}"#);
    assert_eq!(SearXng::new(&base, &client()).unwrap().search("rust", 10).await.unwrap(), []);
}

#[tokio::test]
async fn attack_44_searxng_leads_nowhere_else() {
    let (elsewhere, asked) = server("200 OK", "", r#"{"results":[]}"#);
    for status in ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"] {
        let header: &'static str = Box::leak(format!("Location: {elsewhere}/search\r\n").into_boxed_str());
        let (base, _asked) = server(status, header, "");
        let error = SearXng::new(&base, &client()).unwrap().search("rust", 10).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Protocol && error.message().contains("redirects"), "{error}");
    }
    assert!(asked.try_recv().is_err(), "nobody was asked");
    for (address, host) in [
        ("HTTPS://Searx.Example.:8443/a", Some("searx.example")),
        ("http://[::1]:8888", Some("::1")),
        ("http://2130706433", Some("127.0.0.1")),
        ("http://user:pw@a.example", None),
        ("http://user@a.example", None),
        ("file:///etc/passwd", None),
        ("searx.example", None),
        ("", None),
    ] {
        let searxng = SearXng::new(address, &client());
        assert_eq!(searxng.as_ref().ok().map(|it| it.host()), host, "{address}");
        if let Err(error) = searxng {
            assert!(error.kind() == ErrorKind::Config && !error.to_string().contains("pw"), "{error}");
        }
    }
}

#[tokio::test]
async fn cf06_duckduckgos_page_is_read_and_its_refusals_are_no_empty_results() {
    let body = r#"<html><body><div class="result results_links">
        <a class="result__a" href="https://duckduckgo.com/y.js?ad_domain=x&amp;u3=y">An advertisement</a>
        <a class="result__snippet" href="https://duckduckgo.com/y.js?x">Buy.</a></div>
        <div class="result"><h2><a rel="nofollow" class="result__a"
          href="//duckduckgo.com/l/?uddg=https%3A%2F%2Fa.example%2Fx%3Fy%3D1&amp;rut=1">A <b>bold</b> &lt;title&gt;</a></h2>
        <a class="result__snippet" href="//duckduckgo.com/l/?uddg=x">Its <b>text</b>.</a></div>
        <div class="result"><a class="result__a" href="https://b.example/">B</a></div></body></html>"#;
    let (base, asked) = server("200 OK", "", body);
    let found = DuckDuckGo::new(client(), base).search("rust", 10).await.unwrap();
    assert!(asked.recv().unwrap().starts_with("GET /html/?q=rust HTTP/1.1"));
    assert_eq!(found[0], result("A bold <title>", "https://a.example/x?y=1", "Its text."));
    assert_eq!(found[1], result("B", "https://b.example/", ""));
    assert_eq!(found.len(), 2);
    for (status, header, body, kind, wait) in [
        ("202 Accepted", "", "<html></html>", ErrorKind::RateLimited, None),
        ("200 OK", "", "<div class=\"anomaly-modal__title\">", ErrorKind::RateLimited, None),
        ("429 Too Many Requests", "Retry-After: 7\r\n", "", ErrorKind::RateLimited, Some(7)),
        ("429 Too Many Requests", "Retry-After: soon\r\n", "", ErrorKind::RateLimited, None),
        ("403 Forbidden", "", "", ErrorKind::Authentication, None),
        ("302 Found", "Location: http://127.0.0.1/\r\n", "", ErrorKind::Protocol, None),
        ("500 No", "", "", ErrorKind::Protocol, None),
    ] {
        let (base, _asked) = server(status, header, body);
        let error = DuckDuckGo::new(client(), base).search("rust", 10).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.retry_after()),
            (kind, wait.map(Duration::from_secs)),
            "{status} {body}"
        );
    }
    let (base, _asked) = server("200 OK", "", "<html>");
    let error = Brave::new(client(), "key", base).unwrap().search("rust", 10).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Protocol);
    let error = DuckDuckGo::new(client(), "http://127.0.0.1:1").search("secret words", 1).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Transport && !error.to_string().contains("secret"), "{error}");
}

#[test]
fn ai09_a_service_without_a_key_is_left_out() {
    let of = |keys: &[(&str, &str)]| {
        let variable =
            |name: &str| keys.iter().find(|(key, _)| *key == name).map(|(_, key)| (*key).to_owned());
        let services = of_environment(&client(), variable);
        services.map(|all| all.iter().map(|it| it.name().to_owned()).collect::<Vec<_>>().join(" "))
    };
    assert_eq!(of(&[]).unwrap(), "duckduckgo");
    assert_eq!(of(&[("EXA_API_KEY", "k"), ("BRAVE_API_KEY", " ")]).unwrap(), "exa duckduckgo");
    assert_eq!(of(&[("EXA_API_KEY", "k"), ("BRAVE_SEARCH_API_KEY", "k")]).unwrap(), "brave exa duckduckgo");
    let all = [("TAVILY_API_KEY", "k"), ("SEARXNG_URL", "http://localhost:8888"), ("BRAVE_API_KEY", "k")];
    assert_eq!(of(&all).unwrap(), "brave tavily searxng duckduckgo");
    for wrong in [("EXA_API_KEY", "k\u{7f}"), ("TAVILY_API_KEY", "k\nl"), ("SEARXNG_URL", "localhost:8888")] {
        assert_eq!(of(&[wrong]).unwrap_err().kind(), ErrorKind::Config, "{wrong:?}");
    }
}

#[test]
fn attack_44_what_a_page_says_of_itself_is_one_line_of_text() {
    for (text, line) in [
        ("a <b>b</b>\n\n c", "a b c"),
        ("1 < 2 && 3 > 2", "1 < 2 && 3 > 2"),
        ("&lt;b&gt; &#39;&#x27;&quot;&nbsp;x &unknown; &#99999999; &", "<b> ''\" x &unknown; &#99999999; &"),
        ("\u{1b}[2J\u{0}x\u{85}y", "[2J x y"),
        ("<unclosed", "<unclosed"),
        ("ü<i>ü", "üü"),
    ] {
        assert_eq!(plain(text, 100), line, "{text:?}");
    }
    assert_eq!(plain("üüüü", 3), "üüü…");
    for url in ["javascript:alert(1)", "file:///etc/passwd", "a.example", ""] {
        assert_eq!(shown(&result("t", url, "s")), None);
    }
    assert_eq!(shown(&result("t", &format!("https://a.example/{}", "x".repeat(ADDRESS)), "")), None);
}

#[test]
fn attack_46_a_long_snippet_is_read_in_no_time() {
    for (mark, shown) in
        [("&", "&"), ("<a", "<a"), ("&#", "&#"), ("&amp", "&amp"), ("<", "<"), ("&a;", "&a;")]
    {
        let text = mark.repeat((2 << 20) / mark.len());
        let line = plain(&text, SNIPPET);
        assert!(line.starts_with(shown) && line.chars().count() == SNIPPET + 1, "{mark}");
    }
    assert_eq!(plain(&format!("{}end", "<b>".repeat(1_000)), SNIPPET), "end");
}
