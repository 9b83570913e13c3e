//! Logins where somebody means harm: the server, its authorization server, a page in the browser, another user, or
//! another process that comes between.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use entourage_tools::mcp::{Mcp, McpLogin, McpState};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    http::{Asked, Site},
    logins::{
        Made, Person, World, assert_no_secret, authority, back, echo, ends, field, json, metadata, origin,
        resource,
    },
    manners, started, state,
};

/// A server that names another authorization server once it is told to.
struct Turncoat {
    first: World,
    second: Site,
    site: Site,
    /// 0 for the first authorization server, 1 for the second one.
    named: Arc<AtomicUsize>,
}

impl Turncoat {
    fn new() -> Self {
        let first = World::new();
        let second = Site::new(|asked| match asked.head.starts_with("post /token ") {
            true => json("400 Bad Request", &json!({"error": "invalid_grant"})),
            false => json("200 OK", &metadata(&origin(asked))),
        });
        let named = Arc::<AtomicUsize>::default();
        let of = Arc::clone(&named);
        let there = [first.authority.port, second.port].map(|port| format!("http://127.0.0.1:{port}"));
        let made = Arc::clone(&first.made);
        let site = Site::new(move |asked| resource(asked, &there[of.load(Ordering::SeqCst)], &made));
        Self { first, second, site, named }
    }

    fn server(&self, login: McpLogin) -> entourage_tools::mcp::McpServer {
        self.site.server().with_login(login).unwrap()
    }
}

#[tokio::test]
async fn attack_41_the_tokens_of_one_authorization_server_are_sent_to_no_other() {
    let turncoat = Turncoat::new();
    let (mut person, login) = Person::new();
    let mcp =
        Mcp::start([turncoat.server(login.with_client("client-1", Some("sk-of-client".into())))]).unwrap();
    let address = person.address().await;
    ends(&address, &[("code", "c-1"), ("state", &field(&address, "state"))]).await;
    mcp.ready().await;
    assert_eq!(echo(&mcp).await.as_deref(), Ok("over http"), "{mcp:?}");
    // From now on it names another one, and wants more rights. Nobody answers there.
    turncoat.named.store(1, Ordering::SeqCst);
    turncoat.first.made.lock().unwrap().wanted = vec!["write"];
    let waits = tokio::spawn({
        let mcp = mcp.clone();
        async move { echo(&mcp).await }
    });
    let elsewhere = person.address().await;
    assert_eq!(elsewhere.port(), Some(turncoat.second.port));
    // Meanwhile the token of the first one is refused, which asks for another one.
    turncoat.first.forget();
    assert_eq!(echo(&mcp).await.as_deref(), Ok("over http"), "{mcp:?}");
    ends(&elsewhere, &[("error", "access_denied"), ("state", &field(&elsewhere, "state"))]).await;
    waits.await.unwrap().unwrap_err();
    turncoat.first.forget();
    assert_eq!(echo(&mcp).await.as_deref(), Ok("over http"), "{mcp:?}");
    let sent: Vec<_> = turncoat.second.asked.lock().unwrap().iter().map(|asked| asked.text.clone()).collect();
    assert_no_secret(&sent);
    assert!(turncoat.second.heads().iter().all(|head| !head.contains("authorization:")));
}

#[tokio::test]
async fn attack_41_a_login_for_more_rights_that_fails_leaves_the_one_there_is() {
    let made = Arc::<Mutex<Made>>::default();
    let (of, clients) = (Arc::clone(&made), AtomicUsize::new(0));
    // Each login has a client of its own, and a token of one client is of no use to another.
    let world = World::with(made, move |asked| {
        let (head, body) = authority(asked, &of);
        let client = match asked.head.starts_with("post /register ") {
            true => clients.fetch_add(1, Ordering::SeqCst),
            false => 1,
        };
        (head, body.replace("client-1", &format!("client-{client}")))
    });
    let (mut person, login) = Person::new();
    let mcp = Mcp::start([world.server(login)]).unwrap();
    let address = person.address().await;
    ends(&address, &[("code", "c-1"), ("state", &field(&address, "state"))]).await;
    mcp.ready().await;
    world.made.lock().unwrap().wanted = vec!["write"];
    let waits = tokio::spawn({
        let mcp = mcp.clone();
        async move { echo(&mcp).await }
    });
    let address = person.address().await;
    ends(&address, &[("error", "access_denied"), ("state", &field(&address, "state"))]).await;
    waits.await.unwrap().unwrap_err();
    world.forget();
    assert_eq!(echo(&mcp).await.as_deref(), Ok("over http"), "{mcp:?}");
    assert!(person.shown.try_recv().is_err());
}

