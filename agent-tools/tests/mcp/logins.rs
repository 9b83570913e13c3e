//! Logins: a server that wants tokens, an authorization server that makes them, and a person.

use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::{SocketAddr, TcpListener},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use entourage_core::tool::Toolset;
use entourage_tools::mcp::{Mcp, McpLogin, McpServer, McpState};
use reqwest::Url;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::mpsc,
};

use crate::{
    call, eventually,
    http::{Asked, Site, speaks},
    started, state,
};

/// Tokens that the authorization server has made.
#[derive(Debug, Default)]
pub(crate) struct Made {
    pub(crate) tokens: usize,
    pub(crate) access: BTreeSet<String>,
    pub(crate) refresh: Option<String>,
    /// Seconds that a token holds.
    pub(crate) expires: Option<u64>,
    /// Scopes without which the server refuses a call.
    pub(crate) wanted: Vec<&'static str>,
    pub(crate) granted: String,
}

/// A server and its authorization server.
pub(crate) struct World {
    pub(crate) made: Arc<Mutex<Made>>,
    pub(crate) authority: Site,
    pub(crate) site: Site,
}

/// A person who was shown addresses.
pub(crate) struct Person {
    pub(crate) shown: mpsc::UnboundedReceiver<Url>,
}

impl Person {
    pub(crate) fn new() -> (Self, McpLogin) {
        let (tell, shown) = mpsc::unbounded_channel();
        let login = McpLogin::new(move |server, address| {
            assert_eq!(server, "fake");
            tell.send(Url::parse(address).unwrap()).unwrap();
        });
        (Self { shown }, login)
    }

    pub(crate) async fn address(&mut self) -> Url {
        tokio::time::timeout(Duration::from_secs(60), self.shown.recv()).await.unwrap().unwrap()
    }

    /// Logs in as often as it is asked to.
    pub(crate) fn log_in(mut self) -> Arc<AtomicUsize> {
        let times = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&times);
        tokio::spawn(async move {
            while let Some(address) = self.shown.recv().await {
                counted.fetch_add(1, Ordering::SeqCst);
                ends(&address, &[("code", "c-1"), ("state", &field(&address, "state"))]).await;
            }
        });
        times
    }
}

pub(crate) fn field(address: &Url, name: &str) -> String {
    address.query_pairs().find(|(key, _)| key == name).unwrap().1.into_owned()
}

pub(crate) fn back(address: &Url) -> Url {
    Url::parse(&field(address, "redirect_uri")).unwrap()
}

/// The browser ends at this machine with these fields. Returns what it is told.
pub(crate) async fn ends(address: &Url, fields: &[(&str, &str)]) -> String {
    let mut back = back(address);
    back.query_pairs_mut().extend_pairs(fields);
    let at = SocketAddr::from(([127, 0, 0, 1], back.port().unwrap()));
    let mut stream = TcpStream::connect(at).await.unwrap();
    let request = format!("GET {}?{} HTTP/1.1\r\nHost: x\r\n\r\n", back.path(), back.query().unwrap());
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

async fn is_open(address: &Url) -> bool {
    TcpStream::connect(("127.0.0.1", back(address).port().unwrap())).await.is_ok()
}

pub(crate) fn origin(asked: &Asked) -> String {
    let host = asked.head.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    format!("http://{host}")
}

pub(crate) fn json(status: &str, body: &Value) -> (String, String) {
    (format!("{status}\r\nContent-Type: application/json"), body.to_string())
}

/// The metadata of the authorization server, with its token and registration endpoints beside it.
pub(crate) fn metadata(origin: &str) -> Value {
    json!({"issuer": origin, "authorization_endpoint": format!("{origin}/authorize"),
        "token_endpoint": format!("{origin}/token"), "registration_endpoint": format!("{origin}/register"),
        "response_types_supported": ["code"], "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": ["client_secret_basic"]})
}

/// The authorization server. A token for a refresh is good once, and a second use of it ends all tokens.
pub(crate) fn authority(asked: &Asked, made: &Mutex<Made>) -> (String, String) {
    let line = asked.head.lines().next().unwrap();
    if line.contains(".well-known/oauth-authorization-server ") {
        return json("200 OK", &metadata(&origin(asked)));
    }
    if line.starts_with("post /register ") {
        let uris = asked.body["redirect_uris"].clone();
        let client = json!({"client_id": "client-1", "client_secret": "sk-of-client", "redirect_uris": uris});
        return json("201 Created", &client);
    }
    if !line.starts_with("post /token ") {
        return ("404 Not Found".to_owned(), String::new());
    }
    let mut form = Url::parse("http://localhost").unwrap();
    form.set_query(Some(&asked.text));
    let given =
        |name: &str| form.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned());
    let mut made = made.lock().unwrap();
    let is_good = match given("grant_type").unwrap().as_str() {
        "authorization_code" => {
            given("code").as_deref() == Some("c-1") && given("code_verifier").unwrap().len() >= 43
        }
        "refresh_token" => given("refresh_token") == made.refresh,
        "client_credentials" => true,
        _ => false,
    };
    if !is_good {
        made.access.clear();
        made.refresh = None;
        let secret = given("code").or_else(|| given("refresh_token"));
        return json("400 Bad Request", &json!({"error": "invalid_grant", "error_description": secret}));
    }
    made.tokens += 1;
    let (access, refresh) = (format!("at-{}", made.tokens), format!("rt-{}", made.tokens));
    let is_refreshed = given("grant_type").as_deref() != Some("client_credentials");
    made.access.insert(access.clone());
    made.refresh = is_refreshed.then(|| refresh.clone());
    let mut token = json!({"access_token": access, "token_type": "Bearer", "expires_in": made.expires,
        "refresh_token": is_refreshed.then_some(refresh), "id_token": "sk-of-person"});
    if !made.granted.is_empty() {
        token["scope"] = made.granted.clone().into();
    }
    json("200 OK", &token)
}

