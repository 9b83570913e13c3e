//! Answers that refuse: statuses, waits, web pages, redirects.

use std::time::{Duration, SystemTime};

use entourage_core::{
    Error, ErrorKind, RetryStatus,
    provider::{CallContext, Layer},
};
use entourage_runtime::layers;
use entourage_runtime::reply::ProviderExt;
use tokio::net::{TcpListener, TcpStream};

use crate::{
    server::{Fault, request, send, serve},
    wires::{HEADER, KEY, OllamaChat, WIRES, Wire},
};

fn answer(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}")
}

async fn refused(wire: Wire, status: &str, headers: &str, body: &str) -> Error {
    let fault =
        Fault::new(wire, format!("{status} {}", headers.trim()), [send(answer(status, headers, body))]);
    let (error, outcome) = fault.fail().await;
    assert!(!outcome.begun, "{}", outcome.name);
    let (number, _) = status.split_once(' ').unwrap();
    assert!(error.context().any(|value| value == ("status", number)), "{}: {error}", outcome.name);
    error
}

#[tokio::test]
async fn attack_46_statuses_tell_the_kind_and_secrets_in_the_words_are_taken_out() {
    use RetryStatus::{Permanent, Temporary};
    for wire in WIRES {
        let body = wire.refusal(&format!("no, {KEY}, not with {HEADER}\u{1b}[2J"));
        for (status, kind, retry) in [
            ("401 Unauthorized", ErrorKind::Authentication, Permanent),
            ("403 Forbidden", ErrorKind::PermissionDenied, Permanent),
            ("404 Not Found", ErrorKind::NotFound, Permanent),
            ("408 Request Timeout", ErrorKind::Timeout, Temporary),
            ("413 Content Too Large", ErrorKind::TooLarge, Permanent),
            ("429 Too Many Requests", ErrorKind::RateLimited, Temporary),
            ("500 Internal Server Error", ErrorKind::Overloaded, Temporary),
            ("502 Bad Gateway", ErrorKind::Overloaded, Temporary),
            ("503 Service Unavailable", ErrorKind::Overloaded, Temporary),
            ("529 Overloaded", ErrorKind::Overloaded, Temporary),
        ] {
            let error = refused(wire, status, "x-request-id: req-7\r\n", &body).await;
            assert_eq!((error.kind(), error.retry()), (kind, retry), "{wire:?} {status}: {error}");
            assert!(error.message().contains("no, [key], not with [key]"), "{wire:?} {status}: {error}");
            assert!(error.context().any(|value| value == ("request", "req-7")), "{error}");
        }
        let told = refused(wire, "500 Internal Server Error", "x-should-retry: false\r\n", "").await;
        assert_eq!(told.retry(), Permanent);
    }
}

#[tokio::test]
async fn attack_46_how_long_to_wait_is_read_in_every_form() {
    let date = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(120));
    let long_ago = "Sun, 06 Nov 1994 08:49:37 GMT";
    let seconds = Duration::from_secs;
    for wire in WIRES {
        for (headers, from, to) in [
            ("Retry-After: 7\r\n", Some(seconds(7)), seconds(7)),
            (&format!("Retry-After: {date}\r\n"), Some(seconds(30)), seconds(120)),
            (&format!("Retry-After: {long_ago}\r\n"), Some(seconds(0)), seconds(0)),
            ("Retry-After: 1000000000\r\n", Some(seconds(1_000_000_000)), seconds(1_000_000_000)),
            ("Retry-After: 1e9\r\n", Some(seconds(1_000_000_000)), seconds(1_000_000_000)),
            ("Retry-After: 7\r\nretry-after-ms: 250\r\n", Some(Duration::from_millis(250)), seconds(1)),
            ("Retry-After: 1e300\r\n", None, seconds(0)),
            ("Retry-After: -1\r\n", None, seconds(0)),
            ("Retry-After: soon\r\n", None, seconds(0)),
            ("Retry-After: \r\n", None, seconds(0)),
            ("", None, seconds(0)),
        ] {
            let other = headers.ends_with(": 7\r\n").then_some("503 Service Unavailable");
            for status in ["429 Too Many Requests"].into_iter().chain(other) {
                let error = refused(wire, status, headers, &wire.refusal("slow down")).await;
                assert_eq!(error.retry(), RetryStatus::Temporary);
                let wait = error.retry_after();
                assert_eq!(wait.is_some(), from.is_some(), "{wire:?} {headers}: {wait:?}");
                let fits = wait.is_none_or(|wait| from.is_some_and(|from| (from..=to).contains(&wait)));
                assert!(fits, "{wire:?} {headers}: {wait:?}");
            }
        }
    }
}

/// A wait of 30 years is not obeyed: the layer's own delay is used.
#[tokio::test]
async fn attack_46_a_wait_of_thirty_years_is_not_obeyed() {
    for wire in WIRES {
        let limited = answer("429 Too Many Requests", "Retry-After: 1000000000\r\n", &wire.refusal("no"));
        let server = serve(vec![vec![send(limited)], vec![send(wire.good())]]).await;
        let retry = layers::Retry::new().with_first_delay(Duration::from_millis(1));
        let call = retry.layer(wire.provider(&server.url));
        let cx = CallContext::new();
        let call = call.complete(request(), &cx);
        let reply = tokio::time::timeout(Duration::from_secs(30), call).await.unwrap().unwrap();
        assert_eq!((reply.restarts.len(), reply.into_message().text().as_str()), (1, "Hello"));
        server.task.await.unwrap();
    }
}