/// Logs in where the authorization server answers with this for a token, and calls once.
async fn with_token(answer: Value) -> (Mcp, World, TempDir) {
    let made = Arc::<Mutex<Made>>::default();
    made.lock().unwrap().access.insert("good".to_owned());
    let world = World::with(made, move |asked| match asked.head.starts_with("post /token ") {
        true => json("200 OK", &answer),
        false => json("200 OK", &metadata(&origin(asked))),
    });
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("logins.json");
    let login = McpLogin::client_credentials("id-1", "sk-1").kept_in(&file);
    let mcp = started([world.server(login)]).await;
    (mcp, world, place)
}

fn kept(place: &TempDir) -> String {
    std::fs::read_to_string(place.path().join("logins.json")).unwrap_or_default()
}

#[tokio::test]
async fn attack_41_a_token_that_cannot_be_sent_is_not_kept() {
    let bad = [
        json!("good\r\nX-Evil: 1"),
        json!("good\n"),
        json!("good "),
        json!("gööd"),
        json!(""),
        json!("x".repeat(64 << 10)),
        json!("x".repeat(10 << 20)),
        json!(7),
        json!(null),
    ];
    let mut answers: Vec<_> =
        bad.iter().map(|token| json!({"access_token": token, "token_type": "Bearer"})).collect();
    answers.push(json!({"access_token": "good", "token_type": "mac"}));
    for answer in answers {
        let (mcp, world, place) = with_token(answer.clone()).await;
        let shown = answer.to_string().chars().take(60).collect::<String>();
        let McpState::Failed(reason) = state(&mcp) else { panic!("{shown}: {mcp:?}") };
        assert!(reason.contains("token"), "{shown}: {reason}");
        assert!(!kept(&place).contains("access_token"), "{shown}");
        assert!(world.site.heads().iter().all(|head| !head.contains("authorization:")), "{shown}");
    }
}

#[tokio::test]
async fn attack_41_odd_facts_about_a_token_do_no_harm() {
    for odd in [
        json!({"expires_in": -5}),
        json!({"expires_in": u64::MAX}),
        json!({"expires_in": 1e300}),
        json!({"expires_in": "3600"}),
        json!({"expires_in": {}}),
        json!({"refresh_token": "x".repeat(100 << 10)}),
        json!({"refresh_token": 5}),
        json!({"scope": "x".repeat(100 << 10)}),
        json!({"scope": ["a"]}),
        json!({"token_type": "bearer", "scope": null}),
    ] {
        let mut answer = json!({"access_token": "good", "token_type": "Bearer"});
        answer.as_object_mut().unwrap().extend(odd.as_object().unwrap().clone());
        let (mcp, world, place) = with_token(answer).await;
        let shown = odd.to_string().chars().take(60).collect::<String>();
        assert_eq!(echo(&mcp).await.as_deref(), Ok("over http"), "{shown}: {mcp:?}");
        assert!(kept(&place).len() < 4_096, "{shown}");
        assert_eq!(world.token_requests(), 1, "{shown}");
    }
}

#[tokio::test]
async fn attack_41_an_authorization_server_that_is_not_itself_is_not_asked() {
    let other = Site::new(|asked| json("200 OK", &metadata(&origin(asked))));
    let there = format!("http://127.0.0.1:{}", other.port);
    let away = |path: &'static str, there: String| {
        move |asked: &Asked| match asked.head.contains(path) {
            true => (format!("307 Temporary Redirect\r\nLocation: {there}{path}"), String::new()),
            false => json("200 OK", &metadata(&origin(asked))),
        }
    };
    let (token, about) =
        (away("/token", there.clone()), away("/.well-known/oauth-authorization-server", there));
    let login = || McpLogin::client_credentials("id-1", "sk-1");
    for world in [
        World::with(Arc::default(), token),
        World::with(Arc::default(), about),
        // Its metadata are those of somebody else.
        World::with(Arc::default(), |asked| {
            let mut metadata = metadata(&origin(asked));
            metadata["issuer"] = "https://login.example".into();
            json("200 OK", &metadata)
        }),
    ] {
        let mcp = started([world.server(login())]).await;
        assert!(matches!(state(&mcp), McpState::Failed(_)), "{mcp:?}");
        assert_no_secret(&[format!("{mcp:?}")]);
    }
    assert_eq!(other.heads(), [""; 0]);
}