/// The server, which wants a token.
pub(crate) fn resource(asked: &Asked, authority: &str, made: &Mutex<Made>) -> (String, String) {
    let origin = origin(asked);
    let about = format!("{origin}/.well-known/oauth-protected-resource");
    if asked.head.starts_with("get /.well-known/oauth-protected-resource ") {
        return json(
            "200 OK",
            &json!({"resource": format!("{origin}/mcp"), "authorization_servers": [authority]}),
        );
    }
    let mut made = made.lock().unwrap();
    let token = asked.head.lines().find_map(|line| line.strip_prefix("authorization: bearer "));
    if !token.is_some_and(|token| made.access.contains(token)) {
        let head = format!(
            "401 Unauthorized\r\nWWW-Authenticate: Bearer resource_metadata=\"{about}\", scope=\"read\""
        );
        return (head, String::new());
    }
    if asked.body["method"] == "tools/call"
        && let Some(scope) = made.wanted.pop()
    {
        let head = format!(
            "403 Forbidden\r\nWWW-Authenticate: Bearer error=\"insufficient_scope\", scope=\"{scope}\", resource_metadata=\"{about}\""
        );
        return (head, String::new());
    }
    speaks(asked)
}

impl World {
    pub(crate) fn new() -> Self {
        let made = Arc::<Mutex<Made>>::default();
        let of = Arc::clone(&made);
        Self::with(made, move |asked| authority(asked, &of))
    }

    pub(crate) fn with(
        made: Arc<Mutex<Made>>,
        answer: impl Fn(&Asked) -> (String, String) + Send + Sync + 'static,
    ) -> Self {
        let authority = Site::new(answer);
        let (of, there) = (Arc::clone(&made), format!("http://127.0.0.1:{}", authority.port));
        Self { made, authority, site: Site::new(move |asked| resource(asked, &there, &of)) }
    }

    pub(crate) fn server(&self, login: McpLogin) -> McpServer {
        self.site.server().with_login(login).unwrap()
    }

    pub(crate) fn token_requests(&self) -> usize {
        self.authority.heads().iter().filter(|head| head.starts_with("post /token ")).count()
    }

    /// The server does not know its tokens any more.
    pub(crate) fn forget(&self) {
        self.made.lock().unwrap().access.clear();
    }
}

pub(crate) async fn echo(mcp: &Mcp) -> Result<String, String> {
    call(mcp, "mcp_fake_echo", json!({})).await
}

/// Asserts that a person's rights and the program's secrets are in none of these.
pub(crate) fn assert_no_secret(texts: &[String]) {
    for text in texts {
        for secret in ["at-", "rt-", "sk-", "c-1"] {
            assert!(!text.contains(secret), "{secret}: {text}");
        }
    }
}

