//! Sockets of every kind, with the network off and on.

use std::{
    net::{TcpListener, UdpSocket},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixListener},
    },
};

use super::{Backend, Place, backends, has};

/// Tries one socket after another and prints the names of those that opened.
const SOCKETS: &str = r#"/usr/bin/python3 - <<'PY'
import socket, sys
kinds = {
    "tcp": (socket.AF_INET, socket.SOCK_STREAM, 0), "tcp6": (socket.AF_INET6, socket.SOCK_STREAM, 0),
    "udp": (socket.AF_INET, socket.SOCK_DGRAM, 0), "udp6": (socket.AF_INET6, socket.SOCK_DGRAM, 0),
    "ping": (socket.AF_INET, socket.SOCK_DGRAM, 1), "raw": (socket.AF_INET, socket.SOCK_RAW, 1),
    "raw6": (socket.AF_INET6, socket.SOCK_RAW, 58), "packet": (socket.AF_PACKET, socket.SOCK_RAW, 0),
    "route": (socket.AF_NETLINK, socket.SOCK_RAW, 0), "audit": (socket.AF_NETLINK, socket.SOCK_RAW, 9),
    "unix": (socket.AF_UNIX, socket.SOCK_STREAM, 0), "vsock": (40, socket.SOCK_STREAM, 0),
    "alg": (38, socket.SOCK_SEQPACKET, 0), "bluetooth": (31, socket.SOCK_RAW, 1), "xdp": (44, socket.SOCK_RAW, 0),
}
for name, kind in kinds.items():
    try:
        socket.socket(*kind).close()
        print(name)
    except OSError:
        pass
socket.socketpair()
print("pair")
PY"#;

#[tokio::test]
async fn attack_33_no_socket_of_any_family_opens_without_network() {
    if !has("/usr/bin/python3") {
        return;
    }
    for backend in backends().await {
        let place = Place::new();
        let ran = place.run(&place.read(backend), SOCKETS).await;
        assert_eq!(ran.out, "pair", "{backend:?} {ran:?}");
        assert!(!ran.enforced.network && !ran.enforced.unix_sockets);
        let ran = place.run(&place.read(backend).unix_sockets(true), SOCKETS).await;
        assert_eq!(ran.out, "unix\npair", "{backend:?} {ran:?}");
    }
}

#[tokio::test]
async fn sandbox_network_opens_internet_sockets_and_no_raw_ones() {
    if !has("/usr/bin/python3") {
        return;
    }
    for backend in backends().await {
        let place = Place::new();
        let ran = place.run(&place.read(backend).network(true), SOCKETS).await;
        let opened: Vec<_> = ran.out.lines().filter(|name| *name != "ping").collect();
        assert_eq!(opened, ["tcp", "tcp6", "udp", "udp6", "route", "pair"], "{backend:?} {ran:?}");
    }
}

#[tokio::test]
async fn attack_33_services_of_this_machine_are_not_reached() {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (tcp_port, udp_port) = (tcp.local_addr().unwrap().port(), udp.local_addr().unwrap().port());
    for backend in backends().await {
        let place = Place::new();
        let attempts = [
            format!("echo x > /dev/tcp/127.0.0.1/{tcp_port}"),
            format!("echo x > /dev/udp/127.0.0.1/{udp_port}"),
            "getent ahosts localhost.example.invalid".to_owned(),
            format!("curl -s -m 5 http://127.0.0.1:{tcp_port}/"),
        ];
        let none: [String; 0] = [];
        assert_eq!(place.escapes(&place.write(backend), &attempts).await, none, "{backend:?}");
        tcp.set_nonblocking(true).unwrap();
        udp.set_nonblocking(true).unwrap();
        assert!(tcp.accept().is_err() && udp.recv(&mut [0; 8]).is_err(), "{backend:?}");
        let ran = place
            .run(
                &place.write(backend).network(true),
                &format!("echo x > /dev/tcp/127.0.0.1/{tcp_port} && echo through"),
            )
            .await;
        assert_eq!(ran.out, "through", "{backend:?} {ran:?}");
        tcp.set_nonblocking(false).unwrap();
        tcp.accept().unwrap();
    }
}

#[tokio::test]
async fn attack_33_unix_sockets_of_services_are_not_reached() {
    if !has("/usr/bin/python3") {
        return;
    }
    for backend in backends().await {
        let place = Place::new();
        let path = place.outside.path().join("agent");
        let _by_path = UnixListener::bind(&path).unwrap();
        let name = format!("entourage-{}-{backend:?}", std::process::id());
        let _abstract = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let connect = |address: &str| {
            format!(
                "/usr/bin/python3 -c 'import os,socket; socket.socket(socket.AF_UNIX).connect({address}); print(\"reached\")'"
            )
        };
        let by_path = connect("os.environ[\"OUT\"] + \"/agent\"");
        let by_name = connect(&format!("\"\\0{name}\""));
        for script in [&by_path, &by_name] {
            let ran = place.run(&place.write(backend), script).await;
            assert_eq!(ran.out, "", "{backend:?} {ran:?}");
        }
        let open = place.write(backend).unix_sockets(true);
        let ran = place.run(&open, &by_name).await;
        assert_eq!(ran.out, "", "an abstract socket: {backend:?} {ran:?}");
        // Landlock has no rule for these yet, as the documentation of `unix_sockets` says.
        let ran = place.run(&open, &by_path).await;
        assert_eq!(ran.out == "reached", backend == Backend::Landlock, "{backend:?} {ran:?}");
    }
}
