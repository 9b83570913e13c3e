//! Commands that reach some hosts through the proxy, against servers of this machine.

use std::{
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    thread,
};

use entourage_core::ErrorKind;

use super::{Backend, Place, Sandbox, backends, has};

/// A server that answers each connection with what it was sent, up to an empty line.
pub(super) fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = |stream: TcpStream| {
        let mut reader = BufReader::new(stream);
        let mut head = String::new();
        while reader.read_line(&mut head).is_ok_and(|read| read > 2) {}
        let mut stream = reader.into_inner();
        let length = head.len();
        let _ =
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{head}");
    };
    thread::spawn(move || {
        listener.incoming().flatten().for_each(|stream| drop(thread::spawn(move || answer(stream))));
    });
    port
}

/// The place and its sandbox with hosts, if this machine has all that it takes.
pub(super) async fn place(hosts: &[&str]) -> Option<(Place, Sandbox)> {
    let there =
        has("/usr/bin/perl") && has("/usr/bin/curl") && backends().await.contains(&Backend::Bubblewrap);
    let place = Place::new();
    let sandbox = place.write(Backend::Any).hosts(hosts);
    there.then_some((place, sandbox))
}

/// A program of its own: sends a head to the proxy, byte for byte, and prints what comes back.
fn raw(head: &str) -> String {
    let head = head.replace('\r', "\\r").replace('\n', "\\n");
    format!("exec 3<>/dev/tcp/127.0.0.1/3128; printf '{head}' >&3; timeout 5 cat <&3")
}

#[tokio::test]
async fn commands_reach_the_hosts_of_their_sandbox_through_the_proxy() {
    let Some((place, sandbox)) = place(&["127.0.0.1", "a.example"]).await else { return };
    let port = server();
    let ran = place.run(&sandbox, &format!("curl -sS --noproxy '' http://127.0.0.1:{port}/a?b=c#d")).await;
    assert!(ran.out.starts_with("GET /a?b=c HTTP/1.1"), "{ran:?}");
    assert!(ran.out.contains(&format!("Host: 127.0.0.1:{port}")), "{ran:?}");
    assert!(!ran.out.to_lowercase().contains("proxy"), "{ran:?}");
    let tunnel = format!("curl -sS --noproxy '' --proxytunnel http://127.0.0.1:{port}/through");
    let ran = place.run(&sandbox, &tunnel).await;
    assert!(ran.out.starts_with("GET /through HTTP/1.1"), "{ran:?}");
    assert_eq!(ran.enforced.hosts, ["127.0.0.1", "a.example"]);
    assert!(!ran.enforced.network, "{ran:?}");
    assert_eq!(ran.enforced.backend, Backend::Bubblewrap);
    assert!(ran.enforced.refused().is_empty());
    // The variables name the proxy, and a body passes.
    let body = format!("NO_PROXY= no_proxy= curl -sS -d @inside http://127.0.0.1:{port}/");
    let ran = place.run(&sandbox, &body).await;
    assert!(ran.out.starts_with("POST / HTTP/1.1") && ran.out.contains("Content-Length: 4"), "{ran:?}");
}