#[tokio::test]
async fn ce01_a_person_logs_in_once_and_the_tokens_are_kept() {
    let (world, place) = (World::new(), tempfile::tempdir().unwrap());
    let file = place.path().join("logins.json");
    let (mut person, login) = Person::new();
    let mcp = Mcp::start([world.server(login.kept_in(&file))]).unwrap();
    let address = person.address().await;
    assert_eq!(state(&mcp), McpState::NeedsAuth);
    assert_eq!(address.path(), "/authorize");
    for (name, expected) in [
        ("response_type", "code"),
        ("code_challenge_method", "S256"),
        ("client_id", "client-1"),
        ("scope", "read"),
        ("resource", &world.site.url()),
    ] {
        assert_eq!(field(&address, name), expected, "{name}");
    }
    let told = ends(&address, &[("code", "c-1"), ("state", &field(&address, "state"))]).await;
    assert!(told.contains("You can close this page"), "{told}");
    mcp.ready().await;
    assert_eq!(echo(&mcp).await.as_deref(), Ok("over http"), "{mcp:?}");
    assert!(!is_open(&address).await);
    assert_no_secret(&[format!("{mcp:?}")]);
    assert_private(&file);
    // What others log and keep has no more than it needs.
    assert!(!std::fs::read_to_string(&file).unwrap().contains("sk-of-person"));
    drop(mcp);
    let (mut person, login) = Person::new();
    let mcp = started([world.server(login.kept_in(&file))]).await;
    assert_eq!(echo(&mcp).await.as_deref(), Ok("over http"), "{mcp:?}");
    assert!(person.shown.try_recv().is_err());
    assert_eq!(world.token_requests(), 1);
    // It is refreshed with the secret that the registration brought.
    world.forget();
    assert_eq!(echo(&mcp).await.as_deref(), Ok("over http"), "{mcp:?}");
    let heads = world.authority.heads();
    let refresh = heads.iter().rfind(|head| head.starts_with("post /token ")).unwrap();
    assert!(refresh.contains("authorization: basic "), "{refresh}");
    assert_eq!(world.token_requests(), 2);
}

