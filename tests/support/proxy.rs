//! A TCP proxy in front of one process: it can cut, delay, throttle and swallow what passes, and cut
//! right after it forwarded what commits.
//!
//! What it cannot do is vanish: the kernel under it acknowledges whatever the two sides send. A
//! silent proxy is a hung middlebox, not a lost node.

mod frontend;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;
use tokio_postgres::Config;
use tokio_postgres::config::Host;

pub use self::frontend::Trap;
use self::frontend::Watch;

const CHUNK: usize = 16 * 1024;

/// Where connections go on to.
#[derive(Clone, Debug)]
pub enum Upstream {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl Upstream {
    /// The server of a URL.
    pub fn of(url: &str) -> Self {
        let config: Config = url.parse().unwrap();
        let port = config.get_ports().first().copied().unwrap_or(5432);
        match &config.get_hosts()[0] {
            Host::Tcp(host) => {
                let host = if host == "localhost" {
                    "127.0.0.1"
                } else {
                    host
                };
                Self::Tcp(SocketAddr::new(host.parse().unwrap(), port))
            }
            Host::Unix(dir) => Self::Unix(dir.join(format!(".s.PGSQL.{port}"))),
        }
    }

    async fn connect(&self) -> std::io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Tcp(address) => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
            Self::Unix(path) => Box::new(UnixStream::connect(path).await?),
        })
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Postgres,
    Http,
    Redis,
}

/// How bytes pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct Line {
    /// Added to whatever passes, each way.
    pub delay: Duration,
    pub bytes_per_s: Option<u32>,
    /// Nothing passes, not even the end of a connection.
    pub silent: bool,
    /// The same for the connections to Postgres whose application name ends in this and whose number is
    /// below this: see [`Proxy::hang`].
    pub hanging: Option<(&'static str, usize)>,
    /// Every new connection is reset.
    pub refusing: bool,
    /// Of an answer, only so many bytes pass; then the connection is cut.
    pub answer_bytes: Option<usize>,
}

struct Desk {
    upstream: Mutex<Upstream>,
    protocol: Protocol,
    line: watch::Sender<Line>,
    cuts: watch::Sender<u64>,
    trap: Mutex<Option<Trap>>,
    opened: AtomicUsize,
    sprung: AtomicUsize,
    halved: AtomicUsize,
}

pub struct Proxy {
    port: u16,
    desk: Arc<Desk>,
    accepting: JoinHandle<()>,
}

struct Conversation {
    number: usize,
    /// The application name that a client told Postgres.
    name: OnceLock<String>,
}

/// Why a connection ends before both sides have ended it.
enum Cut {
    Told,
    Sprung,
    Halved,
    Broken,
}