#[tokio::test]
async fn attack_41_a_secret_goes_to_the_issuer_that_the_program_named() {
    let world = World::new();
    let issuer = format!("http://127.0.0.1:{}", world.authority.port);
    let login = || McpLogin::client_credentials("id-1", "sk-1");
    let mcp = started([world.server(login().with_issuer("https://login.example"))]).await;
    let McpState::Failed(reason) = state(&mcp) else { panic!("{mcp:?}") };
    assert!(reason.contains("with_issuer"), "{reason}");
    assert_eq!(world.token_requests(), 0);
    let mcp = started([world.server(login().with_issuer(format!("{issuer}/")))]).await;
    assert_eq!(echo(&mcp).await.as_deref(), Ok("over http"), "{mcp:?}");
}

#[tokio::test]
async fn attack_41_connections_that_say_nothing_hinder_no_browser() {
    let world = World::new();
    let (mut person, login) = Person::new();
    let mcp = Mcp::start([world.server(login)]).unwrap();
    let address = person.address().await;
    let port = back(&address).port().unwrap();
    let mut silent = Vec::new();
    for _ in 0..64 {
        silent.push(TcpStream::connect(("127.0.0.1", port)).await.unwrap());
    }
    let good = [("code", "c-1"), ("state", &*field(&address, "state"))];
    let told = tokio::time::timeout(Duration::from_secs(5), ends(&address, &good)).await.unwrap();
    assert!(told.starts_with("HTTP/1.1 200"), "{told}");
    mcp.ready().await;
    assert_eq!(echo(&mcp).await.as_deref(), Ok("over http"), "{mcp:?}");
}

#[tokio::test]
async fn attack_41_two_browsers_bring_one_token() {
    let world = World::new();
    let (mut person, login) = Person::new();
    let mcp = Mcp::start([world.server(login)]).unwrap();
    let address = person.address().await;
    let mut end = back(&address);
    end.query_pairs_mut().extend_pairs([("code", "c-1"), ("state", &*field(&address, "state"))]);
    let at = ("127.0.0.1", end.port().unwrap());
    let (mut one, mut other) = (TcpStream::connect(at).await.unwrap(), TcpStream::connect(at).await.unwrap());
    let request = format!("GET {}?{} HTTP/1.1\r\n\r\n", end.path(), end.query().unwrap());
    for browser in [&mut one, &mut other] {
        browser.write_all(request.as_bytes()).await.unwrap();
    }
    let mut told = String::new();
    one.read_to_string(&mut told).await.unwrap();
    assert!(told.contains("You can close this page"), "{told}");
    mcp.ready().await;
    assert_eq!(echo(&mcp).await.as_deref(), Ok("over http"), "{mcp:?}");
    assert_eq!(world.token_requests(), 1);
    assert!(TcpStream::connect(("127.0.0.1", back(&address).port().unwrap())).await.is_err());
}

