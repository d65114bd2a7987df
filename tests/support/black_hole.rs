//! Addresses at which nobody answers.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How long a connection to this machine may take before the queue counts as full.
const FULL_AFTER: Duration = Duration::from_millis(500);
const QUEUE_MAX: usize = 5_000;

/// How a host is silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// It answers no packet, as a node that vanished: its queue of connections is full.
    Vanished,
    /// It takes connections and never says a word.
    Hanging,
}

/// A port at which nobody answers.
pub struct BlackHole {
    address: SocketAddr,
    _queue: Vec<TcpStream>,
    holding: JoinHandle<()>,
}

impl BlackHole {
    pub async fn new(silence: Silence) -> Self {
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
        Self::at(address, silence).await.unwrap()
    }

    pub async fn at(address: SocketAddr, silence: Silence) -> std::io::Result<Self> {
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        }?;
        socket.bind(address)?;
        let listener = socket.listen(1)?;
        let address = listener.local_addr()?;
        let mut queue = Vec::new();
        if silence == Silence::Vanished {
            while let Ok(connected) = timeout(FULL_AFTER, TcpStream::connect(address)).await {
                queue.push(connected?);
                assert!(
                    queue.len() < QUEUE_MAX,
                    "the queue of connections never fills"
                );
            }
        }
        let holding = tokio::spawn(hold(listener, silence));
        Ok(Self {
            address,
            _queue: queue,
            holding,
        })
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }
}

impl Drop for BlackHole {
    fn drop(&mut self) {
        self.holding.abort();
    }
}

async fn hold(listener: TcpListener, silence: Silence) {
    let mut taken = Vec::new();
    loop {
        match silence {
            Silence::Vanished => std::future::pending().await,
            Silence::Hanging => taken.push(listener.accept().await),
        }
    }
}
