//! An HTTP/1.1 server over bare TCP that can break off, answer byte by byte or not at all, and counts requests.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub(crate) enum Reply {
    /// A complete response: status line, extra header lines, body.
    Whole(&'static str, String, Vec<u8>),
    /// Half of a head, then the connection is closed.
    Half,
    /// A head, then one byte of body every few milliseconds, for ever.
    Drip(&'static str),
    Silence,
}

impl Reply {
    pub(crate) fn status(status: &'static str) -> Self {
        Self::Whole(status, String::new(), Vec::new())
    }

    pub(crate) fn with_header(status: &'static str, header: &str) -> Self {
        Self::Whole(status, format!("{header}\r\n"), Vec::new())
    }

    pub(crate) fn with_body(status: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self::Whole(status, String::new(), body.into())
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub line: String,
    /// By lower-case name.
    pub headers: HashMap<String, String>,
    pub body: Vec<u8>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Log {
    pub opened: usize,
    pub closed: usize,
    pub requests: Vec<Request>,
}

type Answer = dyn Fn(&Request) -> Reply + Send + Sync;

pub(crate) struct HttpServer {
    address: SocketAddr,
    log: watch::Sender<Log>,
    accepting: tokio::task::JoinHandle<()>,
}

impl HttpServer {
    pub(crate) async fn start(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let log = watch::Sender::new(Log::default());
        let answer: Arc<Answer> = Arc::new(answer);
        let accepting = tokio::spawn(accept(listener, log.clone(), answer));
        Self {
            address,
            log,
            accepting,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn log(&self) -> Log {
        self.log.borrow().clone()
    }

    pub(crate) async fn wait_until(&self, mut condition: impl FnMut(&Log) -> bool) -> Log {
        let mut log = self.log.subscribe();
        log.wait_for(|log| condition(log)).await.unwrap().clone()
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, log: watch::Sender<Log>, answer: Arc<Answer>) {
    loop {
        let (connection, _) = listener.accept().await.unwrap();
        log.send_modify(|log| log.opened += 1);
        let (log, answer) = (log.clone(), answer.clone());
        tokio::spawn(async move {
            serve(connection, &log, &*answer).await;
            log.send_modify(|log| log.closed += 1);
        });
    }
}

/// Ends when either side closes the connection.
async fn serve(mut connection: TcpStream, log: &watch::Sender<Log>, answer: &Answer) {
    while let Some(request) = read_request(&mut connection).await {
        let reply = answer(&request);
        log.send_modify(|log| log.requests.push(request));
        let going_on = match reply {
            Reply::Whole(status, headers, body) => {
                let length = body.len();
                let head =
                    format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n{headers}\r\n");
                connection
                    .write_all(&[head.into_bytes(), body].concat())
                    .await
                    .is_ok()
            }
            Reply::Half => {
                let _ = connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-le").await;
                false
            }
            Reply::Drip(status) => {
                let head = format!("HTTP/1.1 {status}\r\ncontent-length: 1000000\r\n\r\n");
                let mut written = connection.write_all(head.as_bytes()).await;
                while written.is_ok() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    written = connection.write_all(b"d").await;
                }
                false
            }
            Reply::Silence => {
                let mut rest = [0; 1024];
                while matches!(connection.read(&mut rest).await, Ok(1..)) {}
                false
            }
        };
        if !going_on {
            return;
        }
    }
}

async fn read_request(connection: &mut TcpStream) -> Option<Request> {
    let mut read = Vec::new();
    let head_length = loop {
        if let Some(end) = read.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        if !matches!(connection.read_buf(&mut read).await, Ok(1..)) {
            return None;
        }
    };
    let head = String::from_utf8(read[..head_length].to_vec()).unwrap();
    let mut lines = head.lines();
    let line = lines.next().unwrap().to_owned();
    let headers: HashMap<_, _> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let length: usize = headers["content-length"].parse().unwrap();
    let mut body = read.split_off(head_length);
    while body.len() < length {
        if !matches!(connection.read_buf(&mut body).await, Ok(1..)) {
            return None;
        }
    }
    Some(Request {
        line,
        headers,
        body,
    })
}
