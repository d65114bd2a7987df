//! Finds the Redis server with the limits: the one that the URL names, the cluster node that has their slot, or the
//! master that the sentinels name.
//!
//! All keys have one hash tag, so they are in one slot, and one connection to one node is enough. Each new connection
//! asks which node has the slot, or which server is the master. When that changes, the next command is refused (MOVED,
//! READONLY) or the connection ends, and the process connects again.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _,
    RedisConnectionInfo, RedisError,
};
use tokio::time::timeout;

use super::settings::{LinkError, RedisSettings};

const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// Nodes that send one to the next, until something is wrong with the cluster.
const REDIRECTIONS: usize = 5;

/// Connects to the server that has `key`: the first of the addresses that leads there counts.
///
/// # Errors
/// That of the last address.
pub(super) async fn connect(
    settings: &RedisSettings,
    key: &str,
) -> Result<MultiplexedConnection, LinkError> {
    let mut failed = None;
    let urls = settings.url.current(judge).await;
    for url in urls.expose().split(',') {
        let info = url.trim().into_connection_info().map_err(LinkError::Url)?;
        let connected = match &settings.sentinel {
            Some(master) => through_sentinel(info, master).await,
            None => to_owner(info, key).await,
        };
        match connected {
            Ok(connection) => return Ok(connection),
            Err(error) => failed = Some(error),
        }
    }
    // Splitting any text gives one part at least.
    Err(failed.unwrap_or(LinkError::Silent("connecting")))
}

/// Of addresses that replaced others in their file. The driver's own words could repeat them.
fn judge(urls: &str) -> Result<(), String> {
    match urls
        .split(',')
        .all(|url| url.trim().into_connection_info().is_ok())
    {
        true => Ok(()),
        false => Err("it is no address of a Redis server".to_owned()),
    }
}

async fn open(info: ConnectionInfo) -> Result<MultiplexedConnection, LinkError> {
    let client = Client::open(info).map_err(LinkError::Url)?;
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_WITHIN))
        .set_response_timeout(None);
    let connecting = client.get_multiplexed_async_connection_with_config(&config);
    timeout(CONNECT_WITHIN * 2, connecting)
        .await
        .map_err(|_| LinkError::Silent("connecting"))?
        .map_err(LinkError::Connect)
}

/// Follows a cluster to the node that has the key. A server that is no cluster has it itself.
async fn to_owner(mut info: ConnectionInfo, key: &str) -> Result<MultiplexedConnection, LinkError> {
    for _ in 0..REDIRECTIONS {
        let mut connection = open(info.clone()).await?;
        let mut command = redis::cmd("EXISTS");
        let asked = ask(command.arg(key).query_async::<i64>(&mut connection)).await?;
        let Err(error) = asked else {
            return Ok(connection);
        };
        let owner = error.redirect_node().and_then(|(address, _slot)| {
            let (host, port) = address.rsplit_once(':')?;
            Some((host, port.parse().ok()?))
        });
        let Some((host, port)) = owner else {
            return Err(LinkError::Refused("looking for the limits", error));
        };
        info = moved(info, host, port);
    }
    Err(LinkError::Redirected(REDIRECTIONS))
}

async fn through_sentinel(
    info: ConnectionInfo,
    master: &str,
) -> Result<MultiplexedConnection, LinkError> {
    // Sentinels have passwords of their own, if any: the URL's is the server's.
    let unnamed = info
        .clone()
        .set_redis_settings(RedisConnectionInfo::default());
    let mut sentinel = open(unnamed).await?;
    let mut command = redis::cmd("SENTINEL");
    command.arg("get-master-addr-by-name").arg(master);
    let asked = ask(command.query_async::<Option<(String, u16)>>(&mut sentinel)).await?;
    let found = asked.map_err(|error| LinkError::Refused("naming the master", error))?;
    let Some((host, port)) = found else {
        return Err(LinkError::NoMaster(master.to_owned()));
    };
    let mut connection = open(moved(info, &host, port)).await?;
    // A sentinel may name the old one for a moment.
    let command = redis::cmd("ROLE");
    let asked = ask(command.query_async::<redis::Value>(&mut connection)).await?;
    let role = asked.map_err(|error| LinkError::Refused("telling its role", error))?;
    match role {
        redis::Value::Array(told) if is_text(told.first(), "master") => Ok(connection),
        _ => Err(LinkError::NotMaster),
    }
}

fn is_text(value: Option<&redis::Value>, text: &str) -> bool {
    match value {
        Some(redis::Value::BulkString(bytes)) => bytes == text.as_bytes(),
        Some(redis::Value::SimpleString(told)) => told == text,
        _ => false,
    }
}

async fn ask<T>(
    question: impl Future<Output = Result<T, RedisError>>,
) -> Result<Result<T, RedisError>, LinkError> {
    timeout(CONNECT_WITHIN, question)
        .await
        .map_err(|_| LinkError::Silent("connecting"))
}

/// The same way to another server. An empty host is the one that named it.
fn moved(info: ConnectionInfo, to: &str, at: u16) -> ConnectionInfo {
    let host_or = |own: &str| {
        if to.is_empty() {
            own.to_owned()
        } else {
            to.to_owned()
        }
    };
    let addr = match info.addr() {
        ConnectionAddr::TcpTls {
            host,
            insecure,
            tls_params,
            ..
        } => ConnectionAddr::TcpTls {
            host: host_or(host),
            port: at,
            insecure: *insecure,
            tls_params: tls_params.clone(),
        },
        ConnectionAddr::Tcp(host, _) => ConnectionAddr::Tcp(host_or(host), at),
        _ => ConnectionAddr::Tcp(to.to_owned(), at),
    };
    info.set_addr(addr)
}
