//! The address, the headers and the failures of a connection.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket},
};

use super::{
    super::{connections::Connections, tls},
    *,
};

fn endpoint(url: &str, key: Option<&str>, allow_insecure: bool) -> Result<Endpoint> {
    let key = key.map(|key| key.to_owned().into());
    Endpoint::new(Settings { base_url: url.to_owned(), key, allow_insecure, ..Settings::default() })
}

#[test]
fn bad_addresses_are_refused_before_anything_happens() {
    for url in [
        "",
        "localhost:8080/v1",
        "ftp://host/v1",
        "https://",
        "https://user:word@host/v1",
        "https://host/v1#x",
    ] {
        let error = endpoint(url, None, false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{url}");
        assert!(!format!("{error:?}").contains("word@"), "{error}");
    }
}

#[test]
fn a_key_does_not_travel_unencrypted_unless_allowed() {
    assert_eq!(endpoint("http://10.0.0.1/v1", Some("k"), false).unwrap_err().kind(), ErrorKind::Config);
    assert!(endpoint("http://10.0.0.1/v1", None, false).is_ok());
    assert!(endpoint("http://10.0.0.1/v1", Some("k"), true).is_ok());
    assert!(endpoint("http://[::1]:80/v1", Some("k"), false).is_ok());
    assert!(endpoint("https://host/v1", Some("k"), false).is_ok());
    assert_eq!(endpoint("https://host/v1", Some("a\nb"), false).unwrap_err().kind(), ErrorKind::Config);
}

#[test]
fn a_key_is_sent_as_the_wire_wants_it() {
    let headers = |auth| {
        let key = Some("k-secret".to_owned().into());
        let base_url = "https://host/v1".to_owned();
        Endpoint::new(Settings { base_url, key, auth, ..Settings::default() }).unwrap().headers
    };
    let bearer = headers(Auth::Bearer);
    assert_eq!(bearer.get("authorization").unwrap(), "Bearer k-secret");
    let header = headers(Auth::Header("x-api-key"));
    assert_eq!(
        (header.get("x-api-key").unwrap().as_bytes(), header.get("authorization")),
        (&b"k-secret"[..], None)
    );
    assert!(header.get("x-api-key").unwrap().is_sensitive());
}

#[test]
fn a_target_adds_to_the_address_and_never_replaces_what_the_caller_chose() {
    let base_url = "https://host/v1/?alt=json&k=v".to_owned();
    let headers = vec![("X-Version".to_owned(), "theirs".to_owned().into())];
    let known = Endpoint::new(Settings { base_url, headers, ..Settings::default() }).unwrap();
    let target = Target {
        path: &["models", "a/b:stream"],
        query: &[("alt", "sse"), ("x", "1 2")],
        headers: &[("x-version", "ours"), ("x-other", "ours")],
    };
    assert_eq!(known.url(target).as_str(), "https://host/v1/models/a%2Fb:stream?alt=json&k=v&x=1+2");
    let headers = known.headers_with(target.headers).unwrap();
    assert_eq!(
        (headers.get("x-version").unwrap(), headers.get("x-other").unwrap()),
        (&"theirs".parse().unwrap(), &"ours".parse().unwrap())
    );
    assert_eq!(known.headers_with(&[("x-bad", "a\nb")]).unwrap_err().kind(), ErrorKind::Config);
    let plain = endpoint("https://host/v1", None, false).unwrap();
    assert_eq!(plain.url(Target::path(&["a"])).as_str(), "https://host/v1/a");
}

/// A resolver that knows no name.
#[derive(Debug)]
struct NoNames;

impl reqwest::dns::Resolve for NoNames {
    fn resolve(&self, _: reqwest::dns::Name) -> reqwest::dns::Resolving {
        Box::pin(async { Err("no such host is known".into()) })
    }
}

async fn failure(endpoint: &Endpoint) -> Error {
    endpoint.post(Target::default(), b"{}".to_vec(), &CallContext::default()).await.err().unwrap()
}

#[tokio::test]
async fn a_request_without_a_connection_counts_as_unsent() {
    let mut unnamed = endpoint("http://model.example/v1", None, false).unwrap();
    let client = reqwest::Client::builder().tls_backend_preconfigured(tls::config().unwrap());
    let client = client.no_proxy().dns_resolver(NoNames).build().unwrap();
    unnamed.transport = Transport::Own(Connections::new(client));
    let error = failure(&unnamed).await;
    assert!(error.message().contains("could not connect to http://model.example"), "{error}");
    assert!(error.record().unsent, "{error:?}");

    // Bound and never listening: no other process can take the port.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let closed = endpoint(&format!("http://{}", socket.local_addr().unwrap()), None, false).unwrap();
    assert!(failure(&closed).await.record().unsent);

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let plain = endpoint(&format!("https://{}", listener.local_addr().unwrap()), None, false).unwrap();
    let answer = async {
        let (mut connection, _) = listener.accept().await.unwrap();
        connection.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        connection
    };
    let (error, _connection) = tokio::join!(failure(&plain), answer);
    assert!(error.record().unsent, "TLS failed before the request: {error:?}");
}

#[tokio::test]
async fn a_request_on_a_connection_that_breaks_may_have_been_received() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let known = endpoint(&format!("http://{}", listener.local_addr().unwrap()), None, false).unwrap();
    let breaks = async {
        let (mut connection, _) = listener.accept().await.unwrap();
        assert!(connection.read(&mut [0; 64]).await.unwrap() > 0);
    };
    let (error, ()) = tokio::join!(failure(&known), breaks);
    assert_eq!(error.kind(), ErrorKind::Transport, "{error}");
    assert!(!error.record().unsent, "{error:?}");
}