#[tokio::test]
async fn a_web_page_is_told_apart_and_not_quoted() {
    let page = "<!DOCTYPE html>\n<html><h1>Bad gateway</h1></html>";
    let html = "Content-Type: text/html\r\n";
    for wire in WIRES {
        let error = refused(wire, "502 Bad Gateway", html, page).await;
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Overloaded, RetryStatus::Temporary));
        assert!(error.message().contains("web page") && !error.message().contains("<h1>"), "{error}");

        for page in [page, &format!("\u{feff}\r\n {page}")] {
            let acts = [send(answer("200 OK", html, page))];
            let (error, outcome) = Fault::new(wire, "200 with a web page", acts).fail().await;
            let got = (error.kind(), error.retry(), outcome.text.as_str());
            assert_eq!(got, (ErrorKind::Protocol, RetryStatus::Permanent, ""), "{}: {error}", outcome.name);
            assert!(error.message().contains("base URL") && !error.message().contains("<h1>"), "{error}");
        }
    }
}

#[tokio::test]
async fn a_refusal_with_status_200_is_one() {
    for wire in WIRES {
        let acts = [send(answer("200 OK", "", &wire.refusal(&format!("slow down, {KEY}"))))];
        let (error, outcome) = Fault::new(wire, "200 with a refusal", acts).fail().await;
        // Ollama's words hold no code.
        let kind = if wire == OllamaChat { ErrorKind::Protocol } else { ErrorKind::RateLimited };
        assert_eq!(error.kind(), kind, "{}: {error}", outcome.name);
        assert!(error.message().contains("slow down, [key]"), "{error}");
    }
}

#[tokio::test]
async fn attack_37_a_redirect_never_carries_the_key_away() {
    let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = elsewhere.local_addr().unwrap();
    for wire in WIRES {
        for status in
            ["301 Moved", "302 Found", "303 See Other", "307 Temporary Redirect", "308 Permanent Redirect"]
        {
            let location = format!("Location: http://{to}/v1/x?key=very-secret\r\n");
            let error = refused(wire, status, &location, "").await;
            assert_eq!((error.kind(), error.retry()), (ErrorKind::Transport, RetryStatus::Permanent));
            assert!(error.message().contains(&to.to_string()), "{error}");
            assert!(error.message().contains("base URL"), "{error}");
        }
    }
    // Nobody ever connected: a connection made now is the first in the queue.
    let mine = TcpStream::connect(to).await.unwrap();
    let (_, first) = elsewhere.accept().await.unwrap();
    assert_eq!(first, mine.local_addr().unwrap());
}

#[tokio::test]
async fn attack_36_no_redirect_is_followed_whatever_it_leads_to() {
    let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = elsewhere.local_addr().unwrap();
    for wire in WIRES {
        for location in [
            format!("//{to}/relative-to-the-protocol"),
            format!("http://{to}/downgrade"),
            format!("http://user:pass@{to}/"),
            "http://169.254.169.254/latest/meta-data/".to_owned(),
            "http://[::1]/".to_owned(),
            "file:///etc/passwd".to_owned(),
            "ftp://files.example/".to_owned(),
            "/the/same/host".to_owned(),
            "http://[".to_owned(),
            String::new(),
        ] {
            // The server takes one connection and no more, so a chain of any length ends at its first hop.
            let error =
                refused(wire, "307 Temporary Redirect", &format!("Location: {location}\r\n"), "").await;
            assert_eq!(
                (error.kind(), error.retry()),
                (ErrorKind::Transport, RetryStatus::Permanent),
                "{location}"
            );
        }
    }
    let mine = TcpStream::connect(to).await.unwrap();
    let (_, first) = elsewhere.accept().await.unwrap();
    assert_eq!(first, mine.local_addr().unwrap());
}

/// A proxy from the environment is the user's own setting for services elsewhere. A service on this machine is never
/// reached through one, so a run that may only talk to this machine does so.
#[tokio::test]
async fn attack_39_a_proxy_of_the_environment_sees_no_call_to_this_machine() {
    const CHILD: &str = "ENTOURAGE_TEST_BEHIND_A_PROXY";
    const TEST: &str = "refusals::attack_39_a_proxy_of_the_environment_sees_no_call_to_this_machine";
    if std::env::var_os(CHILD).is_some() {
        for wire in WIRES {
            let error = refused(wire, "404 Not Found", "", "").await;
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        }
        return;
    }
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = proxy.local_addr().unwrap();
    // The environment of a process is its own: this test runs once more in one that has the variables.
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    again
        .args(["--exact", TEST, "--test-threads=1"])
        .env(CHILD, "1")
        .env_remove("NO_PROXY")
        .env_remove("no_proxy");
    for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        again.env(name, format!("http://{at}"));
    }
    let ran = tokio::task::spawn_blocking(move || again.output().unwrap()).await.unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("1 passed"), "{said}");
    let mine = TcpStream::connect(at).await.unwrap();
    let (_, first) = proxy.accept().await.unwrap();
    assert_eq!(first, mine.local_addr().unwrap());
}
