//! Several hosts in the database URL, the first of them silent or refusing.

mod commands;
mod refusal;
mod worker;

use crate::support::{Protocol, Proxy, TestDb, Upstream};

/// The server of a database, as it is reached over TCP.
async fn server(db: &TestDb) -> Proxy {
    Proxy::start(Upstream::of(db.url()), Protocol::Postgres).await
}

/// A URL with these ports of this machine, in their order, for the database behind the last of them.
fn url(db: &TestDb, before: &[u16], server: &Proxy) -> String {
    let last = server.through(db.url());
    let (start, end) = last.split_once("127.0.0.1").unwrap();
    let hosts = before.iter().map(|port| format!("127.0.0.1:{port},"));
    format!("{start}{}127.0.0.1{end}", hosts.collect::<String>())
}
