//! The end of a login in the browser: a request to this machine, which brings the code.

use std::{collections::VecDeque, net::Ipv4Addr, time::Duration};

use reqwest::Url;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::{AbortHandle, JoinSet},
    time::timeout,
};

use super::token::code_of_error;

/// Path of the one request that is waited for.
const PATH: &str = "/callback";
/// Most bytes of a request, and the time that one has.
const REQUEST: usize = 16 << 10;
const TIME: Duration = Duration::from_secs(10);
/// Most connections at a time: a browser opens some ahead, and others may too. The oldest one makes room for the next.
const CONNECTIONS: usize = 16;

/// Waits for the browser, until it is dropped.
#[derive(Debug)]
pub(super) struct Listener {
    socket: TcpListener,
    port: u16,
}

/// The answer of the authorization server, by way of the browser.
pub(in crate::mcp) struct Answer {
    pub(super) code: String,
    pub(super) state: String,
    pub(super) issuer: Option<String>,
}

/// The request that ends a login.
enum Ending {
    Answer(Answer),
    /// The person, or the authorization server, said no.
    Refused(String),
}

impl Listener {
    /// Listens on this machine alone, at a port of its choice for 0.
    pub(super) async fn open(port: u16) -> std::io::Result<Self> {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let port = socket.local_addr()?.port();
        Ok(Self { socket, port })
    }

    /// The address to which the browser is sent back.
    pub(super) fn address(&self) -> String {
        format!("http://127.0.0.1:{}{PATH}", self.port)
    }

    /// Waits for the one request with this state. Any other is answered and changes nothing: each program of this
    /// machine, and each page in the browser, can make one.
    ///
    /// # Errors
    /// The code of the error with which the authorization server refused.
    pub(super) async fn answer(self, state: &str) -> Result<Answer, String> {
        let (mut asked, mut open) = (JoinSet::new(), VecDeque::new());
        loop {
            tokio::select! {
                // An answer that is here is never displaced by a connection.
                biased;
                Some(served) = asked.join_next() => match served {
                    Ok(Some(Ending::Answer(answer))) => return Ok(answer),
                    Ok(Some(Ending::Refused(code))) => return Err(code),
                    Ok(None) | Err(_) => {}
                },
                accepted = self.socket.accept() => match accepted {
                    Ok((stream, _)) => {
                        open.retain(|task: &AbortHandle| !task.is_finished());
                        if open.len() >= CONNECTIONS
                            && let Some(oldest) = open.pop_front()
                        {
                            oldest.abort();
                        }
                        open.push_back(asked.spawn(serve(stream, state.to_owned())));
                    }
                    // Too many open files, for one.
                    Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                },
            }
        }
    }
}

/// Reads one request, and answers it.
async fn serve(mut stream: TcpStream, state: String) -> Option<Ending> {
    let served = async {
        let target = read(&mut stream).await?;
        let ending = ending(&target, &state);
        let (status, text) = match &ending {
            Some(Ending::Answer(_)) => ("200 OK", "The answer has arrived. You can close this page."),
            Some(Ending::Refused(_)) => ("200 OK", "The login was refused. You can close this page."),
            None => ("404 Not Found", "This is not the end of a login that is waited for."),
        };
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
             Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n{text}",
            text.len()
        );
        // The browser may be gone. The code is here nevertheless.
        let _ = stream.write_all(answer.as_bytes()).await;
        let _ = stream.shutdown().await;
        ending
    };
    timeout(TIME, served).await.ok().flatten()
}

/// The target of a request, once all of its head is here.
async fn read(stream: &mut TcpStream) -> Option<String> {
    let (mut head, mut buffer) = (Vec::new(), [0; 2_048]);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = stream.read(&mut buffer).await.ok().filter(|read| *read > 0)?;
        head.extend_from_slice(buffer.get(..read)?);
        if head.len() > REQUEST {
            return None;
        }
    }
    let head = String::from_utf8(head).ok()?;
    let mut words = head.lines().next()?.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    Some(target.to_owned()).filter(|_| method == "GET")
}

/// The content of a request with this state.
fn ending(target: &str, state: &str) -> Option<Ending> {
    let (path, query) = target.split_once('?')?;
    if path != PATH {
        return None;
    }
    let mut form = Url::parse("http://localhost").ok()?;
    form.set_query(Some(query));
    let (mut code, mut given, mut issuer, mut error) = (None, None, None, None);
    for (key, value) in form.query_pairs() {
        let field = match &*key {
            "code" => &mut code,
            "state" => &mut given,
            "iss" => &mut issuer,
            "error" => &mut error,
            _ => continue,
        };
        // One of two values would be chosen by whoever wrote the request.
        if field.replace(value.into_owned()).is_some() {
            return None;
        }
    }
    let state = given.filter(|given| given == state)?;
    match (code, error) {
        (Some(code), None) if !code.is_empty() => Some(Ending::Answer(Answer { code, state, issuer })),
        (_, Some(error)) => {
            Some(Ending::Refused(code_of_error(&error).unwrap_or("no known reason").to_owned()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attack_41_only_the_request_with_the_state_ends_a_login() {
        let told = |target: &str| match ending(target, "s+1") {
            Some(Ending::Answer(answer)) => {
                format!("{} {} {}", answer.code, answer.state, answer.issuer.unwrap_or_default())
            }
            Some(Ending::Refused(code)) => format!("refused {code}"),
            None => "-".to_owned(),
        };
        for (target, expected) in [
            ("/callback?code=a%20b&state=s%2B1&iss=https%3A%2F%2Fx.example", "a b s+1 https://x.example"),
            ("/callback?state=s%2B1&code=a", "a s+1 "),
            ("/callback?error=access_denied&state=s%2B1", "refused access_denied"),
            ("/callback?error=%3Cscript%3E&state=s%2B1&code=a", "refused no known reason"),
            ("/callback?code=a&state=s+1", "-"),
            ("/callback?code=a&state=other", "-"),
            ("/callback?code=a", "-"),
            ("/callback?code=a&code=b&state=s%2B1", "-"),
            ("/callback?code=a&state=x&state=s%2B1", "-"),
            ("/callback?code=&state=s%2B1", "-"),
            ("/callback?error=access_denied", "-"),
            ("/callback/?code=a&state=s%2B1", "-"),
            ("/other?code=a&state=s%2B1", "-"),
            ("/callback", "-"),
            ("http://x.example/callback?code=a&state=s%2B1", "-"),
        ] {
            assert_eq!(told(target), expected, "{target}");
        }
    }
}