#[tokio::test]
async fn ce01_a_login_of_another_process_is_taken_over() {
    let (world, place) = (World::new(), tempfile::tempdir().unwrap());
    let file = place.path().join("logins.json");
    let (mut late, login) = Person::new();
    // Nobody answers here, and the time is over at once.
    let login = login.kept_in(&file).with_timeout(Duration::ZERO);
    let waiting = started([world.server(login)]).await;
    assert_eq!(state(&waiting), McpState::NeedsAuth);
    late.address().await;
    let (person, login) = Person::new();
    let times = person.log_in();
    let other = started([world.server(login.kept_in(&file))]).await;
    assert_eq!((echo(&other).await.as_deref(), times.load(Ordering::SeqCst)), (Ok("over http"), 1));
    assert_eq!(waiting.reconnect("fake").await.unwrap(), McpState::Connected { tools: 1, left_out: 0 });
    assert_eq!(echo(&waiting).await.as_deref(), Ok("over http"), "{waiting:?}");
    assert!(late.shown.try_recv().is_err(), "asked although another process had logged in");
    // It is refreshed as its own.
    world.forget();
    assert_eq!(echo(&waiting).await.as_deref(), Ok("over http"), "{waiting:?}");
    world.forget();
    assert_eq!(echo(&other).await.as_deref(), Ok("over http"), "{other:?}");
    assert!(world.made.lock().unwrap().refresh.is_some(), "one was used twice");
}

#[tokio::test]
async fn ce01_a_person_logs_in_when_the_program_says_so() {
    let world = World::new();
    let (mut person, login) = Person::new();
    let mcp =
        started([world.server(login.with_timeout(Duration::ZERO)), world.site.server_named("plain")]).await;
    person.address().await;
    // Without a tool no call could ask again; and this does not wait for the minute to be over.
    assert_eq!((mcp.servers()[0].1.clone(), state(&mcp)), (McpState::NeedsAuth, McpState::NeedsAuth));
    assert_eq!(mcp.reconnect("fake").await.unwrap(), McpState::NeedsAuth);
    person.address().await;
    assert_eq!(mcp.reconnect("plain").await.unwrap(), McpState::NeedsAuth);
}

/// Names the address of the server and the file of logins for another process of this program.
const SITE: &str = "ENTOURAGE_MCP_SITE";
const FILE: &str = "ENTOURAGE_MCP_LOGINS";
/// Calls that each process makes, and those that each makes at once.
const CALLS: usize = 12;