#[tokio::test]
async fn attack_33_hosts_leave_no_way_beside_the_proxy() {
    let Some((place, sandbox)) = place(&["a.example", "*.b.example"]).await else { return };
    let port = server();
    let get = "curl -sS -m 5 --noproxy '' -w '%{http_code}'";
    let attempts = [
        // Directly: to this machine, the internet, and name servers.
        format!("curl -s -m 5 --noproxy '*' http://127.0.0.1:{port}/"),
        format!("echo x > /dev/tcp/127.0.0.1/{port}"),
        "timeout 5 bash -c 'echo x > /dev/tcp/1.1.1.1/53'".to_owned(),
        "getent ahosts a.example".to_owned(),
        // A network of its own has no other way out.
        "/usr/bin/python3 -c 'import socket; s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.connect((\"1.1.1.1\",53))'".to_owned(),
    ];
    let none: [String; 0] = [];
    assert_eq!(place.escapes(&sandbox, &attempts).await, none);
    for target in [
        format!("http://127.0.0.1:{port}/"),
        format!("http://localhost:{port}/"),
        format!("http://[::1]:{port}/"),
        format!("http://2130706433:{port}/"),
        format!("http://0x7f000001:{port}/"),
        format!("http://127.1:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "http://b.example/".to_owned(),
        "http://a.example.evil.example/".to_owned(),
        "http://evila.example/".to_owned(),
    ] {
        for flag in ["", "--proxytunnel"] {
            let ran = place.run(&sandbox, &format!("{get} {flag} '{target}'")).await;
            let refused = ran.out.contains("403") || ran.err.contains("403") || ran.out.contains("400");
            assert!(refused, "{target} {flag} {ran:?}");
        }
    }
}

#[tokio::test]
async fn attack_34_a_host_that_leads_to_this_machine_is_refused() {
    let Some((place, sandbox)) = place(&["localhost"]).await else { return };
    let port = server();
    let script = raw(&format!("CONNECT localhost:{port} HTTP/1.1\r\n\r\n"));
    let ran = place.run(&sandbox, &script).await;
    assert!(ran.out.starts_with("HTTP/1.1 403") && ran.out.contains("list the address"), "{ran:?}");
    let refused = ran.enforced.refused();
    assert!(refused.len() == 1 && refused.iter().all(|why| ran.out.contains(why)), "{refused:?}");
    let both = place.write(Backend::Any).hosts(["localhost", "127.0.0.1", "::1"]);
    let ran = place.run(&both, &script.replace("timeout 5 cat", "head -1")).await;
    assert!(ran.out.starts_with("HTTP/1.1 200"), "{ran:?}");
}

#[tokio::test]
async fn the_proxy_refuses_what_it_cannot_read_and_goes_on() {
    let Some((place, sandbox)) = place(&["127.0.0.1"]).await else { return };
    let port = server();
    let long = "x".repeat(20_000);
    for (head, status) in [
        ("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".to_owned(), "400"),
        ("GET https://127.0.0.1/ HTTP/1.1\r\n\r\n".to_owned(), "400"),
        ("GET http:///x HTTP/1.1\r\n\r\n".to_owned(), "400"),
        ("GET http://u:p@127.0.0.1/ HTTP/1.1\r\n\r\n".to_owned(), "400"),
        ("GET http://127.0.0.1\\@a.example/ HTTP/1.1\r\n\r\n".replace('\\', "\\\\"), "400"),
        ("CONNECT 127.0.0.1 HTTP/1.1\r\n\r\n".to_owned(), "400"),
        ("CONNECT 127.0.0.1:0 HTTP/1.1\r\n\r\n".to_owned(), "400"),
        ("CONNECT 127.0.0.1:99999 HTTP/1.1\r\n\r\n".to_owned(), "400"),
        ("CONNECT [127.0.0.1:80 HTTP/1.1\r\n\r\n".to_owned(), "403"),
        ("CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n".to_owned(), "502"),
        ("\u{1}\u{2}\r\n\r\n".to_owned(), "400"),
        (format!("GET http://127.0.0.1/ HTTP/1.1\r\nX: {long}\r\n\r\n"), "431"),
        (format!("GET http://127.0.0.1:{port}/\u{e9} HTTP/1.1\r\nHost: a.example\r\nTE: x\r\n\r\n"), "200"),
    ] {
        let ran = place.run(&sandbox, &raw(&head)).await;
        let first = ran.out.lines().next().unwrap_or_default().to_owned();
        assert_eq!(first.split(' ').nth(1), Some(status), "{head:?} {ran:?}");
        assert!(!ran.out.contains("a.example\r"), "the client's Host does not pass: {ran:?}");
    }
}

#[tokio::test]
async fn hosts_need_bubblewrap_and_nothing_starts_without() {
    let place = Place::new();
    let sandbox = place.write(Backend::Landlock).hosts(["a.example"]);
    let error = sandbox.spawn("/bin/touch", |command| command.arg("made")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("bubblewrap"), "{error}");
    assert!(!place.root().join("made").exists());
    // None is the same as no network.
    let none = place.write(Backend::Landlock).hosts::<&str>([]);
    let ran = place.run(&none, "echo on").await;
    assert_eq!((ran.out.as_str(), ran.enforced.hosts.len()), ("on", 0));
}

#[tokio::test]
async fn a_command_with_hosts_begins_as_any_other() {
    let Some((place, sandbox)) = place(&["a.example"]).await else { return };
    let script = "ls -l /proc/self/fd | grep -c socket; kill -PIPE $BASHPID; echo not";
    for sandbox in [&sandbox, &place.write(Backend::Bubblewrap)] {
        let ran = place.run(sandbox, script).await;
        assert_eq!((ran.out.as_str(), ran.code), ("0", Some(141)), "{ran:?}");
    }
    let (child, _) = sandbox
        .spawn("/no/such/program", |command| command.stderr(std::process::Stdio::piped()))
        .await
        .unwrap();
    let output = child.wait_with_output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(127) && said.contains("cannot be started"), "{said}");
    // Several at a time have a network each.
    let get = || place.run(&sandbox, "curl -sS -m 5 -o /dev/null -w '%{http_code}' http://b.example/");
    let (one, other, third) = tokio::join!(get(), get(), get());
    assert_eq!([one.out, other.out, third.out], ["403", "403", "403"]);
}