impl Proxy {
    pub async fn start(upstream: Upstream, protocol: Protocol) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let desk = Arc::new(Desk {
            upstream: Mutex::new(upstream),
            protocol,
            line: watch::Sender::default(),
            cuts: watch::Sender::default(),
            trap: Mutex::default(),
            opened: AtomicUsize::new(0),
            sprung: AtomicUsize::new(0),
            halved: AtomicUsize::new(0),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&desk)));
        Self {
            port,
            desk,
            accepting,
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The same database through this proxy.
    pub fn through(&self, url: &str) -> String {
        let config: Config = url.parse().unwrap();
        let user = config.get_user().unwrap_or("postgres");
        let password = config.get_password().map_or(String::new(), |password| {
            format!(":{}", String::from_utf8_lossy(password))
        });
        let database = config.get_dbname().unwrap_or(user);
        format!(
            "postgres://{user}{password}@127.0.0.1:{}/{database}",
            self.port
        )
    }

    pub fn set(&self, line: Line) {
        self.desk.line.send_replace(line);
    }

    /// Lets nothing pass any more on the connections to Postgres that there are and whose application
    /// name ends in this. New ones pass.
    pub fn hang(&self, end: &'static str) {
        let before = self.desk.opened.load(Ordering::SeqCst);
        self.set(Line {
            hanging: Some((end, before)),
            ..Line::default()
        });
    }

    /// Where new connections go.
    pub fn lead_to(&self, upstream: Upstream) {
        *self.desk.upstream.lock().unwrap() = upstream;
    }

    /// Resets every connection that there is.
    pub fn cut(&self) {
        self.desk.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Cuts the connection on which this is forwarded next, once.
    pub fn lay(&self, trap: Trap) {
        *self.desk.trap.lock().unwrap() = Some(trap);
    }

    pub fn disarm(&self) {
        *self.desk.trap.lock().unwrap() = None;
    }

    /// How often a trap cut a connection.
    pub fn sprung(&self) -> usize {
        self.desk.sprung.load(Ordering::Relaxed)
    }

    /// How many answers did not pass whole.
    pub fn halved(&self) -> usize {
        self.desk.halved.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, desk: Arc<Desk>) {
    // Its connections go with it.
    let mut carrying = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        while carrying.try_join_next().is_some() {}
        carrying.spawn(carry(client, Arc::clone(&desk)));
    }
}

async fn carry(mut client: TcpStream, desk: Arc<Desk>) {
    let mut cuts = desk.cuts.subscribe();
    if desk.line.borrow().refusing || client.set_nodelay(true).is_err() {
        reset(client);
        return;
    }
    let cut = tokio::select! {
        biased;
        _ = cuts.changed() => Some(Cut::Told),
        cut = pump(&mut client, &desk) => cut,
    };
    match cut {
        None => return,
        Some(Cut::Sprung) => desk.sprung.fetch_add(1, Ordering::Relaxed),
        Some(Cut::Halved) => desk.halved.fetch_add(1, Ordering::Relaxed),
        Some(Cut::Told | Cut::Broken) => 0,
    };
    reset(client);
}

fn reset(client: TcpStream) {
    // Without it the other side would see an orderly end. A socket that is gone needs none.
    let _ = client.set_zero_linger();
    drop(client);
}

async fn pump(client: &mut TcpStream, desk: &Desk) -> Option<Cut> {
    let conversation = &Conversation {
        number: desk.opened.fetch_add(1, Ordering::SeqCst),
        name: OnceLock::new(),
    };
    open(desk, conversation).await;
    let upstream = desk.upstream.lock().unwrap().clone();
    let Ok(server) = upstream.connect().await else {
        return Some(Cut::Broken);
    };
    let (from_client, to_client) = client.split();
    let (from_server, to_server) = tokio::io::split(server);
    tokio::try_join!(
        up(desk, conversation, from_client, to_server),
        down(desk, conversation, from_server, to_client)
    )
    .err()
}

/// Until something may pass.
async fn open(desk: &Desk, conversation: &Conversation) {
    let mut line = desk.line.subscribe();
    let passes = |line: &Line| {
        let hangs = line.hanging.is_some_and(|(end, before)| {
            let told = conversation.name.get();
            conversation.number < before && told.is_some_and(|name| name.ends_with(end))
        });
        !line.silent && !hangs
    };
    // The desk holds the sender.
    let _ = line.wait_for(passes).await;
}

async fn pace(desk: &Desk, bytes: usize) {
    let line = *desk.line.borrow();
    let mut wait = line.delay;
    if let Some(per_s) = line.bytes_per_s {
        wait += Duration::from_secs(1) * u32::try_from(bytes).unwrap_or(u32::MAX) / per_s;
    }
    if !wait.is_zero() {
        sleep(wait).await;
    }
}

async fn up(
    desk: &Desk,
    conversation: &Conversation,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
) -> Result<(), Cut> {
    let mut watch = Watch::default();
    let mut buffer = vec![0; CHUNK];
    loop {
        open(desk, conversation).await;
        let read = from.read(&mut buffer).await.map_err(|_| Cut::Broken)?;
        open(desk, conversation).await;
        pace(desk, read).await;
        if read == 0 {
            // The server may have ended it first.
            let _ = to.shutdown().await;
            return Ok(());
        }
        let mut pass = read;
        let mut sprung = false;
        if desk.protocol == Protocol::Postgres {
            let mut trap = desk.trap.lock().unwrap();
            if let Some(end) = watch.look(&buffer[..read], *trap) {
                (pass, sprung) = (end, true);
                *trap = None;
            }
            if let Some(told) = watch.application() {
                conversation.name.get_or_init(|| told.to_owned());
            }
        }
        to.write_all(&buffer[..pass])
            .await
            .map_err(|_| Cut::Broken)?;
        if sprung {
            return Err(Cut::Sprung);
        }
    }
}

async fn down(
    desk: &Desk,
    conversation: &Conversation,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
) -> Result<(), Cut> {
    let mut buffer = vec![0; CHUNK];
    loop {
        open(desk, conversation).await;
        let read = from.read(&mut buffer).await.map_err(|_| Cut::Broken)?;
        open(desk, conversation).await;
        pace(desk, read).await;
        if read == 0 {
            let _ = to.shutdown().await;
            return Ok(());
        }
        let half = desk.line.borrow().answer_bytes.filter(|most| *most < read);
        to.write_all(&buffer[..half.unwrap_or(read)])
            .await
            .map_err(|_| Cut::Broken)?;
        if half.is_some() {
            return Err(Cut::Halved);
        }
    }
}