#[tokio::test]
async fn attack_41_processes_that_refresh_at_once_use_no_token_twice() {
    let (world, place) = (World::new(), tempfile::tempdir().unwrap());
    let file = place.path().join("logins.json");
    // Each request finds its token expired.
    world.made.lock().unwrap().expires = Some(0);
    let (person, login) = Person::new();
    let times = person.log_in();
    let mcp = started([world.server(login.kept_in(&file))]).await;
    assert_eq!(echo(&mcp).await.as_deref(), Ok("over http"), "{mcp:?}");
    drop(mcp);
    let (program, args) = manners::program(module_path!());
    let args = args.map(|arg| arg.replace("the_server", "the_process_that_calls"));
    let children: Vec<_> = (0..2)
        .map(|_| {
            let mut child = std::process::Command::new(&program);
            child.args(&args).env(SITE, world.site.port.to_string()).env(FILE, &file);
            child.stdout(std::process::Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for child in children {
        let output = tokio::task::spawn_blocking(move || child.wait_with_output()).await.unwrap().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    let asked = world.authority.asked.lock().unwrap();
    let refreshes = asked.iter().filter(|asked| asked.text.contains("grant_type=refresh")).count();
    assert!(refreshes >= 2 * CALLS, "{refreshes}");
    assert!(world.made.lock().unwrap().refresh.is_some(), "one was used twice");
    assert_eq!(times.load(Ordering::SeqCst), 1);
}

#[tokio::test]
#[ignore = "the other processes of the test above"]
async fn the_process_that_calls() {
    let (Ok(site), Some(file)) = (std::env::var(SITE), std::env::var_os(FILE)) else { return };
    let login = McpLogin::new(|_, _| panic!("nobody is to be asked")).kept_in(file);
    let url = format!("http://127.0.0.1:{site}/mcp");
    let server = entourage_tools::mcp::McpServer::http("fake", &url).unwrap().with_login(login).unwrap();
    let mcp = started([server]).await;
    for _ in 0..CALLS / 4 {
        let (a, b, c, d) = tokio::join!(echo(&mcp), echo(&mcp), echo(&mcp), echo(&mcp));
        for call in [a, b, c, d] {
            assert_eq!(call.as_deref(), Ok("over http"), "{mcp:?}");
        }
    }
}

#[tokio::test]
async fn attack_41_a_file_of_logins_that_others_can_write_is_not_believed() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let (world, place) = (World::new(), tempfile::tempdir().unwrap());
    let file = place.path().join("logins.json");
    let login = || McpLogin::client_credentials("id-1", "sk-1").kept_in(&file);
    let mcp = started([world.server(login())]).await;
    assert_eq!(echo(&mcp).await.as_deref(), Ok("over http"), "{mcp:?}");
    let mode = |mode: u32| std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
    for open in [0o666, 0o620] {
        mode(open);
        let mcp = started([world.server(login())]).await;
        let McpState::Failed(reason) = state(&mcp) else { panic!("{open:o}: {mcp:?}") };
        assert!(reason.contains("others can write it"), "{reason}");
        assert_no_secret(&[reason]);
    }
    // One that others could read is closed.
    mode(0o644);
    let mcp = started([world.server(login())]).await;
    assert_eq!(echo(&mcp).await.as_deref(), Ok("over http"), "{mcp:?}");
    crate::logins::assert_private(&file);
    // A link is replaced by the file, and what it leads to stays as it is.
    let target = place.path().join("target");
    std::fs::rename(&file, &target).unwrap();
    symlink(&target, &file).unwrap();
    world.forget();
    let before = std::fs::read_to_string(&target).unwrap();
    let mcp = started([world.server(login())]).await;
    assert_eq!(echo(&mcp).await.as_deref(), Ok("over http"), "{mcp:?}");
    assert_eq!(std::fs::read_to_string(&target).unwrap(), before);
    crate::logins::assert_private(&file);
    for beside in [".lock", ".refresh"] {
        let beside = place.path().join(format!("logins.json{beside}"));
        if beside.exists() {
            crate::logins::assert_private(&beside);
        }
    }
}

#[tokio::test]
async fn a_program_that_panics_when_it_shows_the_address_stops_nobody_else() {
    let world = World::new();
    let login = McpLogin::new(|_, _| panic!("no display"));
    let mcp = Mcp::start([world.server(login)]).unwrap();
    tokio::time::timeout(Duration::from_secs(60), mcp.ready()).await.unwrap();
    assert!(!matches!(state(&mcp), McpState::Connected { .. }), "{mcp:?}");
}

/// Keeps all that anybody logs, at each level.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl tracing::field::Visit for Log {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0.lock().unwrap().push(format!("{field}={value:?}"));
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        span.record(&mut self.clone());
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, values: &tracing::span::Record<'_>) {
        values.record(&mut self.clone());
    }

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test]
async fn attack_41_no_secret_of_a_login_is_logged_or_told() {
    let log = Log::default();
    let _logs = tracing::subscriber::set_default(log.clone());
    // While there is just one, a line that a test of another thread is the first to log is switched off for all.
    let _other = tracing::Dispatch::new(Log::default());
    let (world, place) = (World::new(), tempfile::tempdir().unwrap());
    let (person, login) = Person::new();
    person.log_in();
    let login = login.with_client("client-1", Some("sk-of-client".to_owned()));
    let mcp = started([world.server(login.kept_in(place.path().join("logins.json")))]).await;
    assert_eq!(echo(&mcp).await.as_deref(), Ok("over http"), "{mcp:?}");
    world.forget();
    assert_eq!(echo(&mcp).await.as_deref(), Ok("over http"), "{mcp:?}");
    // The refresh is refused, with the token in the text of the refusal.
    world.forget();
    world.made.lock().unwrap().refresh = Some("another".to_owned());
    assert_eq!(echo(&mcp).await.as_deref(), Ok("over http"), "{mcp:?}");
    let lines = log.0.lock().unwrap().clone();
    assert!(lines.iter().any(|line| line.contains("exchange token result")), "nothing was logged");
    // Whole words, since what is random may look like part of one.
    let is_of_word = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    for word in lines.iter().flat_map(|line| line.split(|c| !is_of_word(c))) {
        let is_numbered = ["at-", "rt-", "c-"].iter().any(|kind| {
            word.strip_prefix(kind).is_some_and(|number| number.len() == 1 && number.parse::<u8>().is_ok())
        });
        assert!(!is_numbered && !word.starts_with("sk-of-"), "{word}");
    }
    assert_no_secret(&[format!("{mcp:?}")]);
}