/// The number of descriptors that this process holds open.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[tokio::test]
async fn each_level_has_hosts_with_limits_and_a_cleared_environment() {
    let Some((place, _)) = place(&[]).await else { return };
    let port = server();
    let levels =
        [Sandbox::read_only(place.root()), Sandbox::workspace_write(place.root()), Ok(Sandbox::full())];
    for level in levels {
        let sandbox = level.unwrap().backend(Backend::Bubblewrap).hosts(["127.0.0.1"]);
        let sandbox = sandbox.memory(4 << 30).file_size(1 << 20).processes(10_000);
        let get = format!("/usr/bin/curl -sS --noproxy '' -x http://127.0.0.1:3128 http://127.0.0.1:{port}/");
        let (child, enforced) = sandbox
            .spawn("/bin/sh", |command| {
                command.args(["-c", &get]).env_clear().stdout(std::process::Stdio::piped())
            })
            .await
            .unwrap();
        let output = child.wait_with_output().await.unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.starts_with("GET / HTTP/1.1"), "{} {text}", enforced.level);
        enforced.restore().await.unwrap();
    }
}

/// Other tests of this process would open and close descriptors too.
#[test]
fn nothing_is_left_of_commands_with_hosts_in_a_process_of_its_own() {
    for name in [
        "many_connections_wait_for_their_turn_and_the_proxy_ends_with_its_command",
        "a_start_that_is_dropped_at_any_poll_leaves_nothing",
    ] {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("hosts::{name}"), "--ignored", "--nocapture"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && text.contains("1 passed"), "{text}{said}");
    }
}

#[tokio::test]
#[ignore = "runs in a process of its own"]
async fn many_connections_wait_for_their_turn_and_the_proxy_ends_with_its_command() {
    let Some((place, sandbox)) = place(&["127.0.0.1"]).await else { return };
    let port = server();
    // More than the proxy serves at a time, most of them silent.
    let script = format!(
        "for i in {{1..140}}; do (exec 3<>/dev/tcp/127.0.0.1/3128; read -t 0.5 <&3) & done; sleep 0.2
         curl -sS -m 20 --noproxy '' http://127.0.0.1:{port}/ | head -1; wait"
    );
    let ran = place.run(&sandbox, &script).await;
    assert_eq!(ran.out, "GET / HTTP/1.1", "{ran:?}");
    let before = descriptors();
    for _ in 0..5 {
        place.run(&sandbox, "exec 3<>/dev/tcp/127.0.0.1/3128; exit 0").await;
    }
    let (mut child, enforced) = sandbox.spawn("/bin/sleep", |command| command.arg("600")).await.unwrap();
    assert!(descriptors() > before);
    Sandbox::kill_tree(&child);
    child.wait().await.unwrap();
    enforced.restore().await.unwrap();
    drop((child, enforced));
    // The end is seen by a thread and a task, which need a moment.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while descriptors() > before && std::time::Instant::now() < deadline {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert!(descriptors() <= before, "{} and {before} before", descriptors());
}

#[tokio::test]
async fn clients_that_gave_up_do_not_keep_the_proxy_from_others() {
    let Some((place, sandbox)) = place(&["127.0.0.1"]).await else { return };
    let (silent, port) = (TcpListener::bind("127.0.0.1:0").unwrap(), server());
    let deaf = silent.local_addr().unwrap().port();
    // The listener takes connections and nobody answers; each client says all, and is gone.
    let script = format!(
        "for i in {{1..100}}; do (exec 3<>/dev/tcp/127.0.0.1/3128
         printf 'GET http://127.0.0.1:{deaf}/ HTTP/1.1\\r\\n\\r\\n' >&3; sleep 0.3) & done; wait
         curl -sS -m 60 --noproxy '' http://127.0.0.1:{port}/ | head -1"
    );
    let ran = place.run(&sandbox, &script).await;
    assert_eq!(ran.out, "GET / HTTP/1.1", "{ran:?}");
}

#[tokio::test]
#[ignore = "runs in a process of its own"]
async fn a_start_that_is_dropped_at_any_poll_leaves_nothing() {
    let Some((place, sandbox)) = place(&["127.0.0.1"]).await else { return };
    place.run(&sandbox, "true").await;
    let name = format!("{}.0625", 1_000_000 + std::process::id());
    let before = descriptors();
    let mut polls = 0;
    loop {
        let mut start = Box::pin(sandbox.spawn("/bin/sleep", |command| command.arg(&name)));
        let mut left = polls;
        let ended = std::future::poll_fn(|cx| {
            if left == 0 {
                return std::task::Poll::Ready(None);
            }
            left -= 1;
            start.as_mut().poll(cx).map(Some)
        });
        if let Some(started) = ended.await {
            let (mut child, enforced) = started.unwrap();
            Sandbox::kill_tree(&child);
            child.wait().await.unwrap();
            enforced.restore().await.unwrap();
            break;
        }
        polls += 1;
    }
    assert!(polls > 1, "{polls}");
    let running = || {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let lines = all.filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok());
        lines.filter(|line| line.contains(&name)).count()
    };
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while (running() > 0 || descriptors() > before) && std::time::Instant::now() < deadline {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!((running(), descriptors() <= before), (0, true));
}