pub(crate) fn assert_private(file: &Path) {
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn ce01_tokens_are_refreshed_and_a_person_is_asked_when_that_fails() {
    let world = World::new();
    let (person, login) = Person::new();
    let times = person.log_in();
    let mcp = started([world.server(login)]).await;
    world.forget();
    assert_eq!(echo(&mcp).await.as_deref(), Ok("over http"));
    assert_eq!(times.load(Ordering::SeqCst), 1);
    // The stream of the session may have been refused with the same token, and asks for another one by itself.
    assert!((2..=3).contains(&world.token_requests()), "{}", world.token_requests());
    world.forget();
    world.made.lock().unwrap().refresh = None;
    // The call waits for the person, and is performed once.
    assert_eq!(echo(&mcp).await.as_deref(), Ok("over http"));
    assert_eq!(times.load(Ordering::SeqCst), 2);
    assert_eq!(state(&mcp), McpState::Connected { tools: 1, left_out: 0 });
}

#[tokio::test]
async fn ce01_two_processes_that_refresh_lose_no_token() {
    let (world, place) = (World::new(), tempfile::tempdir().unwrap());
    let file = place.path().join("logins.json");
    // Each request finds its token expired.
    world.made.lock().unwrap().expires = Some(0);
    let (person, login) = Person::new();
    let times = person.log_in();
    let login = login.kept_in(&file);
    let one = started([world.server(login.clone())]).await;
    let other = started([world.server(login)]).await;
    for mcp in [&one, &other] {
        assert!(matches!(state(mcp), McpState::Connected { .. }), "{mcp:?}");
    }
    let calls = (0..4).map(|_| async { tokio::join!(echo(&one), echo(&other)) });
    for call in calls {
        let (one, other) = call.await;
        assert_eq!((one.as_deref(), other.as_deref()), (Ok("over http"), Ok("over http")));
    }
    let forms = world
        .authority
        .asked
        .lock()
        .unwrap()
        .iter()
        .filter(|asked| asked.text.contains("grant_type=refresh"))
        .count();
    assert!(forms > 8, "{forms}");
    assert!(world.made.lock().unwrap().refresh.is_some(), "one was used twice");
    assert_eq!(times.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn attack_41_the_end_of_a_login_is_believed_by_its_state_alone() {
    let world = World::new();
    let (mut person, login) = Person::new();
    let mcp = Mcp::start([world.server(login)]).unwrap();
    let address = person.address().await;
    let good = field(&address, "state");
    for state in ["", "x", &format!("{good}x")] {
        let told = ends(&address, &[("code", "c-1"), ("state", state)]).await;
        assert!(told.starts_with("HTTP/1.1 404"), "{told}");
    }
    assert!(ends(&address, &[("error", "access_denied")]).await.starts_with("HTTP/1.1 404"));
    let port = back(&address).port().unwrap();
    // One that says nothing, and one that says too much, hinder nobody.
    let _silent = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let mut loud = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let _ = loud.write_all(&[b'x'; 64 << 10]).await;
    assert_eq!((state(&mcp), world.token_requests()), (McpState::NeedsAuth, 0));
    ends(&address, &[("code", "c-1"), ("state", &good)]).await;
    mcp.ready().await;
    assert_eq!(echo(&mcp).await.as_deref(), Ok("over http"), "{mcp:?}");
}

#[tokio::test]
async fn attack_41_an_answer_of_another_issuer_and_a_refusal_bring_no_token() {
    for (fields, expected) in [
        (vec![("code", "c-1"), ("iss", "https://evil.example")], Some("issuer")),
        (vec![("error", "access_denied")], None),
    ] {
        let world = World::new();
        let (mut person, login) = Person::new();
        let mcp = Mcp::start([world.server(login)]).unwrap();
        let address = person.address().await;
        let state_of = field(&address, "state");
        ends(&address, &[fields, vec![("state", &state_of)]].concat()).await;
        mcp.ready().await;
        match (state(&mcp), expected) {
            (McpState::Failed(reason), Some(part)) => {
                assert!(reason.contains(part), "{reason}");
                assert_no_secret(&[reason]);
                // Whoever asks for the tools has nobody asked again.
                tokio::time::pause();
                for _ in 0..100 {
                    tokio::time::advance(Duration::from_secs(61)).await;
                    assert!(mcp.tools().is_empty());
                }
                tokio::time::resume();
                assert!(matches!(state(&mcp), McpState::Failed(_)), "{mcp:?}");
                assert!(person.shown.try_recv().is_err());
            }
            (state, None) => assert_eq!(state, McpState::NeedsAuth),
            other => panic!("{other:?}"),
        }
        assert_eq!(world.token_requests(), 0);
    }
}

#[tokio::test]
async fn attack_41_what_a_server_names_is_neither_shown_nor_asked_unless_it_is_safe() {
    let bad = [
        "file:///etc/passwd",
        "javascript:alert(1)",
        "ms-msdt:/id%20PCWDiagnostic",
        "http://login.example/authorize",
        "https://10.0.0.1/authorize",
        "http://169.254.169.254/latest",
        "https://bank.example@evil.example/authorize",
        "$(touch x)",
        "",
    ];
    for place in ["authorization_endpoint", "token_endpoint", "registration_endpoint"] {
        for address in bad {
            let world = World::with(Arc::default(), move |asked| {
                let mut metadata = metadata(&origin(asked));
                metadata[place] = address.into();
                json("200 OK", &metadata)
            });
            let (mut person, login) = Person::new();
            let mcp = started([world.server(login)]).await;
            let McpState::Failed(reason) = state(&mcp) else { panic!("{place} {address}: {mcp:?}") };
            assert!(reason.contains("an address for its login"), "{place} {address}: {reason}");
            assert!(person.shown.try_recv().is_err());
            assert_eq!(world.authority.heads().len(), 1, "{:?}", world.authority.heads());
        }
    }
}

/// A server that names this as its metadata, or as its authorization servers.
async fn named(header: &str, servers: Value) -> (McpState, Site) {
    let header = header.to_owned();
    let site = Site::new(move |asked| {
        let origin = origin(asked);
        if asked.head.starts_with("get /.well-known/oauth-protected-resource/mcp ") {
            return json(
                "200 OK",
                &json!({"resource": format!("{origin}/mcp"), "authorization_servers": servers}),
            );
        }
        if asked.head.starts_with("post /mcp ") {
            return (format!("401 Unauthorized\r\nWWW-Authenticate: Bearer {header}"), String::new());
        }
        ("404 Not Found".to_owned(), String::new())
    });
    let (mut person, login) = Person::new();
    let mcp = started([site.server().with_login(login).unwrap()]).await;
    assert!(person.shown.try_recv().is_err());
    (state(&mcp), site)
}

#[tokio::test]
async fn attack_41_metadata_leads_to_no_other_scheme_and_is_bounded() {
    let many: Vec<String> = (0..2_000).map(|n| format!("http://127.0.0.1:1/{n}")).collect();
    for (header, servers) in [
        (
            "realm=\"x\"",
            json!(["file:///etc/passwd", "javascript:alert(1)", "http://10.0.0.1", "gopher://x"]),
        ),
        ("resource_metadata=\"file:///etc/passwd\"", json!(["http://169.254.169.254"])),
        ("resource_metadata=\"http://192.168.0.1/x\"", json!(["data:text/html,x"])),
        ("realm=\"x\"", json!(many)),
    ] {
        let (state, site) = named(header, servers).await;
        assert!(matches!(state, McpState::Failed(_)), "{header}: {state}");
        assert!(site.heads().len() < 40, "{:?}", site.heads());
    }
    let endless = TcpListener::bind("127.0.0.1:0").unwrap();
    let there = format!("resource_metadata=\"http://{}/x\"", endless.local_addr().unwrap());
    let sent = thread::spawn(move || {
        let mut stream = endless.accept().unwrap().0;
        let (mut sent, mut block) = (0_usize, [b' '; 4_096]);
        let asked = stream.read(&mut block).unwrap();
        block[..asked].fill(b' ');
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n").unwrap();
        while stream.write_all(&block).is_ok() {
            sent += block.len();
        }
        sent
    });
    let (state, _) = named(&there, json!([])).await;
    let McpState::Failed(reason) = state else { panic!("{state}") };
    assert!(reason.contains("more than 256 KiB"), "{reason}");
    assert!(sent.join().unwrap() < 64 << 20);
}

#[tokio::test]
async fn attack_41_a_token_goes_to_no_other_address() {
    let (world, place) = (World::new(), tempfile::tempdir().unwrap());
    let file = place.path().join("logins.json");
    let (person, login) = Person::new();
    person.log_in();
    let login = login.kept_in(&file);
    let mcp = started([world.server(login.clone())]).await;
    assert_eq!(echo(&mcp).await.as_deref(), Ok("over http"));
    // The same name at another address.
    let other = Site::new(speaks);
    let mcp = started([other.server().with_login(login.clone()).unwrap()]).await;
    assert_eq!(echo(&mcp).await.as_deref(), Ok("over http"));
    // A redirect.
    let (there, made) = (other.url(), Arc::clone(&world.made));
    let authority = format!("http://127.0.0.1:{}", world.authority.port);
    let sends_away = Site::new(move |asked| match resource(asked, &authority, &made) {
        (head, _) if head.starts_with("200 OK") && asked.body["method"] == "tools/list" => {
            (format!("307 Temporary Redirect\r\nLocation: {there}"), String::new())
        }
        answer => answer,
    });
    let mcp = started([sends_away.server().with_login(login).unwrap()]).await;
    assert!(matches!(state(&mcp), McpState::Failed(_)), "{mcp:?}");
    assert!(sends_away.heads().iter().any(|head| head.contains("authorization: bearer at-2")));
    let heads = other.heads();
    assert!(!heads.is_empty() && heads.iter().all(|head| !head.contains("authorization:")), "{heads:?}");
    assert!(world.authority.heads().iter().all(|head| !head.contains("bearer")));
}

#[tokio::test]
async fn ce01_a_person_who_never_answers_is_not_waited_for_for_ever() {
    let world = World::new();
    let (mut person, login) = Person::new();
    // The time to connect does not run meanwhile.
    let server = world.server(login.with_timeout(Duration::from_secs(3_600)));
    let mcp = Mcp::start([server]).unwrap();
    let address = person.address().await;
    assert!(is_open(&address).await);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(3_590)).await;
    assert_eq!(state(&mcp), McpState::NeedsAuth);
    assert!(is_open(&address).await);
    mcp.ready().await;
    tokio::time::resume();
    assert_eq!(state(&mcp), McpState::NeedsAuth);
    assert!(!is_open(&address).await);
}

#[tokio::test]
async fn ce01_a_login_that_is_cancelled_leaves_no_listener() {
    for is_shut_down in [true, false] {
        let world = World::new();
        let (mut person, login) = Person::new();
        let mcp = Mcp::start([world.server(login)]).unwrap();
        let address = person.address().await;
        assert!(is_open(&address).await);
        if is_shut_down {
            mcp.shut_down().await;
            assert_eq!(state(&mcp), McpState::Disabled);
        }
        drop(mcp);
        let gone = async {
            while is_open(&address).await {
                tokio::task::yield_now().await;
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(60), gone).await.is_ok());
    }
}

#[tokio::test]
async fn ce01_a_program_logs_in_with_its_secret() {
    let world = World::new();
    let mcp = started([world.server(McpLogin::client_credentials("id-1", "sk-1"))]).await;
    assert_eq!(echo(&mcp).await.as_deref(), Ok("over http"), "{mcp:?}");
    world.forget();
    assert_eq!(echo(&mcp).await.as_deref(), Ok("over http"), "{mcp:?}");
    assert_eq!(world.token_requests(), 2);
    assert!(world.authority.heads().iter().all(|head| !head.starts_with("post /register")));
    // One that refuses its own tokens is not asked for ever.
    let refuses = World::with(Arc::default(), |asked| match asked.head.starts_with("post /token ") {
        true => json("200 OK", &json!({"access_token": "at-0", "token_type": "Bearer"})),
        false => json("200 OK", &metadata(&origin(asked))),
    });
    let mcp = started([refuses.server(McpLogin::client_credentials("id-1", "sk-1"))]).await;
    assert_eq!((state(&mcp), refuses.token_requests()), (McpState::NeedsAuth, 1));
    let denied = World::with(Arc::default(), |asked| match asked.head.starts_with("post /token ") {
        true => {
            json("401 Unauthorized", &json!({"error": "invalid_client", "error_description": "not sk-1"}))
        }
        false => json("200 OK", &metadata(&origin(asked))),
    });
    let mcp = started([denied.server(McpLogin::client_credentials("id-1", "sk-1"))]).await;
    let McpState::Failed(reason) = state(&mcp) else { panic!("{mcp:?}") };
    assert_no_secret(&[reason]);
}

#[tokio::test]
async fn ce01_more_rights_are_asked_for_a_few_times_alone() {
    let world = World::new();
    let (person, login) = Person::new();
    let times = person.log_in();
    let mcp = started([world.server(login)]).await;
    world.made.lock().unwrap().wanted = vec!["write"];
    assert_eq!(echo(&mcp).await.as_deref(), Ok("over http"));
    assert_eq!(times.load(Ordering::SeqCst), 2);
    // Each time another one.
    world.made.lock().unwrap().wanted = vec!["e", "d", "c", "b", "a"];
    let refused = echo(&mcp).await.unwrap_err();
    assert!(refused.contains("more rights than the user granted"), "{refused}");
    assert_eq!(times.load(Ordering::SeqCst), 5);
    // One that was granted is not asked for again.
    world.made.lock().unwrap().wanted = vec!["a"];
    let refused = echo(&mcp).await.unwrap_err();
    assert!(refused.contains("names none that were not granted"), "{refused}");
    assert_eq!(times.load(Ordering::SeqCst), 5);
}

#[test]
fn ce01_a_login_is_for_an_address_that_others_cannot_read() {
    let login = || McpLogin::client_credentials("id-1", "sk-1");
    let at = |url: &str| McpServer::http("fake", url).unwrap().with_login(login());
    for good in ["https://x.example/mcp", "http://localhost:1/mcp", "http://127.0.0.1:1", "http://[::1]:1"] {
        assert!(at(good).is_ok(), "{good}");
    }
    for bad in ["http://x.example/mcp", "http://10.0.0.1/mcp", "http://localhost.example"] {
        let error = at(bad).unwrap_err();
        assert!(error.message().contains("use https"), "{bad}: {error}");
    }
    let error = McpServer::command("fake", "x", [""; 0]).with_login(login()).unwrap_err();
    assert!(error.message().contains("with_env"), "{error}");
    let both = at("https://x.example").unwrap().with_header("Authorization", "Bearer sk-2").unwrap();
    let error = Mcp::start([both.clone()]).unwrap_err();
    assert!(error.message().contains("one of them"), "{error}");
    assert_no_secret(&[format!("{both:?} {:?} {error:?}", login())]);
}

#[tokio::test]
async fn ce01_a_file_of_logins_with_other_contents_says_so() {
    let (world, place) = (World::new(), tempfile::tempdir().unwrap());
    let file = place.path().join("logins.json");
    std::fs::write(&file, r#"{"fake": "sk-1"}"#).unwrap();
    let (_person, login) = Person::new();
    let mcp = started([world.server(login.kept_in(&file))]).await;
    let McpState::Failed(reason) = state(&mcp) else { panic!("{mcp:?}") };
    assert!(reason.contains("log in again"), "{reason}");
    assert_no_secret(&[reason]);
    eventually("nothing was asked", || world.site.heads().is_empty()).await;
}
